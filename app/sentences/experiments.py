"""Sentences about an experiment of the lab: what was expected, what was measured."""

from app.sentences.verdicts import Verdict
from app.sentences.words import count, number
from engine.records import Experiment, ModelCard

NEAR = "Holds up to the ε inside a norm, as the theory says."
MOVED = "This contradicts the theory: the output should have stayed, and it moved."


def told(record: Experiment, card: ModelCard) -> Verdict:
    """Does it hold? The reserved word, and loudly where the theory says something else."""
    if not record.moved:
        text = "No tensor and no position moved, so this shows nothing. Turn the dial up."
        return Verdict("Nothing was changed.", text, "not measured")
    text = f"{_moved(record)} {_out(record)}{_followed(record)}"
    return Verdict(_headline(record, card), text, record.verdict, number(record.effect.error))


def _headline(record: Experiment, card: ModelCard) -> str:
    if not record.symmetry:
        return _cost(record)
    if record.as_expected:
        if record.holds:
            return "Holds: the weights moved, the output did not."
        little = ", by a little" if record.verdict == "approximate" else ""
        return f"Breaks as it must{little}: this is no symmetry."
    if record.holds:
        near = record.verdict == "approximate" and _near(record, card)
        return NEAR if near else MOVED
    return _stayed(record)


def _stayed(record: Experiment) -> str:
    """Where the output should have moved and did not."""
    if record.severity < 1 or record.draw not in {"random", "matrix", "rotation"}:
        return "Should break, but the change is too small to show on this text."
    return "This contradicts the theory: the output should have moved, and it stayed."


def _cost(record: Experiment) -> str:
    if record.verdict == "exact":
        return "No symmetry, but on this text the output stayed."
    return "No symmetry: the function is another one now."


def _near(record: Experiment, card: ModelCard) -> bool:
    """Whether a direction is true only up to ε."""
    return any(row.name == record.coordinate and row.approximate for row in card.blind)


def _moved(record: Experiment) -> str:
    if not record.tensors:
        return "No tensor moved; the positions of the text did."
    furthest = max(record.tensors, key=lambda change: change.change)
    which = "" if len(record.tensors) == 1 else "the furthest "
    moved = count(len(record.tensors), "tensor")
    return f"{moved} moved, {which}by {furthest.change:.0%} of its size."


def _out(record: Experiment) -> str:
    effect = record.effect
    return (
        f"Largest change of a logit {number(effect.logits)}, of a log-probability "
        f"{number(effect.largest)}; mean KL "
        f"{number(effect.divergence)} nats; the most likely token is unchanged at "
        f"{effect.agreement:.0%} of positions. Measured on {effect.tokens}."
    )


def _followed(record: Experiment) -> str:
    if record.equivariance is None:
        return ""
    return f" Inside, {follows(record.equivariance)}."


def follows(error: float) -> str:
    """How well the hidden state went along with the change."""
    if error == 0:
        return "the hidden state followed the change to the last bit"
    return f"the hidden state followed the change up to {number(error)} of its size"


def waiting(title: str) -> Verdict:
    """What is said before the experiment has run."""
    text = "Nothing is measured for these dials. Below is what to do."
    return Verdict(f"{title}: not run.", text, "not measured")


def closed(which: str) -> Verdict:
    """What is said while the model cannot be looked at."""
    return Verdict(
        "Nothing to turn yet.",
        f"Model {which} is not open: the card says what is missing, or offers to open it.",
    )
