"""All orders of the heads of a small layer: Stage 2 on each part of each, and their rank."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engine.alignment.gauges import (
    Products,
    factor_cost,
    fit_factor,
    fit_products,
    fit_unit,
    mixing_cost,
)
from engine.alignment.heads import bilinear, turning
from engine.attention.counting import RANKED, TRIED, solvable
from engine.attention.pairs import Pair
from engine.elements import Element, Mixed, Ordered, Turned
from engine.groups import Rotary
from engine.records import OrderRank

_BATCH = 64


@dataclass(frozen=True)
class Parts:
    """Stage 2 between every two groups and every order of the heads inside: [grp, grp, order]."""

    inside: Tensor  # int64 [order, head]
    cost: Float[Tensor, "grp grp2 order"]
    elements: Mapping[str, Tensor]  # z or M by coordinate, [grp, grp, order, …]


@dataclass(frozen=True)
class Orders:
    """All orders that keep groups together, and the lowest objective of each."""

    parts: Parts
    cost: np.ndarray  # float64 [orders]

    def at(self, number: int) -> tuple[list[int], list[int]]:
        """Groups, and the order inside each, of one of them."""
        groups, inside = self.parts.cost.shape[0], len(self.parts.inside)
        outer, rest = divmod(number, inside**groups)
        grp = next(itertools.islice(itertools.permutations(range(groups)), outer, None))
        return list(grp), [int(i) for i in np.unravel_index(rest, (inside,) * groups)]

    def find(self, grp: Ordered, head: Ordered) -> int:
        """The number of an order."""
        groups, inside = self.parts.cost.shape[0], len(self.parts.inside)
        outer = list(itertools.permutations(range(groups))).index(tuple(grp.permutation.tolist()))
        known = self.parts.inside.tolist()
        places = [known.index(row) for row in head.permutation.tolist()]
        return outer * inside**groups + int(np.ravel_multi_index(places, (inside,) * groups))


def orders(both: Pair, most: int = RANKED) -> Orders | None:
    """Every order with its Stage-2 objective; None for a layer with more than `most` heads."""
    groups, heads = both.sizes["grp"], both.per_group
    if not solvable(groups, heads, most):
        return None
    parts = solve_parts(both, torch.tensor(list(itertools.permutations(range(heads)))))
    table = parts.cost.numpy()
    found = []
    for order in itertools.permutations(range(groups)):
        total = np.zeros(())
        for g, h in enumerate(order):
            total = np.add.outer(total, table[g, h])
        found.append(total.ravel())
    return Orders(parts, np.concatenate(found))


def solve_parts(both: Pair, inside: Tensor) -> Parts:
    """Turns and matrices of every part, and what they leave, ‖A‖² included."""
    found: dict[str, Tensor] = {}
    costs: list[Tensor] = []
    if both.sizes.get("rot"):
        found["rot"], cost = _turns(both, inside)
        costs.append(cost)
    for word in ("qk", "val"):
        if both.sizes.get(word):
            found[word], cost = _matrices(both, inside, word)
            costs.append(cost)
    return Parts(inside, torch.stack(costs).sum(0), found)


def _turns(both: Pair, inside: Tensor) -> tuple[Tensor, Tensor]:
    x, y = (turning(both.family, both.sizes, t, gains=False) for t in (both.theirs, both.mine))
    every = torch.einsum("abrf,ghrf->gahbf", y.q.conj(), x.q)
    s = _picked(every, inside)
    t = torch.einsum("arf,grf->gaf", y.k[:, 0].conj(), x.k[:, 0])[:, :, None].expand_as(s)
    a, b = (_square(z)[None, :, None].expand(s.shape) for z in (y.q, y.k))
    own = (_square(x.q) + _square(x.k))[:, None, None]
    group = both.family.coordinates["rot"].group
    if isinstance(group, Rotary):
        z = fit_factor(a, b, s, t)
        return z, (factor_cost(a, b, s, t, z) + own).sum(-1)
    z = fit_unit(s.real, t.real)
    return z, (factor_cost(a, b, s.real, t.real, z) + own).sum(-1)


def _square(x: Tensor) -> Tensor:
    return x.abs().square().sum((1, 2))


def _picked(every: Tensor, inside: Tensor) -> Tensor:
    """Σ_h x[g, a, h, σ(h), …] for every σ: [grp, grp, order, …]."""
    heads = torch.arange(inside.shape[-1])
    return every[:, :, heads, inside].sum(3)


def _matrices(both: Pair, inside: Tensor, word: str) -> tuple[Tensor, Tensor]:
    x, y = (bilinear(both.family, both.sizes, t, word) for t in (both.theirs, both.mine))
    crossed = [_crossed(*sides, inside) for sides in ((x.left, y.left), (x.right, y.right))]
    shape = torch.broadcast_shapes(*(z.shape for z in crossed))
    own = [
        _gram(side)[index].expand(shape)
        for z, index in ((x, (slice(None), None, None)), (y, (None, slice(None), None)))
        for side in (z.left, z.right)
    ]
    every = [part.expand(shape).flatten(0, 2) for part in (*own, *crossed)]
    found, costs = [], []
    for chunk in torch.arange(len(every[0])).split(_BATCH):
        data = Products(*(part[chunk] for part in every))
        found.append(fit_products(data))
        norm = sum(z.diagonal(dim1=-2, dim2=-1).sum(-1) for z in (data.a_w, data.a_r))
        costs.append(mixing_cost(data, found[-1]) + norm)
    lead = shape[:3]
    return torch.cat(found).unflatten(0, lead), torch.cat(costs).unflatten(0, lead)


def _gram(x: Tensor) -> Tensor:
    return (x.mT @ x).sum(1)


def _crossed(x: Tensor, y: Tensor, inside: Tensor) -> Tensor:
    """A's rows with B's, [grp, grp, order, n, n]; one order where a group shares a factor."""
    every = torch.einsum("ghrm,abrn->gahbmn", x, y)
    return every[:, :, :, 0] if x.shape[1] == 1 else _picked(every, inside)


def elements(
    both: Pair, found: Orders, number: int
) -> tuple[dict[str, Element], dict[str, Element]]:
    """An order as elements: those of Stage 1, and those of Stage 2 after them."""
    grp, places = found.at(number)
    groups = torch.arange(len(grp))
    one = torch.ones(len(grp), dtype=torch.float64)
    inside = found.parts.inside[places]
    outer: dict[str, Element] = {"grp": Ordered(torch.tensor(grp), one)}
    if "head" in both.family.coordinates:
        outer["head"] = Ordered(inside, torch.ones(inside.shape, dtype=torch.float64))
    deep: dict[str, Element] = {}
    for word, values in found.parts.elements.items():
        here = values[groups, torch.tensor(grp), torch.tensor(places)]
        group = both.family.coordinates[word].group
        if word != "rot":
            deep[word] = Mixed(here)
        elif isinstance(group, Rotary):
            deep[word] = Turned(here, group.pairs)
        else:
            still = torch.arange(here.shape[-1]).expand(here.shape).contiguous()
            deep[word] = Ordered(still, here)
    return outer, deep


Loss = Callable[[Pair], float]


def ranked(both: Pair, chosen: int, found: Orders, before: float, loss: Loss | None) -> OrderRank:
    """Where one order stands; `before` is the objective as stored, `loss` that of the middle."""
    best = float(found.cost.min())
    mine = float(found.cost[chosen])
    rank = OrderRank(
        orders=len(found.cost),
        rank=_rank(found.cost, mine, 1e-9 * before),
        excess=_excess(mine, best, before),
        midpoint_rank=None,
        midpoint_excess=None,
        midpoint_loss=None,
    )
    if loss is None or len(found.cost) > TRIED:
        return rank
    losses = np.array([loss(pair) for pair in tried(both, found)])
    naive = loss(both)
    own = float(losses[chosen])
    return replace(
        rank,
        midpoint_rank=_rank(losses, own, 1e-9),
        midpoint_excess=_excess(own, float(losses.min()), naive),
        midpoint_loss=(own, float(losses.min()), naive),
    )


def _rank(values: np.ndarray, mine: float, tie: float) -> int:
    return 1 + int((values < mine - tie).sum())


def _excess(mine: float, best: float, naive: float) -> float | None:
    """L̂ = 100 (L − L_best) / (L_naive − L_best) (Tran et al. 2026)."""
    return 100 * (mine - best) / (naive - best) if naive > best else None


def tried(both: Pair, found: Orders) -> Iterator[Pair]:
    """B after each order and its Stage 2."""
    for number in range(len(found.cost)):
        outer, deep = elements(both, found, number)
        yield both.after(outer).after(deep)
