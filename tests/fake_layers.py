"""Records about layers without an engine: planted costs of pairs and layers, chosen noise."""

from dataclasses import replace
from typing import Any

import numpy as np

from engine.layers import selection
from engine.records import (
    Candidate,
    Continuation,
    CutCost,
    CutReport,
    GapStep,
    GapTrajectory,
    LayerMaps,
    Measure,
    Readings,
)
from engine.records.layers import Run

BASE_LOSS = 2.0
LAYERS = 6


def run(windows: int = 16, **more: Any) -> Run:
    given = {"text": "the demo models' own text", "tokens": 32 * windows, "windows": windows,
             "aggregate": "mean", "device": "cpu", "dtype": "float32", "seconds": 1.4}  # fmt: skip
    return Run(**(given | more))


def readings(kl: np.ndarray, windows: int = 16, noise: float = 0.1, seed: int = 0) -> Readings:
    """Readings whose mean KL is about `kl` in every cell; the loss rises by the KL; nan stays."""
    draw = np.random.default_rng(seed)
    factor = 1 + noise * draw.uniform(-1, 1, (*np.shape(kl), windows))
    each = (np.asarray(kl)[..., None] * factor).astype(np.float32)
    positions = np.full(windows, 31, np.int64)
    agreement = np.exp(-each).astype(np.float32)
    return Readings(each, (BASE_LOSS + each).astype(np.float32), agreement, positions)


def base(windows: int = 16) -> Readings:
    return readings(np.zeros(()), windows)


def swaps(layers: int = LAYERS, seed: int = 0) -> np.ndarray:
    """KL of exchanging two layers: small in the middle, large at both ends, 0 on the diagonal."""
    place = np.arange(layers)
    edge = np.exp(-np.minimum(place, layers - 1 - place) * 1.2)
    gap = np.abs(place[:, None] - place[None])
    return gap * (0.02 + edge[:, None] + edge[None]) * (1 + 0.01 * seed)


def replaces(layers: int = LAYERS, above: tuple[tuple[int, int], ...] = ((2, 3),)) -> np.ndarray:
    """KL of replacing, directed: above the swap, but half of it for the listed pairs."""
    swap = swaps(layers)
    found = swap * np.where(np.arange(layers)[:, None] > np.arange(layers)[None], 2.0, 3.0)
    for i, j in (pair for pair in above if max(pair) < layers):
        found[i, j] = found[j, i] = swap[i, j] / 2
    return found


def influence(layers: int = LAYERS) -> np.ndarray:
    return swaps(layers).sum(1) / layers / 10


def layer_maps(layers: int = LAYERS, windows: int = 16, **more: Any) -> LayerMaps:
    """Finished maps of one kind of layer."""
    place = np.arange(layers + 1)
    angle = np.abs(place[:, None] - place[None]) / (layers + 1) / 2
    tests = {
        "replace": readings(replaces(layers), windows, seed=1),
        "swap": readings(swaps(layers), windows, seed=2),
        "delete": readings(swaps(layers).max(1), windows, seed=3),
    }
    given = {
        "model": "base", "fingerprint": "a" * 16, "family": "Llama", "layers": layers,
        "kinds": ("attention and gated FFN",) * layers, "first": 0, "last": layers - 1,
        "reach": layers - 1, "base": base(windows), "tests": tests, "influence": influence(layers),
        "angular": angle, "cka": 1 - angle, "passes": 180, "bound": 175, "whole": 390,
        "complete": True, "run": run(windows),
    }  # fmt: skip
    return LayerMaps(**(given | more))


def every_test(layers: int = LAYERS, windows: int = 16) -> LayerMaps:
    """Maps with every test that there is."""
    maps = layer_maps(layers, windows)
    swap = swaps(layers)
    skip = np.where(np.triu(np.ones_like(swap), 1) > 0, swap * 1.5, np.nan)
    more = {
        "average": readings(swap * 0.8, windows, seed=4),
        "skip": readings(skip, windows, seed=5),
        "replace-healed": readings(replaces(layers) / 2, windows, seed=6),
        "swap-healed": readings(swap / 2, windows, seed=7),
        "delete-healed": readings(swap.max(1) / 2, windows, seed=8),
    }
    return replace(maps, tests={**maps.tests, **more})


def partial(layers: int = LAYERS) -> LayerMaps:
    """Maps of which only adjacent pairs are there."""
    maps = layer_maps(layers)
    place = np.arange(layers)
    near = np.abs(place[:, None] - place[None]) == 1
    tests = {name: _only(found, near) for name, found in maps.tests.items() if name != "delete"}
    nothing = readings(np.full(layers, np.nan))
    return replace(maps, tests={**tests, "delete": nothing}, complete=False)


def _only(found: Readings, cells: np.ndarray) -> Readings:
    parts = (np.where(cells[..., None], part, np.nan).astype(np.float32)
             for part in (found.kl, found.loss, found.agreement))  # fmt: skip
    return Readings(*parts, found.positions)


