"""What whole stacks of a model's layers cost: maps of pairs, candidates for a cut, training."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

Quantity = Literal["kl", "loss", "agreement"]
Aggregate = Literal["mean", "last"]
Test = Literal[
    "replace", "swap", "average", "skip", "replace-healed", "swap-healed", "delete", "delete-healed"
]
PAIRS: tuple[Test, ...] = ("replace", "swap", "average", "skip", "replace-healed", "swap-healed")
"""Tests of two layers. [i, j]: depth i runs layer j (`replace`); both exchanged (`swap`); both
places run the mean of the weights (`average`); layer i's output is given to the successor of j, so
that i + 1 … j are skipped (`skip`, i < j). Healed: each changed depth's update is refit, channel by
channel, to what stood there before, on other text."""
SINGLES: tuple[Test, ...] = ("delete", "delete-healed")
"""Tests of one layer: left out; or its update replaced by the mean of that update."""
RANDOM = "random token ids"
"""The name of what is read where no tokenizer opens: a loss on it says nothing about text."""
DIRECTED: tuple[Test, ...] = ("replace", "replace-healed")
"""Tests of (i, j) that differ from those of (j, i)."""
SYMMETRIC: tuple[Test, ...] = ("swap", "average", "swap-healed")
"""Tests in which i and j play one part; (i, j) of a skip has no (j, i)."""
WINDOWS = 16
"""Fewest text windows from which an interval is drawn."""
DRAWS = 1000


@dataclass(frozen=True)
class Measure:
    """Values with 95 % intervals; nan where not measured, None where there are no intervals."""

    value: np.ndarray  # float64 [*cells]
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class Readings:
    """What modified models give on each window of a text; nan where not measured."""

    kl: np.ndarray  # float32 [*cells, windows]: nats, base ‖ modified, mean over positions
    loss: np.ndarray  # float32 [*cells, windows]: mean next-token loss, nats
    agreement: np.ndarray  # float32 [*cells, windows]: share with the base's likeliest token
    positions: np.ndarray  # int64 [windows]: positions that are read

    def measure(self, quantity: Quantity = "kl") -> Measure:
        """Means over all positions; a percentile bootstrap over windows where there are enough."""
        values = getattr(self, quantity).astype(np.float64)
        mean = means(values, self.positions[None].astype(np.float64))[..., 0]
        if len(self.positions) < WINDOWS:
            return Measure(mean)
        drawn = means(values, self._draws)
        # Draws themselves, not points between them: between two infinite ones there is none.
        ends = np.quantile(drawn, (0.025, 0.975), axis=-1, method="inverted_cdf")
        return Measure(mean, *ends)

    @cached_property
    def _draws(self) -> np.ndarray:
        return resampled(self.positions)


def resampled(positions: np.ndarray) -> np.ndarray:
    """Positions of each window times how often a resample has the window, [draws, windows]."""
    return _times(len(positions)) * positions


@lru_cache(maxsize=8)
def _times(windows: int) -> np.ndarray:
    """How often each resample has each window, [draws, windows]; the same for every record."""
    chosen = np.random.default_rng(0).integers(windows, size=(DRAWS, windows))
    times = np.zeros((DRAWS, windows))
    np.add.at(times, (np.arange(DRAWS)[:, None], chosen), 1.0)
    times.flags.writeable = False
    return times


def means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted means over the windows, [*cells, draws]; a window that is nan is left out."""
    known, finite = ~np.isnan(values), np.isfinite(values)
    total = known.astype(np.float64) @ weights.T
    means = np.where(finite, values, 0.0) @ weights.T / np.where(total > 0, total, np.nan)
    if np.array_equal(known, finite):
        return means
    infinite = (known & ~finite).astype(np.float64) @ (weights.T > 0) > 0
    return np.where(infinite, np.inf, means)


@dataclass(frozen=True)
class Run:
    """On what something was measured."""

    text: str
    tokens: int
    windows: int
    aggregate: Aggregate
    device: str
    dtype: str
    seconds: float


@dataclass(frozen=True)
class LayerMaps:
    """Every test of every pair of layers that was asked for, and what streams alone say."""

    model: str
    fingerprint: str
    family: str
    layers: int
    kinds: tuple[str, ...]  # of each layer; only layers of one kind are exchanged
    first: int  # the layers that were tested, both ends included
    last: int
    reach: int  # largest |i − j| that was tested
    base: Readings  # [windows], of the model as it is
    tests: Mapping[str, Readings]  # [layers, layers, windows] or [layers, windows]
    influence: np.ndarray  # float64 [layers]: 1 − E cos(in, out) (ShortGPT)
    angular: np.ndarray  # float64 [layers + 1, layers + 1]: arccos(cos) / π between depths
    cka: np.ndarray  # float64 [layers + 1, layers + 1]: linear CKA between depths
    passes: int  # layers run, each on the whole text
    bound: int  # different prefixes of the stacks, the fewest that can be run
    whole: int  # layers that whole forwards of the same stacks would run
    complete: bool  # False while the work goes on, or after it was stopped
    run: Run


@dataclass(frozen=True)
class PublishedMaps:
    """Layer distances as a paper published them."""

    name: str
    model: str
    layers: int
    replace: Measure  # [layers, layers]
    swap: Measure | None
    removal: Measure | None  # cost of leaving out each layer, [layers]
    aggregate: str
    note: str  # what differs from the maps made here
    source: str


@dataclass(frozen=True)
class Candidate:
    """One way to choose which layers go: its choices for every budget, measured."""

    by: str
    sets: tuple[tuple[int, ...], ...]  # the layers left out for n = 0, 1, …
    readings: Readings  # [n, windows]
    forwards: int  # stacks that were run to choose them
    stopped: str = ""  # why there is none for larger budgets


@dataclass(frozen=True)
class CutReport:
    """What it costs to leave layers out, for several ways to choose them."""

    model: str
    fingerprint: str
    family: str
    layers: int
    kinds: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    single: Readings  # [layers, windows]: each layer alone left out
    scores: Mapping[str, np.ndarray]  # float64 [layers], low first to go, by way of choosing
    parameters: tuple[int, int]  # of one layer (mean), and of the whole model
    complete: bool
    run: Run


@dataclass(frozen=True)
class CutCost:
    """One set of layers left out."""

    model: str
    fingerprint: str
    dropped: tuple[int, ...]
    base: Readings  # [windows]
    readings: Readings  # [windows]
    run: Run


@dataclass(frozen=True)
class Continuation:
    """What a model writes after a prompt, as it is and with its layers in another order."""

    model: str
    stack: str  # in words
    prompt: str
    before: str
    after: str
    same: int  # tokens until the two part


@dataclass(frozen=True)
class GapStep:
    """Adjacent layers at one saved step of a training, and properties that may go with them."""

    model: str
    step: int
    loss: float  # of the whole model, nats
    replace: Measure  # [layers − 1]: the larger of the two directions
    swap: Measure  # [layers − 1]
    skip: Measure  # [layers − 1]: layer i's output given to the successor of i + 1
    properties: Mapping[str, float]


@dataclass(frozen=True)
class GapTrajectory:
    """How far the two tests lie apart during a training, or over seeds."""

    family: str
    layers: int
    steps: tuple[GapStep, ...]
    complete: bool
    run: Run
