"""Which layers go: scores of pairs and of layers, two rules that choose, and how well a score told.

A pair score d(i, j) is a KL in nats, low where two layers stand in for each other; nan means not
measured.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from scipy import stats

How = Literal["max", "mean", "geometric", "min"]
HOWS: tuple[How, ...] = get_args(How)
STRONG, CONDITIONAL = 0.05, 0.10
"""Nats: below the first, a strong stand-in; from there to below the second, a conditional one."""
FEWEST = 3
"""Layers below which no correlation of ranks is given."""

Regime = Literal["both low", "swap low, replace high", "replace low, swap high", "both high"]
REGIMES: dict[str, str] = {
    "both low": (
        "Each layer does the other's work: either may run twice, and their order is free."
    ),
    "swap low, replace high": (
        "Their order is free but both are needed: running one of them twice is not the same."
    ),
    "replace low, swap high": (
        "One of them may run twice, yet their order matters: both together are not symmetric."
    ),
    "both high": "Neither stands in for the other, and their order matters.",
}


def pair_score(d: np.ndarray, how: How = "max") -> np.ndarray:
    """d(i, j) from both directions, symmetric; Garcia takes the larger.

    d: [layers, layers]. A pair with one direction missing has no score, unless one direction is all
    that was measured of any pair: then that one is the score.
    """
    here, there = np.asarray(d, np.float64), np.asarray(d, np.float64).T
    off = ~np.eye(len(here), dtype=bool)
    both = ~np.isnan(here) & ~np.isnan(there)
    if not (both & off).any():
        return np.where(np.isnan(here), there, here)
    if how == "max":
        return np.where(both, np.fmax(here, there), np.nan)
    if how == "min":
        return np.where(both, np.fmin(here, there), np.nan)
    if how == "mean":
        return (here + there) / 2
    # A KL that rounding left below 0 is 0.
    return np.sqrt(np.maximum(here, 0.0)) * np.sqrt(np.maximum(there, 0.0))


def layer_scores(pairs: np.ndarray) -> np.ndarray:
    """s(i) = min over j ≠ i of d(i, j) (Garcia); nan for a layer without a scored pair."""
    apart = np.where(np.eye(len(pairs), dtype=bool), np.nan, np.asarray(pairs, np.float64))
    known = ~np.isnan(apart)
    least = np.where(known, apart, np.inf).min(axis=1, initial=np.inf)
    return np.where(known.any(axis=1), least, np.nan)


def greedy(scores: np.ndarray, n: int, *, spaced: bool = True) -> tuple[int, ...]:
    """The n layers with the lowest scores, in the order in which they go; fewer if there are none.

    Ties go to the lower index; with `spaced`, |i − k| > 1 for every two of them (Garcia).
    """
    chosen: list[int] = []
    for i in np.argsort(scores, kind="stable").tolist():
        free = not spaced or all(abs(i - k) > 1 for k in chosen)
        if len(chosen) < n and free and not np.isnan(scores[i]):
            chosen.append(i)
    return tuple(chosen)


def contiguous(angular: np.ndarray, n: int) -> tuple[int, ...]:
    """The n successive layers whose input and output are nearest in angle (Gromov et al.).

    angular: [layers + 1, layers + 1], between depths. Ties go to the earlier block.
    """
    starts = len(angular) - n
    if n == 0 or starts < 1:
        return ()
    first = int(np.argmin([angular[start, start + n] for start in range(starts)]))
    return tuple(range(first, first + n))


def regime(replace: float, swap: float, limit: float = CONDITIONAL) -> Regime | None:
    """Which of the two tests find a pair alike, below `limit` nats; None where one is missing."""
    if np.isnan(replace) or np.isnan(swap):
        return None
    if replace < limit and swap < limit:
        return "both low"
    if swap < limit:
        return "swap low, replace high"
    return "replace low, swap high" if replace < limit else "both high"


def strength(value: float) -> str:
    """A KL in the published words: strong, conditional, or neither."""
    if np.isnan(value):
        return "not measured"
    return "strong" if value < STRONG else "conditional" if value < CONDITIONAL else "neither"


def spearman(scores: Sequence[float] | np.ndarray, cost: np.ndarray) -> tuple[float, int]:
    """Correlation of the ranks of a score and of a measured cost, and over how many layers.

    An infinite cost has a rank. nan with fewer than three layers, or where either is constant.
    """
    x, y = np.asarray(scores, np.float64), np.asarray(cost, np.float64)
    both = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[both], y[both]
    if len(x) < FEWEST or len(np.unique(x)) == 1 or len(np.unique(y)) == 1:
        return float("nan"), len(x)
    return float(np.asarray(stats.spearmanr(x, y))[0]), len(x)
