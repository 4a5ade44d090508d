"""Records as documents, on numbers that can be followed by hand, written out whole."""

import math
from dataclasses import replace

import numpy as np

from engine.exports import documents, layers, line
from engine.records import Candidate, Curve, LossSlice, Measure, PublishedMaps, Readings
from tests import fake_barriers, fake_layers

RUN = fake_layers.run(text="a text", tokens=512, device="cuda", seconds=1.5)
EVEN = np.full(16, 31)
LOW, HIGH = (0.25, 0.75)
"""A resample of 16 windows, half of them 0 and half 1, holds 4 to 12 of either in 95 of 100."""


def halves(*high: float, more: float = 2.0) -> Readings:
    """KL in half of 16 windows 0, in the others this; the loss is `more` above, [*cells]."""
    both = np.stack([np.zeros(len(high)), np.array(high)] * 8, -1)
    return Readings(both, more + both, 1 - both / 8, EVEN)


def test_values_are_what_json_knows() -> None:
    given = {"x": [math.nan, math.inf, -math.inf, 1.5, 2, "a", None, True], "y": (0.5,)}
    found = {"x": [None, "Infinity", "-Infinity", 1.5, 2, "a", None, True], "y": [0.5]}
    assert documents.cleaned(given) == found
    assert documents.numbers(np.array([[1, np.nan], [np.inf, 2]])) == [[1, None], ["Infinity", 2]]
    assert documents.written({"x": math.nan}) == '{"x": null}'
    assert documents.written({"x": [1]}, 1) == '{\n "x": [\n  1\n ]\n}'


def test_an_interval_is_low_before_high() -> None:
    ends = np.array([1.0, 2.0]), np.array([3.0, np.nan])
    assert documents.intervals(Measure(np.zeros(2), *ends)) == [[1, 3], [2, None]]
    assert documents.intervals(Measure(np.zeros(2))) is None


def test_maps_of_layers_as_a_document() -> None:
    swap = halves(1.0, 2.0)
    record = replace(
        fake_layers.layer_maps(2), tests={"delete": swap}, base=halves(0.0), run=RUN,
        influence=np.array([0.1, 0.2]), angular=np.array([[0.0, 0.5], [np.nan, 0.0]]),
        cka=np.ones((1, 1)), passes=18, bound=17, whole=39,
    )  # fmt: skip
    assert layers.of_maps(record) == {
        "model": "base", "fingerprint": "a" * 16, "text": "a text", "tokens": 512, "windows": 16,
        "aggregate": "mean", "layers": 2, "kinds": ["attention and gated FFN"] * 2,
        "direction": "KL(base‖modified)", "complete": True, "delete": [0.5, 1.0],
        "delete interval": [[LOW, HIGH], [2 * LOW, 2 * HIGH]], "delete loss": [2.5, 3.0],
        "delete agreement": [1 - 1 / 16, 1 - 1 / 8], "loss": [2.0], "influence": [0.1, 0.2],
        "angular": [[0.0, 0.5], [None, 0.0]], "cka": [[1.0]],
        "layers run": {"done": 18, "least": 17, "whole": 39}, "seconds": 1.5, "device": "cuda",
    }  # fmt: skip
    few = Readings(swap.kl[:, :15], swap.loss[:, :15], swap.agreement[:, :15], EVEN[:15])
    assert "delete interval" not in layers.of_maps(replace(record, tests={"delete": few}))


def test_published_maps_as_a_document() -> None:
    table = Measure(np.array([[np.nan, 2.0], [3.0, np.nan]]))
    record = PublishedMaps(
        "name", "Llama", 2, table, None, Measure(np.array([0.5, 0.25])), "last", "A note.", "Paper"
    )
    document = {
        "model": "Llama", "published": "Paper", "note": "A note.", "aggregate": "last",
        "layers": 2, "direction": "KL(base‖modified)", "replace": [[0, 2], [3, 0]],
        "removal": [0.5, 0.25],
    }  # fmt: skip
    assert layers.of_published(record) == document
    other = layers.of_published(replace(record, removal=None, swap=table))
    assert other.pop("swap") == [[0, 2], [3, 0]]
    assert other == {name: x for name, x in document.items() if name != "removal"}


