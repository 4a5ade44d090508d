"""Layers compared by what they do on their inputs rather than by their weights.

Of use where A and B hear the same, in the same residual coordinates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from engine.alignment.stages import Solver, heads_by
from engine.axes import Leg, Mark, Sizes
from engine.family import Family
from engine.folding import HEADS, NEURONS, canonical

Tensors = Mapping[str, Tensor]
LEAST = 1e-12
"""The smallest eigenvalue of Σ, whose mean is 1: a free matrix needs some hold everywhere."""


@dataclass(frozen=True)
class Sensed:
    """What is known of one layer of both models besides their weights; by default nothing.

    `root` is Σ^½ with Σ = E[x xᵀ] over the inputs x of A's layer: ‖(W_A − W_B) Σ^½‖² is the mean
    of ‖W_A x − W_B x‖², and a direction that the layer never hears counts nothing (the layer-wise
    error of pruning and quantisation, for instance Frantar et al. 2022, arXiv 2210.17323). `heads`
    is how far apart the heads are in what they look at and in what they say.
    """

    root: Float[Tensor, "d d"] | None = None
    heads: Float[Tensor, "grp head grp2 head2"] | None = None

    @property
    def weighs(self) -> bool:
        """Whether a solver sees other tensors than there are."""
        return self.root is not None

    def seen(self, family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> tuple[Tensors, Tensors]:
        """The tensors of the layer that a solver is given."""
        if self.root is None:
            return a, b
        first, second = (weighed(family, sizes, x, self.root) for x in (a, b))
        return first, second

    def solver(self, names: tuple[str, ...], usual: Solver) -> Solver:
        """What solves a stage: heads by what they do, where that is known."""
        cost = self.heads
        return usual if cost is None or "grp" not in names else lambda *_: heads_by(cost)


SILENT = Sensed()
Layers = Mapping[int | None, Sensed]
"""What is known, by layer; of a layer that is not there nothing is."""


def root(moment: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The symmetric root of a second moment."""
    value, vector = torch.linalg.eigh(moment)
    return (vector * value.clamp(min=LEAST).sqrt()) @ vector.mT


def weighed(family: Family, sizes: Sizes, tensors: Tensors, root: Tensor) -> Tensors:
    """A layer's tensors with every one that reads the stream times Σ^½ on that axis.

    Gain and bias of the norm before it count as the layer's own (`canonical`).
    """
    found = dict(canonical(family, sizes, tensors, HEADS | NEURONS))
    for name, x in found.items():
        for axis, leg in enumerate(family.row(name).axes):
            if leg == Leg("res", Mark.READ):
                found[name] = (x.double().movedim(axis, -1) @ root).movedim(-1, axis)
    return found
