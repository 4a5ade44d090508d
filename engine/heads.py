"""Which head is which, by a cost that no change of basis inside a head can alter."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from engine.action import blocks
from engine.assignment import solve
from engine.axes import Mark, Sizes, legs
from engine.elements import Ordered, paired
from engine.family import Family
from engine.groups import Rotary

Tensors = Mapping[str, Tensor]
Gathered = Mapping[Mark, Tensor]


def gather(
    family: Family, sizes: Sizes, tensors: Tensors, coordinate: str, *lead: str
) -> dict[Mark, Float[Tensor, "... m n"]]:
    """All rows of some tensors that carry a coordinate, by mark, in float64."""
    found: dict[Mark, list[Tensor]] = {}
    for name, x in tensors.items():
        for mark, block in blocks(family, sizes, name, x.double(), coordinate, lead):
            found.setdefault(mark, []).append(block)
    return {mark: torch.cat(parts, dim=-2) for mark, parts in found.items()}


@dataclass(frozen=True)
class Bilinear:
    """Two factors whose product over the last axis is all that matters, rows as stored."""

    left: Float[Tensor, "grp _ r n"]  # one head where a group shares it
    right: Float[Tensor, "grp _ s n"]


@dataclass(frozen=True)
class Turning:
    """Query and key channels of a head as complex numbers, one a rotary frequency."""

    q: Complex[Tensor, "grp head r f"]
    k: Complex[Tensor, "grp 1 s f"]


def turning(family: Family, sizes: Sizes, tensors: Tensors, *, gains: bool = True) -> Turning:
    """The rotated part of a layer's attention, biases as further rows.

    Where queries and keys are normalised, each head is brought to unit length first and the gains
    are multiplied in (`gains`): otherwise free scales would enter a cost.
    """
    found = _pairs(family, sizes, tensors)
    if gains and "gain" in family.coordinates:
        found = _normalised(family, sizes, tensors, found)
    return Turning(*(_complex(family, found[mark]) for mark in (Mark.WRITE, Mark.READ)))


def _pairs(family: Family, sizes: Sizes, tensors: Tensors) -> dict[Mark, Tensor]:
    """[grp, head, 2, r, f] where halves have an axis of their own, else [grp, head, r, n]."""
    if isinstance(family.coordinates["rot"].group, Rotary):
        return gather(family, sizes, tensors, "rot", "grp", "head")
    return gather(family, sizes, tensors, "rot", "grp", "head", "half")


def _normalised(
    family: Family, sizes: Sizes, tensors: Tensors, found: Gathered
) -> dict[Mark, Tensor]:
    gain = gather(family, sizes, tensors, "gain", "grp", "head", "half")
    each = not family.coordinates["gain"].over  # one norm a head, not one for all of them
    units = {
        mark: x / x.square().sum((-3, -2, -1), keepdim=True).sqrt().clamp(min=1e-300) if each else x
        for mark, x in found.items()
    }
    return {mark: x * gain[mark] for mark, x in units.items()}


def _complex(family: Family, x: Tensor) -> Tensor:
    group = family.coordinates["rot"].group
    if isinstance(group, Rotary):
        return paired(x, group.pairs)
    return torch.complex(x[:, :, 0].contiguous(), x[:, :, 1].contiguous())


def bilinear(family: Family, sizes: Sizes, tensors: Tensors, coordinate: str) -> Bilinear:
    """The factors joined by a coordinate that any matrix may mix (`val`, or unrotated `qk`).

    Biases of keys and values are left out: the softmax, or the bias of the output projection, makes
    them invisible, and they would still change a cost.
    """
    visible = {
        name: x for name, x in tensors.items()
        if coordinate == "qk" or any(leg.name == "res" for leg in legs(family.row(name).axes))
    }  # fmt: skip
    found = gather(family, sizes, visible, coordinate, "grp", "head")
    right = found[Mark.READ]
    if coordinate == "qk":
        matrices = {n: x for n, x in visible.items() if x.ndim > 1}
        right = gather(family, sizes, matrices, coordinate, "grp", "head")[Mark.READ]
    return Bilinear(found[Mark.WRITE], right)


def rotary_cost(a: Turning, b: Turning) -> Float[Tensor, "grp head grp2 head2"]:
    """Σ_f ‖q_f^A k̄_f^A − q_f^B k̄_f^B‖², without ever forming a d × d matrix.

    = Σ_f ‖q^A‖²‖k^A‖² + ‖q^B‖²‖k^B‖² − 2 Re(⟨q^A, q^B⟩ · conj ⟨k^A, k^B⟩); zero exactly for heads
    that are the same up to H(d_h).
    """
    q = torch.einsum("ghrf,abrf->ghabf", a.q.conj(), b.q)
    k = torch.einsum("grf,arf->gaf", a.k[:, 0].conj(), b.k[:, 0])
    cross = torch.einsum("ghabf,gaf->ghab", q, k.conj()).real
    own_a = torch.einsum("ghf,gf->gh", _norms(a.q), _norms(a.k)[:, 0])
    own_b = torch.einsum("ghf,gf->gh", _norms(b.q), _norms(b.k)[:, 0])
    return own_a[:, :, None, None] + own_b - 2 * cross


def _norms(x: Tensor) -> Tensor:
    return (x.real.square() + x.imag.square()).sum(-2)


def bilinear_cost(a: Bilinear, b: Bilinear) -> Float[Tensor, "grp head grp2 head2"]:
    """‖R_A L_Aᵀ − R_B L_Bᵀ‖² through ⟨R_A L_Aᵀ, R_B L_Bᵀ⟩ = Σ (R_Aᵀ R_B) ∘ (L_Aᵀ L_B).

    One of the two factors may be shared by the query heads of a group.
    """
    cross = torch.stack([
        (_gram(a.left[g], b.left) * _gram(a.right[g], b.right)).sum((-2, -1))
        for g in range(len(a.left))
    ])  # fmt: skip
    return _power(a)[:, :, None, None] + _power(b) - 2 * cross


def _gram(x: Tensor, y: Tensor) -> Float[Tensor, "_ grp2 _ m n"]:
    """L_Aᵀ L_B for one group of A against all of B; a shared factor has one head."""
    return torch.einsum("hrm,abrn->habmn", x, y)


def _power(x: Bilinear) -> Float[Tensor, "grp head"]:
    """‖R Lᵀ‖² of every head = Σ (RᵀR) ∘ (LᵀL)."""
    return ((x.right.mT @ x.right) * (x.left.mT @ x.left)).sum((-2, -1))


@dataclass(frozen=True)
class HeadMatch:
    """Groups and the query heads inside them: elements of S_{q/kv} ≀ S_kv, and how sure."""

    grp: Ordered
    head: Ordered
    margin: float  # smallest gap to another head's cost over the mean; < 0 where one is cheaper


def match_heads(cost: Float[Tensor, "grp head grp2 head2"]) -> HeadMatch:
    """The cheapest order that keeps groups together: kv² small assignments, one over groups."""
    groups, heads = cost.shape[:2]
    inner = np.empty((groups, groups, heads), np.int64)
    total = np.empty((groups, groups))
    table = cost.cpu().numpy()
    for g in range(groups):
        for h in range(groups):
            inner[g, h] = solve(-table[g, :, h])[0]
            total[g, h] = table[g, np.arange(heads), h, inner[g, h]].sum()
    outer = solve(-total)[0]
    order = torch.from_numpy(inner[np.arange(groups), outer])
    return HeadMatch(
        Ordered(torch.from_numpy(outer), torch.ones(groups, dtype=torch.float64)),
        Ordered(order, torch.ones(groups, heads, dtype=torch.float64)),
        _margin(table, outer, order.numpy()),
    )


def _margin(table: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> float:
    """The smallest gap, over heads, between the chosen partner and the best other head."""
    groups, heads = table.shape[:2]
    if groups * heads == 1:
        return float("inf")
    flat = table.reshape(groups * heads, -1)
    chosen = (outer[:, None] * heads + inner).ravel()
    rows = np.arange(len(flat))
    others = flat.copy()
    others[rows, chosen] = np.inf
    return float((others.min(1) - flat[rows, chosen]).min() / max(flat.mean(), 1e-300))
