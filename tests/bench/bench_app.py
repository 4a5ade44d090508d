"""Times of what the app does for every view: `python -m tests.bench.bench_app`."""

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from app.charts import matching, matrices
from app.charts.theme import LIGHT
from engine.records import Assignment

WIDE = 11_008
MOST = 1.0
"""Seconds that a reduction may take."""


def timed(name: str, work: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the shortest of three times, printed with the peak of fresh memory."""
    tracemalloc.start()
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - begun)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    sys.stdout.write(f"{name:58} {min(times):7.3f} s   peak {peak:7.1f} MB\n")
    return found, min(times)


def main() -> int:
    """1 when a reduction of an 11,008-wide matrix takes too long."""
    draw = np.random.default_rng(0)
    matrix = draw.random((WIDE, WIDE), dtype=np.float32) * 2 - 1
    columns = draw.permutation(WIDE)
    slowest = 0.0
    for kind in ("signed extreme", "maximum of |C|"):
        for order in (None, columns):
            name = f"tile {WIDE}², {kind}{', recovered order' if order is not None else ''}"

            def reduce(kind: Any = kind, order: Any = order) -> matrices.Tile:
                return matrices.tile(matrix, matrices.whole(WIDE), kind, order)

            drawn, seconds = timed(name, reduce)
            slowest = max(slowest, seconds)
    figure, _ = timed("its figure", lambda: matrices.heatmap(drawn, LIGHT))
    text, _ = timed("as JSON", figure.to_json)
    sys.stdout.write(f"{'size of the figure':58} {len(text) / 1e6:7.2f} MB\n")
    score = draw.random(WIDE).astype(np.float32)
    sign = np.where(score < 0.5, 1, -1).astype(np.int8)
    match = Assignment(columns, sign, score, score - 0.5, score > 0.1, False)
    timed("points of the matching", lambda: matching.pairs(match, None, LIGHT).to_json())
    return int(slowest > MOST)


if __name__ == "__main__":
    sys.exit(main())
