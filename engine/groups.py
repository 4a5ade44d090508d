"""The groups as values: identity, sample, project, and how large they are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from engine.assignment import solve
from engine.elements import Element, Mixed, Ordered, Shape, Turned


@runtime_checkable
class Group(Protocol):
    """What may act on a coordinate. Sizes count the axis; `batch` counts independent copies."""

    @property
    def notation(self) -> str: ...
    def identity(self, size: int, batch: Shape = ()) -> Element: ...
    def sample(self, size: int, batch: Shape, generator: Generator) -> Element: ...
    def project(self, correlation: Tensor) -> Element: ...
    def restore(self, numbers: Mapping[str, Tensor]) -> Element: ...
    def log10(self, size: int) -> float: ...
    def dimension(self, size: int) -> int: ...


def _uniform(shape: Shape, low: float, high: float, generator: Generator) -> Tensor:
    draw = torch.rand(shape, generator=generator, dtype=torch.float64)
    return low + (high - low) * draw


@dataclass(frozen=True)
class Monomial:
    """S_n with one factor per coordinate: 1, a sign, a positive number or any non-zero number."""

    notation: str
    signs: bool = False
    scales: bool = False

    def identity(self, size: int, batch: Shape = ()) -> Ordered:
        return Ordered(
            torch.arange(size).expand(*batch, size).contiguous(),
            torch.ones(*batch, size, dtype=torch.float64),
        )

    def sample(self, size: int, batch: Shape, generator: Generator) -> Ordered:
        """Uniform order and signs; scales log-uniform in [1/2, 2]."""
        order = torch.rand(*batch, size, generator=generator, dtype=torch.float64).argsort(-1)
        scale = torch.ones(*batch, size, dtype=torch.float64)
        if self.scales:
            scale = _uniform((*batch, size), -math.log(2), math.log(2), generator).exp()
        if self.signs:
            scale = scale * (_uniform((*batch, size), -1.0, 1.0, generator) >= 0).double().mul(
                2
            ).sub(1)
        return Ordered(order, scale)

    def project(self, correlation: Tensor) -> Ordered:
        """argmax Σ_i s_i C[i, π(i)] with |s_i| = 1: an assignment on |C| where signs are free."""
        batch, size = correlation.shape[:-2], correlation.shape[-1]
        rows = correlation.double().cpu().reshape(-1, size, size).numpy()
        found = [torch.from_numpy(solve(abs(c) if self.signs else c)[0]) for c in rows]
        order = torch.stack(found).reshape(*batch, size)
        chosen = correlation.double().cpu().gather(-1, order.unsqueeze(-1)).squeeze(-1)
        sign = torch.where(chosen < 0, -1.0, 1.0).double()
        return Ordered(order, sign if self.signs else torch.ones_like(sign))

    def restore(self, numbers: Mapping[str, Tensor]) -> Ordered:
        order = numbers["permutation"].long()
        scale = numbers.get("scale", numbers.get("sign", torch.ones_like(order)))
        return Ordered(order, scale.double())

    def log10(self, size: int) -> float:
        """log₁₀ of n! (times 2ⁿ with signs)."""
        return math.lgamma(size + 1) / math.log(10) + (size * math.log10(2) if self.signs else 0)

    def dimension(self, size: int) -> int:
        return size if self.scales else 0


@dataclass(frozen=True)
class RotaryHalf:
    """H(n): one non-zero complex number per rotary frequency, pairs (i, i + n/2)."""

    notation: str = "H(d_h) ≅ (C∖{0})^{d_h/2}"

    def identity(self, size: int, batch: Shape = ()) -> Turned:
        return Turned(torch.ones(*batch, size // 2, dtype=torch.complex128))

    def sample(self, size: int, batch: Shape, generator: Generator) -> Turned:
        """Uniform angles, moduli log-uniform in [1/2, 2]."""
        shape = (*batch, size // 2)
        angle = _uniform(shape, -math.pi, math.pi, generator)
        return Turned(
            torch.polar(_uniform(shape, -math.log(2), math.log(2), generator).exp(), angle)
        )

    def project(self, correlation: Tensor) -> Turned:
        """argmax ⟨g, C⟩ over turns of modulus 1: the phase of the 2 × 2 block of each frequency."""
        n = correlation.shape[-1] // 2
        block = correlation.double().unflatten(-1, (2, n)).unflatten(-3, (2, n))
        at = block.diagonal(dim1=-3, dim2=-1)  # [*batch, 2 (A), 2 (B), n/2]
        z = torch.complex(at[..., 0, 0, :] + at[..., 1, 1, :], at[..., 1, 0, :] - at[..., 0, 1, :])
        return Turned(torch.polar(torch.ones_like(z.real), z.angle()))

    def restore(self, numbers: Mapping[str, Tensor]) -> Turned:
        return Turned(torch.polar(numbers["log_scale"].double().exp(), numbers["angle"].double()))

    def log10(self, size: int) -> float:  # noqa: ARG002
        return 0.0

    def dimension(self, size: int) -> int:
        return size


@dataclass(frozen=True)
class Linear:
    """GL(n)."""

    notation: str = "GL(d_h)"

    def identity(self, size: int, batch: Shape = ()) -> Mixed:
        return Mixed(torch.eye(size, dtype=torch.float64).expand(*batch, size, size).contiguous())

    def sample(self, size: int, batch: Shape, generator: Generator) -> Mixed:
        """U diag(s) V with random orthogonal U, V and s log-uniform in [1/2, 2]: condition ≤ 4."""
        draw = torch.randn(2, *batch, size, size, generator=generator, dtype=torch.float64)
        left, right = torch.linalg.qr(draw)[0]
        middle = _uniform((*batch, size), -math.log(2), math.log(2), generator).exp()
        return Mixed(left * middle.unsqueeze(-2) @ right)

    def project(self, correlation: Tensor) -> Mixed:
        """The orthogonal polar factor of C (orthogonal Procrustes)."""
        left, _, right = torch.linalg.svd(correlation.double())
        return Mixed(left @ right)

    def restore(self, numbers: Mapping[str, Tensor]) -> Mixed:
        return Mixed(numbers["matrix"].double())

    def log10(self, size: int) -> float:  # noqa: ARG002
        return 0.0

    def dimension(self, size: int) -> int:
        return size * size


@dataclass(frozen=True)
class Trivial:
    """Only the identity: the index has a meaning outside the model."""

    reason: str
    notation: str = "fixed"

    def identity(self, size: int, batch: Shape = ()) -> Ordered:
        return PERMUTATION.identity(size, batch)

    def sample(self, size: int, batch: Shape, generator: Generator) -> Ordered:  # noqa: ARG002
        return self.identity(size, batch)

    def project(self, correlation: Tensor) -> Ordered:
        return self.identity(correlation.shape[-1], tuple(correlation.shape[:-2]))

    def restore(self, numbers: Mapping[str, Tensor]) -> Ordered:
        return PERMUTATION.restore(numbers)

    def log10(self, size: int) -> float:  # noqa: ARG002
        return 0.0

    def dimension(self, size: int) -> int:  # noqa: ARG002
        return 0


PERMUTATION = Monomial("S_n")
SIGNED = Monomial("B_n = S_n ⋉ {±1}ⁿ", signs=True)
MONOMIAL = Monomial("S_n ⋉ (R∖{0})ⁿ", signs=True, scales=True)
ROTARY_HALF = RotaryHalf()
LINEAR = Linear()
