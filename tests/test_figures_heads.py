"""Figures and tables of heads, neurons and experts, on records of a few numbers."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.charts import (
    disguises,
    experts,
    heads,
    neurons,
    objectives,
    pairings,
    theme,
    turns,
)
from app.charts.heads import Cell
from app.charts.theme import LIGHT
from engine.records import (
    Assignment,
    Disguise,
    Excited,
    HeadCost,
    HeadsReport,
    NeuronMatch,
    Spared,
    Truth,
)
from tests import fake_experts, fake_heads, fake_neurons
from tests.drawn import Drawn

frequencies = partial(
    fake_heads.frequencies,
    planted_angle=np.radians([[30.0, -120.0]]),
    planted_log_modulus=np.zeros((1, 2)),
)


def two_heads(**more: Any) -> HeadsReport:
    """A's head 0 is B's 1 and the other way round; the mean cost is 2, of either term 1."""
    cost = HeadCost(
        "rotary", np.array([[3.0, 1.0], [0.0, 4.0]]), np.array([[2.0, 0.0], [1.0, 3.0]]), (2.0, 1.5)
    )
    seen = HeadCost("published", np.array([[1.0, 3.0], [0.0, 4.0]]), np.zeros((2, 2)), (2.0, 1.0))
    given = {
        "own": cost, "published": seen, "order": np.array([1, 0]), "second": np.array([0, 1]),
        "margin": np.array([1.25, 1.5], np.float32), "planted_order": np.array([0, 1]),
        "query_key": np.array([[4.0, 12.0], [2.0, 2.0], [0.25, 0.75], [0.01, 0.12]]),
        "query_key_norm": np.array([4.0, 12.0]), "value_output_norm": np.array([1.0, 4.0]),
        "value_output": np.array([[1.0, 4.0], [0.5, 0.5], [0.04, 0.01], [0.0, 4e-4]]),
        "turns": frequencies(), "rank": None, "removal": None,
    }  # fmt: skip
    return fake_heads.heads_report(shape=fake_heads.Shape(1, 2, 4), **(given | more))


def test_costs_of_heads_have_a_down_and_b_across():
    record = two_heads()
    table = heads.cells(record, record.own, "both", recovered=False)
    columns = ["a", "b", "cost", "shown", "query–key", "value–output", "partner", "truth"]
    assert table[columns].values.tolist() == [
        [0, 0, pytest.approx(17 / 12), "1.4", 3.0, 2.0, False, True],
        [0, 1, 0.25, "0.25", 1.0, 0.0, True, False],
        [1, 0, pytest.approx(1 / 3), "0.33", 0.0, 1.0, True, False],
        [1, 1, 2.0, "2", 4.0, 3.0, False, True],
    ]  # fmt: skip
    drawn = Drawn(heads.cost_map(record, record.own, "both", LIGHT, False, Cell(0, 1)))
    assert drawn.fields(0) == {"x": "x", "x2": "x2", "y": "y", "y2": "y2", "color": "cost"}
    assert drawn.titles(0) == {"x": "head of B", "y": "head of A"}
    assert drawn.scale("y")["reverse"] is True
    assert drawn.tips(0) == {
        "a": ("head of A", ""), "b": ("head of B", ""), "cost": ("cost over the mean", ".3g"),
        "query–key": ("query–key", ".3g"), "value–output": ("value–output", ".3g"),
    }  # fmt: skip
    colours = drawn.colours(0)
    assert (colours[0.0], colours[2.0]) == ("#FFFFFF", "#08305C")  # cheap is light
    assert table[["x", "x2", "middle", "y", "y2"]].values.tolist()[1:3] == [
        [0.5, 1.5, 1.0, -0.5, 0.5], [-0.5, 0.5, 0.0, 0.5, 1.5]]  # fmt: skip
    marks = {layer["mark"].get("color"): layer for layer in drawn.layers}
    assert marks[theme.TRUTH]["transform"] == [{"filter": "datum['truth']"}]
    assert marks[theme.MINUS]["transform"] == [{"filter": "datum['partner']"}]
    recovered = Drawn(heads.cost_map(record, record.own, "both", LIGHT, True, Cell(0, 1)))
    assert recovered.titles(0)["x"] == "head of B, at the place of its partner"
    rows = recovered.rows(0)
    assert rows[rows["partner"]]["middle"].tolist() == [0, 1]
    assert [heads.tall(count) for count in (2, 6, 50)] == [250, 290, 450]
    assert [experts.tall(count) for count in (2, 6, 50)] == [210, 290, 450]
    terms = {term: heads.relative(record.own, term)[1].tolist() for term in heads.TERMS}
    assert terms == {
        "both": pytest.approx([1 / 3, 2.0]), "query-key": [0.0, 2.0],
        "value-output": pytest.approx([2 / 3, 2.0]),
    }  # fmt: skip


def test_lines_between_heads_lead_from_a_to_its_partner():
    drawn = Drawn(heads.order_map(two_heads(planted_order=np.array([1, 0])), LIGHT, 0))
    assert drawn.rows(1).to_dict("records") == [
        {"a": a, "link": f"partner {a}", "kind": "partner", "margin": margin,
         "what": f"A {a} ↔ B {b}", "x": x, "y": y}
        for a, b, margin in ((0, 1, 1.25), (1, 0, 1.5))
        for x, y in ((0, a), (1, b))
    ]  # fmt: skip
    dots = drawn.rows(2)
    assert dots[["name", "x", "y", "a", "chosen"]].values.tolist() == [
        ["A 0", 0, 0, 0, True], ["A 1", 0, 1, 1, False], ["B 0", 1, 0, 1, False],
        ["B 1", 1, 1, 0, True],
    ]  # fmt: skip
    assert drawn.colours(1) == {
        "partner": theme.PLUS, (
            "not the planted one"
        ): theme.MINUS, "planted": theme.TRUTH}  # fmt: skip
    wrong = Drawn(heads.order_map(two_heads(), LIGHT, 0)).rows(1)
    assert wrong["what"].tolist()[::2] == ["A 0 ↔ B 1", "A 0 ↔ B 0", "A 1 ↔ B 0", "A 1 ↔ B 1"]
    assert wrong["kind"].tolist()[::2] == ["not the planted one", "planted"] * 2
    assert drawn.rows(0).to_dict("records")[1] == pytest.approx(
        {"x": 0.78, "x2": 1.22, "name": "key/value head 0", "y": -0.42, "y2": 1.42}
    )


def test_disguises_stand_by_kind_with_both_costs_per_head():
    found = (
        Disguise("matrix", np.array([0.0, 3e-16]), np.array([1.5, 20.0]), 0.68, 0.24),
        Disguise("turn", np.zeros(2), np.array([0.0, 1e-13]), 4e-7, None),
    )
    record = two_heads(disguises=found)
    drawn = Drawn(disguises.chart(record, LIGHT))
    assert drawn.rows(1)[["disguise", "by", "head", "cost", "drawn"]].values.tolist()[:4] == [
        ["any matrix", "ours", 0, 1.5, 1.5], ["any matrix", "ours", 1, 20.0, 10.0],
        ["any matrix", "published", 0, 0.0, 1e-12], ["any matrix", "published", 1, 3e-16, 1e-12],
    ]  # fmt: skip
    assert drawn.titles(1) == {"x": "cost between queries and keys, over ‖M‖² of the head"}
    assert drawn.fields(1) == {
        "x": "drawn", "y": "disguise", "color": "by", "yOffset": "by", "shape": "by"}  # fmt: skip
    assert drawn.colours(1) == {"ours": theme.PLUS, "published": theme.MINUS}
    assert drawn.rows(0)["at"].tolist() == [2.0]
    assert drawn.scale("x", 1) == {"type": "log", "domain": [1e-13, 30.0], "nice": False}
    assert disguises.table(record).to_dict("records") == [
        {"disguise": "any matrix", "published": 3e-16, "ours": 20.0, "output moved": 0.68,
         "KL, nats": 0.24, "output": "broken"},
        {"disguise": "frequencies turned", "published": 0.0, "ours": 1e-13, "output moved": 4e-7,
         "KL, nats": pytest.approx(np.nan, nan_ok=True), "output": "exact"},
    ]  # fmt: skip


def test_what_every_step_leaves_is_a_relative_distance():
    record = two_heads()
    table = objectives.objectives(record)
    one = table[(table["side"] == "query–key") & (table["head"] == 1)]
    assert one[["step", "objective"]].values.tolist() == [
        ["stored", 12.0], ["order", 2.0], ["orthogonal", 0.75], ["full", 0.12]]  # fmt: skip
    assert one["distance"].tolist() == pytest.approx([1, (1 / 6) ** 0.5, 0.25, 0.1])
    other = table[(table["side"] == "value–output") & (table["head"] == 0)]
    assert other["drawn"].tolist() == pytest.approx([1.0, 0.5**0.5, 0.2, 1e-8])
    drawn = Drawn(objectives.steps(record, "value–output", LIGHT, 0))
    assert set(drawn.rows(1)["side"]) == {"value–output"}
    assert drawn.titles(1)["y"] == "relative distance"
    left = Drawn(objectives.left(record, LIGHT, 0))
    assert left.rows(1)[["head", "side", "distance"]].values.tolist() == [
        [0, "query–key", pytest.approx(0.05)], [1, "query–key", pytest.approx(0.1)],
        [0, "value–output", 0.0], [1, "value–output", pytest.approx(0.01)],
    ]  # fmt: skip
    assert left.titles(1) == {"x": "head of A", "y": "relative distance left"}
    assert left.colours(1) == {"query–key": theme.PLUS, "value–output": theme.MINUS}
    assert left.rows(0)["at"].tolist() == [1e-4]  # what counts as exact
    found = Drawn(objectives.singular(np.array([[3.0, 0.5], [2.0, 1.0]]), "values", LIGHT))
    assert found.rows(1).values.tolist() == [
        ["0", 1, 3.0], ["0", 2, 0.5], ["1", 1, 2.0], ["1", 2, 1.0]]  # fmt: skip
    assert found.titles(1)["x"] == "largest first" and found.titles(1)["y"] == "singular value"
    assert found.scale("y", 1)["domain"] == pytest.approx([0.4, 3.75])
    assert found.rows(0)["at"].tolist() == [1.0]
    removed = Drawn(objectives.removal(record, np.array([0.25, 0.5]), LIGHT, 1))
    assert removed.titles(0) == {"x": "head that is removed", "y": "mean KL, nats"}
    assert removed.rows(0).values.tolist() == [[0, 0.25], [1, 0.5]]


def test_pairs_of_heads_are_listed_with_both_costs():
    record = two_heads(query_scale=np.array([2.0, 3.0]), key_scale=np.array([0.5]))
    assert pairings.pairs(record).iloc[0].to_dict() == pytest.approx({
        "head of A": 0, "group of A": 0, "head of B": 1, "group of B": 0, "cost": 0.25,
        "second": 0, "its cost": 17 / 12, "margin": 1.25, "query–key left": 0.05,
        "value–output left": 0.0, "query factor": 2.0, "key factor": 0.5, "planted head of B": 0,
    })  # fmt: skip
    assert pairings.nearest(record).to_dict("records") == [
        pytest.approx({"A": 0, "ours": 1, "cost": 0.25, "published": 0, "its cost": 0.5,
                       "ours there": 17 / 12, "agree": False}),
        pytest.approx({"A": 1, "ours": 0, "cost": 1 / 3, "published": 0, "its cost": 0.0,
                       "ours there": 1 / 3, "agree": True}),
    ]  # fmt: skip
    assert pairings.apart(record).to_dict("records") == [
        pytest.approx({"A": 0, "B": 0, "published": 0.5, "ours": 17 / 12, "partners": False}),
        pytest.approx({"A": 1, "B": 0, "published": 0.0, "ours": 1 / 3, "partners": True}),
    ]  # fmt: skip
    itself = replace(record, fingerprints=("a" * 16,) * 2, removal=np.array([0.25, 0.5]))
    assert pairings.coincide(itself).to_dict("records") == [
        {"head": 0, "other": 1, "cost": 0.25, "one group": True, "KL without it": 0.25,
         "or the other": 0.5}
    ]  # fmt: skip
    assert pairings.nearest(itself)["ours"].tolist() == [1, 0]
    groups = replace(record, groups=2, per_group=1, key_scale=None)
    assert pairings.pairs(groups)[["group of A", "group of B"]].values.tolist() == [[0, 1], [1, 0]]
    removed = pairings.removal(groups, np.array([0.25, 0.5]))
    assert removed.values.tolist() == [[0, 0, 0.25], [1, 1, 0.5]]


def test_turns_are_drawn_in_degrees_and_moduli_by_their_logarithm():
    record = two_heads()
    assert turns.frequencies(record, record.turns).iloc[1].to_dict() == pytest.approx({
        "group of A": 0, "group of B": 0, "frequency": 1, "angle": -150.0, "log r": np.log(2),
        "r": 2.0, "weight": 0.25, "planted angle": -120.0, "planted log r": 0.0,
    })  # fmt: skip
    angle = Drawn(turns.turn_map(record, record.turns, "angle", LIGHT, (0, 1)))
    assert angle.spec["title"] == "angle φ, degrees"
    assert angle.titles(0) == {"x": "frequency, fastest first"}
    legend = angle.layers[0]["encoding"]["color"]["legend"]
    assert legend["values"] == [-180, -90, 0, 90, 180]
    assert angle.colours(0) == {
        -180.0: (
            "#2B2140"
        ), -90.0: "#D55E00", 0.0: "#FFFFFF", 90.0: "#0072B2", 180.0: "#2B2140"}  # fmt: skip
    assert angle.tips(0)["angle"] == ("angle φ, degrees", ".1f")
    assert angle.tips(0)["weight"] == ("its share of the head", ".1%")
    assert angle.rows(0)["row"].tolist() == ["heads 0 to 1"] * 2
    modulus = Drawn(turns.turn_map(record, record.turns, "modulus", LIGHT, (0, 1)))
    assert modulus.spec["title"] == "modulus, log r"
    colours = modulus.colours(0)
    assert [colours[min(colours)], colours[0.0], colours[max(colours)]] == [
        "#8C3B00", "#FFFFFF", "#00436B"]  # fmt: skip
    assert max(colours) == pytest.approx(np.log(2)) == -min(colours)


def test_a_clock_a_curve_and_a_landscape_agree_on_the_found_turn():
    found = frequencies()
    _, ring, hands = turns.clock(found, 0, 1, LIGHT).data
    assert list(ring.theta) == pytest.approx([30, -120]) and list(ring.r) == [1.0, 1.0]
    assert list(hands.theta) == pytest.approx([30, -150]) and list(hands.r) == pytest.approx([1, 2])
    assert list(hands.marker.size) == pytest.approx([16, 5 + 11 * (1 / 3) ** 0.5])
    assert list(hands.marker.line.width) == [0.0, 3.0]
    assert "φ %{theta:.1f}°, r %{r:.3f}" in hands.hovertemplate
    layout = turns.clock(found, 0, 1, LIGHT).layout
    assert layout.polar.angularaxis.ticktext == (
        "0°", "45°", "90°", "135°", "±180°", "−135°", "−90°", "−45°")  # fmt: skip
    assert layout.polar.angularaxis.tickvals == tuple(range(0, 360, 45))
    dashed, mine, best, hand = turns.curve(found, 0, 1, -60.0, 0.0, LIGHT).data
    assert (best.x[0], best.y[0]) == pytest.approx((-150, 7 / 8))
    # at −60° the pull is orthogonal: 8 + ½ + 4 over 8
    assert (hand.x[0], hand.y[0]) == pytest.approx((-60, 12.5 / 8))
    assert dashed.name == "at the found modulus" and min(dashed.y) == pytest.approx(7 / 8)
    assert min(mine.y) == pytest.approx((12.5 - 2) / 8)
    assert list(mine.x[[0, -1]]) == [-180.0, 180.0]
    figure = turns.curve(found, 0, 1, -60.0, 0.0, LIGHT).layout
    assert figure.xaxis.title.text == "angle φ, degrees"
    assert figure.yaxis.title.text == "objective, relative"
    area, truth, point, own = turns.landscape(found, 0, 1, -60.0, 0.25, LIGHT).data
    at = area.z[list(area.y).index(0.0), list(area.x).index(-60.0)]
    assert at == pytest.approx(np.log10(12.5 / 8), abs=1e-6)
    assert (truth.x[0], truth.y[0]) == pytest.approx((-120, 0))
    assert (point.x[0], point.y[0]) == pytest.approx((-150, np.log(2)))
    assert (own.x[0], own.y[0]) == (-60.0, 0.25)
    assert turns.landscape(found, 0, 1, 0.0, 0.0, LIGHT).layout.yaxis.title.text == "log r"


EXPERTS = fake_experts.experts_report()


def test_costs_of_experts_have_a_down_and_b_across():
    table = experts.cells(EXPERTS, "both")
    assert table.iloc[1].to_dict() == pytest.approx({
        "a": 0, "b": 1, "cost": 0.3, "shown": "0.3", "router": 0.5, "content": 0.1,
        "partner": True, "truth": True,
    })  # fmt: skip
    assert table["partner"].tolist() == [False, True, False, True, False, False, False, False, True]
    both = {term: experts.costs(EXPERTS, term)[1].tolist() for term in experts.TERMS}
    assert both == {
        "router": pytest.approx([0.2, 3, 2]), "content": pytest.approx([0.4, 2, 1]),
        "both": pytest.approx([0.3, 2.5, 1.5]),
    }  # fmt: skip
    drawn = Drawn(experts.cost_map(EXPERTS, "router", LIGHT))
    assert drawn.fields(0) == {"x": "b", "y": "a", "color": "cost"}
    assert drawn.titles(0) == {"x": "expert of B", "y": "expert of A"}
    assert drawn.tips(0) == {
        "a": ("expert of A", ""), "b": ("expert of B", ""), "cost": ("cost", ".3g"),
        "router": ("router", ".3g"), "content": ("content", ".3g"),
    }  # fmt: skip
    colours = drawn.colours(0)
    assert (colours[0.0], colours[4.0]) == ("#FFFFFF", "#08305C")
    own = Drawn(experts.cost_map(fake_experts.itself(), "content", LIGHT))
    assert own.titles(0) == {"x": "other expert", "y": "expert"}
    assert not own.rows(0)["partner"].any()


def test_neurons_of_experts_are_told_by_percentiles():
    alike = np.array([np.linspace(0, 1, 101), np.linspace(-0.5, 0.5, 101)])
    record = replace(EXPERTS, experts=2, alike=alike, partner=np.array([1, 0]))
    assert experts.percentiles(record).iloc[1].to_dict() == pytest.approx({
        "expert": 1, "partner": 0, "p0": -0.5, "p5": -0.45, "p25": -0.25, "p50": 0.0,
        "p75": 0.25, "p95": 0.45, "p100": 0.5,
    })  # fmt: skip
    drawn = Drawn(experts.likeness(record, LIGHT))
    ends = [(drawn.fields(k)["y"], drawn.fields(k).get("y2")) for k in range(4)]
    assert ends == [("p0", "p100"), ("p5", "p95"), ("p25", "p75"), ("p50", None)]
    assert drawn.titles(0) == {"x": "expert of A", "y": "alike"}
    assert drawn.scale("y") == {"domain": [-0.5, 1.02], "nice": False}
    assert drawn.tips(0)["p25"] == ("25 %", ".3f")
    assert experts.partners(EXPERTS).iloc[1].to_dict() == pytest.approx({
        "expert of A": 1, "expert of B": 0, "router cost": 0.2, "content cost": 0.4,
        "margin": -0.25, "neurons alike": 0.75, "before": 1.2, "left": 0.01, "planted": 0,
        "visited by": 0.25,
    })  # fmt: skip
    strange = experts.partners(replace(EXPERTS, by_router=np.array([0, 1, 2])))
    assert strange[["by router", "by content"]].values.tolist() == [[0, 1], [1, 0], [2, 2]]
    own = experts.partners(fake_experts.itself())
    assert list(own.columns[:2]) == ["expert", "nearest other"] and "margin" not in own


def test_changes_of_experts_cost_nats_and_the_cheapest_is_on_top():
    table = experts.changes(EXPERTS)
    assert table.iloc[[0, 3, 7]].values.tolist() == [
        ["expert 0", "partners aligned", 0.1, -0.01],
        ["all, and the router", "partners aligned", 0.4, -0.04],
        ["all, and the router", "as numbered", 4.0, 1.0],
    ]
    own = experts.changes(fake_experts.itself())
    assert own.iloc[[0, 4, 8]].values.tolist() == [
        ["merge 0 with 2", "both rows kept", 0.02, 0.5],
        ["merge 1 with 2", "one row", 0.03, -0.5],
        ["without 2", "one removed", 0.5, 0.375],
    ]
    drawn = Drawn(experts.tolls(fake_experts.itself(), LIGHT))
    assert drawn.layers[0]["encoding"]["y"]["sort"] == [
        "merge 1 with 2", "merge 0 with 2", "without 1", "merge 0 with 1", "without 0",
        "without 2",
    ]  # fmt: skip
    assert drawn.titles(0) == {"x": "KL(A ‖ changed A), nats a token"}
    ticks = drawn.layers[0]["encoding"]["x"]["axis"]["values"]
    assert ticks == [0, 1e-4, 1e-3, 1e-2, 0.1, 1]  # up to twice the largest, 0.5
    assert drawn.colours(0) == {
        "both rows kept": theme.PLUS, (
            "one row"
        ): theme.MINUS, "one removed": theme.TRUTH}  # fmt: skip
    assert drawn.tips(0) == {
        "change": ("change", ""), "how": ("how", ""), "KL": ("KL", ".3g"),
        "loss": ("Δ loss", "+.3g"),
    }  # fmt: skip
    pair = Drawn(experts.tolls(EXPERTS, LIGHT))
    assert pair.colours(0) == {"partners aligned": theme.PLUS, "as numbered": theme.MINUS}
    assert pair.layers[0]["encoding"]["y"]["sort"] == [
        "expert 0", "expert 1", "expert 2", "all, and the router"]  # fmt: skip


def four_neurons(**more: Any) -> NeuronMatch:
    """A's neuron 4 has no partner of three; the second of these has a wrong sign."""
    match = Assignment(
        np.array([2, 0, 4]), np.array([1, -1, 1], np.int8), np.array([0.9, 0.8, 0.7], np.float32),
        np.array([0.5, 0.25, -0.5], np.float32), np.array([True, True, False]), False,
    )  # fmt: skip
    given = {
        "match": match, (
            "truth"
        ): Truth("planted", np.array([2, 0, 4]), np.array([1, 1, 1], np.int8)),
        "factor": np.array([2.0, -0.5, 4.0]), "truth_factor": np.array([2.0, 0.25, 8.0]),
        "second": np.array([3, 1, 0]), "second_score": np.array([0.4, 0.3, 0.2], np.float32),
        "second_factor": np.array([1.5, -3.0, 2.5]), "published": np.array([2, 1, 4]),
        "sizes": (4, 5), "rows": np.array([0, 2, 3]), "excited": None,
        "norm": np.array([1.0, 2.0, 3.0, 4.0]),
    }  # fmt: skip
    return replace(fake_neurons.neuron_match(4), **(given | more))


