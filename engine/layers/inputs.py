"""On what stacks of layers are run: windows of a text, of token ids, or random images."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Bool
from torch import Tensor

from engine import network, texts
from engine.checkpoint import Checkpoint
from engine.errors import Refused
from engine.records.layers import RANDOM
from engine.running import decodes, random_inputs


class Asked(Protocol):
    """What a question says of its inputs."""

    @property
    def tokens(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def device(self) -> str: ...


@dataclass(frozen=True)
class Inputs:
    """Windows of one kind of input, by the names under which the model takes them."""

    named: Mapping[str, Tensor]
    kept: Bool[Tensor, "windows positions"]  # False where a window is filled up
    causal: bool  # the model predicts each next token
    what: str

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self.kept)

    @property
    def ids(self) -> Tensor | None:
        """The token ids, for a model of tokens."""
        return self.named.get("input_ids")

    def part(self, start: int, stop: int) -> "Inputs":
        """Some of the windows."""
        named = {name: x[start:stop] for name, x in self.named.items()}
        return replace(self, named=named, kept=self.kept[start:stop])

    def joined(self, other: "Inputs") -> "Inputs":
        """These windows, and others after them."""
        names = self.named.keys() & other.named.keys()
        named = {name: torch.cat([self.named[name], other.named[name]]) for name in names}
        return replace(self, named=named, kept=torch.cat([self.kept, other.kept]))


def inputs(checkpoint: Checkpoint, asked: Asked, times: int = 1) -> Inputs:
    """The windows that a question asks for, `times` as many of them.

    Images are random. Where the default text cannot be read for want of a tokenizer, token ids are.
    """
    where = network.device(asked.device)
    windows = max(asked.tokens // asked.length, 1) * times
    if checkpoint.family.inputs == "pixels":
        pixels = random_inputs(checkpoint, windows, 1, seed=0).to(where)
        kept = torch.ones(windows, 1, dtype=torch.bool, device=where)
        return Inputs({"pixel_values": pixels}, kept, causal=False, what="random images")
    try:
        ids, kept = texts.padded(checkpoint, asked.text, asked.tokens * times, asked.length)
        what = texts.describe(checkpoint, asked.text)
    except Refused:
        if asked.text != texts.DEFAULT or _speaks(checkpoint):
            raise
        ids = random_inputs(checkpoint, windows, asked.length, seed=0).numpy()
        kept, what = ids >= 0, RANDOM
    named = {"input_ids": torch.from_numpy(ids).to(where)}
    kept = torch.from_numpy(kept).to(where)
    if not bool(kept.all()):
        named["attention_mask"] = kept.long()
    return Inputs(named, kept, decodes(checkpoint), what)


def _speaks(checkpoint: Checkpoint) -> bool:
    """Whether it has a tokenizer."""
    try:
        network.tokenizer(checkpoint)
    except Refused:
        return False
    return True
