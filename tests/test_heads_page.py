"""The Heads page in a simulated browser, on stored records and stand-ins for the engine."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app import outputs
from app.settings import ROOT
from engine.questions import Heads, Inspect, Turn
from tests import app_pages, fake_heads, fakes
from tests.app_pages import MAIN, figures, plots, text

HEADS = str(ROOT / "pages" / "heads.py")
opened = partial(app_pages.opened, HEADS)


@pytest.fixture
def asked(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every question that the page asks; heads are answered by the fake records."""
    found: list[Any] = []

    def heads(self: Heads, progress: Any) -> Any:
        found.append(self)
        if self.a == self.b:
            return fake_heads.itself()
        used = "published" if self.cost == "published" else "rotary"
        return fake_heads.heads_report(layer=self.layer, stage2=self.stage2, used=used)

    def turn(self: Turn, progress: Any) -> Any:
        found.append(self)
        return fake_heads.turn_report(angle=np.radians(self.angle), midpoint=abs(self.angle) + 1)

    monkeypatch.setattr(Heads, "answer", heads)
    monkeypatch.setattr(Turn, "answer", turn)
    return found


def put(question: Any, record: Any) -> None:
    outputs.results().put(question.key, record)


def test_the_page_opens_with_its_verdict_and_every_picture(asked):
    at = opened()
    assert at.title[0].value == "Which head is which, and by which angle was it turned?"
    assert "6 of 6 heads found; their turns explain more than 99.9 % of" in text(at)
    assert "exact 1.0e-7" in text(at)
    assert len(plots(at)) == 11  # costs, order, disguises, two of turns, steps, values, two costs
    assert len(figures(at)) == 3  # the clock, the curve, the landscape
    assert sum("What would bad look like?" in item.value for item in at.caption) == 9
    assert [type(question) for question in asked] == [Heads, Turn]


def test_what_it_offers_to_take_away(asked, pair):
    at = opened()
    labels = [button.label for button in at.get("download_button")]
    first = ["Heads (CSV)", "Arrays (NPZ)", "Record (JSON)", "Turns (CSV)", "Disguises (CSV)"]
    names = ("Costs", "Order", "Disguises", "Objective", "Turns", "Singular")
    assert labels == first + [f"{name} ({kind})" for name in names for kind in ("PNG", "SVG")]
    assert at.code[0].value == "python -m engine heads {} {}".format(*pair)


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [
        (lambda at: at.select_slider(key="layer").set_value("3"), "layer", 3),
        (lambda at: at.segmented_control(key="cost").set_value("published"), "cost", "published"),
        (lambda at: at.segmented_control(key="stage2").set_value("none"), "stage2", "none"),
        (lambda at: at.segmented_control(key="using").set_value("activations"), "using",
         "activations"),
        (lambda at: at.selectbox(key="device").select("cpu"), "device", "cpu"),
    ],
)  # fmt: skip
def test_every_control_asks_another_question(asked, turn, field: str, value):
    at = opened()
    turn(at).run()
    assert not at.exception
    heads = [question for question in asked if isinstance(question, Heads)]
    assert len(heads) == 2
    assert getattr(heads[1], field) == value


def test_a_link_opens_its_view(asked):
    at = opened(layer="2", head="4", other="1", cost="published", term="query-key",
                frequency="5", turn="40.0", modulus="1.2")  # fmt: skip
    assert (asked[0].layer, asked[0].cost) == (2, "published")
    assert "Head 4 of A against head 1 of B" in text(at)
    turn = asked[-1]
    assert (turn.group, turn.frequency, turn.angle, turn.modulus) == (1, 5, 40.0, 1.2)


def test_a_click_on_a_cell_chooses_its_pair(asked):
    at = opened()
    assert "Head 0 of A against head 0 of B" in text(at)
    assert "They are partners." in text(at)
    click = {"selection": {"clicked": [{"a": 2, "b": 4}]}}
    at.session_state["heads:costs:0:partner:0"] = click
    at = at.run()
    assert not at.exception
    assert (at.selectbox(key="head").value, at.selectbox(key="other").value) == ("2", "4")
    partner = int(fake_heads.heads_report().order[2])
    assert f"The partner of A 2 is B {partner}." in text(at)
    assert "Second best: B" in text(at) and "margin" in text(at)


def test_a_click_on_a_line_or_a_frequency_chooses_it(asked):
    at = opened()
    at.session_state["heads:order:0:partner:0"] = {"selection": {"clicked": [{"a": 5}]}}
    at = at.run()
    assert (at.selectbox(key="head").value, at.selectbox(key="other").value) == ("5", "partner")
    click = {"selection": {"clicked": [{"head": 3, "frequency": 6}]}}
    at.session_state["heads:angle:5:partner:0"] = click
    at = at.run()
    assert not at.exception
    assert at.selectbox(key="head").value == "3"
    assert at.select_slider(key="frequency").value == "6"


