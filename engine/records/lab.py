"""What an experiment of the lab did, inside and at the output."""

from dataclasses import dataclass, field

import numpy as np

from engine.records.words import Word, word


def _none() -> np.ndarray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True)
class TensorChange:
    """One tensor that an experiment changed."""

    name: str
    axes: str  # the row of the table that was applied
    change: float  # ‖after − before‖ / ‖before‖


@dataclass(frozen=True)
class Effect:
    """What an experiment did to the output, on the same tokens."""

    logits: float  # max |logits after − before|; a common shift of them nobody can observe
    largest: float  # max |log p after − before|
    error: float  # the same over max |log p before|
    divergence: float  # mean KL(before ‖ after) over positions, nats
    agreement: float  # share of positions whose most likely token is unchanged
    tokens: str  # which tokens


@dataclass(frozen=True)
class Experiment:
    """One turn of the dial in the lab: what moved inside, and what came out.

    `weight_*` is the changed tensor to look at, reduced to a window; `hidden_*` what the model
    computes in the coordinate, rows token positions, columns the coordinate's channels.
    """

    model: str
    fingerprint: str
    preset: str
    title: str
    says: tuple[str, str]  # what is done; what it shows
    holds: bool  # what the theory says: the output stays
    symmetry: bool  # False for prunings and averages, which nobody calls one
    coordinate: str
    layer: int | None
    draw: str
    seed: int
    severity: float
    element: str  # the change in words: "3 → 17, 17 → 3; sign of 5"
    tensors: tuple[TensorChange, ...]
    weight: str  # name and axes of the tensor shown
    weight_before: np.ndarray  # float16 [rows, columns]
    weight_after: np.ndarray
    hidden: str  # which activations; empty where there are none to show
    hidden_before: np.ndarray  # float16 [positions, channels]
    hidden_after: np.ndarray
    order: np.ndarray  # int32 [channels]: old position of each channel; empty where none moved
    equivariance: float | None  # ‖h(g θ) − g h(θ)‖ / ‖h(θ)‖: did the hidden state follow g?
    pieces: tuple[str, ...]  # the text, one piece a position
    effect: Effect
    device: str
    dtype: str
    seconds: float
    channels: np.ndarray = field(default_factory=_none)  # int32 [channels], which are shown
    positions: np.ndarray = field(default_factory=_none)
    """int32: the old place of each token of the first window; empty where none moved."""
    approximate: bool = False  # holds only up to the ε inside a norm

    @property
    def verdict(self) -> Word:
        """Did the output stay? *exact* only if something moved."""
        return word(self.effect.error) if self.moved else "not measured"

    @property
    def moved(self) -> bool:
        """Whether anything was changed at all."""
        return bool(self.tensors) or bool(self.positions.size)

    @property
    def as_expected(self) -> bool:
        """Whether the measurement says what the theory says; nothing that moved denies nothing."""
        if self.verdict == "not measured":
            return True
        kept = {"exact", "approximate"} if self.approximate else {"exact"}
        return (self.verdict in kept) == self.holds
