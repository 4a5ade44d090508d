"""The pages about layers in a simulated browser, on stored records and stand-ins for the engine."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import opening, outputs, pruned
from app.jobs import unfinished
from app.settings import HOSTED, ROOT
from engine import store
from engine.errors import Cancelled, Refused
from engine.questions import Continue, Cut, Drop, Gap, Inspect, Layers
from engine.sources import demo_series
from tests import fake_layers, fakes
from tests.app_pages import MAIN, captions, opened, plots, text

LAYERS, CUTTING, GAP, MODELS = (
    str(ROOT / "pages" / f"{name}.py") for name in ("layers", "cutting", "gap", "models")
)


@pytest.fixture
def asked(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every question that a page asks, answered by the fake records; nothing ships."""
    monkeypatch.setattr(store, "SHIPPED", ())
    outputs.results.cache_clear()
    found: list[Any] = []

    def stand_in(cls: type, make: Any) -> None:
        def answer(self: Any, progress: Any) -> Any:
            found.append(self)
            return make(self)

        monkeypatch.setattr(cls, "answer", answer)

    stand_in(Layers, lambda q: fake_layers.every_test())
    stand_in(Cut, lambda q: fake_layers.cut_report(budget=q.budget))
    stand_in(Drop, lambda q: fake_layers.cut_cost(q.drop))
    stand_in(Continue, lambda q: fake_layers.continuation(f"{q.test} of {q.i} and {q.j}"))
    stand_in(Gap, lambda q: fake_layers.gap() if "step" in q.series[0] else fake_layers.seeds())
    return found


def put(question: Any, record: Any) -> None:
    outputs.results().put(question.key, record)


def labels(at: AppTest) -> list[str]:
    return [button.label for button in at.button]


def files(at: AppTest) -> list[str]:
    return [button.label for button in at.get("download_button")]


def explained(at: AppTest) -> int:
    return sum("What would bad look like?" in item.value for item in at.caption)


def test_the_layers_page_opens_with_its_verdict_and_every_picture(asked, pair):
    at = opened(LAYERS)
    assert at.title[0].value == "Can layer j stand in for layer i? It depends how you ask."
    assert "Swapping costs more than replacing in 1 of 15 pairs." in text(at)
    assert "Measured on 512 tokens of the demo models' own text in 16 windows" in text(at)
    assert len(plots(at)) == 4  # two maps, the strip, where they disagree
    assert explained(at) == 4
    assert [type(q) for q in asked] == [Layers, Continue, Continue]
    assert asked[0] == Layers(pair[0])
    names = ["Pairs (CSV)", "Layers (CSV)", "Maps (JSON)"]
    assert files(at) == names + [f"{n} ({k})" for n in ("Maps", "Disagreement")
                                 for k in ("PNG", "SVG")]  # fmt: skip
    assert at.code[-1].value == f"python -m engine layers {pair[0]} --out layers.json"


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [
        (lambda at: at.segmented_control(key="aggregate").set_value("last"), "aggregate", "last"),
        (lambda at: at.number_input(key="reach").set_value(2), "reach", 2),
        (lambda at: at.slider(key="range").set_value((1, 4)), "layers", "1-4"),
        (lambda at: at.select_slider(key="count").set_value(2048), "tokens", 2048),
        (lambda at: at.select_slider(key="length").set_value(64), "length", 64),
        (lambda at: at.multiselect(key="tests").set_value(["skip", "swap"]), "tests",
         ("swap", "skip")),
        (lambda at: at.selectbox(key="device").select("cpu"), "device", "cpu"),
    ],
)  # fmt: skip
def test_every_control_of_the_layers_page_asks_another_question(asked, turn, field, value):
    at = opened(LAYERS)
    turn(at).run()
    assert not at.exception
    found = [q for q in asked if isinstance(q, Layers)]
    assert len(found) == 2
    assert getattr(found[1], field) == value


def test_a_link_opens_its_view(asked):
    at = opened(LAYERS, i="1", j="4", left="skip", right="swap", score="mean",
                tests="skip")  # fmt: skip
    assert (at.number_input(key="i").value, at.number_input(key="j").value) == (1, 4)
    assert asked[0].tests == ("skip",)
    assert at.selectbox(key="left").value == "skip"
    assert at.segmented_control(key="score").value == "mean"
    assert "Layers 1 and 4" in text(at)


