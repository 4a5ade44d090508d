"""Sentences about a matching of residual coordinates."""

from collections.abc import Mapping
from typing import Any

from app.sentences.numbers import named
from app.sentences.verdicts import Verdict, margin
from engine.records import ResidualMatch


def matched(record: ResidualMatch, depth: int) -> Verdict:
    """How many residual coordinates were found at one depth, and how sure."""
    match, where = record.absolute[depth], place(record.depths[depth])
    flipped, width = int((match.sign < 0).sum()), len(match.permutation)
    sure = _sure(record, depth)
    if record.sign_accuracy is None:
        text = (
            f"{sure} No truth is known for this pair, so the share that is right is not measured."
        )
        headline = f"{width:,} coordinates matched {where}, {flipped:,} with sign −."
        return Verdict(headline, text, "not measured")
    right = round(float(record.sign_accuracy[depth]) * width)
    return Verdict(
        f"{right:,} of {width:,} coordinates found {where}, {flipped:,} with sign −.", sure
    )


def unmatched() -> Verdict:
    """What is said before the coordinates have been matched."""
    return Verdict(
        "Only names, until they are matched.",
        "Inside a model the coordinates of the residual stream are only names: their order and "
        "signs can differ between two copies of one function. Matching finds which is which.",
        "not measured",
    )


def coordinate(found: Mapping[str, Any]) -> str:
    """One coordinate of A: its partner, the runner-up, and how far apart they are."""
    right = {True: " This is the true partner.", False: " This is not the true partner."}
    mutual = "They choose each other." if found["mutual"] else "They do not choose each other."
    return (
        f"Coordinate {found['A']} of A is coordinate {found['B']} of B with sign {found['sign']}: "
        f"|C| {found['|C|']:.3f}, against {found['its |C|']:.3f} for the next best, "
        f"{found['next B']} (margin {found['margin']:.3f}). {mutual}"
        f"{right[found['right']] if 'right' in found else ''}"
    )


def _sure(record: ResidualMatch, depth: int) -> str:
    """How certain the pairs are, and on what they rest."""
    match = record.absolute[depth]
    basis = "Computed from the weights alone."
    if record.using == "activations":
        basis = f"Measured on {record.tokens:,} tokens of {named(record.text)}."
    return (
        f"{int(match.mutual.sum()):,} of {len(match.mutual):,} pairs choose each other; "
        f"{margin(float(match.margin.min()))}. {basis}"
    )


def place(depth: str) -> str:
    """A depth in a sentence."""
    if depth == "pooled":
        return "over all depths together"
    return "at the embedding" if depth == "embedding" else depth


def ceiling(record: ResidualMatch) -> str:
    """One sentence on what ignoring signs costs."""
    if record.truth is None or record.signed_accuracy is None or record.absolute_accuracy is None:
        return (
            "No truth is known for this pair: the line shows how many pairs choose each other, "
            "which is necessary for a good match and not sufficient."
        )
    share = record.truth.positive_share
    best, full = float(record.signed_accuracy.max()), float(record.absolute_accuracy.max())
    stops = "stops there" if best <= share + 0.02 else "comes from chance hits above it"
    return (
        f"A coordinate whose sign is flipped anti-correlates with its partner, so matching on C "
        f"with its sign can find only the {share:.1%} with sign + (it reaches {best:.1%} "
        f"and {stops}); matching on |C| and reading the sign afterwards finds {full:.1%}."
    )


def points(record: ResidualMatch, depth: int) -> str:
    """How many points lie in their rings."""
    match, truth = record.absolute[depth], record.truth
    if truth is None:
        return "No truth is known for this pair, so there are no rings."
    right = int((match.permutation == truth.permutation).sum())
    return f"{right:,} of {len(match.permutation):,} points lie in their rings."
