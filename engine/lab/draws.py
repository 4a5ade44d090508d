"""Elements for the lab, with a dial: severity 0 is the identity, 1 the whole draw.

Draws of one seed are nested: what a lower severity moves, a higher one moves too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from engine.elements import Element, Mixed, Ordered, Shape, Turned
from engine.groups import (
    DIAGONAL,
    LINEAR,
    ORTHOGONAL,
    PERMUTATION,
    SIGNS,
    Group,
    Linear,
    Monomial,
    Rotary,
)

CUT = Monomial("one factor, down to 0", orders=False, scales=True)
MEAN = Linear("means of two")
GROUPS: Mapping[str, Group] = {
    "order": PERMUTATION,
    "signs": SIGNS,
    "sign": Monomial("{±1}", orders=False, common=True),
    "factors": DIAGONAL,
    "positive": Monomial("(R>0)ⁿ", orders=False, scales=True),
    "linear": LINEAR,
    "rotations": ORTHOGONAL,
    "cut": CUT,
    "mean": MEAN,
}
"""What a preset calls the elements that it draws."""
TURN = (math.pi / 3, 2 * math.pi / 3)
"""Angles of random rotations: far from none and from a half turn."""


@dataclass(frozen=True)
class Dial:
    """How elements are drawn."""

    how: str = "random"
    severity: float = 1.0  # in [0, 1]
    angle: float = 90.0  # degrees
    first: tuple[int, ...] = ()  # which coordinates take part first; empty: at random


def ways(group: Group) -> tuple[str, ...]:
    """How elements of a group can be drawn, the usual way first."""
    match group:
        case Rotary():
            return "random", "angle", "frequency"
        case Linear():
            return ("rotation" if group.orthogonal else "matrix"), "angle"
        case Monomial():
            more = {
                "transposition": group.orders,
                "sign": group.signs,
                "factor": group.scales,
            }
            return "random", *(way for way, possible in more.items() if possible)
    return ("random",)


def draw(group: Group, size: int, batch: Shape, dial: Dial, generator: Generator) -> Element:
    """An element for every copy of a coordinate."""
    if dial.severity == 0:  # exactly, whatever rounding would leave of it
        return group.identity(size, batch)
    match group:
        case Linear() if dial.how == "mean":
            return _mean(size, batch, dial, generator)
        case Linear():
            return _mixed(group, size, batch, dial, generator)
        case Rotary():
            return _turned(group, size, batch, dial, generator)
        case Monomial():
            return _ordered(group, size, batch, dial, generator)
    return _part(group.sample(size, batch, generator), dial.severity)


def count(severity: float, size: int, least: int = 1) -> int:
    """How many of `size` take part: none at 0, all at 1, otherwise `least` or more."""
    return 0 if severity == 0 else min(max(round(severity * size), least), size)


def _uniform(shape: Shape, low: float, high: float, generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _ordered(group: Monomial, size: int, batch: Shape, dial: Dial, generator: Generator) -> Ordered:
    copies = math.prod(batch)
    ranks = torch.stack([_ranking(size, dial, generator) for _ in range(copies)])
    keys = torch.rand(copies, size, generator=generator)
    flips = torch.rand(copies, size, generator=generator) < 0.5
    logs = _uniform((copies, size), -math.log(2), math.log(2), generator)
    found = group.identity(size, (copies,))
    order, scale = found.permutation.clone(), found.scale.clone()
    rows = torch.arange(copies)[:, None]
    if dial.how == "random":
        chosen = ranks[:, : count(dial.severity, size, 2 if group.orders else 1)]
        chosen = chosen.gather(1, keys.gather(1, chosen).argsort(-1))
        taking = torch.zeros(copies, size, dtype=torch.bool).scatter(1, chosen, value=True)
        if group.orders:
            order[rows, chosen] = chosen.roll(1, -1)
        if group.common:  # one sign is all or nothing: beside an order it is the last to change
            taking = torch.full_like(taking, dial.severity == 1 or not group.orders)
        scale = torch.where(taking, _factors(group, ranks, flips, logs, dial.severity), 1.0)
    else:
        one = ranks[:, :1]
        if dial.how == "transposition":
            both = torch.cat([one, (one + size // 2) % size], dim=-1)
            order[rows, both] = both.flip(-1)
        elif dial.how == "cut":
            scale[0, one[0]] = 1 - dial.severity
        else:
            scale[rows, one] = -1.0 if dial.how == "sign" else 2.0**dial.severity
    return Ordered(order.reshape(*batch, size), scale.reshape(*batch, size))


def _ranking(size: int, dial: Dial, generator: Generator) -> Tensor:
    order = torch.randperm(size, generator=generator)
    return torch.tensor(dial.first) if dial.first else order


def _factors(
    group: Monomial, ranks: Tensor, flips: Tensor, logs: Tensor, severity: float
) -> Tensor:
    """Signs and scales; where a group has signs alone, the first coordinate always changes."""
    scale = (logs * severity).exp() if group.scales else torch.ones_like(logs)
    if group.common:
        return -scale
    if not group.signs:
        return scale
    if not group.scales and not group.orders:
        flips = flips.scatter(1, ranks[:, :1], value=True)
    return torch.where(flips, -scale, scale)


def _turned(group: Rotary, size: int, batch: Shape, dial: Dial, generator: Generator) -> Turned:
    """z^s in polar form; an angle for all frequencies or for one."""
    if dial.how == "random":
        z = group.sample(size, batch, generator).z
        s = dial.severity
        return Turned(torch.polar(z.abs() ** s, z.angle() * s), group.pairs)
    full = math.radians(dial.angle) * dial.severity
    angle = torch.full((*batch, size // 2), full, dtype=torch.float64)
    if dial.how == "frequency":
        one = torch.randint(size // 2, (1,), generator=generator)
        angle = angle * (torch.arange(size // 2) == one)
    return Turned(torch.polar(torch.ones_like(angle), angle), group.pairs)


def _mixed(group: Linear, size: int, batch: Shape, dial: Dial, generator: Generator) -> Mixed:
    """Rotations by s θ in random planes, times V diag(λ^s) Vᵀ: invertible at every severity."""
    basis, other = (_basis(size, batch, generator) for _ in range(2))
    half = size // 2
    if dial.how == "angle":
        order = torch.randperm(size, generator=generator)
        return Mixed(plane(size, int(order[0]), int(order[-1]), dial.angle * dial.severity)
                     .expand(*batch, size, size).contiguous())  # fmt: skip
    angles = _uniform((*batch, half), *TURN, generator) * dial.severity
    turned = basis @ _turns(size, angles) @ basis.mT
    logs = _uniform((*batch, size), -math.log(2), math.log(2), generator)
    if group.orthogonal:
        return Mixed(turned)
    stretch = (logs * dial.severity).exp()
    return Mixed(turned @ (other * stretch.unsqueeze(-2)) @ other.mT)


def _basis(size: int, batch: Shape, generator: Generator) -> Tensor:
    draw = torch.randn(*batch, size, size, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(draw)[0]


def _turns(size: int, angles: Tensor) -> Tensor:
    """Rotations of the planes (j, j + n/2)."""
    half = size // 2
    first = torch.arange(half)
    matrix = torch.eye(size, dtype=torch.float64).expand(*angles.shape[:-1], size, size).clone()
    matrix[..., first, first] = matrix[..., first + half, first + half] = angles.cos()
    matrix[..., first, first + half] = -angles.sin()
    matrix[..., first + half, first] = angles.sin()
    return matrix


def plane(size: int, i: int, j: int, degrees: float) -> Tensor:
    """The rotation of one plane, from coordinate i towards j."""
    matrix = torch.eye(size, dtype=torch.float64)
    angle = math.radians(degrees)
    matrix[i, i] = matrix[j, j] = math.cos(angle)
    matrix[i, j], matrix[j, i] = -math.sin(angle), math.sin(angle)
    return matrix


def _mean(size: int, batch: Shape, dial: Dial, generator: Generator) -> Mixed:
    """I + s (M − I) where M makes two coordinates of the first copy their mean."""
    i, j = torch.randperm(size, generator=generator)[:2].tolist()
    matrix = LINEAR.identity(size, (math.prod(batch),)).matrix.clone()
    matrix[0] = matrix[0] + dial.severity * (mean(size, i, j) - matrix[0])
    return Mixed(matrix.reshape(*batch, size, size))


def mean(size: int, i: int, j: int) -> Tensor:
    """The matrix that makes coordinates i and j their mean."""
    matrix = torch.eye(size, dtype=torch.float64)
    matrix[i, i] = matrix[j, j] = matrix[i, j] = matrix[j, i] = 0.5
    return matrix


def _part(element: Element, severity: float) -> Element:
    """Of an element on rotary pairs (f, f + n/2) the first pairs only, others left alone."""
    assert isinstance(element, Ordered)
    order, size = element.permutation, element.permutation.shape[-1]
    still = torch.arange(size).expand(order.shape)
    kept = still % (size // 2) < count(severity, size // 2)
    return Ordered(torch.where(kept, order, still), torch.where(kept, element.scale, 1.0))


def in_words(element: Element, most: int = 8) -> str:
    """The first copy of an element: what moves where, factors, angles, or how large a matrix is."""
    parts: list[str] = []
    match element:
        case Ordered():
            parts = _moves(element)
        case Turned():
            z = element.z.reshape(-1, element.z.shape[-1])[0]
            for f, (angle, modulus) in enumerate(
                zip(z.angle().rad2deg().tolist(), z.abs().tolist(), strict=True)
            ):
                if abs(angle) > 1e-9 or abs(modulus - 1) > 1e-9:
                    parts.append(f"frequency {f}: {angle:.3g}° × {modulus:.3g}")
        case Mixed():
            matrix = element.matrix.reshape(-1, *element.matrix.shape[-2:])[0]
            if not torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype)):
                far = float(torch.linalg.matrix_norm(matrix - torch.eye(len(matrix))))
                parts = [f"matrix {len(matrix)} × {len(matrix)}, ‖M − I‖ = {far:.3g}"]
    copies = f" (the first of {math.prod(element.batch)} copies)" * (math.prod(element.batch) > 1)
    rest = f" and {len(parts) - most} more" * (len(parts) > most)
    return f"{'; '.join(parts[:most])}{rest}{copies}" if parts else "nothing"


def _moves(element: Ordered) -> list[str]:
    order = element.permutation.reshape(-1, element.permutation.shape[-1])[0].tolist()
    scale = element.scale.reshape(-1, element.scale.shape[-1])[0].tolist()
    moves = [f"{old} → {new}" for new, old in enumerate(order) if old != new]
    signs = [f"sign of {i}" for i, s in enumerate(scale) if s == -1]
    factors = [f"{i} × {s:.3g}" for i, s in enumerate(scale) if abs(s) != 1]
    return moves + signs + factors
