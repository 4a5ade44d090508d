"""Two models: are they related at all?"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["same weights", "same function in other coordinates", "same lineage", "unrelated"]
Coordinates = Literal["as they stand", "embedding", "activations", "random"]
"""How B's residual coordinates were put into A's before the neurons were matched."""
LIMIT = -6.0
"""log₁₀ of the largest p that still counts as related."""


@dataclass(frozen=True)
class LineageTest:
    """One test of independence: do two ways to match the neurons tell the same?

    `rho[k]` is Spearman's correlation of both matchings in the k-th pair of layers; `log10_p`
    combines all of them (Fisher), one-sided, without any correction for several tests.
    """

    coordinates: Coordinates
    log10_p: float
    rho: np.ndarray  # float32 [pairs of layers]
    agreeing: np.ndarray  # float32 [pairs of layers], share of neurons matched alike


@dataclass(frozen=True)
class Relatedness:
    """The verdict on two models, and every number that it rests on.

    `p` is the smallest of the tests times the number of tests and of ways to place B's layers in
    A's (Bonferroni), as a power of ten. The last test is a control: a random order and random signs
    of B's residual coordinates, in which related models must look unrelated.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    verdict: Verdict
    log10_p: float
    tests: tuple[LineageTest, ...]
    neurons: tuple[int, int]  # in one layer of A and of B
    depths: tuple[int, int]  # layers of A and of B
    layers: np.ndarray  # int64 [min(depths)], which layer of the deeper model each is
    likeness: np.ndarray | None  # float32 [layers A, layers B], at unequal depth
    furthest: float | None  # largest relative distance of any tensor as the files stand
    logits_between: float | None  # max |logits A − logits B|, None where it was not measured
    logits_scale: float | None  # max |logits A|
    checked_on: str
    device: str
    dtype: str
    seconds: float

    @property
    def related(self) -> bool:
        """Whether the models have common weights in their past."""
        return self.verdict != "unrelated"

    @property
    def p(self) -> float:
        """The corrected p-value; 0 where it is too small for a float."""
        return float(10.0**self.log10_p)
