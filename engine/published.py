"""Layer distances as a paper published them, read into the records that the maps made here use.

Source: G. Garcia 2026, arXiv 2605.16234 v2; the files of `assets/published`, see the README there.
"""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import Refused
from engine.records import GapStep, GapTrajectory, Measure, PublishedMaps, Run

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "published"
SOURCE = (
    "G. Garcia, No Free Swap: Protocol-Dependent Layer Redundancy in Transformers, "
    "arXiv 2605.16234 v2 (2026); data under the MIT licence"
)
CI = "ci_95_"


def names() -> tuple[str, ...]:
    """The published maps by name."""
    return tuple(MAPS)


def published(name: str) -> PublishedMaps:
    """The published maps of one name. Errors: Refused for a name that is not among `names()`."""
    if name not in MAPS:
        raise Refused(f"There are no published maps {name!r}: choose one of {', '.join(MAPS)}.")
    return MAPS[name](name)


def _json(file: str) -> Any:
    """A JSON file, in which Python also reads the NaN and Infinity that strict JSON lacks."""
    return json.loads((FOLDER / file).read_text(encoding="utf-8"))


def _square(layers: int, cells: Iterable[tuple[int, int, float]]) -> np.ndarray:
    """Values at [i, j], nan elsewhere."""
    found = np.full((layers, layers), np.nan)
    for i, j, value in cells:
        found[i, j] = value
    return found