def left(at: AppTest, page: str) -> AppTest:
    """Another page, as a browser opens it: with what drawn widgets hold, here the pair alone."""
    for name in set(at.query_params) - {"a", "b"}:
        del at.query_params[name]
    at = at.switch_page(page).run()
    assert not at.exception
    return at


@pytest.mark.parametrize(
    ("page", "link", "fields"),
    [
        (LAYERS, {"tests": ["skip", "swap"], "reach": "2", "count": "256"},
         {"tests": ("swap", "skip"), "reach": 2, "tokens": 256}),
        (CUTTING, {"by": ["greedy"], "reach": "2", "n": "2"}, {"by": ("greedy",), "reach": 2}),
    ],
)  # fmt: skip
def test_options_of_a_link_wait_until_the_model_is_open(asked, monkeypatch, page, link, fields):
    with monkeypatch.context() as shut:
        shut.setattr(opening, "slow", lambda spec: True)
        shut.setattr(opening, "present", lambda spec: None)
        at = opened(page, **link)
        assert "Open " in " ".join(labels(at))
        at = left(at, MODELS)
        assert set(link) <= set(at.query_params)
        at = left(at, page)
    assert not asked
    at.run()
    assert not at.exception
    assert {name: getattr(asked[0], name) for name in fields} == fields
    assert "n" not in link or at.slider(key="n").value == 2
    at.number_input(key="reach").set_value(0).run()  # what was taken is not said again
    at = left(left(at, MODELS), page)
    assert at.number_input(key="reach").value == 0


def test_an_option_that_a_control_has_taken_is_not_kept_in_the_address(asked):
    at = left(opened(LAYERS, reach="2", preset="angle"), MODELS)
    assert "reach" not in at.query_params
    assert at.query_params["preset"] == "angle"  # of a page that was not drawn


def test_a_click_on_a_cell_chooses_its_pair(asked):
    at = opened(LAYERS)
    assert "Layers 2 and 3: replace low, swap high." in text(at)
    click = {"selection": {"clicked": [{"i": 1, "j": 4}]}}
    at.session_state["layers:left:2:3"] = click
    at = at.run()
    assert not at.exception
    assert (at.number_input(key="i").value, at.number_input(key="j").value) == (1, 4)
    assert "Layers 1 and 4: both high." in text(at)
    table = next(item.value for item in at.dataframe if "KL, nats" in item.value)
    assert table["test"].tolist()[:2] == ["replace 1 ← 4", "replace 4 ← 1"]
    assert "[" in table["KL, nats"][0]
    last = [q for q in asked if isinstance(q, Continue)][-2:]
    assert [(q.test, q.i, q.j) for q in last] == [("replace", 1, 4), ("swap", 1, 4)]


def test_the_numbers_choose_the_pair_too(asked):
    at = opened(LAYERS)
    at.number_input(key="i").set_value(5).run()
    at.number_input(key="j").set_value(5).run()
    assert not at.exception
    assert "is the model as it is: choose two layers" in text(at)
    assert "What does it write then?" not in [item.value for item in at.subheader]


def test_the_pair_score_and_the_tests_change_the_pictures(asked):
    at = opened(LAYERS)
    before = plots(at)
    at.segmented_control(key="score").set_value("min").run()
    assert plots(at)[:2] == before[:2] and plots(at)[3] != before[3]
    at.multiselect(key="tests").set_value(["replace", "swap", "average"]).run()
    at.selectbox(key="right").select("average").run()
    assert not at.exception
    assert "Average: i and j both run the mean of their weights" in text(at)


def test_fewer_than_sixteen_windows_have_no_interval_and_the_page_says_so(pair):
    put(Layers(pair[0]), fake_layers.layer_maps(windows=8))
    put_continuations(pair[0])
    at = opened(LAYERS)
    assert "There is no interval: fewer than 16 windows." in text(at)
    assert "There is no interval: fewer than 16 windows." in captions(at)
    table = next(item.value for item in at.dataframe if "KL, nats" in item.value)
    assert not table["KL, nats"].str.contains("[", regex=False).any()