def test_a_cut_as_a_document() -> None:
    one = Candidate("greedy", ((), (3,)), halves(0.0, 1.0), 7, "No more")
    record = fake_layers.cut_report(
        candidates=(one,), single=halves(1.0, 2.0), run=RUN, complete=False,
        scores={"swap": np.array([0.5, np.inf])},
    )  # fmt: skip
    assert layers.of_cut(record) == {
        "model": "base", "layers": 6, "text": "a text", "windows": 16, "complete": False,
        "candidates": [{
            "by": "greedy", "dropped": [[], [3]], "kl": [0.0, 0.5],
            "kl interval": [[0, 0], [LOW, HIGH]], "loss": [2.0, 2.5],
            "loss interval": [[2, 2], [2 + LOW, 2 + HIGH]], "stacks run to choose": 7,
            "stopped": "No more",
        }],
        "single": {"kl": [0.5, 1.0], "loss": [2.5, 3.0]}, "scores": {"swap": [0.5, "Infinity"]},
        "seconds": 1.5,
    }  # fmt: skip


def hill(stage: str, height: float, t: tuple[float, ...] = (0.0, 0.5, 1.0)) -> Curve:
    """From 1 to 2 nats; inside it stands `height` above the chord in half of the windows."""
    chord = 1 + np.array(t)[:, None] + np.zeros(16)
    inside = np.array([0.0, *[1.0] * (len(t) - 2), 0.0])[:, None]
    loss = chord + inside * np.tile([0.0, height], 8)
    return Curve(stage, np.array(t), loss, 1 - loss / 10, EVEN, 0.75, complete=True)


