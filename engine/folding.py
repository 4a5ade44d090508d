"""Tensors moved along blind directions to one form: gain 1, bias 0, nothing along the mean.

Two models that differ by blind directions alone have the same form, so that a cost of its tensors
sees none of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from engine.action import Read, act
from engine.axes import Leg, Mark, Sizes, legs
from engine.blind import Blind
from engine.elements import Ordered
from engine.family import Family
from engine.slide import Shifted, family_of_blind, least, moves, shifts, spelled
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
HEADS = frozenset({"grp", "head", "rot", "qk", "val", "gain"})
"""The coordinates of attention."""
NEURONS = frozenset({"ffn", "sffn", "exp"})
"""The coordinates of a feed-forward network."""


def attention(family: Family, tensors: Tensors) -> dict[str, Tensor]:
    """Those tensors of a layer that carry a head, in float32 or finer."""
    return {name: _fine(x) for name, x in tensors.items() if _carries(family, name)}


def folded(family: Family, sizes: Sizes, tensors: Tensors) -> dict[str, Tensor]:
    """Those tensors of a layer that carry a head, in the form that no blind direction changes.

    The family's own rows lead there: the norm's bias goes into those of its readers (β + δ = 0),
    its gain into them (γ c = 1), and under LayerNorm readers and writers lose their mean.
    """
    return attention(family, canonical(family, sizes, tensors))


def canonical(
    family: Family, sizes: Sizes, tensors: Tensors, words: Collection[str] = HEADS
) -> dict[str, Tensor]:
    """All tensors of a layer, along the directions that move a carrier of some coordinates."""
    found = dict(tensors)
    for blind in _directions(family, sizes, tensors, words):
        moved = [name for name in found if moves(family, blind, name)]
        found |= {name: _fine(found[name]) for name in moved}
        read = _gained if blind.table else _shifted
        found |= read(family, sizes, blind, found, moved)
    return {name: found[name] for name in tensors}


def _directions(
    family: Family, sizes: Sizes, names: Collection[str], words: Collection[str]
) -> list[Blind]:
    """The directions that move a carrier: biases of the stream, then gains, then the rest.

    A bias goes first, because a gain may be 0; means last, where every gain is 1.
    """
    present = set(spelled(family, names))
    carriers = [name for name in names if _carries(family, name, words)]
    here = [
        blind
        for blind in family.blind
        if any(moves(family, blind, name) for name in carriers)
        and (any(_gains(family, blind, names)) if blind.table else shifts(sizes, blind, present))
    ]
    return sorted(here, key=lambda blind: (blind.shift != "res", not blind.table))


def unit_gains(
    family: Family, blind: Blind, read: Read, names: Iterable[str]
) -> dict[str, Ordered]:
    """The elements c = 1/γ of a direction of gains against readers; empty for any other.

    By key in the direction's own table (`family_of_blind`); infinite where a gain is 0.
    """
    found = {}
    for name, key, offset in _gains(family, blind, names):
        gain = read(name).double() + offset
        found[key] = Ordered(torch.arange(len(gain)), 1 / gain)
    return found


def _gains(family: Family, blind: Blind, names: Iterable[str]) -> Iterator[tuple[str, str, float]]:
    """Name, key and offset of the gains (`|res|`) that a direction writes and others read."""
    if not blind.table:
        return
    table = family_of_blind(family, blind)
    if Leg(blind.name, Mark.READ) not in {leg for _, row in table.rows for leg in legs(row.axes)}:
        return
    for name in names:
        row = table.find(name)
        written = row is not None and row.axes == (Leg(blind.name, Mark.WRITE),)
        if row and written and family.row(name).axes == (Leg("res", Mark.RELABEL),):
            yield name, table.key(blind.name, row.layer), row.offset


def _gained(
    family: Family, sizes: Sizes, blind: Blind, tensors: Tensors, names: Collection[str]
) -> dict[str, Tensor]:
    elements = unit_gains(family, blind, tensors.__getitem__, names)
    table = _said(family_of_blind(family, blind), {**sizes, blind.name: sizes["res"]})
    g = Symmetry(table, {}, elements)
    return {name: act(g, name, tensors.__getitem__) for name in names}


def _said(table: Family, sizes: Sizes) -> Family:
    """A table that needs no configuration to know its sizes."""
    key = tuple(sorted(sizes.items()))
    if key not in table.derived:
        said = {n: replace(c, size=str(sizes[n])) for n, c in table.coordinates.items()}
        table.derived[key] = key, replace(table, coordinates=said)
    return table.derived[key][1]


def _shifted(
    family: Family, sizes: Sizes, blind: Blind, tensors: Tensors, names: Collection[str]
) -> dict[str, Tensor]:
    layer = next(family.row(name).layer for name in names)
    still = Shifted(family, sizes, blind, tensors.__getitem__, least, spelled(family, tensors))
    step = least(still, layer)
    if not step.isfinite().all():
        return {}
    there = replace(still, step=lambda *_: step)
    return {name: there(name) for name in names}


def _carries(family: Family, name: str, words: Collection[str] = HEADS) -> bool:
    return any(leg.name in words for leg in legs(family.row(name).axes))


def _fine(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
