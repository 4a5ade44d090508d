"""The published layer distances: read as they were published, with their marks."""

import csv
import json

import numpy as np
import pytest

from app import layer_views as views
from engine import published
from engine.errors import Refused
from engine.store import Store


def held(file: str):
    return json.loads((published.FOLDER / file).read_text(encoding="utf-8"))


def test_the_names_and_their_sizes():
    found = {name: published.published(name) for name in published.names()}
    assert {name: maps.layers for name, maps in found.items()} == {
        "qwen3-8b": 36, "qwen3-8b-removal": 36, "llama-3.1-8b": 32, "gpt2-medium": 24,
    }  # fmt: skip
    assert all("arXiv 2605.16234" in maps.source for maps in found.values())
    assert all("MIT" in maps.source for maps in found.values())
    assert all(maps.note and maps.aggregate for maps in found.values())
    with pytest.raises(Refused, match="no published maps 'qwen4'"):
        published.published("qwen4")


def test_position_j_running_layer_i_stands_at_j_i():
    pair = held("qwen3_8b_pairs.json")["pairs"][0]
    assert (pair["layer_i"], pair["layer_j"]) == (0, 1)
    maps = published.published("qwen3-8b")
    assert maps.replace.value[1, 0] == pair["replacement_kl_ij"]
    assert maps.replace.value[0, 1] == pair["replacement_kl_ji"]
    assert maps.replace.value[1, 0] != maps.replace.value[0, 1]
    assert maps.swap.value[0, 1] == maps.swap.value[1, 0] == pair["interchange_kl"]
    assert [maps.swap.low[0, 1], maps.swap.high[0, 1]] == pair["ci_95_interchange"]
    assert [maps.replace.low[1, 0], maps.replace.high[1, 0]] == pair["ci_95_rep_ij"]


def test_position_a_running_layer_b_stands_at_a_b():
    pairs = held("qwen3_8b_predictor_validity.json")["pairs"]
    pair = next(p for p in pairs if (p["layer_a"], p["layer_b"]) == (1, 2))
    maps = published.published("qwen3-8b-removal")
    assert maps.replace.value[1, 2] == pair["d_replace_ab"]
    assert maps.replace.value[2, 1] == pair["d_replace_ba"]
    assert np.isposinf(maps.removal.value[0])
    assert np.isfinite(maps.removal.value[1:]).all()
    assert np.isnan(maps.replace.value[0, 1]) and np.isfinite(maps.replace.value[1, 0])


def test_one_direction_stays_one_direction():
    maps = published.published("llama-3.1-8b")
    i, j = np.nonzero(~np.isnan(maps.replace.value))
    assert (j == i + 1).all() and len(i) == 31
    view = views.of_published(maps)
    score = views.scored(view, "replace", "max").value
    np.testing.assert_array_equal(score, score.T)
    assert views.counted(view, "max").above == 0


def test_gpt2_is_symmetric_and_has_no_swap():
    maps = published.published("gpt2-medium")
    with (published.FOLDER / "gpt2_medium_replacement.csv").open(newline="") as file:
        first = next(iter(csv.DictReader(file)))
    assert maps.replace.value[4, 5] == maps.replace.value[5, 4] == float(first["mean_kl"])
    assert maps.swap is None
    assert views.counted(views.of_published(maps), "max") is None


def test_twenty_of_102_pairs_have_swap_above_replace():
    view = views.of_published(published.published("qwen3-8b"))
    found = views.counted(view, "max")
    assert (found.pairs, found.above, found.apart, found.intervals) == (102, 20, 12, True)
    assert views.counted(view, "min").above > 20


def test_the_training_of_pythia():
    found = published.trajectories()
    assert list(found) == ["pythia-160m", "pythia-410m", "pythia-1.4b", "pythia-6.9b"]
    rows = held("pythia_trajectory.json")["results"]
    factors = []
    for name, record in found.items():
        assert [step.step for step in record.steps] == [0, 1000, 16000, 64000, 143000]
        gaps = [float((s.replace.value - s.swap.value).mean()) for s in record.steps]
        own = {r["checkpoint"]: r["gap_kl"] for r in rows if r["model"].endswith(name)}
        assert gaps == pytest.approx([own[f"step{s.step}"] for s in record.steps])
        factors.append(gaps[-1] / gaps[0])
        assert all(np.isnan(step.skip.value).all() for step in record.steps)
    assert [round(factor, 1) for factor in factors] == [14.5, 7.4, 11.0, 1.8]


def test_published_records_survive_the_store(tmp_path):
    store = Store(tmp_path)
    maps = published.published("qwen3-8b")
    store.put("maps", maps)
    np.testing.assert_array_equal(store.get("maps").swap.value, maps.swap.value)
    record = published.trajectories()["pythia-160m"]
    store.put("gap", record)
    assert [step.step for step in store.get("gap").steps] == [0, 1000, 16000, 64000, 143000]


def test_the_bundled_files_are_small_and_carry_their_citation():
    assert sum(path.stat().st_size for path in published.FOLDER.iterdir()) < 250_000
    readme = (published.FOLDER / "README.md").read_text(encoding="utf-8")
    assert "G. Garcia" in readme and "arXiv 2605.16234" in readme and "MIT licence" in readme
    named = {path.name for path in published.FOLDER.iterdir()} - {"README.md"}
    assert all(name in readme for name in named)
