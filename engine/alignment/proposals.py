"""What one layer may change to in a sweep: its neurons, its heads and what is inside them.

Every proposal is judged by the distance that it leaves, so that it may come from any score.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.action import act
from engine.alignment.candidates import Heard, best_neurons
from engine.alignment.one_pass import stages
from engine.alignment.stages import Solver, solve_mixing
from engine.axes import Sizes, legs
from engine.elements import Element, Ordered
from engine.family import Family
from engine.folding import HEADS, NEURONS
from engine.questions import NeuronCost, Stage2
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
Found = dict[str, Element]
Find = Callable[[Family, Sizes, Tensors, Tensors], Found]
STEPS = 20
"""Of Gauss–Newton for a matrix: in sweeps it is solved again and again."""
HELD = frozenset({"exp", "grp", "head"})
"""Orders that may stay while all that is inside them is solved again."""


def square(x: Tensor) -> float:
    """‖x‖²: a dot product adds up in parts, so that float32 is fine enough, and fast."""
    flat = x.flatten()
    return float(torch.dot(flat, flat))


@dataclass(frozen=True)
class Stage:
    """Coordinates that are solved together, and how."""

    names: tuple[str, ...]
    find: Find


@dataclass(frozen=True)
class Scene:
    """One layer of both models, folded, B in A's residual coordinates; and what may be solved."""

    family: Family
    config: Mapping[str, Any]
    layer: int | None
    a: Tensors
    b: Tensors
    chosen: Collection[str]
    stage2: Stage2 = "full"
    cost: NeuronCost = "invariant"
    heard: Heard | None = None

    def after(self, elements: Mapping[str, Element]) -> "Scene":
        """B under some elements, by coordinate."""
        if not elements:
            return self
        keyed = {self.family.key(n, self.layer): e for n, e in elements.items()}
        g = Symmetry(self.family, self.config, keyed)
        return replace(self, b={name: act(g, name, self.b.__getitem__) for name in self.b})

    def gap(self, names: Collection[str] = ()) -> float:
        """‖A − B‖² over the tensors that carry one of some coordinates (none named: over all)."""
        return sum(
            square(x - self.b[n]) for n, x in self.a.items() if not names or self.carries(n, names)
        )

    def carries(self, tensor: str, names: Collection[str]) -> bool:
        """Whether a tensor has one of some coordinates on an axis or in its name."""
        row = self.family.row(tensor)
        return bool({*names} & {*row.places, *(leg.name for leg in legs(row.axes))})

    def blocks(self, now: Mapping[str, Element]) -> list[tuple[Stage, ...]]:
        """The stages by what they share: the feed-forward network, attention, each other one."""
        sizes = self.family.sizes(self.config)
        found = stages(self.family, sizes, self.chosen, self.layer, self.stage2)
        every = [Stage(names, self._find(names, solver, now)) for names, solver in found]
        parts = [tuple(s for s in every if set(s.names) <= words) for words in (NEURONS, HEADS)]
        others = [(s,) for s in every if not set(s.names) <= NEURONS | HEADS]
        return [part for part in (*parts, *others) if part]

    def _find(self, names: tuple[str, ...], solver: Solver, now: Mapping[str, Element]) -> Find:
        if set(names) <= {"ffn", "sffn"}:
            heard = self.heard if names == ("ffn",) else None
            return partial(
                best_neurons, word=names[0], now=now.get(names[0]), cost=self.cost, heard=heard
            )
        if set(names) <= {"val", "qk"} and self.stage2 == "full":
            solver = partial(solve_mixing, word=names[0], steps=STEPS)
        return lambda family, sizes, a, b: dict(solver(family, sizes, a, b).elements)


def solve_layer(scene: Scene, now: Mapping[str, Element]) -> tuple[Found, Scene, Scene]:
    """The best proposal of every block, the present elements among them; B after and before it."""
    present = scene.after(now)
    found, tensors = dict(now), dict(present.b)
    for block in scene.blocks(now):
        names = {name for stage in block for name in stage.names}
        least = _worth(present, now, names)
        for elements, there in proposals(scene, block, now):
            value = _worth(there, elements, names)
            if value < least:
                least = value
                found |= elements
                tensors |= {n: x for n, x in there.b.items() if scene.carries(n, names)}
    return found, replace(scene, b=tensors), present


def _worth(scene: Scene, elements: Mapping[str, Element], names: Collection[str]) -> float:
    return scene.gap(names) - (heard(scene, elements) if "ffn" in names else 0.0)


def heard(scene: Scene, elements: Mapping[str, Element]) -> float:
    """What the order of the neurons is worth to their activations, as squared distance."""
    if scene.heard is None:
        return 0.0
    neurons = elements.get("ffn")
    still = torch.arange(len(scene.heard.correlation))
    return scene.heard.gain(neurons.permutation if isinstance(neurons, Ordered) else still)


def proposals(
    scene: Scene, block: tuple[Stage, ...], now: Mapping[str, Element]
) -> Iterator[tuple[Found, Scene]]:
    """Elements of a block: by all its stages, and in the present order of experts and heads."""
    yield _chain(scene, block, {})
    names = {name for stage in block for name in stage.names}
    held = {n: e for n, e in now.items() if n in names & HELD}
    if held:
        yield _chain(scene, tuple(s for s in block if not set(s.names) & held.keys()), held)


def _chain(scene: Scene, block: tuple[Stage, ...], held: Found) -> tuple[Found, Scene]:
    """The stages one after the other, each on B after those before it."""
    found, here = dict(held), scene.after(held)
    sizes = scene.family.sizes(scene.config)
    for stage in block:
        step = stage.find(scene.family, sizes, scene.a, here.b)
        found |= step
        here = here.after(step)
    return found, here
