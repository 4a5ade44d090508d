"""What the streams of the model as it is say about its layers, with no layer moved."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

MOST = 1024
"""Positions over which CKA is taken: its memory grows with their square."""

Streams = list[Float[Tensor, "rows d"]]


def cosines(a: Float[Tensor, "rows d"], b: Float[Tensor, "rows d"]) -> Float[Tensor, " rows"]:
    """cos of each pair of rows, 0 where one vanishes."""
    return torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=-1, eps=1e-30)


def influence(streams: Streams) -> Float[Tensor, " layers"]:
    """1 − E cos(in, out) of every layer (block influence, ShortGPT; Men et al. 2024)."""
    pairs = pairwise(streams)
    return torch.stack([1 - cosines(a, b).mean() for a, b in pairs])


def angular(streams: Streams) -> Float[Tensor, "depths depths"]:
    """E arccos(cos) / π between the streams at every two depths (Gromov et al. 2024)."""
    found = torch.zeros(len(streams), len(streams), dtype=torch.float64)
    for i, a in enumerate(streams):
        for j in range(i + 1, len(streams)):
            turn = cosines(a, streams[j]).clamp(-1, 1).arccos().mean() / math.pi
            found[i, j] = found[j, i] = float(turn)
    return found


def cka(streams: Streams) -> Float[Tensor, "depths depths"]:
    """Linear CKA ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) of centred streams, as a cosine of their Gram matrices."""
    grams = []
    for stream in streams:
        x = stream[:MOST].double()
        x = x - x.mean(0)
        gram = (x @ x.mT).flatten()
        grams.append((gram / gram.norm().clamp(min=1e-300)).float())
    flat = torch.stack(grams)
    return (flat @ flat.mT).double()
