"""Quarter turns: what is left of the rotary numbers when it may only move and negate channels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from engine.elements import Ordered, Shape
from engine.groups import ROTARY_HALF, SIGNED


@dataclass(frozen=True)
class Quarters:
    """(x_f, x_{f+n/2}) as a complex number × 1, i, −1 or −i, one for each rotary frequency.

    The elements are signed permutations, so that a gain can follow one without its signs.
    """

    notation: str = "Z₄^{d_h/2}"

    def identity(self, size: int, batch: Shape = ()) -> Ordered:
        return SIGNED.identity(size, batch)

    def sample(self, size: int, batch: Shape, generator: Generator) -> Ordered:
        return _turned(torch.randint(4, (*batch, size // 2), generator=generator))

    def project(self, correlation: Tensor) -> Ordered:
        """argmax ⟨g, C⟩: the quarter nearest to the phase of each frequency."""
        z = ROTARY_HALF.project(correlation).z
        return _turned((z.angle() / (math.pi / 2)).round().long() % 4)

    def restore(self, numbers: Mapping[str, Tensor]) -> Ordered:
        return SIGNED.restore(numbers)

    def log10(self, size: int) -> float:
        """log₁₀ of 4^{n/2}."""
        return size / 2 * math.log10(4)

    def dimension(self, size: int) -> int:  # noqa: ARG002
        return 0


def _turned(quarters: Tensor) -> Ordered:
    """i^k for each frequency: i (x + i y) = −y + i x exchanges x and y and negates the first."""
    n = quarters.shape[-1]
    odd = quarters % 2
    first = torch.arange(n) + n * odd
    second = torch.arange(n) + n * (1 - odd)
    negative = torch.cat([(quarters == 1) | (quarters == 2), quarters >= 2], dim=-1)
    return Ordered(torch.cat([first, second], dim=-1), torch.where(negative, -1.0, 1.0).double())


QUARTERS = Quarters()
