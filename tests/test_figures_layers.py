"""Figures and tables of layers, cuts and training, on records of a few numbers."""

from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest

from app.charts import cuts, drawing, gaps, layer_maps, layer_tables, measures, theme
from app.charts.layer_maps import Maps, Pair
from app.charts.measures import Number
from app.charts.theme import DARK, LIGHT
from engine.records import (
    Candidate,
    CutCost,
    CutReport,
    GapStep,
    GapTrajectory,
    Measure,
    Readings,
)
from tests import fake_layers
from tests.drawn import Drawn

NAN = np.nan
REPLACED = np.array([[NAN, 0.2, 0.9], [0.4, NAN, 0.06], [0.8, NAN, NAN]])
SWAPPED = np.array([[NAN, 0.02, 1.0], [0.02, NAN, NAN], [1.0, NAN, NAN]])
MAPS = Maps(
    layers=3,
    kinds=("attention",) * 3,
    pairs={
        "replace": Measure(REPLACED, REPLACED / 2, REPLACED * 2),
        "swap": Measure(SWAPPED, SWAPPED / 4, SWAPPED * 4),
    },
    singles={"delete": Measure(np.array([2.0, 0.5, 3.0]))},
    influence=np.array([0.3, 0.1, 0.2]),
    published=False,
)


def test_a_map_has_depth_i_down_and_layer_j_across():
    drawn = Drawn(layer_maps.pair_map(MAPS, "replace", (0.02, 1.0), LIGHT, Pair(1, 2)))
    assert drawn.rows(0).to_dict("records") == [
        {"i": i, "j": j, "KL": kl, "drawn": kl, "from": kl / 2, "to": kl * 2}
        for i, j, kl in ((0, 1, 0.2), (0, 2, 0.9), (1, 0, 0.4), (1, 2, 0.06), (2, 0, 0.8))
    ]
    assert drawn.fields(0) == {"x": "j", "y": "i", "color": "drawn"}
    assert drawn.titles(0) == {"x": "layer j", "y": "depth i", "color": "KL, nats (log)"}
    assert drawn.tips(0) == {
        "i": ("depth i", ""), "j": ("layer j", ""), "KL": ("replace, nats", ".3g"),
        "from": ("interval from", ".3g"), "to": ("interval to", ".3g"),
    }  # fmt: skip
    colours = drawn.colours(0)
    low, high = min(colours), max(colours)
    assert (low, high) == (pytest.approx(0.02), pytest.approx(1.0))
    assert (colours[low], colours[high]) == ("#FFFFFF", "#08305C")
    assert drawn.rows(1)["shown"].tolist() == ["0.2", "0.9", "0.4", "0.06", "0.8"]
    ink = drawn.layers[1]["encoding"]["color"]  # light on cells that are dark
    assert ink["condition"]["value"] == "#FFFFFF" and ink["value"] == LIGHT.ink
    dark = 0.02**0.5 * 50**0.15
    assert float(ink["condition"]["test"].strip("()").split(">")[1]) == pytest.approx(dark)
    wide = Drawn(layer_maps.pair_map(replace(MAPS, layers=24), "swap", (0.02, 1.0), LIGHT,
                                     Pair(1, 2)))  # fmt: skip
    assert wide.layers[0]["encoding"]["x"]["axis"]["values"] == list(range(0, 24, 2))
    assert drawn.rows(2).to_dict("records") == [{"i": 1, "j": 2}]
    floor = layer_maps.cells(MAPS.pairs["swap"], 0.5)
    assert floor["drawn"].tolist() == [0.5, 1.0, 0.5, 1.0]
    assert floor["KL"].tolist() == [0.02, 1.0, 0.02, 1.0]


