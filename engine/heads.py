"""Which head is which, by a cost that no change of basis inside a head can alter."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engine.action import blocks
from engine.assignment import solve
from engine.axes import Mark, Sizes
from engine.elements import Ordered
from engine.family import Family

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Attention:
    """The four factors of one layer's heads, in float64; a bias is one more row of r."""

    q: Float[Tensor, "grp head r rot"]
    k: Float[Tensor, "grp 1 s rot"]
    v: Float[Tensor, "grp 1 t val"]
    o: Float[Tensor, "grp head u val"]


def gather(
    family: Family, sizes: Sizes, tensors: Tensors, coordinate: str, *lead: str
) -> dict[Mark, Float[Tensor, "... m n"]]:
    """All rows of some tensors that carry a coordinate, by mark, in float64."""
    found: dict[Mark, list[Tensor]] = {}
    for name, x in tensors.items():
        for mark, block in blocks(family, sizes, name, x.double(), coordinate, lead):
            found.setdefault(mark, []).append(block)
    return {mark: torch.cat(parts, dim=-2) for mark, parts in found.items()}


def attention(family: Family, sizes: Sizes, tensors: Tensors) -> Attention:
    """The factors of one layer's attention, read off the table."""
    rot = gather(family, sizes, tensors, "rot", "grp", "head")
    val = gather(family, sizes, tensors, "val", "grp", "head")
    return Attention(rot[Mark.WRITE], rot[Mark.READ], val[Mark.WRITE], val[Mark.READ])


def paired(x: Float[Tensor, "*lead n"]) -> Tensor:
    """Rotary channels as complex numbers: x_f + i x_{f+n/2}, [*lead, n/2]."""
    real, imaginary = x.chunk(2, dim=-1)
    return torch.complex(real, imaginary)


def query_key_cost(a: Attention, b: Attention) -> Float[Tensor, "grp head grp2 head2"]:
    """Σ_f ‖q_f^A k̄_f^A − q_f^B k̄_f^B‖², without ever forming a d × d matrix.

    = Σ_f ‖q^A‖²‖k^A‖² + ‖q^B‖²‖k^B‖² − 2 Re(⟨q^A, q^B⟩ · conj ⟨k^A, k^B⟩); zero exactly for heads
    that are the same up to H(d_h).
    """
    qa, ka, qb, kb = (paired(x) for x in (a.q, a.k, b.q, b.k))
    q = torch.einsum("ghrf,abrf->ghabf", qa.conj(), qb)
    k = torch.einsum("grf,arf->gaf", ka[:, 0].conj(), kb[:, 0])
    cross = torch.einsum("ghabf,gaf->ghab", q, k.conj()).real
    own_a = torch.einsum("ghf,gf->gh", _norms(qa), _norms(ka)[:, 0])
    own_b = torch.einsum("ghf,gf->gh", _norms(qb), _norms(kb)[:, 0])
    return own_a[:, :, None, None] + own_b - 2 * cross


def value_output_cost(a: Attention, b: Attention) -> Float[Tensor, "grp head grp2 head2"]:
    """‖W_o^A W_v^A − W_o^B W_v^B‖² through ⟨O_A V_A, O_B V_B⟩ = Σ (O_Aᵀ O_B) ∘ (V_Aᵀ V_B)."""
    v = torch.einsum("grm,arn->gamn", a.v[:, 0], b.v[:, 0])
    cross = torch.stack([
        torch.einsum("hum,abun,amn->hab", a.o[g], b.o, v[g]) for g in range(len(a.o))
    ])  # fmt: skip
    return _output_norms(a)[:, :, None, None] + _output_norms(b) - 2 * cross


def _output_norms(x: Attention) -> Float[Tensor, "grp head"]:
    """‖W_o W_v‖² of every head = Σ (OᵀO) ∘ (VᵀV)."""
    return ((x.o.mT @ x.o) * (x.v.mT @ x.v)).sum((-2, -1))


def _norms(x: Tensor) -> Tensor:
    return (x.real.square() + x.imag.square()).sum(-2)


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
