"""Pictures of heads: what is drawn is what the record says, and every figure is small."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from app.charts import disguises, drawing, heads, objectives, pairings, tables, turns
from app.charts.heads import Cell
from app.charts.theme import DARK, LIGHT
from app.sentences import attention
from app.sentences import disguises as sentences
from engine.records import named_arrays
from tests import fake_heads as fakes

LIMIT = 2_000_000
FIRST = Cell(0, 0)


@pytest.fixture(scope="module")
def record():
    return fakes.heads_report()


def wrong(record):
    """The same report with two heads of one group exchanged."""
    order = record.order.copy()
    order[[0, 1]] = order[[1, 0]]
    return replace(record, order=order)


@pytest.mark.parametrize("term", heads.TERMS)
def test_the_map_shows_each_cost_over_its_mean(record, term: str):
    table = heads.cells(record, record.own, term, recovered=False)
    whole = {"query-key": record.own.query_key, "value-output": record.own.value_output}
    raw = whole.get(term, record.own.total)
    shown = table["cost"].to_numpy().reshape(6, 6)
    assert np.allclose(shown, raw / raw.mean(), rtol=1e-5)
    assert table["middle"].tolist() == table["b"].tolist()


def test_in_recovered_order_partners_lie_on_the_diagonal(record):
    table = heads.cells(record, record.own, "both", recovered=True)
    on = table[table["partner"]]
    assert on["middle"].tolist() == on["a"].tolist() == list(range(6))
    assert table[table["truth"]]["b"].tolist() == record.planted_order.tolist()


def test_a_wrong_partner_gets_the_planted_line_beside_it(record):
    assert set(heads._links(record)["kind"]) == {"partner"}
    links = heads._links(wrong(record))
    assert links[links["kind"] == "planted"]["a"].unique().tolist() == [0, 1]
    assert links[links["kind"] == "not the planted one"]["a"].unique().tolist() == [0, 1]
    right = links[(links["kind"] == "planted") & (links["x"] == 1)]["y"].tolist()
    assert right == record.planted_order[:2].tolist()


def test_groups_are_boxed_on_both_sides(record):
    spec = heads.order_map(record, LIGHT, 0).to_dict()
    boxes = next(iter(spec["datasets"].values()))
    assert [box["name"] for box in boxes] == ["key/value head 0", "key/value head 1"] * 2


def test_turns_are_listed_in_degrees_with_the_truth(record):
    table = turns.frequencies(record, record.turns)
    assert len(table) == 16
    assert np.allclose(table["angle"], table["planted angle"])
    assert np.allclose(np.radians(table["angle"]), record.turns.angle.ravel())
    assert np.allclose(table["r"], np.exp(table["log r"]))
    bare = replace(record.turns, planted_angle=None, planted_log_modulus=None)
    assert "planted angle" not in turns.frequencies(record, bare)


def test_the_scale_of_angles_closes_on_itself():
    for look in (LIGHT, DARK):
        assert look.cyclic[0][1] == look.cyclic[-1][1]
        assert look.cyclic[2][1] == look.surface or look is DARK


def test_the_clock_has_radius_angle_weight_and_rings(record):
    figure = turns.clock(record.turns, 1, 2, LIGHT)
    circle, rings, found = figure.data
    assert np.allclose(circle.r, 1)
    assert np.allclose(found.r, np.exp(record.turns.log_modulus[1]), rtol=1e-6)
    assert np.allclose(found.theta, np.degrees(record.turns.angle[1]), rtol=1e-5)
    assert np.allclose(rings.theta, found.theta)
    assert np.argmax(found.marker.size) == np.argmax(record.turns.weight[1])
    bare = replace(record.turns, planted_angle=None, planted_log_modulus=None)
    assert len(turns.clock(bare, 1, 2, LIGHT).data) == 2


def test_the_curve_is_lowest_where_the_turn_was_found(record):
    for frequency in range(8):
        log = record.turns.log_modulus[0, frequency]
        figure = turns.curve(record.turns, 0, frequency, 30.0, log, LIGHT)
        _, mine, found, hand = figure.data
        lowest = mine.x[np.argmin(mine.y)]
        angle = np.degrees(record.turns.angle[0, frequency])
        assert abs((lowest - angle + 180) % 360 - 180) <= 1
        assert found.y[0] == pytest.approx(0, abs=1e-9)
        at = np.interp(30.0, mine.x, mine.y)
        assert hand.x[0] == 30.0 and hand.y[0] == pytest.approx(at, rel=1e-3)


def test_the_landscape_is_lowest_at_the_marker(record):
    figure = turns.landscape(record.turns, 1, 3, 10.0, 0.1, LIGHT)
    area, ring, found, hand = figure.data
    row, column = np.unravel_index(np.argmin(area.z), area.z.shape)
    step = area.y[1] - area.y[0]
    assert abs(area.y[row] - found.y[0]) <= step
    assert abs((area.x[column] - found.x[0] + 180) % 360 - 180) <= 2
    assert (ring.x[0], ring.y[0]) == pytest.approx((found.x[0], found.y[0]))
    assert (hand.x[0], hand.y[0]) == (10.0, 0.1)


def test_every_step_is_a_relative_distance(record):
    table = objectives.objectives(record)
    assert len(table) == 2 * 4 * 6
    one = table[(table["head"] == 3) & (table["side"] == "value–output")]
    expected = np.sqrt(record.value_output[:, 3] / record.value_output_norm[3])
    assert np.allclose(one["distance"], expected)
    assert one["step"].tolist() == ["stored", "order", "orthogonal", "full"]


def test_both_costs_are_compared_head_by_head(record):
    table = pairings.nearest(record)
    assert table["ours"].tolist() == record.order.tolist()
    assert table["published"].tolist()[0] == record.order[1]  # it costs 0 there as well
    assert table["agree"].tolist() == [False] + [True] * 5
    first = pairings.apart(record).iloc[0]
    assert (first["A"], first["B"]) == (0, record.order[1])
    assert first["published"] == 0 and first["ours"] > 0.5
    assert "different nearest heads for 1 of 6" in attention.disagreement(record)


def test_of_one_model_the_head_itself_is_left_out():
    record = fakes.itself()
    table = pairings.coincide(record)
    assert tuple(table.iloc[0][["head", "other"]]) == (1, 2)
    assert table.iloc[0]["KL without it"] == pytest.approx(record.removal[1])
    assert (pairings.nearest(record)["ours"] != np.arange(6)).all()


def test_arrays_are_exported_with_their_parts(record):
    found = dict(np.load(io.BytesIO(tables.as_npz(record)), allow_pickle=False))
    assert np.array_equal(found["order"], record.order)
    assert np.array_equal(found["turns_angle"], record.turns.angle)
    assert np.array_equal(found["published_query_key"], record.published.query_key)
    assert not [name for name in named_arrays(fakes.unrotated()) if name.startswith("turns")]


def all_charts(record, look):
    yield heads.cost_map(record, record.own, "both", look, True, FIRST)
    yield heads.order_map(record, look, 0)
    yield objectives.left(record, look, 0)
    yield objectives.singular(record.val_singular, "values", look)
    for side in objectives.SIDES:
        yield objectives.steps(record, side, look, 0)
    if record.turns is not None:
        yield turns.turn_map(record, record.turns, "angle", look, (0, 0))
        yield turns.turn_map(record, record.turns, "modulus", look, (0, 0))
    if record.disguises:
        yield disguises.chart(record, look)
    if record.removal is not None:
        yield objectives.removal(record, record.removal, look, 0)


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_every_picture_is_drawn_and_becomes_a_file(record, look):
    for report in (record, fakes.unrotated(), fakes.itself()):
        for chart in all_charts(report, look):
            drawn = drawing.image(chart.properties(width=300), "svg")
            assert drawn.startswith(b"<svg")
    chart = heads.order_map(record, look, 0).properties(width=300)
    assert drawing.image(chart, "png").startswith(b"\x89PNG")


def test_figures_of_a_large_layer_stay_small():
    import altair as alt

    shape = fakes.Shape(groups=8, per_group=8, head_dim=128)
    record = fakes.heads_report(shape=shape)
    with alt.data_transformers.enable("default", max_rows=None):
        for chart in all_charts(record, LIGHT):
            assert len(json.dumps(chart.to_dict())) < LIMIT
    for figure in (
        turns.clock(record.turns, 0, 0, LIGHT),
        turns.curve(record.turns, 0, 0, 0.0, 0.0, LIGHT),
        turns.landscape(record.turns, 0, 0, 0.0, 0.0, LIGHT),
    ):
        assert len(figure.to_json()) < LIMIT


def test_the_verdict_says_exact_only_for_what_was_measured_so():
    said = attention.matched(fakes.heads_report())
    assert said.headline.startswith("6 of 6 heads found; their turns explain more than 99.9 %")
    assert said.word == "exact"
    said = attention.matched(fakes.heads_report(3e-4))
    assert said.word == "approximate"
    assert attention.matched(fakes.heads_report(0.9)).word == "broken"


def test_a_wrong_head_is_counted(record):
    assert attention.matched(wrong(record)).headline.startswith("4 of 6 heads found")
    assert "4 of 6 lines" in attention.order(wrong(record))


def test_without_turns_the_sentences_speak_of_matrices(record):
    said = attention.matched(fakes.unrotated())
    assert "their matrices explain" in said.headline and "angle" not in said.headline
    half = replace(record, turns=fakes.turns(fakes.Shape(), half=True))
    assert "frequencies turned by 180°" in attention.matched(half).headline
    assert "every angle is 0° or 180°" in attention.angles(half.turns)
    assert "turns were left out" in attention.matched(replace(record, stage2="none")).headline


def test_two_heads_of_one_model_coincide_only_at_zero():
    said = attention.matched(fakes.itself())
    assert said.headline.startswith("No two heads coincide; the nearest are 1 and 2")
    assert said.word is None and said.badge == ""
    said = attention.matched(fakes.itself(1e-6))
    assert said.headline == "Heads 1 and 2 of this layer are one head in two bases."
    assert said.word == "exact"


def test_a_mark_of_a_disguise_is_its_cost_and_a_zero_is_drawn(record):
    table = disguises.costs(record)
    assert len(table) == 3 * 2 * record.heads
    for one in record.disguises:
        rows = table[table["disguise"] == disguises.NAMES[one.kind]]
        ours = rows[rows["by"] == disguises.OURS]
        np.testing.assert_array_equal(ours["cost"], one.own)
        published = rows[rows["by"] == disguises.PUBLISHED]
        np.testing.assert_array_equal(published["cost"], one.published)
    assert (table["drawn"] >= disguises.FLOOR).all()
    assert (table["cost"] == 0).any()
    told = disguises.table(record)
    assert told["output"].tolist() == ["broken", "broken", "exact"]


def test_what_disguises_show_is_said_only_where_the_output_bears_it_out(record):
    said = sentences.why(record)
    assert "calls each the head that it was" in said[0]
    assert said[1].startswith("2 of 3 change what the model says at a published cost of 0.")
    matrix, exchange, turn = record.disguises
    seen = replace(matrix, published=matrix.own)
    none = replace(record, disguises=(seen, replace(exchange, error=0.0)))
    assert sentences.conclusion(none) == []
    moved = replace(record, disguises=(matrix, exchange, replace(turn, error=0.3)))
    assert sentences.conclusion(moved) == []
    assert "sees up to 2.5" in sentences.why(replace(record, disguises=(seen, turn)))[0]


def test_disguises_that_were_not_run_say_so(record):
    quiet = replace(record, disguises=fakes.disguises(fakes.Shape(), measured=False))
    assert len(sentences.why(quiet)) == 1
    assert disguises.table(quiet)["output"].tolist() == ["not measured"] * 3


def test_without_rotation_the_published_cost_is_called_right(record):
    report = fakes.unrotated()
    assert sentences.title(report) == "Why is the published cost right here?"
    assert sentences.title(record) == "Why not the published cost here?"
    (said,) = sentences.why(report)
    assert "LayerNorm" in said
    assert said.endswith("of the mean cost.")


def test_what_a_removal_costs_is_a_table_of_its_own():
    report = fakes.itself()
    table = pairings.removal(report, report.removal)
    np.testing.assert_array_equal(table["KL without it"], report.removal)
    assert table["group"].tolist() == [0, 0, 0, 1, 1, 1]


def test_numbers_of_frequencies_at_one_place_stand_together(record):
    half = fakes.turns(fakes.Shape(), half=True)
    hands = next(t for t in turns.clock(half, 0, 0, LIGHT).data if t.name.startswith("found"))
    shown = [text for text in hands.text if text]
    assert len(shown) == len(set(np.round(half.angle[0], 6)))
    assert sorted(" ".join(shown).split(), key=int) == [str(i) for i in range(8)]
    every = next(t for t in turns.clock(record.turns, 0, 0, LIGHT).data if t.name[:5] == "found")
    assert list(every.text) == [str(i) for i in range(8)]