def two_kinds(layers: int = LAYERS) -> LayerMaps:
    """Layers that alternate between two kinds; only layers of one kind were exchanged."""
    maps = layer_maps(layers)
    place = np.arange(layers) % 2
    alike = place[:, None] == place[None]
    tests = {name: _only(found, alike) if found.kl.ndim == 3 else found
             for name, found in maps.tests.items()}  # fmt: skip
    kinds = tuple("sliding attention" if odd else "full attention" for odd in place)
    return replace(maps, tests=tests, kinds=kinds)


def single(layers: int = LAYERS) -> np.ndarray:
    """KL of leaving out each layer alone: dear at both ends."""
    place = np.arange(layers)
    return 0.05 + np.exp(-np.minimum(place, layers - 1 - place)) * 2


def candidate(by: str, order: tuple[int, ...], budget: int, windows: int, **more: Any) -> Candidate:
    """A candidate that leaves out `order[:n]` at the sum of the single costs."""
    cost = single(max(LAYERS, max(order, default=0) + 1))
    sets = tuple(tuple(sorted(order[:n])) for n in range(min(budget, len(order)) + 1))
    kl = np.array([float(sum(cost[i] for i in chosen)) * 1.1 for chosen in sets])
    given = {"by": by, "sets": sets, "readings": readings(kl, windows, 0.1, len(by)),
             "forwards": 20, "stopped": ""}  # fmt: skip
    return Candidate(**(given | more))


def cut_report(layers: int = LAYERS, budget: int = 5, windows: int = 16, **more: Any) -> CutReport:
    """Five candidates; the greedy one leaves out the layers whose removal is cheapest."""
    cheap = tuple(int(i) for i in np.argsort(single(layers), kind="stable"))
    spaced = selection.greedy(single(layers), budget)
    made = (
        candidate("swap", spaced, budget, windows, stopped="No further layer is free: neighbours"),
        candidate("replace", tuple(range(layers)), budget, windows),
        candidate("influence", tuple(reversed(range(layers))), budget, windows, forwards=1),
        candidate("angular", tuple(range(1, layers)), budget, windows, forwards=1),
        candidate("greedy", cheap, budget, windows, forwards=25),
    )
    cost = single(layers)
    given = {
        "model": "base", "fingerprint": "a" * 16, "family": "Llama", "layers": layers,
        "kinds": ("attention and gated FFN",) * layers, "candidates": made,
        "single": readings(cost, windows, seed=9),
        "scores": {"swap": cost * 0.9, "replace": cost[::-1] ** 2 + np.arange(layers),
                   "influence": influence(layers)},
        "parameters": (90_000, 650_000), "complete": True, "run": run(windows),
    }  # fmt: skip
    return CutReport(**(given | more))


def cut_cost(dropped: tuple[int, ...] = (2, 3), kl: float = 0.9, windows: int = 16) -> CutCost:
    """Some layers left out by hand."""
    return CutCost(
        "base", "a" * 16, dropped, base(windows), readings(np.array(kl), windows), run(windows)
    )


def continuation(stack: str = "depth 2 runs layer 3", same: int = 5) -> Continuation:
    return Continuation(
        "base", stack, "Anna puts the book", " on the table and goes out.",
        " on the table and the the the", same,
    )  # fmt: skip


def gap_step(step: int, share: float, model: str = "base", layers: int = LAYERS) -> GapStep:
    """Adjacent layers whose replacement costs 2^share times their swap."""
    swap = np.linspace(0.1, 0.3, layers - 1)
    replaced = swap * 2.0**share

    def measured(value: np.ndarray) -> Measure:
        return Measure(value, value * 0.9, value * 1.1)

    properties = {"loss": 3 - share / 2, "block influence": 0.1 + share / 20, "weights": 7.0}
    return GapStep(
        model, step, 3 - share / 2, measured(replaced), measured(swap), measured(swap * 1.5),
        properties,
    )  # fmt: skip


def gap(shares: tuple[float, ...] = (0.2, 0.6, 1.1, 1.0, 1.8), **more: Any) -> GapTrajectory:
    """A gap that grows in training, but for one step."""
    steps = tuple(gap_step(100 * (n + 1), share, f"base-step-{100 * (n + 1):04d}")
                  for n, share in enumerate(shares))  # fmt: skip
    given = {"family": "Llama", "layers": LAYERS, "steps": steps, "complete": True, "run": run()}
    return GapTrajectory(**(given | more))


def seeds(shares: tuple[float, ...] = (1.0, 1.2, 0.9)) -> GapTrajectory:
    """Models of one recipe, all at the same step."""
    steps = tuple(gap_step(1800, share, f"seed-{n + 1}") for n, share in enumerate(shares))
    return GapTrajectory("Llama", LAYERS, steps, complete=True, run=run())
