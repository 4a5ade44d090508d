"""The FFN neurons of two models: which is which, what excites them, what removing one costs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.records.matches import Assignment, Truth

Compared = Literal["invariant", "inputs", "correlation"]
"""By what neurons are compared: gate and up ⊗ down, or rows in and out, up to the group's elements;
what they read, up to a factor (one model against itself); how they fire together."""
Kind = Literal["alike", "small", "random"]


@dataclass(frozen=True)
class Excited:
    """Where each neuron of a layer fires most on one text, in A and in B.

    A neuron fires with what `down` is given of it. Arrays over neurons are in each model's own
    order, and values as each model has them: B's times its factor is in A's units.
    """

    pieces: tuple[str, ...]  # the tokens of the text, each once
    text: np.ndarray  # int32 [windows, length], which piece stands there
    places: tuple[np.ndarray, np.ndarray]  # int32 [n, top], window · length + position, by modulus
    values: tuple[np.ndarray, np.ndarray]  # float32 [n, top]
    what: str  # which tokens

    def shared(self, i: int, j: int) -> int:
        """How many of the places that excite A's neuron i most excite B's neuron j most."""
        return len(np.intersect1d(self.places[0][i], self.places[1][j]))


@dataclass(frozen=True)
class Spared:
    """What it costs A to do without single neurons of a layer, one entry each.

    Merged: `other` takes over, down_other + factor · down_neuron, as h_neuron ≈ factor · h_other.
    Removed: nothing does. KL(A ‖ A changed) in nats a position, loss less A's own in nats a token.
    """

    kind: tuple[Kind, ...]  # why it was tried: most alike to its other, least norm, at random
    neuron: np.ndarray  # int64 [tried]
    other: np.ndarray  # int64 [tried], the neuron that is most alike
    score: np.ndarray  # float32 [tried], how alike
    factor: np.ndarray  # float64 [tried]
    merged: np.ndarray  # float64 [tried], KL
    removed: np.ndarray  # float64 [tried], KL
    merged_loss: np.ndarray  # float64 [tried], NaN for a model that predicts no next token
    removed_loss: np.ndarray  # float64 [tried]
    what: str  # which tokens


@dataclass(frozen=True)
class NeuronMatch:
    """Which FFN neuron of B is which of A in one layer (and expert), B in A's residual coordinates.

    A's neuron rows[k] is `factor[k]` times B's neuron match.permutation[k]: what B's is given times
    factor, what it gives over factor. All neurons of the smaller layer have a partner. With A = B
    every neuron is its own partner, and `second` is the question: which other one is most alike.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    family: str
    layer: int
    layers: int
    expert: str  # of A: a number, "shared", or empty
    partner: str  # the expert of B that was matched to it
    true_partner: str | None  # the one that was planted; None where no truth is known
    gated: bool
    signs: bool  # may a neuron change its sign?
    scales: bool  # and its scale?
    using: Literal["identity", "weights", "activations"]
    """Where the residual coordinates come from; `identity`: both models are the same one."""
    compared: Compared
    sizes: tuple[int, int]  # neurons of A and of B
    score: np.ndarray
    """float32 [n_A, n_B], where it is below 0 set to 0, with the sign that the pair's factor would
    have: ±1 is one neuron in two bases, 0 two that have nothing in common."""
    rows: np.ndarray  # int64 [m], the neurons of A that have a partner, ascending
    match: Assignment  # over rows
    factor: np.ndarray  # float64 [m]
    second: np.ndarray  # int64 [m], the most alike other neuron of B
    second_score: np.ndarray  # float32 [m]
    second_factor: np.ndarray  # float64 [m]
    published: np.ndarray  # int64 [m], partners by git re-basin's cost, −1 for none
    truth: Truth | None  # over rows
    truth_factor: np.ndarray | None  # float64 [m]
    norm: np.ndarray  # float32 [n_A], ‖up‖ ‖down‖ (rows in, rows out): no factor changes it
    excited: Excited | None  # None where no text could be run
    spared: Spared | None  # A = B only
    notes: tuple[str, ...]  # what differs between A and B, and what was done about it
    tokens: int
    text: str
    device: str
    dtype: str
    seconds: float

    @property
    def same_model(self) -> bool:
        """Are A and B one model?"""
        return self.fingerprints[0] == self.fingerprints[1]

    @property
    def negative(self) -> float | None:
        """Share of pairs with a negative factor; None where there are no signs."""
        return float(np.mean(self.factor < 0)) if self.signs else None

    @property
    def right(self) -> np.ndarray | None:
        """bool [m], partner and sign equal to the truth; None where no truth is known."""
        if self.truth is None:
            return None
        sign = self.match.sign == self.truth.sign
        return self._found & (self.match.permutation == self.truth.permutation) & sign

    @property
    def published_right(self) -> float | None:
        """Share of partners that git re-basin's cost finds; None where no truth is known."""
        if self.truth is None:
            return None
        return float(np.mean(self._found & (self.published == self.truth.permutation)))

    @property
    def scale_error(self) -> float | None:
        """Largest |factor / planted factor − 1| of the pairs that are right; None without any."""
        right = self.right
        if right is None or self.truth_factor is None or not right.any():
            return None
        return float(np.abs(self.factor[right] / self.truth_factor[right] - 1).max())

    @property
    def _found(self) -> bool:
        """Was the right expert compared?"""
        return self.true_partner in {None, self.partner}


@dataclass(frozen=True)
class NeuronLayers:
    """The matching of FFN neurons in every layer in short; experts of a layer count together."""

    a: str
    b: str
    fingerprints: tuple[str, str]
    family: str
    expert: str  # "shared", or empty
    signs: bool
    using: Literal["identity", "weights", "activations"]
    pairs: np.ndarray  # int64 [layers]
    negative: np.ndarray | None  # int64 [layers], pairs with a negative factor; None without signs
    truth: Literal["planted", "identity", "none"]
    right: np.ndarray | None  # float32 [layers], share with partner and sign right
    published: np.ndarray | None  # float32 [layers], share of partners right by git re-basin's cost
    agree: np.ndarray  # float32 [layers], share of partners that both costs choose
    smallest: np.ndarray  # float32 [layers], margin
    median: np.ndarray  # float32 [layers], margin
    mutual: np.ndarray  # float32 [layers], share of pairs that choose each other
    notes: tuple[str, ...]
    tokens: int
    text: str
    device: str
    dtype: str
    seconds: float

    @property
    def negative_share(self) -> float | None:
        """Over all layers."""
        return None if self.negative is None else float(self.negative.sum() / self.pairs.sum())
