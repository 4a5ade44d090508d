"""Sentences about heads in disguise: why the published cost is not the default, or where it is."""

import numpy as np

from app.charts.disguises import FLOOR
from app.charts.heads import relative
from app.sentences.words import count, number
from engine.records import HeadsReport


def title(record: HeadsReport) -> str:
    """The question that the panel answers."""
    if record.disguises or record.turns is not None:
        return "Why not the published cost here?"
    return "Why is the published cost right here?"


def why(record: HeadsReport) -> list[str]:
    """What either cost says of heads in disguise, and what follows from the output."""
    if not record.disguises:
        return [unrotated(record)]
    seen = max(float(one.published.max()) for one in record.disguises)
    said = (
        f"calls each the head that it was (at most {_nothing(seen)})"
        if seen <= FLOOR
        else f"sees up to {number(seen)} in them"
    )
    heads = f"All {count(record.heads, 'head')}" if record.heads > 1 else "The head"
    first = (
        f"{heads} of layer {record.layer} of A against themselves in "
        f"{count(len(record.disguises), 'disguise')}. The product M = W_qᵀW_k is the same in all "
        f"of them: the published cost {said}. Costs are over ‖M‖² of the head, 2 is unrelated."
    )
    return [first, *conclusion(record)]


def _nothing(cost: float) -> str:
    return "0" if cost == 0 else f"{number(cost)}, rounding"


def conclusion(record: HeadsReport) -> list[str]:
    """What follows, where the measured output bears it out."""
    known = [one for one in record.disguises if one.error is not None]
    blind = [one for one in known if one.output != "exact" and one.published.max() <= FLOOR]
    ours = all((one.output == "exact") == (one.own.max() <= FLOOR) for one in known)
    if not blind or not ours or len(blind) == len(known):
        return []
    stays = len(known) - len(blind)
    first = f"{len(blind)} of {len(known)} change what the model says at a published cost of 0."
    then = f"Ours is 0 where the output stays ({stays}), and only there: hence the default."
    return [f"{first} {then}"]


def unrotated(record: HeadsReport) -> str:
    """Why M is all there is to compare where no channel is rotated."""
    if record.turns is not None:
        return "The disguises were not tried for this model."
    gap = float(np.abs(relative(record.own) - relative(record.published)).max())
    return (
        "No channel is rotated by position here: a head sees its queries and keys through "
        "M = W_qᵀW_k alone, so two heads with one M and one N = W_vᵀW_oᵀ are one head. That is "
        "what the published formula compares. It takes the mean off each row of M, which LayerNorm "
        "hides once its gain is folded in. Ours folds that gain in, where a norm stands before the "
        "attention, and reads the queries' biases too: the two tables differ by at most "
        f"{number(gap)} of the mean cost."
    )
