"""The residual stream at every depth, and the correlation of two models' coordinates there."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from engine.errors import Progress, silent
from engine.family import Family
from engine.groups import COMMON_SIGN
from engine.prepared import MAIN


def depths(layers: int) -> tuple[str, ...]:
    """Names of the places where the stream is read: before the first block, after each."""
    return ("embedding", *(f"after layer {layer}" for layer in range(layers)))


@contextmanager
def listening(
    model: nn.Module, family: Family, hear: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """While active, `hear(depth, hidden)` gets what each block is given and the last gives."""
    above, name = stack(model, family)
    blocks = list(above.get_submodule(name).children())
    handles = []
    for depth, module in enumerate(blocks):

        def before(
            _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], depth: int = depth
        ) -> None:
            hear(depth, args[0] if args else kwargs["hidden_states"])

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        hear(len(blocks), output if isinstance(output, Tensor) else output[0])

    handles.append(blocks[-1].register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def residual_stream(
    model: nn.Module,
    family: Family,
    inputs: Int[Tensor, "windows length"] | Float[Tensor, "windows channels height width"],
    dropped: Collection[int] = (),
) -> list[Float[Tensor, "rows d"]]:
    """The stream at every depth, of texts without the positions that are attention sinks.

    These are the first of each window, whatever its token, and the ids in `dropped` (start of text,
    padding). Under LayerNorm each token's mean over the coordinates is left out: nothing reads it.
    """
    centred = family.coordinates["res"].group == COMMON_SIGN
    heard: dict[int, Tensor] = {}
    kept = heeded(family, inputs, dropped)

    def hear(depth: int, hidden: Tensor) -> None:
        rows = hidden[kept].flatten(0, -2).float()
        heard[depth] = rows - rows.mean(-1, keepdim=True) if centred else rows

    with torch.no_grad(), listening(model, family, hear):
        trunk(model)(**{MAIN[family.inputs]: inputs})
    return [heard[depth] for depth in sorted(heard)]


def heeded(family: Family, inputs: Tensor, dropped: Collection[int]) -> Tensor | EllipsisType:
    """The positions that are no attention sinks; all of an image."""
    if family.inputs != "tokens":
        return ...
    sinks = torch.tensor([*dropped], dtype=inputs.dtype, device=inputs.device)
    kept = ~torch.isin(inputs, sinks)
    kept[:, 0] = False
    return kept


def trunk(model: nn.Module) -> nn.Module:
    """The model without its head: what transformers calls the base model; a bare one is its own."""
    return getattr(model, str(getattr(model, "base_model_prefix", "")), model)


def stack(model: nn.Module, family: Family) -> tuple[nn.Module, str]:
    """The module that holds a model's blocks, and under which name."""
    prefix = str(getattr(model, "base_model_prefix", ""))
    path = family.blocks if hasattr(model, prefix) else family.blocks.removeprefix(f"{prefix}.")
    above, _, name = path.rpartition(".")
    return model.get_submodule(above), name


class Correlation:
    """Streamed Pearson correlation of two sets of coordinates: float64 sums, [d, d] memory.

    C = (Σ a bᵀ / n − ā b̄ᵀ) / (σ_a σ_bᵀ). The first batch's means are subtracted throughout, so
    that nothing large cancels. A coordinate that never varies correlates 0 with everything.
    """

    def __init__(self) -> None:
        self.count = 0
        self.shift: list[Tensor] = []
        self.sums: list[Tensor] = []

    def add(self, a: Float[Tensor, "rows d"], b: Float[Tensor, "rows d"]) -> None:
        """Take in one batch of rows, the same tokens in both."""
        if not self.shift:
            self.shift = [a.mean(0), b.mean(0)]
        a, b = a - self.shift[0], b - self.shift[1]
        new = [a.sum(0), b.sum(0), a.square().sum(0), b.square().sum(0), a.mT @ b]
        wide = [x.cpu().double() for x in new]
        self.sums = [x + y for x, y in zip(self.sums, wide, strict=True)] if self.sums else wide
        self.count += len(a)

    def result(self) -> Float[Tensor, "d d"]:
        """The correlation so far, rows a, columns b."""
        a, b, aa, bb, ab = (x / self.count for x in self.sums)
        spread = (aa - a.square()).clamp(min=0).sqrt()[:, None] * (bb - b.square()).clamp(
            min=0
        ).sqrt()
        return torch.where(spread > 0, (ab - torch.outer(a, b)) / spread.clamp(min=1e-300), 0.0)


def correlate_streams(
    models: Sequence[nn.Module],
    families: Sequence[Family],
    inputs: Int[np.ndarray, "windows length"] | Float[np.ndarray, "windows channels height width"],
    dropped: Collection[int] = (),
    batch: int = 16,
    progress: Progress = silent,
) -> Float[np.ndarray, "depths d d"]:
    """C at every depth (rows A, columns B) over the same tokens or images, float32."""
    device = next(models[0].parameters()).device
    found: list[Correlation] = []
    text = families[0].inputs == "tokens"
    what, each = ("tokens", inputs.shape[1]) if text else ("images", 1)
    for start in range(0, len(inputs), batch):
        progress(start / len(inputs), f"{what} {start * each} of {len(inputs) * each}")
        some = torch.from_numpy(inputs[start : start + batch]).to(device)
        streams = [
            residual_stream(m, f, some, dropped) for m, f in zip(models, families, strict=True)
        ]
        found = found or [Correlation() for _ in streams[0]]
        for correlation, a, b in zip(found, *streams, strict=True):
            correlation.add(a, b)
    return torch.stack([correlation.result() for correlation in found]).float().numpy()
