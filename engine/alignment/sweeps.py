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

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine.alignment.descent import Descent, State
from engine.alignment.one_pass import require_whole_stages, residual
from engine.alignment.proposals import Scene, solve_layer, square
from engine.alignment.standing import Standing
from engine.alignment.starting import Fate
from engine.alignment.widths import WORD, own_order, wider
from engine.elements import Element, Ordered
from engine.errors import Progress, part, silent
from engine.records import Sweep
from engine.symmetry import Symmetry

NEAR = 0.25
"""A distance from the identity below which no other start is tried: strangers end above 1."""
LEAST = 1e-7
"""A relative fall of the objective that is worth another sweep."""


Start = np.ndarray | Callable[[], np.ndarray] | None


def descend(
    task: Descent,
    starts: Mapping[str, Start],
    progress: Progress = silent,
    swept: Callable[[Sweep], None] = lambda _: None,
) -> tuple[Symmetry, tuple[Sweep, ...]]:
    """The gauge of the lowest end of all starts, and one row for every sweep."""
    end, rows = lowest(task, starts, progress, swept)
    return gauge(task, end), rows


def lowest(
    task: Descent,
    starts: Mapping[str, Start],
    progress: Progress = silent,
    swept: Callable[[Sweep], None] = lambda _: None,
    noted: Callable[[Fate], None] = lambda _: None,
) -> tuple[State, tuple[Sweep, ...]]:
    """The lowest end of all starts, and one row for every sweep, which `swept` is told at once.

    A start is a correlation of the residual coordinates, a function that computes one, or None for
    the identity everywhere. Starts that lead to a residual element where another descent has been
    are left out, and all others once a descent has ended `NEAR`; `noted` is told which and why.
    """
    require_whole_stages(task.chosen, task.family)
    rows: list[Sweep] = []
    ends: list[State] = []
    for number, (name, start) in enumerate(starts.items()):
        nearest = min((state.distance for state in ends), default=np.inf)
        if nearest < NEAR:
            for rest in [*starts][number:]:
                noted(Fate(rest, "near"))
            break
        here = _element(task, start() if callable(start) else start)
        twin = [row.start for row, end in zip(rows, ends, strict=True) if _equal(here, end.res)]
        if twin:
            noted(Fate(name, "known", other=twin[0]))
            continue
        told = part(progress, number / len(starts), (number + 1) / len(starts))
        for state, row in _from(task, name, here, told, noted):
            rows.append(row)
            ends.append(state)
            swept(row)
    return min(ends, key=lambda state: state.objective), tuple(rows)


def gauge(task: Descent, best: State) -> Symmetry:
    """g of an end, its neurons B's own."""
    found = {**({"res": best.res} if "res" in task.chosen else {}), **best.inner}
    if task.both:
        neurons = {k: e for k, e in found.items() if k.endswith(f".{WORD}")}
        found |= {k: own_order(e, task.both) for k, e in neurons.items() if isinstance(e, Ordered)}
    a, b = task.a, task.b
    names = b.fingerprint, a.fingerprint, (b.name, a.name)
    return Symmetry(task.family, b.config, found, *names)


def _element(task: Descent, score: np.ndarray | None) -> Ordered:
    size = task.family.sizes(task.a.config)["res"]
    if score is None or "res" not in task.chosen:
        return Ordered(torch.arange(size), torch.ones(size, dtype=torch.float64))
    return residual(task.family, score, signs=task.asked.signs)[0]


def _equal(x: Ordered, y: Ordered) -> bool:
    return torch.equal(x.permutation, y.permutation) and torch.equal(x.scale, y.scale)


def _from(
    task: Descent, name: str, here: Ordered, progress: Progress, noted: Callable[[Fate], None]
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
        stood = _equal(there, found.res)
        if stood or found.objective > state.objective * (1 - LEAST):
            if number + 1 < limit:
                noted(Fate(name, "still" if stood else "flat", number + 1))
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
        solved = solve_layer(scene(task, layer, state.res), state.of(task, layer))
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
        after = scene(task, layer, state.res).after(end.of(task, layer))
        standing = standing.scored(after)
    assert standing.score is not None
    return end, values[0], _residual_score(task, state.res, standing.score / own)


def scene(task: Descent, layer: int | None, res: Ordered) -> Scene:
    """One layer of both models, B in the residual coordinates of an element."""
    a, b = task.pair(layer)
    asked = task.asked
    found = Scene(
        task.family, wider(task.a, task.b), layer, a, b, task.chosen, asked.stage2, asked.neurons,
        task.heard(layer), task.both,
    )  # fmt: skip
    return found.after({"res": res})


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
