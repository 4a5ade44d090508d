"""Sentences about the line between two models: how high it stands, and what that does not show."""

import math

from app.charts.barriers import DIGITS, NAMES, TINY, Quantity, label, ratio
from app.charts.measures import FEW, Number, at
from app.sentences.layers import ran
from app.sentences.numbers import count, named, number, seconds
from app.sentences.verdicts import Verdict
from engine.records import ROUNDING, BarrierReport, Curve, Estimate
from engine.records.barriers import Target

SMALL = 0.01
"""Nats above the chord (of accuracy: the share) up to which no hill is said to be found."""
ASIDE = ("none", "random", "orders")
"""Stages that are no step of the alignment."""
ABOVE = {"loss": "nats above the chord", "accuracy": "below the chord in accuracy"}
UNITS = {"loss": "nats", "accuracy": "in accuracy"}
SCOPES = {
    "whole": "the whole model",
    "first-attention": "the attention of the first layer",
    "all-attention": "the attention of every layer",
    "first-layer": "the first layer",
}
TARGETS: dict[Target, str] = {
    "next token": "",
    "hidden token": "The models are asked for hidden tokens.",
    "given class": "The models are asked for the labels that came with the inputs.",
    "likeliest class": "Nothing labels these inputs: asked for is the class that A and B together "
    "hold for the likeliest.",
}


def told(report: BarrierReport, of: Quantity = "loss") -> Verdict:
    """Raw line and best aligned stage, the control, whether a hill was found, on what."""
    parts = [
        same(report), control(report, of), hill(report, of), moved(report), matched(report),
        TARGETS[report.target], halfway(report), ran(report.run), LIMITS,
    ]  # fmt: skip
    text = " ".join(part for part in parts if part)
    return Verdict(headline(report, of), text, number="" if report.complete else "partial")


LIMITS = (
    "Another text may say otherwise, and every model between the ends is a new function, low or "
    "not."
)


def last(report: BarrierReport) -> Curve | None:
    """The furthest step of the alignment that has a curve."""
    steps = [curve for curve in report.curves if curve.stage not in ASIDE]
    return steps[-1] if steps else None


def headline(report: BarrierReport, of: Quantity) -> str:
    """The raw line and the aligned one, side by side."""
    raw, aligned = report.curve("none"), last(report)
    found = []
    if raw is not None:
        found = [f"Raw line{'' if raw.complete else ', partial'}: {high(raw, of)}"]
    if aligned is not None:
        name = label(aligned).removeprefix("+ ")
        said = high(aligned, of) if raw is None else _said(at(aligned.barrier(of)))
        found.append(f"{name}: {said}{share(report, aligned.stage, of)}")
    if not found:
        return "No stage of the line was measured yet."
    text = "; ".join(found)
    return f"{text[0].upper()}{text[1:]}."


def high(curve: Curve, of: Quantity) -> str:
    """How far a curve leaves its chord, and where."""
    found = at(curve.barrier(of))
    if found.value < ROUNDING:
        return "nowhere worse than its chord"
    where = f" at t = {number(curve.peak(of), 3)}" if found.value > SMALL else ""
    return f"{number(found.value, DIGITS)} {ABOVE[of]}{where}"


def _said(found: Number) -> str:
    small = max(abs(found.value), abs(found.low or 0), abs(found.high or 0)) < ROUNDING
    return "0" if small else found.said(DIGITS)


def share(report: BarrierReport, stage: str, of: Quantity) -> str:
    """A barrier as a part of the raw line's, with its interval; empty where there is none."""
    part = percent(report, stage, of)
    return f" ({part})" if part else ""


def percent(report: BarrierReport, stage: str, of: Quantity) -> str:
    """The same without brackets."""
    one = ratio(report, stage, of)
    if math.isnan(one.value):
        return ""
    if one.value < TINY and (one.high or 0) < TINY:
        return f"below {TINY} % of it"
    said = f"{number(one.value)} % of it"
    if one.low is None or one.high is None:
        return said
    return f"{said}, interval {number(one.low)} to {number(one.high)} %"


def same(report: BarrierReport) -> str:
    """Said of a model against itself."""
    if report.fingerprints[0] != report.fingerprints[1] or report.scrambled:
        return ""
    return "A and B are the same weights: the raw line is a single point."


def control(report: BarrierReport, of: Quantity) -> str:
    """The random gauge against the raw line, paired."""
    curve, apart = report.curve("random"), report.difference("random", "none", of)
    if curve is None:
        return ""
    said = f"A random gauge, the control: {_said(at(curve.barrier(of)))} {UNITS[of]}"
    if apart is None:
        return f"{said}."
    one = at(apart)
    if one.low is None or one.high is None:
        return f"{said}; {FEW}."
    if one.low <= 0 <= one.high:
        return f"{said}, which the text does not tell from the raw line."
    return f"{said}, {'more' if one.value > 0 else 'less'} than the raw line."


def hill(report: BarrierReport, of: Quantity) -> str:
    """Whether a hill is left on the line of the last step, only as far as it was measured."""
    curve = last(report)
    if curve is None:
        return ""
    name, found = NAMES[curve.stage].removeprefix("+ "), at(curve.barrier(of))
    if not curve.complete:
        return f"With {name} points are missing: whether a hill is left is not known yet."
    if found.low is None or found.high is None:
        return f"With {name} the barrier has {FEW}; whether a hill is left is not told."
    if found.low > SMALL:
        return f"With {name} a hill is left: {_said(found)} {UNITS[of]}."
    if found.high > SMALL:
        return (
            f"With {name} the text does not tell a hill from none: {_said(found)} {UNITS[of]}, and "
            f"{SMALL} counts as none."
        )
    where = "half way" if few(report) else f"at {count(len(curve.t), 'point')}"
    return (
        f"With {name} no hill was found on this text {where}: the interval ends at "
        f"{number(found.high)} {UNITS[of]}, and up to {SMALL} counts as none."
    )


