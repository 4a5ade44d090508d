"""Sentences about a model's table: how many settings of its parameters are the same function."""

from app.sentences.verdicts import Verdict, check
from app.sentences.words import count
from engine.records import CoordinateCard, ModelCard, SelfTest

RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(log10: float) -> str:
    """A count by its logarithm: "720", "10³⁶⁹⁴"."""
    return f"{round(10**log10):,}" if log10 < 6 else f"10{f'{log10:.0f}'.translate(RAISED)}"


def totals(card: ModelCard, test: SelfTest | None) -> Verdict:
    """How many parameter settings are this function, by the table; the self-test is its proof."""
    free = [row for row in card.coordinates if not row.fixed]
    names = ", ".join(_times(row) for row in free)
    family = f", and a {card.dimension:,}-dimensional family of them" if card.dimension else ""
    headline = f"{power(card.log10)} settings of the parameters are this same function{family}."
    tried = check(test)
    text = (
        f"{count(len(free), 'index is only a name', 'indices are only names')}: {names}. "
        f"Orders and signs are counted; factors, angles and matrices are the dimensions. "
        f"{_blind(card)} {_proof(test, tried)}"
    )
    return Verdict(headline, text, tried.word, tried.number)


def _times(row: CoordinateCard) -> str:
    return f"{row.title} ({row.size:,}{f' × {row.copies:,}' if row.copies > 1 else ''})"


def _blind(card: ModelCard) -> str:
    if not card.blind:
        return "No blind direction is known."
    near = sum(row.approximate for row in card.blind)
    dimension = sum(row.dimension for row in card.blind)
    but = f" ({near} of them only up to the ε inside a norm)" if near else ""
    return (
        f"Along {count(len(card.blind), 'blind direction')}{but} the weights move without any "
        f"index: {count(dimension, 'more dimension')}."
    )


def _proof(test: SelfTest | None, tried: Verdict) -> str:
    if test is None:
        return "The table says so; no random change was tried on this model yet."
    return f"Tried: {tried.text[0].lower()}{tried.text[1:]}"


def closed(which: str) -> Verdict:
    """What is said while the model cannot be looked at."""
    return Verdict(
        "Nothing to list yet.",
        f"Model {which} is not open: the card says what is missing, or offers to open it.",
    )


def about(row: CoordinateCard) -> str:
    """One coordinate in a sentence or two."""
    if row.fixed:
        return f"{row.size:,} of them. {row.why} Nothing may act on it: {row.fixed}."
    many = "one set for the whole model" if row.copies == 1 else f"{row.copies:,} independent sets"
    parts = [f"{power(row.log10)} orders and signs"] if row.log10 else []
    parts += [f"{count(row.dimension, 'continuous dimension')}"] if row.dimension else []
    return f"{row.size:,} of them, {many}: {' and '.join(parts) or 'one element'}. {row.why}"
