"""Published results about layers and coordinates beside the same measured here, as cards."""

from collections.abc import Mapping

import numpy as np

from app.charts.gaps import means, ordered
from app.charts.layer_maps import Maps
from app.layer_views import Counted
from app.sentences import answers
from app.sentences.answers import NOTHING, UNKNOWN, Answer, Card
from app.sentences.numbers import number
from engine.layers.selection import pair_score, spearman
from engine.records import GapTrajectory, PublishedCoordinates

NEAR = 0.05
"""Two rank correlations nearer than this are not told apart."""


def tests(theirs: Counted | None, ours: Counted | None, source: str, command: str) -> Card:
    """How often swapping two layers costs more than replacing one by the other."""
    return Card(
        "Does swapping cost less than replacing?",
        f"Qwen3-8B: {_counted(theirs)}",
        f"SmolLM2-135M: {_counted(ours)}",
        "Theirs: pairs at most 3 layers apart, 500 prompts. Ours: all pairs of a smaller model.",
        source,
        command if ours else "",
        UNKNOWN
        if theirs is None
        else answers.same(
            2 * theirs.above < theirs.pairs,
            None if ours is None else 2 * ours.above < ours.pairs,
            "too, swapping costs less in most pairs",
            "swapping costs more in most pairs",
        ),
    )


def _counted(found: Counted | None) -> str:
    if found is None:
        return NOTHING
    sure = f", {found.apart} with intervals apart" if found.intervals else ""
    return (
        f"swapping costs more in {found.above} of {found.pairs} pairs{sure}; replacing costs "
        f"{number(found.factor)} times as much on the median."
    )


def told_removal(maps: Maps, removal: np.ndarray) -> dict[str, float]:
    """ρ of each test of adjacent layers with the lower cost of leaving one of the two out."""
    cost = np.minimum(removal[:-1], removal[1:])
    found = {}
    for test in ("swap", "replace"):
        score = pair_score(maps.pairs[test].value, "max")
        found[test] = spearman(np.diagonal(score, 1), cost)[0]
    return found


def removal(
    theirs: dict[str, float], ours: dict[str, float] | None, source: str, command: str
) -> Card:
    """Which test tells what it costs to leave a layer out."""
    return Card(
        "Which test tells the cost of removing a layer?",
        f"Qwen3-8B: {_rho(theirs)}.",
        NOTHING if ours is None else f"SmolLM2-135M: {_rho(ours)}.",
        "Rank correlation over adjacent pairs with the lower of the two costs. Theirs is a rise of "
        "the perplexity on 10 texts; ours is KL on the evaluation text.",
        source,
        command if ours else "",
        _tells(theirs, ours),
    )


def _tells(theirs: dict[str, float], ours: dict[str, float] | None) -> Answer:
    if ours is not None and abs(ours["replace"] - ours["swap"]) < NEAR:
        return Answer("cannot be told", f"Here the two correlations differ by less than {NEAR}.")
    return answers.same(
        _better(theirs) == "replace",
        None if ours is None else _better(ours) == "replace",
        "replacing tells more",
        "swapping tells more",
    )


def _better(found: dict[str, float]) -> str:
    return max(found, key=lambda test: found[test])


def _rho(found: dict[str, float]) -> str:
    better = _better(found)
    return f"swap ρ = {found['swap']:.2f}, replace ρ = {found['replace']:.2f}, {better} tells more"


def gap(
    theirs: dict[str, GapTrajectory], ours: GapTrajectory | None, source: str, command: str
) -> Card:
    """Whether the gap between both tests grows during training."""
    said = "; ".join(f"{name} {_grown(one)}" for name, one in theirs.items())
    return Card(
        "Does the gap between both tests grow in training?",
        f"{said}.",
        NOTHING if ours is None else f"The demo's base: {_grown(ours)}.",
        "Mean of replace − swap in nats over adjacent pairs, last saved step over the first. "
        "Theirs begins at step 0, ours at the first step that is kept.",
        source,
        command if ours else "",
        answers.same(
            all(_ends(one)[1] > _ends(one)[0] for one in theirs.values()),
            None if ours is None else _ends(ours)[1] > _ends(ours)[0],
            "it grows from the first saved step to the last",
            "it does not grow from the first saved step to the last",
        ),
    )


def _ends(record: GapTrajectory) -> tuple[float, float]:
    values = means(record, "difference")
    return float(values[0]), float(values[-1])


def _grown(record: GapTrajectory) -> str:
    values, steps = means(record, "difference"), ordered(record)
    first, last = float(values[0]), float(values[-1])
    times = f"×{number(last / first)}" if first > 0 and last > 0 else "no ratio"
    ends = f"step {steps[0].step:,} to {steps[-1].step:,}"
    return f"{times} ({number(first)} to {number(last)}, {ends})"


def trajectory(theirs: PublishedCoordinates, ours: Mapping[str, float]) -> Card:
    """Coordinates followed through a training."""
    return Card(
        "Coordinates found through a training",
        f"{theirs.trajectory}: {_shares(theirs.shares)}.",
        f"Two fine-tunes of the demo's base, 160 steps: {_shares(ours)}.",
        "Ours are of 0.6 million parameters, saved every 20 steps; the truth is the identity.",
        theirs.source,
        "python -m assets.make_demo --only tunes",
        answers.ordered(theirs.shares, ours),
    )


def _shares(found: Mapping[str, float]) -> str:
    return ", ".join(f"{way} {share:.3g} %" for way, share in found.items())


def transport(theirs: PublishedCoordinates) -> Card:
    """What moving an artefact keeps, without and with signs."""
    said = "; ".join(f"{what} {a:g} against {b:g}" for what, (a, b) in theirs.moved.items())
    return Card(
        "Artefacts moved from one model to another",
        f"{theirs.transport.capitalize()}: {said}.",
        NOTHING,
        "",
        theirs.source,
    )