def put_continuations(model: str, i: int = 2, j: int = 3) -> None:
    for test in ("replace", "swap"):
        put(Continue(model, test, i, j), fake_layers.continuation())


def test_layers_of_different_kinds_are_not_exchanged_and_the_page_says_so(pair):
    put(Layers(pair[0]), fake_layers.two_kinds())
    at = opened(LAYERS)
    assert "Layer 2 is of the kind full attention, layer 3 of the kind sliding attention" in (
        text(at)
    )
    assert "Layers of different kinds are not exchanged: those cells stay empty." in captions(at)
    assert "kind of layer" in json.dumps(plots(at)[2])


def test_what_a_stopped_job_found_is_shown_and_called_partial(pair):
    put(Inspect(pair[0]), replace(fakes.model_card("base", "a" * 16), parameters=10**8))
    outputs.results().put(unfinished(Layers(pair[0]).key), fake_layers.partial())
    at = opened(LAYERS)
    assert "Partial: 15 of 51 cells, adjacent pairs first." in text(at)
    assert "partial" in text(at)
    assert len(plots(at)) == 4
    assert "Measure the maps" in labels(at)


def test_maps_grow_while_the_job_runs_and_the_controls_stay(pair, monkeypatch):
    put(Inspect(pair[0]), replace(fakes.model_card("base", "a" * 16), parameters=10**8))
    ended, handed = Event(), Event()

    def work(self: Layers, progress: Any) -> Any:
        progress(0.3, "pairs of layers 1 apart", fake_layers.partial())
        handed.set()
        assert ended.wait(30)
        return fake_layers.layer_maps()

    monkeypatch.setattr(Layers, "answer", work)
    put_continuations(pair[0])
    at = opened(LAYERS)
    assert "nobody has asked yet" in text(at)
    key = Layers(pair[0]).key
    at.button(key=f"start:{key}").click().run()
    assert handed.wait(10)
    at.number_input(key="i").set_value(4).run()
    assert not at.exception
    assert "Partial: 15 of 51 cells" in text(at)
    assert len(plots(at)) == 4
    assert at.number_input(key="i").value == 4
    assert not at.get("download_button")
    ended.set()
    wait_for(key)
    at.run()
    assert "Partial" not in text(at)
    assert at.number_input(key="i").value == 4
    assert at.get("download_button")


def wait_for(key: str) -> None:
    import time

    for _ in range(500):
        job = outputs.registry().look(key)
        if job is not None and job.over:
            return
        time.sleep(0.01)
    raise AssertionError("the job did not end")


def test_candidates_appear_one_by_one_while_the_job_runs(pair, monkeypatch):
    put(Inspect(pair[0]), replace(fakes.model_card("base", "a" * 16), parameters=10**8))
    report = fake_layers.cut_report()
    go, ended = Event(), Event()

    def work(self: Cut, progress: Any) -> Any:
        for count in (1, 3):
            part = replace(report, candidates=report.candidates[:count], complete=False)
            progress(0.5, "choosing and measuring", part)
            assert (go if count == 1 else ended).wait(30)
        return report

    monkeypatch.setattr(Cut, "answer", work)
    at = opened(CUTTING)
    key = Cut(pair[0]).key
    at.button(key=f"start:{key}").click().run()
    wait_until(lambda: outputs.so_far(Cut(pair[0])) is not None)
    at.run()
    assert not at.exception
    assert "No advice: the measurements are not complete." in text(at)
    go.set()
    wait_until(lambda: len(outputs.so_far(Cut(pair[0])).candidates) == 3)
    at.run()
    table = next(item.value for item in at.dataframe if "chosen by" in item.value)
    assert len(table) == 3
    ended.set()
    wait_for(key)
    at.run()
    table = next(item.value for item in at.dataframe if "chosen by" in item.value)
    assert len(table) == 5


def wait_until(holds: Any) -> None:
    import time

    for _ in range(500):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about")


