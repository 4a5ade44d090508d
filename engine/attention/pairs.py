"""One layer of two models in A's residual coordinates, and Stage 1 and 2 on it, step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engine.action import acted
from engine.alignment.differences import on_common_ground
from engine.alignment.heads import bilinear, turning
from engine.alignment.matching import residual_correlation
from engine.alignment.one_pass import layer_tensors, residual, stages, start_from_embedding
from engine.alignment.weighing import Sensed
from engine.axes import Sizes
from engine.checkpoint import Checkpoint, require_same_group
from engine.elements import Element, Ordered
from engine.errors import Progress, Refused
from engine.family import Family
from engine.questions import Align, Experts, Heads, Stage2, Turn
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
INNER = ("rot", "qk", "val", "gain")
"""The coordinates that Stage 2 may change."""


@dataclass(frozen=True)
class Pair:
    """A layer of A, and the same layer of B in A's residual coordinates."""

    a: Checkpoint
    b: Checkpoint
    layer: int
    outer: Symmetry  # the residual part of g
    theirs: Tensors
    mine: Tensors

    @property
    def family(self) -> Family:
        """The table of both."""
        return self.a.family

    @property
    def sizes(self) -> Sizes:
        """Size of every coordinate."""
        return self.outer.sizes

    @property
    def per_group(self) -> int:
        """Query heads of a key/value head."""
        return self.sizes.get("head", 1)

    def with_order(self, grp: Element, head: Element) -> "Pair":
        """B's heads in another order."""
        names = {"grp": grp, "head": head}
        return self.after({n: e for n, e in names.items() if n in self.family.coordinates})

    def after(self, elements: Mapping[str, Element]) -> "Pair":
        """B after some elements of this layer, by coordinate."""
        g = self.gauge(elements)
        return replace(self, mine=acted(g, self.mine))

    def seen(self, by: Sensed) -> "Pair":
        """Both as a solver is to see them."""
        theirs, mine = by.seen(self.family, self.sizes, self.theirs, self.mine)
        return replace(self, theirs=theirs, mine=mine)

    def gauge(self, elements: Mapping[str, Element]) -> Symmetry:
        """Elements of this layer, by coordinate, as a gauge without its residual part."""
        keyed = {self.family.key(n, self.layer): e for n, e in elements.items()}
        return replace(self.outer, elements=keyed)


def pair(a: Checkpoint, b: Checkpoint, asked: Heads | Turn | Experts, progress: Progress) -> Pair:
    """Both layers, B in A's residual coordinates: from the embedding, or from activations.

    Errors: Refused for two groups, and for a layer that is not there.
    """
    a, b = on_common_ground(a, b)
    require_same_group(a, b)
    if not 0 <= asked.layer < a.layers:
        raise Refused(f"There is no layer {asked.layer}: {a.name} has 0 to {a.layers - 1}.")
    found: dict[str, Element] = {}
    if a.fingerprint != b.fingerprint:
        found["res"] = residual(a.family, _correlation(a, b, asked, progress))[0]
    outer = Symmetry(a.family, a.config, found, b.fingerprint, a.fingerprint, (b.name, a.name))
    own = layer_tensors(b, asked.layer)
    mine = acted(outer, own)
    return Pair(a, b, asked.layer, outer, layer_tensors(a, asked.layer), mine)


def _correlation(
    a: Checkpoint, b: Checkpoint, asked: Heads | Turn | Experts, progress: Progress
) -> np.ndarray:
    if asked.using == "weights":
        return start_from_embedding(a, b)
    how = Align(
        asked.a, asked.b, "activations",
        tokens=asked.tokens, text=asked.text, device=asked.device, dtype=asked.dtype,
    )  # fmt: skip
    return residual_correlation(a, b, how, progress).mean(axis=0)


def inner(both: Pair, stage2: Stage2) -> dict[str, Element]:
    """Stage 2 with heads already in order: the elements inside each head, by coordinate."""
    chosen = [n for n in INNER if n in both.family.free and both.sizes.get(n)]
    found: dict[str, Element] = {}
    for names, solver in stages(both.family, both.sizes, chosen, both.layer, stage2):
        if stage2 != "full" and "gain" in names:
            continue
        solved = solver(both.family, both.sizes, both.theirs, both.after(found).mine)
        found |= {n: solved.elements[n] for n in names}
    return found


Rows = Sequence[tuple[Tensor, Tensor]]
"""Two factors of every head, [grp, head or 1, rows, channels] each, real or complex."""


def query_key(both: Pair, tensors: Tensors) -> Rows:
    """Queries and keys: those that are rotated, and those that are not."""
    found = []
    if both.sizes.get("rot"):
        z = turning(both.family, both.sizes, tensors, gains=False)
        found.append((z.q, z.k))
    if both.sizes.get("qk"):
        x = bilinear(both.family, both.sizes, tensors, "qk")
        found.append((x.left, x.right))
    return found


def value_output(both: Pair, tensors: Tensors) -> Rows:
    """Values and outputs."""
    x = bilinear(both.family, both.sizes, tensors, "val")
    return [(x.left, x.right)]


def gaps(a: Rows, b: Rows | None, heads: int) -> Float[Tensor, " heads"]:
    """‖A − B‖² (‖A‖² without B) of every head; what a group has once is shared out in it."""
    total = torch.zeros(())
    for i, factors in enumerate(a):
        for j, x in enumerate(factors):
            gap = (x if b is None else x - b[i][j]).abs().square().sum((-2, -1))
            total = total + gap.expand(-1, heads) * (gap.shape[1] / heads)
    return total.flatten()


def scales(both: Pair, a: Rows, b: Rows) -> tuple[Tensor, Tensor] | None:
    """Positive factors on B's query and key heads under norms of both, [grp, head] and [grp].

    c = max(⟨B, A⟩ / ‖B‖², 0) of each head; one for all where a norm spans all heads.
    """
    if "gain" not in both.family.coordinates:
        return None
    found = []
    for x, y in zip(a[0], b[0], strict=True):
        cross, own = (y.conj() * x).real.sum((-2, -1)), y.abs().square().sum((-2, -1))
        if both.family.coordinates["gain"].over:
            cross, own = (z.sum().expand_as(z) for z in (cross, own))
        factor = cross / own.clamp(min=1e-300)
        found.append(torch.where(factor > 0, factor, torch.ones_like(factor)))
    return found[0], found[1][:, 0]


def scaled(b: Rows, factors: tuple[Tensor, Tensor] | None) -> Rows:
    """B's queries and keys times such factors."""
    if factors is None:
        return b
    (q, k), *rest = b
    return [(q * factors[0][..., None, None], k * factors[1][:, None, None, None]), *rest]


def flat(grp: Ordered, head: Ordered) -> Tensor:
    """Both orders as one list of B's heads, int64 [heads]."""
    per_group = head.permutation.shape[-1]
    return (grp.permutation[:, None] * per_group + head.permutation).flatten()