def test_factors_of_neurons_are_drawn_by_sign():
    ring, plus, minus = neurons.scales(four_neurons(), LIGHT).data
    assert (ring.name, list(ring.x), list(ring.y)) == ("planted", [0, 2, 3], [2.0, 0.25, 8.0])
    assert (plus.name, list(plus.x), list(plus.y)) == ("sign + (2)", [0, 3], [2.0, 4.0])
    assert (minus.name, list(minus.x), list(minus.y)) == ("sign − (1)", [2], [0.5])
    assert (plus.marker.color, minus.marker.color) == (theme.PLUS, theme.MINUS)
    layout = neurons.scales(four_neurons(), LIGHT).layout
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("neuron of A", "|factor|")
    assert layout.yaxis.type == "log" and layout.shapes[0].y0 == 1
    same = replace(four_neurons().truth, kind="identity")
    assert neurons.scales(four_neurons(truth=same), LIGHT).data[0].name == "identity"


def test_shares_of_every_layer_are_drawn_with_what_fair_coins_give():
    record = fake_neurons.neuron_layers(
        pairs=np.array([100, 400]), negative=np.array([25, 300]), right=np.array([1.0, 0.5]),
        published=np.array([0.75, 0.25]), smallest=np.array([-0.125, 0.25]),
        median=np.array([0.5, 0.75]), mutual=np.array([0.9, 0.8]), agree=np.array([0.4, 0.3]),
    )  # fmt: skip
    figure = neurons.flips(record, LIGHT)
    assert list(figure.data[0].y) == [0.25, 0.75]
    assert figure.data[0].customdata.tolist() == [[25, 100], [300, 400]]
    assert figure.data[0].hovertemplate == (
        "layer %{x}: %{customdata[0]} of %{customdata[1]}, %{y:.1%}<extra></extra>"
    )
    band, dashed = figure.layout.shapes
    assert (band.y0, band.y1) == pytest.approx((0.402, 0.598))  # 1.96 √(¼ / 100)
    assert dashed.y0 == 0.5 and figure.layout.yaxis.title.text == "negative factors"
    known = neurons.shares(record, LIGHT)
    assert [(line.name, list(line.y), line.line.color) for line in known.data] == [
        ("signs and scales free", [1.0, 0.5], theme.PLUS),
        ("published cost", [0.75, 0.25], theme.MINUS),
    ]
    assert known.layout.yaxis.title.text == "share of neurons found"
    blind = neurons.shares(replace(record, right=None), LIGHT)
    assert [(line.name, list(line.y)) for line in blind.data] == [
        ("choose each other", pytest.approx([0.9, 0.8])),
        ("both costs agree", pytest.approx([0.4, 0.3])),
    ]
    assert blind.layout.yaxis.title.text == "share of pairs"
    margins = neurons.margins(record, LIGHT)
    assert [(line.name, list(line.y)) for line in margins.data] == [
        ("median margin", [0.5, 0.75]), ("smallest", [-0.125, 0.25])]  # fmt: skip
    assert margins.layout.yaxis.title.text == "margin"
    assert margins.layout.xaxis.title.text == "layer"


