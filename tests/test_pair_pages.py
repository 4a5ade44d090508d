"""Pages about two models: one model twice, two widths, links, written checkpoints, one distance."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import inputs, opening, outputs, settings, written
from app.aligned import Aligning
from app.charts import matching, matrices, shares
from app.charts.theme import LIGHT
from app.controls.alignment import SWEEPS
from app.sentences import alignments, distances, lineage, verdicts, words
from app.sentences import neurons as sentences
from app.settings import ROOT
from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.questions import Align, Inspect, Neurons, Related
from engine.records import NeuronMatch
from tests import fake_alignments as made
from tests import fake_neurons, fakes, tiny
from tests.app_pages import MAIN, opened, text
from tests.test_alignment_page import run
from tests.test_pages import ALIGNMENT, MODELS, put, wait_for

NEURONS, HEADS, BARRIER = (
    str(ROOT / "pages" / f"{name}.py") for name in ("neurons", "heads", "barrier")
)
NOTE = "the 56 left over of A were left out of every distance"


def labels(at: AppTest, kind: str = "button") -> list[str]:
    return [button.label for button in at.get(kind)]


@pytest.mark.parametrize("page", [MAIN, ALIGNMENT, NEURONS, HEADS, BARRIER])
def test_one_model_twice_is_opened_by_one_button_that_names_it(pair, monkeypatch, page):
    monkeypatch.setattr(opening, "slow", lambda spec: True)
    monkeypatch.setattr(opening, "present", lambda spec: None)
    at = opened(page, a="hf:owner/one", b="hf:owner/one")
    assert [label for label in labels(at) if label.startswith("Open ")] == ["Open hf:owner/one"]
    assert any("Downloads its weights" in item.value for item in at.caption)
    at = opened(page, a="hf:owner/one", b="hf:owner/two")
    both = ["Open hf:owner/one", "Open hf:owner/two"]
    assert [label for label in labels(at) if label.startswith("Open ")] == both


def test_two_names_of_one_file_have_two_buttons(pair, tmp_path):
    file = tmp_path / "models" / "one.gguf"
    file.write_bytes(b"GGUF" + bytes(5_000_000))
    at = opened(ALIGNMENT, a="one.gguf", b=str(file))
    assert [label for label in labels(at) if label.startswith("Open ")] == [
        "Open one.gguf", f"Open {file}"
    ]  # fmt: skip
    assert any("its file of 5.0 MB" in item.value for item in at.caption)


@pytest.fixture
def two_widths(pair) -> tuple[str, str]:
    """A pair whose FFNs have 256 and 200 neurons, as the engine reports it."""
    put(Inspect(pair[1]), replace(fakes.model_card("twin", "b" * 16), ffn=200))
    report = made.alignment(notes=(f"A has 256 neurons, B 200: {NOTE}.",))
    put(Align(*pair, sweeps=SWEEPS), report)
    put(Align(*pair), report)
    put(Related(*pair), made.relatedness())
    return pair


@pytest.mark.parametrize("page", [MODELS, ALIGNMENT])
def test_two_widths_are_compared_and_what_was_left_over_is_said(two_widths, page):
    at = opened(page)
    assert NOTE in text(at)
    assert "Different groups" not in text(at)
    assert len(at.get("vega_lite_chart")) >= 2


def test_widths_of_experts_must_agree_and_so_must_all_else():
    a = fakes.model_card()
    wide = replace(a, fingerprint="b", ffn=200)
    assert verdicts.unlike(a, wide) == ()
    assert verdicts.differences(a, wide) == ("FFN width 256 against 200",)
    experts = [replace(card, experts=4) for card in (a, wide)]
    assert verdicts.unlike(*experts) == ("FFN width 256 against 200",)
    assert verdicts.unlike(a, replace(wide, heads=8)) == ("heads 6 against 8",)
    assert "FFN width 256 against 200 alone" in verdicts.pair(a, wide, None).text


def test_the_page_runs_two_widths_on_the_engine(pair, tmp_path):
    root = tmp_path / "models"
    a = tiny.build("llama_gqa", root / "slim")
    b = tiny.build("llama_gqa", root / "wide", intermediate_size=26)
    at = run(opened(ALIGNMENT, a="slim", b="wide", sweeps="0"), Align(str(a), str(b), sweeps=0))
    assert re.search(r"A has 20 neurons in the feed-forward network of a layer, B 26", text(at))


def test_a_link_always_names_both_models(pair, monkeypatch):
    at = opened()
    a, b = (Path(path).name for path in pair)
    assert (at.query_params["a"], at.query_params["b"]) == (a, b)
    assert [at.selectbox(key=name).value for name in "ab"] == [a, b]
    monkeypatch.setenv(settings.PAIR_A, pair[1])  # started with another pair
    at = opened(a=a, b=b)
    assert inputs_of(at) == (a, b)
    at = opened(b=b)
    assert inputs_of(at) == (b, b)


def inputs_of(at: AppTest) -> tuple[str, ...]:
    return tuple(at.selectbox(key=name).value for name in "ab")


@pytest.fixture
def wrote(pair) -> Path:
    """A checkpoint as a page writes it below the store."""
    folder = outputs.results().models / "aligned-1-to-2-3"
    tiny.build("llama_gqa", folder)
    return folder


def test_what_a_page_wrote_opens_by_its_name_and_nothing_else_beside_it_does(wrote, monkeypatch):
    assert inputs.admitted(wrote.name) == inputs.admitted(str(wrote)) == str(wrote)
    assert wrote.name in inputs.folders()
    assert open_checkpoint(inputs.located(wrote.name)).layers == 2
    other = wrote.with_name("gguf-1")
    tiny.build("llama_gqa", other)
    away = wrote.with_name("aligned-away")
    away.symlink_to(other)
    for spec in (str(other), other.name, str(away), "../models/aligned-1-to-2-3", "aligned-none"):
        with pytest.raises(Refused, match=r"under the allowed ones.*--roots FOLDER"):
            inputs.admitted(spec)
    (wrote / "more.safetensors").symlink_to(other / "model.safetensors")
    with pytest.raises(Refused):  # a file that lies elsewhere
        inputs.admitted(wrote.name)
    monkeypatch.setenv(settings.HOSTED, "1")
    with pytest.raises(Refused, match="Folders and downloads are off"):
        inputs.admitted(wrote.name)
    assert inputs.folders() == []


def test_every_kind_of_written_checkpoint_has_a_known_prefix():
    for module in ("aligned", "merged", "pruned"):
        source = (ROOT / "app" / f"{module}.py").read_text()
        assert any(f'f"{prefix}' in source for prefix in written.PREFIXES), module


def test_a_written_checkpoint_is_opened_by_a_button(pair, monkeypatch):
    put(Related(*pair), made.relatedness())
    put(Align(*pair, sweeps=SWEEPS), made.alignment())

    monkeypatch.setattr(Aligning, "fill", lambda self, out, progress: tiny.build("llama_gqa", out))
    job = Aligning(Align(*pair, sweeps=SWEEPS))
    at = run(opened(ALIGNMENT), job)
    assert f"Written: `{job.out}`" in text(at)
    at.button(key=f"open-as:b:{job.out.name}").click().run()
    assert not at.exception
    assert at.session_state["b"] == job.out.name
    assert "Not open" not in text(at)


def test_an_answer_without_lengths_is_offered_anew(pair, monkeypatch):
    put(Related(*pair), made.relatedness())
    question = Align(*pair, sweeps=0)
    put(question, made.alignment(sweeps=(), norms=None))
    monkeypatch.setattr(Align, "answer", lambda self, progress: made.alignment(sweeps=()))
    at = opened(ALIGNMENT, sweeps="0")
    assert "Only coordinates" not in text(at)
    at.button(key=f"again:{question.key}").click().run()
    wait_for(question.key)
    at.run()
    assert "Only coordinates: 90.0 %" in text(at)
    assert "Compute it anew" not in labels(at)


def test_one_distance_is_told_everywhere_and_its_change_shows(pair):
    """Many small tensors moved away, one large one nearer: the mean rises, the distance falls."""
    report = fakes.alignment(fakes.Logits(between=5.0))
    norms = np.ones(len(report.tensors), np.float32)
    norms[0] = 100.0
    before = np.full(len(norms), 0.43, np.float32)
    after = before + 0.05
    after[0] = 0.4296
    report = replace(report, norms=norms, before=before, after=after)
    report = replace(report, midpoint_before=19.31, midpoint_after=19.28)
    assert report.after.mean() > report.before.mean()
    found = distances.distance(report)
    assert found.nearer and found.name == distances.ALL
    assert found.told == (
        "Relative distance of all weights 0.43 as the files stand, 0.4299 after alignment."
    )
    said = verdicts.pair(fakes.model_card(), fakes.model_card("twin", "b" * 16), report)
    assert found.told in said.text and "brought the weights nearer" in said.more
    assert (
        "is off by 19.31 in its logits, half way between A and the aligned B by 19.28" in said.more
    )
    assert found.told in alignments.explained(report)
    further = replace(report, after=before + 0.05)
    assert not distances.distance(further).nearer
    assert (
        "did not bring"
        in verdicts.pair(fakes.model_card(), fakes.model_card("b", "b"), further).more
    )


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (1.123, 1.109, ("1.12", "1.11")),
        (19.31, 19.38, ("19.3", "19.4")),
        (0.1365, 0.1352, ("0.137", "0.135")),
        (1.4, 1e-7, ("1.4", "1.0e-7")),
        (2.0, 2.0, ("2", "2")),
    ],
)
def test_two_numbers_have_the_digits_that_tell_them_apart(one: float, other: float, told: tuple):
    assert words.apart(one, other) == told


def test_caveats_are_said_once_and_not_in_the_verdict(pair):
    put(Related(*pair), made.relatedness("unrelated"))
    put(Align(*pair, sweeps=SWEEPS), made.alignment(1.6, fakes.Logits(between=12.0)))
    said = text(opened(ALIGNMENT))
    assert said.count("no promise of a lower barrier") == 1
    assert said.count("An assignment always exists") == 1
    found = alignments.told(fakes.model_card(), fakes.model_card("b", "b"),
                            made.alignment(1.6, fakes.Logits(between=12.0)), None)  # fmt: skip
    assert len(found.text) < 300


def test_both_cards_say_what_they_rest_on(pair):
    put(Related(*pair), made.relatedness())
    put(Align(*pair), fakes.alignment())
    captions = [item.value.replace("\\", "") for item in opened().caption]
    assert verdicts.ALIGNED in captions and lineage.BASIS in captions


def test_what_cannot_be_tested_is_said_with_the_reason(pair):
    put(Inspect(pair[1]), replace(fakes.model_card("twin", "b" * 16), family="GPT-2"))
    for page in (MODELS, ALIGNMENT):
        said = text(opened(page))
        assert "it cannot be tested for these two" in said
        assert "family Llama against GPT-2" in said


def test_the_relation_is_taken_away_on_the_models_page(pair):
    put(Related(*pair), made.relatedness())
    put(Align(*pair), fakes.alignment())
    found = labels(opened(), "download_button")
    assert {"Relatedness (JSON)", "Tests (CSV)", "Tests (PNG)", "Tests (SVG)"} <= set(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("compared", "words"),
    [("inputs", "by what they read"), ("correlation", "by how they fire together on the text")],
)
def test_captions_of_a_model_against_itself_follow_the_mode(pair, monkeypatch, compared, words):
    def answer(self: Neurons, progress: Any) -> NeuronMatch:
        return fake_neurons.itself(compared=compared)

    monkeypatch.setattr(Neurons, "answer", answer)
    at = opened(NEURONS, against="itself")
    captions = "\n".join(item.value for item in at.caption)
    assert at.title[0].value == "Which neurons of A could do without each other?"
    assert words in captions and "B's times its factor" not in captions
    assert ("what they read" in captions) == (compared == "inputs")


def test_the_order_of_the_caption_is_that_of_the_steps(pair):
    assert shares.order(made.alignment()) == (
        "residual, FFN neurons, heads, angles, value channels"
    )
    refined = replace(made.alignment().steps[0], coordinates="refined")
    more = made.alignment(steps=(*made.alignment().steps, refined))
    assert shares.order(more).endswith("value channels, refinement")


def test_the_matching_runs_the_way_of_the_matrix_and_dense_rings_are_those_missed():
    record = fake_neurons.neuron_match(600)
    truth = record.truth
    assert truth is not None
    figure = matching.pairs(record.match, truth, LIGHT, None, "neuron", record.rows)
    drawn = matrices.heatmap(matrices.tile(record.score, matrices.whole(600)), LIGHT,
                             words=matrices.Words("neuron", "score"))  # fmt: skip
    for mine, beside in ((figure.layout.xaxis, drawn.layout.xaxis),
                         (figure.layout.yaxis, drawn.layout.yaxis)):  # fmt: skip
        assert mine.title.text == beside.title.text
        assert np.diff(mine.range) * np.diff(beside.range) > 0  # A downward and B across in both
    assert figure.layout.xaxis.title.text != figure.layout.yaxis.title.text
    assert len(figure.data[0].x) == 0
    wrong = record.match.permutation.copy()
    wrong[[3, 5]] = wrong[[5, 3]]
    missed = replace(record.match, permutation=wrong)
    figure = matching.pairs(missed, truth, LIGHT, None, "neuron", record.rows)
    assert figure.data[0].y.tolist() == [3, 5]
    assert figure.data[0].x.tolist() == truth.permutation[[3, 5]].tolist()
    assert "where the point misses it: 2 of 600" in matching.told(missed, truth)
    small = fake_neurons.neuron_match()
    figure = matching.pairs(small.match, small.truth, LIGHT, None, "neuron", small.rows)
    assert len(figure.data[0].x) == 40


def test_columns_margins_and_costs_are_explained():
    record = fake_neurons.neuron_match()
    for column in ("Margin", "next B", "Mutual", "Published B", "Right"):
        assert column.lower() in sentences.terms(record).lower()
    assert verdicts.margin(-0.069) == (
        "smallest margin -0.069, below 0: another was nearer, but is taken"
    )
    assert "below 0" not in verdicts.margin(0.2)
    slow = replace(record, layers=30, seconds=20.0)
    assert sentences.cost(slow) == "30 layers, this one took 20 s: about 10 min."
