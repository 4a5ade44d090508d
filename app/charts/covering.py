"""Curves of a line that would cover each other in a figure, and what they are called together."""

from collections.abc import Callable, Sequence

import numpy as np

from engine.records import Curve

COVERED = 2e-3
"""Of a figure's height: curves that are nowhere further apart cover each other."""


def covering(curves: Sequence[Curve]) -> list[list[Curve]]:
    """The curves, those together that cover each other in a figure of the loss."""
    losses = [curve.points().value for curve in curves]
    every = np.concatenate([*(x[np.isfinite(x)] for x in losses), np.zeros(0)])
    span = float(np.ptp(every)) if every.size else 0.0
    found: list[list[Curve]] = []
    for curve in curves:
        same = next((one for one in found if _far(one[0], curve) <= COVERED * span), None)
        if same is None:
            found.append([curve])
        else:
            same.append(curve)
    return found


def _far(one: Curve, other: Curve) -> float:
    """The largest distance of two curves, nats; ∞ where one is not whole."""
    if not (one.complete and other.complete):
        return np.inf
    t = np.union1d(one.t, other.t)
    first, second = (np.interp(t, x.t, x.points().value) for x in (one, other))
    gap = np.abs(first - second).max()
    return float(gap) if np.isfinite(gap) else np.inf


def joined(same: Sequence[Curve], name: Callable[[Curve], str]) -> str:
    """One name for curves that cover each other: "=" where they are equal to the last digit."""
    first = same[0]
    equal = all(np.array_equal(one.loss, first.loss) for one in same)
    return (" = " if equal else " ≈ ").join(map(name, same))