def test_large_models_wait_for_the_button(pair, asked):
    for path, letter in zip(pair, "ab", strict=True):
        put(Inspect(path), replace(fakes.model_card(path, letter * 16), parameters=10**8))
    at = opened(LAYERS)
    assert not asked and "Measure the maps" in labels(at)
    at = opened(CUTTING)
    assert not asked and "Measure the cuts" in labels(at)
    assert "No cut was measured yet." in text(at)


def test_one_layer_has_no_maps_and_no_empty_picture(pair, asked, monkeypatch):
    put(Inspect(pair[0]), replace(fakes.model_card("base", "a" * 16), layers=1))
    one = fake_layers.layer_maps(1)
    monkeypatch.setattr(Layers, "answer", lambda *_: one)
    at = opened(LAYERS)
    assert "This model has one layer: there are no pairs." in text(at)
    assert len(plots(at)) == 1  # the strip
    assert files(at) == ["Pairs (CSV)", "Layers (CSV)", "Maps (JSON)"]


def test_maps_of_which_no_pair_is_measured_are_not_drawn(pair, asked, monkeypatch):
    found = fake_layers.layer_maps()
    nothing = np.full((6, 6), np.nan)
    tests = {name: fake_layers.readings(nothing) if name in ("replace", "swap") else held
             for name, held in found.tests.items()}  # fmt: skip
    monkeypatch.setattr(Layers, "answer", lambda *_: replace(found, tests=tests))
    at = opened(LAYERS)
    assert "No pair was measured by both tests." in text(at)
    assert text(at).count("Not measured yet.") == 2
    assert len(plots(at)) == 1


def test_a_refusal_is_shown_in_its_one_line(pair, monkeypatch):
    def refuse(self: Any, progress: Any) -> None:
        raise Refused("The model has one layer: there are no pairs.")

    monkeypatch.setattr(Layers, "answer", refuse)
    at = opened(LAYERS)
    assert at.text[0].value == "The model has one layer: there are no pairs."
    assert not [label for label in labels(at) if label.startswith("Measure the maps")]


@pytest.mark.parametrize("found", [True, False], ids=["a part", "nothing"])
def test_a_stopped_job_says_whether_a_part_is_shown(pair, monkeypatch, found: bool):
    def stopped(self: Any, progress: Any) -> None:
        progress(0.3, "pairs of layers 1 apart", *([fake_layers.partial()] if found else []))
        raise Cancelled

    monkeypatch.setattr(Layers, "answer", stopped)
    put_continuations(pair[0])
    at = opened(LAYERS)
    assert ("Stopped; what was measured so far is shown." in captions(at)) is found
    assert ("Cancelled; nothing was changed." in captions(at)) is not found
    assert len(plots(at)) == (4 if found else 0)
    assert "Measure the maps again" in labels(at)


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-8b-removal", "llama-3.1-8b", "gpt2-medium"])
def test_published_maps_open_in_the_same_view(asked, name):
    at = opened(LAYERS, source=f"published {name}")
    assert not asked
    assert "published" in text(at)
    assert "arXiv 2605.16234" in captions(at)
    assert len(plots(at)) == (2 if name == "gpt2-medium" else 4)
    assert "not measured here" in text(at)
    assert "Pairs (CSV)" in files(at)


def test_the_page_says_that_the_published_data_contradicts_the_claim(asked):
    at = opened(LAYERS, source="published qwen3-8b")
    assert "Swapping costs more than replacing in 20 of 102 pairs." in text(at)
    assert "by swap 25, 28, 20, 22, 18; by replace 15, 17, 19, 21, 23" in text(at)
    at.selectbox(key="source").select("this model").run()
    assert not at.exception
    assert "in 1 of 15 pairs" in text(at)


def test_numbers_that_a_smaller_model_lacks_give_way(asked):
    at = opened(LAYERS, source="published qwen3-8b", i="30", j="33")
    assert "Layers 30 and 33" in text(at)
    at.selectbox(key="source").select("this model").run()
    assert not at.exception
    assert (at.number_input(key="i").value, at.number_input(key="j").value) == (5, 5)