def _both(cells: Iterable[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    return [cell for i, j, value in cells for cell in ((i, j, value), (j, i, value))]


def _qwen3(name: str) -> PublishedMaps:
    held = _json("qwen3_8b_pairs.json")
    pairs, layers = held["pairs"], held["architecture"]["n_layers"]
    at = [(pair["layer_i"], pair["layer_j"]) for pair in pairs]

    def replaced(end: Callable[[dict[str, Any], str], float]) -> np.ndarray:
        # `_ij` is position j running layer i: that is [j, i] here.
        there = [(j, i, end(p, "ij")) for (i, j), p in zip(at, pairs, strict=True)]
        back = [(i, j, end(p, "ji")) for (i, j), p in zip(at, pairs, strict=True)]
        return _square(layers, there + back)

    def swapped(end: Callable[[dict[str, Any]], float]) -> np.ndarray:
        return _square(layers, _both((*ij, end(p)) for ij, p in zip(at, pairs, strict=True)))

    return PublishedMaps(
        name=name,
        model="Qwen3-8B",
        layers=layers,
        replace=Measure(
            replaced(lambda p, way: p[f"replacement_kl_{way}"]),
            replaced(lambda p, way: p[f"{CI}rep_{way}"][0]),
            replaced(lambda p, way: p[f"{CI}rep_{way}"][1]),
        ),
        swap=Measure(
            swapped(lambda p: p["interchange_kl"]),
            swapped(lambda p: p[f"{CI}interchange"][0]),
            swapped(lambda p: p[f"{CI}interchange"][1]),
        ),
        removal=None,
        aggregate="mean over the positions of the text, padding left out",
        note="Pairs at most 3 layers apart; 500 prompts of up to 128 tokens; bfloat16.",
        source=SOURCE,
    )


def _validity(name: str) -> PublishedMaps:
    held = _json("qwen3_8b_predictor_validity.json")
    pairs, layers = held["pairs"], held["n_layers"]
    there = [(p["layer_a"], p["layer_b"], p["d_replace_ab"]) for p in pairs]
    back = [(p["layer_b"], p["layer_a"], p["d_replace_ba"]) for p in pairs]
    swap = [(p["layer_a"], p["layer_b"], p["d_interchange"]) for p in pairs]
    cost = np.array([held["removal_costs"][str(i)]["delta_pct"] for i in range(layers)])
    return PublishedMaps(
        name=name,
        model="Qwen3-8B, beside the cost of removal",
        layers=layers,
        replace=Measure(_square(layers, there + back)),
        swap=Measure(_square(layers, _both(swap))),
        removal=Measure(cost),
        aggregate="mean over the positions of the text, padding left out",
        note=(
            "Adjacent layers only; 24 prompts of 64 tokens; the cost of leaving one layer out is "
            "the rise of the perplexity in per cent, on 10 texts of up to 128 tokens, and infinite "
            "for layer 0. Three pairs lack a value."
        ),
        source=SOURCE,
    )


def _llama(name: str) -> PublishedMaps:
    held = _json("llama31_8b_pairs.json")
    pairs, layers = held["pairwise_distances"], held["n_layers"]
    there = [(p["layer_a"], p["layer_b"], p["replacement_kl"]) for p in pairs]
    swap = [(p["layer_a"], p["layer_b"], p["interchange_kl"]) for p in pairs]
    return PublishedMaps(
        name=name,
        model="Llama-3.1-8B",
        layers=layers,
        replace=Measure(_square(layers, there)),
        swap=Measure(_square(layers, _both(swap))),
        removal=None,
        aggregate="mean over all positions, padding included",
        note=(
            "Adjacent layers only, and one direction: position i runs layer i + 1. 100 prompts of "
            "64 tokens. The layers that were cut with it are neighbours, 22 to 26 for five: not "
            "what the rule with its spacing chooses."
        ),
        source=SOURCE,
    )


def _gpt2(name: str) -> PublishedMaps:
    with (FOLDER / "gpt2_medium_replacement.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cells = [(int(r["layer_a"]), int(r["layer_b"]), float(r["mean_kl"])) for r in rows]
    layers = 1 + max(max(i, j) for i, j, _ in cells)
    return PublishedMaps(
        name=name,
        model="GPT-2 medium",
        layers=layers,
        replace=Measure(_square(layers, _both(cells))),
        swap=None,
        removal=None,
        aggregate="last position only",
        note=(
            "The larger of both directions, so the map is symmetric; 100 prompts; no interchange "
            "was published."
        ),
        source=SOURCE,
    )


MAPS: dict[str, Callable[[str], PublishedMaps]] = {
    "qwen3-8b": _qwen3,
    "qwen3-8b-removal": _validity,
    "llama-3.1-8b": _llama,
    "gpt2-medium": _gpt2,
}


def trajectories() -> dict[str, GapTrajectory]:
    """Adjacent layers at five training steps of four Pythia models, by name, the smallest first.

    One direction of replacement was published, position i running layer i + 1; no skip, no loss and
    no intervals.
    """
    rows = _json("pythia_trajectory.json")["results"]
    models = sorted({row["model"] for row in rows}, key=_size)
    return {model.partition("/")[2]: _trajectory(model, rows) for model in models}


def _size(model: str) -> float:
    number = model.rpartition("-")[2]
    return float(number[:-1]) * {"m": 1e6, "b": 1e9}[number[-1]]


def _trajectory(model: str, rows: list[dict[str, Any]]) -> GapTrajectory:
    own = [row for row in rows if row["model"] == model]
    steps = sorted((_step(row) for row in own), key=lambda step: step.step)
    text = "32 prompts of up to 128 tokens, all positions"
    run = Run(text, 32 * 128, 32, "mean", "published", "float32", 0.0)
    return GapTrajectory("Pythia", own[0]["n_layers"], tuple(steps), complete=True, run=run)


def _step(row: dict[str, Any]) -> GapStep:
    pairs = sorted(row["per_pair"], key=lambda pair: pair["layer_a"])
    return GapStep(
        model=f"{row['model'].partition('/')[2]} {row['checkpoint']}",
        step=int(row["checkpoint"].removeprefix("step")),
        loss=float("nan"),
        replace=Measure(np.array([pair["replacement_kl"] for pair in pairs])),
        swap=Measure(np.array([pair["interchange_kl"] for pair in pairs])),
        skip=Measure(np.full(len(pairs), np.nan)),
        properties={},
    )
