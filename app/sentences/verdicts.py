"""Sentences computed from records: what was found, on what, how sure, and what it does not show.

*exact*, *approximate*, *broken* and *not measured* are reserved: they come from
`engine.records.word` applied to a measured number, never from a hope.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.sentences.words import count, number
from engine.records import AlignmentReport, ModelCard, SelfTest, Word

Tone = Literal["green", "orange", "red", "gray"]
TONES: dict[Word, Tone] = {
    "exact": "green",
    "approximate": "orange",
    "broken": "red",
    "not measured": "gray",
}


@dataclass(frozen=True)
class Verdict:
    """A headline, the sentences under it, and the reserved word with its number where measured."""

    headline: str
    text: str
    word: Word | None = None
    number: str = ""

    @property
    def tone(self) -> Tone:
        return "gray" if self.word is None else TONES[self.word]

    @property
    def badge(self) -> str:
        return f"{self.word or ''} {self.number}".strip()


def check(test: SelfTest | None) -> Verdict:
    """Did a random change of every coordinate leave the model's output alone?"""
    if test is None:
        text = "No random change of coordinates was tried on this model yet."
        return Verdict("Self-test", text, "not measured")
    shown = number(test.error)
    moved = f"{test.moved:.0%} of {test.tensors} tensors moved"
    text = (
        f"Random coordinates for everything: {moved}; largest relative change of a log-probability "
        f"{shown}."
    )
    if test.moved == 0:
        text = f"{text} No tensor moved, so this shows nothing."
        return Verdict("Self-test", text, "not measured")
    alone = [row for row in test.rows if row.kind == "coordinate"]
    worst = max(alone, key=lambda row: row.error, default=None)
    if worst is None or worst.error <= test.error:
        return Verdict("Self-test", text, test.verdict, shown)
    furthest = number(worst.error)
    text = f"{text} Changed alone, the {worst.title} is furthest off: {furthest}."
    return Verdict("Self-test", text, test.verdict, furthest)


GROUP = (
    *("family", "layers", "width", "heads", "kv_heads", "head_dim", "ffn", "experts"),
    *("norm", "activation", "positions"),
)
NAMES = {
    "kv_heads": "key/value heads",
    "head_dim": "head dimension",
    "ffn": "FFN width",
    "norm": "normalisation",
}


def differences(a: ModelCard, b: ModelCard) -> tuple[str, ...]:
    """What makes the groups of two models differ, each with both values."""
    values = ((name, getattr(a, name), getattr(b, name)) for name in GROUP)
    return tuple(
        f"{NAMES.get(name, name)} {left} against {right}"
        for name, left, right in values
        if left != right
    )


def pair(a: ModelCard, b: ModelCard, report: AlignmentReport | None) -> Verdict:
    """What two checkpoints are to each other."""
    unlike = differences(a, b)
    if unlike and a.layers != b.layers and len(unlike) == 1:
        return Verdict(
            "Different depths: not one group, but their layers can be compared.",
            f"A and B differ in {unlike[0]} alone. The test of their relation finds which layer of "
            "one is which of the other.",
        )
    if unlike:
        return Verdict(
            "Different groups: these two cannot be put into each other's coordinates.",
            f"A and B differ in {'; '.join(unlike)}. Choose two models of one architecture.",
        )
    if report is None:
        return _unmeasured(a, b)
    if report.same_function == "not measured":
        text = f"{_found(report)} {_weights(report)} The models were not run."
        return Verdict("Coordinates matched; outputs were not compared.", text, "not measured")
    if report.kept == "broken":
        return _spoiled(report)
    text = f"{_found(report)} {_outputs(report)} {_weights(report)} {_limits(report)}"
    relative = number(_share(report.logits_between, report))
    return Verdict(_headline(report), text, report.same_function, relative)


def _unmeasured(a: ModelCard, b: ModelCard) -> Verdict:
    if a.fingerprint == b.fingerprint:
        return Verdict(
            "The same weights twice.",
            f"A and B have one fingerprint, {a.fingerprint[:12]}: there is nothing to align. "
            "Choose another model for one of them.",
        )
    return Verdict(
        "These two can be compared.",
        "They have the same architecture. Whether they compute the same function, and how far "
        "apart their weights are once coordinates are put aside, has not been measured.",
        "not measured",
    )


def _headline(report: AlignmentReport) -> str:
    if report.same_function == "broken":
        return "Not the same function."
    same = "Same function" if report.same_function == "exact" else "Nearly the same function"
    if not report.moved:
        return f"{same} in the same coordinates."
    if report.same_weights == "exact":
        return f"{same} in other coordinates."
    return f"{same}, but not all of its coordinates were recovered."


def _found(report: AlignmentReport) -> str:
    width, flipped = report.width, f"{report.flipped:,} with a flipped sign"
    if report.unreachable is not None:
        flipped = f"signs were left out, so {report.unreachable:.0%} cannot be right"
    if report.recovered is None:
        return f"{count(width, 'residual coordinate')} matched (no truth is known), {flipped}."
    right = round(report.recovered * width)
    return f"{right:,} of {width:,} residual coordinates recovered, {flipped}."


def _outputs(report: AlignmentReport) -> str:
    between, scale = report.logits_between or 0.0, report.logits_scale or 0.0
    return f"Largest logit difference {number(between)}, where logits reach {number(scale)}."


def _weights(report: AlignmentReport) -> str:
    before, after = float(np.mean(report.before)), float(np.mean(report.after))
    text = (
        f"Mean relative distance of the weights {number(before)}, after alignment {number(after)}."
    )
    if report.midpoint_before is None or report.midpoint_after is None:
        return text
    middle = (
        f"The model half way between A and B is off by {number(report.midpoint_before)} in its "
        f"logits, half way between A and the aligned B by {number(report.midpoint_after)}."
    )
    return f"{text} {middle}"


def _limits(report: AlignmentReport) -> str:
    if report.same_function == "broken":
        nearer = float(np.mean(report.after)) < float(np.mean(report.before))
        done = (
            "this one brought the weights nearer"
            if nearer
            else "this one did not bring them nearer"
        )
        return f"No change of coordinates can make them equal; {done}."
    return f"Compared on {report.checked_on}."


def _spoiled(report: AlignmentReport) -> Verdict:
    error = number(_share(report.logits_kept, report))
    return Verdict(
        "The alignment changed B's own function: do not use it.",
        f"{_found(report)} Its own logits moved by {error} of their size.",
        "broken",
        error,
    )


def _share(difference: float | None, report: AlignmentReport) -> float:
    return (difference or 0.0) / (report.logits_scale or 1.0)


def share_of_coordinates(report: AlignmentReport) -> str:
    """How much of the mean distance of the tensors went away with the coordinates."""
    before, after = float(np.mean(report.before)), float(np.mean(report.after))
    if before == 0:
        return "The tensors are equal as they are: there is no distance to explain."
    if after >= before:
        return (
            "Aligning did not bring the tensors nearer: no distance was explained by coordinates."
        )
    share = 1 - after / before
    shown = f"{share:.1%}" if share < 0.9995 or after == 0 else "More than 99.9%"
    return f"{shown} of the mean distance between the tensors was only a matter of coordinates."


def unopened(a: ModelCard | None, b: ModelCard | None) -> Verdict:
    """What is said when one model, or both, cannot be opened."""
    which = "A and B" if a is None and b is None else ("A" if a is None else "B")
    return Verdict(
        "Nothing to compare yet.",
        f"Not open: {which}. The card says why, or offers to open it.",
    )
