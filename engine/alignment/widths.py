"""Feed-forward networks of two widths: what is common to both is matched and compared.

B keeps all of its neurons. Those that have a partner come first, by their partners' places in A;
where B is wider, the others follow in the order that they had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from engine import axes
from engine.action import act
from engine.alignment.close import distances
from engine.alignment.heads import gather
from engine.alignment.stages import pair_neurons
from engine.axes import Leg, Sizes, legs
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.family import Family
from engine.groups import Monomial
from engine.headers import Header
from engine.symmetry import Symmetry

WORD = "ffn"
Tensors = Mapping[str, Tensor]
Both = tuple[int, int]
"""Numbers of neurons of A and B."""


def widths(a: Checkpoint, b: Checkpoint) -> Both | None:
    """Both numbers of neurons in a layer; None where they are equal."""
    found = tuple(c.family.sizes(c.config).get(WORD, 0) for c in (a, b))
    return None if found[0] == found[1] else (found[0], found[1])


def wider(a: Checkpoint, b: Checkpoint) -> Mapping[str, Any]:
    """The configuration of the one with more neurons in a layer, A's where both have as many."""
    both = widths(a, b)
    return b.config if both and both[0] < both[1] else a.config


def narrower(a: Checkpoint, b: Checkpoint) -> Mapping[str, Any]:
    """The configuration of the one with fewer, A's where both have as many."""
    both = widths(a, b)
    return b.config if both and both[0] > both[1] else a.config


def carries(family: Family, name: str) -> bool:
    """Whether a tensor has neurons on an axis."""
    return any(leg.name == WORD for leg in legs(family.row(name).axes))


def placed(family: Family, sizes: Sizes, name: str, x: Tensor, places: Int[Tensor, " m"]) -> Tensor:
    """The neurons of a tensor at some places, in that order; zeros for a place of −1."""
    if not carries(family, name):
        return x

    def change(found: tuple[Leg, ...], block: Tensor) -> Tensor:
        where = [leg.name for leg in found].index(WORD)
        shape = [-1 if k == where else 1 for k in range(block.ndim)]
        return block.index_select(where, places.clamp(min=0)) * (places >= 0).view(shape).to(block)

    row = family.row(name)
    return axes.rewrite(x, row.axes, sizes, change)


def padded(family: Family, sizes: Sizes, tensors: Tensors, width: int) -> dict[str, Tensor]:
    """Tensors with silent neurons at the end, up to a width."""
    own = torch.arange(sizes[WORD])
    places = torch.cat([own, torch.full((width - len(own),), -1)])
    return chosen_neurons(family, sizes, tensors, places)


def both_have(order: Int[Tensor, " n"], both: Both) -> Bool[Tensor, " n"]:
    """Of padded layers, the places at which an order puts a neuron of B beside one of A."""
    return (torch.arange(len(order)) < both[0]) & (order < both[1])


def completed(
    rows: Int[np.ndarray, " m"], columns: Int[np.ndarray, " m"], size: int
) -> Int[Tensor, " n"]:
    """An order of `size` places in which `columns` stand at `rows`, all others as they come."""
    found = np.full(size, -1)
    found[rows] = columns
    found[found < 0] = np.setdiff1d(np.arange(size), columns)
    return torch.from_numpy(found)


@dataclass(frozen=True)
class Common:
    """The neurons of a layer that have a partner in the other model, in the order of each."""

    a: Int[Tensor, " m"]
    b: Int[Tensor, " m"]
    size: int  # B's number of neurons

    def lifted(self, found: Mapping[str, Element], key: str) -> dict[str, Element]:
        """The element of these neurons as one of all of B's, those left over at the end."""
        if not isinstance(element := found.get(key), Ordered):
            return {}
        rest = torch.from_numpy(np.setdiff1d(np.arange(self.size), self.b.numpy()))
        order = torch.cat([self.b[element.permutation], rest])
        ones = torch.ones(len(rest), dtype=element.scale.dtype)
        return {key: Ordered(order, torch.cat([element.scale, ones]))}


def common_neurons(
    family: Family, sizes: tuple[Sizes, Sizes], a: Tensors, b: Tensors
) -> Common | None:
    """By the cost of `pair_neurons`; None outside layers."""
    group = family.coordinates[WORD].group
    x, y = (gather(family, s, z, WORD) for s, z in zip(sizes, (a, b), strict=True))
    if not x:
        return None
    assert isinstance(group, Monomial)
    found = pair_neurons(group, x, y)
    return Common(
        torch.from_numpy(found.rows),
        torch.from_numpy(found.columns).sort().values,
        sizes[1][WORD],
    )


