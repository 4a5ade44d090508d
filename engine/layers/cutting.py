"""Which layers to leave out: ways to choose, on one text, and what each costs on another."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine import network
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, part, silent
from engine.layers import selection
from engine.layers.filling import readings
from engine.layers.inputs import inputs
from engine.layers.maps import halves, kinds, maps, run
from engine.layers.stacks import without
from engine.layers.trials import Trial
from engine.pruning import kept
from engine.questions import Cut, Drop, Layers
from engine.questions.layers import METHODS, TESTS
from engine.records.layers import Candidate, CutCost, CutReport, LayerMaps
from engine.store import results

HEALED = "swap-healed"
Sets = tuple[tuple[int, ...], ...]


def cut(checkpoint: Checkpoint, asked: Cut, progress: Progress = silent) -> CutReport:
    """Candidates for every budget, chosen on one half of the windows and measured on the other.

    Maps that were made before are taken from the store. Errors: Refused as `engine.layers.maps`
    refuses, for unknown ways to choose, one layer, and fewer than two windows.
    """
    began = time.perf_counter()
    methods = known(asked.by)
    if checkpoint.layers < 2:
        raise Refused(f"{checkpoint.name} has one layer: none can be left out.")
    budget = min(asked.budget, checkpoint.layers - 1)
    streams, healed = scored(checkpoint, asked, methods, part(progress, 0.0, 0.6))
    choosing, measuring = halves(inputs(checkpoint, asked, 2))
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    model = network.load(checkpoint, where, kind)
    chosen_on, measured_on = (Trial(model, checkpoint, text) for text in (choosing, measuring))
    every = range(checkpoint.layers)
    single = measured_on.readings([without(len(every), [n]) for n in every])
    report = CutReport(
        model=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        family=checkpoint.family.name,
        layers=len(every),
        kinds=kinds(checkpoint),
        candidates=(),
        single=single,
        scores={},
        parameters=sizes(checkpoint),
        complete=False,
        run=run(asked, "mean", measuring, began),
    )
    for number, method in enumerate(methods):
        watched = part(progress, 0.6 + 0.4 * number / len(methods), 1.0)
        watched(0.0, f"{method}: choosing and measuring", report)
        scores, sets, forwards = WAYS[method](Ground(streams, healed, chosen_on, budget, watched))
        stacks = [without(len(every), some) for some in sets]
        stopped = "" if len(sets) > budget else "no layer is left that is not next to a chosen one"
        one = Candidate(method, sets, measured_on.readings(stacks), forwards, stopped)
        report = replace(
            report,
            candidates=(*report.candidates, one),
            scores={**report.scores, method: scores},
            run=run(asked, "mean", measuring, began),
        )
    return replace(report, complete=True)


def known(by: Sequence[str]) -> tuple[str, ...]:
    """Ways to choose by name; Refused for others and for none."""
    strange = [word for word in by if word not in METHODS]
    if strange or not by:
        raise Refused(
            f"There is no way {strange[0] if strange else ''!r} to choose layers: use "
            f"{', '.join(METHODS)}."
        )
    return tuple(word for word in METHODS if word in by)


def sizes(checkpoint: Checkpoint) -> tuple[int, int]:
    """Parameters of one layer, on the mean, and of the model."""
    inside = sum(
        int(np.prod(header.shape))
        for name, header in checkpoint.headers.items()
        if checkpoint.family.row(name).layer is not None
    )
    return inside // checkpoint.layers, checkpoint.parameters


def scored(
    checkpoint: Checkpoint, asked: Cut, methods: Sequence[str], progress: Progress
) -> tuple[LayerMaps, LayerMaps | None]:
    """Maps of the plain tests, and of the healed one if it is asked for."""
    store = results()
    pairs = {"replace", "swap"} & set(methods)
    first = TESTS if pairs else ("delete",)
    wanted = [first, *([(HEALED,)] if "healed" in methods else [])]
    found: list[LayerMaps] = []
    for number, tests in enumerate(wanted):
        question = Layers(
            asked.model, tests, reach=asked.reach, tokens=asked.tokens, length=asked.length,
            text=asked.text, device=asked.device, dtype=asked.dtype,
        )  # fmt: skip
        record = store.get(question.key)
        if record is None:
            low, high = number / len(wanted), (number + 1) / len(wanted)
            record = maps(checkpoint, question, _quiet(part(progress, low, high)))
            store.put(question.key, record)
        found.append(record)
    return found[0], found[1] if len(found) > 1 else None


def _quiet(progress: Progress) -> Progress:
    """A callback that passes on no maps: they are no partial answer to another question."""
    return lambda share, step, _=None, /: progress(share, step)


@dataclass(frozen=True)
class Ground:
    """All from which layers may be chosen."""

    maps: LayerMaps
    healed: LayerMaps | None
    text: Trial
    budget: int
    progress: Progress


Choice = tuple[np.ndarray, Sets, int]
"""Score of every layer, low first to go; the layers for n = 0, 1, …; stacks that were run."""


def _by_pairs(found: LayerMaps, test: str, budget: int) -> Choice:
    """s(i) = min_j d(i, j), no two adjacent (Garcia)."""
    value = found.tests[test].measure().value
    scores = selection.layer_scores(selection.pair_score(value))
    apart = ~np.eye(len(value), dtype=bool) & ~np.isnan(value)
    forwards = int(apart.sum()) // (1 if test == "replace" else 2)
    return scores, _nested(scores, budget, spaced=True), forwards


def _nested(scores: np.ndarray, budget: int, *, spaced: bool) -> Sets:
    order = selection.greedy(scores, budget, spaced=spaced)
    return tuple(order[:n] for n in range(len(order) + 1))


def _by_healed(ground: Ground) -> Choice:
    assert ground.healed is not None
    return _by_pairs(ground.healed, HEALED, ground.budget)


def _by_influence(ground: Ground) -> Choice:
    """The layers that turn the stream least (Men et al. 2024)."""
    scores = np.asarray(ground.maps.influence)
    return scores, _nested(scores, ground.budget, spaced=False), 1


def _by_angle(ground: Ground) -> Choice:
    """The n successive layers whose input and output are nearest in angle (Gromov et al. 2024)."""
    angular = np.asarray(ground.maps.angular)
    sets = [selection.contiguous(angular, n) for n in range(ground.budget + 1)]
    return np.diagonal(angular, 1).copy(), tuple(sets), 1


def _by_loss(ground: Ground) -> Choice:
    """One layer after the other, each time the one that costs least loss (SLEB; Song et al. 2024).

    KL stands for the loss of a model that predicts no next token.
    """
    dropped: list[int] = []
    first: np.ndarray | None = None
    forwards = 0
    for n in range(ground.budget):
        ground.progress(n / max(ground.budget, 1), f"greedy: layer {n + 1} of {ground.budget}")
        left = [layer for layer in range(ground.text.layers) if layer not in dropped]
        found = ground.text.readings([without(ground.text.layers, [*dropped, x]) for x in left])
        value = found.measure("loss").value
        cost = found.measure("kl").value if np.isnan(value).all() else value
        first = cost if first is None else first
        forwards += len(left)
        dropped.append(left[int(np.nanargmin(cost))])
    scores = np.full(ground.text.layers, np.nan) if first is None else first
    return scores, tuple(tuple(dropped[:n]) for n in range(len(dropped) + 1)), forwards


WAYS: dict[str, Callable[[Ground], Choice]] = {
    "swap": lambda ground: _by_pairs(ground.maps, "swap", ground.budget),
    "replace": lambda ground: _by_pairs(ground.maps, "replace", ground.budget),
    "healed": _by_healed,
    "influence": _by_influence,
    "angular": _by_angle,
    "greedy": _by_loss,
}


def cost(checkpoint: Checkpoint, asked: Drop, progress: Progress = silent) -> CutCost:
    """What leaving out some layers costs, on the text on which candidates are measured.

    Errors: Refused as `engine.pruning.kept` refuses.
    """
    began = time.perf_counter()
    stack = kept(checkpoint.name, checkpoint.layers, asked.drop)
    progress(0.0, "reading the text")
    _, measuring = halves(inputs(checkpoint, asked, 2))
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    trial = Trial(network.load(checkpoint, where, kind), checkpoint, measuring)
    found = trial.read([tuple(range(checkpoint.layers)), stack], progress)
    base, after = (readings(found[:, n], trial.positions) for n in (0, 1))
    return CutCost(
        model=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        dropped=tuple(asked.drop),
        base=base,
        readings=after,
        run=run(asked, "mean", measuring, began),
    )
