"""Figures: reductions are laws, every figure is small, tables say what the records say."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.charts import (
    blocks,
    cards,
    conventions,
    curves,
    diagrams,
    experiments,
    layers,
    matching,
    matrices,
    tables,
)
from app.charts.matrices import Window, boxed, heatmap, tile, whole
from app.charts.theme import DARK, LIGHT, shade
from engine.records import Assignment, Carrier
from tests import fakes

WIDE = 11_008
LIMIT = 2_000_000


def random_matrix(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (size, size)).astype(np.float32)


@pytest.fixture(scope="module")
def record():
    return fakes.residual_match()


@given(size=st.integers(1, 70), limit=st.integers(1, 20), seed=st.integers(0, 5))
def test_a_maximum_tile_keeps_the_global_extreme(size: int, limit: int, seed: int):
    matrix = random_matrix(size, seed)
    drawn = tile(matrix, whole(size), "maximum of |C|", limit=limit)
    assert drawn.values.max() == np.abs(matrix).max()
    assert max(drawn.values.shape) <= limit


@given(size=st.integers(1, 70), limit=st.integers(1, 20), seed=st.integers(0, 5))
def test_a_signed_tile_keeps_the_extreme_with_its_sign(size: int, limit: int, seed: int):
    matrix = random_matrix(size, seed)
    drawn = tile(matrix, whole(size), limit=limit)
    extreme = matrix.flat[np.abs(matrix).argmax()]
    assert drawn.values.flat[np.abs(drawn.values).argmax()] == extreme


@given(size=st.integers(2, 40), limit=st.integers(1, 40), seed=st.integers(0, 5))
def test_a_cell_is_the_extreme_of_its_own_entries(size: int, limit: int, seed: int):
    matrix = random_matrix(size, seed)
    columns = np.random.default_rng(seed).permutation(size)
    drawn = tile(matrix, whole(size), columns=columns, limit=limit)
    down, across = drawn.factor
    for i, j in np.ndindex(*drawn.values.shape):
        part = matrix[:, columns][i * down : (i + 1) * down, j * across : (j + 1) * across]
        assert drawn.values[i, j] == part.flat[np.abs(part).argmax()]


def test_a_mean_would_have_cancelled_the_signs():
    matrix = np.array([[1, -1], [-1, 1]], np.float32)
    assert abs(tile(matrix, whole(2), limit=1).values[0, 0]) == 1


def test_a_small_window_is_not_reduced_and_equals_the_matrix():
    matrix = random_matrix(900, 0)
    drawn = tile(matrix, Window((10, 74), (800, 864)))
    assert drawn.factor == (1, 1)
    assert np.array_equal(drawn.values, matrix[10:74, 800:864])
    assert "every one drawn" in drawn.caption


def test_the_caption_names_reduction_and_factor():
    drawn = tile(random_matrix(1000, 0), whole(1000), "maximum of |C|")
    assert drawn.factor == (3, 3)
    assert drawn.caption == (
        "1,000 × 1,000 entries; each cell is the maximum of |C| of 3 × 3 of them."
    )


def test_the_recovered_order_turns_a_planted_permutation_into_a_diagonal(record):
    drawn = tile(record.correlation[-1], whole(96), columns=record.truth.permutation)
    assert np.array_equal(np.abs(drawn.values).argmax(axis=1), np.arange(96))
    assert np.array_equal(np.sign(np.diag(drawn.values)), record.truth.sign)
    raw = tile(record.correlation[-1], whole(96))
    assert not np.array_equal(np.abs(raw.values).argmax(axis=1), np.arange(96))


def test_a_memory_mapped_matrix_is_only_read(tmp_path):
    matrix = random_matrix(50, 0)
    np.save(tmp_path / "m.npy", matrix)
    mapped = np.load(tmp_path / "m.npy", mmap_mode="r")
    assert np.array_equal(tile(mapped, whole(50)).values, matrix)


@given(
    ends=st.tuples(*[st.floats(-20, 120)] * 4),
    top=st.integers(0, 80),
    left=st.integers(0, 80),
    size=st.integers(4, 20),
)
def test_a_box_gives_a_window_inside_the_old_one(ends, top: int, left: int, size: int):
    window = Window((top, top + size), (left, left + size))
    box = {"x": [ends[0], ends[1]], "y": [ends[2], ends[3]]}
    found = boxed({"selection": {"box": [box]}}, window)
    assert found is not None
    for (low, high), (first, last) in (
        (found.rows, window.rows),
        (found.columns, window.columns),
    ):
        assert first <= low < high <= last
        assert high - low >= 4


def test_a_box_is_read_with_y_from_high_to_low():
    box = {"x": [9.7, 30.2], "y": [40.4, 19.6]}
    found = boxed({"selection": {"box": [box]}}, whole(96))
    assert found == Window((20, 41), (10, 31))


@pytest.mark.parametrize("selection", [None, {}, {"selection": {"box": []}}])
def test_no_box_is_no_window(selection: Any):
    assert boxed(selection, whole(96)) is None


def test_a_signed_scale_is_centred_and_an_absolute_one_starts_at_zero(record):
    signed = heatmap(tile(record.correlation[0], whole(96)), LIGHT).data[0]
    absolute = heatmap(tile(record.correlation[0], whole(96), "maximum of |C|"), LIGHT).data[0]
    assert signed.zmin == -signed.zmax
    assert signed.colorscale[2] == (0.5, "#FFFFFF")
    assert absolute.zmin == 0
    assert len(absolute.colorscale) == 4


def test_values_travel_as_typed_arrays(record):
    spec = json.loads(heatmap(tile(record.correlation[0], whole(96)), LIGHT).to_json())
    assert spec["data"][0]["z"]["dtype"] == "f4"


def test_axes_count_coordinates_under_a_reduction():
    drawn = tile(random_matrix(1000, 0), whole(1000))
    trace = heatmap(drawn, LIGHT).data[0]
    assert (trace.x0, trace.dx) == (1.0, 3)
    assert heatmap(drawn, LIGHT).layout.yaxis.range == (999.5, -0.5)


def test_numbers_stand_in_the_cells_of_a_tiny_window_only(record):
    small = heatmap(tile(record.correlation[0], Window((0, 16), (0, 16))), LIGHT).data[0]
    large = heatmap(tile(record.correlation[0], whole(96)), LIGHT).data[0]
    assert small.texttemplate == "%{z:.2f}"
    assert large.texttemplate is None


def test_the_recovered_order_names_coordinates_of_b(record):
    columns = record.truth.permutation
    drawn = tile(record.correlation[0], Window((0, 8), (4, 12)), columns=columns)
    assert matrices.numbers(drawn) == (list(range(8)), columns[4:12].tolist())
    figure = heatmap(drawn, LIGHT)
    assert figure.data[0].customdata[0].tolist() == columns[4:12].tolist()
    assert figure.layout.xaxis.ticktext[0] == str(columns[4])


@pytest.fixture(scope="module")
def wide_match() -> tuple[np.ndarray, Assignment]:
    matrix = np.random.default_rng(0).random((WIDE, WIDE), dtype=np.float32)
    draw = np.random.default_rng(1)
    score = draw.random(WIDE).astype(np.float32)
    sign = np.where(draw.random(WIDE) < 0.5, 1, -1).astype(np.int8)
    mutual = np.ones(WIDE, bool)
    return matrix, Assignment(draw.permutation(WIDE), sign, score, score - 0.5, mutual, False)


@pytest.mark.parametrize("kind", ["signed extreme", "maximum of |C|"])
@pytest.mark.parametrize("reordered", [True, False])
def test_figures_of_a_wide_matrix_are_small(wide_match, kind: matrices.Reduction, reordered: bool):
    matrix, match = wide_match
    columns = match.permutation if reordered else None
    figure = heatmap(tile(matrix, whole(WIDE), kind, columns), LIGHT)
    assert len(figure.to_json()) < LIMIT


@pytest.mark.parametrize("side", [128, matrices.LIMIT])
def test_windows_of_a_wide_matrix_are_small(wide_match, side: int):
    matrix, match = wide_match
    drawn = tile(matrix, Window((0, side), (0, side)), columns=match.permutation)
    assert drawn.factor == (1, 1)
    assert len(heatmap(drawn, LIGHT).to_json()) < LIMIT


def test_other_figures_of_a_wide_match_are_small(wide_match):
    _, match = wide_match
    truth = fakes.planted(WIDE)
    for figure in (
        matching.pairs(match, truth, LIGHT, 5),
        matching.sorted_margins(match, LIGHT),
        matching.margin_histogram(match, LIGHT),
    ):
        assert len(figure.to_json()) < LIMIT


def test_points_are_split_by_sign_and_ringed_by_the_truth(record):
    figure = matching.pairs(record.absolute[-1], record.truth, LIGHT)
    rings, plus, minus = figure.data
    assert len(plus.x) == (record.truth.sign > 0).sum()
    assert len(minus.x) == (record.truth.sign < 0).sum()
    assert plus.marker.color != minus.marker.color
    assert plus.marker.symbol != minus.marker.symbol
    assert np.array_equal(rings.x[plus.y], plus.x)
    assert rings.y.tolist() == list(range(len(record.truth.sign)))
    assert rings.x.tolist() == record.truth.permutation.tolist()


def test_without_a_truth_there_are_no_rings_and_no_ceiling(record):
    blind = fakes.residual_match(truth=False)
    assert len(matching.pairs(blind.absolute[0], None, LIGHT).data) == 2
    figure = curves.accuracy(blind, LIGHT)
    assert len(figure.data) == 1
    assert not figure.layout.shapes
    assert len(curves.accuracy(record, LIGHT).layout.shapes) == 1


def test_accuracy_is_drawn_at_every_depth_with_the_ceiling(record):
    figure = curves.accuracy(record, LIGHT, selected=3)
    absolute, signed = figure.data
    assert absolute.y.tolist() == [1.0] * 8
    assert np.allclose(signed.y, record.truth.positive_share)
    assert figure.layout.shapes[0].y0 == record.truth.positive_share
    assert figure.layout.shapes[1].x0 == 3


@pytest.mark.parametrize("count", [1, 2, 8, 34, 130])
def test_depth_labels_stay_readable(count: int):
    depths = fakes.residual_match(width=8, layers=count)
    ticks = curves.accuracy(depths, LIGHT).layout.xaxis
    assert len(ticks.tickvals) <= 26
    assert ticks.ticktext[-1] == "pooled"
    assert ticks.ticktext[0] == "emb"


def test_margins_are_sorted_and_counted(record):
    match = record.absolute[0]
    assert np.all(np.diff(matching.sorted_margins(match, LIGHT).data[0].y) >= 0)
    assert matching.margin_histogram(match, LIGHT).data[0].y.sum() == 96


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_the_distance_map_draws_every_tensor_on_one_scale(look):
    report = fakes.alignment()
    before = layers.distance_map(report, "before", look).to_dict()
    after = layers.distance_map(report, "after", look).to_dict()
    rows = next(iter(before["datasets"].values()))
    assert len(rows) == len(report.tensors)
    assert before["encoding"]["color"]["scale"] == after["encoding"]["color"]["scale"]
    assert "layer 0" not in json.dumps(before)


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_the_distance_map_is_exported_without_a_browser(kind: Any, start: bytes):
    assert layers.distance_image(fakes.alignment(), kind).startswith(start)


@pytest.mark.parametrize(
    ("name", "layer", "kind"),
    [
        ("model.layers.12.self_attn.q_proj.weight", 12, "q_proj"),
        ("model.layers.0.self_attn.q_proj.bias", 0, "q_proj.bias"),
        ("model.layers.3.input_layernorm.weight", 3, "input_layernorm"),
        ("model.embed_tokens.weight", None, "embed_tokens"),
        ("lm_head.weight", None, "lm_head"),
    ],
)
def test_tensor_names_are_split(name: str, layer: int | None, kind: str):
    assert tables.split(name) == (layer, kind)


def test_the_least_certain_come_first_with_their_runner_up(record):
    table = tables.least_certain(record, 0)
    assert len(table) == 20
    assert table["margin"].is_monotonic_increasing
    first = table.iloc[0]
    row = np.abs(record.correlation[0][first["A"]])
    assert row.argsort()[-2:].tolist() == [first["next B"], first["B"]]
    assert table["right"].all()


def test_a_coordinate_is_followed_through_the_depths(record):
    table = tables.through_depths(record, 5)
    assert table["depth"].tolist() == list(record.depths)
    assert (table["B"] == record.truth.permutation[5]).all()


def test_the_chosen_row_is_tinted(record):
    table = tables.least_certain(record, 0)
    chosen = int(table["A"].iloc[3])
    html = tables.shown(table, chosen).to_html()
    assert "rgba(0, 114, 178" in html
    assert "rgba(0, 114, 178" not in tables.shown(table).to_html()


def test_the_match_is_exported_whole(record):
    table = tables.matched(record, -1)
    assert table["coordinate of B"].tolist() == record.truth.permutation.tolist()
    assert table["sign"].tolist() == record.truth.sign.tolist()
    arrays = np.load(io.BytesIO(tables.gauge_npz(record, -1)), allow_pickle=False)
    assert np.array_equal(arrays["permutation"], record.truth.permutation)
    assert np.array_equal(arrays["correlation"], record.correlation[-1])


def test_a_report_is_exported_by_its_fields():
    found = tables.document(fakes.alignment())
    assert found["flipped"] == 47
    assert len(found["after"]) == len(found["tensors"])


def test_a_width_of_one_has_itself_as_runner_up():
    tiny = fakes.residual_match(width=1)
    assert tables.partners(tiny, 0, 0)["next B"] == 0


def test_the_shade_follows_the_page():
    assert shade("dark") is DARK
    assert shade("light") is shade(None) is LIGHT


@pytest.fixture(scope="module")
def card():
    return fakes.model_card()


def test_every_free_coordinate_has_writers_left_and_readers_right(card):
    drawn = blocks.layout(card)
    assert drawn.boxes["word"].tolist() == ["res", "ffn", "grp", "head", "rot", "val"]
    for word in drawn.boxes["word"]:
        mine = drawn.tensors[drawn.tensors["word"] == word]
        assert set(mine["side"]) >= {"written by", "read by"}
    assert (drawn.tensors.loc[drawn.tensors["side"] == "written by", "x"] < 0.5).all()
    assert (drawn.tensors.loc[drawn.tensors["side"] == "read by", "x"] > 0.5).all()


def test_boxes_of_the_diagram_do_not_overlap_and_hold_their_tensors(card):
    drawn = blocks.layout(card)
    tops, ends = drawn.boxes["y"].to_numpy(), drawn.boxes["y2"].to_numpy()
    assert (tops[1:] > ends[:-1]).all()
    assert drawn.tensors["y"].max() < drawn.height
    for _, mine in drawn.tensors.groupby(["word", "side"]):
        assert (np.diff(np.sort(mine["y"].to_numpy())) >= blocks.LINE).all()


def test_an_order_stands_on_the_side_of_what_is_beside_it(card):
    neutral = frozenset({"grp", "head"})
    by = {c.tensor.split(".")[-2]: c for c in fakes.carried("grp", *["written"] * 4)}
    found = {name: blocks.sides(c, "grp", neutral) for name, c in by.items()}
    assert found == {
        "q_proj": ("written by",),
        "k_proj": ("read by",),
        "v_proj": ("written by",),
        "o_proj": ("read by",),
    }


@pytest.mark.parametrize(
    "axes",
    [
        "res* ((grp qk) + (grp qk*) + (grp val))",
        "(grp ((rot + qk) + (rot* + qk*) + val)) res*",
        "((grp head rot) + (grp rot*) + (grp val)) res*",
    ],
)
def test_a_fused_tensor_stands_on_both_sides(axes: str):
    carrier = Carrier("h.{l}.c_attn.weight", axes, "written")
    assert blocks.sides(carrier, "grp", frozenset({"grp", "head"})) == ("written by", "read by")


def test_a_weight_and_its_bias_are_one_node_and_names_are_told_apart(card):
    names = cards.short(["h.{l}.attn.c_proj.weight", "h.{l}.mlp.c_proj.bias", "wte.weight"])
    assert list(names.values()) == ["attn.c_proj", "mlp.c_proj", "wte"]
    bias = Carrier("model.layers.{l}.mlp.up_proj.bias", "ffn", "written")
    rows = [
        replace(row, carriers=(*row.carriers, bias)) if row.name == "ffn" else row
        for row in card.coordinates
    ]
    found = blocks.nodes(replace(card, coordinates=tuple(rows)))
    (node,) = [n for n in found if n.word == "ffn" and n.side == "written by"]
    assert node.label == "up_proj + bias"
    assert "mlp.up_proj.weight: ffn res*" in node.tip
    assert "mlp.up_proj.bias: ffn" in node.tip


def test_the_chosen_coordinate_changes_the_drawing(card):
    first, second = (diagrams.block(card, LIGHT, word).to_json() for word in ("res", "val"))
    assert first != second
    assert len(first) < LIMIT
    assert diagrams.block(card, DARK, "res").to_json() != first


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_the_diagram_is_exported_without_a_browser(card, kind: Any, start: bytes):
    assert diagrams.image(card, kind).startswith(start)


def test_tables_of_a_card_say_what_the_card_says(card):
    table = cards.coordinates(card, fakes.self_test())
    assert table["log₁₀ count"].sum() == pytest.approx(card.log10)
    assert table["continuous"].sum() == card.dimension
    assert set(table["self-test"]) == {"exact 8.8e-7"}
    assert set(cards.coordinates(card)["self-test"]) == {"not measured"}
    assert len(cards.fixed_table(card)) + len(table) == len(card.coordinates)
    assert cards.blind(card)["holds"].tolist() == ["exactly", "up to ε"]
    assert len(cards.exported(card)) == len(card.coordinates) + len(card.blind)
    assert cards.exported(card)["kind"].tolist().count("blind") == 2


def test_a_direction_that_moved_nothing_is_not_measured():
    test = fakes.self_test(moved=0.0)
    assert set(cards.self_test(test)["result"]) == {"not measured"}
    broken = fakes.self_test(0.5)
    assert set(cards.self_test(broken)["result"].str.split().str[0]) == {"broken"}


@pytest.mark.parametrize(
    ("axes", "name", "role", "place"),
    [
        ("res (grp head val*)", "val", "read", "1"),
        ("res* ((grp qk) + (grp qk*) + (grp val))", "qk", "read", "1"),
        ("(half gain) - 1", "gain", "written", "0"),
        ("|ffn| res*", "ffn", "named", "name"),
        ("+ δ", "x", "shifted", "–"),
    ],
)
def test_the_axis_of_a_coordinate_is_named(axes: str, name: str, role: Any, place: str):
    assert cards.where(Carrier("t", axes, role), name) == place


@pytest.fixture(scope="module")
def experiment():
    return fakes.experiment()


def test_the_marker_stands_in_the_zone_of_the_reserved_word():
    for error in (0.0, 1e-12, 3e-7, 2e-3, 0.5, 40.0):
        record = fakes.experiment(error)
        (marker,) = experiments.meter(record, LIGHT).data
        low, high = next((a, b) for name, a, b, _ in experiments.ZONES if name == record.verdict)
        assert low <= marker.x[0] <= high


@pytest.mark.parametrize("draw", [experiments.weights, experiments.hidden])
def test_before_and_after_share_one_centred_scale(experiment, draw):
    figure = draw(experiment, LIGHT)
    assert [t.coloraxis for t in figure.data if t.type == "heatmap"] == ["coloraxis"] * 2
    assert figure.layout.coloraxis.cmin == -figure.layout.coloraxis.cmax
    before, after = (t.z for t in figure.data if t.type == "heatmap")
    assert not np.array_equal(before, after)
    assert len(figure.to_json()) < LIMIT


def test_moved_rows_are_marked_and_the_window_keeps_its_numbers():
    record = fakes.experiment()
    after = record.weight_before.copy()
    after[[3, 9]] = after[[9, 3]]
    named = f"{record.weight}, rows 100 to 163, columns 200 to 295"
    figure = experiments.weights(replace(record, weight_after=after, weight=named), LIGHT)
    marks = [trace for trace in figure.data if trace.type == "scatter"]
    assert [list(trace.y) for trace in marks] == [[103, 109]]
    assert (figure.data[0].y0, figure.data[0].x0) == (100, 200)
    assert figure.layout.yaxis.title.text == "axis 0: ffn"
    assert figure.layout.xaxis.title.text == "axis 1: res*"


def test_tokens_stand_on_the_axis_and_are_no_tags(experiment):
    shown = replace(experiment, pieces=("<s>", " the", "\n", "x" * 30, "", *["a"] * 7))
    ticks = experiments.hidden(shown, LIGHT).layout.yaxis.ticktext
    assert ticks[:5] == ("&lt;s&gt;", "·the", "⏎", f"{'x' * 11}…", "–")


def test_few_moves_are_joined_and_many_are_points(experiment):
    assert [t.mode for t in experiments.places(experiment, LIGHT).data] == ["lines", "markers"]
    order = np.arange(96)
    order[[4, 7]] = [7, 4]
    figure = experiments.places(replace(experiment, order=order), LIGHT)
    assert [tuple(t.y) for t in figure.data] == [(7, 4), (4, 7)]
    text = replace(experiment, positions=np.array([1, 0, 2]))
    assert experiments.moves(text)[2] == "token"


def test_places_speak_of_the_channels_that_are_shown(experiment):
    record = replace(experiment, order=np.array([11, 10]), channels=np.array([10, 11]))
    old, new, what = experiments.moves(record)
    assert (old.tolist(), new.tolist(), what) == ([11, 10], [10, 11], "channel")


def test_an_experiment_without_tensors_or_states_draws_nothing(experiment):
    nothing = np.zeros((0, 0), np.float16)
    still = replace(experiment, weight_before=nothing, weight_after=nothing, weight="")
    assert len(experiments.weights(still, LIGHT).to_json()) < LIMIT


def test_a_bias_is_drawn_as_one_row(experiment):
    row = np.ones((1, 20), np.float16)
    record = replace(experiment, weight="b.bias: ffn", weight_before=row, weight_after=2 * row)
    assert experiments.weights(record, LIGHT).layout.xaxis.title.text == "axis 0: ffn"


def test_the_tensors_that_moved_are_listed_and_exported(experiment):
    table = tables.changes(experiment)
    assert table["relative change"].is_monotonic_decreasing
    assert set(experiments.arrays(experiment)) >= {"weight_before", "hidden_after", "order"}
    assert tables.document(experiment)["preset"] == "ffn-order"


def test_linear_and_conv1d_exchange_rows_and_columns(card):
    assert conventions.convention(card) == "Linear"
    rows = {row.name: row for row in card.coordinates}
    table = conventions.table(card, rows["ffn"]).set_index("tensor")
    assert table.loc["up_proj"].tolist() == [
        "W_up_proj[perm, :] * s[:, None]",
        "W_up_proj[:, perm] * s[None, :]",
    ]
    assert table.loc["down_proj"].tolist() == [
        "W_down_proj[:, perm] / s[None, :]",
        "W_down_proj[perm, :] / s[:, None]",
    ]
    assert table.loc["gate_proj", "Linear [out, in]"] == "W_gate_proj[perm, :]"


def test_gpt2s_own_layers_are_recognised():
    carriers = (
        Carrier("h.{l}.mlp.c_fc.weight", "res* ffn", "read"),
        Carrier("h.{l}.mlp.c_proj.weight", "ffn* res", "written"),
        Carrier("wte.weight", "tok res", "written"),
    )
    base = fakes.model_card()
    res = replace(base.coordinates[0], carriers=carriers)
    gpt2 = replace(base, coordinates=(res, *base.coordinates[1:]), blind=())
    assert conventions.convention(gpt2) == "Conv1D"
    table = conventions.table(gpt2, res).set_index("tensor")
    assert table.loc["c_fc", "Conv1D [in, out]"].startswith("W_c_fc[perm, :]")
    assert table.loc["c_fc", "Linear [out, in]"].startswith("W_c_fc[:, perm]")
    assert table.loc["wte"].nunique() == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_lines_of_code_leave_the_function_alone(card, seed: int):
    """A gated layer written with numpy, changed by the printed lines in either convention."""
    draw = np.random.default_rng(seed)
    gate, up = draw.normal(size=(256, 8)), draw.normal(size=(256, 8))
    down, x = draw.normal(size=(8, 256)), draw.normal(size=(5, 8))
    perm, s = draw.permutation(256), draw.choice([-2.0, 0.5], 256)
    table = conventions.table(card, card.coordinates[1]).set_index("tensor")

    def layer(g: np.ndarray, u: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (np.maximum(x @ g.T, 0) * (x @ u.T)) @ d.T

    for column, turn in (("Linear [out, in]", False), ("Conv1D [in, out]", True)):
        stored = {"W_gate_proj": gate, "W_up_proj": up, "W_down_proj": down}
        known = {k: v.T if turn else v for k, v in stored.items()} | {"perm": perm, "s": s}
        found = [
            eval(table.loc[name, column], {}, known)
            for name in ("gate_proj", "up_proj", "down_proj")
        ]
        changed = [part.T if turn else part for part in found]
        assert not np.allclose(changed[1], up)
        assert np.allclose(layer(*changed), layer(gate, up, down))


def test_matrices_act_from_the_side_of_their_axis(card):
    rows = {row.name: row for row in card.coordinates}
    value = conventions.table(card, rows["val"]).set_index("tensor")
    assert value.loc["v_proj", "Linear [out, in]"] == "in each head: M @ W_v_proj"
    assert value.loc["o_proj", "Linear [out, in]"] == "in each head: W_o_proj @ inv(M)"
    head = conventions.table(card, rows["head"]).set_index("tensor")
    assert head.loc["q_proj", "Linear [out, in]"] == "W_q_proj.reshape(2, 3, 16, -1)[:, perm]"
    assert head.loc["o_proj", "Linear [out, in]"] == "W_o_proj.reshape(-1, 2, 3, 16)[:, :, perm]"
