"""Figures and tables of models and pairs, on records of a few numbers."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.charts import (
    blocks,
    cards,
    conventions,
    curves,
    descents,
    diagrams,
    experiments,
    layers,
    lineages,
    matching,
    matrices,
    shares,
    tables,
    theme,
)
from app.charts.matrices import Window, heatmap, tile
from app.charts.theme import DARK, LIGHT
from engine.records import (
    AlignmentReport,
    Assignment,
    Carrier,
    Effect,
    Experiment,
    LayerStage,
    LineageTest,
    Midpoint,
    Relatedness,
    ResidualMatch,
    Sweep,
    TensorChange,
    Truth,
)
from tests import fake_alignments, fakes
from tests.drawn import Drawn

CARD = fakes.model_card()


def matching_of_four(**more: Any) -> ResidualMatch:
    """Two of four coordinates are right in place and sign; the third is the truth's elsewhere."""
    match = Assignment(
        np.array([2, 0, 1, 3]), np.array([1, -1, -1, 1], np.int8),
        np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([0.5, -0.25, 0.75, 0.0], np.float32),
        np.array([True, False, True, True]), False,
    )  # fmt: skip
    truth = Truth("planted", np.array([2, 0, 3, 3]), np.array([1, -1, 1, -1], np.int8))
    table = np.array([[0.1, -0.4, 0.9, 0.2], [-0.8, 0.3, 1.0, 0.0], [0.5, -0.7, 0.1, -0.6],
                      [0.1, 0.2, -0.5, 0.6]], np.float32)  # fmt: skip
    given = {
        "depths": ("embedding", "after layer 0", "pooled"), "absolute": (match,) * 3,
        "truth": truth, "correlation": np.stack([table, -table, table]),
        "signed_accuracy": np.array([0.5, 0.25, 0.0]),
        "absolute_accuracy": np.array([0.75, 1.0, 0.5]),
    }  # fmt: skip
    return replace(fakes.residual_match(4), **(given | more))


MATCH = matching_of_four().absolute[0]


def test_the_share_that_is_found_stands_over_depth_with_its_ceiling():
    figure = curves.accuracy(matching_of_four(), LIGHT, 1)
    assert [(t.name, list(t.y), t.line.color) for t in figure.data] == [
        ("on |C|", [0.75, 1.0, 0.5], theme.PLUS),
        ("on C with its sign", [0.5, 0.25, 0.0], theme.MINUS),
    ]
    assert figure.layout.annotations[0].text == "share of + signs: 50.0%"
    assert figure.layout.shapes[0].y0 == 0.5 and figure.layout.shapes[1].x0 == 1
    assert figure.layout.xaxis.title.text == "depth: embedding, after layer …, pooled"
    assert figure.layout.xaxis.ticktext == ("emb", "0", "pooled")
    assert figure.layout.yaxis.title.text == "share of coordinates"
    assert figure.layout.yaxis.tickformat == ".0%"
    one = matching_of_four(depths=("pooled",), absolute=(MATCH,), signed_accuracy=np.ones(1),
                           absolute_accuracy=np.ones(1))  # fmt: skip
    assert curves.accuracy(one, LIGHT).layout.xaxis.ticktext == ("pooled",)
    (line,) = curves.accuracy(matching_of_four(truth=None), LIGHT).data
    assert (line.name, list(line.y)) == ("choose each other, on |C|", [0.75] * 3)