def chosen_neurons(
    family: Family, sizes: Sizes, tensors: Tensors, places: Int[Tensor, " m"]
) -> dict[str, Tensor]:
    """Tensors with some of their neurons."""
    return {n: placed(family, sizes, n, x, places) for n, x in tensors.items()}


def own_order(element: Ordered, both: Both) -> Ordered:
    """An element of padded layers as one of B's own neurons."""
    order, scale = element.permutation, element.scale
    kept = both_have(order, both)
    rest, _ = order[~kept & (order < both[1])].sort()
    ones = torch.ones(len(rest), dtype=scale.dtype)
    return Ordered(torch.cat([order[kept], rest]), torch.cat([scale[kept], ones]))


def increasing(cost: Float[np.ndarray, "wide narrow"]) -> Int[np.ndarray, " narrow"]:
    """The increasing rows, one for each column, with the least sum of costs.

    best[k, i] = min(best[k, i − 1], best[k − 1, i − 1] + cost[i, k]).
    """
    wide, narrow = cost.shape
    best = np.empty((narrow, wide))
    before = np.zeros(wide)
    for k in range(narrow):
        best[k] = np.minimum.accumulate(before + cost[:, k])
        before = np.concatenate([[np.inf], best[k, :-1]])
    found, last = np.empty(narrow, np.int64), wide
    for k in range(narrow - 1, -1, -1):
        last = int(np.flatnonzero(best[k, :last] == best[k, last - 1])[0])
        found[k] = last
    return found


@dataclass(frozen=True)
class Facing:
    """A beside g · B: its tensors with those neurons only that have one of B's beside them.

    Where A is wider these are the nearest ones in the order of B's; where B is, its first ones.
    """

    a: Checkpoint
    b: Checkpoint
    g: Symmetry
    _found: dict[int | None, Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def both(self) -> Both | None:
        """Numbers of neurons, where they differ."""
        return widths(self.a, self.b)

    @property
    def headers(self) -> Mapping[str, Header]:
        """A's."""
        return self.a.headers

    def partners(self, layer: int | None) -> Int[Tensor, " n"]:
        """A's neurons of a layer that B's stand beside, in B's order."""
        if layer not in self._found:
            self._found.clear()
            self._found[layer] = self._nearest(layer)
        return self._found[layer]

    def _nearest(self, layer: int | None) -> Int[Tensor, " n"]:
        family = self.a.family
        names = [n for n in self.a.headers if family.row(n).layer == layer and carries(family, n)]
        mine = {n: act(self.g, n, self.b.read).float() for n in names}
        theirs = {n: self.a.read(n).float() for n in names}
        rows = []
        for one, tensors in ((self.a, theirs), (self.b, mine)):
            found = gather(family, family.sizes(one.config), tensors, WORD, dtype=torch.float32)
            rows.append(torch.cat([*found.values()]))
        return torch.from_numpy(increasing(distances(*rows).double().numpy()))

    def read(self, name: str) -> Tensor:
        """A tensor of A."""
        x, family = self.a.read(name), self.a.family
        if not self.both or self.both[0] < self.both[1] or not carries(family, name):
            return x
        partners = self.partners(family.row(name).layer)
        return placed(family, family.sizes(self.a.config), name, x, partners)

    def cut(self, name: str, y: Tensor) -> Tensor:
        """A tensor of B with as many neurons as `read` gives."""
        if not self.both or self.both[0] > self.both[1]:
            return y
        family = self.a.family
        return placed(family, family.sizes(self.b.config), name, y, torch.arange(self.both[0]))

    def spread(self, name: str, y: Tensor) -> Tensor:
        """The same at the places of their partners, A's own neurons in all others."""
        family = self.a.family
        if not self.both or self.both[0] < self.both[1] or not carries(family, name):
            return self.cut(name, y)
        back = torch.full((self.both[0],), -1)
        partners = self.partners(family.row(name).layer)
        back[partners] = torch.arange(len(partners))
        sizes = family.sizes(self.b.config)
        beside = placed(family, sizes, name, torch.ones_like(y), back)
        return torch.where(
            beside > 0, placed(family, sizes, name, y, back), self.a.read(name).to(y)
        )