def test_a_disagreement_is_the_logarithm_of_the_first_over_the_second():
    left, right = MAPS.pairs["replace"], MAPS.pairs["swap"]
    table = layer_maps.ratios(left, right)
    assert table.to_dict("records") == [
        {"i": 0, "j": 1, "log": 3.322, "ratio": 10.0},  # log₂ 10
        {"i": 0, "j": 2, "log": -0.152, "ratio": 0.9},
        {"i": 1, "j": 0, "log": 4.322, "ratio": 20.0},
        {"i": 2, "j": 0, "log": -0.3219, "ratio": 0.8},
    ]
    drawn = Drawn(layer_maps.disagreement(MAPS, left, right, ("replace", "swap"), LIGHT,
                                          Pair(0, 1)))  # fmt: skip
    assert drawn.fields(0) == {"x": "j", "y": "i", "color": "log"}
    assert drawn.titles(0)["color"] == "log₂(replace / swap)"
    assert drawn.tips(0) == {
        "i": ("i", ""), "j": ("j", ""), "log": ("log₂(replace / swap)", ".2f"),
        "ratio": ("replace over swap", ".3g"),
    }  # fmt: skip
    colours = drawn.colours(0)
    assert [colours[at] for at in (-4.322, 0.0, 4.322)] == ["#8C3B00", "#FFFFFF", "#00436B"]


@pytest.mark.parametrize(
    ("values", "span"),
    [
        ([0.02, 1.0], (0.02, 1.0)), ([0.5, 1.0], (0.1, 1.0)), ([1e-9, 1.0], (1e-6, 1.0)),
        ([1e-7], (1e-7, 1e-5)), ([0.0, np.inf, NAN], (1e-3, 1.0)),
    ],
)  # fmt: skip
def test_a_scale_spans_at_least_a_factor_of_ten(values, span):
    assert layer_maps.domain([Measure(np.array(values))]) == pytest.approx(span)


@pytest.mark.parametrize(
    ("span", "ticks"),
    [
        ((1e-3, 1.0), [1e-3, 1e-2, 0.1, 1.0]),
        ((0.03, 3.0), [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]),
        ((0.1, 1.0), [0.1, 0.2, 0.5, 1.0]),
    ],
)
def test_a_scale_is_marked_at_round_numbers(span, ticks):
    assert layer_maps.ticks(span) == pytest.approx(ticks)


def test_a_strip_goes_logarithmically_from_its_least_to_its_most():
    rows = {"delete": np.array([1.0, 10.0, 100.0]), "influence": np.array([NAN, 1e-9, 1.0])}
    drawn = Drawn(layer_maps.strip(rows, ("full", "sliding", "full"), LIGHT, Pair(0, 2)))
    assert drawn.rows(0).to_dict("records") == [
        {"row": "delete", "layer": 0, "value": 1.0, "share": 0.0, "shown": "1"},
        {"row": "delete", "layer": 1, "value": 10.0, "share": 0.5, "shown": "10"},
        {"row": "delete", "layer": 2, "value": 100.0, "share": 1.0, "shown": "100"},
        {"row": "influence", "layer": 1, "value": 1e-9, "share": 0.0, "shown": "1.0e-9"},
        {"row": "influence", "layer": 2, "value": 1.0, "share": 1.0, "shown": "1"},
    ]
    assert drawn.fields(0) == {"x": "layer", "y": "row", "color": "share"}
    assert drawn.colours(0)[0.0] == "#FFFFFF" and drawn.colours(0)[1.0] == "#08305C"
    kinds = drawn.rows(2)
    assert dict(zip(kinds["layer"], kinds["kind"], strict=True)) == {
        0: "full", 1: "sliding", 2: "full"}  # fmt: skip
    assert set(drawn.rows(3)["layer"]) == {0, 2}
    assert drawn.colours(2) == {"full": "#BBD5E8", "sliding": "#F2D3A9"}
    assert drawn.layers[0]["encoding"]["y"]["sort"] == ["delete", "influence", "kind of layer"]
    # three decades are drawn: what is lower is the least
    assert layer_maps.shares(np.array([1e-9, 1.0, 1000.0])).tolist() == [0.0, 0.0, 1.0]