def test_a_matching_has_a_down_and_b_across_with_its_truth_in_rings():
    figure = matching.pairs(MATCH, matching_of_four().truth, LIGHT, 2, rows=np.array([0, 1, 2, 5]))
    rings, plus, minus = figure.data
    assert (rings.name, list(rings.x), list(rings.y)) == (
        "planted truth", [2, 0, 3, 3], [0, 1, 2, 5])  # fmt: skip
    assert (plus.name, list(plus.x), list(plus.y)) == ("sign + (2)", [2, 3], [0, 5])
    assert (minus.name, list(minus.x), list(minus.y)) == ("sign − (2)", [0, 1], [1, 2])
    assert (plus.marker.color, minus.marker.color) == (theme.PLUS, theme.MINUS)
    assert rings.hovertemplate == "truth: A %{y} ↔ B %{x}<extra></extra>"
    assert minus.hovertemplate.startswith("A %{y} ↔ B %{x}, score")
    assert list(minus.customdata) == pytest.approx([0.8, 0.7])
    assert figure.layout.xaxis.title.text == "coordinate of B"
    assert figure.layout.yaxis.title.text == "coordinate of A"
    assert figure.layout.yaxis.range == (6.0, -1.0)  # counted downward
    across, down = figure.layout.shapes
    assert (across.y0, down.x0) == (2, 1)
    assert matching.told(MATCH, matching_of_four().truth) == "Rings are the truth."
    assert matching.told(MATCH, None) == "No truth is known, so there are no rings."
    many = np.arange(600)
    wide = Assignment(many, np.ones(600, np.int8), many / 600, many / 600, many >= 0, False)
    truth = Truth("planted", np.where(many < 4, 599 - many, many), np.ones(600, np.int8))
    assert matching.told(wide, truth) == (
        "Rings are the truth, where the point misses it: 4 of 600."
    )
    assert matching.pairs(wide, truth, LIGHT).data[0].name == "planted truth, missed (4)"


def test_margins_are_counted_from_the_least_certain():
    figure = matching.sorted_margins(MATCH, LIGHT)
    assert list(figure.data[0].x) == [1, 2, 3, 4]
    assert list(figure.data[0].y) == [-0.25, 0.0, 0.5, 0.75]
    assert figure.layout.xaxis.title.text == "coordinates, least certain first"
    assert figure.layout.yaxis.title.text == "margin"
    bars = matching.margin_histogram(MATCH, LIGHT, 4, "neuron")
    assert list(bars.data[0].x) == pytest.approx([-0.125, 0.125, 0.375, 0.625])
    assert list(bars.data[0].y) == [1, 1, 0, 2]  # an edge belongs to the bin above it
    assert bars.data[0].marker.color == (theme.MINUS, theme.PLUS, theme.PLUS, theme.PLUS)
    assert bars.layout.yaxis.title.text == "neurons" and bars.layout.xaxis.title.text == "margin"


def test_a_heatmap_has_rows_of_a_downward_and_columns_of_b():
    matrix = np.arange(24, dtype=np.float32).reshape(4, 6) / 23 - 0.5
    drawn = tile(matrix, Window((1, 3), (2, 5)))
    figure = heatmap(drawn, LIGHT, 2)
    (trace,) = figure.data
    assert trace.z.tolist() == matrix[1:3, 2:5].tolist()
    assert (trace.x0, trace.y0, trace.zmin, trace.zmax) == (2, 1, -1.0, 1.0)
    assert trace.colorscale[0] == (0.0, "#8C3B00") and trace.colorscale[-1] == (1.0, "#00436B")
    assert trace.hovertemplate == "A %{y} · B %{x}: %{z:.3f}<extra></extra>"
    assert trace.colorbar.ticktext == ("-1", "-0.5", "0", "0.5", "C = 1")
    assert figure.layout.yaxis.range == (2.5, 0.5) and figure.layout.xaxis.range == (1.5, 4.5)
    assert figure.layout.xaxis.title.text == "coordinate of B"
    assert figure.layout.yaxis.title.text == "coordinate of A"
    assert (figure.layout.shapes[0].y0, figure.layout.shapes[0].y1) == (1.5, 2.5)
    order = np.array([5, 4, 3, 2, 1, 0])
    turned = tile(matrix, Window((0, 4), (0, 6)), "maximum of |C|", order, limit=2)
    assert turned.values.tolist() == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5]]), abs=0.3)
    assert turned.factor == (2, 3)
    place = heatmap(turned, LIGHT).data[0]
    assert (place.x0, place.dx, place.y0, place.dy) == (1.0, 3, 0.5, 2)  # middles of the cells
    assert turned.values[0].tolist() == pytest.approx([8.5 / 23, 11.5 / 23])  # |C| of 3 and of 0
    other = heatmap(turned, LIGHT, words=matrices.Words("neuron", "score"))
    assert other.layout.xaxis.title.text == "neuron of B, in recovered order"
    assert other.data[0].colorbar.ticktext == ("0", "0.5", "|score| = 1")
    assert other.data[0].hovertemplate == "A near %{y} · B near %{x}: %{z:.3f}<extra></extra>"
    assert turned.caption == "4 × 6 entries; each cell is the maximum of |C| of 2 × 3 of them."
    assert [matrices.bound(np.array(x)) for x in ([0.0], [0.3], [0.31, -1.0], [-2.5])] == [
        1.0, 0.3, 1.0, 2.5]  # fmt: skip
    assert matrices.whole(4, 6) == Window((0, 4), (0, 6))


