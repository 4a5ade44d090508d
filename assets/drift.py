"""How far residual coordinates drift: matching by activations, at the ends and composed.

For models that come from one another by training the truth is the identity, so the share of
coordinates that a matching leaves in place is its accuracy.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LlamaForCausalLM

from engine.activations import residual_stream
from engine.assignment import solve
from engine.families.llama import FAMILY

Ints = NDArray[np.int64]


def residual(model: LlamaForCausalLM, rows: Tensor) -> Tensor:
    """Standardised input of the final norm, first position of every window dropped: [token, res].

    Columns have mean 0 and norm 1, so that aᵀb is the Pearson correlation.
    """
    taken = [residual_stream(model, FAMILY, batch)[-1].double() for batch in rows.split(32)]
    centred = torch.cat(taken) - torch.cat(taken).mean(0)
    return centred / centred.norm(dim=0)


def matching(first: Tensor, second: Tensor) -> Ints:
    """π that maximises Σ_i |C|[i, π(i)], C the correlations of the two models' coordinates."""
    scores = (first.T @ second).abs().numpy()
    return solve(scores)[0]


def compose(steps: Sequence[Ints]) -> Ints:
    """π = π₂[π₁]: coordinate i of the first model followed through all matchings."""
    followed = np.arange(len(steps[0]))
    for step in steps:
        followed = step[followed]
    return followed


def fixed(order: Ints) -> float:
    """Share of coordinates that a permutation leaves in place."""
    return float((order == np.arange(len(order))).mean())


def drift(first: Sequence[Tensor], base: Tensor, second: Sequence[Tensor]) -> Mapping[str, float]:
    """Accuracy from the last of one branch to the last of the other, three ways.

    `endpoint` matches the two ends; `through_base` goes by way of the base; `composed` follows
    every saved step back to the base and out again. `weakest` is the worst single step.
    """
    chain = [*reversed(first), base, *second]
    steps = [matching(left, right) for left, right in pairwise(chain)]
    around = [matching(first[-1], base), matching(base, second[-1])]
    return {
        "endpoint": fixed(matching(first[-1], second[-1])),
        "through_base": fixed(compose(around)),
        "composed": fixed(compose(steps)),
        "weakest": min(map(fixed, steps)),
    }