def test_tables_of_layers_name_depth_and_layer():
    table = layer_tables.pairs(MAPS)
    assert table.iloc[2].to_dict() == {
        "test": (
            "replace"
        ), "depth i": 1, "layer j": 0, "KL": 0.4, "from": 0.2, "to": 0.8}  # fmt: skip
    assert table["test"].tolist() == ["replace"] * 5 + ["swap"] * 4
    told = layer_tables.pair(MAPS, Pair(1, 0), None)
    assert told.to_dict("records") == [
        {"test": "replace 1 ← 0", "KL, nats": "0.4 [0.2, 0.8]"},
        {"test": "replace 0 ← 1", "KL, nats": "0.2 [0.1, 0.4]"},
        {"test": "swap 0 ↔ 1", "KL, nats": "0.02 [0.005, 0.08]"},
    ]
    record = fake_layers.layer_maps(3)
    base, cell = record.base, (1, 0)
    kl, loss = np.zeros((3, 3, 16), np.float32), np.zeros((3, 3, 16), np.float32)
    loss[cell] = base.loss + np.log(1.5)
    agreement = np.full((3, 3, 16), 0.25, np.float32)
    tests = {"replace": Readings(kl, loss, agreement, base.positions)}
    view = replace(MAPS, pairs={"replace": MAPS.pairs["replace"]})
    row = layer_tables.pair(view, Pair(*cell), replace(record, tests=tests)).iloc[0]
    assert row["perplexity"] == "+50.0 % [+50.0, +50.0]"
    assert row["same token"] == "25%"
    layers = layer_tables.layers(MAPS, {"s": np.array([7.0, 8.0, 9.0])})
    assert layers.iloc[1].to_dict() == {
        "layer": 1, (
            "kind"
        ): "attention", "delete": 0.5, "block influence": 0.1, "s": 8.0}  # fmt: skip
    ways = {t: [w for w, _, _ in layer_tables._ways(t, Pair(4, 1))] for t in ("skip", "average")}
    assert ways == {"skip": ["skip 1 → after 4"], "average": ["average 1 and 4"]}
    assert layer_tables._ways("replace-healed", Pair(4, 1))[0] == ("replace, healed 4 ← 1", 4, 1)


def halves(low: Any, high: Any, rise: float = 1.0) -> Readings:
    """KL in nats, in half of 16 windows each, and `rise` times that for the loss: [*cells].

    A resample of 16 windows holds 4 to 12 of either half in 95 of 100 (binomial), so that the
    interval ends at a quarter and at three quarters of the way from `low` to `high`.
    """
    both = np.stack([np.asarray(low, float), np.asarray(high, float)] * 8, -1)
    return Readings(both.astype(np.float32), (2 + rise * both).astype(np.float32),
                    np.exp(-both).astype(np.float32), np.full(16, 31))  # fmt: skip


LN = float(np.log(1.21))
GREEDY = Candidate("greedy", ((), (3,), (2, 3)), halves([0, 0, 1], [0, LN, 2]), 25)
SWAP = Candidate("swap", ((), (4,)), halves([0, 0.5], [0, 0.5]), 20)
OWN = CutCost(
    "base", "a" * 16, (1, 4), halves(0.0, 0.0), halves(0.0, 2 * LN), fake_layers.run()
)  # fmt: skip


def cut_report(*candidates: Candidate) -> CutReport:
    return replace(fake_layers.cut_report(), candidates=candidates or (GREEDY, SWAP))


def test_a_cut_costs_a_ratio_of_perplexities_or_nats():
    table = cuts.costs(cut_report(), "perplexity")
    rows = table.to_dict("records")
    assert rows[1] == {  # 1.21 to the powers ½, ¼ and ¾
        "by": (
            "greedy"
        ), "n": 1, "value": 1.1, "from": 1.049, "to": 1.154, "layers": "3"}  # fmt: skip
    assert rows[0] == {
        "by": "greedy", "n": 0, "value": 1.0, "from": 1.0, "to": 1.0, "layers": "none"}  # fmt: skip
    assert rows[2]["layers"] == "2, 3" and rows[2]["value"] == 4.482  # e^1.5
    kl = cuts.costs(cut_report(), "kl").to_dict("records")
    assert kl[1] == {
        "by": (
            "greedy"
        ), "n": 1, "value": 0.09531, "from": 0.04766, "to": 0.143, "layers": "3"}  # fmt: skip
    assert cuts.chosen(cut_report(), 2, (5,)) == {"greedy": (2, 3), "mine": (5,)}
    assert cuts.chosen(cut_report(), 1, ()) == {"greedy": (3,), "swap": (4,), "mine": ()}