def test_tables_of_coordinates_name_a_before_b():
    record = matching_of_four()
    assert tables.matched(record, 0).iloc[1].to_dict() == pytest.approx({
        "coordinate of A": 1, "coordinate of B": 0, "sign": -1, "score": 0.8, "margin": -0.25,
        "mutual": False, "true coordinate of B": 0, "true sign": -1,
    })  # fmt: skip
    assert tables.partners(record, 0, 1) == pytest.approx({
        "A": 1, "B": 0, "sign": "−", "|C|": 0.8, "next B": 2, "its |C|": 1.0, "margin": -0.25,
        "mutual": False, "right": True,
    })  # fmt: skip
    assert tables.partners(record, 0, 2)["right"] is False  # another place
    assert tables.partners(record, 0, 3)["right"] is False  # another sign
    assert tables.least_certain(record, 0, 2)["A"].tolist() == [1, 3]
    assert tables.through_depths(record, 2)["depth"].tolist() == list(record.depths)
    arrays = np.load(io.BytesIO(tables.gauge_npz(record, 1)))
    assert arrays["correlation"].tolist() == record.correlation[1].tolist()
    assert arrays["true_sign"].tolist() == [1, -1, 1, -1]
    changes = (TensorChange("up", "ffn res*", 0.5), TensorChange("down", "res ffn*", 1.25))
    table = tables.changes(fakes.experiment(tensors=changes))
    assert table.values.tolist() == [["down", "res ffn*", 1.25], ["up", "ffn res*", 0.5]]
    document = tables.document(record)
    assert document["truth"] == {"kind": "planted", "permutation": [2, 0, 3, 3],
                                 "sign": [1, -1, 1, -1]}  # fmt: skip
    assert document["correlation"] == "array [3, 4, 4]: see the NPZ"
    assert [tables.sign_mark(sign) for sign in (1, -1)] == ["+", "−"]


def aligned(**more: Any) -> AlignmentReport:
    """Two tensors of lengths 3 and 4, at relative distances 1 and 0.5: Σ ‖A − B‖² is 9 + 4."""
    names = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight")
    steps = (
        LayerStage(None, "res", 1.0, 0.5, None, 6.0), LayerStage(0, "ffn", 1.0, 0.5, None, 3.0),
        LayerStage(0, "rot", 1.0, 0.5, None, -1.0),
    )  # fmt: skip
    given = {
        "tensors": names, "before": np.array([1.0, 0.5]), "after": np.array([0.5, 0.25]),
        "norms": np.array([3.0, 4.0]), "steps": steps,
    }  # fmt: skip
    return replace(fakes.alignment(), **(given | more))


def test_shares_of_a_distance_are_drawn_layer_by_layer():
    table = shares.shares(aligned())
    assert table[["layer", "coordinate", "share"]].values.tolist() == [
        ["all", "residual", pytest.approx(6 / 13)], ["all", "FFN neurons", pytest.approx(3 / 13)],
        ["all", "angles", pytest.approx(-1 / 13)], ["all", "left over", pytest.approx(3.25 / 13)],
        ["0", "FFN neurons", 0.75], ["0", "angles", -0.25], ["0", "left over", 0.25],
        ["–", "residual", pytest.approx(6 / 9)], ["–", "left over", 0.25],
    ]  # fmt: skip
    assert shares.total(aligned()) == pytest.approx(((13 / 25) ** 0.5, (3.25 / 25) ** 0.5))
    assert shares.order(aligned()) == "residual, FFN neurons, angles"
    drawn = Drawn(shares.bars(aligned(), LIGHT))
    assert drawn.titles() == {"x": "layer (– outside the layers)", "y": "share of ‖A − B‖²"}
    assert drawn.layers[0]["encoding"]["x"]["sort"] == ["all", "0", "–"]
    assert drawn.colours() == {
        "residual": theme.PLUS, "FFN neurons": theme.MINUS, "angles": theme.TRUTH,
        "left over": LIGHT.grid,
    }  # fmt: skip
    assert drawn.tips()["share"] == ("share", ".2%")
    still = replace(aligned(), before=np.array([1e-7, 0.5]))
    assert "–" not in set(shares.shares(still)["layer"])


