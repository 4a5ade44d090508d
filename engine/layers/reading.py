"""What a last stream means: divergence from the model as it is, loss, agreement, window by window.

With the model's own distribution p at a position, h what the output matrix W is given and b its
bias, KL(p ‖ q) = Σ p log p − (Σ p W) · h − Σ p b + logsumexp(W h + b). What does not depend on h is
computed once, in float64; then a stack costs one product and one logsumexp, in float32 (float64 for
few logits), a part of the vocabulary at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.family import Family
from engine.layers.blocks import Blocks, Stand, State, grafted, headless
from engine.layers.heads import PART, Head, head, summed
from engine.running import OUTPUTS

CHUNK = 2**24
"""Logits of whole distributions that are held at once."""
ROWS = 4096
"""Positions whose logits of a part of the vocabulary are held at once."""
FINE = 2**22
"""Logits of a stack up to which they are computed in float64."""


class Read(NamedTuple):
    """One stack on every window, float64 [windows]; nan where there is nothing to read."""

    kl: Tensor
    loss: Tensor
    agreement: Tensor


@dataclass(frozen=True)
class Where:
    """The positions that are read, and the token that follows each (−1 where none does)."""

    window: Int[Tensor, " rows"]
    position: Int[Tensor, " rows"]
    follows: Int[Tensor, " rows"]
    windows: int

    def rows(self, x: Float[Tensor, "windows positions d"]) -> Float[Tensor, "rows d"]:
        """The positions that are read, one after the other."""
        return x[self.window, self.position]

    def means(self, values: Float[Tensor, " rows"], kept: Bool[Tensor, " rows"]) -> Tensor:
        """The mean of each window over some of its rows."""
        total = torch.zeros(self.windows, dtype=torch.float64, device=values.device)
        count = total.index_add(0, self.window, kept.double())
        summed = total.index_add(0, self.window, torch.where(kept, values.double(), 0.0))
        return summed / count


def where(
    ids: Int[Tensor, "windows positions"] | None,
    kept: Bool[Tensor, "windows positions"],
    *,
    last: bool,
    causal: bool,
) -> Where:
    """Every position that is kept, or the last one of each window."""
    chosen = kept
    if last:
        after = kept.flip(1).cumsum(1).flip(1) == 1
        chosen = kept & after
    window, position = chosen.nonzero(as_tuple=True)
    follows = torch.full_like(window, -1)
    if causal and ids is not None and kept.shape[1] > 1:
        following = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -1)], 1)
        known = torch.cat([kept[:, 1:], torch.zeros_like(kept[:, :1])], 1)
        follows = torch.where(known, following, -1)[window, position]
    return Where(window, position, follows, len(kept))


def outcome(
    model: nn.Module, family: Family, inputs: Mapping[str, Tensor], blocks: Blocks, final: State
) -> Tensor:
    """What a model makes of a last stream: its first output over tokens or classes.

    The stream may hold the first windows only. Errors: Headless for a model without one.
    """
    stand = nn.ModuleList([Stand(blocks, final)])
    named = {name: x[: len(final)] for name, x in inputs.items()}
    with torch.inference_mode():
        found = grafted(model, family.blocks, stand)(**named)
    present = [name for name in OUTPUTS if name in found]
    if not present:
        raise headless(cast(PreTrainedModel, model))
    return found[present[0]]


@dataclass(frozen=True)
class Reader:
    """Reads last streams of one model on given inputs."""

    model: PreTrainedModel
    family: Family
    inputs: Mapping[str, Tensor]
    blocks: Blocks
    at: Where

    def read(self, final: State) -> Read:
        """KL from the model as it is, loss of the next token, share of equal likeliest tokens.

        Infinite where the stream has grown beyond all numbers.
        """
        kl, loss, same = self._rows(final)
        kl, loss = (x.nan_to_num(torch.inf, torch.inf, torch.inf) for x in (kl, loss))
        every = torch.ones_like(same)
        means = self.at.means
        kl = means(kl, every).clamp(min=0)
        return Read(kl, means(loss, self.at.follows >= 0), means(same, every))

    @cached_property
    def head(self) -> Head | None:
        """The head, if its logits are its matrix times what it is given."""
        final = self.blocks.streams[-1][:1]
        return head(self.model, lambda model: self._outcome(model, final))

    def _outcome(self, model: nn.Module, final: State) -> Tensor:
        return outcome(model, self.family, self.inputs, self.blocks, final)

    def _given(self, final: State) -> Float[Tensor, "rows d"]:
        """What the head is given at the rows that are read."""
        return self._picked(self._outcome(self._plain.off(self.model), final))

    def _picked(self, x: Tensor) -> Float[Tensor, "rows d"]:
        """The rows that are read; a classifier has one output for each window."""
        return x[self.at.window] if x.ndim == 2 else self.at.rows(x)

    def _rows(self, final: State) -> tuple[Tensor, Tensor, Tensor]:
        """KL, loss, and whether the likeliest token is the model's own, at every row."""
        if self.head is None:
            logits = self._picked(self._outcome(self.model, final))
            parts = [self._from_logits(logits[some], some) for some in self._split(self._whole)]
        else:
            given = self._given(final)
            parts = [self._chunk(given[some], some) for some in self._split(ROWS)]
        kl, loss, same = (torch.cat(part) for part in zip(*parts, strict=True))
        return kl, loss, same

    def _split(self, size: int) -> Iterator[Tensor]:
        """Row numbers, some at once."""
        yield from torch.arange(len(self.at.window), device=self.at.window.device).split(size)

    @property
    def _whole(self) -> int:
        """Rows of which whole distributions may be held."""
        module = self.model.get_output_embeddings()
        return max(CHUNK // module.out_features, 1) if isinstance(module, nn.Linear) else CHUNK

    def _chunk(self, given: Tensor, some: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The identity, for some rows."""
        own, h = self._own, given.double()
        normal, same = self._normal(given, own.likeliest[some])
        kl = own.constant[some] + normal - (own.pull[some] * h).sum(-1)
        follows = self.at.follows[some].clamp(min=0)
        said = (self._linear.weight[follows].double() * h).sum(-1)
        bias = self._linear.bias
        said = said if bias is None else said + bias[follows].double()
        return kl, normal - said, same

    def _normal(self, given: Tensor, likeliest: Tensor) -> tuple[Tensor, Tensor]:
        """logsumexp(W h + b) in float64, and whether these tokens are the likeliest."""
        few = len(self.at.window) * self._linear.out_features <= FINE
        h = given.double() if few or given.dtype == torch.float64 else given.float()
        found = summed(self._plain, h, likeliest)
        return found.top.double() + found.rest(), found.own == found.top

    @property
    def _linear(self) -> nn.Linear:
        return self._plain.linear

    @property
    def _plain(self) -> Head:
        return cast(Head, self.head)

    @cached_property
    def _own(self) -> "Own":
        final = self.blocks.streams[-1]
        if self.head is None:
            logits = self._picked(self._outcome(self.model, final)).double()
            return Own(logits.log_softmax(-1), logits[:, :0], logits.argmax(-1))
        given = self._given(final).double()
        parts = [self._own_chunk(given[some]) for some in self._split(self._whole)]
        return Own(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _own_chunk(self, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Σ p log p − Σ p b, Σ p W and the likeliest token of some rows, in float64."""
        logits = torch.cat([logits for _, logits in self._plain.products(given)], -1)
        p = logits.softmax(-1)
        constant = torch.special.entr(p).sum(-1).neg()
        weight, bias = self._linear.weight.detach(), self._linear.bias
        if bias is not None:
            constant = constant - p @ bias.double()
        shares = zip(p.split(PART, -1), weight.split(PART), strict=True)
        pull = sum((share @ part.double() for share, part in shares), torch.zeros_like(given))
        return constant, pull, logits.argmax(-1)

    def _from_logits(self, logits: Tensor, some: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same from whole distributions."""
        said = logits.double().log_softmax(-1)
        own = self._own.constant[some]
        kl = (own.exp() * (own - said)).sum(-1)
        loss = -said.gather(-1, self.at.follows[some].clamp(min=0)[:, None])[:, 0]
        return kl, loss, logits.argmax(-1) == self._own.likeliest[some]


class Own(NamedTuple):
    """The model's own distribution at every row: by its sums, or without a product head itself."""

    constant: Tensor  # Σ p log p − Σ p b [rows], or log p [rows, classes]
    pull: Tensor  # Σ p W [rows, d], or nothing
    likeliest: Int[Tensor, " rows"]
