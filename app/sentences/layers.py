"""Sentences about maps of layers: what two tests say, where they disagree, what is missing."""

import numpy as np

from app import layer_views as views
from app.charts.layer_maps import Maps, Pair
from app.charts.measures import FEW, Number, at
from app.sentences.numbers import named
from app.sentences.verdicts import Verdict
from app.sentences.words import count, number, seconds
from engine.layers import selection
from engine.layers.selection import CONDITIONAL, REGIMES, STRONG, How
from engine.records import LayerMaps, Measure, PublishedMaps
from engine.records.layers import WINDOWS, Run

TITLES = {
    "replace": "Replace: depth i runs layer j",
    "swap": "Swap: i and j exchanged",
    "average": "Average: i and j both run the mean of their weights",
    "skip": "Skip: i's output goes to the layer after j",
    "replace-healed": "Replace, then heal",
    "swap-healed": "Swap, then heal",
}
SAYS = {
    "replace": "depth i runs layer j, and j runs at its own depth too",
    "swap": "the two exchange places, each runs once",
    "average": "both depths run the mean of the two layers' weights",
    "skip": "layers i + 1 to j are left out, both ends included",
    "replace-healed": "as replace, then each changed depth's update is refit, channel by channel",
    "swap-healed": "as swap, then each changed depth's update is refit, channel by channel",
}
CUT = 5
"""How many layers the verdict names as first to go."""


def told(maps: Maps, record: LayerMaps | PublishedMaps, how: How) -> Verdict:
    """What the maps say, on what, and what they do not show."""
    parts = [_compared(maps, how), *(_cheapest(maps, test, how) for test in _two(maps))]
    parts += [_first(maps, how), _limits(record)]
    text = " ".join(part for part in parts if part)
    badge = _badge(record)
    return Verdict(_headline(maps, how, badge == "partial"), text, number=badge)


def waiting(name: str) -> Verdict:
    """What is said before anything has been measured."""
    return Verdict(
        "It depends how you ask, and nobody has asked yet.",
        f"Replacing one layer of {name} by another and exchanging the two are different tests: "
        "measure both.",
        "not measured",
    )


def closed(letter: str) -> Verdict:
    """Said when the model is not open."""
    return Verdict("No model, no layers.", f"Not open: {letter}.", "not measured")


def _two(maps: Maps) -> list[str]:
    return [test for test in ("swap", "replace") if test in maps.pairs]


def _headline(maps: Maps, how: How, goes_on: bool) -> str:
    found = views.counted(maps, how)
    if maps.layers < 2:
        return "This model has one layer: there are no pairs."
    if found is None and {"replace", "swap"} <= set(maps.pairs):
        return f"No pair was measured by both tests{' yet' * goes_on}."
    if found is None:
        return "Only one of the two tests: whether they agree is not known."
    if found.above == 0:
        return f"Swapping costs no more than replacing in any of {count(found.pairs, 'pair')}."
    return f"Swapping costs more than replacing in {found.above:,} of {found.pairs:,} pairs."


def _compared(maps: Maps, how: How) -> str:
    found = views.counted(maps, how)
    if found is None:
        return ""
    factor = f"The median replacement costs {number(found.factor)} × the swap of the same pair."
    if found.above == 0:
        return factor
    if not found.intervals:
        return f"{factor} There are no intervals by which to say how sure the exceptions are."
    sure = f"In {found.apart:,} of those {found.above:,} the intervals share no value."
    if found.above == 1:
        share = "share no value" if found.apart else "overlap"
        sure = f"Its intervals {share}."
    return f"{sure} {factor}"


def _cheapest(maps: Maps, test: str, how: How) -> str:
    scores = views.scored(maps, test, how)
    value = np.where(np.isnan(scores.value), np.inf, scores.value)
    if not np.isfinite(value).any():
        return ""
    i, j = sorted(int(k) for k in np.unravel_index(int(value.argmin()), value.shape))
    pairs = np.triu(np.fmin(value, value.T), 1)
    low = int(((pairs < STRONG) & (np.triu(np.ones_like(pairs), 1) > 0)).sum())
    strong = f"{low:,} below {STRONG} (strong)" if low else f"none below {STRONG} (strong)"
    return f"Cheapest by {test}: layers {i} and {j}, {at(scores, i, j).text} nats; {strong}."


