"""Output matrices whose logits need not be held: a part of the vocabulary at a time.

Where logits are W h + b and nothing else, their maximum and their sum of exponentials are taken
part by part, while each part is in the processor's cache.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.layers.blocks import grafted, path_of

PART = 2048
"""Tokens whose logits are held at once."""
AGREE = 1e-3
"""Largest relative error of logits that are the output matrix times what it is given."""
LOUDER = 256
"""How many times as large logits are made to see it: a soft cap shows in large ones only."""


@dataclass(frozen=True)
class Head:
    """A head that does nothing but W h + b."""

    path: str
    linear: nn.Linear

    def off(self, model: PreTrainedModel) -> nn.Module:
        """The model without it: what it would be given comes out in place of logits."""
        return grafted(model, self.path, nn.Identity())

    def products(self, h: Float[Tensor, "rows d"]) -> Iterator[tuple[int, Tensor]]:
        """W h + b of some tokens at once, and the first of these tokens."""
        weight, bias = self.linear.weight.detach(), self.linear.bias
        for start in range(0, len(weight), PART):
            logits = h @ weight[start : start + PART].to(h.dtype).mT
            yield start, logits if bias is None else logits + bias[start : start + PART].to(h.dtype)


def head(model: PreTrainedModel, run: Callable[[nn.Module], Tensor]) -> Head | None:
    """The head of a model; None if it does more (a soft cap) or is another kind of module.

    `run`: a model like this one → its first output on a few inputs.
    """
    module = model.get_output_embeddings()
    if not isinstance(module, nn.Linear):
        return None
    found = Head(path_of(model, module), module)
    given = run(found.off(model))
    plain = run(grafted(model, found.path, nn.Sequential(module, Louder()))).float()
    with torch.inference_mode():
        gap = (LOUDER * module(given).float() - plain).abs().max()
    return found if gap <= AGREE * plain.abs().max() else None


class Louder(nn.Module):
    """Logits many times as large."""

    def forward(self, logits: Tensor) -> Tensor:
        """Times `LOUDER`."""
        return LOUDER * logits


class Sums(NamedTuple):
    """Of the logits of every row, by parts p: log Σ exp l = top + log Σₚ totalₚ exp(topₚ − top)."""

    tops: Float[Tensor, "parts rows"]  # the largest logit of each part
    totals: Float[Tensor, "parts rows"]  # Σ exp(l − the part's largest)
    own: Float[Tensor, " rows"]  # the logit of the token that was asked for

    @property
    def top(self) -> Float[Tensor, " rows"]:
        """The largest logit."""
        return self.tops.amax(0)

    def rest(self) -> Float[Tensor, " rows"]:
        """log Σ exp(l − top), float64."""
        lower = self.tops.double() - self.top.double()
        return (self.totals.double() * lower.exp()).sum(0).log()


def summed(head: Head, h: Float[Tensor, "rows d"], wanted: Int[Tensor, " rows"]) -> Sums:
    """The sums of logits that are never held together, and the logit of a token in each row."""
    own = h.new_full((len(h),), torch.nan)
    tops, totals = [], []
    for start, logits in head.products(h):
        place = wanted - start
        inside = (place >= 0) & (place < logits.shape[-1])
        here = logits.gather(-1, torch.where(inside, place, 0)[:, None])[:, 0]
        own = torch.where(inside, here, own)
        tops.append(logits.amax(-1))
        totals.append(logits.sub_(tops[-1][:, None]).exp_().sum(-1))
    return Sums(torch.stack(tops), torch.stack(totals), own)
