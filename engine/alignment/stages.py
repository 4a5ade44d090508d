"""What is solved inside a layer, stage by stage: rows of a table by the families' words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engine.action import correlate
from engine.alignment.gauges import STEPS, fit_factor, fit_products, fit_unit, procrustes, products
from engine.alignment.heads import (
    bilinear,
    bilinear_cost,
    gather,
    match_heads,
    published,
    rotary_cost,
    turning,
)
from engine.assignment import margins, matching, solve
from engine.axes import Mark, Sizes, legs
from engine.elements import Element, Mixed, Ordered, Turned
from engine.family import Family
from engine.folding import attention, folded
from engine.groups import Monomial, Rotary

Tensors = Mapping[str, Tensor]
Rows = Mapping[Mark, Tensor]
"""Gate, up and down (or rows in and out) of neurons, [rows, n] each, by mark."""


@dataclass(frozen=True)
class Solved:
    """What one stage found in one layer."""

    elements: Mapping[str, Element]  # by coordinate
    margin: float | None = None  # relative; None for a continuous element


def solve_experts(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """Experts by `expert_score`."""
    score = expert_score(family, sizes, a, b).numpy()
    order = solve(score)[0]
    ones = torch.ones(len(order), dtype=torch.float64)
    margin = float(margins(score, order).min())
    return Solved({"exp": Ordered(torch.from_numpy(order), ones)}, margin)


def expert_score(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Float[Tensor, "n n"]:
    """Minus the relative ‖r_i − r_j‖² of rows of the router, a vector common to all left out."""
    x, y = (gather(family, sizes, router(family, tensors), "exp")[Mark.WRITE] for tensors in (a, b))
    x, y = (z - z.mean(-1, keepdim=True) for z in (x, y))
    return -relative(distances(x.mT @ y, x.square().sum(-2), y.square().sum(-2)))


def router(family: Family, tensors: Tensors) -> Tensors:
    """The tensors that are not inside one expert."""
    return {n: x for n, x in tensors.items() if "exp" not in family.row(n).places}


def solve_neurons(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors, *, word: str = "ffn"
) -> Solved:
    """FFN neurons, expert by expert where experts contain them."""
    if not family.coordinates[word].over:
        found, margin = _neurons(family, sizes, a, b, word)
        return Solved({word: found}, margin)
    every = [
        _neurons(family, sizes, one_expert(family, a, e), one_expert(family, b, e), word)
        for e in range(sizes["exp"])
    ]
    order = torch.stack([found.permutation for found, _ in every])
    scale = torch.stack([found.scale for found, _ in every])
    return Solved({word: Ordered(order, scale)}, min(margin for _, margin in every))


def one_expert(family: Family, tensors: Tensors, expert: int) -> Tensors:
    """The tensors that are inside one expert."""
    return {n: x for n, x in tensors.items() if family.row(n).places.get("exp") == expert}


def _neurons(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors, word: str
) -> tuple[Ordered, float]:
    group = family.coordinates[word].group
    assert isinstance(group, Monomial)
    x, y = (gather(family, sizes, tensors, word) for tensors in (a, b))
    found = pair_neurons(group, x, y)
    return Ordered(torch.from_numpy(found.columns), found.factor), found.margin


@dataclass(frozen=True)
class Pairs:
    """Neurons of A and B that belong together."""

    rows: np.ndarray  # int64 [m], of A, ascending
    columns: np.ndarray  # int64 [m], of B
    factor: Tensor  # float64 [m], of B's
    margin: float  # the smallest, relative


def pair_neurons(group: Monomial, x: Mapping[Mark, Tensor], y: Mapping[Mark, Tensor]) -> Pairs:
    """Neurons by what no sign or scale of the group can change, then the factor of each.

    Gated, d(i, j) = ‖gate_i − gate_j‖² + λ ‖up_i ⊗ down_i − up_j ⊗ down_j‖², λ balancing the two;
    ReLU without a gate has the second term alone; where the group has no factors, rows in and rows
    out are compared as they are. The factor multiplies up and divides down (`fit_factor`, real).
    Where A and B have unequal numbers (rows as columns, [_, n] and [_, m]), the fewer are matched.
    """
    inner, own = _products(x, y)
    score = _score(group, inner, own).numpy()
    rows, columns = matching(score)
    factor = torch.ones(len(rows), dtype=torch.float64)
    if group.scales:
        factor = fit_factor(
            own[1][Mark.WRITE][columns], own[1][Mark.READ][columns],
            inner[Mark.WRITE][rows, columns], inner[Mark.READ][rows, columns],
        )  # fmt: skip
    margin = float(margins(score[rows], columns).min())
    return Pairs(rows, columns, factor if group.signs else factor.abs(), margin)


def neuron_score(group: Monomial, x: Rows, y: Rows) -> Float[Tensor, "n m"]:
    """Minus the relative d(i, j) of `pair_neurons`."""
    return _score(group, *_products(x, y))


def _products(x: Rows, y: Rows) -> tuple[Rows, tuple[Rows, ...]]:
    own = ({mark: rows.square().sum(-2) for mark, rows in z.items()} for z in (x, y))
    return {mark: x[mark].mT @ y[mark] for mark in x}, tuple(own)


def _score(group: Monomial, inner: Rows, own: tuple[Rows, ...]) -> Tensor:
    direct = [m for m in inner if m is Mark.RELABEL or not group.scales]
    terms = [distances(inner[m], own[0][m], own[1][m]) for m in direct]
    if group.scales:
        whole = [z[Mark.WRITE] * z[Mark.READ] for z in own]
        terms.append(distances(inner[Mark.WRITE] * inner[Mark.READ], *whole))
    return -torch.stack([relative(term) for term in terms]).sum(0)


def distances(inner: Tensor, own_a: Tensor, own_b: Tensor) -> Float[Tensor, "n m"]:
    """‖a − b‖² of all a with all b from ⟨a, b⟩, ‖a‖² and ‖b‖²."""
    return own_a[:, None] + own_b - 2 * inner


def relative(distance: Tensor) -> Tensor:
    """In units of its mean; parts that are dead, all of whose distances are 0, keep them."""
    return distance / distance.abs().mean().clamp(min=1e-300)


def head_terms(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors, *, own: bool = True
) -> tuple[Tensor, Tensor]:
    """Queries with keys and values with outputs: two terms, [grp, head, grp, head] each.

    `own`: blind directions folded away, rotated channels by `rotary_cost`, others by ‖ΔM‖². Not
    `own`: as published, ‖ΔM̄‖² and ‖ΔN‖² of the weights as they are.
    """
    x, y = (folded(family, sizes, z) if own else attention(family, z) for z in (a, b))
    kind = next(iter(x.values())).dtype
    value_output = bilinear_cost(*(bilinear(family, sizes, z, "val", dtype=kind) for z in (x, y)))
    if not own:
        return bilinear_cost(
            *(published(family, sizes, z, dtype=kind) for z in (x, y))
        ), value_output
    parts = []
    if sizes.get("rot"):
        parts.append(rotary_cost(*(turning(family, sizes, z, dtype=kind) for z in (x, y))))
    if sizes.get("qk"):
        parts.append(bilinear_cost(*(bilinear(family, sizes, z, "qk", dtype=kind) for z in (x, y))))
    return torch.stack(parts).sum(0), value_output


def head_cost(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors
) -> Float[Tensor, "grp head grp2 head2"]:
    """The sum of both terms of the cost, each relative to its mean."""
    return torch.stack([relative(cost) for cost in head_terms(family, sizes, a, b)]).sum(0)


def solve_heads(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """Groups and heads by `head_cost`."""
    return heads_by(head_cost(family, sizes, a, b))


def heads_by(cost: Float[Tensor, "grp head grp2 head2"]) -> Solved:
    """Groups and heads by a cost."""
    found = match_heads(cost)
    return Solved({"grp": found.grp, "head": found.head}, found.margin)


def solve_rotary(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors, *, unit: bool = False
) -> Solved:
    """One complex number (`unit`: of modulus 1), or under q/k norm one sign, per frequency.

    The query heads of a group share it: what falls is their sum, and a single one may lose.
    """
    x, y = (turning(family, sizes, tensors, gains=False) for tensors in (a, b))
    s, t = _inner(y.q, x.q), _inner(y.k, x.k)
    group = family.coordinates["rot"].group
    if isinstance(group, Rotary):
        own = _inner(y.q, y.q).real, _inner(y.k, y.k).real
        return Solved(
            {"rot": Turned(fit_unit(s, t) if unit else fit_factor(*own, s, t), group.pairs)}
        )
    sign = fit_unit(s.real, t.real)
    return Solved({"rot": Ordered(_still(sign), sign)})


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """⟨x, y⟩ = Σ x̄ y over heads and rows, per group and frequency."""
    return (x.conj() * y).sum((1, 2))


def solve_gains(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """The factor that a pair of query and key gains exchanges: `fit_factor`, real."""
    over = family.coordinates["gain"].over
    x, y = (gather(family, sizes, tensors, "gain", *over) for tensors in (a, b))
    inner = {m: (x[m] * y[m]).sum(-2) for m in x}
    own = {m: y[m].square().sum(-2) for m in y}
    factor = fit_factor(own[Mark.WRITE], own[Mark.READ], inner[Mark.WRITE], inner[Mark.READ])
    return Solved({"gain": Ordered(_still(factor), factor)})


def _still(like: Tensor) -> Tensor:
    return torch.arange(like.shape[-1]).expand(like.shape).contiguous()


def solve_mixing(
    family: Family,
    sizes: Sizes,
    a: Tensors,
    b: Tensors,
    *,
    word: str,
    unit: bool = False,
    steps: int = STEPS,
) -> Solved:
    """One invertible matrix per group: between V and O, or between unrotated Q and K.

    `unit` allows orthogonal ones only. What falls is the sum over the query heads of the group.
    """
    x, y = (bilinear(family, sizes, tensors, word) for tensors in (a, b))
    flat = products(*(t.flatten(1, 2) for t in (x.left, y.left, x.right, y.right)))
    return Solved({word: Mixed(procrustes(flat) if unit else fit_products(flat, steps=steps))})


def solve_linear_sum(family: Family, sizes: Sizes, a: Tensors, b: Tensors, *, word: str) -> Solved:
    """The element that maximises ⟨g, C⟩ over all signed legs of a coordinate."""
    parts = [correlate(family, sizes, n, a[n].double(), b[n].double(), word) for n in a if n in b
             and any(leg.name == word for leg in legs(family.row(n).axes))]  # fmt: skip
    total = torch.stack([part for part in parts if part is not None]).sum(0)
    return Solved({word: family.coordinates[word].group.project(total)})


Solver = Callable[[Family, Sizes, Tensors, Tensors], Solved]
STAGES: tuple[tuple[tuple[str, ...], Solver], ...] = (
    (("exp",), solve_experts),
    (("ffn",), solve_neurons),
    (("sffn",), partial(solve_neurons, word="sffn")),
    (("grp", "head"), solve_heads),
    (("rot",), solve_rotary),
    (("qk",), partial(solve_mixing, word="qk")),
    (("val",), partial(solve_mixing, word="val")),
    (("gain",), solve_gains),
    (("pool",), partial(solve_linear_sum, word="pool")),
)
"""The stages, in order; each sees B after the stages before it."""
UNIT: Mapping[str, Solver] = {
    "rot": partial(solve_rotary, unit=True),
    "qk": partial(solve_mixing, word="qk", unit=True),
    "val": partial(solve_mixing, word="val", unit=True),
}
"""The published variant of Stage 2 without refinement: turns and orthogonal matrices only."""
