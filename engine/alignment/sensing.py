"""What the layers of two models hear and what their heads do, from running both on one text."""

from dataclasses import dataclass, field
from types import EllipsisType
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from engine import network, shared, texts
from engine.activations import heeded, listening, stack, trunk
from engine.alignment.heads import bilinear
from engine.alignment.one_pass import layer_tensors
from engine.alignment.stages import distances, relative
from engine.alignment.weighing import LEAST, Layers, Sensed, root
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, silent
from engine.family import Family
from engine.folding import folded
from engine.groups import COMMON_SIGN
from engine.prepared import MAIN, is_prepared
from engine.questions import Align, Heads

HELD = 2**24
"""Numbers of attention patterns that are held at once."""


def sense(
    a: Checkpoint, b: Checkpoint, asked: Align | Heads, progress: Progress = silent
) -> Layers:
    """Every layer as far as one of A differs from B's, over the tokens or images asked for.

    The inputs of a layer are the stream that enters it, normalised; what the layer adds before its
    feed-forward part is left out. A head looks at what its attention pattern P says and says
    P x V O; biases, which no head has for itself, are left out. Each model hears its own stream,
    Σ is A's. Errors: Refused for a text as `engine.shared.given`, for images that are not given,
    and where memory is short.
    """
    last = max((n for n in range(a.layers) if _differ(a, b, n)), default=None)
    if last is None:
        return {}
    require_inputs(a, asked.text)
    progress(0.0, "reading the text")
    given, _ = shared.given(a, b, asked.text, asked.tokens)
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    both = [_Listener.of(c, last + 1, where, kind) for c in (a, b)]
    sums = [_Sums() for _ in range(last + 1)]
    sizes = a.family.sizes(a.config)
    places = given.shape[1] if given.ndim == 2 else sizes["pos"]
    step = max(1, HELD // (len(sums) * sizes["grp"] * sizes.get("head", 1) * places**2))
    for start in range(0, len(given), step):
        progress(start / len(given), f"window {start} of {len(given)}")
        some = torch.from_numpy(given[start : start + step]).to(where)
        heard = [one.hear(some) for one in both]
        for layer, found in enumerate(sums):
            found.add(*(one[layer] for one in heard))
    a_out, b_out = (one.outputs for one in both)
    every = zip(sums, a_out, b_out, strict=True)
    return {n: found.sensed(x, y, sizes["grp"]) for n, (found, x, y) in enumerate(every)}


def require_inputs(a: Checkpoint, text: str) -> None:
    """Refused for a model of images without any."""
    if a.family.inputs == "pixels" and not is_prepared(text):
        raise Refused(
            f"{a.name} reads images, and there is no text to run it on: match by the weights "
            "(--using weights), or give images (--inputs FILE)."
        )


def _differ(a: Checkpoint, b: Checkpoint, layer: int) -> bool:
    own = [name for name in a.headers if a.family.row(name).layer == layer]
    return any(
        name not in b.headers
        or not torch.equal(*(c.read(name, mapped=True).double() for c in (a, b)))
        for name in own
    )


class _Heard(NamedTuple):
    """What one layer of a model heard and did on some windows."""

    inputs: Float[Tensor, "rows d"]  # without attention sinks
    patterns: Float[Tensor, "heads places"]
    said: Float[Tensor, "heads n rows"]  # P x V


@dataclass(frozen=True)
class _Listener:
    """A model's first layers, and what its heads read and write with."""

    model: nn.Module
    family: Family
    sinks: tuple[int, ...]
    values: list[Float[Tensor, "grp d n"]]
    outputs: list[Float[Tensor, "heads d n"]]

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, layers: int, where: torch.device, kind: torch.dtype
    ) -> "_Listener":
        """A model cut off after some layers."""
        family, sizes = checkpoint.family, checkpoint.family.sizes(checkpoint.config)
        model = network.load(checkpoint, where, kind)
        model.set_attn_implementation("eager")  # the others do not tell their patterns
        above, name = stack(model, family)
        blocks = [*above.get_submodule(name).children()]
        setattr(above, name, nn.ModuleList(blocks[:layers]))
        values, outputs = [], []
        for layer in range(layers):
            tensors = folded(family, sizes, layer_tensors(checkpoint, layer))
            found = bilinear(family, sizes, tensors, "val")
            values.append(found.left[:, 0].to(where, torch.float32))
            outputs.append(found.right.flatten(0, 1))
        return cls(model, family, texts.special(checkpoint), values, outputs)

    @torch.inference_mode()
    def hear(self, inputs: Tensor) -> list[_Heard]:
        """Every layer on some windows."""
        streams: dict[int, Tensor] = {}
        with listening(self.model, self.family, streams.__setitem__):
            named = {MAIN[self.family.inputs]: inputs}
            found = trunk(self.model)(**named, output_attentions=True)
        kept = heeded(self.family, inputs, self.sinks)
        return [
            self._layer(self._normalised(streams[layer]), pattern.float(), kept, self.values[layer])
            for layer, pattern in enumerate(found.attentions)
        ]

    def _normalised(self, stream: Tensor) -> Tensor:
        """As norms do it, without their gains."""
        x = stream.float()
        if self.family.coordinates["res"].group == COMMON_SIGN:
            x = x - x.mean(-1, keepdim=True)
        return x / x.square().mean(-1, keepdim=True).clamp(min=LEAST).sqrt()

    @staticmethod
    def _layer(
        x: Float[Tensor, "windows length d"],
        pattern: Float[Tensor, "windows heads length length"],
        kept: Tensor | EllipsisType,
        values: Float[Tensor, "grp d n"],
    ) -> _Heard:
        read = torch.einsum("wld,gdn->wgln", x, values)
        each = pattern.unflatten(1, (len(values), -1))
        said = torch.einsum("wghlm,wgmn->ghnwl", each, read)
        return _Heard(
            x[kept].flatten(0, -2),
            pattern.transpose(0, 1).flatten(1),
            said.flatten(3).flatten(0, 1),
        )


