"""The ends of a line on disk: A and g·B, tensor by tensor, and what stands between two tensors."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine import network
from engine.action import act
from engine.axes import Leg
from engine.checkpoint import Checkpoint, require_same_group
from engine.errors import Refused
from engine.symmetry import Symmetry

FINE = ("float32", "float64")
"""The dtypes in which models are interpolated."""
PART = 2**16
"""Numbers that are squared at once: few enough that they stay in the cache."""
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Ends:
    """A and B as they are interpolated: one group, one spelling, the tokens that both know."""

    a: Checkpoint
    b: Checkpoint
    inside: frozenset[str]  # the tensors that move, by name on disk
    known: int | None  # tokens that both vocabularies have; None for models without tokens
    kind: torch.dtype
    device: torch.device

    @property
    def config(self) -> Mapping[str, Any]:
        """A's configuration with the common vocabulary."""
        return {**self.a.config, **({} if self.known is None else {"vocab_size": self.known})}

    def theirs(self, name: str) -> Tensor:
        """One tensor of A by its name on disk."""
        return self._cut(name, self.a.read(name))

    def moved(self, g: Symmetry, name: str) -> Tensor:
        """The same tensor of g·B where it moves, of A where it does not."""
        if name not in self.inside:
            return self.theirs(name)
        return self._cut(name, act(g, name, lambda n: self.b.read(n).to(self.kind)))

    def between(self, g: Symmetry, name: str, t: float) -> Tensor:
        """(1 − t) A + t g·B of one tensor; exactly A's and g·B's at the ends."""
        x = self.theirs(name)
        if name not in self.inside or not x.is_floating_point():
            return x
        return torch.lerp(x, self.moved(g, name), t)

    def blank(self, name: str) -> Tensor:
        """Zeros of the tensor's shape that share one number, so that they take no memory."""
        return self._cut(name, torch.zeros((), dtype=self.kind).expand(self.a.headers[name].shape))

    def _cut(self, name: str, x: Tensor) -> Tensor:
        """In the dtype of the line, without the tokens that only one vocabulary has."""
        for axis, leg in enumerate(self.a.family.row(name).axes):
            if self.known is not None and isinstance(leg, Leg) and leg.name == "tok":
                x = x.narrow(axis, 0, self.known)
        return x.to(self.kind) if x.is_floating_point() else x


def ends(a: Checkpoint, b: Checkpoint, inside: Collection[str], *, device: str, dtype: str) -> Ends:
    """Both models, checked.

    Errors: Refused for two groups, a dtype too coarse, and tensors that only one of them has.
    """
    if dtype not in FINE:
        raise Refused(f"--dtype {dtype}: models are interpolated in {' or '.join(FINE)}.")
    require_same_group(a, b)
    b = b.spelled_like(a)
    if odd := sorted(a.headers.keys() ^ b.headers.keys()):
        owner, other = (a, b) if odd[0] in a.headers else (b, a)
        raise Refused(
            f"{owner.name} has the tensor {odd[0]} and {other.name} has not, so that no line leads "
            "from one to the other: save both in one way."
        )
    tokens = [c.family.sizes(c.config).get("tok", 0) for c in (a, b)]
    known = min(tokens) or None
    return Ends(a, b, frozenset(inside), known, network.dtype(dtype), network.device(device))


def assembled(ends: Ends, read: Callable[[str], Tensor]) -> PreTrainedModel:
    """A model of some tensors, which it may keep as its own."""
    state = {name: read(name) for name in ends.a.headers}
    found = network.assemble(ends.a.name, ends.config, ends.kind, None, state_dict=state)
    return network.ready(found, ends.a.name, ends.device)


@torch.inference_mode()
def put(model: PreTrainedModel, theirs: Tensors, mine: Tensors, t: float) -> None:
    """Overwrite a model's parameters with (1 − t) theirs + t mine wherever there are mine."""
    parameters = dict(model.named_parameters())
    for name, y in mine.items():
        torch.lerp(theirs[name], y, t, out=parameters[name])


def squares(x: Tensor, y: Tensor | None = None) -> float:
    """Σ (x − y)², or Σ x², in float64, a part at a time: a whole difference would be large."""
    parts = x.flatten().split(PART)
    others = [0.0] * len(parts) if y is None else y.flatten().split(PART)
    return sum(float((a.double() - b).square().sum()) for a, b in zip(parts, others, strict=True))
