"""Published results and the same measured here, in words: theirs, ours, what differs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.charts.gaps import means, ordered
from app.charts.layer_maps import Maps
from app.charts.reproductions import NAMES, of_scope, title
from app.layer_views import Counted
from app.sentences.barriers import SCOPES
from app.sentences.numbers import number
from app.sentences.verdicts import Verdict
from app.sentences.words import count
from engine.layers.selection import pair_score, spearman
from engine.records import (
    VARIANTS,
    Connectivity,
    GapTrajectory,
    PublishedConnectivity,
    PublishedCoordinates,
)

NOTHING = "Not measured here yet."


@dataclass(frozen=True)
class Card:
    """One published result beside the same measured here."""

    title: str
    theirs: str
    ours: str
    differs: str  # between the two settings
    source: str
    command: str = ""  # repeats ours; empty where nothing was measured


def told(measured: Connectivity, theirs: PublishedConnectivity) -> Verdict:
    """Where the order of the published ablation holds here, and where it does not."""
    known = [one for one in measured.scopes if len(one.of("full"))]
    lower = [one for one in known if one.mean("full") < one.mean("none")]
    pairs = count(sum(len(one.pairs) for one in measured.scopes), "pair")
    headline = (
        f"A full Stage 2 leaves less of the barrier than none in {len(lower)} of "
        f"{count(len(known), 'setting')}."
    )
    parts = [
        f"A setting is an architecture and a scope; {pairs} of models from different seeds.",
        exceptions(measured),
        inside(measured, theirs),
        "The models here are far smaller than the paper's: a ratio that differs refutes nothing.",
        f"Not measured yet: {count(len(measured.missing), 'setting')}." if measured.missing else "",
    ]
    partial = "partial" if measured.missing else ""
    return Verdict(headline, " ".join(part for part in parts if part), number=partial)


def exceptions(measured: Connectivity) -> str:
    """The settings in which Stage 2 does not help on the mean."""
    found = [
        f"{title(one.architecture)}, {SCOPES[one.scope]} ({one.mean('full'):.0%} after "
        f"{one.mean('none'):.0%})"
        for one in measured.scopes
        if len(one.of("full")) and one.mean("full") >= one.mean("none")
    ]
    return f"On the mean full is no lower than none in: {'; '.join(found)}." if found else ""


def inside(measured: Connectivity, theirs: PublishedConnectivity) -> str:
    """How often the mean of the full Stage 2 falls into the published range of its own scope."""
    own = [one for one in of_scope(measured, theirs.scope) if len(one.of("full"))]
    low, high = theirs.relative["full"]
    near = sum(low <= one.mean("full") <= high for one in own)
    return (
        f"In the paper's scope, {SCOPES[theirs.scope]}, {near} of "
        f"{count(len(own), 'architecture')} here lie in its {low:.0%} to {high:.0%}."
    )


def ablation(measured: Connectivity, theirs: PublishedConnectivity, scope: str) -> Card:
    """What is left of the naive barrier with none, an orthogonal and a full Stage 2."""
    ranges = ", ".join(
        f"{NAMES[v]} {low:.0%} to {high:.0%}" for v, (low, high) in theirs.relative.items()
    )
    own = of_scope(measured, scope)
    lines = [
        f"{title(one.architecture)}: " + ", ".join(_percent(one.mean(v)) for v in VARIANTS)
        for one in own
    ]
    data = f"{', '.join(theirs.data)}, {SCOPES[theirs.scope]}"
    differs = [
        f"Theirs: {theirs.models} on {data}, ranges over data sets.",
        "Ours: 3 to 6 layers of width 48 or 96 on generated data.",
        "" if scope == theirs.scope else f"The paper has no ablation of {SCOPES[scope]}.",
        " ".join(measured.left_out),
    ]
    return Card(
        "What Stage 2 removes of the barrier",
        f"{ranges}, in {SCOPES[theirs.scope]}.",
        f"In {SCOPES[scope]}, without, orthogonal, full: {'; '.join(lines)}." if own else NOTHING,
        " ".join(part for part in differs if part),
        theirs.source,
        measured.command,
    )


def _percent(value: float) -> str:
    return "no ratio" if np.isnan(value) else f"{value:.0%}"


def connected(measured: Connectivity, theirs: PublishedConnectivity, scope: str) -> Card:
    """Whether the line is free of a barrier in one scope."""
    small, large = theirs.found[scope]
    own = of_scope(measured, scope)
    left = np.concatenate([one.left for one in own]) if own else np.zeros((0, 3))
    sure = int((np.where(np.isnan(left[:, 1]), left[:, 0], left[:, 1]) > 0).sum())
    ours = (
        f"After a full Stage 2 the barrier is above 0 with its whole interval in {sure} of "
        f"{count(len(left), 'pair')}; it lies between {number(left[:, 0].min())} and "
        f"{number(left[:, 0].max())} nats."
        if len(left)
        else NOTHING
    )
    return Card(
        f"Connected or not: {SCOPES[scope]}",
        f"Small data: {small}. Large data: {large}.",
        ours,
        "What is called connected is a judgement on a curve; here only the number is given.",
        theirs.source,
        measured.command,
    )


def orders(measured: Connectivity, theirs: PublishedConnectivity) -> Card:
    """How good the order of the heads is that Stage 1 takes."""
    ranks = [
        f"{title(one.architecture)} {one.ranks[1]} of {len(one.barrier)} ({number(one.lost)})"
        for one in measured.orders
    ]
    return Card(
        "The order of the heads among all orders",
        f"Of 24 orders, {theirs.orders}.",
        "Rank of the chosen order by its measured barrier, and in brackets what it loses of 100 "
        f"that the best gains: {', '.join(ranks)}."
        if ranks
        else NOTHING,
        "Each order here gets its own Stage 2 before the line is measured; first attention.",
        theirs.source,
        measured.command,
    )


def tests(theirs: Counted | None, ours: Counted | None, source: str, command: str) -> Card:
    """How often swapping two layers costs more than replacing one by the other."""
    return Card(
        "Does swapping cost less than replacing?",
        f"Qwen3-8B: {_counted(theirs)}",
        f"SmolLM2-135M: {_counted(ours)}",
        "Theirs: pairs at most 3 layers apart, 500 prompts. Ours: all pairs of a smaller model.",
        source,
        command if ours else "",
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
    )


def _rho(found: dict[str, float]) -> str:
    better = max(found, key=lambda test: found[test])
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
    )


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