def test_distances_before_and_after_share_one_scale():
    before, after = (Drawn(layers.distance_map(aligned(before=np.array([1.0, 2.0])), when, LIGHT))
                     for when in ("before", "after"))  # fmt: skip
    assert before.rows()[["column", "kind", "before", "after"]].values.tolist() == [
        ["–", "embed_tokens", 1.0, 0.5], ["0", "up_proj", 2.0, 0.25]]  # fmt: skip
    assert (before.spec["title"], after.spec["title"]) == ("before alignment", "after alignment")
    assert (before.fields()["color"], after.fields()["color"]) == ("before", "after")
    for drawn in (before, after):
        assert drawn.titles() == {"x": "layer (– outside the layers)"}
        assert (drawn.colours()[0.0], drawn.colours()[2.0]) == ("#FFFFFF", "#08305C")
    assert after.tips()["after"] == ("distance after", ".2e")


SWEEPS = (
    Sweep("identity", 0, 2.0, 1.8, 1.75, 0.25), Sweep("embedding", 0, 1.9, 1.0, 1.0, 0.5),
    Sweep("embedding", 1, 0.9, 0.7, 0.65, 0.125),
)  # fmt: skip


def test_an_objective_is_drawn_by_its_sweeps():
    assert descents.points(SWEEPS).values.tolist() == [
        ["identity", 0.0, "on arrival", 2.0, pytest.approx(np.nan, nan_ok=True)],
        ["identity", 1.0, "after the sweep", 1.8, 1.75],
        ["embedding", 0.0, "on arrival", 1.9, pytest.approx(np.nan, nan_ok=True)],
        ["embedding", 1.0, "after the sweep", 1.0, 1.0],
        ["embedding", 1.5, "residual solved anew", 0.9, pytest.approx(np.nan, nan_ok=True)],
        ["embedding", 2.0, "after the sweep", 0.7, 0.65],
    ]
    drawn = Drawn(descents.objective(SWEEPS, LIGHT))
    assert drawn.rows(0)["height"].tolist() == [2.0]
    assert drawn.titles(1) == {"x": "sweeps", "y": "objective", "color": "start"}
    assert drawn.layers[1]["encoding"]["x"]["axis"]["values"] == [0, 1, 2]
    many = Drawn(descents.objective((SWEEPS[0], replace(SWEEPS[2], number=24)), LIGHT))
    assert many.layers[1]["encoding"]["x"]["axis"]["values"] == list(range(0, 26, 2))
    assert drawn.rows(2).values.tolist() == [[2.0, 0.7, "embedding"]]
    assert descents.kept(SWEEPS).iloc[2].to_dict() == {
        "start": "embedding", "sweep": 2, "objective before": 0.9, "objective after": 0.7,
        "distance of weights": 0.65, "seconds": "0.12",
    }  # fmt: skip
    lost = Drawn(descents.losses(((3.0, 2.5), (3.25,)), LIGHT))
    assert lost.rows().values.tolist() == [
        [0, 3.0, "after the matching"], [1, 2.5, "after the matching"],
        [0, 3.25, "without matching (control)"],
    ]  # fmt: skip
    assert lost.titles() == {"x": "step", "y": "loss half way, nats"}
    assert lost.colours() == {
        "after the matching": theme.PLUS, "without matching (control)": theme.MINUS}  # fmt: skip


@pytest.mark.parametrize(("end", "far"), [(0.0199, True), (0.02, False)])
def test_an_objective_far_below_its_start_is_drawn_on_a_logarithm(end: float, far: bool):
    assert descents.far((SWEEPS[0], Sweep("embedding", 0, 1.9, end, end, 0.1))) is far


