"""One layer's attention heads of two models: which is which, and what is left between them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.records.words import Word, word

STEPS = ("before", "order", "orthogonal", "full")
"""The rows of an objective: as stored, heads in order, turns and rotations only, all of Stage 2."""
Cost = Literal["rotary", "product", "published"]
Clothes = Literal["matrix", "exchange", "turn"]


@dataclass(frozen=True)
class HeadCost:
    """A distance of every head of A (rows) from every head of B (columns), stored order.

    `rotary`: Σ_f ‖q_f^A k̄_f^A − q_f^B k̄_f^B‖² over complex rows (with ‖ΔM‖² over channels that are
    not rotated); `product`, where nothing is rotated: ‖ΔM‖² with M = W_qᵀ W_k; `published`: ‖ΔM̄‖²,
    M centred per row, whatever rotates. The second term is ‖ΔN‖², N = W_vᵀ W_oᵀ, in all of them.
    """

    kind: Cost
    query_key: np.ndarray  # float32 [heads, heads]
    value_output: np.ndarray  # float32 [heads, heads]
    balance: tuple[float, float]  # what the two terms are divided by in `total`

    @property
    def total(self) -> np.ndarray:
        """The table that is solved, float32 [heads, heads]: each term over its divisor."""
        return self.query_key / self.balance[0] + self.value_output / self.balance[1]


@dataclass(frozen=True)
class Turns:
    """The rotary frequencies of a layer, per key/value head of A and the head of B matched to it.

    z = r e^{iφ} acts as q → z q, k → k / z̄ on B. The sums run over rows and query heads. Under
    norms of queries and keys (`half_turns`) φ is 0 or π and r is 1.
    """

    angle: np.ndarray  # float64 [grp, frequency], φ in (−π, π]
    log_modulus: np.ndarray  # float64 [grp, frequency], log r
    weight: np.ndarray  # float32 [grp, frequency], share of ‖q_A‖² + ‖k_A‖² of its group, sum 1
    query: np.ndarray  # float64 [grp, frequency], ‖q_B‖²
    key: np.ndarray  # float64 [grp, frequency], ‖k_B‖²
    query_inner: np.ndarray  # float64 [grp, frequency, 2], Re and Im of ⟨q_B, q_A⟩ = Σ q̄_B q_A
    key_inner: np.ndarray  # float64 [grp, frequency, 2], ⟨k_B, k_A⟩
    constant: np.ndarray  # float64 [grp, frequency], ‖q_A‖² + ‖k_A‖²
    half_turns: bool
    planted_angle: np.ndarray | None  # float64 [grp, frequency]; None where no truth is known
    planted_log_modulus: np.ndarray | None

    def objective(
        self, group: int, frequency: int, angle: np.ndarray | float, log_modulus: np.ndarray | float
    ) -> np.ndarray:
        """‖q_A − z q_B‖² + ‖k_A − k_B / z̄‖² of one frequency at any angles (rad) and log moduli.

        = ‖q_A‖² + ‖k_A‖² + ‖q_B‖² r² + ‖k_B‖² / r² − 2 Re((⟨q_B, q_A⟩ r + ⟨k_B, k_A⟩ / r) e^{−iφ}).
        """
        here = group, frequency
        r = np.exp(np.asarray(log_modulus, np.float64))
        s, t = (complex(*x[here]) for x in (self.query_inner, self.key_inner))
        pull = s * r + t / r
        phase = np.exp(-1j * np.asarray(angle, np.float64))
        own = self.query[here] * r**2 + self.key[here] / r**2
        return self.constant[here] + own - 2 * (pull * phase).real

    def best(self, group: int, frequency: int) -> float:
        """The objective at the angle and modulus that were found."""
        here = group, frequency
        found = self.objective(group, frequency, self.angle[here], self.log_modulus[here])
        return float(found)


@dataclass(frozen=True)
class OrderRank:
    """Where the chosen order of heads stands among all orders that keep groups together."""

    orders: int  # how many there are: (heads in a group)!^groups · groups!
    rank: int  # 1 is the best, by the Stage-2 objective of the whole layer
    excess: float | None  # L̂ = 100 (L − L_best) / (L_naive − L_best); None where all are equal
    midpoint_rank: int | None  # the same by the loss of A with this layer half way to B
    midpoint_excess: float | None  # None, all three, with more than 72 orders or without a loss
    midpoint_loss: tuple[float, float, float] | None  # nats: chosen order, best order, as stored


@dataclass(frozen=True)
class Disguise:
    """Every head of a layer of A in other clothes, each with the M = W_qᵀ W_k it had.

    `matrix`: q → G q, k → G⁻ᵀ k with a random invertible G; `exchange`: each rotary frequency in
    the place of another; `turn`: a random element of the group that rotation leaves, a true change
    of basis. Costs between queries and keys, over ‖·‖² of the head: 0 is called the same head.
    """

    kind: Clothes
    published: np.ndarray  # float64 [heads], ‖ΔM̄‖² / ‖M̄‖²
    own: np.ndarray  # float64 [heads], the same by our cost
    error: float | None  # max |Δ log p| / max |log p| of A's output; None where A was not run
    divergence: float | None  # mean KL(A ‖ A in disguise), nats; None without classes

    @property
    def output(self) -> Word:
        """Did the output stay?"""
        return word(self.error)


@dataclass(frozen=True)
class HeadsReport:
    """Which attention head of B is which of A in one layer, both in A's residual coordinates.

    Heads count as stored, head h = group · per_group + place; `order[i]` is B's head at A's head i,
    and arrays over groups are indexed by A's groups. With A = B the order is the identity and
    `second` is the question: which other head is nearest.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    family: str
    layer: int
    layers: int
    groups: int  # key/value heads
    per_group: int  # query heads in each
    head_dim: int
    using: Literal["identity", "weights", "activations"]
    """Where the residual coordinates come from; `identity`: both models are the same one."""
    used: Cost
    own: HeadCost  # rotary or product
    published: HeadCost
    order: np.ndarray  # int64 [heads]
    second: np.ndarray  # int64 [heads], the cheapest other head of B for each head of A
    margin: np.ndarray  # float32 [heads], (cost of second − cost of chosen) / mean cost
    planted_order: np.ndarray | None  # int64 [heads]; None where no truth is known
    stage2: Literal["full", "orthogonal", "none"]  # what `aligned` heads went through
    query_key: np.ndarray  # float64 [4, heads], ‖q_A − U q_B‖² + ‖k_A − U⁻ᵀ k_B‖² by STEPS
    value_output: np.ndarray  # float64 [4, heads], ‖v_A − U v_B‖² + ‖o_A − o_B U⁻¹‖²
    query_key_norm: np.ndarray  # float64 [heads], ‖q_A‖² + ‖k_A‖²
    value_output_norm: np.ndarray  # float64 [heads]; keys and values are shared out in a group
    turns: Turns | None  # None where nothing is rotated
    query_scale: np.ndarray | None  # float64 [heads], factors on B under norms of single heads
    key_scale: np.ndarray | None  # float64 [grp]
    val_singular: np.ndarray  # float64 [grp, channel], of M in V → M V, descending
    qk_singular: np.ndarray | None  # float64 [grp, channel], where channels are not rotated
    rank: OrderRank | None  # None above 8 heads
    removal: np.ndarray | None  # float32 [heads], mean KL(A ‖ A without the head), nats; A = B only
    checked_on: str  # which tokens; empty where no model ran
    disguises: tuple[Disguise, ...]  # A against itself; none where nothing is rotated
    disguised_on: str  # which tokens; empty where no model ran
    device: str
    dtype: str
    seconds: float

    @property
    def heads(self) -> int:
        """Query heads of the layer."""
        return self.groups * self.per_group

    @property
    def same_model(self) -> bool:
        """Are A and B one model?"""
        return self.fingerprints[0] == self.fingerprints[1]

    @property
    def cost(self) -> HeadCost:
        """The cost by which the order was chosen."""
        return self.published if self.used == "published" else self.own

    @property
    def group_order(self) -> np.ndarray:
        """int64 [grp], B's key/value head at each of A's."""
        return self.order.reshape(self.groups, self.per_group)[:, 0] // self.per_group

    @property
    def right(self) -> float | None:
        """Share of heads whose partner is the planted one."""
        if self.planted_order is None:
            return None
        return float(np.mean(self.order == self.planted_order))

    @property
    def query_key_left(self) -> np.ndarray:
        """float64 [heads], relative distance √(objective / ‖A‖²) that `stage2` leaves."""
        return _left(self.query_key[_row(self.stage2)], self.query_key_norm)

    @property
    def value_output_left(self) -> np.ndarray:
        """float64 [heads], the same between V and O."""
        return _left(self.value_output[_row(self.stage2)], self.value_output_norm)

    @property
    def same_weights(self) -> Word:
        """Are all heads equal after what was done?"""
        return word(float(max(self.query_key_left.max(), self.value_output_left.max())))


@dataclass(frozen=True)
class TurnReport:
    """One frequency of one key/value head of aligned B, set by hand to a modulus and an angle.

    The function of B stays; the distance to A, and what lies half way, do not.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    layer: int
    group: int
    frequency: int
    angle: float  # rad
    log_modulus: float
    objective: float  # of this frequency, at the angle and modulus that were set
    best: float  # at those that were found
    kept: float  # max |logits turned B − logits B| / max |logits B|
    midpoint: float  # max |logits A − logits of the middle|, this layer half way to turned B
    midpoint_best: float  # the same with the angle and modulus that were found
    midpoint_loss: float | None  # nats per token, turned; None without a loss over tokens
    midpoint_loss_best: float | None
    checked_on: str
    device: str
    dtype: str
    seconds: float

    @property
    def verdict(self) -> Word:
        """Did B's own output stay?"""
        return word(self.kept)


def _row(stage2: str) -> int:
    return {"none": 1, "orthogonal": 2, "full": 3}[stage2]


def _left(objective: np.ndarray, norm: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(objective, 0) / np.maximum(norm, 1e-300))
