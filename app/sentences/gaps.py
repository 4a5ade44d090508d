"""Sentences about the gap between two tests of layers, during a training or over seeds."""

import numpy as np

from app.charts.gaps import TESTS, ScaleOf, label, means, ordered, tests, trained
from app.sentences.layers import ran
from app.sentences.verdicts import Verdict
from app.sentences.words import count, number
from engine.layers.selection import spearman
from engine.records import GapTrajectory

FEW = 10
"""Points below which a rank correlation is called a hint."""
WORDS = {
    "loss": "loss, nats",
    "influence": "block influence, 1 − cos(in, out)",
    "update": "size of the updates over the stream",
    "turn": "cosine of successive updates",
    "cka": "CKA of successive depths",
    "weights": "distance of adjacent layers' weights",
}


def told(record: GapTrajectory, scale: ScaleOf) -> Verdict:
    """How the gap moves, on what, and what that does not show."""
    if not record.steps:
        return Verdict("No model was measured yet.", ran(record.run), number="partial")
    text = " ".join(part for part in (moved(record, scale), skips(record), ran(record.run)) if part)
    return Verdict(headline(record, scale), text, number="" if record.complete else "partial")


def headline(record: GapTrajectory, scale: ScaleOf) -> str:
    """First against last step, or the range over models."""
    values, steps = means(record, scale), ordered(record)
    if not trained(record) or len(steps) == 1:
        low, high = number(float(values.min())), number(float(values.max()))
        over = count(len(steps), "model")
        return f"Over {over} the mean gap lies between {low} and {high} ({scale})."
    first, last = (number(float(value)) for value in (values[0], values[-1]))
    a, b = (label(record, step) for step in (steps[0], steps[-1]))
    grown = "larger" if values[-1] > values[0] else "no larger"
    return f"The gap is {grown} at step {b} than at step {a}: {last} after {first} ({scale})."


def moved(record: GapTrajectory, scale: ScaleOf) -> str:
    """Whether the gap moves in one direction."""
    values = means(record, scale)
    pairs = count(record.layers - 1, "pair of adjacent layers", "pairs of adjacent layers")
    if not trained(record):
        return f"Each a mean over {pairs}; 0 is no gap."
    if len(values) < 3:
        return f"A mean over {pairs}."
    steps = np.diff(values)
    way = "at every step" if (steps > 0).all() or (steps < 0).all() else "not at every step"
    verb = "shrinks" if values[-1] < values[0] else "grows"
    return f"It {verb}, {way}; a mean over {pairs}."


def skips(record: GapTrajectory) -> str:
    """The skip sequence beside both tests, at the last step."""
    last = ordered(record)[-1].model
    rows = tests(record).to_dict("records")
    known = {row["test"]: row["KL"] for row in rows if row["model"] == last}
    if not set(TESTS) <= set(known):
        return ""
    listed = ", ".join(f"{test} {number(float(known[test]))}" for test in TESTS)
    return f"At the last one, mean KL in nats: {listed}."


def correlated(record: GapTrajectory, scale: ScaleOf) -> str:
    """The rank correlation of every property with the gap, and how little that says."""
    values, steps = means(record, scale), ordered(record)
    names = list(steps[0].properties)
    found = [(n, *spearman([s.properties[n] for s in steps], values)) for n in names]
    known = [f"{name} ρ = {rho:.2f}" for name, rho, _ in found if not np.isnan(rho)]
    if not known:
        return "Fewer than three models: no correlation can be given."
    few = f"{len(steps)} models are few. " if len(steps) < FEW else ""
    cause = (
        "Training moves all of these at once, so none is shown to be the cause."
        if trained(record)
        else "A property that differs along is not shown to be the cause."
    )
    return f"Rank correlation with the mean gap: {'; '.join(known)}. {few}{cause}"


def waiting() -> Verdict:
    """What is said before a series was measured."""
    return Verdict(
        "How the gap grows was not measured yet.",
        "Replacing and swapping adjacent layers are measured at every model of the series, on one "
        "text.",
        "not measured",
    )