def test_the_loss_half_way_is_drawn_above_its_chord():
    points = (
        Midpoint("unaligned", 5.0, 3.0), Midpoint("with res", 4.0, 2.0),
        Midpoint("refined", 1.75, -0.25), Midpoint("refined without matching", 2.5, 0.5),
    )  # fmt: skip
    drawn = Drawn(descents.midpoints(aligned(midpoints=points), LIGHT))
    assert drawn.rows(0)[["stage", "loss", "above", "kind", "chord", "shown"]].values.tolist() == [
        ["unaligned", 5.0, 3.0, "unaligned", 2.0, "+3.000"],
        ["with res", 4.0, 2.0, "matched", 2.0, "+2.000"],
        ["refined", 1.75, -0.25, "refined", 2.0, "−0.250"],
        ["refined without matching", 2.5, 0.5, "refined without matching", 2.0, "+0.500"],
    ]
    assert drawn.titles(0) == {"x": "nats above the chord (dashed)"}
    assert drawn.scale("x")["domain"] == pytest.approx([-0.31, 3.54])
    assert drawn.colours(0) == {
        "unaligned": theme.QUIET, "matched": theme.PLUS, "refined": theme.TRUTH,
        "refined without matching": theme.MINUS,
    }  # fmt: skip
    assert drawn.rows(2)["above"].tolist() == [0.0]


def relation(depths: tuple[int, int], chosen: tuple[int, ...]) -> Relatedness:
    likeness = np.arange(depths[0] * depths[1], dtype=np.float32).reshape(depths) / 10
    tests = tuple(
        LineageTest(how, -3.5, np.array([rho, rho / 2]), np.array([alike, 0.125]))
        for how, rho, alike in (("embedding", 0.5, 0.75), ("random", -0.5, 0.0625))
    )
    given = {"layers": np.array(chosen), "likeness": likeness, "tests": tests, "depths": depths}
    return replace(fake_alignments.relatedness("same lineage", depths), **given)


@pytest.mark.parametrize(
    ("depths", "chosen", "names", "taken"),
    [
        ((3, 2), (0, 2), ["0 · 0", "2 · 1"], [(0, 0), (2, 1)]),
        ((2, 3), (1, 2), ["0 · 1", "1 · 2"], [(0, 1), (1, 2)]),
    ],
)
def test_layers_are_compared_with_those_of_a_first(depths, chosen, names, taken):
    record = relation(depths, chosen)
    assert lineages.partners(record) == taken
    cells = lineages.cells(record)
    assert [(a, b) for a, b, _, t in cells.values.tolist() if t] == taken
    assert cells.iloc[1].to_dict() == {
        "A": 0, "B": 1, "alike": pytest.approx(0.1), "taken": (0, 1) in taken}  # fmt: skip
    drawn = Drawn(lineages.likeness(record, LIGHT))
    assert drawn.fields(0) == {"x": "B", "y": "A", "color": "alike"}
    assert drawn.titles(0) == {"x": "layer of B", "y": "layer of A", "color": "alike"}
    colours = drawn.colours(0)
    assert (colours[0.0], colours[max(colours)]) == ("#FFFFFF", "#08305C")
    assert max(colours) == pytest.approx(0.5)
    assert drawn.rows(1)["shown"].tolist() == ["0", "10", "20", "30", "40", "50"]  # per cent
    assert [(a, b) for a, b in drawn.rows(2)[["A", "B"]].values.tolist()] == taken
    points = Drawn(lineages.tests(record, LIGHT))
    assert points.rows(1).iloc[0].to_dict() == {
        "residual coordinates": "embedding", "pair": 0, "layers": names[0], "rho": 0.5,
        "alike": 0.75, "log10 p": -3.5,
    }  # fmt: skip
    assert points.rows(1)["layers"].tolist() == names * 2
    assert points.titles(1) == {
        "x": (
            "layers of A · B"
        ), "y": "Spearman's ρ", "color": "residual coordinates by"}  # fmt: skip
    assert points.colours(1) == {"embedding": theme.PLUS, "random (control)": theme.QUIET}
    assert points.scale("y", 1)["domain"] == [-0.5, 1.0]
    assert points.tips(1)["alike"] == ("neurons alike", ".1%")