@dataclass
class _Sums:
    """Inner products over all windows so far; of heads those of A first. It changes as it grows."""

    rows: int = 0
    moment: Tensor = field(default_factory=lambda: torch.zeros(()))
    patterns: Tensor = field(default_factory=lambda: torch.zeros(()))
    said: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, a: _Heard, b: _Heard) -> None:
        """Take in the same windows of both models."""
        self.rows += len(a.inputs)
        self.moment = self.moment + _gram(a.inputs.mT)
        self.patterns = self.patterns + _gram(torch.cat([a.patterns, b.patterns]))
        self.said = self.said + _gram(torch.cat([a.said, b.said]).flatten(0, 1))

    def sensed(
        self, a: Float[Tensor, "heads d n"], b: Float[Tensor, "heads d n"], grp: int
    ) -> Sensed:
        """The layer as it was heard, given what its heads write with."""
        out = torch.cat([a, b]).movedim(1, 0)
        heads, n = out.shape[1:]
        written = (self.said * _gram(out.flatten(1).mT)).unflatten(0, (heads, n))
        inner = written.unflatten(2, (heads, n)).sum((1, 3))
        cost = relative(_apart(inner)) + relative(_apart(self.patterns))
        shape = (grp, -1, grp, len(a) // grp)
        return Sensed(root(self.moment / self.rows), cost.reshape(shape))


def _gram(x: Float[Tensor, "n rows"]) -> Float[Tensor, "n n"]:
    return (x @ x.mT).cpu().double()


def _apart(inner: Float[Tensor, "both both"]) -> Float[Tensor, "h h"]:
    """‖a − b‖² of all of the first half with all of the second."""
    own, half = inner.diagonal(), len(inner) // 2
    return distances(inner[:half, half:], own[:half], own[half:])
