"""What a coordinate descent works on, and where it stands."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engine.alignment.candidates import Heard
from engine.alignment.one_pass import common, layer_tensors
from engine.alignment.proposals import square
from engine.alignment.widths import Both, padded, widths
from engine.axes import Leg, Mark, legs
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.family import Family
from engine.folding import HEADS, NEURONS, canonical
from engine.questions import Align

WORDS = HEADS | NEURONS
ALL = WORDS | {"res"}
"""Along these a layer is folded; outside layers no gain of the last norm, which ties may share."""


@dataclass(frozen=True)
class Listened:
    """What activations say, as correlations, rows A."""

    residual: np.ndarray  # [d, d]
    neurons: tuple[Tensor, ...] = ()  # float32 [n, n] of every layer; () where not measured


@dataclass(frozen=True)
class Descent:
    """Two models, what may be solved, and how."""

    a: Checkpoint
    b: Checkpoint
    asked: Align
    chosen: Collection[str]
    kept: Tensor | None = None  # token ids that count; None: all
    listened: Listened | None = None

    @property
    def family(self) -> Family:
        """The table of both."""
        return self.a.family

    @property
    def weight(self) -> float:
        """μ."""
        return self.asked.mix if self.listened else 0.0

    @cached_property
    def both(self) -> Both | None:
        """How many neurons a layer has, where these differ."""
        return widths(self.a, self.b)

    @cached_property
    def total(self) -> float:
        """Σ ‖A_t‖², for the weights of activations."""
        pairs = (self.pair(layer)[0].values() for layer in self.layers())
        return sum(square(x) for tensors in pairs for x in tensors)

    def layers(self) -> Iterator[int | None]:
        """Every layer, then what belongs to none."""
        yield from (*range(self.a.layers), None)

    def pair(self, layer: int | None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors of one layer of A and B that count, folded, padded to the wider one."""
        x, y = (self._folded(c, layer) for c in (self.a, self.b))
        rows = {n: self._rows(n, x[n], y[n]) for n in x if n in y and signed(self.family, n)}
        return {n: own for n, (own, _) in rows.items()}, {n: own for n, (_, own) in rows.items()}

    def _folded(self, one: Checkpoint, layer: int | None) -> dict[str, Tensor]:
        sizes = self.family.sizes(one.config)
        words = WORDS if layer is None else ALL
        found = canonical(self.family, sizes, layer_tensors(one, layer, mapped=True), words)
        return padded(self.family, sizes, found, max(self.both)) if self.both else found

    def _rows(self, name: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = (z if z.dtype == torch.float64 else z.float() for z in common(x, y))
        for axis, one in enumerate(self.family.row(name).axes):
            if self.kept is not None and isinstance(one, Leg) and one.name == "tok":
                kept = self.kept[self.kept < x.shape[axis]]
                x, y = x.index_select(axis, kept), y.index_select(axis, kept)
        return x, y

    def heard(self, layer: int | None) -> Heard | None:
        """What the neurons of a layer say, weighed as a squared distance."""
        if not self.weight or layer is None or not (self.listened and self.listened.neurons):
            return None
        share = self.weight / (1 - self.weight) * self.total / (2 * self.a.layers)
        found = self.listened.neurons[layer]
        size = max(found.shape)
        wide = torch.nn.functional.pad(found, (0, size - found.shape[1], 0, size - len(found)))
        return Heard(wide, share)


def signed(family: Family, name: str) -> bool:
    """Whether a tensor has a leg that is written or read."""
    return any(leg.mark is not Mark.RELABEL for leg in legs(family.row(name).axes))


@dataclass(frozen=True)
class State:
    """Where a descent stands: the residual element, all others by key, and J there."""

    res: Ordered
    inner: Mapping[str, Element] = field(default_factory=dict)
    objective: float = math.inf
    distance: float = math.inf  # D

    def of(self, task: Descent, layer: int | None) -> dict[str, Element]:
        """The elements of one layer by coordinate."""
        names = [n for n in task.chosen if (n in task.family.per_layer) == (layer is not None)]
        keys = {n: task.family.key(n, layer) for n in names}
        return {n: self.inner[key] for n, key in keys.items() if key in self.inner}
