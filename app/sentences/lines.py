"""Sentences about what stands on a line between two models: merges, a plane, orders of heads."""

import numpy as np

from app.charts.barriers import DIGITS, NAMES
from app.charts.measures import FEW, at
from app.sentences.layers import ran
from app.sentences.numbers import count, number
from engine.records import TOLERANCE, HeadOrders, LossSlice, MergeReport, Writing

MANY = 72
"""Orders of the heads of a layer up to which all of them are tried."""


def merged(record: MergeReport) -> str:
    """The measured loss of a merge, against the chord, and that it is a new function."""
    loss, accuracy, above = (
        at(measure, 1)
        for measure in (
            record.curve.points("loss"), record.curve.points("accuracy"), record.curve.excess()
        )
    )  # fmt: skip
    side = "above" if record.above >= 0 else "below"
    ends = " and ".join(number(float(x), DIGITS) for x in record.curve.points().value[[0, -1]])
    few = f" There is {FEW}." if above.low is None else ""
    return (
        f"At t = {number(record.t, 3)}, {NAMES[record.curve.stage]}: loss {loss.said(DIGITS)} "
        f"nats, {number(abs(record.above), DIGITS)} {side} the chord between {ends}; accuracy "
        f"{accuracy.said(DIGITS)}. {function(record)}{few}"
    )


MERGE = "A merge is a new function: in general it computes neither what A does nor what B does."


def function(record: MergeReport) -> str:
    """What a merge computes: a new function, but at the ends and where both ends coincide."""
    if record.curve.distance <= TOLERANCE:
        return (
            "A and the other end have the same weights here, to "
            f"{number(record.curve.distance)}: so has every merge of them."
        )
    if record.t in {0.0, 1.0}:
        return f"It is {'A' if record.t == 0 else 'the other end'} itself, not a merge."
    return "It is a new function: it computes neither what A does nor what B does."


def plane(record: LossSlice) -> str:
    """The lowest and the highest loss of the plane, and how near aligned B is to A."""
    known = record.loss[~np.isnan(record.loss)]
    if not known.size:
        return "No point of the plane was measured yet."
    far = float(np.hypot(*(record.places[2] - record.places[0])))
    goes_on = "" if record.complete else f"Partial: {known.size} of {record.loss.size} points. "
    return (
        f"{goes_on}Loss from {number(float(known.min()), 3)} to {number(float(known.max()), 3)} "
        f"nats. B in A's coordinates is {number(100 * far)} % as far from A as B is. "
        f"{ran(record.run)}"
    )


def orders(record: HeadOrders) -> str:
    """The rank of the order that the alignment takes, by its objective and by its barrier."""
    if len(record.curves) < len(record.orders):
        return f"Partial: {len(record.curves)} of {count(len(record.orders), 'order')} measured."
    mine = record.curves[record.chosen]
    by_objective, by_barrier = record.ranks
    barriers = [float(one.barrier().value) for one in record.curves]
    best = int(np.argmin(barriers))
    found = at(mine.barrier())
    few = f" {FEW.capitalize()}." if found.low is None else ""
    lowest = (
        "No order has a lower barrier."
        if by_barrier == 1
        else f"The lowest, {named(record, best)}, has {number(barriers[best])}."
    )
    return (
        f"Taken: {named(record, record.chosen)}, barrier {found.said(DIGITS)} nats; rank "
        f"{by_objective} of {len(barriers)} by what Stage 2 leaves, rank "
        f"{by_barrier} by the measured barrier. "
        f"{lowest}{few}"
    )


def named(record: HeadOrders, number_of: int) -> str:
    """An order in words."""
    return "order " + " ".join(map(str, record.orders[number_of]))


def too_many(heads: int, orders_of: int) -> str:
    """Said of a layer whose orders are too many to try."""
    return (
        f"{count(heads, 'head')} have {orders_of:,} orders; all of them are tried up to {MANY}. "
        "The Heads page ranks the chosen order by its cost."
    )


def written(record: Writing, n: int) -> str:
    """How long one continuation stays with A's."""
    if float(record.at[n]) == 0:
        return "A itself"
    if record.same[n] == 0:
        return "parts from A at once"
    return f"the first {count(int(record.same[n]), 'token is', 'tokens are')} as A's"