@pytest.mark.parametrize(
    ("kind", "title", "own"),
    [
        ("kl", "KL(base ‖ cut), nats", (LN, LN / 2, 3 * LN / 2)),
        ("perplexity", "perplexity, rise over the base (log)", (1.21, 1.1, 1.331)),
    ],
)
def test_the_cost_of_a_cut_is_drawn_with_both_ends_and_ones_own_beside_it(kind, title, own):
    drawn = Drawn(cuts.curves(cut_report(), kind, 1, LIGHT, OWN))
    assert drawn.titles(1) == {"x": "layers left out, n", "y": title}
    assert drawn.fields(0) == {"x": "n", "y": "from", "y2": "to", "color": "by"}
    assert drawn.fields(2) == {"x": "n", "y": "value", "color": "by"}
    assert drawn.rows(3).to_dict("records") == [{"n": 1}]
    (mine,) = drawn.rows(4).to_dict("records")
    assert (mine["by"], mine["n"], mine["layers"]) == ("mine", 2, "1, 4")
    assert (mine["value"], mine["from"], mine["to"]) == pytest.approx(own, rel=1e-5)
    assert drawn.colours(1) == {"greedy": "#E69F00", "swap": "#0072B2", "mine": theme.TRUTH}
    assert set(drawn.tips(2)) == {"by", "n", "layers", "value", "from", "to"}
    if kind == "perplexity":
        axis = drawn.layers[1]["encoding"]["y"]["axis"]
        label = "(datum.value >= 1 ? '+' : '') + format(100 * (datum.value - 1), ',.0f') + ' %'"
        assert axis["labelExpr"] == label
        assert axis["values"] == [1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0]
        assert drawn.scale("y", 1)["type"] == "log"


def test_a_strip_of_cuts_has_a_row_each_and_a_column_a_layer():
    drawn = Drawn(cuts.strip(3, {"greedy": (1,), "mine": ()}, LIGHT))
    assert drawn.rows(0).to_dict("records") == [
        {"by": by, "layer": layer, "cut": "cut" if (by, layer) == ("greedy", 1) else "kept"}
        for by in ("greedy", "mine")
        for layer in range(3)
    ]
    assert drawn.fields(0) == {"x": "layer", "y": "by", "color": "cut"}
    assert drawn.colours(0) == {"kept": LIGHT.grid, "cut": theme.MINUS}
    assert drawn.layers[0]["encoding"]["y"]["sort"] == ["greedy", "mine"]
    assert drawn.titles(0) == {"x": "layer"}


def test_a_score_stands_against_the_cost_with_its_interval():
    cost = Measure(np.array([2.0, NAN, 0.5]), np.array([1.5, NAN, 0.25]), np.array([3.0, NAN, 1.0]))
    drawn = Drawn(cuts.scatter(np.array([0.1, 0.2, 0.3]), cost, "swap", LIGHT))
    assert drawn.rows(1).to_dict("records") == [
        {"layer": 0, "score": 0.1, "cost": 2.0, "from": 1.5, "to": 3.0},
        {"layer": 2, "score": 0.3, "cost": 0.5, "from": 0.25, "to": 1.0},
    ]
    assert drawn.fields(0) == {"x": "score", "y": "from", "y2": "to"}
    assert drawn.fields(1) == {"x": "score", "y": "cost"}
    assert drawn.titles(1) == {"x": "score by swap", "y": "KL without the layer, nats"}
    assert drawn.scale("y", 1) == {
        "type": (
            "log"
        ), "domain": [pytest.approx(0.2), pytest.approx(3.75)], "nice": False}  # fmt: skip
    flat = Drawn(cuts.scatter(np.array([0.0, 0.2, 0.3]), cost, "swap", LIGHT))
    assert "type" not in flat.scale("x", 1)


