"""What layers say of the residual coordinates: a whole score, or a proof that nothing is better."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from engine.action import blocks
from engine.alignment.close import ROUNDING, ROWS, part
from engine.alignment.proposals import Outcome, Scene
from engine.axes import Mark, legs

THIN = 96
"""One of so many rows is compared at least."""


@dataclass(frozen=True)
class Sketch:
    """Residual coordinates of A: how far from their partners, and by a part from all of B's."""

    left: Float[Tensor, " d"]  # ‖A_i − B_i‖² over everything
    cross: Float[Tensor, "d d"]  # Σ a bᵀ over the part
    own: Float[Tensor, "2 d"]  # squared lengths of the part, A's and B's

    def __add__(self, other: "Sketch") -> "Sketch":
        return Sketch(self.left + other.left, self.cross + other.cross, self.own + other.own)

    def stands(self, *, signs: bool) -> bool:
        """Whether no other order leaves less (`signs`: nor any other signs)."""
        a, b = self.own
        table = a[:, None] + b - 2 * (self.cross.abs() if signs else self.cross)
        flipped = a + b + 2 * self.cross.diagonal()
        table = table.diagonal_scatter(flipped if signs else torch.full_like(a, torch.inf))
        return bool((table.amin(1) >= self.left + ROUNDING * a).all())


@dataclass(frozen=True)
class Standing:
    """Σ a bᵀ over all layers so far; over layers that are all close, sketches instead."""

    size: int
    score: Float[Tensor, "d d"] | None = None
    sketch: Sketch | None = None
    later: tuple[int | None, ...] = ()  # layers of which there is a sketch only

    def after(self, solved: Outcome, *, close: bool) -> "Standing":
        """With one more layer."""
        if not close or self.score is not None:
            return self.scored(solved.there)
        more = _sketched(solved, self.size)
        known = more if self.sketch is None else self.sketch + more
        return replace(self, sketch=known, later=(*self.later, solved.there.layer))

    def scored(self, scene: Scene) -> "Standing":
        """With one more layer in the score."""
        more = _correlation(scene, self.size)
        return replace(self, score=more if self.score is None else self.score + more)

    def certain(self, *, signs: bool) -> bool:
        """Whether the present residual element is the best one, by the sketches of all layers."""
        return self.score is None and self.sketch is not None and self.sketch.stands(signs=signs)


def signed_rows(scene: Scene) -> list[tuple[Tensor, Tensor]]:
    """The signed rows of both models over the residual coordinates, tensor by tensor."""
    found = []
    for name, x in scene.a.items():
        if any(leg.name == "res" for leg in legs(scene.family.row(name).axes)):
            both = (blocks(scene.family, scene.sizes, name, z, "res") for z in (x, scene.b[name]))
            found += [(a, b) for (mark, a), (_, b) in zip(*both, strict=True)
                      if mark is not Mark.RELABEL]  # fmt: skip
    return found


def _sketched(solved: Outcome, size: int) -> Sketch:
    nothing = torch.zeros(size, dtype=torch.float64)
    left = sum((x for x in solved.left.values() if len(x) == size), nothing)
    rows = [
        [part(z, max(ROWS, len(z) // THIN)).float() for z in pair]
        for pair in signed_rows(solved.there)
    ]
    if not rows:
        return Sketch(left, torch.zeros(size, size), torch.zeros(2, size))
    x, y = (torch.cat(some) for some in zip(*rows, strict=True))
    return Sketch(left, x.mT @ y, torch.stack([z.square().sum(0) for z in (x, y)]))


def _correlation(scene: Scene, size: int) -> Float[Tensor, "d d"]:
    parts = [(x.mT @ y).double() for x, y in signed_rows(scene)]
    return sum(parts, torch.zeros(size, size, dtype=torch.float64))