def test_a_model_that_is_not_open_is_named(pair, asked, monkeypatch):
    monkeypatch.setenv("GAUGESCOPE_A", str(Path(pair[0]).parent / "gone"))
    for page in (LAYERS, CUTTING):
        at = opened(page)
        assert "Not open: A." in text(at)
        assert not asked and not plots(at)


def test_the_cutting_page_opens_with_its_advice_and_every_picture(asked, pair):
    at = opened(CUTTING, n="2")
    assert at.title[0].value == "What does it cost to remove n layers?"
    assert "At n = 2, leaving out layers 2 and 3 costs least: +" in text(at)
    assert "2 layers of 6 hold 28% of the parameters" in text(at)
    assert len(plots(at)) == 6  # the strip, two of costs, three scores
    assert explained(at) == 3
    assert asked == [Cut(pair[0])]
    assert "swap ρ = " in text(at)
    table = next(item.value for item in at.dataframe if "chosen by" in item.value)
    assert table["left out"][0] == "layers 2 and 3"
    assert table["forwards to choose"].tolist().count("1") == 2
    assert files(at) == ["Table at n = 2 (CSV)", "Costs (CSV)", "Record (JSON)",
                         "mergekit (YAML)", "Cost (PNG)", "Cost (SVG)"]  # fmt: skip
    assert at.code[-1].value.splitlines() == [
        f"python -m engine cut {pair[0]} --out cut.json",
        f"python -m engine prune {pair[0]} --drop 2,3 --out pruned",
    ]


def test_the_budget_is_the_main_control(asked):
    at = opened(CUTTING)
    before = plots(at)
    at.slider(key="n").set_value(4).run()
    assert not at.exception
    assert "n = 4" in text(at)
    assert "swap-guided stops at 3 layers" in captions(at)
    assert all(old != new for old, new in zip(before[:3], plots(at)[:3], strict=True))
    assert before[3:] == plots(at)[3:]
    at.slider(key="n").set_value(0).run()
    assert "Nothing is cut." in text(at)
    assert "There is nothing to write" in text(at)


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [
        (lambda at: at.number_input(key="largest").set_value(3), "budget", 3),
        (lambda at: at.number_input(key="reach").set_value(1), "reach", 1),
        (lambda at: at.select_slider(key="count").set_value(2048), "tokens", 2048),
        (lambda at: at.select_slider(key="length").set_value(128), "length", 128),
        (lambda at: at.multiselect(key="by").set_value(["greedy", "swap"]), "by",
         ("swap", "greedy")),
    ],
)  # fmt: skip
def test_every_control_of_the_cutting_page_asks_another_question(asked, turn, field, value):
    at = opened(CUTTING)
    turn(at).run()
    assert not at.exception
    found = [q for q in asked if isinstance(q, Cut)]
    assert len(found) == 2
    assert getattr(found[1], field) == value


def test_my_own_cut_is_typed_and_measured(asked, pair):
    at = opened(CUTTING, mine="1,3-4")
    assert asked[-1] == Drop(pair[0], (1, 3, 4))
    assert "Mine: without layers 1, 3 and 4, +" in text(at)
    table = next(item.value for item in at.dataframe if "chosen by" in item.value)
    assert table["chosen by"].tolist()[-1] == "mine"
    for typed, line in (("9", "has no layer 9"), ("4-2", "names no layers"), ("1,1", "twice")):
        at.text_input(key="mine").set_value(typed).run()
        assert not at.exception
        assert line in at.text[0].value


def test_a_click_on_the_strip_puts_a_layer_into_mine_and_another_takes_it_out(asked):
    at = opened(CUTTING, mine="2-3")
    at.session_state["cutting:strip:2-3"] = {"selection": {"clicked": [{"layer": 4}]}}
    at = at.run()
    assert not at.exception
    assert at.text_input(key="mine").value == "2-4"
    assert asked[-1].drop == (2, 3, 4)
    at.session_state["cutting:strip:2-4"] = {"selection": {"clicked": [{"layer": 3}]}}
    at = at.run()
    assert at.text_input(key="mine").value == "2,4"


def test_too_few_windows_support_no_advice(pair):
    put(Cut(pair[0]), fake_layers.cut_report(windows=8))
    at = opened(CUTTING, n="2")
    assert "No advice, no interval: fewer than 16 windows." in text(at)
    assert "There is no interval: fewer than 16 windows." in captions(at)


