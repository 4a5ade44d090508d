"""The experts of one layer: which is which, how their neurons match, what merging two costs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.records.words import Word, word


@dataclass(frozen=True)
class Toll:
    """What changes of A cost on a text, one entry a change."""

    kl: np.ndarray  # float64 [changes], mean KL(A ‖ A changed) over positions, nats
    loss: np.ndarray  # float64 [changes], next-token loss less A's own, nats; NaN without one


@dataclass(frozen=True)
class ExpertsReport:
    """Which expert of B is which of A in one layer, both in A's residual coordinates.

    Costs are squared distances over the mean squared size of what is compared: 0 for one expert in
    two bases, near 2 for unrelated ones. With A = B the order is the identity, and the question is
    which two experts coincide, and what it costs to merge them or to remove one.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    family: str
    layer: int
    layers: int
    experts: int
    active: int  # how many a token visits
    neurons: int  # of one expert
    shared: int  # neurons of the expert that every token visits; 0 where there is none
    using: Literal["identity", "weights", "activations"]
    router: np.ndarray  # float32 [experts, experts], rows A: ‖r_i − r_j‖², a common vector left out
    content: np.ndarray  # float32 [experts, experts], Σ over optimally matched neurons
    order: np.ndarray  # int64 [experts], B's expert at each of A's, by both costs together
    by_router: np.ndarray  # int64 [experts], the same by the router's rows alone
    by_content: np.ndarray  # int64 [experts], and by what is inside the experts alone
    second: np.ndarray  # int64 [experts], the cheapest other expert; A = B: by content alone
    margin: np.ndarray  # float32 [experts], (cost of second − cost of chosen) / mean cost
    planted_order: np.ndarray | None  # int64 [experts]; None where no truth is known
    partner: np.ndarray  # int64 [experts], whose neurons are compared: `order`; A = B: `second`
    neuron_order: np.ndarray  # int64 [experts, neurons], the partner's neuron at each of A's
    neuron_factor: np.ndarray  # float64 [experts, neurons], on the partner's up; down is divided
    alike: np.ndarray  # float32 [experts, neurons], ½ (cos gate + cos up · cos down) of a match
    before: np.ndarray  # float64 [experts], ‖A − B‖ / ‖A‖ of an expert's tensors, neurons as stored
    left: np.ndarray  # float64 [experts], the same after order and factors
    usage: np.ndarray | None  # float64 [experts], share of tokens that visit the expert of A
    halfway: Toll | None  # A ≠ B: ½ (A + g B) in one expert; last: in all of them and the router
    halfway_stored: Toll | None  # the same with B's experts and neurons as they are numbered
    removal: Toll | None  # A = B: one expert that no token can visit
    pairs: np.ndarray  # int64 [pairs, 2], A = B: the most alike, nearest content first
    merged: Toll | None  # of a pair: the mean of both in both places, both router rows as they are
    single: Toll | None  # of a pair: the mean of both behind the mean row, the other row gone
    checked_on: str  # which tokens; empty where no model ran
    device: str
    dtype: str
    seconds: float

    @property
    def same_model(self) -> bool:
        """Are A and B one model?"""
        return self.fingerprints[0] == self.fingerprints[1]

    @property
    def cost(self) -> np.ndarray:
        """The table that is solved, float32 [experts, experts]: the mean of both costs."""
        return (self.router + self.content) / 2

    @property
    def right(self) -> float | None:
        """Share of experts whose partner is the planted one."""
        if self.planted_order is None:
            return None
        return float(np.mean(self.order == self.planted_order))

    @property
    def same_weights(self) -> Word:
        """Are all experts equal to their partners after what was done?"""
        return word(float(self.left.max()))

    @property
    def nearest(self) -> tuple[int, int]:
        """The two experts of one model whose contents are nearest."""
        first, second = self.pairs[0]
        return int(first), int(second)