def test_what_neurons_are_worth_is_listed_by_why_they_were_tried():
    found = Spared(
        ("random", "alike", "alike", "small"), np.array([7, 1, 2, 5]), np.array([8, 3, 4, 6]),
        np.array([0.9, 0.25, 0.5, 0.1]), np.array([1.0, -2.0, 3.0, 4.0]),
        np.array([0.4, 0.1, 0.2, 0.3]), np.array([4.0, 1.0, 2.0, 3.0]),
        np.array([0.04, 0.01, 0.02, 0.03]), np.full(4, np.nan), "64 tokens",
    )  # fmt: skip
    table = neurons.spared(found)
    assert table.values.tolist() == [
        [2, "alike", 4, 0.5, 3.0, 0.2, 2.0], [1, "alike", 3, 0.25, -2.0, 0.1, 1.0],
        [5, "small", 6, 0.1, 4.0, 0.3, 3.0], [7, "random", 8, 0.9, 1.0, 0.4, 4.0],
    ]  # fmt: skip
    assert list(table.columns[-2:]) == ["KL merged", "KL removed"]
    losses = neurons.spared(replace(found, removed_loss=np.array([0.4, 0.1, 0.2, 0.3])))
    assert losses[["loss merged", "loss removed"]].values.tolist()[0] == [0.02, 0.2]
    removed, merged = neurons.costs(found, LIGHT).data
    assert (removed.name, list(removed.x)) == ("removed", [2.0, 1.0, 3.0, 4.0])
    assert (merged.name, list(merged.x)) == ("merged into the other", [0.2, 0.1, 0.3, 0.4])
    assert list(removed.y) == ["2 (alike)", "1 (alike)", "5 (small)", "7 (random)"]
    layout = neurons.costs(found, LIGHT).layout
    assert layout.xaxis.title.text == "KL(A ‖ A changed), nats a position"
    assert layout.yaxis.autorange == "reversed" and layout.xaxis.type == "log"


