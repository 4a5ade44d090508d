"""Figures and tables of the line between two models, on hills that can be followed by hand."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.charts import (
    barrier_tables,
    barriers,
    covering,
    head_orders,
    planes,
    reproductions,
    theme,
)
from app.charts.theme import LIGHT
from engine.records import (
    Architecture,
    BarrierReport,
    Connectivity,
    Curve,
    LossSlice,
    OrderTrial,
    PublishedConnectivity,
    ScopeRatios,
)
from tests import fake_barriers
from tests.drawn import Drawn

hill = partial(fake_barriers.hill, distance=1.25)
RAW, ALL = hill("none", 2, 2, 1), hill("all", 0.2, 0.6, distance=0.5)


def line(*curves: Curve, **more: Any) -> BarrierReport:
    given = {"curves": curves or (RAW, ALL), "grid": np.linspace(0, 1, 5)}
    return replace(fake_barriers.report(("none",)), **(given | more))


@pytest.mark.parametrize(
    ("what", "title", "value", "low", "high", "chord", "excess"),
    [
        ("loss", "loss, nats", 1.9, 1.8, 2.0, 1.5, 0.4),
        ("accuracy", "accuracy", 0.545, 0.525, 0.565, 0.625, 0.08),
        ("perplexity", "perplexity (log)", 6.686, 6.05, 7.389, 4.482, 0.4),  # e^1.9 and so on
    ],
)
def test_a_curve_stands_over_t_with_both_ends_of_its_interval(
    what, title, value, low, high, chord, excess
):
    drawn = Drawn(barriers.lines(line(), what, 0.25, LIGHT))
    rows = drawn.rows(2)
    (row,) = rows[(rows["stage"] == "all") & (rows["t"] == 0.5)].to_dict("records")
    assert row == {
        "stage": "all", "shown": "all coordinates", "t": 0.5, "value": value, "from": low,
        "to": high, "chord": chord, "excess": excess,
    }  # fmt: skip
    for layer in (0, 2, 3):
        assert drawn.titles(layer)["x"] == "t: A at 0, the other end at 1"
    assert drawn.titles(2)["y"] == title
    assert drawn.fields(0) == {"x": "t", "y": "from", "y2": "to", "color": "shown"}
    assert drawn.fields(2) == {"x": "t", "y": "value", "color": "shown"}
    assert drawn.fields(4) == {"x": "t", "y": "value", "y2": "chord", "color": "shown"}
    assert drawn.colours(2) == {"raw": "#D55E00", "all coordinates": "#0072B2"}
    assert drawn.tips(3) == {
        "shown": ("stage", ""), "t": ("t", ".4~f"), "value": (what, ".4g"),
        "from": ("interval from", ".4g"), "to": ("interval to", ".4g"), "chord": ("chord", ".4g"),
        "excess": ("worse than the chord by", ".3g"),
    }  # fmt: skip


def test_a_barrier_is_marked_where_its_curve_is_furthest_from_its_chord():
    drawn = Drawn(barriers.lines(line(), "loss", 0.25, LIGHT))
    assert drawn.rows(5).round(9).to_dict("records") == [
        {"shown": "raw", "t": 0.25, "value": 3.25, "chord": 1.25, "barrier": "2 [2, 2]"},
        {"shown": "all coordinates", "t": 0.5, "value": 1.9, "chord": 1.5,
         "barrier": "0.4 [0.3, 0.5]"},
    ]  # fmt: skip
    assert drawn.rows(1).to_dict("records") == [
        {(
            "shown"
        ): (
            "chord"
        ), "t": 0.0, "value": 1.0}, {"shown": "chord", "t": 1.0, "value": 2.0}]  # fmt: skip
    assert drawn.rows(6).to_dict("records") == [{"t": 0.25}]
    other = replace(ALL, loss=ALL.loss + 0.5 * ALL.t[:, None])
    chords = barriers.chords(line(RAW, other), "loss")
    assert chords[["shown", "value"]].values.tolist() == [
        ["raw", 1.0], ["raw", 2.0], ["all coordinates", 1.0], ["all coordinates", 2.5]]  # fmt: skip


def test_parts_of_the_raw_barrier_are_drawn_in_per_cent():
    drawn = Drawn(barriers.ratios(line(RAW, hill("heads", 1, 1), ALL), ("heads", "all"), "none",
                                  LIGHT))  # fmt: skip
    assert drawn.rows(1)[["shown", "value", "from", "to", "said"]].values.tolist() == [
        ["+ head order", 50, 50, 50, "50"],
        ["all coordinates", pytest.approx(20), pytest.approx(15), pytest.approx(25), "20"],
    ]
    assert drawn.titles(1) == {"x": "barrier, % of raw"}
    assert drawn.fields(0) == {"x": "from", "x2": "to", "y": "shown"}
    assert drawn.fields(1) == {"x": "value", "y": "shown", "color": "stage"}
    assert drawn.layers[1]["encoding"]["y"]["sort"] == ["+ head order", "all coordinates"]
    assert drawn.scale("x", 1)["domain"] == [0, pytest.approx(55)]
    tiny = Drawn(barriers.ratios(line(RAW, hill("all", 1e-5, 1e-5)), ("all",), "none", LIGHT))
    assert tiny.rows(1)["said"].tolist() == ["below 0.01"]


@pytest.mark.parametrize(
    ("top", "to", "value"), [(0.0101, "none", 100.0), (0.0099, "none", None), (0.5, "heads", None)]
)
def test_nothing_is_a_part_of_a_barrier_that_is_none(top: float, to: str, value: float | None):
    found = barriers.ratio(line(hill("none", top, top), hill("all", top, top)), "all", "loss", to)
    assert (np.isnan(found.value) and value is None) or found.value == pytest.approx(value)


def test_tables_of_a_line_give_barriers_shares_and_units():
    table = barrier_tables.stages(line(), "loss")
    assert table.to_dict("records") == [
        {"stage": "raw", "barrier, nats": "2 [2, 2]", "% of raw": "–", "peak t": "0.25",
         "distance": "1.25", "points": 5},
        {"stage": "all coordinates", "barrier, nats": "0.4 [0.3, 0.5]",
         "% of raw": "20 % [15, 25]", "peak t": "0.5", "distance": "0.5", "points": 5},
    ]  # fmt: skip
    seen = barrier_tables.stages(line(), "accuracy", "all").iloc[0].to_dict()
    assert seen["barrier, share"] == "0.4 [0.4, 0.4]"
    assert seen["% of the first"] == "500 % [400, 667]"
    assert barrier_tables.standing(line(), 0.5).iloc[1].to_dict() == {
        "stage": "all coordinates", "loss, nats": "1.9 [1.8, 2]",
        "above the chord": "0.4 [0.3, 0.5]", "accuracy": "0.545 [0.525, 0.565]",
        "perplexity": "6.69",
    }  # fmt: skip
    row = barrier_tables.every(line()).iloc[7].to_dict()
    assert row == pytest.approx({
        "stage": "all", "t": 0.5, "loss": 1.9, "loss low": 1.8, "loss high": 2.0,
        "loss chord": 1.5, "loss excess": 0.4, "accuracy": 0.545, "accuracy low": 0.525,
        "accuracy high": 0.565, "accuracy chord": 0.625, "accuracy excess": 0.08,
        "perplexity": np.exp(1.9), "perplexity low": np.exp(1.8), "perplexity high": np.exp(2.0),
        "perplexity chord": np.exp(1.5),
    })  # fmt: skip
    assert barrier_tables.every_stage(line()).iloc[1].to_dict() == pytest.approx({
        "stage": "all", "name": "all coordinates", "complete": True, "loss barrier": 0.4,
        "loss barrier low": 0.3, "loss barrier high": 0.5, "loss barrier, % of raw": 20,
        "loss barrier, % of raw low": 15, "loss barrier, % of raw high": 25, "loss peak t": 0.5,
        "accuracy barrier": 0.08, "accuracy barrier low": 0.06, "accuracy barrier high": 0.1,
        "accuracy barrier, % of raw": 20, "accuracy barrier, % of raw low": 15,
        "accuracy barrier, % of raw high": 25, "accuracy peak t": 0.5, "distance": 0.5,
        "points": 5,
    })  # fmt: skip


def test_a_part_is_below_what_is_told_only_with_its_whole_interval():
    tiny, wide = hill("all", 1e-5, 2e-5), hill("all", 0, 3e-4)  # of 2 nats: 0.0008 and 0.0075 %
    for curve, text in ((tiny, "below 0.01 %"), (wide, "0.0075 % [0.0037, 0.011]")):
        assert barrier_tables.share(line(RAW, curve), "all") == text
    few = [replace(x, loss=x.loss[:, :8], positions=x.positions[:8]) for x in (RAW, wide, ALL)]
    assert barrier_tables.share(line(*few[:2]), "all") == "below 0.01 %"
    assert barrier_tables.share(line(few[0], few[2]), "all") == "20 %"
    assert barrier_tables.COLUMNS == (
        "In the CSV files, low and high are the ends of a 95 % interval, chord is the straight "
        "line between both ends, excess how much worse a model is than it."
    )
    assert list(barriers.points(line(RAW, curves=()), "loss")) == [
        "stage", "shown", "t", "value", "from", "to", "chord", "excess"]  # fmt: skip
    assert barriers.NAMES["res"] == "residual" and barriers.NAMES["ffn"] == "+ FFN"
    assert barriers.drawn(replace(RAW, loss=RAW.loss + 800), ("perplexity"))[0].value[0] == np.exp(
        690
    )


@pytest.mark.parametrize(("away", "together"), [(3e-3, True), (5e-3, False), (-5e-3, False)])
def test_curves_cover_each_other_within_a_part_of_the_height(away: float, together: bool):
    """The losses of the raw line lie between 1 and 3.25: 0.002 of that is 0.0045 nats."""
    near = replace(RAW, stage="res", loss=RAW.loss + away * (np.arange(5) == 3)[:, None])
    found = covering.covering((RAW, near, ALL))
    names = [[one.stage for one in same] for same in found]
    assert names == ([["none", "res"], ["all"]] if together else [["none"], ["res"], ["all"]])
    assert covering.covering((RAW, replace(RAW, stage="res", complete=False)))[1]
    assert covering.joined((RAW, near), lambda curve: curve.stage) == "none ≈ res"
    assert covering.joined((RAW, replace(near, loss=RAW.loss)), lambda x: x.stage) == "none = res"
    some = replace(RAW, stage="ffn", t=RAW.t[::2], loss=RAW.loss[::2], accuracy=RAW.accuracy[::2])
    assert len(covering.covering((RAW, some))) == 2  # between its points a curve is straight


def test_orders_of_heads_are_drawn_from_the_lowest_barrier_and_the_taken_one_in_colour():
    curves = tuple(hill("all", low, low + 0.1) for low in (0.5, 0.2, 0.7))
    record = replace(
        fake_barriers.orders(), orders=((0, 1), (1, 0), (1, 2)), chosen=2, curves=curves,
        objective=np.array([3.0, 2.0, 2.5]), naive=RAW,
    )  # fmt: skip
    table = head_orders.orders(record)
    assert table.to_dict("records")[0] == {
        "order": "1 0", "barrier": 0.25, "from": 0.225, "to": 0.275, "peak t": 0.5,
        "objective": 2.0, "which": "other orders",
    }  # fmt: skip
    assert table["which"].tolist() == ["other orders", "other orders", "taken by the alignment"]
    drawn = Drawn(head_orders.barriers(record, LIGHT))
    assert drawn.rows(0)["barrier"].tolist() == [2.0]
    assert drawn.fields(1) == {"x": "order", "y": "from", "y2": "to", "color": "which"}
    assert drawn.titles(2) == {"x": "B's heads at A's places", "y": "barrier, nats"}
    assert drawn.layers[2]["encoding"]["x"]["sort"] == ["1 0", "0 1", "1 2"]
    assert drawn.colours(2) == {
        "taken by the alignment": theme.PLUS, "other orders": theme.QUIET}  # fmt: skip
    axes = []
    for count in (8, 9, 31):
        some = replace(
            record, orders=tuple((n, n + 1) for n in range(count)), curves=curves[:1] * count,
            objective=np.arange(float(count)),
        )  # fmt: skip
        x = Drawn(head_orders.barriers(some, LIGHT)).layers[2]["encoding"]["x"]
        axes.append((x["axis"]["labels"], x["axis"]["labelAngle"], x["title"]))
    assert axes == [
        (True, 0, "B's heads at A's places"), (True, -90, "B's heads at A's places"),
        (False, -90, "every order, the lowest barrier first"),
    ]  # fmt: skip
    other = Drawn(head_orders.against(record))
    assert other.fields() == {"x": "objective", "y": "barrier", "color": "which"}
    assert other.titles() == {"x": "what Stage 2 leaves", "y": "barrier, nats"}
    assert set(other.tips()) == {"order", "barrier", "from", "to", "objective"}


def test_a_plane_has_rows_upward_and_columns_towards_b():
    loss = np.array([[1.5, 3.25, 2.0], [np.nan, np.inf, 0.5]])
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 0.75]])
    record = LossSlice(
        "base", "seed-1", "all", np.array([0.0, 0.5, 1.0]), np.array([-0.25, 0.75]), loss,
        np.exp(-loss), places, 31.0, "next token", False, fake_barriers.run(),
    )  # fmt: skip
    cells = planes.cells(record).to_dict("records")
    assert cells[1] == {
        "x": 0.5, "y": -0.25, "left": 0.25, "right": 0.75, "low": -0.75, "high": 0.25,
        "loss": 3.25, "drawn": 3.25, "accuracy": 0.03877,
    }  # fmt: skip
    assert [(c["x"], c["y"], c["drawn"]) for c in cells] == [
        (0.0, -0.25, 1.5), (0.5, -0.25, 3.25), (1.0, -0.25, 2.0), (0.5, 0.75, 3.25),
        (1.0, 0.75, 0.5),
    ]  # fmt: skip
    drawn = Drawn(planes.plane(record, LIGHT))
    assert drawn.fields(0) == {
        "x": "left", "x2": "right", "y": "low", "y2": "high", "color": "drawn"}  # fmt: skip
    assert drawn.titles(0) == {
        "x": (
            "towards B, in units of ‖B − A‖"
        ), "y": "towards aligned B", "color": "loss, nats"}  # fmt: skip
    colours = drawn.colours(0)
    assert (colours[0.5], colours[3.25]) == ("#FFFFFF", "#08305C")  # the highest loss is darkest
    assert drawn.scale("x")["domain"] == [-0.25, 1.25]
    assert drawn.scale("y")["domain"] == [-0.75, 1.25]
    assert drawn.rows(2).to_dict("records") == [
        {"x": 0.0, "y": 0.0, "name": "A"}, {"x": 1.0, "y": 0.0, "name": "B"},
        {"x": 0.25, "y": 0.75, "name": "B in A's coordinates"},
    ]  # fmt: skip
    paths = drawn.rows(1)
    assert paths[paths["line"] == "aligned"]["name"].tolist() == ["A", "B in A's coordinates"]
    assert planes.measured(record) == 5


def scope(alone: Any, full: Any, **more: Any) -> ScopeRatios:
    """Ratios of two pairs: value, low, high."""
    half = [[0.5, 0.4, 0.6], [0.55, 0.5, 0.65]]
    given = {
        "architecture": "gpt2", "scope": "whole", "pairs": (("a", "b"), ("c", "d")),
        "naive": np.array([1.0, 3.0]), "relative": np.array([alone, half, full]),
        "left": np.zeros((2, 3)), "difference": np.array([[-0.5, -0.75, -0.25], [0.1, 0.0, 0.2]]),
    }  # fmt: skip
    return ScopeRatios(**(given | more))


GPT = scope([[0.8, 0.7, 0.9], [0.6, 0.5, 0.75]], [[0.2, 0.1, 0.3], [np.nan] * 3])
MEASURED = Connectivity(
    {"gpt2": Architecture("gpt2", "decoder", "absolute", "next token", "text", 3, 48, 4)},
    (GPT, replace(GPT, scope="first-layer", using="activations")), (), (), (), 25, "command",
)  # fmt: skip
THEIRS = PublishedConnectivity(
    "source", "ViT and BERT", ("CIFAR",), "first-attention",
    {"none": (0.5, 0.7), "orthogonal": (0.3, 0.4), "full": (0.1, 0.3)}, "third", {},
)  # fmt: skip


def test_measured_ratios_are_dots_beside_published_ranges():
    drawn = Drawn(reproductions.ratios(MEASURED, THEIRS, "whole", LIGHT))
    assert drawn.rows(1).to_dict("records") == [
        {"who": "published: ViT, BERT", "stage": stage, "variant": variant,
         "pair": "range over data sets", "low": low, "high": high}
        for stage, variant, low, high in (
            ("Stage 1 alone", "none", 0.5, 0.7), ("orthogonal Stage 2", "orthogonal", 0.3, 0.4),
            ("full Stage 2", "full", 0.1, 0.3),
        )
    ]  # fmt: skip
    dots = drawn.rows(3)
    assert dots[["who", "stage", "pair", "ratio", "low", "high"]].values.tolist() == [
        ["GPT-2", "Stage 1 alone", "a to b", 0.8, 0.7, 0.9],
        ["GPT-2", "Stage 1 alone", "c to d", 0.6, 0.5, 0.75],
        ["GPT-2", "orthogonal Stage 2", "a to b", 0.5, 0.4, 0.6],
        ["GPT-2", "orthogonal Stage 2", "c to d", 0.55, 0.5, 0.65],
        ["GPT-2", "full Stage 2", "a to b", 0.2, 0.1, 0.3],
    ]
    means = dict(zip(drawn.rows(4)["stage"], drawn.rows(4)["ratio"], strict=True))
    assert means == pytest.approx(
        {"Stage 1 alone": 0.7, "orthogonal Stage 2": 0.525, "full Stage 2": 0.2}
    )
    assert drawn.rows(0)["at"].tolist() == [1.0]
    assert drawn.titles(1)["x"] == "barrier relative to the naive line"
    assert drawn.fields(2)["x"] == "low" and drawn.fields(2)["x2"] == "high"
    assert drawn.fields(3)["x"] == "ratio"
    assert drawn.colours(3) == {
        "Stage 1 alone": theme.QUIET, (
            "orthogonal Stage 2"
        ): "#E69F00", "full Stage 2": theme.PLUS}  # fmt: skip
    assert drawn.tips(3)["ratio"] == ("ratio", ".1%")
    assert drawn.spec["height"] == 190  # two rows of 50 and what is around


def test_tables_of_ratios_give_means_ranges_and_every_pair():
    assert reproductions.table(MEASURED).iloc[0].to_dict() == {
        "model": "GPT-2", "positions": "absolute", "scope": "whole", "matched by": "weights",
        "pairs": 2, "naive, nats": "2 (1 to 3)", "Stage 1 alone": "70% (60% to 80%)",
        "orthogonal Stage 2": "52% (50% to 55%)", "full Stage 2": "20% (20% to 20%)",
    }  # fmt: skip
    assert reproductions.table(MEASURED)["matched by"].tolist() == ["weights", "activations"]
    assert reproductions.span(np.array([]), "{:.0%}") == "no ratio"
    row = reproductions.pairs(MEASURED).iloc[0].to_dict()
    assert row == {
        "model": "GPT-2", "scope": "whole", "matched by": "weights", "a": "a", "b": "b",
        "naive, nats": 1.0, "Stage 1 alone": 0.8, "Stage 1 alone low": 0.7,
        "Stage 1 alone high": 0.9, "orthogonal Stage 2": 0.5, "orthogonal Stage 2 low": 0.4,
        "orthogonal Stage 2 high": 0.6, "full Stage 2": 0.2, "full Stage 2 low": 0.1,
        "full Stage 2 high": 0.3, "full minus orthogonal, nats": -0.5,
        "full minus orthogonal, nats low": -0.75, "full minus orthogonal, nats high": -0.25,
    }  # fmt: skip
    assert pd.isna(reproductions.pairs(MEASURED)["full Stage 2"][1])


def test_trials_of_orders_are_ranked_by_their_barrier():
    trial = OrderTrial("vit", ("a", "b"), np.array([0.5, 0.25, 0.75]), 1.5, 2, (1, 3))
    drawn = Drawn(reproductions.orders((trial,), LIGHT))
    assert drawn.rows(1).to_dict("records") == [
        {"who": "1: ViT", "pair": "a to b", "rank": 1, "barrier": 0.25, "order": "other"},
        {"who": "1: ViT", "pair": "a to b", "rank": 2, "barrier": 0.5, "order": "other"},
        {"who": "1: ViT", "pair": "a to b", "rank": 3, "barrier": 0.75, "order": "chosen"},
    ]  # fmt: skip
    assert drawn.rows(0).to_dict("records") == [{"who": "1: ViT", "barrier": 1.5}]
    assert drawn.titles(1)["x"] == "barrier, nats"
    assert drawn.colours(1) == {"other": theme.QUIET, "chosen": theme.PLUS}
    assert drawn.scale("size", 1)["range"] == [20, 110]
    assert drawn.tips(0) == {"barrier": ("naive", ".3g")}
    both = Drawn(reproductions.orders((trial, trial), LIGHT))
    assert (drawn.spec["height"], both.spec["height"]) == (114, 138)
