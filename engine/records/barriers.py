"""The line between two models: curves of loss and accuracy, their barriers, merges."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from engine.records.layers import WINDOWS, Measure, Readings, Run, means, resampled
from engine.records.words import Word, word

Quantity = Literal["loss", "accuracy"]
STAGES = (
    "none", "orders", "res-unsigned", "res", "ffn", "heads", "orthogonal", "all", "refined",
    "random",
)  # fmt: skip
"""Which coordinates of B are A's, in the order of the work. `none`: B as it is; `res-unsigned`: the
order of the residual coordinates alone, signs off; `res`: with signs; `ffn`: and the neurons (and
experts); `heads`: and the order of the heads; `orthogonal`: and inside the heads turns and
orthogonal matrices; `all`: and everything else that the group has; `refined`: its continuous part
moved along the loss half way. `orders`: every order and no sign, factor or angle, found without
signs. `random`: a random element of the whole group, the control."""
SCOPES = ("first-attention", "all-attention", "first-layer", "whole")
"""Which tensors are interpolated, the others fixed at A's; layers such as `3-5` are a scope too."""
ROUNDING = 1e-9
"""Nats; a smaller difference of two losses is what rounding leaves."""
SHALLOW = 1e-5
"""Nats; no valley is said to be where float32 sums alone may put the loss below its chord."""
Target = Literal["next token", "hidden token", "given class", "likeliest class"]
"""What a model is asked for: the next token; a token that was hidden; the class that came with an
input; or, where nothing labels the inputs, the one that A and B together hold for the likeliest."""


@dataclass(frozen=True)
class Curve:
    """One stage: what the models (1 − t) A + t g·B say, window by window.

    The first point is t = 0 and the last t = 1, whatever else is measured yet.
    """

    stage: str  # one of STAGES
    t: np.ndarray  # float64 [points], rising
    loss: np.ndarray  # float64 [points, windows]: mean −log p of what is asked for, nats
    accuracy: np.ndarray  # float64 [points, windows]: share of places where it is the likeliest
    positions: np.ndarray  # int64 [windows]: places that are read
    distance: float  # √(Σ ‖A − g·B‖² / Σ ‖A‖²) over the tensors that are interpolated
    complete: bool  # False while points are missing

    def points(self, quantity: Quantity = "loss") -> Measure:
        """Loss in nats (its exp is the perplexity) or accuracy of every model, [points]."""
        return _measured(getattr(self, quantity), self.positions)

    def chord(self, quantity: Quantity = "loss") -> np.ndarray:
        """(1 − t) × what A has + t × what the other end has, float64 [points]."""
        value = self.points(quantity).value
        return (1 - self.t) * value[0] + self.t * value[-1]

    def excess(self, quantity: Quantity = "loss") -> Measure:
        """How much worse than the chord, [points]: loss − chord, or chord − accuracy."""
        return _measured(self._worse(quantity), self.positions)

    def barrier(self, quantity: Quantity = "loss") -> Measure:
        """sup_t of `excess`, one number, never below 0: both ends are points of the curve.

        The interval resamples windows, the same for every t.
        """
        value = np.asarray(self.excess(quantity).value.max())
        drawn = self.drawn(quantity)
        return Measure(value) if drawn is None else Measure(value, *_ends(drawn))

    def valley(self) -> tuple[float, float] | None:
        """How far below its chord the loss lies at most, nats, and at which t.

        None where the loss is somewhere above the chord, or on it, with both ends left aside.
        """
        inner = self.excess("loss").value[1:-1]
        if not inner.size or inner.max() > -ROUNDING or inner.min() > -SHALLOW:
            return None
        return -float(inner.min()), float(self.t[1 + int(inner.argmin())])

    def peak(self, quantity: Quantity = "loss") -> float:
        """The t at which the curve stands highest above its chord (accuracy: deepest below)."""
        return float(self.t[int(self.excess(quantity).value.argmax())])

    def drawn(self, quantity: Quantity = "loss") -> np.ndarray | None:
        """The barrier of every resample of the windows, [draws]; None where they are too few."""
        if len(self.positions) < WINDOWS:
            return None
        return means(self._worse(quantity), self._resamples).max(axis=0)

    @cached_property
    def _resamples(self) -> np.ndarray:
        return resampled(self.positions)

    def _worse(self, quantity: Quantity) -> np.ndarray:
        values = np.asarray(getattr(self, quantity), np.float64)
        t = self.t[:, None]
        gap = values - ((1 - t) * values[:1] + t * values[-1:])
        return gap if quantity == "loss" else -gap


def _measured(values: np.ndarray, positions: np.ndarray) -> Measure:
    """Means over all places with a 95 % interval over windows, by the rule of `Readings`."""
    return Readings(kl=values, loss=values, agreement=values, positions=positions).measure()


def _ends(drawn: np.ndarray) -> np.ndarray:
    return np.quantile(drawn, (0.025, 0.975), method="inverted_cdf")