def test_tables_of_neurons_name_a_before_b():
    places = np.array([[1, 2], [3, 4], [5, 6], [7, 8]]), np.array([[3, 9], [5, 6], [1, 9], [0, 9]])
    places = places[0], np.vstack([places[1], [[7, 8]]])
    excited = Excited(
        (("a"),), np.zeros((1, 9), np.int32), places, (places[0] * 1.0,) * 2, "9 tokens"
    )
    table = neurons.matched(four_neurons(excited=excited))
    assert table.iloc[1].to_dict() == pytest.approx({
        "A": 2, "B": 0, "sign": "−", "|factor|": 0.5, "score": 0.8, "next B": 1, "its score": 0.3,
        "margin": 0.25, "mutual": True, "published B": 1, "right": False, "true B": 0,
        "true factor": 0.25, "places shared": 0,
    })  # fmt: skip
    assert table["places shared"].tolist() == [1, 0, 2]
    assert neurons.least_certain(four_neurons(), 2)["A"].tolist() == [3, 2]
    assert "true B" not in neurons.least_certain(four_neurons())
    assert neurons.columns(four_neurons()).tolist() == [2, 0, 4, 1, 3]
    itself = four_neurons(
        second=np.array([1, 0, 3, 0]), second_score=np.array([0.4, 0.4, 0.75, 0.5]),
        second_factor=np.array([1.5, -3.0, -2.5, 1.25]), norm=np.array([1.0, 2.0, 3.0, 4.0]),
    )  # fmt: skip
    assert neurons.coincide(itself).values.tolist() == [
        [2, 3, 0.75, "−", -2.5, 3.0, 4.0], [3, 0, 0.5, "+", 1.25, 4.0, 1.0],
        [0, 1, 0.4, "+", 1.5, 1.0, 2.0],
    ]  # fmt: skip


def test_a_place_that_excites_is_shown_with_its_context():
    found = Excited(
        ("the", "cat", "sat"), np.array([[0, 1, 2], [2, 1, 0]]),
        (np.array([[4, 0]]), np.array([[1, 3]])), (np.array([[2.0, 1.0]]), np.array([[0.5, 0.25]])),
        "6 tokens",
    )  # fmt: skip
    assert neurons.contexts(found, 0, 0) == [
        (2.0, "sat", "cat", "the", 4), (1.0, "", "the", "cat sat", 0)]  # fmt: skip
    assert neurons.contexts(found, 1, 0, -4.0) == [
        (-2.0, "the", "cat", "sat", 1), (-1.0, "", "sat", "cat the", 3)]  # fmt: skip
