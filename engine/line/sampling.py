"""Where on a line a curve is measured: an even grid, coarse before fine, then where it bends."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

EXTRA = 12
"""Most points that are added to a curve."""
FINEST = 16
"""Parts of a spacing of the grid below which no point is added."""
HOLLOW = 0.25
"""What a bend counts where the curve is hollow: the highest point is sought, and none is there."""
BENT = 0.02
"""Bend at a point, in parts of the curve's own range, from which its neighbourhood is refined."""


def grid(points: int) -> np.ndarray:
    """`points` values of t over [0, 1], ends included, as exact as float64 has them."""
    return np.arange(points) / (points - 1)


def coarse_first(points: int) -> Iterator[int]:
    """The numbers of all inner points of a grid, so that every beginning is spread evenly."""
    queue = [(0, points - 1)]
    while queue:
        low, high = queue.pop(0)
        middle = (low + high) // 2
        if low < middle:
            yield middle
            queue += [(low, middle), (middle, high)]


def bends(t: Sequence[float], values: Sequence[float]) -> np.ndarray:
    """How far each point is above the straight line of its neighbours, 0 at the ends.

    A point below it counts `HOLLOW` times its distance.
    """
    x, y = np.asarray(t, float), np.asarray(values, float)
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    above = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    return np.concatenate([[0.0], np.where(above > 0, above, -HOLLOW * above), [0.0]])


def next_point(measured: Mapping[float, float], spacing: float, least: float = 0.0) -> float | None:
    """The middle of the interval beside the sharpest bend; None where the curve is smooth enough.

    An interval counts by the larger bend of its ends, weighed by its width; bends below `BENT` of
    the curve's range or below `least` (in the values' unit) count as none, and no interval is
    divided below spacing / `FINEST`.
    """
    t = sorted(measured)
    values = [measured[x] for x in t]
    if len(t) < 3 or not np.isfinite(values).all():
        return None
    bend = bends(t, values)
    bend[bend < max(BENT * np.ptp(values), least)] = 0.0
    width = np.diff(t)
    score = np.maximum(bend[:-1], bend[1:]) * width
    score[width < 2 * spacing / FINEST * (1 - 1e-9)] = 0.0
    best = int(score.argmax())
    return (t[best] + t[best + 1]) / 2 if score[best] > 0 else None


def next_points(
    measured: Mapping[float, float], spacing: float, least: float, count: int
) -> list[float]:
    """At most `count` points to measure at once, the most wanted first.

    The second and later ones are chosen as if the curve went straight where it is not measured yet.
    """
    guessed = dict(measured)
    found: list[float] = []
    while len(found) < count and (t := next_point(guessed, spacing, least)) is not None:
        x = sorted(guessed)
        guessed[t] = float(np.interp(t, x, [guessed[one] for one in x]))
        found.append(t)
    return found
