"""Pictures and tables of the line between two models, on records with planted hills."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.charts import barrier_tables, barriers, drawing, head_orders, planes
from app.charts.barriers import WHATS
from app.charts.measures import at
from app.charts.theme import DARK, LIGHT
from engine.questions.line import ABLATION, USUAL
from engine.records import STAGES
from tests import fake_barriers as fake


def spec(chart: Any) -> dict[str, Any]:
    return chart.to_dict()


def marks(chart: Any) -> list[str]:
    return [layer["mark"]["type"] for layer in spec(chart)["layer"]]


def test_every_stage_has_a_name_and_a_colour_of_its_own():
    assert set(barriers.NAMES) == set(barriers.COLOURS) == set(STAGES)
    assert len(set(barriers.NAMES.values())) == len(set(barriers.COLOURS.values())) == len(STAGES)


@pytest.mark.parametrize("what", WHATS)
def test_the_points_of_the_figure_are_those_of_the_record(what):
    report = fake.report(STAGES)
    table = barriers.points(report, what)
    assert len(table) == len(STAGES) * 25
    for curve in report.curves:
        rows = table[table["stage"] == curve.stage]
        found = curve.points("accuracy" if what == "accuracy" else "loss")
        values = np.exp(found.value) if what == "perplexity" else found.value
        np.testing.assert_allclose(rows["value"], values, rtol=1e-3)
        assert (rows["from"] <= rows["value"]).all() and (rows["value"] <= rows["to"]).all()
        ends = rows.iloc[[0, -1]]
        np.testing.assert_allclose(ends["chord"], ends["value"], rtol=1e-3)
        assert (ends["excess"].abs() < 1e-12).all()


def test_the_barrier_is_marked_where_it_was_planted():
    report = fake.report(("none", "all"))
    planted = replace(report, curves=(fake.curve("none", 2.0, peak=0.25), report.curves[1]))
    table = barriers.peaks(planted, "loss")
    assert table["t"].tolist() == [0.25, 0.5]
    stroke = table["value"] - table["chord"]
    wanted = [float(curve.barrier().value) for curve in planted.curves]
    np.testing.assert_allclose(stroke, wanted)
    assert table["barrier"].tolist()[0] == at(planted.curves[0].barrier()).said(3)
    deep = barriers.peaks(planted, "accuracy")
    assert (deep["value"] < deep["chord"]).all()


def test_a_perplexity_stands_above_its_chord_by_the_barrier_of_the_loss():
    table = barriers.peaks(fake.report(), "perplexity")
    loss = barriers.peaks(fake.report(), "loss")
    np.testing.assert_allclose(np.log(table["value"] / table["chord"]),
                               loss["value"] - loss["chord"])  # fmt: skip


def test_one_chord_is_drawn_where_all_ends_agree_and_one_each_elsewhere():
    assert barriers.chords(fake.report(), "loss")["shown"].tolist() == ["chord", "chord"]
    apart = barriers.chords(fake.scoped(shared=False), "loss")
    assert len(apart) == 2 * len(USUAL)
    assert len(set(apart[apart["t"] == 1]["value"])) == len(USUAL)
    assert barriers.chords(fake.scoped(), "loss")["shown"].nunique() == 1


def test_the_figure_has_bands_chord_curves_barriers_and_the_chosen_t():
    chart = barriers.lines(fake.report(), "loss", 0.25, LIGHT)
    assert marks(chart) == ["area", "line", "line", "point", "rule", "point", "rule"]
    whole = spec(chart)
    assert whole["layer"][1]["mark"]["strokeDash"] == [6, 4]
    name = whole["layer"][-1]["data"]["name"]
    assert whole["datasets"][name] == [{"t": 0.25}]
    assert whole["layer"][2]["encoding"]["y"]["scale"]["type"] == "linear"
    log = spec(barriers.lines(fake.report(), "perplexity", 0.25, LIGHT))
    assert log["layer"][2]["encoding"]["y"]["scale"]["type"] == "log"


def test_a_curve_that_is_not_whole_is_called_partial():
    text = json.dumps(spec(barriers.lines(fake.partial(), "loss", 0.5, LIGHT)))
    assert "residual, signs off, partial" in text
    assert "raw, partial" not in text
    assert ", partial" not in json.dumps(spec(barriers.lines(fake.report(), "loss", 0.5, LIGHT)))


def test_without_enough_windows_there_is_no_band():
    table = barriers.points(fake.report(windows=8), "loss")
    assert table[["from", "to"]].isna().all().all()
    assert barriers.points(fake.report(windows=16), "loss")[["from", "to"]].notna().all().all()


def test_a_loss_without_end_leaves_the_rest_of_the_figure():
    report = fake.report(("none", "random"))
    loss = report.curves[1].loss.copy()
    loss[12] = np.inf
    report = replace(report, curves=(report.curves[0], replace(report.curves[1], loss=loss)))
    text = json.dumps(spec(barriers.lines(report, "loss", 0.5, LIGHT)))
    assert "Infinity" not in text and "NaN" not in text
    assert len(barriers.peaks(report, "loss")) == 1
    assert "∞" in barrier_tables.stages(report, "loss")["barrier, nats"][1]


def test_nothing_measured_yet_draws_nothing():
    none = replace(fake.report(), curves=(), complete=False)
    assert barriers.points(none, "loss").empty
    assert barriers.peaks(none, "loss").empty
    assert barrier_tables.stages(none, "loss").empty


def test_the_table_of_stages_gives_barrier_share_place_and_distance():
    table = barrier_tables.stages(fake.report(), "loss")
    assert table["stage"].tolist()[0] == "raw" and len(table) == len(USUAL)
    assert table["% of raw"].tolist()[0] == "–"
    assert table["% of raw"].tolist()[-2].startswith("19 % [")
    assert table["peak t"].tolist() == ["0.5"] * len(USUAL)
    assert table["distance"].tolist()[0] == "1.4"
    twin = barrier_tables.stages(fake.twin(), "loss")
    assert twin["% of raw"].tolist()[-2] == "below 0.01 %"
    flat = barrier_tables.stages(fake.report(hills={"none": 0.0}), "loss")
    assert set(flat["% of raw"]) == {"–"}
    other = barrier_tables.stages(fake.report(("orders", "all")), "loss", "orders")
    assert other["% of the first"].tolist()[0] == "–"
    assert other["% of the first"].tolist()[1].startswith("20 %")


def test_the_table_at_t_says_what_is_not_measured():
    table = barrier_tables.standing(fake.report(), 0.5)
    assert table["loss, nats"].str.contains("[", regex=False).all()
    assert float(table["perplexity"][5]) == pytest.approx(np.exp(1.8), rel=0.05)
    partial = barrier_tables.standing(fake.partial(), 0.125)
    assert partial["loss, nats"].tolist()[1] == "not measured yet"
    assert partial["loss, nats"].tolist()[0] != "not measured yet"
    off = barrier_tables.standing(fake.report(), 0.51)
    assert set(off["loss, nats"]) == {"not measured"}


def test_the_file_of_points_has_every_model_with_both_readings():
    table = barrier_tables.every(fake.report())
    assert len(table) == len(USUAL) * 25
    ends = [f"{what} {end}" for what in WHATS for end in ("low", "high", "chord")]
    assert {"stage", "t", *WHATS, *ends} <= set(table)
    assert len(set(table.columns)) == len(table.columns)
    np.testing.assert_allclose(table["perplexity"], np.exp(table["loss"]))
    assert table.drop(columns="stage").dtypes.map(lambda kind: kind.kind).eq("f").all()


def test_the_file_of_stages_holds_numbers_alone():
    report = fake.twin()
    table = barrier_tables.every_stage(report)
    words = ["stage", "name", "complete"]
    assert table.drop(columns=words).dtypes.map(lambda kind: kind.kind).isin(["f", "i"]).all()
    row = table[table["stage"] == "all"].iloc[0]
    one = at(report.curves[staged(report).index("all")].barrier())
    assert (row["loss barrier"], row["loss barrier low"], row["loss barrier high"]) == (
        one.value, one.low, one.high)  # fmt: skip
    assert 0 < row["loss barrier, % of raw"] < 0.01
    few = barrier_tables.every_stage(fake.report(windows=8))
    assert few["loss barrier low"].isna().all() and few["loss barrier"].notna().all()


def staged(report):
    return [curve.stage for curve in report.curves]


def called(report):
    """The names of the legend, one for each line that is drawn."""
    chart = spec(barriers.lines(report, "loss", 0.5, LIGHT))
    return chart["layer"][2]["encoding"]["color"]["scale"]["domain"]


def test_curves_that_cover_each_other_share_one_name_and_one_line():
    report = fake.report(("none", "res", "ffn", "all"))
    first = report.curves[0]
    same = tuple(replace(first, stage=one) for one in ("none", "res"))
    near = replace(first, stage="ffn", loss=first.loss + 1e-7)
    report = replace(report, curves=(*same, near, report.curves[-1]))
    assert called(report) == ["raw ≈ residual ≈ + FFN", "all coordinates"]
    equal = replace(report, curves=(*same, report.curves[-1]))
    chart = spec(barriers.lines(equal, "loss", 0.5, LIGHT))
    assert chart["layer"][2]["encoding"]["color"]["scale"]["domain"] == [
        "raw = residual", "all coordinates"]  # fmt: skip
    assert len(barrier_tables.stages(equal, "loss")) == 3  # the table names every stage


def test_curves_that_differ_visibly_are_not_joined():
    report = fake.report(("none", "random"))
    assert called(report) == ["raw", "random gauge (control)"]
    part = fake.partial()
    same = replace(part.curves[1], stage="res")
    assert len(called(replace(part, curves=(*part.curves, same)))) == 3


def test_a_midpoint_is_drawn_as_points_not_as_a_curve():
    layers = spec(barriers.lines(fake.report(points=3), "loss", 0.5, LIGHT))["layer"]
    assert layers[2]["mark"]["strokeDash"] == [1, 5] and layers[3]["mark"]["size"] == 70
    layers = spec(barriers.lines(fake.report(), "loss", 0.5, LIGHT))["layer"]
    assert "strokeDash" not in layers[2]["mark"]


def test_ratios_are_those_of_the_record_with_their_intervals():
    report = fake.report(ABLATION)
    chart = barriers.ratios(report, ABLATION[1:], "none", LIGHT)
    rows = next(rows for rows in spec(chart)["datasets"].values() if "value" in rows[0])
    wanted = [100 * float(report.relative(stage).value) for stage in ABLATION[1:]]
    assert [row["value"] for row in rows] == pytest.approx(wanted)
    assert all(row["from"] <= row["value"] <= row["to"] for row in rows)
    flat = fake.report(ABLATION, hills={"none": 1e-6})
    bare = spec(barriers.ratios(flat, ABLATION[1:], "none", LIGHT)).get("datasets", {})
    assert not any("value" in row for rows in bare.values() for row in rows)


def test_the_plane_has_a_cell_for_every_measured_model_and_the_three_models():
    record = fake.plane(5)
    table = planes.cells(record)
    assert len(table) == planes.measured(record) == 25
    assert np.allclose(table["right"] - table["left"], 1.5 / 4)
    low = table.sort_values("loss").iloc[0]
    assert np.hypot(low["x"], low["y"]) < 0.2 or np.hypot(low["x"] - 0.3, low["y"] - 0.5) < 0.3
    whole = spec(planes.plane(record, LIGHT))
    names = {row.get("name") for rows in whole["datasets"].values() for row in rows}
    assert set(planes.PLACES) <= names
    half = fake.plane(5, complete=False)
    assert len(planes.cells(half)) == planes.measured(half) == 10
    nothing = replace(half, loss=np.full((5, 5), np.nan))
    assert spec(planes.plane(nothing, DARK))
    high = replace(record, loss=np.where(np.eye(5) > 0, np.inf, record.loss))
    assert np.isfinite(planes.cells(high)["drawn"]).all()


def test_orders_stand_from_the_lowest_barrier_and_the_taken_one_is_marked():
    table = head_orders.orders(fake.orders(chosen=3))
    assert table["barrier"].is_monotonic_increasing
    assert table[table["which"] == head_orders.CHOSEN]["order"].tolist() == ["1 2 0"]
    assert len(head_orders.orders(fake.orders(measured=2))) == 2
    text = json.dumps(spec(head_orders.barriers(fake.orders(), LIGHT)))
    naive = float(fake.orders().naive.barrier().value)
    assert json.dumps(naive) in text
    assert spec(head_orders.against(fake.orders()))


def test_every_picture_becomes_a_file():
    charts = (
        barriers.lines(fake.report(), "loss", 0.5, LIGHT),
        barriers.ratios(fake.report(ABLATION), ABLATION[1:], "none", LIGHT),
        planes.plane(fake.plane(5), LIGHT),
        drawing.beside(head_orders.barriers(fake.orders(), LIGHT),
                       head_orders.against(fake.orders())),
    )  # fmt: skip
    for chart in charts:
        data = drawing.image(chart, "svg")
        assert data.startswith(b"<svg") and len(data) > 2000


def test_a_long_curve_stays_small_on_the_wire():
    report = fake.report(STAGES, points=101)
    assert len(json.dumps(spec(barriers.lines(report, "loss", 0.5, LIGHT)))) < 1_000_000