def few(report: BarrierReport) -> bool:
    """Whether the ends and the midpoint are all that was asked for."""
    return len(report.grid) <= 3


def halfway(report: BarrierReport) -> str:
    """Said where only the midpoint was measured."""
    if not few(report):
        return ""
    return "Only t = 0, ½ and 1 were measured: a hill elsewhere would not be seen."


def scope(word: str) -> str:
    """What is interpolated, in words."""
    return SCOPES.get(word, f"layers {word}" if not word.isdigit() else f"layer {word}")


def moved(report: BarrierReport) -> str:
    """Which tensors are interpolated, and what the other end of the line then is."""
    if report.scope == "whole":
        return ""
    part, every = report.moved
    rest = (
        "A and B are equal elsewhere."
        if report.shared
        else "Elsewhere A and B differ, and A's tensors stay: the other end of the line is not B."
    )
    return (
        f"Only {scope(report.scope)} is interpolated, {number(100 * part / max(every, 1))} % of "
        f"the numbers. {rest}{_ends(report)}"
    )


def matched(report: BarrierReport) -> str:
    """By what coordinates were matched, where that is not the usual or another choice tells."""
    if report.sensed:
        return (
            "Layers were matched by what they do on the text: heads by what they look at and say, "
            "matrices by what they make of a layer's inputs."
        )
    if report.using == "activations":
        return "Residual coordinates were matched by activations, what is inside layers by weights."
    if report.shared and report.scope != "whole":
        return (
            "Layers were matched by their weights; from activations, what they do counts as well."
        )
    return ""


def _ends(report: BarrierReport) -> str:
    found = other_ends(report)
    if found is None:
        return ""
    low, high = (number(end, DIGITS) for end in found)
    return (
        f" Each stage has its own other end, with a loss of {low} to {high} nats: percentages "
        "compare barriers over two chords, each its own."
    )


def other_ends(report: BarrierReport) -> tuple[float, float] | None:
    """The lowest and the highest loss of the stages' other ends; None where they are one model."""
    if report.scope == "whole" or report.shared or not report.curves:
        return None
    last = [float(curve.points().value[-1]) for curve in report.curves]
    return min(last), max(last)


def own_chords(report: BarrierReport) -> str:
    """Said of a ratio where every stage has another end of its own, and so another chord."""
    found = other_ends(report)
    if found is None:
        return ""
    return (
        "; every stage has its own other end here, and each barrier is measured over its own chord"
    )


def waiting(names: tuple[str, str]) -> Verdict:
    """What is said before the line was measured."""
    return Verdict(
        "Whether there is a hill between them has not been measured.",
        f"The loss of every model (1 − t) A + t B between {names[0]} and {names[1]} is measured, "
        "with B as it is and in A's coordinates, stage by stage.",
        "not measured",
    )


def apart(differences: tuple[str, ...], missing: str = "") -> Verdict:
    """Said of models between which there is no line."""
    why = missing or f"A and B differ in {'; '.join(differences)}."
    return Verdict("No line leads from one to the other.", why, "not measured")


def cost(found: Estimate) -> str:
    """What a run will take, before it begins."""
    models = count(found.models, "model is run", "models are run")
    return (
        f"{count(found.tokens, 'token')} of {named(found.text)} in "
        f"{count(found.windows, 'window')}; {models} on all of it, about "
        f"{seconds(found.seconds)} on {found.device}. The alignment and points that are "
        "added where a curve bends come on top."
    )


def ablation(report: BarrierReport) -> str:
    """What the solvers inside the heads add, each relative to the raw line."""
    if report.curve("none") is None:
        return "Not measured yet."
    told_of = {stage: percent(report, stage, "loss") for stage in ("heads", "orthogonal", "all")}
    parts = [f"{NAMES[one].removeprefix('+ ')} {part}" for one, part in told_of.items() if part]
    if not parts:
        if not report.complete:
            return "The other stages are still to come."
        return "The raw line has no barrier that another could be a part of."
    return f"Against the raw line's barrier: {'; '.join(parts)}. {_order(report)}".strip()


def _order(report: BarrierReport) -> str:
    """Full against orthogonal, paired; no order where the interval holds 0."""
    found = report.difference("all", "orthogonal")
    if found is None:
        return ""
    one = at(found)
    said = f"All minus orthogonal: {_said(one)} nats"
    if one.low is None or one.high is None:
        return f"{said}; {FEW}, so no order is told."
    if one.low <= 0 <= one.high:
        return f"{said}: the interval holds 0, so no order is told."
    return f"{said}: {'all' if one.value < 0 else 'orthogonal'} is lower on this text."


def gauge(report: BarrierReport) -> str:
    """What a hidden gauge costs with permutations only, and with everything that the group has."""
    found = [(curve, at(curve.barrier())) for curve in report.curves]
    if not found:
        return "Not measured yet."
    parts = [f"{NAMES[curve.stage]}: {_peak(one)}" for curve, one in found]
    return f"B under a random gauge, then aligned. {'; '.join(parts)}."


def _peak(one: Number) -> str:
    return f"{_said(one)} nats above the chord at its peak"
