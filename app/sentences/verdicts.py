"""Sentences computed from records: what was found, on what, how sure, and what it does not show.

*exact*, *approximate*, *broken* and *not measured* are reserved: they come from
`engine.records.word` applied to a measured number, never from a hope.
"""

from dataclasses import dataclass
from typing import Literal

from app.sentences.distances import distance
from app.sentences.words import apart, count, number
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
    what: str = ""  # what the word is said of, where that is not the headline
    about: str = ""  # what the number is
    basis: str = ""  # what was done to find it
    more: str = ""  # further numbers, and what is not shown

    @property
    def tone(self) -> Tone:
        return "gray" if self.word is None else TONES[self.word]

    @property
    def badge(self) -> str:
        said = f"{self.word}: {self.what}" if self.what else self.word or ""
        return f"{said} {self.number}".strip()


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


RELATIVE = "Relative error: the largest difference of a logit over the largest logit of A."
WHY = "Below is why, or a button that opens it."
ALIGNED = "Measured: B put into A's coordinates, the logits of both compared"


def margin(smallest: float) -> str:
    """The smallest margin in words; what one below 0 means."""
    forced = ", below 0: another was nearer, but is taken" if smallest < 0 else ""
    return f"smallest margin {number(smallest)}{forced}"


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


def unlike(a: ModelCard, b: ModelCard) -> tuple[str, ...]:
    """What keeps two models out of each other's coordinates, each with both values.

    Feed-forward networks without experts may be of two widths: neurons that both have are matched.
    """
    found = differences(a, b)
    if a.experts or b.experts:
        return found
    return tuple(what for what in found if not what.startswith(NAMES["ffn"]))


def pair(a: ModelCard, b: ModelCard, report: AlignmentReport | None) -> Verdict:
    """What two checkpoints are to each other."""
    found = unlike(a, b)
    if found and a.layers != b.layers and len(found) == 1:
        return Verdict(
            "Different depths: not one group, but their layers can be compared.",
            f"A and B differ in {found[0]} alone. The test of their relation finds which layer of "
            "one is which of the other.",
        )
    if found:
        return Verdict(
            "Different groups: these two cannot be put into each other's coordinates.",
            f"A and B differ in {'; '.join(found)}. Choose two models of one architecture.",
        )
    if report is None:
        return _unmeasured(a, b)
    if report.same_function == "not measured":
        text = _joined(
            _found(report), distance(report).told, *report.notes, "The models were not run."
        )
        return Verdict("Coordinates matched; outputs were not compared.", text, "not measured")
    if report.kept == "broken":
        return _spoiled(report)
    text = _joined(_found(report), _outputs(report), distance(report).told, *report.notes)
    relative = number(_share(report.logits_between, report))
    broken = report.same_function == "broken"
    return Verdict(
        _headline(report),
        text,
        report.same_function,
        relative,
        what="not the same function, relative error" if broken else "",
        about=RELATIVE,
        basis=ALIGNED,
        more=_joined(_middle(report), _limits(report)),
    )


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _unmeasured(a: ModelCard, b: ModelCard) -> Verdict:
    if a.fingerprint == b.fingerprint:
        return Verdict(
            "The same weights twice.",
            f"A and B have one fingerprint, {a.fingerprint[:12]}: there is nothing to align. "
            "Choose another model for one of them.",
        )
    same = "They have the same architecture."
    if a.ffn != b.ffn:
        apart_in = f"They differ in {differences(a, b)[0]} alone"
        same = f"{apart_in}: the neurons that both have can be matched."
    return Verdict(
        "These two can be compared.",
        f"{same} Whether they compute the same function, and how far "
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


def _middle(report: AlignmentReport) -> str:
    if report.midpoint_before is None or report.midpoint_after is None:
        return ""
    before, after = apart(report.midpoint_before, report.midpoint_after)
    return (
        f"The model half way between A and B is off by {before} in its logits, half way between A "
        f"and the aligned B by {after}."
    )


def _limits(report: AlignmentReport) -> str:
    if report.same_function == "broken":
        done = (
            "this one brought the weights nearer"
            if distance(report).nearer
            else "this one did not bring their weights, as they are stored, nearer"
        )
        return (
            f"No change of coordinates can make them equal; {done}. Compared on "
            f"{report.checked_on}."
        )
    return f"Compared on {report.checked_on}."


def _spoiled(report: AlignmentReport) -> Verdict:
    error = number(_share(report.logits_kept, report))
    return Verdict(
        "The alignment changed B's own function: do not use it.",
        f"{_found(report)} Its own logits moved by {error} of their size.",
        "broken",
        error,
        what="B's own function, relative error",
        about=RELATIVE,
        basis=ALIGNED,
    )


def _share(difference: float | None, report: AlignmentReport) -> float:
    return (difference or 0.0) / (report.logits_scale or 1.0)


def share_of_coordinates(report: AlignmentReport) -> str:
    """How much of the distance went away with the coordinates."""
    found = distance(report)
    if found.before == 0:
        return "The tensors are equal as they are: there is no distance to explain."
    if not found.nearer:
        return (
            "Aligning did not bring the tensors nearer: no distance was explained by coordinates."
        )
    share = 1 - found.after / found.before
    shown = f"{share:.1%}" if share < 0.9995 or found.after == 0 else "More than 99.9%"
    return f"{shown} of the distance was only a matter of coordinates."


def unopened(a: ModelCard | None, b: ModelCard | None) -> Verdict:
    """What is said when one model, or both, cannot be opened."""
    which = "A and B" if a is None and b is None else ("A" if a is None else "B")
    return Verdict(
        "Nothing to compare yet.",
        f"Not open: {which}. {WHY}",
    )