def test_a_coordinate_is_drawn_between_its_writers_and_its_readers():
    drawn = blocks.layout(CARD)
    ffn = drawn.tensors[drawn.tensors["word"] == "ffn"]
    assert ffn[["tensor", "side", "x"]].values.tolist() == [
        ["gate_proj", "only relabelled", 0.5], ["up_proj", "written by", 0.25],
        ["down_proj", "read by", 0.75],
    ]  # fmt: skip
    box = drawn.boxes[drawn.boxes["word"] == "ffn"].iloc[0]
    assert (box["title"], box["under"]) == (
        "FFN neuron", "S_n ⋉ (R∖{0})ⁿ · n = 256 · 6 of them")  # fmt: skip
    assert drawn.boxes.iloc[0]["under"] == "B_n = S_n ⋉ {±1}ⁿ · n = 96 · one for the model"
    edges = drawn.edges[drawn.edges["word"] == "ffn"]
    ends = edges.groupby("edge")["x"].agg(["first", "last"]).values.tolist()
    assert ends == [[0.25, 0.34], [0.75, 0.66]]
    spec = Drawn(diagrams.block(CARD, LIGHT, "ffn"))
    assert spec.layers[0]["encoding"]["color"]["scale"] == {
        "domain": ["written by", "read by", "only relabelled"],
        "range": [theme.PLUS, theme.MINUS, theme.QUIET],
    }  # fmt: skip
    heads = spec.rows(len(spec.layers) - 1)
    assert heads[["x", "head"]].values.tolist() == [
        [0.25, "written by"], [0.5, "coordinate (under it, in italics: only relabelled)"],
        [0.75, "read by"],
    ]  # fmt: skip
    tips = {"tensor": ("tensor", ""), "axes": ("name: axes", ""), "role": ("side", "")}
    assert spec.layers[1]["mark"]["cursor"] == "pointer"
    assert spec.tips(1)["under"] == ("group, size, copies", "")
    assert spec.tips(4) == tips


@pytest.mark.parametrize(
    ("axes", "name", "sides"),
    [
        ("(grp rot*) res*", "grp", ("read by",)), ("(grp head rot) res*", "head", ("written by",)),
        ("res (grp head val*)", "head", ("read by",)), ("tok (grp head)", "grp", ("written by",)),
        ("((rot qk) grp val*) res*", "grp", ("written by", "read by")),
        ("(grp (rot) val*) res*", "grp", ("written by", "read by")),
    ],
)  # fmt: skip
def test_an_order_stands_with_what_is_in_its_brackets(axes, name, sides):
    carrier = Carrier("up.weight", axes, "written")
    assert blocks.sides(carrier, name, frozenset({"grp", "head"})) == sides
    assert blocks.sides(replace(carrier, role="named"), name, frozenset()) == ("only relabelled",)
    assert blocks.sides(replace(carrier, role="read"), name, frozenset()) == ("read by",)


def test_tables_of_a_card_are_written_row_by_row():
    test = fakes.self_test(0.05)
    row = cards.coordinates(CARD, test).iloc[1].to_dict()
    assert row == {
        "coordinate": "FFN neuron", "word": "ffn", "group": "S_n ⋉ (R∖{0})ⁿ", "size": 256,
        "copies": 6, "log₁₀ count": 3504.0, "continuous": 1536, "self-test": "approximate 0.04",
        "alike": "✓", "cancels": "✓", "private": "✓", "why": "Why FFN neuron is a name.",
        "carried by": "gate_proj, up_proj, down_proj",
    }  # fmt: skip
    assert cards.fixed_table(CARD).iloc[0].to_dict() == {
        "index": "token", "word": "tok", "size": 640, "alike": "✓", "cancels": "✓", "private": "✗",
        "why": "a token id means an entry of the dictionary",
    }  # fmt: skip
    blind = cards.blind(CARD, test)
    assert blind[["word", "continuous", "holds", "self-test"]].values.tolist() == [
        ["att", 576, "exactly", "approximate 0.045"],
        ["scale", 1, "up to ε", "approximate 0.045 (up to ε)"],
    ]
    rows = cards.self_test(test)
    assert rows.iloc[0].to_dict() == {
        "result": "approximate 0.04", "changed alone": "residual coordinate",
        "tensors moved": "100%", "kind": "coordinate",
    }  # fmt: skip
    assert rows["kind"].tolist() == ["coordinate"] * 6 + ["blind direction"] * 2
    assert cards.carriers(CARD.coordinates[1]).values.tolist() == [
        ["model.layers.{l}.mlp.gate_proj.weight", "|ffn| res*", "0", "only relabelled"],
        ["model.layers.{l}.mlp.up_proj.weight", "ffn res*", "0", "writes it"],
        ["model.layers.{l}.mlp.down_proj.weight", "res ffn*", "1", "reads it"],
    ]
    assert cards.carriers(CARD.blind[0])["role"].tolist() == ["multiplied"] + ["divided"] * 3
    names = cards.short(["a.0.up.weight", "b.{e}.up.bias", "c.up.gate", "a.down.bias"])
    assert list(names.values()) == ["a.up", "b.up", "gate", "down"]


