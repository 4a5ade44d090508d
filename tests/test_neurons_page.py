"""The Neurons page in a simulated browser, its charts, tables and sentences, on fake records."""

import io
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from app import outputs
from app.charts import matching, matrices, neurons, tables
from app.charts.theme import DARK, LIGHT, MINUS, PLUS
from app.sentences import neurons as sentences
from app.settings import ROOT
from engine.questions import AllNeurons, Experts, Inspect, Neurons
from tests import app_pages, fake_neurons, fakes
from tests.app_pages import MAIN, figures, text
from tests.fake_neurons import Group

NEURONS = str(ROOT / "pages" / "neurons.py")
opened = partial(app_pages.opened, NEURONS)
LIMIT = 2_000_000
SILENT = Group(gated=False, signs=False, scales=False)


@pytest.fixture
def asked(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every question that the page asks, answered by the fake records."""
    found: list[Any] = []

    def layer(self: Neurons, progress: Any) -> Any:
        found.append(self)
        if self.a == self.b:
            return fake_neurons.itself(layer=self.layer)
        return fake_neurons.neuron_match(layer=self.layer, expert=self.expert, partner=self.expert,
                                         truth=self.truth != "none")  # fmt: skip

    def layers(self: AllNeurons, progress: Any) -> Any:
        found.append(self)
        return fake_neurons.neuron_layers(truth=self.truth != "none")

    monkeypatch.setattr(Neurons, "answer", layer)
    monkeypatch.setattr(AllNeurons, "answer", layers)
    return found


def test_the_page_opens_with_its_verdict_and_every_picture(asked, pair):
    at = opened()
    assert at.title[0].value == "Which neuron of B is which neuron of A?"
    flipped = int((fakes.planted(40).sign < 0).sum())
    assert f"40 of 40 neurons found in layer 0, {flipped} of them with sign −." in text(at)
    assert f"knows neither signs nor scales, finds {1 - flipped / 40:.1%}" in text(at)
    assert len(figures(at)) == 8  # matrix, points, three of layers, two of margins, scales
    assert sum("What would bad look like?" in item.value for item in at.caption) == 6
    assert [type(question) for question in asked] == [Neurons, AllNeurons]
    labels = [button.label for button in at.get("download_button")]
    assert labels == ["Matching (CSV)", "Arrays (NPZ)", "Record (JSON)", "Layers (JSON)"]
    commands = "python -m engine match {} {}".format(*pair)
    assert at.code[0].value.splitlines() == [
        f"{commands} --layer 0 --coordinate ffn --out neurons.npz",
        f"{commands} --coordinate ffn --out neurons.json",
    ]


def test_a_pair_is_shown_beside_the_tokens_that_excite_each(asked):
    at = opened(neuron="7")
    record = fake_neurons.neuron_match()
    partner = int(record.match.permutation[7])
    assert f"Neuron 7 of A is neuron {partner} of B" in text(at)
    assert "8 of the 8 places that excite each most are the same." in text(at)
    listed = [item.value for item in at.markdown if item.value.startswith("| | value")]
    assert len(listed) == 2
    assert listed[0] == listed[1]  # B's times its factor: the same places, the same values
    assert listed[0].count("●") == 8 and "\\|" in listed[0] and "⏎" in listed[0]
    at.segmented_control(key="beside-it").set_value("next best").run()
    assert f"the next best for it is neuron {record.second[7]} of B" in text(at)
    assert [i.value for i in at.markdown if i.value.startswith("| | value")][1] != listed[0]


def test_a_click_on_a_point_chooses_its_neuron(asked):
    at = opened()
    at.session_state["neurons:pairs:0"] = {"selection": {"points": [{"x": 3, "y": 11}]}}
    at = at.run()
    assert not at.exception
    assert at.number_input(key="neuron").value == 11
    assert "Neuron 11 of A is neuron" in text(at)


def test_a_box_on_the_matrix_is_its_window(asked):
    at = opened()
    box = {"x": [4.0, 12.0], "y": [20.0, 10.0]}
    at.session_state["matrix-of:0:40:0:40"] = {"selection": {"box": [box]}}
    at = at.run()
    assert not at.exception
    assert (at.slider(key="up").value, at.slider(key="across").value) == ((10, 20), (4, 12))
    assert "Whole matrix" in [button.label for button in at.button]


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [
        (lambda at: at.select_slider(key="layer").set_value("3"), "layer", 3),
        (lambda at: at.segmented_control(key="using").set_value("activations"), "using",
         "activations"),
        (lambda at: at.selectbox(key="truth").select("none"), "truth", "none"),
        (lambda at: at.selectbox(key="device").select("cpu"), "device", "cpu"),
    ],
)  # fmt: skip
def test_every_control_asks_another_question(asked, turn, field: str, value):
    at = opened()
    turn(at).run()
    assert not at.exception
    found = [question for question in asked if isinstance(question, Neurons)]
    assert len(found) == 2 and getattr(found[1], field) == value


def test_without_a_truth_nothing_is_called_right(asked):
    at = opened(truth="none")
    assert "40 neurons matched in layer 0" in text(at) and "not measured" in text(at)
    assert "The published cost agrees on" in text(at)


def test_a_model_against_itself_shows_what_neurons_are_worth(asked, pair):
    at = opened(against="itself")
    assert [(q.a, q.b) for q in asked] == [(pair[0], pair[0])]
    assert "No two neurons of layer 0 coincide; the most alike are 0 and 1, score 0.7" in text(at)
    assert "merging was cheaper than removing for 8" in text(at)
    assert len(figures(at)) == 1
    table = next(item.value for item in at.dataframe if "KL merged" in item.value)
    assert (table["KL merged"][:8] < table["KL removed"][:8]).all()
    labels = [button.label for button in at.get("download_button")]
    assert labels == ["Pairs (CSV)", "Costs (CSV)", "Arrays (NPZ)", "Record (JSON)"]


def test_experts_are_chosen_and_have_a_part_of_their_own(asked, pair, monkeypatch):
    for path, letter in zip(pair, "ab", strict=True):
        card = fakes.model_card(path, letter * 16)
        outputs.results().put(Inspect(path).key, replace(card, experts=4))
    heard: list[Any] = []

    def refused(self: Experts, progress: Any) -> Any:
        heard.append(self)
        raise RuntimeError("not in this test")

    monkeypatch.setattr(Experts, "answer", refused)
    at = opened(expert="2")
    assert asked[0].expert == "2" and asked[1].expert == ""
    assert "found in expert 2 of layer 0" in text(at)
    assert "Its partner is expert 2 of B." in text(at)
    assert len(heard) == 1


def test_different_shapes_are_told_and_unequal_widths_are_not(pair, asked):
    outputs.results().put(Inspect(pair[1]).key,
                          replace(fakes.model_card("wide", "b" * 16), heads=8))  # fmt: skip
    at = opened()
    assert "heads 6 against 8" in text(at) and not asked
    outputs.results().put(Inspect(pair[1]).key,
                          replace(fakes.model_card("wide", "b" * 16), ffn=300))  # fmt: skip
    assert "neurons found" in text(opened())


def test_a_number_that_another_layer_lacks_gives_way(asked):
    at = opened(neuron="4000", layer="77")
    assert at.number_input(key="neuron").value == 0 and asked[0].layer == 0


def test_the_first_paint_imports_neither_torch_nor_transformers(pair):
    outputs.results().put(Neurons(*pair, 0).key, fake_neurons.neuron_match())
    outputs.results().put(AllNeurons(*pair).key, fake_neurons.neuron_layers())
    code = (
        "import sys; from streamlit.testing.v1 import AppTest;"
        f"at = AppTest.from_file({MAIN!r}, default_timeout=30).run();"
        f"at.switch_page({NEURONS!r}).run(); assert not at.exception, at.exception\n"
        "assert len(at.get('plotly_chart')) == 8\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_every_figure_of_a_wide_layer_is_small(look):
    record, every = fake_neurons.neuron_match(2100), fake_neurons.neuron_layers()
    drawn = matrices.tile(record.score, matrices.whole(2100), columns=neurons.columns(record))
    for figure in (
        matrices.heatmap(drawn, look, 5, words=matrices.Words("neuron", "score")),
        matching.pairs(record.match, record.truth, look, 5, "neuron", record.rows),
        neurons.scales(record, look, 5),
        neurons.flips(every, look, 2),
        neurons.shares(every, look, 2),
        neurons.margins(every, look, 2),
        neurons.costs(fake_neurons.spared(), look),
    ):
        assert len(figure.to_json()) < LIMIT


def test_signs_are_drawn_in_two_colours_and_at_their_places():
    record = fake_neurons.neuron_match()
    figure = matching.pairs(record.match, record.truth, LIGHT, None, "neuron", record.rows)
    plus, minus = figure.data[1:]
    assert (plus.marker.color, minus.marker.color) == (PLUS, MINUS)
    assert list(minus.y) == np.flatnonzero(record.factor < 0).tolist()
    scales = neurons.scales(record, LIGHT)
    assert scales.layout.yaxis.type == "log"
    np.testing.assert_allclose(scales.data[2].y, np.abs(record.factor[record.factor < 0]), 1e-6)
    drawn = matrices.tile(record.score, matrices.whole(40), columns=neurons.columns(record))
    assert (np.sign(np.diag(drawn.values)) == record.match.sign).all()


def test_the_share_of_flips_is_drawn_against_a_half():
    every = fake_neurons.neuron_layers()
    figure = neurons.flips(every, LIGHT, 2)
    np.testing.assert_allclose(figure.data[0].y, every.negative / every.pairs)
    assert [shape.y0 for shape in figure.layout.shapes if shape.type == "line"] == [0.5]
    other = neurons.shares(fake_neurons.neuron_layers(truth=False), LIGHT)
    assert [trace.name for trace in other.data] == ["choose each other", "both costs agree"]


def test_a_layer_of_two_widths_is_drawn_with_those_that_have_a_partner():
    square = fake_neurons.neuron_match()
    kept = np.arange(0, 40, 2)
    match = replace(square.match, **{
        name: getattr(square.match, name)[kept]
        for name in ("permutation", "sign", "score", "margin", "mutual")
    })  # fmt: skip
    record = replace(
        square, rows=kept, match=match, truth=None, truth_factor=None, sizes=(40, 40),
        **{name: getattr(square, name)[kept]
           for name in ("factor", "second", "second_score", "second_factor", "published")},
    )  # fmt: skip
    figure = matching.pairs(match, None, LIGHT, 4, "neuron", record.rows)
    assert sorted(y for trace in figure.data for y in trace.y) == kept.tolist()
    assert sorted(neurons.columns(record)) == list(range(40))
    assert neurons.matched(record)["A"].tolist() == kept.tolist()
    assert "20 neurons matched" in sentences.matched(record).headline


def test_tables_say_what_the_record_says():
    record = fake_neurons.neuron_match()
    table = neurons.matched(record)
    assert table["right"].all() and (table["places shared"] == 8).all()
    least = neurons.least_certain(record, 5)
    assert least["margin"].tolist() == sorted(record.match.margin.tolist())[:5]
    with np.load(io.BytesIO(tables.as_npz(record))) as arrays:
        assert {"score", "factor", "match_margin", "excited_places_1"} <= set(arrays)
    pairs = neurons.coincide(fake_neurons.itself())
    assert pairs["score"].is_monotonic_decreasing and len(pairs) == 20


def test_contexts_stay_in_their_window_and_keep_the_token():
    found = fake_neurons.neuron_match().excited
    assert found is not None
    for value, before, token, after, place in neurons.contexts(found, 0, 3):
        window, position = divmod(place, 16)
        assert found.pieces[found.text[window, position]] == token
        assert len(before.split(" ")) <= 6 and len(after.split(" ")) <= 6 and value > 0
    spaced = replace(found, pieces=(" the", " cat", "s", " on", ".", " mat"))
    rows = [row[1] for row in neurons.contexts(spaced, 0, 3)]
    assert not any("  " in row for row in rows)


def test_groups_without_signs_and_scales_say_so():
    record = fake_neurons.neuron_match(group=SILENT)
    said = sentences.matched(record)
    assert "sign" not in said.headline and "scales" not in said.text
    assert record.negative is None and (record.score >= 0).all()
    assert "times" not in sentences.pair(record, 3, other=False)
    assert "no sign" in sentences.signs(fake_neurons.neuron_layers(signs=False))
    assert "coin flip" in sentences.signs(fake_neurons.neuron_layers())
    none = np.zeros(6, np.int64)
    assert "began with" in sentences.signs(fake_neurons.neuron_layers(negative=none))


def test_coincident_neurons_are_named():
    score = np.full(40, 0.3, np.float32)
    score[[2, 3]] = 1.0
    said = sentences.matched(fake_neurons.itself(second_score=score))
    assert said.headline.startswith("2 neurons of layer 0 could be told by another one")
    assert "2 and 3" in said.headline