def step(number: int, replaced: list[float], name: str = "base-step-{}") -> GapStep:
    """Adjacent pairs of three layers, swapped at 0.1 and 0.4 nats; nothing was skipped."""
    first, second = np.array(replaced), np.array([0.1, 0.4])
    nothing = np.full(2, NAN)
    return GapStep(
        name.format(number), number, 2.0, Measure(first, first / 2, first * 2), Measure(second),
        Measure(nothing), {"loss": number / 1000},
    )  # fmt: skip


COURSE = GapTrajectory(
    "Llama", 3, (step(2000, [0.8, 1.6]), step(500, [0.2, 0.4])), True, fake_layers.run()
)


def test_gaps_are_drawn_in_the_order_of_training():
    table = gaps.gaps(COURSE, "log ratio")
    assert table[["place", "at", "pair", "gap", "mean"]].values.tolist() == [
        [0, "500", "0 and 1", 1.0, False], [0, "500", "1 and 2", 0.0, False],
        [0, "500", "mean of all pairs", 0.5, True], [1, "2,000", "0 and 1", 3.0, False],
        [1, "2,000", "1 and 2", 2.0, False], [1, "2,000", "mean of all pairs", 2.5, True],
    ]  # fmt: skip
    assert gaps.gap(COURSE.steps[0], "difference") == pytest.approx([0.7, 1.2])
    drawn = Drawn(gaps.lines(COURSE, "difference", LIGHT, published=False))
    assert drawn.titles(1) == {"x": "training step", "y": "replace − swap, nats"}
    assert drawn.layers[1]["encoding"]["x"]["sort"] == ["500", "2,000"]
    assert drawn.fields(2) == {"x": "at", "y": "gap"}
    assert drawn.rows(0).to_dict("records") == [{"at": 0.0}]
    assert drawn.layers[1]["mark"]["color"] == theme.PLUS
    theirs = Drawn(gaps.lines(COURSE, "log ratio", LIGHT, published=True))
    assert theirs.layers[1]["mark"]["color"] == theme.QUIET
    assert theirs.titles(1)["y"] == "log₂(replace / swap)"
    seeds = replace(COURSE, steps=tuple(step(n, [0.2, 0.4], "demo:seed-{}") for n in (2, 1)))
    other = Drawn(gaps.lines(seeds, "log ratio", LIGHT, published=False))
    assert other.titles(1)["x"] == "model" and other.mark(2) == "tick"
    assert other.layers[1]["encoding"]["x"]["sort"] == ["seed-2", "seed-1"]


def test_tests_of_a_training_have_the_mean_of_their_ends():
    assert gaps.tests(COURSE).iloc[0].to_dict() == {
        "at": "500", "step": 500, "model": "base-step-500", "test": "replace", "KL": 0.3,
        "from": 0.15, "to": 0.6,
    }  # fmt: skip
    assert gaps.tests(COURSE)["test"].tolist() == ["replace", "swap"] * 2
    drawn = Drawn(gaps.compared(COURSE))
    assert drawn.titles(0) == {"x": "training step", "y": "mean KL, nats (log)"}
    assert drawn.scale("y")["domain"] == pytest.approx([1 / 6, 1.8])
    assert drawn.scale("y")["type"] == "log"
    assert drawn.colours(0) == {"replace": "#D55E00", "swap": "#0072B2"}
    assert (drawn.mark(0), drawn.mark(1)) == ("line", "point")
    rows = gaps.table(COURSE)
    assert rows.iloc[1].to_dict() == pytest.approx({
        "model": "base-step-500", "step": 500, "layers": "1, 2", "replace": 0.4,
        "replace from": 0.2, "replace to": 0.8, "swap": 0.4, "swap from": NAN, "swap to": NAN,
        "skip": NAN, "skip from": NAN, "skip to": NAN,
    }, nan_ok=True)  # fmt: skip
    found = Drawn(gaps.scatter(COURSE, "loss", "log ratio", LIGHT))
    assert found.rows(0).to_dict("records") == [
        {"value": 0.5, "gap": 0.5, "at": "500", "model": "base-step-500"},
        {"value": 2.0, "gap": 2.5, "at": "2,000", "model": "base-step-2000"},
    ]
    assert found.titles(0) == {"x": "loss", "y": "mean log₂(replace / swap)"}
    assert gaps.properties(COURSE, "difference")["gap"].tolist() == pytest.approx([0.05, 0.95])