def test_a_change_is_written_for_both_conventions():
    rows = {row.name: row for row in CARD.coordinates}
    table = conventions.table(CARD, rows["res"]).set_index("tensor")
    assert table.loc["embed_tokens"].tolist() == ["W_embed_tokens[:, perm] * s[None, :]"] * 2
    assert table.loc["input_layernorm"].tolist() == ["W_input_layernorm[perm]"] * 2
    assert table.loc["q_proj"].tolist() == [
        "W_q_proj[:, perm] / s[None, :]", "W_q_proj[perm, :] / s[:, None]"]  # fmt: skip
    assert table.loc["o_proj"].tolist() == [
        "W_o_proj[perm, :] * s[:, None]", "W_o_proj[:, perm] * s[None, :]"]  # fmt: skip
    turned = conventions.table(CARD, rows["rot"]).set_index("tensor")
    assert turned.loc["q_proj"].tolist() == [
        "in each head: z * W_q_proj[pairs]", "in each head: z * W_q_proj[:, pairs]"]  # fmt: skip
    assert turned.loc["k_proj", "Linear [out, in]"] == ("in each head: W_k_proj[pairs] / conj(z)")
    group = conventions.table(CARD, rows["grp"]).set_index("tensor")
    assert group.loc["q_proj"].tolist() == [
        "W_q_proj.reshape(2, 3, 16, -1)[perm]", (
            "W_q_proj.reshape(-1, 2, 3, 16)[:, perm]"
        )]  # fmt: skip
    value = conventions.table(CARD, rows["val"]).set_index("tensor")
    assert value.loc["v_proj"].tolist() == [
        "in each head: M @ W_v_proj", "in each head: W_v_proj @ M.T"]  # fmt: skip
    assert value.loc["o_proj"].tolist() == [
        "in each head: W_o_proj @ inv(M)", "in each head: inv(M).T @ W_o_proj"]  # fmt: skip
    assert conventions.variable(Carrier("a.up.bias", "ffn", "written"), "up-1") == "b_up_1"
    assert conventions.factors(rows["res"]) and not conventions.factors(rows["grp"])
    assert not conventions.factors(rows["rot"])


def experiment(**more: Any) -> Experiment:
    """Rows 0 and 2 of a tensor exchanged; two channels of three tokens."""
    before = np.array([[1.0, -2.0], [3.0, 4.0], [0.5, 0.0]], np.float32)
    given = {
        "weight": "up.weight: ffn res*, rows 10 to 12, columns 20 to 21", "weight_before": before,
        "weight_after": before[[2, 1, 0]], "hidden_before": before, "hidden_after": -before,
        "pieces": ("the", " cat", "\n"), "channels": np.array([7, 9]),
        "order": np.array([9, 7]), "effect": Effect(1.0, 0.5, 3e-7, 0.1, 1.0, "3 tokens"),
    }  # fmt: skip
    return fakes.experiment(**(given | more))


def test_before_stands_left_of_after_on_one_scale():
    figure = experiments.weights(experiment(), LIGHT)
    before, after, marks = figure.data
    assert before.z.tolist() == [[1.0, -2.0], [3.0, 4.0], [0.5, 0.0]]
    assert after.z.tolist() == [[0.5, 0.0], [3.0, 4.0], [1.0, -2.0]]
    assert [note.text for note in figure.layout.annotations] == ["before", "after"]
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-4.0, 4.0)
    assert figure.layout.coloraxis.colorscale[0] == (0.0, "#8C3B00")
    assert (before.y0, before.x0) == (10, 20)
    assert list(marks.y) == [10, 12] and list(marks.x) == pytest.approx([18.4, 18.4])
    assert marks.hovertemplate == "row %{y} changed<extra></extra>"
    assert figure.layout.yaxis.title.text == "axis 0: ffn"
    assert figure.layout.xaxis.title.text == "axis 1: res*"
    assert figure.layout.yaxis.range == (12.5, 7.0)
    hidden = experiments.hidden(experiment(), LIGHT)
    assert hidden.layout.yaxis.ticktext == ("the", "·cat", "⏎")
    assert hidden.layout.xaxis.ticktext == ("7", "9")
    assert hidden.layout.xaxis.title.text == "channel"
    assert hidden.data[1].z.tolist() == (-hidden.data[0].z).tolist()
    assert experiments.caption(experiment()) == (
        "Shown: up.weight: ffn res*, rows 10 to 12, columns 20 to 21."
    )


