"""One model on one set of windows, ready to run and read stacks of its layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from engine.family import Family
from engine.layers.blocks import Blocks, cut_up
from engine.layers.inputs import Inputs
from engine.layers.reading import Read, Reader, where
from engine.layers.stacks import Healed, Stack
from engine.layers.trie import finals
from engine.records.layers import Aggregate

HELD = 2**29
"""Bytes of the model's own streams that are held at once."""
TOGETHER = {"cpu": 2048}
"""Tokens that siblings run together, by device; elsewhere `MANY`."""
MANY = 16384


@dataclass(frozen=True)
class Session:
    """A model on windows that are read; healed blocks learn from as many others."""

    model: PreTrainedModel
    family: Family
    read_from: Inputs
    learnt_from: Inputs | None
    aggregate: Aggregate = "mean"

    @cached_property
    def blocks(self) -> Blocks:
        """The model's blocks and own streams on the windows that are read."""
        return cut_up(self.model, self.family, self.read_from.named)

    @cached_property
    def _with_others(self) -> Blocks:
        """The same on those windows and, after them, the ones that healed blocks learn from."""
        assert self.learnt_from is not None
        both = self.read_from.joined(self.learnt_from)
        learnt = both.kept.clone()
        learnt[: self.read_from.windows] = False
        return cut_up(self.model, self.family, both.named, learnt)

    @cached_property
    def reader(self) -> Reader:
        """What reads a last stream."""
        at = where(
            self.read_from.ids,
            self.read_from.kept,
            last=self.aggregate == "last",
            causal=self.read_from.causal,
        )
        labels = self.read_from.labels
        if labels is not None:  # every position of a window is asked for the window's class
            at = replace(at, follows=labels[at.window])
        return Reader(self.model, self.family, self.read_from.named, self.blocks, at)

    def width(self, blocks: Blocks) -> int:
        """Siblings that run together."""
        most = TOGETHER.get(self.model.device.type, MANY)
        return max(1, most // blocks.streams[0].shape[:2].numel())

    def base(self) -> Read:
        """The model as it is."""
        return self.reader.read(self.blocks.streams[-1])

    def reads(self, stacks: Sequence[Stack]) -> Iterator[tuple[int, Read, int]]:
        """(number, reading, layers run) of every stack, in the order in which they end."""
        plain = [n for n, stack in enumerate(stacks) if not _heals(stack)]
        healed = [n for n, stack in enumerate(stacks) if _heals(stack)]
        for numbers, name in ((plain, "blocks"), (healed, "_with_others")):
            if numbers:
                blocks, some = getattr(self, name), [stacks[n] for n in numbers]
                for n, final, ran in finals(blocks, some, self.width(blocks)):
                    yield numbers[n], self.reader.read(final[: self.read_from.windows]), ran

    def streams(self) -> list[Float[Tensor, "rows d"]]:
        """The model's own stream at every depth, at positions that are kept."""
        streams = self.blocks.streams
        kept = self.read_from.kept
        if kept.shape != streams[0].shape[:2]:  # an image has as many positions as patches
            return [stream.flatten(0, 1) for stream in streams]
        return [stream[kept] for stream in streams]


def _heals(stack: Stack) -> bool:
    return any(isinstance(block, Healed) for block in stack)


def sessions(
    model: PreTrainedModel,
    family: Family,
    layers: int,
    read_from: Inputs,
    learnt_from: Inputs | None,
    aggregate: Aggregate = "mean",
) -> Iterator[tuple[slice, Session]]:
    """The windows in as few parts as memory allows, each with its session."""
    config = model.config.get_text_config()
    # Beside its streams, a position costs what stands of its whole distribution.
    streams = (layers + 1) * config.hidden_size * model.dtype.itemsize
    each = max(streams, 2 * getattr(config, "vocab_size", 0)) * _positions(model, read_from)
    step = max(1, HELD // each)
    for start in range(0, read_from.windows, step):
        stop = min(start + step, read_from.windows)
        others = None if learnt_from is None else learnt_from.part(start, stop)
        one = Session(model, family, read_from.part(start, stop), others, aggregate)
        yield slice(start, stop), one


def _positions(model: PreTrainedModel, read_from: Inputs) -> int:
    """Positions of the stream of one window; an image has one for each patch, and one more."""
    pixels = read_from.named.get("pixel_values")
    if pixels is None:
        return read_from.kept.shape[1]
    return pixels.shape[-2] * pixels.shape[-1] // int(model.config.patch_size) ** 2 + 1
