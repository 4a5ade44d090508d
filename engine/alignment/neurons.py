"""The neurons of a layer as vectors over the residual stream, and two independent ways to match."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from engine.alignment.heads import Tensors, gather
from engine.alignment.one_pass import layer_tensors
from engine.axes import Mark, legs
from engine.checkpoint import Checkpoint
from engine.elements import Ordered
from engine.family import Family
from engine.folding import NEURONS, canonical


@dataclass(frozen=True)
class Views:
    """Two descriptions of the same neurons, each neuron a unit vector over the residual stream.

    Gated FFNs: the gate's rows and those of up. Without a gate: rows in and rows out.
    """

    first: Float[Tensor, "d n"]
    second: Float[Tensor, "d n"]

    def moved(self, residual: Ordered | None) -> "Views":
        """The same neurons in other residual coordinates."""
        if residual is None:
            return self
        return Views(*(residual.write(x.mT).mT for x in (self.first, self.second)))


def views(checkpoint: Checkpoint, layer: int) -> Views:
    """Both descriptions of a layer's neurons, those of all its experts in one row.

    Gains of the norm before them are folded in; biases are left out.
    """
    family = checkpoint.family
    sizes = family.sizes(checkpoint.config)
    whole = canonical(family, sizes, layer_tensors(checkpoint, layer), NEURONS)
    found = [gather(family, sizes, part, "ffn") for part in _parts(family, whole)]
    both = (Mark.RELABEL, Mark.WRITE) if Mark.RELABEL in found[0] else (Mark.WRITE, Mark.READ)
    rows = [torch.cat([part[mark] for part in found], -1) for mark in both]
    return Views(*(x / x.norm(dim=0).clamp(min=1e-300) for x in rows))


def _parts(family: Family, tensors: Tensors) -> list[Tensors]:
    """The tensors between the stream and the neurons: of the layer, or of each of its experts."""
    wanted = {"ffn", "res"}
    parts: dict[int, dict[str, Tensor]] = {}
    for name, x in tensors.items():
        row = family.row(name)
        if wanted <= {leg.name for leg in legs(row.axes)}:
            parts.setdefault(row.places.get("exp", 0), {})[name] = x
    return [parts[expert] for expert in sorted(parts)]