def near(found: object, wanted: object, place: str = "") -> None:
    """Equal, floats up to what rounding leaves."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict) and list(found) == list(wanted), place
        for name, value in wanted.items():
            near(found[name], value, f"{place}/{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), place
        for k, value in enumerate(wanted):
            near(found[k], value, f"{place}/{k}")
    elif isinstance(wanted, float):
        assert isinstance(found, float) and math.isclose(found, wanted, abs_tol=1e-9), place
    else:
        assert (found, type(found)) == (wanted, type(wanted)), place


def test_a_curve_as_a_document() -> None:
    grid = np.array([0.0, 0.25, 0.5, 1.0])
    curve = hill("all", 2.0, (0.0, 0.5, 0.625, 1.0))
    near(line.of_curve(curve, grid), {
        "complete": True, "distance": 0.75, "loss": [1.0, None, 2.5, 2.0], "barrier": 1.0,
        "barrier interval": [0.5, 1.5], "barrier at": 0.5,
        "loss interval": [[1.0, 1.0], [None, None], [2.0, 3.0], [2.0, 2.0]],
        "accuracy": [0.9, None, 0.75, 0.8], "accuracy barrier": 0.1,
        "accuracy barrier interval": [0.05, 0.15], "accuracy barrier at": 0.5,
        "accuracy interval": [[0.9, 0.9], [None, None], [0.7, 0.8], [0.8, 0.8]],
        "perplexity": [math.exp(1), None, math.exp(2.5), math.exp(2)],
        "finer": {"t": [0.625], "loss": [2.625], "accuracy": [0.7375]},
    })  # fmt: skip


def test_a_barrier_as_a_document() -> None:
    grid = np.array([0.0, 0.5, 1.0])
    record = replace(
        fake_barriers.report(("none",)), curves=(hill("none", 4.0), hill("all", 1.0)), grid=grid,
        moved=(3, 8), scope="3-5", scrambled=True, classes=4, models=9, aligning=0.25, run=RUN,
    )  # fmt: skip
    found = line.of_barrier(record)
    stages = found.pop("stages")
    near(found, {
        "a": "base", "b": "seed-1", "scope": "3-5", "scrambled": True, "moved": [3, 8],
        "ends shared": True, "using": "weights", "target": "next token",
        "loss of a blind guess": math.log(4), "text": "a text", "tokens": 512, "windows": 16,
        "complete": True, "t": [0.0, 0.5, 1.0], "models run": 9, "seconds": 1.5,
        "seconds aligning": 0.25, "device": "cuda",
    })  # fmt: skip
    assert list(stages) == ["none", "all"]
    assert "relative to none" not in stages["none"] and "finer" not in stages["none"]
    near(
        [stages["all"][f"relative to none{more}"] for more in ("", " interval")],
        [0.25, [0.25, 0.25]],
    )
    assert stages["none"]["barrier"] == 2.0
    assert line.of_barrier(replace(record, classes=0))["loss of a blind guess"] is None


def test_a_merge_as_a_document() -> None:
    record = replace(
        fake_barriers.merge(0.5), curve=hill("res", 1.0), run=RUN, scope="3-5", scrambled=True
    )
    found = line.of_merge(record)
    assert found.pop("note").startswith("the merge is a new function: it computes neither")
    near(found, {
        "a": "base", "b": "seed-1", "stage": "res", "scope": "3-5", "scrambled": True, "t": 0.5,
        "target": "next token", "loss": {"a": 1.0, "merge": 2.0, "other end": 2.0},
        "accuracy": {"a": 0.9, "merge": 0.8, "other end": 0.8},
        "apart": {"a": 1.5, "other end": 0.25}, "above the chord": 0.5,
        "above the chord interval": [0.25, 0.75], "parameters": 650_000, "text": "a text",
        "tokens": 512, "windows": 16, "seconds": 1.5,
    })  # fmt: skip


def test_a_plane_as_a_document() -> None:
    loss = np.array([[3.0, 2.0, 1.5], [np.nan, 4.0, 5.0]])
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 0.5]])
    record = LossSlice(
        "a", "b", "all", np.array([0.0, 0.5, 1.0]), np.array([-1.0, 2.0]), loss, loss / 10, places,
        31.0, "next token", False, RUN, np.array([2.0, 1.75, 1.25]), "3-5",
    )  # fmt: skip
    document = {
        "a": "a", "b": "b", "stage": "all", "scope": "3-5", "x": [0.0, 0.5, 1.0], "y": [-1.0, 2.0],
        "loss": [[3.0, 2.0, 1.5], [None, 4.0, 5.0]],
        "accuracy": [[0.3, 0.2, 0.15], [None, 0.4, 0.5]],
        "places": {"a": [0.0, 0.0], "b": [1.0, 0.0], "aligned b": [0.25, 0.5]},
        "loss of the models": {"a": 2.0, "b": 1.75, "aligned b": 1.25},
        "lowest": {"loss": 1.25, "x": 0.25, "y": 0.5}, "length": 31.0, "target": "next token",
        "complete": False, "text": "a text", "tokens": 512, "seconds": 1.5,
    }  # fmt: skip
    near(line.of_slice(record), document)
    assert line.of_slice(replace(record, models=None))["loss of the models"] is None


def test_orders_of_heads_as_a_document() -> None:
    record = replace(
        fake_barriers.orders(), layer=4, orders=((0, 1), (1, 0)), chosen=1, total=24,
        objective=np.array([3.0, 2.0]), curves=(hill("a", 2.0), hill("b", 4.0)),
        naive=hill("none", 3.0), run=RUN,
    )  # fmt: skip
    near(line.of_orders(record), {
        "a": "base", "b": "seed-1", "layer": 4, "chosen": 1, "orders in all": 24,
        "naive barrier": 1.5, "orders": [[0, 1], [1, 0]], "objective": [3.0, 2.0],
        "barrier": [1.0, 2.0], "barrier interval": [[0.5, 1.5], [1.0, 3.0]], "complete": True,
        "text": "a text", "tokens": 512, "seconds": 1.5,
    })  # fmt: skip