def test_a_move_leads_from_the_old_place_to_the_new_one():
    figure = experiments.places(experiment(), LIGHT)
    assert [(tuple(t.y), t.line.color, t.hovertemplate) for t in figure.data] == [
        ((9, 7), theme.MINUS, "9 → 7<extra></extra>"),
        ((7, 9), theme.PLUS, "7 → 9<extra></extra>"),
    ]
    assert figure.layout.xaxis.ticktext == ("old place", "new place")
    assert figure.layout.yaxis.title.text == "channel"
    many = experiments.places(experiment(order=np.roll(np.arange(60), 1), channels=np.zeros(0)),
                              LIGHT)  # fmt: skip
    assert (many.data[1].x[0], many.data[1].y[0]) == (59, 0)
    assert many.layout.xaxis.title.text == "old place of the channel"
    assert many.layout.yaxis.title.text == "new place"
    away = experiments.places(experiment(order=np.arange(100, 160), channels=np.zeros(0)), LIGHT)
    assert tuple(away.data[0].x) == tuple(away.data[0].y) == (0, 159)  # where nothing moved
    text = experiments.places(experiment(positions=np.array([1, 0])), LIGHT)
    assert text.layout.yaxis.title.text == "token"


@pytest.mark.parametrize(
    ("error", "x", "side"),
    [
        (0.0, 1.15e-8, "middle right"), (3e-7, 3e-7, "middle right"), (1e-3, 1e-3, "middle right"),
        (0.5, 0.5, "middle left"), (40.0, 10 / 1.15, "middle left"),
    ],
)  # fmt: skip
def test_the_meter_shows_a_relative_change_between_its_ends(error, x, side):
    figure = experiments.meter(fakes.experiment(error), LIGHT)
    (marker,) = figure.data
    assert marker.x[0] == pytest.approx(x) and marker.textposition == side
    assert [(s.x0, s.x1) for s in figure.layout.shapes] == [(1e-8, 1e-4), (1e-4, 0.1), (0.1, 10)]
    assert [note.text for note in figure.layout.annotations] == ["exact", "approximate", "broken"]
    assert figure.layout.annotations[0].x == pytest.approx(-6)
    assert figure.layout.xaxis.title.text == (
        "largest change of a log-probability, relative to the largest one"
    )
    assert figure.layout.xaxis.ticktext[:3] == ("≤ 1e-8", "1e-7", "1e-6")


def test_both_shades_have_blue_for_more_and_orange_for_less():
    assert (theme.PLUS, theme.MINUS) == ("#0072B2", "#D55E00")
    for look in (LIGHT, DARK):
        for scale in (look.diverging, look.cyclic):
            assert [at for at, _ in scale] == [0.0, 0.25, 0.5, 0.75, 1.0]
        assert [at for at, _ in look.sequential] == [0.0, 0.3, 0.65, 1.0]
        for colours, low, high in ((look.diverging, 0, -1), (look.cyclic, 1, 3)):
            red, _, blue = (int(colours[low][1][k : k + 2], 16) for k in (1, 3, 5))
            assert red > blue  # orange
            red, _, blue = (int(colours[high][1][k : k + 2], 16) for k in (1, 3, 5))
            assert blue > red
    light = [sum(int(c[k : k + 2], 16) for k in (1, 3, 5)) for _, c in LIGHT.sequential]
    dark = [sum(int(c[k : k + 2], 16) for k in (1, 3, 5)) for _, c in DARK.sequential]
    assert light == sorted(light, reverse=True) and dark == sorted(dark)
    assert theme.config("name")["toImageButtonOptions"] == {
        "format": "png", "scale": 2, "filename": "name"}  # fmt: skip