@dataclass(frozen=True)
class BarrierReport:
    """The line from A to B at every stage of one alignment."""

    a: str
    b: str
    fingerprints: tuple[str, str]
    family: str
    scope: str  # one of SCOPES, or layers such as "3-5"
    moved: tuple[int, int]  # numbers that are interpolated, and all numbers of A
    shared: bool  # whether A and B are equal outside the scope
    scrambled: bool  # B was first put under a random gauge
    using: str  # what coordinates were matched by
    grid: np.ndarray  # float64: the t of every curve; adaptive points come on top
    curves: tuple[Curve, ...]  # in the order of STAGES; those that are not begun are left out
    target: Target
    models: int  # models that were run on the whole text
    aligning: float  # seconds that were spent on the alignment
    complete: bool  # False while the work goes on, or after it was stopped
    run: Run
    classes: int = 0  # tokens or classes that a model chooses among; 0 in older records

    @property
    def sensed(self) -> bool:
        """Whether layers were matched by what they do: both models hear the same up to them."""
        return self.using == "activations" and self.shared and self.moved[0] < self.moved[1]

    @property
    def blind(self) -> float:
        """The loss of a guess that takes all of them for equally likely, nats; inf if unknown."""
        return float(np.log(self.classes)) if self.classes else np.inf

    def curve(self, stage: str) -> Curve | None:
        """The curve of one stage; None where there is none yet."""
        return next((one for one in self.curves if one.stage == stage), None)

    def relative(self, stage: str, to: str = "none", quantity: Quantity = "loss") -> Measure | None:
        """Barrier of one stage over that of another (the published ablation: over naive).

        The interval resamples the same windows for both. None without both curves, or where the
        other's barrier is 0.
        """
        pair = self.curve(stage), self.curve(to)
        if pair[0] is None or pair[1] is None or not pair[1].barrier(quantity).value > 0:
            return None
        value = np.asarray(pair[0].barrier(quantity).value / pair[1].barrier(quantity).value)
        drawn = pair[0].drawn(quantity), pair[1].drawn(quantity)
        if drawn[0] is None or drawn[1] is None:
            return Measure(value)
        return Measure(value, *_ends(drawn[0] / np.maximum(drawn[1], 1e-300)))

    def difference(self, stage: str, other: str, quantity: Quantity = "loss") -> Measure | None:
        """Barrier of one stage less that of another, paired: the same windows for both.

        An interval that holds 0 tells no order of the two. None without both curves.
        """
        pair = self.curve(stage), self.curve(other)
        if pair[0] is None or pair[1] is None:
            return None
        value = np.asarray(pair[0].barrier(quantity).value - pair[1].barrier(quantity).value)
        drawn = pair[0].drawn(quantity), pair[1].drawn(quantity)
        if drawn[0] is None or drawn[1] is None:
            return Measure(value)
        return Measure(value, *_ends(drawn[0] - drawn[1]))


@dataclass(frozen=True)
class Estimate:
    """What a barrier run will cost, before it begins."""

    text: str
    tokens: int  # of the text, after it was cut into windows
    windows: int
    models: int  # that will be run on all of it, adaptive points not counted
    seconds: float  # of their passes, from one that was timed; the alignment comes on top
    device: str


@dataclass(frozen=True)
class Writing:
    """What the models on the line write after a prompt: the likeliest token, again and again."""

    a: str
    b: str
    stage: str
    scope: str
    prompt: str
    at: np.ndarray  # float64 [n]: t of each
    texts: tuple[str, ...]  # [n]
    same: tuple[int, ...]  # [n]: tokens until it parts from what A writes


@dataclass(frozen=True)
class MergeReport:
    """The model at one t of the line, written as a checkpoint or not.

    As a rule it is a function of its own; `apart` says whether it is here.
    """

    a: str
    b: str
    fingerprints: tuple[str, str]
    family: str
    t: float
    scope: str
    scrambled: bool
    curve: Curve  # its three points: A, the merge, the other end (where t is 0 or 1, two are equal)
    parameters: int
    target: Target
    run: Run

    @property
    def loss(self) -> float:
        """Of the merge, nats."""
        return float(self.curve.points("loss").value[1])

    @property
    def accuracy(self) -> float:
        """Of the merge."""
        return float(self.curve.points("accuracy").value[1])

    @property
    def above(self) -> float:
        """Its loss less the chord's, nats; below 0 where it is better than what it stands between.

        With an interval: `curve.excess("loss")`, point 1.
        """
        return float(self.curve.excess("loss").value[1])

    @property
    def apart(self) -> tuple[float, float]:
        """How far its loss is from A's and from the other end's in the worst window, relative."""
        own, ends = self.curve.loss[1], self.curve.loss[[0, -1]]
        with np.errstate(invalid="ignore"):
            gaps = np.abs(own - ends) / np.maximum(ends, 1e-300)
        first, other = np.nan_to_num(gaps, nan=np.inf).max(axis=1).tolist()
        return first, other

    @property
    def same(self) -> tuple[Word, Word]:
        """Does it compute what A does, and what the other end does? By its loss in each window."""
        first, other = self.apart
        return word(first), word(other)
