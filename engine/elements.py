"""Elements of the groups: they write, read, relabel, invert and compose.

An element acts on the last axis of `[*batch, m, n]`. `write` is x → g x, `read` is x → g⁻ᵀ x,
`relabel` keeps only the order. Everything acts right to left: (g ∘ h) x = g (h x), and for ordered
elements y_i = s_i x_{π(i)}, so that g ∘ h has π = π_h[π_g] and s = s_g · s_h[π_g].
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

Shape = tuple[int, ...]


@runtime_checkable
class Element(Protocol):
    """An invertible change of one coordinate, batched over the coordinates that contain it."""

    @property
    def batch(self) -> Shape: ...
    @property
    def exact(self) -> bool:
        """True where it only moves numbers and changes signs: no rounding in any dtype."""
        ...

    def write(self, x: Tensor) -> Tensor: ...
    def read(self, x: Tensor) -> Tensor: ...
    def relabel(self, x: Tensor) -> Tensor: ...
    def inverse(self) -> "Element": ...
    def compose(self, other: Any) -> "Element": ...
    def take(self, order: Tensor) -> "Element":
        """The element whose batch entry i is this one's entry order[i]."""
        ...

    def numbers(self) -> dict[str, Tensor]:
        """Named tensors that determine the element (its group's `restore` reads them)."""
        ...


def _gather(x: Tensor, order: Tensor) -> Tensor:
    if torch.equal(order, torch.arange(order.shape[-1]).expand(order.shape)):
        return x
    if order.ndim == 1:
        return x.index_select(-1, order.to(x.device))
    return torch.take_along_dim(x, order.to(x.device).unsqueeze(-2), dim=-1)


@dataclass(frozen=True, eq=False)
class Ordered:
    """y_i = s_i x_{π(i)}: permutations, signed permutations and monomial matrices alike."""

    permutation: Tensor  # int64 [*batch, n], old positions
    scale: Tensor  # float64 [*batch, n], s by new position, never 0

    @property
    def batch(self) -> Shape:
        return tuple(self.permutation.shape[:-1])

    @property
    def exact(self) -> bool:
        return bool((self.scale.abs() == 1).all())

    def write(self, x: Tensor) -> Tensor:
        return _gather(x, self.permutation) * self.scale.to(x).unsqueeze(-2)

    def read(self, x: Tensor) -> Tensor:
        return _gather(x, self.permutation) * self.scale.reciprocal().to(x).unsqueeze(-2)

    def relabel(self, x: Tensor) -> Tensor:
        return _gather(x, self.permutation)

    def inverse(self) -> "Ordered":
        back = self.permutation.argsort(-1)
        return Ordered(back, self.scale.gather(-1, back).reciprocal())

    def compose(self, other: "Ordered") -> "Ordered":
        return Ordered(
            other.permutation.gather(-1, self.permutation),
            self.scale * other.scale.gather(-1, self.permutation),
        )

    def take(self, order: Tensor) -> "Ordered":
        return Ordered(self.permutation[order], self.scale[order])

    def numbers(self) -> dict[str, Tensor]:
        if bool((self.scale == 1).all()):
            return {"permutation": self.permutation}
        if self.exact:
            return {"permutation": self.permutation, "sign": self.scale.to(torch.int8)}
        return {"permutation": self.permutation, "scale": self.scale}


Pairs = Literal["halves", "neighbours"]
"""Which channels rotate together: (i, i + n/2) or (2i, 2i + 1)."""


def split(x: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """First and second members of all rotary pairs, each [*lead, n/2]."""
    both = x.unflatten(-1, (2, -1)) if pairs == "halves" else x.unflatten(-1, (-1, 2)).mT
    first, second = both.unbind(-2)
    return first, second


def paired(x: Tensor, pairs: Pairs) -> Tensor:
    """Rotary channels as complex numbers: first + i second, [*lead, n/2]."""
    return torch.complex(*(part.contiguous() for part in split(x, pairs)))


@dataclass(frozen=True, eq=False)
class Turned:
    """x_f + i x_f′ → z_f (x_f + i x_f′) on rotary pairs: the centraliser of the rotary matrices.

    H(d_h) ≅ (C∖{0})^{d_h/2} (Tran et al. 2026). Written by q it is read by k: k → k / z̄.
    """

    z: Tensor  # complex128 [*batch, n/2]
    pairs: Pairs = "halves"

    @property
    def batch(self) -> Shape:
        return tuple(self.z.shape[:-1])

    @property
    def exact(self) -> bool:
        return False

    def write(self, x: Tensor) -> Tensor:
        real, imaginary = split(x, self.pairs)
        a, b = self.z.real.to(x).unsqueeze(-2), self.z.imag.to(x).unsqueeze(-2)
        both = [a * real - b * imaginary, a * imaginary + b * real]
        return torch.stack(both, dim=-2 if self.pairs == "halves" else -1).flatten(-2)

    def read(self, x: Tensor) -> Tensor:
        return replace(self, z=self.z.conj().reciprocal()).write(x)

    def relabel(self, x: Tensor) -> Tensor:  # noqa: ARG002
        raise TypeError("a rotary channel has no order to relabel: mark its legs x or x*")

    def inverse(self) -> "Turned":
        return replace(self, z=self.z.reciprocal())

    def compose(self, other: "Turned") -> "Turned":
        return replace(self, z=self.z * other.z)

    def take(self, order: Tensor) -> "Turned":
        return replace(self, z=self.z[order])

    def numbers(self) -> dict[str, Tensor]:
        return {"angle": self.z.angle(), "log_scale": self.z.abs().log()}


@dataclass(frozen=True, eq=False)
class Mixed:
    """x → M x with any invertible M."""

    matrix: Tensor  # float64 [*batch, n, n]

    @property
    def batch(self) -> Shape:
        return tuple(self.matrix.shape[:-2])

    @property
    def exact(self) -> bool:
        return False

    def write(self, x: Tensor) -> Tensor:
        return x @ self.matrix.mT.to(x)

    def read(self, x: Tensor) -> Tensor:
        return x @ torch.linalg.inv(self.matrix).to(x)

    def relabel(self, x: Tensor) -> Tensor:  # noqa: ARG002
        raise TypeError("a mixed channel has no order to relabel: mark its legs x or x*")

    def inverse(self) -> "Mixed":
        return Mixed(torch.linalg.inv(self.matrix))

    def compose(self, other: "Mixed") -> "Mixed":
        return Mixed(self.matrix @ other.matrix)

    def take(self, order: Tensor) -> "Mixed":
        return Mixed(self.matrix[order])

    def numbers(self) -> dict[str, Tensor]:
        return {"matrix": self.matrix}
