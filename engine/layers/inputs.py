"""On what models are run: windows of a text or of token ids, images, and the labels of either."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from engine import network, prepared, shared, texts
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
    labels: Int[Tensor, " windows"] | None = None  # the class of each window, where it was given

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
        labels = None if self.labels is None else self.labels[start:stop]
        return replace(self, named=named, kept=self.kept[start:stop], labels=labels)

    def joined(self, other: "Inputs") -> "Inputs":
        """These windows, and others after them."""
        names = self.named.keys() & other.named.keys()
        named = {name: torch.cat([self.named[name], other.named[name]]) for name in names}
        both = [x for x in (self.labels, other.labels) if x is not None]
        labels = torch.cat(both) if len(both) == 2 else None
        return replace(self, named=named, kept=torch.cat([self.kept, other.kept]), labels=labels)


def inputs(
    checkpoint: Checkpoint, asked: Asked, times: int = 1, known: int | None = None
) -> Inputs:
    """The windows that a question asks for, `times` as many of them.

    `known`: how many tokens both of two models have; windows with others are left out.

    Of a file of inputs they are all that it holds. Images are random without one. Where the default
    text cannot be read for want of a tokenizer, token ids are. Errors: Refused for windows that a
    model has no positions for, and as for `engine.texts.tokens`.
    """
    where = network.device(asked.device)
    if prepared.is_prepared(asked.text):
        return common(given(checkpoint, asked.text, where), known)
    windows = max(asked.tokens // asked.length, 1) * times
    if checkpoint.family.inputs == "pixels":
        pixels = random_inputs(checkpoint, windows, 1, seed=0).to(where)
        kept = torch.ones(windows, 1, dtype=torch.bool, device=where)
        return Inputs({"pixel_values": pixels}, kept, causal=False, what="random images")
    length = window(checkpoint, asked)
    try:
        ids, kept = texts.padded(checkpoint, asked.text, asked.tokens * times, length)
        ids = shared.own(checkpoint, ids) if known is None else ids
        what = texts.describe(checkpoint, asked.text, ids) + _rounded(ids, asked, times)
    except Refused:
        if asked.text != texts.DEFAULT or _speaks(checkpoint):
            raise
        ids = random_inputs(checkpoint, windows, length, seed=0, known=known).numpy()
        kept, what = ids >= 0, RANDOM
    every = Inputs(*_padded(ids, kept, where), decodes(checkpoint), what)
    return common(every, known)


def common(every: Inputs, known: int | None) -> Inputs:
    """The windows whose tokens both of two models know. Errors: as for `engine.shared.known`."""
    if every.ids is None or known is None:
        return every
    found = shared.known(every.ids.cpu().numpy(), every.kept.cpu().numpy(), known)
    if found.all():
        return every
    some = torch.from_numpy(found).to(every.kept.device)
    named = {name: x[some] for name, x in every.named.items()}
    labels = None if every.labels is None else every.labels[some]
    what = f"{every.what} ({shared.left_out(found)})"
    return Inputs(named, every.kept[some], every.causal, what, labels)


def window(checkpoint: Checkpoint, asked: Asked) -> int:
    """Tokens of a window: as asked, at most all that are asked for.

    Where nobody named a length it is also at most what the model has positions for; Refused where
    somebody named a longer one.
    """
    longest = prepared.positions(checkpoint)
    if asked.length > longest and asked.length != getattr(type(asked), "length", longest):
        raise Refused(
            f"--length {asked.length:,}: {checkpoint.name} has {longest} positions; give at most "
            f"{longest}."
        )
    return min(asked.length, asked.tokens, longest)


def _rounded(ids: np.ndarray, asked: Asked, times: int) -> str:
    """What whole windows leave of the tokens that were asked for; a file is read to its end."""
    if asked.text.endswith(".json") or ids.size >= asked.tokens * times:
        return ""
    return f" (of {asked.tokens:,} tokens asked for, as many as fill windows of {ids.shape[1]})"


def given(checkpoint: Checkpoint, path: str, where: torch.device) -> Inputs:
    """All windows of a file, with their labels. Errors: Refused as `engine.prepared.read`."""
    found = prepared.read(checkpoint, Path(path))
    labels = None if found.labels is None else torch.from_numpy(found.labels).to(where)
    if checkpoint.family.inputs == "pixels":
        named: dict[str, Tensor] = {"pixel_values": torch.from_numpy(found.main).to(where)}
        kept = torch.from_numpy(found.kept).to(where)
    else:
        named, kept = _padded(found.main, found.kept, where)
    return Inputs(named, kept, decodes(checkpoint), texts.describe(checkpoint, path), labels)


def _padded(
    ids: np.ndarray, kept: np.ndarray, where: torch.device
) -> tuple[dict[str, Tensor], Tensor]:
    """Ids by name, with a mask where windows are filled up, and what is no filling."""
    named, inside = {"input_ids": torch.from_numpy(ids).to(where)}, torch.from_numpy(kept).to(where)
    if not kept.all():
        named["attention_mask"] = inside.long()
    return named, inside


def _speaks(checkpoint: Checkpoint) -> bool:
    """Whether it has a tokenizer."""
    try:
        network.tokenizer(checkpoint)
    except Refused:
        return False
    return True
