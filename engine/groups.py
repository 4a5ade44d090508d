"""The groups as values: identity, sample, project, and how large they are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from engine.assignment import solve
from engine.elements import Element, Mixed, Ordered, Pairs, Shape, Turned, paired, split


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
    """Orders of n coordinates, each with a factor: 1, a sign, a positive or any non-zero number.

    Without `orders` every coordinate keeps its place; with `common` the signs are all equal.
    """

    notation: str
    orders: bool = True
    signs: bool = False
    scales: bool = False
    common: bool = False

    def identity(self, size: int, batch: Shape = ()) -> Ordered:
        return Ordered(
            torch.arange(size).expand(*batch, size).contiguous(),
            torch.ones(*batch, size, dtype=torch.float64),
        )

    def sample(self, size: int, batch: Shape, generator: Generator) -> Ordered:
        """Uniform order and signs; scales log-uniform in [1/2, 2]."""
        order = self.identity(size, batch).permutation
        if self.orders:
            draw = torch.rand(*batch, size, generator=generator, dtype=torch.float64)
            order = draw.argsort(-1)
        scale = torch.ones(*batch, size, dtype=torch.float64)
        if self.scales:
            scale = _uniform((*batch, size), -math.log(2), math.log(2), generator).exp()
        if self.signs or self.common:
            copies = (*batch, 1) if self.common else (*batch, size)
            plus = _uniform(copies, -1.0, 1.0, generator) >= 0
            scale = scale * torch.where(plus, 1.0, -1.0).double()
        return Ordered(order, scale)

    def project(self, correlation: Tensor) -> Ordered:
        """argmax Σ_i s_i C[i, π(i)] with |s_i| = 1: an assignment on |C| where signs are free.

        A common sign takes the better of C and −C; without orders only the signs are chosen.
        """
        table = correlation.double().cpu()
        if self.common:
            return self._with_common_sign(table)
        order = self._assigned(table.abs() if self.signs else table)
        chosen = _chosen(table, order)
        sign = torch.where((chosen < 0) & self.signs, -1.0, 1.0).double()
        return Ordered(order, sign)

    def _assigned(self, table: Tensor) -> Tensor:
        batch, size = tuple(table.shape[:-2]), table.shape[-1]
        if not self.orders:
            return self.identity(size, batch).permutation
        found = [torch.from_numpy(solve(c)[0]) for c in table.reshape(-1, size, size).numpy()]
        return torch.stack(found).reshape(*batch, size)

    def _with_common_sign(self, table: Tensor) -> Ordered:
        plus, minus = self._assigned(table), self._assigned(-table)
        gain = _chosen(table, plus).sum(-1) + _chosen(table, minus).sum(-1)
        flip = (gain < 0).unsqueeze(-1)
        sign = torch.where(flip, -1.0, 1.0).double().expand(plus.shape).contiguous()
        return Ordered(torch.where(flip, minus, plus), sign)

    def restore(self, numbers: Mapping[str, Tensor]) -> Ordered:
        order = numbers["permutation"].long()
        scale = numbers.get("scale", numbers.get("sign", torch.ones_like(order)))
        return Ordered(order, scale.double())

    def log10(self, size: int) -> float:
        """log₁₀ of n! (times 2ⁿ with signs, times 2 with a common one)."""
        signs = size if self.signs else int(self.common)
        orders = math.lgamma(size + 1) / math.log(10) if self.orders else 0.0
        return orders + signs * math.log10(2)

    def dimension(self, size: int) -> int:
        return size if self.scales else 0


def _chosen(table: Tensor, order: Tensor) -> Tensor:
    return table.gather(-1, order.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True)
class Rotary:
    """H(n): one non-zero complex number per rotary frequency, by pairs of channels."""

    pairs: Pairs = "halves"
    notation: str = "H(d_h) ≅ (C∖{0})^{d_h/2}"

    def identity(self, size: int, batch: Shape = ()) -> Turned:
        return Turned(torch.ones(*batch, size // 2, dtype=torch.complex128), self.pairs)

    def sample(self, size: int, batch: Shape, generator: Generator) -> Turned:
        """Uniform angles, moduli log-uniform in [1/2, 2]."""
        shape = (*batch, size // 2)
        angle = _uniform(shape, -math.pi, math.pi, generator)
        modulus = _uniform(shape, -math.log(2), math.log(2), generator).exp()
        return Turned(torch.polar(modulus, angle), self.pairs)

    def project(self, correlation: Tensor) -> Turned:
        """argmax ⟨g, C⟩ over turns of modulus 1: z = c / |c| with c = p + s + i (r − q).

        [[p, q], [r, s]] is the 2 × 2 block of a pair, rows A.
        """
        first, second = split(paired(correlation.double(), self.pairs).mT, self.pairs)
        z = (first.conj() + 1j * second.conj()).diagonal(dim1=-2, dim2=-1)
        return Turned(torch.polar(torch.ones_like(z.real), z.angle()), self.pairs)

    def restore(self, numbers: Mapping[str, Tensor]) -> Turned:
        z = torch.polar(numbers["log_scale"].double().exp(), numbers["angle"].double())
        return Turned(z, self.pairs)

    def log10(self, size: int) -> float:  # noqa: ARG002
        return 0.0

    def dimension(self, size: int) -> int:
        return size


@dataclass(frozen=True)
class Linear:
    """GL(n), or with `orthogonal` only O(n)."""

    notation: str = "GL(d_h)"
    orthogonal: bool = False

    def identity(self, size: int, batch: Shape = ()) -> Mixed:
        return Mixed(torch.eye(size, dtype=torch.float64).expand(*batch, size, size).contiguous())

    def sample(self, size: int, batch: Shape, generator: Generator) -> Mixed:
        """U diag(s) V with random orthogonal U, V and s log-uniform in [1/2, 2]: condition ≤ 4."""
        draw = torch.randn(2, *batch, size, size, generator=generator, dtype=torch.float64)
        (left, right), upper = torch.linalg.qr(draw)
        middle = _uniform((*batch, size), -math.log(2), math.log(2), generator).exp()
        if self.orthogonal:  # uniform by the signs of R: without them one determinant never comes
            return Mixed(left * upper[0].diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2))
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
        return size * (size - 1) // 2 if self.orthogonal else size * size


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
COMMON_SIGN = Monomial("S_n × {±1}", common=True)
MONOMIAL = Monomial("S_n ⋉ (R∖{0})ⁿ", signs=True, scales=True)
POSITIVE = Monomial("S_n ⋉ (R>0)ⁿ", scales=True)
DIAGONAL = Monomial("(R∖{0})ⁿ", orders=False, signs=True, scales=True)
SCALE = Monomial("(R>0)ⁿ", orders=False, scales=True)
SIGNS = Monomial("{±1}ⁿ", orders=False, signs=True)
ROTARY_HALF = Rotary()
ROTARY_NEIGHBOURS = Rotary("neighbours")
LINEAR = Linear()
ORTHOGONAL = Linear("O(n)", orthogonal=True)
