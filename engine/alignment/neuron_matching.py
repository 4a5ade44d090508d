"""The neurons of one layer of two models scored, matched, and given their factors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine.alignment.neuron_pairs import Layer
from engine.alignment.neuron_scores import (
    Flipped,
    Score,
    alike,
    matched,
    neuron_factors,
    published,
    reading_alike,
    reading_factors,
    runners_up,
)
from engine.axes import Mark
from engine.groups import Monomial
from engine.records import Assignment, Compared

Rows = Mapping[Mark, Tensor]
Spread = tuple[np.ndarray, np.ndarray]
"""Standard deviations of A's and of B's neurons."""


@dataclass(frozen=True)
class Scored:
    """The neurons of one layer, or expert, compared and matched."""

    compared: Compared
    score: Score
    flipped: Flipped
    rows: np.ndarray
    match: Assignment
    factor: np.ndarray
    second: np.ndarray
    second_factor: np.ndarray
    published: np.ndarray


def scored(
    here: Layer,
    expert: int | None,
    correlation: np.ndarray | None = None,
    spread: Spread | None = None,
) -> Scored:
    """Score, matching, factors and runners-up, from weights or from the correlation of activations.

    Without a `spread` what activations say of a factor is its sign.
    """
    both, group = here.both, here.both.group
    x, y = here.rows(expert)
    if correlation is not None:
        compared, (score, flipped) = "correlation", by_ear(group, correlation)
    elif both.same:
        compared, (score, flipped) = "inputs", reading_alike(group, x)
    else:
        compared, (score, flipped) = "invariant", alike(group, x, y)
    rows, match = matched(score, flipped, same=both.same)
    second = runners_up(score, rows, match.permutation)

    def factors(order: np.ndarray) -> np.ndarray:
        if correlation is not None:
            return heard_factors(group, flipped, spread, rows, order)
        if both.same:
            return reading_factors(group, x, torch.from_numpy(order)).numpy()
        pair = ({mark: z[mark][:, k] for mark in z} for z, k in ((x, rows), (y, order)))
        return neuron_factors(group, *pair).numpy()

    factor = factors(match.permutation)
    order = match.permutation if both.same else published(*here.rows(expert, folded=False))[rows]
    return Scored(
        compared=compared,
        score=score,
        flipped=flipped,
        rows=rows,
        match=replace(match, sign=np.where(factor < 0, -1, 1).astype(np.int8)),
        factor=factor,
        second=second,
        second_factor=factors(second),
        published=order,
    )


def by_ear(group: Monomial, correlation: np.ndarray) -> tuple[Score, Flipped]:
    """|C| where a factor may be negative, else C."""
    return (np.abs(correlation), correlation < 0) if group.signs else (correlation, None)


def heard_factors(
    group: Monomial, flipped: Flipped, spread: Spread | None, rows: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """sign C · σ_A / σ_B of each pair, as far as the group has signs and scales."""
    sign = np.ones(len(rows)) if flipped is None else np.where(flipped[rows, order], -1.0, 1.0)
    if spread is None or not group.scales:
        return sign
    a, b = spread[0][rows], spread[1][order]
    return sign * np.where((a > 0) & (b > 0), a / np.maximum(b, 1e-300), 1.0)
