"""Records about the line between two models without an engine: planted hills, chosen noise."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from engine.questions.line import USUAL
from engine.records import (
    STAGES,
    BarrierReport,
    Curve,
    Estimate,
    HeadOrders,
    LossSlice,
    MergeReport,
    Writing,
)
from engine.records.layers import Run

ENDS = (1.0, 1.4)
"""Loss of A and of B."""
HILLS = {
    "none": 3.2, "orders": 3.0, "res-unsigned": 3.1, "res": 2.4, "ffn": 1.8, "heads": 1.3,
    "orthogonal": 0.62, "all": 0.6, "refined": 0.3, "random": 3.3,
}  # fmt: skip
"""How high each stage stands above its chord at its peak, nats."""


def run(windows: int = 16, **more: Any) -> Run:
    given = {"text": "the demo models' own text", "tokens": 128 * windows, "windows": windows,
             "aggregate": "mean", "device": "cpu", "dtype": "float32", "seconds": 21.0}  # fmt: skip
    return Run(**(given | more))


def grid(points: int = 25) -> np.ndarray:
    return np.arange(points) / (points - 1)


GRID = grid()


def curve(
    stage: str,
    hill: float | None = None,
    windows: int = 16,
    t: Sequence[float] | np.ndarray = GRID,
    noise: float = 0.1,
    peak: float = 0.5,
    **more: Any,
) -> Curve:
    """A curve that stands about `hill` above its chord at `peak`; windows differ by `noise`."""
    height = HILLS[stage] if hill is None else hill
    t = np.asarray(t, np.float64)
    draw = np.random.default_rng(0)
    ends, hills = (1 + noise * draw.uniform(-1, 1, windows) for _ in range(2))
    own = np.random.default_rng(1 + STAGES.index(stage) if stage in STAGES else 0)
    hills = hills * (1 + noise / 4 * own.uniform(-1, 1, windows))
    shape = np.where(t <= peak, t / peak, (1 - t) / (1 - peak))
    bump = height * np.sin(np.pi / 2 * np.clip(shape, 0, 1)) ** 2
    chord = (1 - t) * ENDS[0] + t * ENDS[1]
    loss = chord[:, None] * ends + bump[:, None] * hills
    positions = np.full(windows, 127, np.int64)
    accuracy = np.clip(0.7 * np.exp(-(loss - ENDS[0]) / 2), 0, 1)
    given = {"stage": stage, "t": t, "loss": loss, "accuracy": accuracy, "positions": positions,
             "distance": 1.4 if stage in {"none", "random"} else 0.9, "complete": True}  # fmt: skip
    return Curve(**(given | more))


def hill(stage: str, low: float, high: float, peak: int = 2, **more: Any) -> Curve:
    """A hill that is `low` in half of 16 windows and `high` in the others, over 1 to 2 nats.

    A resample of 16 windows holds 4 to 12 of either half in 95 of 100 (binomial), so that the
    interval ends at a quarter and at three quarters of the way from `low` to `high`. The accuracy
    falls by a fifth of that below its chord from 0.75 to 0.5.
    """
    t = np.linspace(0, 1, 5)
    chord, worse = 1 + t[:, None], np.zeros((5, 16))
    worse[1:4] = np.tile([low, high], 8) / 2
    worse[peak] *= 2
    given = {
        "stage": stage, "t": t, "loss": chord + worse, "accuracy": 1 - chord / 4 - worse / 5,
        "positions": np.full(16, 127), "distance": 1.0, "complete": True,
    }  # fmt: skip
    return Curve(**(given | more))


def report(
    stages: Sequence[str] = USUAL, windows: int = 16, points: int = 25, **more: Any
) -> BarrierReport:
    """Two models of other draws: a hill that the alignment lowers and does not remove."""
    hills = more.pop("hills", {})
    made = tuple(curve(one, hills.get(one), windows, grid(points)) for one in stages)
    given = {
        "a": "base", "b": "seed-1", "fingerprints": ("a" * 16, "b" * 16), "family": "Llama",
        "scope": "whole", "moved": (650_000, 650_000), "shared": True, "scrambled": False,
        "using": "weights", "grid": grid(points), "curves": made, "target": "next token",
        "models": 2 + len(made) * (points - 2), "aligning": 1.2, "complete": True,
        "run": run(windows),
    }  # fmt: skip
    return BarrierReport(**(given | more))


def twin(stages: Sequence[str] = USUAL) -> BarrierReport:
    """The same function: nothing is left once all coordinates are matched."""
    return report(stages, b="twin", hills={"all": 3e-7, "heads": 2.0, "orthogonal": 1e-6})


def partial(stages: Sequence[str] = USUAL) -> BarrierReport:
    """The raw line whole, the next stage begun, no more."""
    whole = report(stages)
    begun = curve("res-unsigned", t=(0.0, 0.25, 0.5, 1.0), complete=False)
    return replace(whole, curves=(whole.curves[0], begun), complete=False)


def scoped(*, shared: bool = True, scope: str = "first-attention") -> BarrierReport:
    """Only some tensors move; unless they share the rest, the other end is not B."""
    found = report(scope=scope, moved=(40_000, 650_000), shared=shared)
    if shared:
        return found
    tilted = [
        replace(one, loss=one.loss + one.t[:, None] * number)
        for number, one in enumerate(found.curves)
    ]
    return replace(found, curves=tuple(tilted))


def estimate(seconds: float = 42.0) -> Estimate:
    return Estimate("the demo models' own text", 2048, 16, 163, seconds, "cpu")


def writing(at: Sequence[float] = (0.0, 0.5, 1.0), stage: str = "all") -> Writing:
    texts = tuple(f" on the table, at {t:g}." for t in at)
    same = tuple(24 if t == 0 else 3 for t in at)
    return Writing(
        "base", "seed-1", stage, "whole", "Anna puts the book", np.array(at), texts, same
    )


def merge(t: float = 0.5, stage: str = "all", hill: float = 0.6, windows: int = 16) -> MergeReport:
    three = curve(stage, hill, windows, (0.0, t, 1.0), peak=t)
    return MergeReport(
        "base", "seed-1", ("a" * 16, "b" * 16), "Llama", t, "whole", False, three, 650_000,
        "next token", run(windows),
    )  # fmt: skip


def plane(points: int = 11, *, complete: bool = True) -> LossSlice:
    """A bowl around A and one around aligned B, B outside."""
    x = y = np.linspace(-0.3, 1.2, points)
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 0.5]])
    far = np.hypot(*(np.stack(np.meshgrid(x, y))[:, None] - places[[0, 2]].T[:, :, None, None]))
    loss = 1 + 4 * far.min(axis=0)
    if not complete:
        loss[points // 2 :] = np.nan
    return LossSlice(
        "base", "seed-1", "all", x, y, loss, np.exp(-loss), places, 31.0, "next token", complete,
        run(),
    )  # fmt: skip


def orders(heads: int = 3, measured: int | None = None, chosen: int = 0) -> HeadOrders:
    """Every order of a few heads; the chosen one costs least and stands lowest."""
    every = tuple(permutations(range(heads)))
    hills = 0.2 + 0.1 * np.arange(len(every))
    count = len(every) if measured is None else measured
    curves = tuple(
        replace(curve("all", hill, t=grid(5)), stage=" ".join(map(str, order)))
        for hill, order in zip(hills[:count], every, strict=False)
    )
    return HeadOrders(
        "base", "seed-1", 0, every, 5.0 + np.arange(len(every)), chosen, curves,
        curve("none", 1.5, t=grid(5)), count == len(every), run(),
    )  # fmt: skip