@pytest.mark.parametrize(
    ("found", "digits", "text"),
    [
        (Number(0.123, 0.1, 0.15), 2, "0.12 [0.1, 0.15]"), (Number(2.0), 3, "2"),
        (Number(NAN, 0.1, 0.2), 2, "not measured"), (Number(2.0, NAN, 3.0), 2, "2"),
        (Number(1.2345, 1.2, 1.3), 3, "1.23 [1.2, 1.3]"),
    ],
)  # fmt: skip
def test_a_number_stands_before_its_interval(found, digits, text):
    assert found.said(digits) == text
    assert found.columns("x") == pytest.approx({
        "x": found.value, "x low": NAN if found.low is None else found.low,
        "x high": NAN if found.high is None else found.high,
    }, nan_ok=True)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "+0.00 %"), (-0.004, "−0.00 %"), (9.994, "+9.99 %"), (10.0, "+10.0 %"),
        (99.94, "+99.9 %"), (100.0, "+100 %"), (-50.0, "−50.0 %"), (12_345.6, "+12,346 %"),
        (1.5e7, "+1.5e7 %"),
    ],
)  # fmt: skip
def test_a_rise_in_per_cent_has_its_sign(value: float, text: str):
    assert measures.percent(Number(value)) == text


def test_a_rise_of_the_loss_is_one_of_the_perplexity():
    found = measures.rise(halves([0.0], [LN]), halves(0.0, 0.0))
    ends = (found.value[0], found.low[0], found.high[0])
    assert ends == pytest.approx((10.0, 100 * (1.21**0.25 - 1), 100 * (1.21**0.75 - 1)), rel=1e-4)
    value = np.array([1.0, 1.0, 1.0])
    one = Measure(value, value - 0.5, value + 0.5)
    other = Measure(value, np.array([1.5, 1.6, -1.0]), np.array([3.0, 3.0, 0.4]))
    assert measures.apart(one, other).tolist() == [False, True, True]
    assert measures.apart(one, Measure(value)).tolist() == [False, False, False]
    assert measures.at(one, 1) == Number(1.0, 0.5, 1.5)
    low, high = measures.ends(Measure(value))
    assert np.isnan(low).all() and np.isnan(high).all()


@pytest.mark.parametrize(("look", "ends"), [(LIGHT, ("#FFFFFF", "#08305C")),
                                            (DARK, ("#1B1F26", "#C6E7FF"))])  # fmt: skip
def test_colours_go_from_one_end_of_a_scale_to_the_other(look, ends):
    scale = drawing.scaled(look.sequential, 10.0, 30.0).to_dict()
    assert scale["domain"] == pytest.approx([10.0, 16.0, 23.0, 30.0])
    assert (scale["range"][0], scale["range"][-1]) == ends
    assert drawing.settings(look)["axis"]["labelColor"] == look.ink
    assert drawing.settings(look)["background"] == "transparent"
    chart = alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x:Q")
    row, column = (join(chart, chart).to_dict() for join in (drawing.beside, drawing.above))
    assert (len(row["hconcat"]), row["spacing"]) == (2, 24)
    assert (len(column["vconcat"]), column["spacing"]) == (2, 16)
    assert row["resolve"] == column["resolve"] == {"scale": {"color": "independent"}}
    assert [layer_maps.tall(layers) for layers in (3, 8, 50)] == [230, 322, 430]
