"""Sentences about what stands on a line between two models: merges, a plane, orders of heads."""

import numpy as np

from app.charts.barriers import DIGITS, NAMES
from app.charts.measures import FEW, at
from app.sentences.barriers import scope
from app.sentences.layers import ran
from app.sentences.numbers import count, number
from engine.attention.counting import DRAWN
from engine.records import TOLERANCE, BarrierReport, HeadOrders, LossSlice, MergeReport, Writing
from engine.records.planes import FLAT


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


MERGE = "In general a merge is a new function: it computes neither what A does nor what B does."


def function(record: MergeReport) -> str:
    """What a merge computes, by its measured loss in every window; at an end it is none."""
    if record.t in {0.0, 1.0}:
        return f"It is {'A' if record.t == 0 else 'the other end'} itself, not a merge."
    (own, other), words = map(number, record.apart), record.same
    gaps = (
        f"in the worst window of {record.run.windows} its loss differs by {own} from A's "
        f"({words[0]}) and by {other} from the other end's ({words[1]}), relative."
    )
    alike = [end for end, word in zip(("A", "the other end"), words, strict=True)
             if word == "exact"]  # fmt: skip
    if not alike:
        return f"It is a new function: it computes neither what A does nor what B does; {gaps}"
    said = f"It computes what {' and '.join(alike)} do{'es' * (len(alike) == 1)}: {gaps}"
    return f"{said} {weights(record)}".strip()


def weights(record: MergeReport) -> str:
    """Where both ends have the same weights, so has every model between them."""
    if record.curve.distance > TOLERANCE:
        return ""
    far = number(record.curve.distance)
    return f"A and the other end have the same weights here, to {far}: so has every merge of them."


ALIKE = 1e-9
"""Relative difference of two distances to A up to which B was not moved by a stage."""


def spanning(report: BarrierReport, wanted: str) -> str:
    """The stage whose B spans a plane with A and B: the wanted one, else the furthest; or none."""
    last = [curve.stage for curve in reversed(report.curves)]
    steps = sorted(last, key=lambda stage: stage == "random")
    found = [stage for stage in (wanted, *steps) if not _on_line(report, stage)]
    return found[0] if found else ""


def _on_line(report: BarrierReport, stage: str) -> str:
    """Where B stands at a stage if it is on the line of A and B; empty where it is not."""
    raw, curve = report.curve("none"), report.curve(stage)
    if stage == "none" or curve is None:
        return "as it was"
    far = 1.0 if raw is None else raw.distance
    if far == 0 or curve.distance <= FLAT * far:
        return f"where A does (distance {number(curve.distance)})"
    return "as it was" if abs(curve.distance - far) <= ALIKE * far else ""


def flat(report: BarrierReport, wanted: str, taken: str) -> str:
    """Why there is no plane with one stage, and which is taken instead."""
    if not taken:
        return (
            "No plane: at every stage that was measured, B stands where A does or as it was. "
            "Choose another pair, or measure more stages under What is measured."
        )
    return (
        f"With the stage {wanted}, B stands {_on_line(report, wanted)}: three models on one line "
        f"span no plane. Taken is the stage {taken}; others can be chosen under Stage that writes."
    )


def plane(record: LossSlice) -> str:
    """The lowest and the highest loss of the plane, and how near aligned B is to A."""
    known = record.loss[~np.isnan(record.loss)]
    if not known.size:
        return "No point of the plane was measured yet."
    far = float(np.hypot(*(record.places[2] - record.places[0])))
    goes_on = "" if record.complete else f"Partial: {known.size} of {record.loss.size} points. "
    part = "" if record.scope == "whole" else f", over {scope(record.scope)} alone"
    return (
        f"{goes_on}Loss from {number(float(known.min()), 3)} to {number(float(known.max()), 3)} "
        f"nats. B at the stage {record.stage} is {number(100 * far)} % as far from A as B is"
        f"{part}. "
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
    if orders_of < 2:
        return "A layer has one head, and that has one order."
    return (
        f"{count(heads, 'head')} have {orders_of:,} orders, too many to solve Stage 2 for: orders "
        f"are tried up to {DRAWN} heads. The Heads page names the order that is taken."
    )


def orders_to_try(many: int, tried: int, layer: int) -> str:
    """What a run over the orders of a layer will try."""
    if tried == many:
        return f"All {many} orders of layer {layer}."
    return f"{tried} of the {many:,} orders of layer {layer}: the alignment's, others at random."


def written(record: Writing, n: int) -> str:
    """How long one continuation stays with A's."""
    if float(record.at[n]) == 0:
        return "A itself"
    if record.same[n] == 0:
        return "parts from A at once"
    return f"the first {count(int(record.same[n]), 'token is', 'tokens are')} as A's"