def _first(maps: Maps, how: How) -> str:
    """Which layers would go first by the published rule."""
    chosen = {t: selection.greedy(views.layers_of(maps, t, how), CUT) for t in _two(maps)}
    if not all(chosen.values()):
        return ""
    said = "; ".join(f"by {test} {', '.join(map(str, go))}" for test, go in chosen.items())
    shared = ""
    if len(chosen) == 2:
        both = len(set(chosen["swap"]) & set(chosen["replace"]))
        shared = f" They share {both or 'none'}."
    return f"First to go by the published rule, no two of them neighbours: {said}.{shared}"


def _badge(record: LayerMaps | PublishedMaps) -> str:
    if isinstance(record, PublishedMaps):
        return "published"
    return "" if record.complete else "partial"


def _limits(record: LayerMaps | PublishedMaps) -> str:
    if isinstance(record, PublishedMaps):
        return f"Published for {record.model}, not measured here: {record.aggregate}. {record.note}"
    last = "The cost of removing layers is on the Cutting page; no map shows it."
    return f"{partial(record)}{ran(record.run)} {last}"


def partial(record: LayerMaps) -> str:
    """How much of the maps is there, while it is not all."""
    if record.complete:
        return ""
    done, all_of = views.measured(record), views.wanted(record)
    return f"Partial: {done:,} of {all_of:,} cells, adjacent pairs first. "


def ran(run: Run) -> str:
    """On what something was measured, and whether there are intervals."""
    where = "the last position of each window" if run.aggregate == "last" else "all positions"
    few = f" There is {FEW}." if run.windows < WINDOWS else ""
    return (
        f"Measured on {count(run.tokens, 'token')} of {named(run.text)} in "
        f"{count(run.windows, 'window')}, mean over {where}, on {run.device} in {run.dtype}, "
        f"{seconds(run.seconds)}.{few}"
    )


def kinds(maps: Maps, pair: Pair | None = None) -> str:
    """Said where layers of different kinds meet; empty elsewhere."""
    if pair is not None:
        a, b = maps.kinds[pair.i], maps.kinds[pair.j]
        if a == b:
            return ""
        return (
            f"Layer {pair.i} is of the kind {a}, layer {pair.j} of the kind {b}: layers of "
            "different kinds are not exchanged."
        )
    if len(set(maps.kinds)) == 1:
        return ""
    return "Layers of different kinds are not exchanged: those cells stay empty."


def picked(maps: Maps, pair: Pair, how: How) -> str:
    """The regime of a pair in words, with its definition."""
    if pair.same:
        return f"Depth {pair.i} running layer {pair.i} is the model as it is: choose two layers."
    apart = kinds(maps, pair)
    if apart:
        return apart
    values = [_score(maps, test, how, pair) for test in ("replace", "swap")]
    regime = selection.regime(*values)
    if regime is None:
        return f"Layers {pair.i} and {pair.j}: not measured by both tests."
    strong = ", ".join(
        f"{test} {selection.strength(value)}"
        for test, value in zip(("replace", "swap"), values, strict=True)
    )
    return (
        f"Layers {pair.i} and {pair.j}: {regime}. {REGIMES[regime]} Low is below {CONDITIONAL} "
        f"nats: strong below {STRONG}, conditional from there ({strong})."
    )


def _score(maps: Maps, test: str, how: How, pair: Pair) -> float:
    if test not in maps.pairs:
        return float("nan")
    return float(views.scored(maps, test, how).value[pair.i, pair.j])


def ratio(maps: Maps, how: How, pair: Pair, names: tuple[str, str]) -> str:
    """Both tests of a pair over each other."""
    first, second = (_score(maps, name, how, pair) for name in names)
    if np.isnan([first, second]).any():
        return f"{names[0]} over {names[1]}: not measured."
    if second <= 0:
        return f"{names[1]} costs nothing measurable; {names[0]} {number(first)} nats."
    return f"{names[0]} over {names[1]}: {number(first / second)} (the {how} of both directions)."


def cell(measure: Measure, pair: Pair) -> Number:
    """One direction of one test."""
    return at(measure, pair.i, pair.j)
