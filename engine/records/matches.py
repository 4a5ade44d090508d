"""Two models against each other: matchings and alignments."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.records.words import TOLERANCE, Word, word


@dataclass(frozen=True)
class Assignment:
    """A matching of B's coordinates to A's: aligned[i] = sign[i] · B[permutation[i]]."""

    permutation: np.ndarray  # int64 [n]
    sign: np.ndarray  # int8 [n], ±1
    score: np.ndarray  # float32 [n], |C|[i, π(i)] (signed variant: C[i, π(i)])
    margin: np.ndarray  # float32 [n], score minus the best alternative of row i
    mutual: np.ndarray  # bool [n], row i and column π(i) choose each other
    shortcut: bool  # the row maxima already formed a permutation: optimal without a solver


@dataclass(frozen=True)
class Truth:
    """The gauge that was planted, or the identity where both models share a lineage."""

    kind: Literal["planted", "identity"]
    permutation: np.ndarray  # int64 [n]
    sign: np.ndarray  # int8 [n]

    @property
    def positive_share(self) -> float:
        """Share of + signs: the ceiling of any matching that ignores signs."""
        return float(np.mean(self.sign > 0))


@dataclass(frozen=True)
class ResidualMatch:
    """Which residual coordinate of B is which of A, at every depth (0 = embedding) and pooled.

    `correlation[k]` is C of depth `depths[k]`, float32 [d, d], rows A, columns B; the last entry is
    the mean over depths ("pooled"). `absolute[k]` solves |C|, `signed[k]` solves C itself,
    `unsigned[k]` solves C and keeps every sign + (what a permutation-only method returns).
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    using: Literal["activations", "weights"]
    depths: tuple[str, ...]  # "embedding", "after layer 0", …, "pooled"
    correlation: np.ndarray  # float32 [depths, d, d]
    absolute: tuple[Assignment, ...]
    signed: tuple[Assignment, ...]
    truth: Truth | None
    signed_accuracy: np.ndarray | None  # float32 [depths], share of π right, signed matching
    absolute_accuracy: np.ndarray | None  # share of π right, absolute matching
    sign_accuracy: np.ndarray | None  # share of π and sign right, absolute matching
    tokens: int
    text: str
    device: str
    dtype: str
    seconds: float


@dataclass(frozen=True)
class StageReport:
    """One stage of an alignment, in words and numbers."""

    coordinate: str
    solved: int  # how many index sets were solved
    right: float | None  # share of elements equal to the truth (None: no truth known)
    margin: float | None  # smallest relative one of all index sets (None: no choice of order)
    flipped: int | None  # how many factors are negative (None: no factors)
    before: float  # relative distance ‖A − B‖ / ‖A‖ over the tensors that carry it, before
    after: float  # and after


@dataclass(frozen=True)
class LayerStage:
    """What one stage did in one layer, in A's residual coordinates."""

    layer: int | None  # None: what belongs to no layer
    coordinates: str  # "grp head", "rot", …
    before: float  # relative distance ‖A − B‖ / ‖A‖ over the tensors that carry them, before
    after: float  # and after
    margin: float | None  # relative; None where there is no choice of order
    taken: float | None = None  # by how much Σ ‖A − B‖² fell


@dataclass(frozen=True)
class Sweep:
    """One sweep (`engine.alignment.sweeps`): the objective on arrival and after."""

    start: str  # "identity", "embedding", "activations", "perturbed 1", …
    number: int
    before: float
    after: float
    distance: float  # its part that is the distance of weights
    seconds: float


@dataclass(frozen=True)
class Midpoint:
    """The model half way between A and g · B, at one stage of an alignment."""

    stage: str  # "unaligned", "with ffn" (and all before it), "refined", …
    loss: float  # mean −log p of each next token on held-out text, nats
    above: float  # minus the mean of A's and B's own loss


@dataclass(frozen=True)
class AlignmentProgress:
    """An alignment as far as it has come."""

    a: str
    b: str
    steps: tuple[LayerStage, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    losses: tuple[tuple[float, ...], ...] = ()  # half way, nats: of each refinement, step by step

    @property
    def parts(self) -> int:
        """How much there is."""
        return len(self.steps) + len(self.sweeps) + sum(map(len, self.losses))


@dataclass(frozen=True)
class AlignmentReport:
    """B in A's coordinates: what was found, how far the tensors are apart, and the fresh check.

    A gauge changes weights, never the function: twins have equal logits before any alignment, and
    no alignment brings two different functions together. What alignment does change is the distance
    of the weights and everything in between, so the check also runs the mean of both models.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    using: Literal["activations", "weights"]
    signs: bool
    width: int
    flipped: int  # residual coordinates with sign −1
    recovered: float | None  # share of residual coordinates equal to the truth (π and sign)
    unreachable: float | None  # signs off: share of coordinates that cannot be right
    stages: tuple[StageReport, ...]
    tensors: tuple[str, ...]
    before: np.ndarray  # float32 [tensors], ‖A − B‖ / ‖A‖
    after: np.ndarray  # float32 [tensors]
    logits_between: float | None  # max |logits A − logits B|: alignment cannot change it
    logits_kept: float | None  # max |logits B − logits aligned B|: the gauge kept the function
    midpoint_before: float | None  # max |logits A − logits of ½ (A + B)|
    midpoint_after: float | None  # max |logits A − logits of ½ (A + aligned B)|
    logits_scale: float | None  # max |logits A|
    checked_on: str  # which tokens the logits were compared on
    device: str
    dtype: str
    seconds: float
    steps: tuple[LayerStage, ...] = ()  # layer by layer, in the order in which they were solved
    sweeps: tuple[Sweep, ...] = ()  # of every start, in order
    midpoints: tuple[Midpoint, ...] = ()  # where a refinement was asked for
    norms: np.ndarray | None = None  # float32 [tensors], ‖A‖
    notes: tuple[str, ...] = ()  # what differs between the files, and what was done about it

    @property
    def kept(self) -> Word:
        """Did putting B into A's coordinates leave B's own function alone?"""
        return _relative(self.logits_kept, self.logits_scale)

    @property
    def same_function(self) -> Word:
        """Do A and B compute the same? Their logits say so, in whatever coordinates they are."""
        return _relative(self.logits_between, self.logits_scale)

    @property
    def same_weights(self) -> Word:
        """Is every tensor of aligned B the one of A?"""
        return word(float(self.after.max()))

    @property
    def moved(self) -> bool:
        """Were the weights different at all before?"""
        return bool(self.before.max() > TOLERANCE)


def _relative(difference: float | None, scale: float | None) -> Word:
    return word(None if difference is None or not scale else difference / scale)
