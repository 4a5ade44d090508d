"""Cards of published results, and whether one holds here: a phrase and its reason, from numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from app.sentences.numbers import count
from engine.records import OrderTrial, ScopeRatios

Word = Literal["holds", "does not hold", "holds in part", "cannot be told"]
Standing = Literal["clear", "lower", "unclear"]
TONES: dict[Word, Literal["green", "red", "orange", "gray"]] = {
    "holds": "green", "does not hold": "red", "holds in part": "orange", "cannot be told": "gray",
}  # fmt: skip
FIRST, SMALL = 0.25, 5.0
"""A rank is called low in the first quarter, a loss near 0 up to this many of 100."""


class Answer(NamedTuple):
    """The phrase, and why."""

    word: Word
    why: str


UNKNOWN = Answer("cannot be told", "Nothing of the kind was measured here.")
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
    answer: Answer = UNKNOWN  # whether theirs holds here
    cost: str = ""  # what the command takes


def standing(one: ScopeRatios) -> Standing:
    """How sure it is that the full Stage 2 leaves less than Stage 1 alone, in one setting.

    "clear": in every pair its interval ends below where that of Stage 1 alone begins; "lower": less
    in every pair, with intervals that overlap in some; "unclear": the pairs disagree.
    """
    alone, full = one.of("none"), one.of("full")
    if (full[:, 2] < alone[:, 1]).all():
        return "clear"
    return "lower" if (full[:, 0] < alone[:, 0]).all() else "unclear"


def ablation(own: list[ScopeRatios], published: tuple[float, float] | None) -> Answer:
    """Whether the full Stage 2 leaves less than Stage 1 alone, and as little as was published."""
    known = [one for one in own if len(one.of("full"))]
    if not known:
        return UNKNOWN
    found = [standing(one) for one in known]
    clear, lower = found.count("clear"), found.count("clear") + found.count("lower")
    said = (
        f"The full Stage 2 leaves less than Stage 1 alone in every pair of {lower} of "
        f"{count(len(known), 'architecture')}, in {clear} with intervals apart"
    )
    if published is None:
        return Answer("cannot be told", f"{said}; the paper has no numbers for this scope.")
    low, high = published
    near = sum(low <= one.mean("full") <= high for one in known)
    why = f"{said}; its mean is in the published {low:.0%} to {high:.0%} in {near}."
    if clear == near == len(known):
        return Answer("holds", why)
    return Answer("holds in part" if lower or near else "cannot be told", why)


def connected(sure: int, pairs: int) -> Answer:
    """Whether no barrier is left, of so many pairs with one that is above 0 for sure."""
    if not pairs:
        return UNKNOWN
    why = f"A barrier above 0 is left for sure in {sure} of {count(pairs, 'pair')}."
    word: Word = "holds" if sure == 0 else "does not hold" if sure == pairs else "holds in part"
    return Answer(word, why)


def orders(trials: tuple[OrderTrial, ...]) -> Answer:
    """Whether the chosen order of the heads ranks low and loses little."""
    if not trials:
        return UNKNOWN
    good = sum(
        one.ranks[1] <= FIRST * len(one.barrier) and one.lost <= SMALL for one in trials
    )  # a loss that is no number is none near 0
    why = (
        f"The chosen order is in the first quarter by its barrier and loses at most {SMALL:g} of "
        f"100 in {good} of {count(len(trials), 'pair')}."
    )
    share = good / len(trials)
    word: Word = "holds" if share == 1 else "holds in part" if share > FIRST else "does not hold"
    return Answer(word, why)


def same(theirs: bool, ours: bool | None, yes: str, no: str) -> Answer:
    """Whether a yes or no is the same here; None where it was not measured."""
    if ours is None:
        return UNKNOWN
    return Answer("holds" if theirs == ours else "does not hold", f"Here {yes if ours else no}.")


def ordered(theirs: Mapping[str, float], ours: Mapping[str, float]) -> Answer:
    """Whether the ways come in the same order of their shares."""
    named = [way for way in sorted(theirs, key=lambda way: -theirs[way]) if way in ours]
    if len(named) < 2:
        return UNKNOWN
    steps = np.diff([ours[way] for way in named])
    kept = int((steps < 0).sum())
    why = f"Published order: {', '.join(named)}; {kept} of its {len(steps)} steps are found here."
    word: Word = "holds" if kept == len(steps) else "holds in part" if kept else "does not hold"
    return Answer(word, why)
