"""Sentences about two models' relation: one of four verdicts, with its p-value and its control."""

import math

from app.sentences.cuts import cut
from app.sentences.verdicts import Verdict
from app.sentences.words import number
from engine.records import LineageTest, ModelCard, Relatedness
from engine.records.lineage import LIMIT

HEADLINES = {
    "same weights": "The same weights.",
    "same function in other coordinates": "The same function in other coordinates.",
    "same lineage": "One lineage: they have common weights in their past.",
    "unrelated": "Unrelated: nothing speaks for common weights in their past.",
}
ASSIGNMENT = (
    "An assignment always exists: a solver pairs every coordinate of B with one of A, whether or "
    "not they have anything to do with each other. Take the pairs below for the nearest ones, not "
    "for partners."
)


BASIS = "Tested: do two independent ways to match the neurons tell alike?"


def comparable(a: ModelCard, b: ModelCard) -> bool:
    """Whether neurons of both can be compared: one architecture and one width."""
    return a.family == b.family and a.width == b.width


def related(record: Relatedness | None) -> Verdict:
    """What two models are to each other, how unlikely that is by chance, and what is not shown."""
    if record is None:
        return Verdict(
            "Related or not has not been tested.",
            "Two models that have nothing in common also get an assignment. The test asks whether "
            "two independent ways to match their neurons tell alike, as they do only where both "
            "models come from one.",
            "not measured",
            basis=BASIS,
        )
    parts = [_p(record), _control(record), _basis(record)]
    return Verdict(
        HEADLINES[record.verdict],
        " ".join(parts),
        number=p(record.log10_p),
        about="How often two models with nothing in common would agree as much, by chance.",
        basis=BASIS,
    )


def apart(a: ModelCard, b: ModelCard) -> Verdict:
    """Why the relation of two models cannot be tested."""
    named = (("family", a.family, b.family), ("width", a.width, b.width))
    found = "; ".join(f"{what} {one} against {other}" for what, one, other in named if one != other)
    return Verdict(
        "Related or not: it cannot be tested for these two.",
        f"A and B differ in {found}. The test compares neurons by what they read from the residual "
        "stream: that needs one architecture, and one width.",
        basis=BASIS,
    )


def p(log10: float) -> str:
    """A p-value, however small: "p = 0.38", "p < 1e-3021"."""
    return f"p = {number(10.0**log10)}" if log10 > -4 else f"p < 1e{math.ceil(log10)}"


def tests(record: Relatedness) -> tuple[LineageTest, ...]:
    """The tests without their control, which is the last one."""
    return record.tests[:-1]


def _p(record: Relatedness) -> str:
    best = min(tests(record), key=lambda test: test.log10_p)
    return (
        f"Two ways to match the neurons agree on {float(best.agreeing.mean()):.1%} of them "
        f"(residual coordinates: {best.coordinates}); by chance, all tests counted, "
        f"{p(record.log10_p)}."
    )


def _control(record: Relatedness) -> str:
    """What unrelated looks like."""
    log10 = record.tests[-1].log10_p
    if log10 <= LIMIT:
        return f"The control, random residual coordinates, gives {p(log10)}: the test failed here."
    return f"Control, random residual coordinates: {p(log10)}, as between unrelated models."


def _basis(record: Relatedness) -> str:
    if record.verdict == "same weights":
        return f"No tensor is further off than {number(record.furthest or 0.0)} of its size."
    if record.logits_between is None or not record.logits_scale:
        return "The outputs were not compared."
    apart = (
        f"Largest logit difference {number(record.logits_between)}, where logits reach "
        f"{number(record.logits_scale)}."
    )
    if record.verdict == "unrelated":
        return f"{apart} A large p is no proof: long training can wash a lineage out."
    return apart


def placed(record: Relatedness) -> str:
    """Which layer is which where the depths differ."""
    shallow, deep = sorted(record.depths)
    one, other = ("B", "A") if record.depths[0] > record.depths[1] else ("A", "B")
    if not record.related:
        return (
            f"{one} has {shallow} layers and {other} has {deep}. They are unrelated: the marked "
            "cells are the best placement there is, and it means nothing."
        )
    kept = tuple(int(layer) for layer in record.layers)
    gone = tuple(layer for layer in range(deep) if layer not in kept)
    return f"The {shallow} layers of {one} are {cut(kept)} of {other}; no partner: {cut(gone)}."