def test_a_pruned_checkpoint_is_written_below_the_store(asked, pair, monkeypatch, tmp_path):
    written: list[Any] = []

    def prune(checkpoint: Any, drop: Any, out: Path, progress: Any) -> None:
        written.append((checkpoint.name, drop))
        out.mkdir(parents=True)
        (out / "config.json").write_text("{}")

    monkeypatch.setattr("engine.pruning.prune", prune)
    at = opened(CUTTING, n="2")
    job = pruned.Pruning(pair[0], (2, 3))
    assert job.out.parent == tmp_path / "store" / "models"
    at.button(key=f"start:{job.key}").click().run()
    wait_for(job.key)
    at.run()
    assert written == [(pair[0], (2, 3))]
    assert f"Written: `{job.out}`" in text(at)
    assert job.answer(lambda *_: None) == job.out
    assert len(written) == 1  # what is there is not written again


def test_a_hosted_server_writes_nothing(asked, pair, monkeypatch):
    monkeypatch.setenv(HOSTED, "1")
    monkeypatch.setenv("GAUGESCOPE_A", "demo:base")
    at = opened(CUTTING, n="2")
    assert "A hosted server writes no checkpoints" in captions(at)
    assert "Write the checkpoint" not in labels(at)


def test_the_gap_page_shows_the_training_and_the_published_one(asked):
    at = opened(GAP)
    assert at.title[0].value == "When do replacing and swapping come apart?"
    assert "The gap is larger at step 500 than at step 100: 1.8 after 0.2 (log ratio)." in text(at)
    assert len(plots(at)) == 7  # gap and tests, here and published; three properties
    assert explained(at) == 3
    assert text(at).count("· published**") == 2
    assert asked == [Gap(demo_series()["base"])]
    assert at.code[-1].value.startswith("python -m engine gap demo:base-step-0020 ")
    assert files(at)[:3] == ["Pairs (CSV)", "Properties (CSV)", "Record (JSON)"]


def test_every_control_of_the_gap_page_does_something(asked):
    at = opened(GAP)
    before = plots(at)
    at.segmented_control(key="gap").set_value("difference").run()
    assert plots(at)[0] != before[0] and plots(at)[2] == before[2]
    at.selectbox(key="beside").select("pythia-6.9b").run()
    assert "pythia-6.9b · published" in text(at)
    at.select_slider(key="count").set_value(1024).run()
    assert asked[-1].tokens == 1024
    at.selectbox(key="series").select("seeds").run()
    assert "Over 3 models the mean gap lies between" in text(at)
    assert asked[-1].series == ("demo:base", "demo:seed-1", "demo:seed-2", "demo:seed-3")
    at.selectbox(key="series").select("chosen").run()
    assert "Choose some models" in text(at)
    assert len(plots(at)) == 2  # the published ones
    at.multiselect(key="models").set_value(["base", "twin"]).run()
    assert not at.exception
    assert len(asked[-1].series) == 2


def test_saved_steps_are_found_in_the_order_of_training():
    found = demo_series()
    assert next(iter(found)) == "base" and list(found)[-1] == "seeds"
    steps = [int(name.rpartition("-")[2]) for name in found["base"]]
    assert steps == sorted(steps) and len(steps) == 8


def test_the_first_paint_imports_neither_torch_nor_transformers(pair):
    put(Layers(pair[0]), fake_layers.layer_maps())
    put_continuations(pair[0])
    put(Cut(pair[0]), fake_layers.cut_report())
    put(Gap(demo_series()["base"]), fake_layers.gap())
    code = (
        "import sys; from streamlit.testing.v1 import AppTest;"
        f"at = AppTest.from_file({MAIN!r}, default_timeout=30).run();"
        f"pages = {[LAYERS, CUTTING, GAP]!r}\n"
        "for page, n in zip(pages, (4, 6, 7)):\n"
        "    at.switch_page(page).run(); assert not at.exception, at.exception\n"
        "    assert len(at.get('vega_lite_chart')) == n\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
