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
    family: Family,
    sizes: Sizes,
    tensors: Tensors,
    coordinate: str,
    *lead: str,
    dtype: torch.dtype = torch.float64,
) -> dict[Mark, Float[Tensor, "... m n"]]:
    """All rows of some tensors that carry a coordinate, by mark, in float64."""
    found: dict[Mark, list[Tensor]] = {}
    for name, x in tensors.items():
        if any(leg.name == coordinate for leg in legs(family.row(name).axes)):
            for mark, block in blocks(family, sizes, name, x.to(dtype), coordinate, lead):
                found.setdefault(mark, []).append(block)
    return {m: parts[0] if len(parts) == 1 else torch.cat(parts, -2) for m, parts in found.items()}


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


def turning(
    family: Family,
    sizes: Sizes,
    tensors: Tensors,
    *,
    gains: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Turning:
    """The rotated part of a layer's attention, biases as further rows.

    Where queries and keys are normalised, what one norm spans is brought to unit length first and
    the gains are multiplied in (`gains`): otherwise free scales would enter a cost.
    """
    found = _pairs(family, sizes, tensors, dtype)
    if gains and "gain" in family.coordinates:
        found = _normalised(family, sizes, tensors, found)
    return Turning(*(_complex(family, found[mark]) for mark in (Mark.WRITE, Mark.READ)))


def _pairs(
    family: Family, sizes: Sizes, tensors: Tensors, dtype: torch.dtype
) -> dict[Mark, Tensor]:
    """[grp, head, 2, r, f] where halves have an axis of their own, else [grp, head, r, n]."""
    if isinstance(family.coordinates["rot"].group, Rotary):
        return gather(family, sizes, tensors, "rot", "grp", "head", dtype=dtype)
    return gather(family, sizes, tensors, "rot", "grp", "head", "half", dtype=dtype)


def _normalised(
    family: Family, sizes: Sizes, tensors: Tensors, found: Gathered
) -> dict[Mark, Tensor]:
    gain = gather(family, sizes, tensors, "gain", "grp", "head", "half")
    spans = (0, 1, 2, 3, 4) if family.coordinates["gain"].over else (-3, -2, -1)
    return {
        mark: x / x.square().sum(spans, keepdim=True).sqrt().clamp(min=1e-300) * gain[mark]
        for mark, x in found.items()
    }


def _complex(family: Family, x: Tensor) -> Tensor:
    group = family.coordinates["rot"].group
    if isinstance(group, Rotary):
        return paired(x, group.pairs)
    return torch.complex(x[:, :, 0].contiguous(), x[:, :, 1].contiguous())


def bilinear(
    family: Family,
    sizes: Sizes,
    tensors: Tensors,
    coordinate: str,
    *,
    dtype: torch.dtype = torch.float64,
) -> Bilinear:
    """The factors joined by a coordinate that any matrix may mix (`val`, or unrotated `qk`).

    Biases of keys and values are left out: the softmax, or the bias of the output projection, makes
    them invisible, and they would still change a cost.
    """
    visible = {
        name: x for name, x in tensors.items()
        if coordinate == "qk" or any(leg.name == "res" for leg in legs(family.row(name).axes))
    }  # fmt: skip
    found = gather(family, sizes, visible, coordinate, "grp", "head", dtype=dtype)
    right = found[Mark.READ]
    if coordinate == "qk":
        matrices = {n: x for n, x in visible.items() if x.ndim > 1}
        right = gather(family, sizes, matrices, coordinate, "grp", "head", dtype=dtype)[Mark.READ]
    return Bilinear(found[Mark.WRITE], right)


def published(family: Family, sizes: Sizes, tensors: Tensors, **how: torch.dtype) -> Bilinear:
    """The factors of M̄ = M − (M 1) 1ᵀ / d with M = W_qᵀ W_k, as published (Tran et al. 2026).

    Rows of M̄ have mean 0: the keys are centred over the residual coordinates. Valid for LayerNorm
    with its gain folded in; under RoPE it takes different heads for equal ones. No biases.
    """
    matrices = {n: x for n, x in tensors.items() if x.ndim > 1}
    parts: dict[Mark, list[Tensor]] = {}
    for word in ("rot", "qk"):
        if sizes.get(word):
            lead = ("grp", "head", "half") if "half" in family.coordinates else ("grp", "head")
            for mark, x in gather(family, sizes, matrices, word, *lead, **how).items():
                flat = x if x.ndim == 4 else x.movedim(2, -2).flatten(-2)
                parts.setdefault(mark, []).append(flat)
    q, k = (torch.cat(parts[mark], -1) for mark in (Mark.WRITE, Mark.READ))
    return Bilinear(q, k - k.mean(-2, keepdim=True))


def rotary_cost(a: Turning, b: Turning) -> Float[Tensor, "grp head grp2 head2"]:
    """Σ_f ‖q_f^A k̄_f^A − q_f^B k̄_f^B‖², without ever forming a d × d matrix.

    = Σ_f ‖q^A‖²‖k^A‖² + ‖q^B‖²‖k^B‖² − 2 Re(⟨q^A, q^B⟩ · conj ⟨k^A, k^B⟩); zero exactly for heads
    that are the same up to H(d_h).
    """
    frequencies = a.q.shape[-1]
    parts = [_rotary_part(a, b, slice(f, f + _CHUNK)) for f in range(0, frequencies, _CHUNK)]
    return torch.stack(parts).sum(0)


_CHUNK = 4
"""Frequencies that are held in double precision at once."""


def _rotary_part(a: Turning, b: Turning, f: slice) -> Tensor:
    (q_a, k_a), (q_b, k_b) = ([_first(part, f) for part in (z.q, z.k)] for z in (a, b))
    q, k = q_a.conj() @ q_b.mT, k_a.conj() @ k_b.mT
    groups, heads, others = len(a.k), a.q.shape[1], len(b.k)
    wide = q.unflatten(2, (others, -1)).unflatten(1, (groups, heads))
    cross = (wide * k.conj()[:, :, None, :, None]).real.sum(0)
    own_a, own_b = (
        (_norms(x).unflatten(1, (y.shape[1], -1)) * _norms(y)[..., None]).sum(0)
        for x, y in ((q_a, k_a), (q_b, k_b))
    )
    return own_a[:, :, None, None] + own_b - 2 * cross


def _first(x: Tensor, f: slice) -> Complex[Tensor, "f heads r"]:
    """Some frequencies, frequency first, heads in one row."""
    return x[..., f].flatten(0, 1).movedim(-1, 0).to(torch.complex128)


def _norms(x: Tensor) -> Tensor:
    return (x.real.square() + x.imag.square()).sum(-1)


def bilinear_cost(a: Bilinear, b: Bilinear) -> Float[Tensor, "grp head grp2 head2"]:
    """‖R_A L_Aᵀ − R_B L_Bᵀ‖² through ⟨R_A L_Aᵀ, R_B L_Bᵀ⟩ = Σ (R_Aᵀ R_B) ∘ (L_Aᵀ L_B).

    One of the two factors may be shared by the query heads of a group. The Gram matrices have the
    precision of the factors, float32 or float64, the sums over them float64.
    """
    cross = torch.cat([_crossed(a, b, some) for some in torch.arange(len(b.left)).split(_WIDE)], 2)
    return _power(a)[:, :, None, None] + _power(b) - 2 * cross


_WIDE = 8
"""Groups of B that are multiplied at once."""


def _crossed(a: Bilinear, b: Bilinear, some: Tensor) -> Float[Tensor, "grp head grp2 head2"]:
    """⟨R_A L_Aᵀ, R_B L_Bᵀ⟩ of all groups of A with some of B; a shared factor has one head."""
    right, left = (x[some[0] : some[-1] + 1] for x in (b.right, b.left))
    return torch.stack([
        (_gram(x, left) * _gram(y, right)).sum((-2, -1), dtype=torch.float64)
        for x, y in zip(a.left, a.right, strict=True)
    ])  # fmt: skip


def _group(x: Bilinear, group: int) -> Bilinear:
    here = slice(group, group + 1)
    return Bilinear(x.left[here].double(), x.right[here].double())


def _gram(
    x: Float[Tensor, "head r m"], y: Float[Tensor, "grp2 head2 r n"]
) -> Float[Tensor, "head grp2 head2 m n"]:
    """One product of all columns."""
    heads, (groups, others) = len(x), y.shape[:2]
    flat = x.movedim(1, 0).flatten(1).mT @ y.movedim(2, 0).flatten(1)
    return flat.reshape(heads, x.shape[-1], groups, others, -1).movedim(1, 3)


def _power(x: Bilinear) -> Float[Tensor, "grp head"]:
    """‖R Lᵀ‖² of every head = Σ (RᵀR) ∘ (LᵀL)."""
    each = (_group(x, g) for g in range(len(x.left)))
    return torch.cat([
        ((y.right.mT @ y.right) * (y.left.mT @ y.left)).sum((-2, -1)) for y in each
    ])  # fmt: skip


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
        lead(table, outer, order.numpy()),
    )


def lead(table: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> float:
    """The smallest relative gap, over heads, between the chosen partner and the best other one."""
    groups, heads = table.shape[:2]
    if groups * heads == 1:
        return float("inf")
    flat = table.reshape(groups * heads, -1)
    chosen = (outer[:, None] * heads + inner).ravel()
    rows = np.arange(len(flat))
    others = flat.copy()
    others[rows, chosen] = np.inf
    return float((others.min(1) - flat[rows, chosen]).min() / max(flat.mean(), 1e-300))
