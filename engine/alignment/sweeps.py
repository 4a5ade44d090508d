"""Coordinate descent over a family's table: the residual from all that carries it, then the rest.

The objective is, with both models folded (`engine.folding`: gains 1, biases of norms 0, nothing
along the mean, so that no blind direction of a block enters),

    J(g) = (1 − μ) D(g) + μ (1 − K(g)),   D = Σ ‖A_t − (g B)_t‖² / Σ ‖A_t‖²,

t over all tensors with a signed leg (gains alone do not count), token ids that only one vocabulary
has, or that never occur in the text, left out. K is the mean |correlation| of the activations of
matched residual coordinates and neurons, and μ its weight (`mix`). Every step is taken only if J
does not rise. A smaller distance of weights is no promise of a smaller barrier: that is measured,
or descended by `engine.alignment.refinement`.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engine.alignment.candidates import Heard
from engine.alignment.one_pass import common, layer_tensors, require_whole_stages, residual
from engine.alignment.proposals import Scene, solve_layer, square
from engine.alignment.standing import Standing
from engine.alignment.widths import WORD, Both, own_order, padded, wider, widths
from engine.axes import Leg, Mark, legs
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.errors import Progress, part, silent
from engine.family import Family
from engine.folding import HEADS, NEURONS, canonical
from engine.questions import Align
from engine.records import Sweep
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
WORDS = HEADS | NEURONS
ALL = WORDS | {"res"}
"""Along these a layer is folded; outside layers no gain of the last norm, which ties may share."""
NEAR = 0.25
"""A distance from the identity below which no other start is tried: strangers end above 1."""
LEAST = 1e-7
"""A relative fall of the objective that is worth another sweep."""


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
        found = canonical(self.family, sizes, layer_tensors(one, layer), words)
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


Start = np.ndarray | Callable[[], np.ndarray] | None


def descend(
    task: Descent,
    starts: Mapping[str, Start],
    progress: Progress = silent,
    swept: Callable[[Sweep], None] = lambda _: None,
) -> tuple[Symmetry, tuple[Sweep, ...]]:
    """The lowest end of all starts, and one row for every sweep, which `swept` is told at once.

    A start is a correlation of the residual coordinates, a function that computes one, or None for
    the identity everywhere. Starts that lead to a residual element where another descent has been
    are left out, and all others once a descent has ended `NEAR`.
    """
    require_whole_stages(task.chosen, task.family)
    rows: list[Sweep] = []
    ends: list[State] = []
    seen: list[Ordered] = []
    for number, (name, start) in enumerate(starts.items()):
        if ends and min(state.distance for state in ends) < NEAR:
            break
        here = _element(task, start() if callable(start) else start)
        if not any(_equal(here, other) for other in seen):
            told = part(progress, number / len(starts), (number + 1) / len(starts))
            for state, row in _from(task, name, here, told):
                seen.append(state.res)
                rows.append(row)
                ends.append(state)
                swept(row)
    best = min(ends, key=lambda state: state.objective)
    found = {**({"res": best.res} if "res" in task.chosen else {}), **best.inner}
    if task.both:
        neurons = {k: e for k, e in found.items() if k.endswith(f".{WORD}")}
        found |= {k: own_order(e, task.both) for k, e in neurons.items() if isinstance(e, Ordered)}
    a, b = task.a, task.b
    names = b.fingerprint, a.fingerprint, (b.name, a.name)
    return Symmetry(task.family, b.config, found, *names), tuple(rows)


def _element(task: Descent, score: np.ndarray | None) -> Ordered:
    size = task.family.sizes(task.a.config)["res"]
    if score is None or "res" not in task.chosen:
        return Ordered(torch.arange(size), torch.ones(size, dtype=torch.float64))
    return residual(task.family, score, signs=task.asked.signs)[0]


def _equal(x: Ordered, y: Ordered) -> bool:
    return torch.equal(x.permutation, y.permutation) and torch.equal(x.scale, y.scale)


def _from(
    task: Descent, name: str, here: Ordered, progress: Progress
) -> Iterator[tuple[State, Sweep]]:
    """Sweeps from one residual element, until J stops falling or the residual stands still."""
    state, limit = State(here), max(1, task.asked.sweeps)
    for number in range(limit):
        began = time.perf_counter()
        found, before, score = sweep(task, state, part(progress, number / limit, 1))
        taken = time.perf_counter() - began
        row = Sweep(name, number, before, found.objective, found.distance, taken)
        yield found, row
        there = found.res if score is None else _element(task, score)
        if found.objective > state.objective * (1 - LEAST) or _equal(there, found.res):
            return
        state = replace(found, res=there)


def sweep(
    task: Descent, state: State, progress: Progress = silent
) -> tuple[State, float, np.ndarray | None]:
    """Everything inside layers solved once, one layer of both in memory; J before it.

    The last answer is the score of the residual coordinates after it: J falls by what a residual
    element chooses there, so that the best one is an assignment. None where the present one is the
    best, for certain or because nothing else is allowed.
    """
    found: dict[str, Element] = {}
    gaps, worth, own = [0.0, 0.0], [0.0, 0.0], 0.0
    standing = Standing(len(state.res.scale))
    for layer in task.layers():
        progress((layer or 0) / task.a.layers, f"layer {layer} of {task.a.layers}")
        solved = solve_layer(_scene(task, layer, state.res), state.of(task, layer))
        size = sum(square(x) for x in solved.there.a.values())
        own += size
        for k in (0, 1):
            gaps[k] += solved.gaps[k]
            worth[k] += solved.worth[k]
        found |= {task.family.key(n, layer): e for n, e in solved.elements.items()}
        if "res" in task.chosen:
            close = not (task.weight or task.both) and solved.gaps[1] < NEAR * size
            standing = standing.after(solved, close=close)
    distances = [gap / own for gap in gaps]
    shares = [one / own for one in worth]
    values = [_objective(task, state.res, d, w) for d, w in zip(distances, shares, strict=True)]
    end = State(state.res, found, values[1], distances[1])
    if "res" not in task.chosen or standing.certain(signs=task.asked.signs):
        return end, values[0], None
    for layer in standing.later:
        scene = _scene(task, layer, state.res).after(end.of(task, layer))
        standing = standing.scored(scene)
    assert standing.score is not None
    return end, values[0], _residual_score(task, state.res, standing.score / own)


def _scene(task: Descent, layer: int | None, res: Ordered) -> Scene:
    a, b = task.pair(layer)
    asked = task.asked
    scene = Scene(
        task.family, wider(task.a, task.b), layer, a, b, task.chosen, asked.stage2, asked.neurons,
        task.heard(layer), task.both,
    )  # fmt: skip
    return scene.after({"res": res})


def _objective(task: Descent, res: Ordered, distance: float, worth: float) -> float:
    """J; `worth` is what the neurons' activations are worth as a part of D."""
    if not task.weight or task.listened is None:
        return distance
    rows = torch.arange(len(res.scale)).numpy()
    alike = task.listened.residual[rows, res.permutation.numpy()] * res.scale.numpy()
    share = 0.5 if task.listened.neurons else 1.0
    rest = (1 - task.weight) * (distance - worth)
    return float(rest + task.weight * (1 - share * alike.mean()))


def _residual_score(task: Descent, res: Ordered, moved: Tensor) -> np.ndarray:
    """2 (1 − μ) Σ a bᵀ / Σ ‖A‖² + μ C / d in B's own coordinates: column π(i) is s_i · column i.

    `moved` is the first sum in A's coordinates.
    """
    own = torch.empty_like(moved)
    own[:, res.permutation] = moved * res.scale
    score = 2 * (1 - task.weight) * own.numpy()
    if task.weight and task.listened is not None:
        share = 0.5 if task.listened.neurons else 1.0
        score = score + task.weight * share * task.listened.residual / len(own)
    return score
