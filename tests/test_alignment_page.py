"""The Alignment page, and relations on the Models page, on stand-ins for the engine."""

import json
import time
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import outputs
from app.aligned import Aligning
from app.controls import alignment as controls
from app.jobs import unfinished
from app.settings import HOSTED, ROOT
from engine.errors import Refused
from engine.questions import Align, Check, Inspect, Related
from tests import app_pages, fakes
from tests import fake_alignments as made
from tests.app_pages import MAIN, text

PAGE = str(ROOT / "pages" / "alignment.py")
RUN = "Put B into A's coordinates"


def put(question: Any, record: Any) -> None:
    outputs.results().put(question.key, record)


@pytest.fixture
def known(pair: tuple[str, str]) -> tuple[str, str]:
    """The pair with what the page asks at first stored."""
    put(Related(*pair), made.relatedness())
    put(Align(*pair, sweeps=controls.SWEEPS), made.alignment())
    return pair


@pytest.fixture
def asked(known: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> list[Align]:
    """Every alignment that is run, answered by the fake record."""
    found: list[Align] = []

    def answer(self: Align, progress: Any, out: Path | None = None) -> Any:
        found.append(self)
        if out is not None:
            (out / "config.json").write_text("{}")
        return made.alignment(sweeps=made.sweeps() if self.sweeps else ())

    monkeypatch.setattr(Align, "answer", answer)
    return found


def opened(page: str = PAGE, **link: str) -> AppTest:
    return app_pages.opened(page, **link)


def maps(at: AppTest) -> list[Any]:
    return at.get("vega_lite_chart")


def labels(at: AppTest) -> list[str]:
    return [button.label for button in at.button]


def run(at: AppTest, question: Any) -> AppTest:
    """Press the button of a question, and wait for its job."""
    at.button(key=f"start:{question.key}").click().run()
    for _ in range(1000):
        job = outputs.registry().look(question.key)
        if job is not None and job.over:
            return at.run()
        time.sleep(0.01)
    raise AssertionError("the job did not end")


def test_the_page_opens_with_the_relation_first_and_every_picture(known):
    at = opened()
    assert at.title[0].value == "Put B into A's coordinates"
    said = text(at)
    assert said.index("p < 1e-3021") < said.index("it fell from 2 as the files stand to 0.7")
    assert "Same function, but not all of its coordinates were recovered." in said
    assert "Only coordinates: 90.0 % of the squared distance (residual 10.0 %" in said
    assert "The loss half way was not measured" in said
    assert len(maps(at)) == 5  # objective, shares, two maps, the test of lineage
    assert sum("What would bad look like?" in item.value for item in at.caption) == 4
    table = next(item.value for item in at.dataframe if "smallest margin" in item.value)
    assert table["coordinate"].tolist() == ["res", "ffn", "rot"]
    assert at.code[-1].value.splitlines() == [
        "python -m engine related {} {}".format(*known),
        "python -m engine align {} {} --sweeps 12 --out aligned".format(*known),
    ]


def test_what_it_offers_to_take_away(known):
    found = [button.label for button in opened().get("download_button")]
    first = ["Report (JSON)", "Tensors (CSV)", "Steps (CSV)", "Sweeps (CSV)"]
    both = {name: [f"{name} ({kind})" for kind in ("PNG", "SVG")]
            for name in ("Tests", "Objective", "Shares", "Maps")}  # fmt: skip
    related = ["Relatedness (JSON)", "Tests (CSV)", *both.pop("Tests")]
    assert found == [*first, *related, *both["Objective"], *both["Shares"], *both["Maps"]]


TURNS = (
    (lambda at: at.segmented_control(key="using").set_value("activations"), "using", "activations"),
    (lambda at: at.segmented_control(key="signs").set_value("off"), "signs", False),
    (lambda at: at.text_input(key="only").set_value("heads, res"), "only", ("res", "heads")),
    (lambda at: at.segmented_control(key="stage2").set_value("none"), "stage2", "none"),
    (lambda at: at.number_input(key="restarts").set_value(2), "restarts", 2),
    (lambda at: at.number_input(key="mix").set_value(0.5), "mix", 0.5),
    (lambda at: at.segmented_control(key="neurons").set_value("published"), "neurons", "published"),
    (lambda at: at.number_input(key="refine").set_value(20), "refine", 20),
    (lambda at: at.number_input(key="sweeps").set_value(7), "sweeps", 7),
    (lambda at: at.selectbox(key="device").select("cpu"), "device", "cpu"),
)


def test_every_control_asks_another_question_and_runs_nothing_by_itself(asked, known):
    at, question = opened(), Align(*known, sweeps=controls.SWEEPS)
    for turn, field, value in TURNS:
        turn(at).run()
        assert not at.exception
        question = replace(question, **{field: value})
        assert f"start:{question.key}" in [button.key for button in at.button], field
    at.number_input(key="sweeps").set_value(0).run()
    still = replace(question, sweeps=0, restarts=0, mix=0.0, neurons="invariant")
    assert f"start:{still.key}" in [button.key for button in at.button]
    assert not asked
    assert "Not put into A's coordinates yet." in text(at)
    assert not [item for item in at.subheader if item.value == "How did the objective fall?"]


def test_a_run_is_a_job_and_its_answer_is_shown(asked, known):
    at = opened(sweeps="0")
    question = Align(*known, sweeps=0)
    at = run(at, question)
    assert asked == [question]
    assert "It was not descended: without sweeps" in text(at)
    assert len(maps(at)) == 4


def test_a_link_opens_its_question(asked, known):
    at = opened(using="activations", signs="off", only="res,ffn", sweeps="3", mix="0.25")
    question = Align(*known, using="activations", signs=False, only=("res", "ffn"), sweeps=3,
                     mix=0.25)  # fmt: skip
    assert f"start:{question.key}" in [button.key for button in at.button]


@pytest.mark.parametrize(
    ("link", "line"),
    [
        ({"only": "grp,ffn"}, "Only grp: grp and head are solved together. Say heads for both"),
        ({"only": "res,neurons"}, "Only neurons: this model has no such coordinate. It has res,"),
        ({"only": "tok"}, "Only tok: this model has no such coordinate."),
        ({"mix": "1.5"}, "mix is 1.5: the weight of activations beside weights is from 0 to 0.99"),
        ({"mix": "-1"}, "mix is -1: the weight of activations"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(asked, link, line: str):
    at = opened(**link)
    assert at.text[0].value.startswith(line)
    assert RUN not in labels(at) and not asked
    assert "p < 1e-3021" in text(at)  # the rest of the page works


def test_both_words_are_one_and_all_words_are_none():
    card = fakes.model_card()
    assert controls.only("head, grp", card) == ("heads",)
    assert controls.only("", card) == ()
    assert controls.only("ffn,res,heads,val,rot", card) == ()
    assert controls.only("ffn,ffn,res", card) == ("res", "ffn")


def test_a_running_job_is_drawn_as_it_grows_and_a_cancel_leaves_what_was_found(known, monkeypatch):
    going, ended = Event(), Event()

    def work(self: Align, progress: Any, out: Path | None = None) -> Any:
        progress(0.1, "sweeping", made.progress(1))
        going.set()
        while not ended.wait(0.01):
            progress(0.5, "sweeping")
        progress(0.9, "sweeping")
        raise AssertionError("not cancelled")

    monkeypatch.setattr(Align, "answer", work)
    at, question = opened(restarts="1"), Align(*known, sweeps=controls.SWEEPS, restarts=1)
    at.button(key=f"start:{question.key}").click().run()
    assert going.wait(20)
    at.run()
    assert (
        "So far: 1 sweep (objective: it fell from 2 as the files stand to 1.8, start: identity)"
        in text(at)
    )
    assert len(maps(at)) == 1
    put_of = unfinished(question.key)
    outputs.results().put(put_of, made.progress(3))
    at.run()
    assert "So far: 3 sweeps" in text(at)
    outputs.registry().cancel(question.key)
    for _ in range(500):
        if outputs.registry().look(question.key).over:  # type: ignore[union-attr]
            break
        time.sleep(0.01)
    ended.set()
    at.run()
    assert not at.exception
    assert "Stopped; nothing was written. Until then: 3 sweeps" in text(at)
    assert f"{RUN} again" in labels(at)
    assert outputs.results().get(question.key) is None
    assert not list((outputs.results().root).glob("models/*"))


def test_an_old_answer_of_another_question_is_not_drawn(known):
    at = opened(restarts="1")
    assert not maps(at)
    assert "So far" not in text(at) and "Stopped" not in text(at)


def test_unrelated_models_are_told_that_an_assignment_always_exists(known):
    put(Related(*known), made.relatedness("unrelated"))
    strangers = made.alignment(1.6, fakes.Logits(between=12.0))
    put(Align(*known, sweeps=controls.SWEEPS), strangers)
    at = opened()
    said = text(at)
    assert "Unrelated: nothing speaks for common weights in their past." in said
    assert "Paired, not matched: these two are unrelated." in said
    assert "An assignment always exists" in said
    assert "Same function" not in said and "The same weights" not in said


def test_the_relation_is_asked_before_an_alignment_is_believed(pair):
    put(Align(*pair, sweeps=controls.SWEEPS), made.alignment())
    at = opened()
    assert "Related or not has not been tested." in text(at)
    assert "Test whether they are related" in labels(at)
    assert len(maps(at)) == 4
    assert "Relatedness (JSON)" not in [b.label for b in at.get("download_button")]


def test_the_points_between_are_shown_where_a_refinement_ran(known):
    put(Align(*known, sweeps=controls.SWEEPS, refine=30), made.alignment(refined=True))
    at = opened(refine="30")
    assert "Matching is worth 0.5 nats to it, on one text." in text(at)
    assert len(maps(at)) == 6
    assert "Midpoints (SVG)" in [button.label for button in at.get("download_button")]


def test_the_aligned_checkpoint_is_written_below_the_store_once(asked, known, tmp_path):
    at = opened()
    job = Aligning(Align(*known, sweeps=controls.SWEEPS))
    assert job.out.parent == tmp_path / "store" / "models"
    at = run(at, job)
    assert f"Written: `{job.out}`" in text(at)
    found = json.loads((job.out / "report.json").read_text())
    assert found["sweeps"][2]["after"] == 0.7
    assert job.answer(lambda *_: None) == job.out
    assert len(asked) == 1  # what is there is not written again
    assert job.key != job.asked.key


def test_a_hosted_server_writes_nothing(known, monkeypatch):
    monkeypatch.setenv(HOSTED, "1")
    monkeypatch.setenv("GAUGESCOPE_A", "demo:base")
    monkeypatch.setenv("GAUGESCOPE_B", "demo:twin")
    put(Align("demo:base", "demo:twin", sweeps=controls.SWEEPS), made.alignment())
    put(Related("demo:base", "demo:twin"), made.relatedness())
    at = opened()
    assert "A hosted server writes no checkpoints" in "\n".join(c.value for c in at.caption)
    assert "Write the checkpoint" not in labels(at)


def test_other_depths_show_which_layer_is_which(known):
    card = replace(fakes.model_card("twin", "b" * 16), layers=5)
    put(Inspect(known[1]), card)
    put(Related(*known), made.relatedness("same lineage", (6, 5)))
    for page in (PAGE, MAIN):
        at = opened(page)
        assert "Different depths: not one group" in text(at)
        assert "The 5 layers of B are layers 1 to 5" in text(at)
        assert len(maps(at)) == 2
        assert RUN not in labels(at)
        found = [button.label for button in at.get("download_button")]
        assert found[:3] == ["Relatedness (JSON)", "Tests (CSV)", "Layers (CSV)"]
        assert at.code[-1].value == "python -m engine related {} {}".format(*known)


def test_other_architectures_have_no_relation(known):
    put(Inspect(known[1]), replace(fakes.model_card("twin", "b" * 16), family="GPT-2"))
    for page in (PAGE, MAIN):
        at = opened(page)
        assert "Different groups" in text(at)
        assert "Test whether they are related" not in labels(at) and not maps(at)


def test_the_models_page_shows_the_relation_beside_the_verdict(known):
    for path in known:
        put(Check(path), fakes.self_test())
    put(Align(*known), fakes.alignment())
    at = opened(MAIN)
    assert "p < 1e-3021" in text(at)
    assert len(maps(at)) == 3


def test_the_relation_of_demo_models_is_asked_at_once_and_of_others_by_a_button(pair, monkeypatch):
    found: list[Related] = []

    def answer(self: Related, progress: Any) -> Any:
        found.append(self)
        if len(found) > 1:
            raise Refused("one line")
        return made.relatedness("same lineage")

    monkeypatch.setattr(Related, "answer", answer)
    at = opened(MAIN)
    assert not found and "Test whether they are related" in labels(at)
    link = {"a": "demo:base", "b": "demo:base-step-0020"}
    at = opened(MAIN, **link)
    assert [(q.a, q.b) for q in found] == [("demo:base", "demo:base-step-0020")]
    assert "One lineage: they have common weights in their past." in text(at)
