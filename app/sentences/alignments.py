"""Sentences about an alignment: its objective, what was only coordinates, what is not shown."""

from dataclasses import replace

from app.charts import descents, shares
from app.sentences import verdicts
from app.sentences.distances import distance
from app.sentences.lineage import ASSIGNMENT
from app.sentences.verdicts import Verdict
from app.sentences.words import apart, count, number
from engine.records import AlignmentProgress, AlignmentReport, ModelCard, Relatedness, Sweep

FELL = 1e-6
"""A relative fall of the objective that is one."""
PROMISE = (
    "Nearer weights are no promise of a lower barrier: the loss between two models can rise while "
    "their weights come nearer."
)
OLD = (
    "This result was stored without the lengths of tensors, which the shares need. It can be "
    "computed anew."
)
FITTED = (
    "The nearest pairs take off {}. Between unrelated models a search over this many orders and "
    "angles always takes something off: that says nothing about what the two have in common."
)
PAIRED = "Paired, not matched: these two are unrelated."


def waiting() -> Verdict:
    """What is said before the run."""
    return Verdict(
        "Not put into A's coordinates yet.",
        "A run finds, for every coordinate of A, the one of B that stands for it, and moves B's "
        "weights there. B's function stays what it is, and that is checked.",
        "not measured",
    )


def unfinished(found: AlignmentProgress, *, goes_on: bool) -> str:
    """How far a run has come, or where it was stopped."""
    state = "So far" if goes_on else "Stopped; nothing was written. Until then"
    parts = []
    if found.sweeps:
        parts.append(f"{count(len(found.sweeps), 'sweep')} (objective: {fell(found.sweeps)})")
    layers = {step.layer for step in found.steps} - {None}
    if layers:
        parts.append(f"{count(len(layers), 'layer')} solved")
    if any(found.losses):
        last = [losses for losses in found.losses if losses][-1]
        parts.append(f"{count(len(last), 'step')} along the loss, {last[-1]:.3f} nats")
    return f"{state}: {', '.join(parts) or 'nothing yet'}."


def told(
    a: ModelCard, b: ModelCard, report: AlignmentReport, related: Relatedness | None
) -> Verdict:
    """What two models are to each other, and what that does not show."""
    found = verdicts.pair(a, b, report)
    more = [found.more, between(report)]
    if related is not None and related.verdict == "unrelated":
        return replace(found, headline=PAIRED, more=" ".join([ASSIGNMENT, *more]))
    return replace(found, more=" ".join(part for part in more if part))


def objective(report: AlignmentReport) -> str:
    """What was minimised, from where to where."""
    if not report.sweeps:
        return (
            "It was not descended: without sweeps each coordinate is solved once, by a distance of "
            "its own."
        )
    end = descents.chosen(report.sweeps)
    what = (
        "Objective: the squared distance of the weights over ‖A‖², gains and biases of norms "
        "multiplied into the tensors that read them"
    )
    if abs(end.after - end.distance) > FELL * max(end.after, FELL):
        what += f", mixed with how alike activations are (its distance: {number(end.distance)})"
    return f"{what}; {fell(report.sweeps)}."


def fell(sweeps: tuple[Sweep, ...]) -> str:
    """The objective from the files as they stand to its lowest end; no fall is said to be none."""
    start, end = descents.stored(sweeps), descents.chosen(sweeps)
    if end.after >= start * (1 - FELL):
        return f"it did not fall below {number(start, 4)}, where the files stand"
    before, after = apart(start, end.after, 3)
    return f"it fell from {before} as the files stand to {after}, start: {end.start}"


def between(report: AlignmentReport) -> str:
    """What is known of the models between A and B; nothing is claimed beyond."""
    if report.midpoints:
        return f"{PROMISE} The loss half way was measured: see below."
    before, after = report.midpoint_before, report.midpoint_after
    if before is None or after is None:
        return PROMISE
    if after > before and distance(report).nearer:
        return f"{PROMISE} So it is here, half way, by the logits."
    return f"{PROMISE} Only the point half way was run."


def half_way(report: AlignmentReport) -> str:
    """The loss half way at the stages that matter, and what the control says."""
    points = {point.stage: point.above for point in report.midpoints}
    matched = [above for stage, above in points.items() if stage.startswith("with ")]
    end, control = points[descents.REFINED], points[descents.CONTROL]
    text = f"Half way the loss lies {_nats(points['unaligned'])} from the chord as the files stand"
    if matched:
        text += f", {_nats(matched[-1])} with every coordinate matched"
    text += f", {_nats(end)} refined; refined without any matching, the control, {_nats(control)}."
    if end >= control:
        return f"{text} The control is no worse: what was gained is not the matching's."
    return f"{text} Matching is worth {number(control - end)} nats to it, on one text."


def _nats(value: float) -> str:
    return f"{value:+.3f} nats".replace("-", "−")


def explained(report: AlignmentReport, related: Relatedness | None = None) -> str:
    """How much of the squared distance went away, and with which coordinates."""
    found, text = shares.whole(report), distance(report).told
    if report.norms is None:
        return f"{text} {OLD}"
    if not found:
        return f"{text} There is no distance to explain."
    left = found[shares.LEFT]
    parts = [f"{name} {_percent(share)}" for name, share in found.items() if name != shares.LEFT]
    if left >= 1:
        return f"{text} Nothing of the squared distance was explained by coordinates."
    shown = "more than 99.9 %" if 1 > 1 - left >= 0.9995 else _percent(1 - left)
    taken = f"{shown} of the squared distance ({', '.join(parts)})"
    if related is not None and related.verdict == "unrelated":
        return f"{text} {FITTED.format(taken)}"
    return f"{text} Only coordinates: {taken}."


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %".replace("-", "−")
