"""Results that were published and the same in kind measured here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

VARIANTS = ("none", "orthogonal", "full")
"""How much of Stage 2 (what is continuous inside the heads) an alignment has."""


@dataclass(frozen=True)
class ScopeRatios:
    """Pairs of one architecture that differ in one scope: barriers relative to the naive line."""

    architecture: str
    scope: str
    pairs: tuple[tuple[str, str], ...]
    naive: np.ndarray  # float64 [pairs]: barrier of the naive line, nats
    relative: np.ndarray  # float64 [variants, pairs, 3]: value, low, high; nan: naive not above 0
    left: np.ndarray  # float64 [pairs, 3]: barrier after the full Stage 2, nats
    difference: np.ndarray  # float64 [pairs, 3]: full less orthogonal, nats, paired
    using: str = "weights"  # what layers were matched by: these, or activations

    def of(self, variant: str) -> np.ndarray:
        """Value, low and high of the pairs that have a ratio, [pairs, 3]."""
        found = self.relative[VARIANTS.index(variant)]
        return found[~np.isnan(found[:, 0])]

    def mean(self, variant: str) -> float:
        """Mean ratio over pairs; nan without any."""
        values = self.of(variant)[:, 0]
        return float(values.mean()) if len(values) else float("nan")


@dataclass(frozen=True)
class OrderTrial:
    """One layer of one pair: the barrier of every order of the heads."""

    architecture: str
    pair: tuple[str, str]
    barrier: np.ndarray  # float64 [orders]
    naive: float
    chosen: int
    ranks: tuple[int, int]  # of the chosen order, from 1: by objective, and by barrier
    using: str = "weights"

    @property
    def lost(self) -> float:
        """100 (chosen − best) / (naive − best) of the barriers; nan if naive is the best."""
        best = float(self.barrier.min())
        gain = self.naive - best
        return 100 * (float(self.barrier[self.chosen]) - best) / gain if gain > 0 else float("nan")


@dataclass(frozen=True)
class Architecture:
    """What the models of a reproduction are."""

    name: str
    kind: str  # decoder or encoder
    positions: str  # absolute or rotary
    asked: str
    data: str
    layers: int
    width: int
    heads: int


@dataclass(frozen=True)
class Connectivity:
    """Barriers between models from different seeds, as measured here."""

    architectures: Mapping[str, Architecture]
    scopes: tuple[ScopeRatios, ...]
    orders: tuple[OrderTrial, ...]
    missing: tuple[str, ...]  # of what was planned
    left_out: tuple[str, ...]
    points: int
    command: str
    seconds: float = 0.0  # that measuring all of it took

    def by(self, using: str) -> "Connectivity":
        """What was measured with layers matched in one way."""
        scopes, orders = (
            tuple(one for one in every if one.using == using)
            for every in (self.scopes, self.orders)
        )
        return replace(self, scopes=scopes, orders=orders)


@dataclass(frozen=True)
class PublishedConnectivity:
    """The same as a paper published it."""

    source: str
    models: str
    data: tuple[str, ...]
    scope: str  # of the ablation
    relative: Mapping[str, tuple[float, float]]  # range over data sets, by variant
    orders: str
    found: Mapping[str, tuple[str, str]]  # by scope: on small and on large data


@dataclass(frozen=True)
class PublishedCoordinates:
    """Numbers on coordinates through training and on transport, as a paper published them."""

    source: str
    trajectory: str
    shares: Mapping[str, float]  # per cent, by way
    transport: str
    moved: Mapping[str, tuple[float, float]]  # without and with signs
