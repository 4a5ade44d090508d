"""The Barrier page in a simulated browser, on stored records and stand-ins for the engine."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import merged, outputs, texts
from app.jobs import unfinished
from app.settings import HOSTED, ROOT
from engine import store
from engine.errors import Cancelled, Refused
from engine.questions import (
    Barrier,
    Check,
    Forecast,
    Inspect,
    Merge,
    Orders,
    Related,
    Slice,
    Written,
)
from engine.questions.line import ABLATION, MERGING, USUAL
from tests import app_pages, fake_alignments, fake_barriers, fakes
from tests.app_pages import MAIN, captions, plots, text

PAGE = str(ROOT / "pages" / "barrier.py")
opened = partial(app_pages.opened, PAGE)
FEW = ("none", "heads", "all")
TITLE = "Is there a hill on the straight line between them?"


@pytest.fixture
def pair(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The same, nothing shipped, no texts brought, their relation known."""
    monkeypatch.setattr(store, "SHIPPED", ())
    outputs.results.cache_clear()
    texts.names.cache_clear()
    put(Related(*pair), fake_alignments.relatedness())
    return pair


@pytest.fixture
def asked(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every question that the page asks, answered by the fake records."""
    found: list[Any] = []

    def stand_in(cls: type, make: Any) -> None:
        def answer(self: Any, progress: Any, *rest: Any) -> Any:
            found.append(self)
            return make(self)

        monkeypatch.setattr(cls, "answer", answer)

    monkeypatch.setattr(texts.Counting, "answer", lambda q, progress: 5000)
    stand_in(Barrier, answered)
    stand_in(Forecast, lambda q: fake_barriers.estimate())
    stand_in(Written, lambda q: fake_barriers.writing(q.at, q.stage))
    stand_in(Merge, lambda q: fake_barriers.merge(q.t, q.stage))
    stand_in(Slice, lambda q: fake_barriers.plane(q.points))
    stand_in(Orders, lambda q: fake_barriers.orders())
    return found


def answered(asked: Barrier) -> Any:
    """A report of a few stages: pictures of all of them take their time."""
    points = 3 if asked.midpoint else asked.points
    stages = FEW if asked.stages == USUAL else asked.stages
    return fake_barriers.report(stages, points=points, scope=asked.scope)


def put(question: Any, record: Any) -> None:
    outputs.results().put(question.key, record)


def lines(at: AppTest) -> str:
    return "\n".join(item.value for item in at.text)


def warnings(at: AppTest) -> str:
    return "\n".join(item.value for item in at.warning).replace("\\", "")


def labels(at: AppTest) -> list[str]:
    return [button.label for button in at.button]


def start(at: AppTest, question: Any, where: str = "") -> AppTest:
    """Click the button that starts a question, wait for its job, run again."""
    parts = [part for part in ("start", where, question.key) if part]
    at.button(key=":".join(parts)).click().run()
    wait_for(question.key)
    at = at.run()
    assert not at.exception
    return at


def wait_for(key: str) -> None:
    import time

    for _ in range(500):
        job = outputs.registry().look(key)
        if job is not None and job.over:
            return
        time.sleep(0.01)
    raise AssertionError("the job did not end")


def measured(pair: tuple[str, str], **more: Any) -> Barrier:
    """The page's first question, its answer stored."""
    question = Barrier(*pair, **more)
    put(question, answered(question))
    return question


def demo_twins() -> tuple[str, str]:
    """The demo twins, all that the first page says of them stored."""
    twins = ("demo:base", "demo:twin")
    for name, letter in zip(twins, "ab", strict=True):
        put(Inspect(name), fakes.model_card(name, letter * 16))
        put(Check(name), fakes.self_test(1e-6))
    put(Related(*twins), fake_alignments.relatedness())
    return twins


def test_the_cost_stands_there_before_the_run_and_the_verdict_after(asked, pair):
    at = opened()
    assert at.title[0].value == TITLE
    assert "Whether there is a hill between them has not been measured." in text(at)
    assert "2,048 tokens of the demo models' own text in 16 windows; 163 models" in captions(at)
    assert [type(q) for q in asked] == [Forecast]
    at = start(at, Barrier(*pair))
    assert Barrier(*pair) in asked
    assert "Raw line: 3.2" in text(at) and "all coordinates: 0.6" in text(at)
    assert "163 models" not in captions(at)
    assert "partial" not in text(at)
    assert "Measure the line" not in labels(at)


def test_the_page_at_rest_shows_every_part(asked, pair):
    measured(pair)
    at = opened()
    assert len(plots(at)) == 1  # the others are asked for by buttons
    heads = [item.value for item in at.subheader]
    assert heads == [
        "What does it write there?",
        "Keep the model at t",
        "What do the matrices inside the heads add?",
        "Permutations are not enough",
        "The plane through A, B and aligned B",
        "Is it the right order of the heads?",
        "Take away",
    ]
    assert [type(q) for q in asked] == [Written]
    assert asked[0].at == (0.0, 0.5, 1.0) and asked[0].stage == "all"
    assert "on the table, at 0.5." in "\n".join(item.value for item in at.code)
    assert captions(at).count("What would bad look like?") == 6
    commands = at.code[-1].value.splitlines()
    verbs = [line.split()[3] for line in commands]
    assert verbs == ["barrier", "line", "merge", "barrier", "barrier", "slice", "orders"]
    assert commands[0] == f"python -m engine barrier {pair[0]} {pair[1]} --out barrier.json"


TURNS = (
    ("scope", "all-attention", lambda at: at.selectbox(key="scope").select("all-attention")),
    ("points", 9, lambda at: at.select_slider(key="points").set_value("9")),
    ("midpoint", True, lambda at: at.toggle(key="midpoint").set_value(True)),
    ("adaptive", False, lambda at: at.toggle(key="adaptive").set_value(False)),
    ("using", "activations",
     lambda at: at.segmented_control(key="matched").set_value("activations")),
    ("sweeps", 2, lambda at: at.number_input(key="swept").set_value(2)),
    ("refine", 50, lambda at: at.number_input(key="refined").set_value(50)),
    ("tokens", 4096, lambda at: at.select_slider(key="read").set_value(4096)),
    ("length", 64, lambda at: at.select_slider(key="window").set_value(64)),
    ("stages", ("none", "all"), lambda at: at.multiselect(key="stages").set_value(["all", "none"])),
    ("device", "cpu", lambda at: at.selectbox(key="device").select("cpu")),
)  # fmt: skip


def test_every_control_asks_another_question(asked, pair):
    question = Barrier(*pair)
    at = opened()
    for field, value, turn in TURNS:
        turn(at).run()
        assert not at.exception
        question = replace(question, **{field: value})
        assert f"start:{question.key}" in [button.key for button in at.button]
        assert [q for q in asked if isinstance(q, Forecast)][-1] == question.forecast


def test_layers_are_typed_and_those_that_are_not_there_are_refused_in_one_line(asked, pair):
    at = opened(scope="layers", layers="1-2")
    assert f"start:{replace(Barrier(*pair), scope='1-2').key}" in [b.key for b in at.button]
    at.text_input(key="layers").set_value("4,99").run()
    assert not at.exception
    assert "There is no layer 99: the last of 6 is 5." in lines(at)
    at.text_input(key="layers").set_value("x").run()
    assert not at.exception
    assert "'x'" in lines(at)


def test_what_other_pages_measure_with_does_not_come_along(asked, pair):
    at = AppTest.from_file(MAIN, default_timeout=30).run()
    for name in ("layers", "alignment"):
        at = at.switch_page(str(ROOT / "pages" / f"{name}.py")).run()
    at.switch_page(PAGE).run()
    assert not at.exception
    assert f"start:{Barrier(*pair).key}" in [button.key for button in at.button]


def test_a_link_opens_its_view(asked, pair):
    measured(pair, scope="first-layer", points=9, midpoint=False)
    at = opened(scope="first-layer", points="9", t="0.25", what="accuracy", stage="heads",
                prompt="Anna", several="true")  # fmt: skip
    assert at.select_slider(key="t").value == "0.25"
    assert "**At t = 0.25**" in text(at)
    spec = json.dumps(plots(at)[0])
    assert '"title": "accuracy"' in spec
    assert (asked[0].stage, asked[0].prompt) == ("heads", "Anna")
    assert asked[0].at == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert "Only the first layer is interpolated" in text(at)


def test_a_t_that_was_not_measured_gives_way_to_the_nearest(asked, pair):
    measured(pair)
    assert opened(t="0.3").select_slider(key="t").value == "0.292"
    assert opened(t="nonsense").select_slider(key="t").value == "0.5"
    assert opened(t="1e9").select_slider(key="t").value == "1"


def test_the_slider_moves_the_rule_the_numbers_and_the_text(asked, pair):
    measured(pair)
    at = opened()
    table = at.dataframe[0].value
    assert table["stage"].tolist()[0] == "raw"
    before = table["loss, nats"].tolist()
    at.select_slider(key="t").set_value("0.25").run()
    assert not at.exception
    assert at.dataframe[0].value["loss, nats"].tolist() != before
    assert at.dataframe[1].value["barrier, nats"].str.contains("[", regex=False).all()
    assert [q for q in asked if isinstance(q, Written)][-1].at == (0.0, 0.25, 1.0)
    rule = [layer for layer in plots(at)[0]["layer"] if layer["mark"]["type"] == "rule"][-1]
    name = rule["data"]["name"]
    assert plots(at)[0].get("datasets", {}).get(name, [{"t": 0.25}]) == [{"t": 0.25}]


def test_the_twin_says_that_no_hill_was_found_and_other_seeds_that_one_is_left(asked, pair):
    put(Barrier(*pair), fake_barriers.twin(FEW))
    told = text(opened())
    assert "With all coordinates no hill was found on this text at 25 points" in told
    put(Barrier(*pair), fake_barriers.report(FEW))
    told = text(opened())
    assert "no hill was found" not in told
    assert "With all coordinates a hill is left: 0.6" in told


def test_what_a_stopped_job_found_is_shown_and_called_partial(asked, pair):
    outputs.results().put(unfinished(Barrier(*pair).key), fake_barriers.partial())
    at = opened()
    assert "residual, signs off, partial" in text(at)
    assert "whether a hill is left is not known yet" in text(at)
    assert "residual, signs off, partial" in json.dumps(plots(at)[0])
    assert "Measure the line" in labels(at)
    at.select_slider(key="t").set_value("0.125").run()
    assert "not measured yet" in at.dataframe[0].value["loss, nats"].tolist()


def test_curves_grow_while_the_job_runs_and_a_cancel_leaves_them_partial(pair, monkeypatch):
    go, handed = Event(), Event()

    def work(self: Barrier, progress: Any) -> Any:
        progress(0.3, "res-unsigned, t = 0.5", fake_barriers.partial())
        handed.set()
        assert go.wait(30)
        progress(0.4, "res-unsigned, t = 0.6")
        raise AssertionError("a cancelled job goes on")

    monkeypatch.setattr(Barrier, "answer", work)
    put(Barrier(*pair).forecast, fake_barriers.estimate())
    monkeypatch.setattr(Written, "answer", lambda self, progress: fake_barriers.writing(self.at))
    at = opened()
    key = Barrier(*pair).key
    at.button(key=f"start:{key}").click().run()
    assert handed.wait(10)
    at.select_slider(key="t").set_value("0.25").run()
    assert not at.exception
    assert "residual, signs off, partial" in text(at)
    assert at.select_slider(key="t").value == "0.25"
    assert not at.get("download_button")
    outputs.registry().cancel(key)
    go.set()
    wait_for(key)
    assert outputs.registry().look(key).state == "cancelled"
    at.run()
    assert "residual, signs off, partial" in text(at)
    assert "Measure the line again" in labels(at)
    assert at.get("download_button")
    assert outputs.known(Barrier(*pair)) is None


def test_the_ablation_is_read_off_the_record_where_it_has_all_stages(asked, pair):
    question = Barrier(*pair, stages=(*USUAL[:5], "orthogonal", *USUAL[5:]))
    put(question, answered(question))
    at = opened(stages=list(question.stages))
    assert "Measure the ablation" not in labels(at)
    assert "Against the raw line's barrier: head order" in text(at)
    assert len(plots(at)) == 2


def test_the_ablation_and_the_gauge_are_asked_on_the_same_text(asked, pair):
    first = measured(pair)
    at = start(opened(), replace(first, stages=ABLATION), "Ablation")
    assert "Against the raw line's barrier: head order" in text(at)
    hidden = replace(first, stages=MERGING, scrambled=True)
    at = start(at, hidden, "Gauge and merging")
    assert "B under a random gauge, then aligned. permutations only: 3" in text(at)
    assert len(plots(at)) == 3
    assert "--stages orders,all --scrambled on --out gauge.json" in at.code[-1].value


def test_a_part_of_a_model_has_no_gauge_panel(asked, pair):
    measured(pair, scope="all-attention")
    at = opened(scope="all-attention")
    assert "Only for the whole model: a random gauge moves every tensor." in text(at)
    assert "Hide B under a random gauge and measure" not in labels(at)


def test_the_plane_and_the_orders_appear_when_they_are_measured(asked, pair):
    first = measured(pair)
    card = replace(fakes.model_card("base", "a" * 16), heads=3, kv_heads=3)
    put(Inspect(pair[0]), card)
    put(Inspect(pair[1]), replace(card, fingerprint="b" * 16))
    at = start(opened(), Slice(*pair, device=first.device, tokens=first.tokens))
    assert "B at the stage all is 58 % as far from A as B is" in text(at)
    at = start(at, Orders(*pair))
    assert "Taken: order 0 1 2, barrier 0.2" in text(at)
    assert len(plots(at)) == 4
    assert {"Plane (JSON)", "Orders (CSV)"} <= {b.label for b in at.get("download_button")}


def test_a_plane_that_would_be_refused_is_said_before_the_click(asked, pair):
    first = Barrier(*pair)
    report = answered(first)
    flat = {"none": 1.4, "heads": 0.7, "all": 5e-8}
    curves = tuple(replace(one, distance=flat[one.stage]) for one in report.curves)
    put(first, replace(report, curves=curves))
    at = opened()
    assert "With the stage all, B stands where A does" in text(at)
    heads = Slice(*pair, stage="heads", tokens=first.tokens)
    assert f"start:{heads.key}" in [button.key for button in at.button]
    assert "--stage heads --count 2048 --out slice.json" in at.code[-1].value
    put(first, replace(report, curves=(curves[0], curves[-1])))
    at = opened()
    assert "No plane: at every stage" in text(at)
    assert "Measure the plane" not in labels(at) and "slice" not in at.code[-1].value


def test_the_plane_takes_scope_and_tokens_from_the_page(asked, pair):
    measured(pair, scope="first-attention", tokens=256)
    at = opened(scope="first-attention", read="256")
    plane = Slice(*pair, scope="first-attention", tokens=256)
    assert f"start:{plane.key}" in [button.key for button in at.button]
    assert "11 × 11 models on 256 tokens, with the stage all, over the attention" in captions(at)
    assert "--scope first-attention --count 256 --out slice.json" in at.code[-1].value


def opened_with(pair, heads, kv_heads):
    """The page on two models with so many heads."""
    measured(pair)
    card = replace(fakes.model_card("base", "a" * 16), heads=heads, kv_heads=kv_heads)
    put(Inspect(pair[0]), card)
    put(Inspect(pair[1]), replace(card, fingerprint="b" * 16))
    return opened()


def test_too_many_orders_are_not_tried(asked, pair):
    at = opened_with(pair, 32, 8)
    assert "orders are tried up to 9 heads" in text(at)
    assert not [label for label in labels(at) if label.startswith("Try ")]


def test_of_very_many_orders_some_are_tried(asked, pair):
    at = opened_with(pair, 9, 9)
    assert "Try 72 orders" in labels(at)
    said = text(at) + captions(at)
    assert "72 of the 362,880 orders of layer 0: the alignment's, others at random." in said


def test_a_merge_is_written_below_the_store_and_called_a_new_function(pair, monkeypatch):
    first = measured(pair)
    monkeypatch.setattr(Written, "answer", lambda self, progress: fake_barriers.writing(self.at))

    def answer(self: Merge, progress: Any, out: Path | None = None) -> Any:
        assert out is not None
        (out / "config.json").write_text("{}")
        return fake_barriers.merge(self.t, self.stage)

    monkeypatch.setattr(Merge, "answer", answer)
    at = opened()
    assert "In general a merge is a new function" in text(at)
    job = merged.Merging(Merge(*pair))
    at = start(at, job)
    assert job.out.is_relative_to(outputs.results().models)
    assert json.loads((job.out / "report.json").read_text())["t"] == 0.5
    assert "At t = 0.5, all coordinates: loss 1.8" in text(at)
    assert "It is a new function: it computes neither what A does" in text(at)
    at.select_slider(key="t").set_value("0.25").run()
    assert "Write the checkpoint" in labels(at)
    assert merged.Merging(Merge(*pair, t=0.25)).out != job.out
    assert first.key != job.key


def test_a_hosted_server_writes_nothing_and_shows_texts_to_who_brought_them(
    asked, pair, monkeypatch
):
    monkeypatch.setenv(HOSTED, "1")
    twins = demo_twins()
    measured(twins)
    other = texts.keep(b"Of somebody else.").name
    own = texts.keep(b"Mine. " * 9)
    measured(twins, text=str(own.path))
    at = opened(a=twins[0], b=twins[1])
    assert "data set of the hub" not in at.segmented_control(key="own:way").options
    assert "Write the checkpoint" not in labels(at)
    at = start(at, Merge(*twins))
    assert "At t = 0.5, all coordinates: loss 1.8" in text(at)
    at.text_area(key="own:pasted").set_value("Mine. " * 9).run()
    at.button(key="own:paste").click().run()
    assert not at.exception
    assert at.selectbox(key="own").value == own.name
    assert other not in at.selectbox(key="own").options
    assert f"--text {own.name}.txt" in at.code[-1].value
    assert str(texts.folder()) not in at.code[-1].value


def test_the_engine_finds_no_hill_on_the_line_to_the_twin(pair):
    twins = demo_twins()
    small = {"points": 5, "adaptive": False, "stages": ("none", "all"), "tokens": 256, "length": 16}
    put(Written(*twins, at=(0.0, 0.5, 1.0), text="default"), fake_barriers.writing())
    at = opened(a=twins[0], b=twins[1], points="5", adaptive="false", read="256", window="16",
                stages=["none", "all"])  # fmt: skip
    assert "256 tokens of generated text (village) in 16 windows; 8 models are run" in captions(at)
    at = start(at, Barrier(*twins, **small))
    report = outputs.known(Barrier(*twins, **small))
    raw, last = (float(curve.barrier().value) for curve in report.curves)
    assert raw > 1 and last <= 1e-4 * raw
    assert f"Raw line: {raw:.3g} nats above the chord" in text(at)
    assert "With all coordinates no hill was found on this text at 5 points" in text(at)
    assert "below 0.01 % of it" in text(at)


def test_models_of_different_groups_have_no_line(asked, pair):
    put(Inspect(pair[1]), replace(fakes.model_card("twin", "b" * 16), layers=3))
    at = opened()
    assert "No line leads from one to the other." in text(at)
    assert asked == []


def test_models_that_predict_no_next_token_write_nothing(asked, pair):
    put(Barrier(*pair), fake_barriers.report(FEW, target="likeliest class"))
    at = opened()
    assert "Nothing: these models predict no next token." in text(at)
    assert "Nothing labels these inputs" in text(at)
    assert asked == []


def test_a_refused_run_says_why_in_one_line(pair, monkeypatch):
    def refuse(self: Any, progress: Any) -> Any:
        raise Refused("The text (notes.txt) has fewer than the 2048 tokens asked for.")

    monkeypatch.setattr(Forecast, "answer", refuse)
    monkeypatch.setattr(Barrier, "answer", refuse)
    at = opened()
    assert lines(at).count("fewer than the 2048 tokens") == 1
    assert not [label for label in labels(at) if "Measure the line" in label]


def test_an_own_text_is_pasted_and_every_question_reads_it(asked, pair):
    measured(pair)
    at = opened()
    at.text_area(key="own:pasted").set_value("Anna puts the book on the table. " * 50).run()
    at.button(key="own:paste").click().run()
    assert not at.exception
    (name,) = texts.kept()
    assert at.selectbox(key="own").value == name
    forecast = [q for q in asked if isinstance(q, Forecast)][-1]
    assert Path(forecast.text) == texts.located(name)
    assert f"In use: {name}" in lines(at)
    at.text_area(key="own:pasted").set_value("   ").run()
    at.button(key="own:paste").click().run()
    assert "pasted holds no text" in lines(at)
    assert at.selectbox(key="own").value == name


def test_an_uploaded_text_is_read_and_a_bad_one_refused(asked, pair):
    at = opened()
    at.segmented_control(key="own:way").set_value("upload").run()
    at.button(key="own:file").click().run()
    assert "Choose a file first." in lines(at)
    at.get("file_uploader")[0].upload(
        "rows.jsonl", b'{"text": "one"}\n{"text": "two"}', "text/plain"
    )
    at.run()
    at.button(key="own:file").click().run()
    assert not at.exception
    assert "the field 'text' of 2 lines" in lines(at)


def test_a_link_to_a_text_that_is_not_here_says_so(asked, pair):
    at = opened(own="notes-0123456789ab")
    assert "is not here (notes-0123456789ab): paste or upload it again" in warnings(at)
    assert [q.text for q in asked] == ["default"]
    at = opened(own="../../etc/passwd")
    assert "is not here (../../etc/passwd)" in warnings(at)


def test_what_a_link_asks_for_in_vain_is_said_and_the_default_taken(asked, pair):
    measured(pair, sweeps=20)
    link = {"points": "1000000", "swept": "77", "t": "nan", "read": "513", "midpoint": "maybe"}
    at = opened(**link)
    assert "Raw line: 3.2" in text(at)  # not of another question
    for said in ("points = 1000000", "swept = 77", "t = nan", "read = 513", "midpoint = maybe"):
        assert f"This link asks for {said}, which is not on offer here" in warnings(at)
    assert "points = 1000000, which is not on offer here: 25 is taken." in warnings(at)
    at.select_slider(key="points").set_value("9").run()
    assert "points" not in warnings(at) and "t = nan" in warnings(at)


def test_what_a_link_asks_for_and_gets_is_no_news(asked, pair):
    measured(pair, points=9)
    link = {"points": "9", "t": "0.50", "several": "TRUE", "stage": "heads", "midpoint": "false"}
    assert not opened(**link).warning


def test_a_short_text_is_read_whole_and_a_shorter_one_refused_once(asked, pair, monkeypatch):
    kept = texts.keep(b"Anna puts the book on the table. " * 30)
    for held, read in ((300, (256, 128)), (100, (100, 100)), (9000, (2048, 128))):
        texts.names.cache_clear()
        outputs.registry.cache_clear()
        monkeypatch.setattr(texts.Counting, "answer", lambda q, progress, held=held: held)
        at = opened(own=kept.name)
        forecast = [q for q in asked if isinstance(q, Forecast)][-1]
        assert (forecast.tokens, forecast.length) == read
        assert ("The text has" in captions(at)) == (held < 2048)
    texts.names.cache_clear()
    outputs.registry.cache_clear()
    monkeypatch.setattr(texts.Counting, "answer", lambda q, progress: 31)
    at = opened(own=kept.name)
    assert lines(at).count("This text has 31 tokens, and at least 32 are measured on") == 1
    assert "Measure the line" not in labels(at)


def test_downloads_are_off_where_the_machine_is_offline(asked, pair):
    at = opened()
    at.segmented_control(key="own:way").set_value("data set of the hub").run()
    assert "Downloads are off: paste the text, or upload a file." in lines(at)
    assert not [field for field in at.text_input if field.key == "own:dataset"]


def test_a_data_set_is_downloaded_by_a_job_and_used(asked, pair, monkeypatch):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr(
        texts.Fetching, "answer", lambda self, progress: texts.keep(b"Some words.", "train.txt")
    )
    at = opened()
    at.segmented_control(key="own:way").set_value("data set of the hub").run()
    at.text_input(key="own:dataset").set_value("owner/name").run()
    at = start(at, texts.Fetching("owner/name"))
    at.button(key="own:use").click().run()
    assert not at.exception
    assert at.selectbox(key="own").value.startswith("train-")


def test_the_first_paint_imports_neither_torch_nor_transformers(pair):
    measured(pair)
    put(Written(*pair, at=(0.0, 0.5, 1.0)), fake_barriers.writing())
    code = (
        "import sys; from streamlit.testing.v1 import AppTest;"
        f"at = AppTest.from_file({MAIN!r}, default_timeout=30).run();"
        f"at.switch_page({PAGE!r}).run(); assert not at.exception, at.exception\n"
        "assert len(at.get('vega_lite_chart')) == 1\n"
        "print(sorted({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_cancel_is_no_error(pair, monkeypatch):
    def stop(self: Any, progress: Any) -> Any:
        raise Cancelled

    monkeypatch.setattr(Barrier, "answer", stop)
    put(Barrier(*pair).forecast, fake_barriers.estimate())
    at = start(opened(), Barrier(*pair))
    assert "Cancelled; nothing was changed." in captions(at)