def test_the_hand_moves_at_once_and_the_models_answer(asked):
    at = opened()
    before = figures(at)
    at.slider(key="turn").set_value(60.0).run()
    assert not at.exception
    after = figures(at)
    assert before[1]["data"][-1]["x"] != after[1]["data"][-1]["x"] == [60.0]
    assert "Half way between A and the turned B the logits are off by 61" in text(at)
    at.button(key="found-turn").click().run()
    turns = fake_heads.heads_report().turns
    assert abs(at.slider(key="turn").value - np.degrees(turns.angle[0, 0])) <= 0.25
    assert at.slider(key="modulus").value == round(float(np.exp(turns.log_modulus[0, 0])), 2)


def test_large_models_wait_for_the_button(pair, asked):
    for path, letter in zip(pair, "ab", strict=True):
        put(Inspect(path), replace(fakes.model_card(path, letter * 16), parameters=10**8))
    at = opened()
    assert not asked
    assert "until they are matched" in text(at)
    assert "Match the heads" in [button.label for button in at.button]
    put(Heads(*pair), fake_heads.heads_report())
    at = at.run()
    assert "6 of 6 heads found" in text(at)
    assert "Run both models" in [button.label for button in at.button]


def test_a_model_against_itself_shows_which_heads_coincide(asked, pair):
    at = opened()
    at.segmented_control(key="against").set_value("itself").run()
    assert not at.exception
    assert (asked[-1].a, asked[-1].b) == (pair[0], pair[0])
    assert "No two heads coincide; the nearest are 1 and 2" in text(at)
    assert "without head 1 the output moves by" in text(at)
    assert not figures(at)
    assert len(plots(at)) == 6  # costs, order, disguises, removal, two costs
    labels = [button.label for button in at.get("download_button")]
    assert {"Removal (CSV)", "Removal (PNG)", "Removal (SVG)"} <= set(labels)
    assert not [label for label in labels if "Objective" in label or "Turns" in label]


def test_without_rotation_there_are_matrices_and_no_angles(pair):
    for path, letter in zip(pair, "ab", strict=True):
        card = fakes.model_card(path, letter * 16)
        put(Inspect(path), replace(card, positions="learned", kv_heads=6))
    put(Heads(*pair), fake_heads.unrotated())
    at = opened()
    assert "their matrices explain" in text(at)
    assert at.segmented_control(key="cost").options == ["product", "published"]
    assert not figures(at)
    assert [item.value for item in at.subheader if "angle" in item.value] == []
    assert len(plots(at)) == 9  # costs, order, three of steps, two of matrices, two costs
    assert "Why is the published cost right here?" in [item.value for item in at.subheader]
    assert "LayerNorm hides once its gain is folded in" in text(at)


def test_half_turns_say_so_and_run_nothing(pair, asked):
    half = fake_heads.turns(fake_heads.Shape(), half=True)
    put(Heads(*pair), fake_heads.heads_report(turns=half))
    at = opened()
    assert "every angle is 0° or 180°" in text(at)
    assert "Norms of queries and keys leave 0° and 180° free" in text(at)
    assert not asked
    assert len(plots(at)) == 10  # no map of moduli


def test_heads_in_disguise_say_why_the_published_cost_is_not_the_default(asked):
    at = opened()
    assert "Why not the published cost here?" in [item.value for item in at.subheader]
    assert "2 of 3 change what the model says at a published cost of 0" in text(at)
    table = next(item.value for item in at.dataframe if "output moved" in item.value)
    assert table["output"].tolist() == ["broken", "broken", "exact"]


def test_the_published_cost_is_shown_where_it_disagrees(asked):
    at = opened()
    assert "different nearest heads for 1 of 6 heads" in text(at)
    table = next(item.value for item in at.dataframe if "ours there" in item.value)
    assert table["agree"].tolist() == [False] + [True] * 5


def test_different_shapes_are_told_with_both_values(pair, asked):
    put(Inspect(pair[1]), replace(fakes.model_card("wide", "b" * 16), heads=8))
    at = opened()
    assert "heads 6 against 8" in text(at)
    assert not asked and not plots(at)
    at.segmented_control(key="against").set_value("itself").run()
    assert "No two heads coincide" in text(at)


def test_a_model_that_is_not_open_is_named(pair, asked, monkeypatch):
    monkeypatch.setenv("GAUGESCOPE_B", str(Path(pair[1]).parent / "gone"))
    at = opened()
    assert "Not open: B." in text(at)
    assert "is no folder under the allowed ones" in at.text[0].value
    assert not asked and not plots(at)


def test_the_first_paint_imports_neither_torch_nor_transformers(pair):
    put(Heads(*pair), fake_heads.heads_report())
    put(Turn(*pair), fake_heads.turn_report())
    code = (
        "import sys; from streamlit.testing.v1 import AppTest;"
        f"at = AppTest.from_file({MAIN!r}, default_timeout=30).run();"
        f"at.switch_page({HEADS!r}).run(); assert not at.exception, at.exception\n"
        "assert len(at.get('vega_lite_chart')) == 11\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_head_that_another_layer_or_model_lacks_gives_way(asked):
    at = opened(head="17", other="40", frequency="99", layer="77")
    assert at.selectbox(key="head").value == "0"
    assert at.select_slider(key="frequency").value == "0"
    assert asked[0].layer == 0
