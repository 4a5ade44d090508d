"""Pages in a simulated browser, on stored records: what is shown, and what each control changes."""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import opening, outputs, settings
from app.__main__ import main, started
from app.controls.alignment import SWEEPS
from app.settings import ROOT, Settings
from engine import store
from engine.errors import Cancelled, Refused, Short
from engine.questions import Align, Check, Inspect, Lab, Match, Related
from engine.records import plain
from engine.store import Store
from tests import fake_alignments, fakes
from tests.app_pages import MAIN, figures, opened, text
from tests.fakes import CONFIG, checkpoint

RESIDUAL = str(ROOT / "pages" / "residual.py")
MODELS = str(ROOT / "pages" / "models.py")
ATLAS = str(ROOT / "pages" / "atlas.py")
LAB = str(ROOT / "pages" / "lab.py")
ALIGNMENT = str(ROOT / "pages" / "alignment.py")
PUBLISHED = str(ROOT / "pages" / "published.py")
ORDER = "FFN: order of the neurons"


def put(question: Any, record: Any) -> None:
    outputs.results().put(question.key, record)


@pytest.fixture
def measured(pair: tuple[str, str]) -> tuple[str, str]:
    """The pair with its results stored."""
    a, b = pair
    put(Check(a), fakes.self_test(1.1e-6))
    put(Check(b), fakes.self_test(1.2e-6))
    put(Align(a, b), fakes.alignment())
    put(Match(a, b), fakes.residual_match())
    return pair


def test_the_models_page_opens_with_the_verdict(measured):
    at = opened()
    assert at.title[0].value == "What are these two checkpoints, and are they the same function?"
    assert "Same function in other coordinates." in text(at)
    assert "exact 2.1e-7" in text(at)
    assert "self-test: exact 1.1e-6" in text(at)
    assert "6 heads / 2 kv of 16" in text(at)
    assert len(at.get("vega_lite_chart")) == 2
    assert "python -m engine align" in at.code[0].value
    assert [button.label for button in at.get("download_button")] == [
        "Tensors (CSV)",
        "Report (JSON)",
        "Maps (PNG)",
        "Maps (SVG)",
    ]


def test_what_is_not_measured_is_offered(pair):
    at = opened()
    assert "These two can be compared." in text(at)
    labels = [button.label for button in at.button]
    assert labels.count("Run the self-test") == 2
    assert "Measure it" in labels
    assert not at.get("vega_lite_chart")


def test_a_refused_model_is_told_in_its_card_and_the_rest_works(measured, monkeypatch):
    nowhere = str(Path(measured[1]).parent / "gone")
    monkeypatch.setenv(settings.PAIR_B, nowhere)
    at = opened()
    with pytest.raises(Refused) as refusal:
        settings_roots().admit(nowhere)
    assert at.text[0].value == str(refusal.value)
    assert "Not open: B." in text(at)
    assert "self-test: exact 1.1e-6" in text(at)


def settings_roots():
    from app.inputs import roots

    return roots()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
        (lambda folder: cut(folder / "model.safetensors"), "bytes"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: custom(folder, {"auto_map": {"x": "y"}}), "custom code"),
        (lambda folder: custom(folder, {"quantization_config": {"bits": 4}}), "quantised"),
        (
            lambda folder: (folder / "model.safetensors").write_text(
                "version https://git-lfs.github.com/spec/v1\n"
            ),
            "LFS",
        ),
    ],
)
def test_the_page_shows_exactly_the_engines_line(measured, spoil, message: str):
    from engine.checkpoint import open_checkpoint

    spoil(Path(measured[1]))
    with pytest.raises(Refused) as refusal:
        _ = open_checkpoint(measured[1]).fingerprint
    at = opened()
    assert at.text[0].value == str(refusal.value)
    assert message in at.text[0].value


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def custom(folder: Path, extra: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | extra))


def test_a_model_outside_the_allowed_folders_is_refused(measured, tmp_path, monkeypatch):
    outside = checkpoint(tmp_path / "outside", 3)
    monkeypatch.setenv(settings.PAIR_B, str(outside))
    assert "is no folder under the allowed ones" in opened().text[0].value


def test_a_hosted_server_offers_no_folders_and_no_downloads(measured, monkeypatch):
    monkeypatch.setenv(settings.HOSTED, "1")
    at = opened()
    assert "Folders and downloads are off" in at.text[0].value
    kinds = at.radio[0].options
    assert "Folder" not in kinds
    assert "Hub" not in kinds


def test_different_groups_are_refused_with_both_values(measured):
    put(Inspect(measured[1]), fakes.model_card("twin", "b" * 16, width=128))
    assert "width 96 against 128" in text(opened())


def test_the_pair_is_changed_in_the_sidebar_and_in_a_card(measured):
    at = opened()
    at.selectbox(key="b").select("base").run()
    assert "The same weights twice." in text(at)
    at.radio(key="kind:B").set_value("Folder").run()
    at.selectbox(key="name:Folder:B").select("twin").run()
    at.button(key="use:B").click().run()
    assert at.session_state["b"] == "twin"
    assert "Same function in other coordinates." in text(at)


def test_a_long_name_is_shown_whole_in_the_sidebar(measured):
    long = "demo:scope-first-attention-2"
    shown = [item.value for item in opened(b=long).sidebar.caption]
    assert f"`{long}`" in shown and len([one for one in shown if "`" in one]) == 1


def test_a_hub_id_is_an_explicit_choice_that_is_opened_by_a_button(measured):
    at = opened()
    at.radio(key="kind:B").set_value("Hub").run()
    at.text_input(key="name:Hub:B").set_value("owner/name").run()
    at.button(key="use:B").click().run()
    assert at.session_state["b"] == "hf:owner/name"
    assert not at.exception
    assert "Open hf:owner/name" in [button.label for button in at.button]


def test_the_device_is_part_of_the_question(measured):
    at = opened()
    assert at.selectbox(key="device").options[:2] == ["auto", "cpu"]
    at.selectbox(key="device").select("cpu").run()
    assert "These two can be compared." in text(at)


def test_the_residual_page_opens_with_its_verdict(measured):
    at = opened(RESIDUAL)
    flipped = int((fakes.planted().sign < 0).sum())
    assert f"96 of 96 coordinates found over all depths together, {flipped} with" in text(at)
    assert len(figures(at)) == 5
    assert "matching on |C| and reading the sign afterwards finds 100.0%" in text(at)
    assert at.code[0].value.startswith("python -m engine match")
    assert "Sweeney 2026" in "".join(item.value for item in at.caption)


def test_a_link_opens_its_view(measured):
    at = AppTest.from_file(MAIN, default_timeout=30)
    link = {"depth": "after layer 2", "coordinate": "7", "matrix": "absolute", "order": "as stored"}
    for name, value in link.items():
        at.query_params[name] = value
    at = at.run().switch_page(RESIDUAL).run()
    assert "found after layer 2" in text(at)
    assert "Coordinate 7 of A" in text(at)
    assert figures(at)[0]["data"][0]["zmin"] == 0.0
    assert figures(at)[0]["layout"]["xaxis"]["title"]["text"] == "coordinate of B"


def test_a_pair_in_a_link_is_opened_or_refused(measured):
    for spec, found in (("base", "The same weights twice."), ("../x", "Not open: B.")):
        at = AppTest.from_file(MAIN, default_timeout=30)
        at.query_params["b"] = spec
        assert found in text(at.run())


def test_every_picture_has_its_two_lines(measured):
    captions = [item.value for item in opened(RESIDUAL).caption]
    explained = [line for line in captions if "What am I looking at?" in line]
    assert len(explained) == 4
    assert all("What would bad look like?" in line for line in explained)


def test_the_depth_changes_every_figure(measured):
    at = opened(RESIDUAL)
    before = figures(at)
    at.selectbox(key="depth").select("after layer 2").run()
    assert "found after layer 2" in text(at)
    assert all(old != new for old, new in zip(before, figures(at), strict=True))


def test_matrix_and_order_change_the_matrix(measured):
    at = opened(RESIDUAL)
    first = figures(at)[0]["data"][0]
    at.segmented_control(key="matrix").set_value("absolute").run()
    absolute = figures(at)[0]["data"][0]
    assert (first["zmin"], absolute["zmin"]) == (-1.0, 0.0)
    at.segmented_control(key="order").set_value("as stored").run()
    stored = figures(at)[0]
    assert stored["data"][0]["z"] != absolute["z"]
    assert stored["layout"]["xaxis"]["title"]["text"] == "coordinate of B"


def test_the_coordinate_is_told_and_marked(measured):
    at = opened(RESIDUAL)
    at.number_input(key="coordinate").set_value(7).run()
    partner = fakes.planted().permutation[7]
    assert f"Coordinate 7 of A is coordinate {partner} of B" in text(at)
    assert figures(at)[0]["layout"]["shapes"][0]["y0"] == 6.5


def test_the_sliders_show_a_window_at_full_resolution_with_its_numbers(measured):
    at = opened(RESIDUAL)
    at.slider(key="rows").set_value((10, 29)).run()
    at.slider(key="columns").set_value((5, 20)).run()
    assert figures(at)[0]["data"][0]["z"]["shape"] == "20, 16"
    assert "The 20 × 16 numbers" in [item.label for item in at.expander]
    at.button(key="whole").click().run()
    assert figures(at)[0]["data"][0]["z"]["shape"] == "96, 96"


def test_a_dragged_box_becomes_the_window(measured):
    at = opened(RESIDUAL)
    box = {"x": [9.8, 30.1], "y": [40.2, 20.3]}
    at.session_state["matrix-of:0:96:0:96"] = {"selection": {"box": [box]}}
    at.run()
    assert at.slider(key="rows").value == (20, 40)
    assert at.slider(key="columns").value == (10, 30)
    assert figures(at)[0]["layout"]["yaxis"]["range"] == [40.5, 19.5]


def test_method_tokens_and_truth_change_the_question(measured):
    a, b = measured
    at = opened(RESIDUAL)
    at.segmented_control(key="tokens").set_value(2048).run()
    assert "Only names, until they are matched." in text(at)
    put(Match(a, b, tokens=2048), replace(fakes.residual_match(noise=1.0), tokens=2048))
    at.run()
    assert "Measured on 2,048 tokens" in text(at)
    at.selectbox(key="truth").select("none").run()
    put(Match(a, b, tokens=2048, truth="none"), fakes.residual_match(truth=False))
    at.run()
    assert "No truth is known" in text(at)
    at.segmented_control(key="method").set_value("weights").run()
    put(
        Match(a, b, using="weights", truth="none"), replace(fakes.residual_match(), using="weights")
    )
    at.run()
    assert "from the weights alone" in text(at)
    assert at.segmented_control(key="tokens").disabled


def test_a_job_is_started_shown_and_its_result_appears(pair, monkeypatch):
    monkeypatch.setattr(Check, "answer", lambda self, progress: fakes.self_test(3e-6))
    at = opened()
    key = Check(pair[0]).key
    at.button(key=f"start:{key}").click().run()
    wait_for(key)
    at.run()
    assert "self-test: exact 3.0e-6" in text(at)


def test_a_running_job_stays_in_the_address_when_the_page_changes(pair, monkeypatch):
    ended = Event()

    def work(self: Check, progress: Any) -> Any:
        assert ended.wait(30)
        return fakes.self_test()

    monkeypatch.setattr(Check, "answer", work)
    at = opened()
    key = Check(pair[0]).key
    at.button(key=f"start:{key}").click().run()
    assert key[:16] in at.query_params["job"]
    del at.query_params["job"]  # a page change takes along only what widgets hold
    at = at.switch_page(ATLAS).run()
    assert key[:16] in at.query_params["job"]
    ended.set()
    wait_for(key)
    at.run()
    assert "job" not in at.query_params


@pytest.mark.parametrize(
    ("error", "line", "again"),
    [
        (Refused("The text has 12 tokens: give one with at least 256."), "The text has 12", False),
        (Short("2 models need 9 GiB, cpu has 1 GiB free."), "2 models need 9 GiB", True),
        (KeyError("lost"), "KeyError: 'lost'", True),
    ],
    ids=["refused", "memory", "unexpected"],
)
def test_a_failed_job_shows_its_one_line_and_another_try_where_one_may_help(
    pair, monkeypatch, error: Exception, line: str, again: bool
):
    def fail(self: Any, progress: Any) -> None:
        raise error

    monkeypatch.setattr(Match, "answer", fail)
    at = opened(RESIDUAL)
    key = Match(*pair).key
    at.button(key=f"start:{key}").click().run()
    wait_for(key)
    at.run()
    assert at.text[0].value.startswith(line)
    offered = [button.label for button in at.button if "Match the coordinates" in button.label]
    assert offered == (["Match the coordinates again"] if again else [])
    at.selectbox(key="truth").select("none").run()  # another question may be asked
    assert "Match the coordinates" in [button.label for button in at.button]


def test_a_part_that_a_page_does_not_show_is_not_said_to_be_there(pair, monkeypatch):
    def stopped(self: Any, progress: Any) -> None:
        progress(0.5, "half", fakes.alignment())
        raise Cancelled

    monkeypatch.setattr(Align, "answer", stopped)
    at = opened()
    key = Align(*pair).key
    at.button(key=f"start:{key}").click().run()
    wait_for(key)
    at.run()
    captions = [item.value for item in at.caption]
    assert "Cancelled; nothing was changed." in captions
    assert outputs.so_far(Align(*pair)) is not None


def wait_for(key: str) -> None:
    import time

    for _ in range(500):
        job = outputs.registry().look(key)
        if job is not None and job.over:
            return
        time.sleep(0.01)
    raise AssertionError("the job did not end")


def test_names_are_shown_as_text():
    assert outputs.plain("a*b_c|d$e") == r"a\*b\_c\|d\$e"


def test_the_first_paint_imports_neither_torch_nor_transformers(turned):
    put(Related(*turned), fake_alignments.relatedness())
    put(Align(*turned, sweeps=SWEEPS), fake_alignments.alignment())
    code = (
        "import sys; from streamlit.testing.v1 import AppTest;"
        f"at = AppTest.from_file({MAIN!r}, default_timeout=30).run();"
        "assert not at.exception, at.exception; assert at.title[0].value;"
        f"pages = {[ATLAS, LAB, RESIDUAL, ALIGNMENT, PUBLISHED]!r}\n"
        "for page in pages: at.switch_page(page).run(); assert not at.exception, at.exception\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["/nowhere/a", "/nowhere/b"], 1, "The folder /nowhere/a does not exist"),
        (["demo:unknown", "demo:base"], 1, "There is no demo model 'unknown'"),
        (["one"], 2, "give two models"),
        (["--port", "70000"], 2, "--port 70000"),
        (["--device", "abacus"], 2, "--device abacus"),
    ],
)
def test_the_command_line_refuses_in_one_line(arguments, code: int, line: str, capsys):
    try:
        found = main(arguments)
    except SystemExit as exit_:
        found = exit_.code
    assert found == code
    shown = capsys.readouterr().err
    assert line in shown
    assert "Traceback" not in shown


def test_models_named_on_the_command_line_may_be_opened(measured, tmp_path, monkeypatch):
    monkeypatch.delenv(settings.ROOTS)
    monkeypatch.chdir(tmp_path / "models")
    chosen, port = started(["base", "twin", "--port", "8600", "--roots", str(tmp_path / "store")])
    assert (chosen.a, chosen.b, port) == (*measured, 8600)
    assert settings.settings(chosen.environment()) == chosen


def test_settings_survive_the_environment():
    chosen = Settings("demo:base", None, "cpu", (Path("/a"), Path("/b")), True)
    assert settings.settings(chosen.environment()) == chosen
    assert settings.settings({}).roots == (Path.cwd(),)


def test_both_configuration_files_are_the_same():
    ours = [(ROOT / part / ".streamlit" / "config.toml").read_text() for part in ("", "app")]
    assert ours[0] == ours[1]
    assert 'address = "127.0.0.1"' in ours[0]


def test_the_store_of_the_pages_reads_what_comes_with_the_program(measured):
    assert isinstance(outputs.results(), Store)
    assert outputs.results().shipped == store.SHIPPED


def block(at: AppTest) -> dict[str, Any]:
    return json.loads(at.get("vega_lite_chart")[0].proto.spec)


def tables(at: AppTest) -> list[Any]:
    return [frame.value for frame in at.dataframe]


def test_the_models_page_lists_every_coordinate_with_its_own_number(measured):
    table = tables(opened())[0]
    assert table["changed alone"].tolist()[0] == "residual coordinate"
    assert table["kind"].tolist()[-2:] == ["blind direction"] * 2
    assert table["result"].tolist()[-1] == "exact 9.9e-7 (up to ε)"


def test_the_atlas_opens_with_totals_and_the_measured_word(measured):
    at = opened(ATLAS)
    assert at.title[0].value == "Which internal numbers of this model are only names?"
    assert "10³⁶⁹⁴ settings of the parameters are this same function, and a 4,800-dim" in text(at)
    assert "exact 1.1e-6" in text(at)
    assert "2 blind directions (1 of them only up to the ε inside a norm)" in text(at)
    assert at.code[0].value == f"python -m engine inspect {measured[0]}"
    labels = [button.label for button in at.get("download_button")]
    assert labels == ["Table (CSV)", "Card (JSON)", "Diagram (PNG)", "Diagram (SVG)"]
    assert sum("What would bad look like?" in item.value for item in at.caption) == 2


def test_the_atlas_says_not_measured_and_offers_the_self_test(pair, monkeypatch):
    monkeypatch.setattr(Check, "answer", lambda self, progress: fakes.self_test(2e-6))
    at = opened(ATLAS)
    assert "no random change was tried" in text(at)
    assert set(tables(at)[1]["self-test"]) == {"not measured"}
    key = Check(pair[0]).key
    at.button(key=f"start:{key}").click().run()
    wait_for(key)
    at.run()
    assert set(tables(at)[1]["self-test"]) == {"exact 1.6e-6"}


def test_the_atlas_shows_the_chosen_row_and_the_other_model(measured):
    put(Inspect(measured[1]), fakes.model_card("twin", "b" * 16, width=128))
    at = opened(ATLAS)
    before = block(at)
    at.selectbox(key="word").select("value channel").run()
    assert "value channel · `val`" in [item.value for item in at.subheader]
    assert len(tables(at)[0]) == 2
    assert block(at) != before
    at.selectbox(key="word").select("gain of the attention norm against its readers").run()
    assert set(tables(at)[0]["role"]) == {"multiplied", "divided"}
    at.segmented_control(key="of").set_value("B").run()
    assert tables(at)[1]["size"].tolist()[0] == 128
    assert at.code[0].value.endswith(measured[1])


def test_a_click_on_the_diagram_chooses_a_coordinate(measured):
    at = opened(ATLAS)
    at.session_state["block:A:res"] = {"selection": {"clicked": [{"word": "rot"}]}}
    at.run()
    assert at.selectbox(key="word").value == "rotary query/key channel"
    at.selectbox(key="word").select("FFN neuron").run()
    assert at.selectbox(key="word").value == "FFN neuron"


def test_the_criterion_is_three_ticks_and_fixed_rows_have_reasons(measured):
    found = tables(opened(ATLAS))
    assert (found[1][["alike", "cancels", "private"]] == "✓").all(axis=None)
    fixed = found[3]
    assert fixed["private"].tolist() == ["✗"]
    assert fixed["why"].tolist() == ["a token id means an entry of the dictionary"]


@pytest.mark.parametrize("page", [MODELS, ATLAS, LAB])
@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"model_type": "mamba9"}, "Unsupported architecture"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised"),
        ({"use_moonlight": True}, "use_moonlight"),
    ],
)
def test_a_model_that_cannot_be_explained_gets_a_card(measured, page, extra, message: str):
    from tests import tiny

    folder = Path(measured[0])
    shutil.rmtree(folder)
    tiny.build("llama_gqa", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | extra))
    at = opened(page)
    assert message in at.text[0].value
    assert "Not open: A." in text(at) or "Model A is not open" in text(at)
    assert not at.get("vega_lite_chart") and not at.get("plotly_chart")


@pytest.fixture
def turned(measured: tuple[str, str]) -> tuple[str, str]:
    """The pair with the first experiment of the lab stored."""
    put(Lab(measured[0]), fakes.experiment())
    return measured


@pytest.fixture
def asked(turned, monkeypatch: pytest.MonkeyPatch) -> list[Lab]:
    """Every experiment that the page asks for; each answer has its own numbers."""
    found: list[Lab] = []

    def answer(self: Lab, progress: Any) -> Any:
        found.append(self)
        word = {"layer": self.layer, "seed": self.seed, "severity": self.severity}
        return fakes.experiment(1e-7 * (1 + len(found)), **word)

    monkeypatch.setattr(Lab, "answer", answer)
    return found


def test_the_lab_opens_with_its_stored_experiment(turned):
    at = opened(LAB)
    assert "Holds: the weights moved, the output did not." in text(at)
    assert "exact 1.1e-7" in text(at)
    assert len(figures(at)) == 4
    assert at.selectbox(key="preset").value == ORDER
    assert at.code[0].value == f"python -m engine lab {turned[0]}"
    assert sum("What would bad look like?" in item.value for item in at.caption) == 4
    labels = [button.label for button in at.get("download_button")]
    assert labels == ["Tensors (CSV)", "Record (JSON)", "Matrices (NPZ)"]


def test_presets_come_in_the_order_of_the_story_with_two_sentences(turned):
    from engine.lab.presets import offered

    at = opened(LAB)
    here = offered(fakes.model_card())
    assert at.selectbox(key="preset").options == [row.title for row in here]
    assert " ".join(here[0].says) in text(at)


@pytest.mark.parametrize(
    ("name", "turn", "value"),
    [
        ("preset", lambda at: at.selectbox(key="preset").select_index(2), "ffn-gate-left"),
        ("layer", lambda at: at.select_slider(key="layer").set_value("3"), 3),
        ("layer", lambda at: at.select_slider(key="layer").set_value("all"), -1),
        ("severity", lambda at: at.slider(key="severity").set_value(0.5), 0.5),
        (
            "draw",
            lambda at: at.segmented_control(key="draw").set_value("transposition"),
            "transposition",
        ),
        ("element", lambda at: at.text_input(key="element").set_value("(0 3 5)"), "(0 3 5)"),
        ("seed", lambda at: at.number_input(key="seed").set_value(7), 7),
        ("seed", lambda at: at.button(key="new-draw").click(), 1),
        ("device", lambda at: at.selectbox(key="device").select("cpu"), "cpu"),
        (
            "text",
            lambda at: at.selectbox(key="text").select("evaluation"),
            str(ROOT / "assets" / "text" / "evaluation.txt"),
        ),
    ],
)
def test_every_dial_asks_another_question_at_once(asked, name, turn, value):
    at = opened(LAB)
    before = text(at), figures(at)
    turn(at).run()
    assert not at.exception
    assert [getattr(question, name) for question in asked] == [value]
    assert text(at) != before[0]
    assert figures(at)[0] != before[1][0]
    assert at.code[0].value == asked[0].command


def test_the_angle_is_a_dial_where_something_turns(asked):
    at = opened(LAB)
    with pytest.raises(KeyError):
        at.slider(key="angle")
    at.selectbox(key="preset").select("Attention: turn and scale of a rotary frequency").run()
    at.segmented_control(key="draw").set_value("angle").run()
    at.slider(key="angle").set_value(30).run()
    assert (asked[-1].draw, asked[-1].angle) == ("angle", 30.0)


def test_any_coordinate_can_be_changed_by_its_own_group(asked):
    at = opened(LAB)
    at.selectbox(key="preset").select("Any coordinate, by its own group").run()
    assert at.selectbox(key="word").options[:2] == ["residual coordinate", "FFN neuron"]
    at.selectbox(key="word").select("value channel").run()
    assert (asked[-1].coordinate, asked[-1].preset) == ("val", "own")
    assert at.segmented_control(key="draw").options == ["matrix", "angle"]


def test_the_other_model_is_turned_too(asked):
    at = opened(LAB)
    at.segmented_control(key="of").set_value("B").run()
    assert asked[-1].model.endswith("twin")


def test_a_link_opens_its_experiment(asked):
    opened(LAB, of="B", preset=ORDER, layer="4", draw="transposition", seed="3")
    last = asked[-1]
    assert (last.layer, last.draw, last.seed, last.model[-4:]) == (4, "transposition", 3, "twin")


def test_a_large_model_waits_for_the_button(measured, monkeypatch):
    card = replace(fakes.model_card("base", "a" * 16), parameters=outputs.SMALL + 1)
    put(Inspect(measured[0]), card)
    monkeypatch.setattr(Lab, "answer", lambda self, progress: fakes.experiment(3e-7))
    at = opened(LAB)
    assert f"{ORDER}: not run." in text(at)
    key = Lab(measured[0]).key
    at.button(key=f"start:{key}").click().run()
    wait_for(key)
    at.run()
    assert "exact 3.0e-7" in text(at)


def test_a_typed_element_that_makes_no_sense_is_told_in_one_line(turned, monkeypatch):
    line = "The element 'x' makes no sense."

    def refuse(self: Lab, progress: Any) -> None:
        raise Refused(line)

    monkeypatch.setattr(Lab, "answer", refuse)
    at = opened(LAB)
    at.text_input(key="element").set_value("x").run()
    assert at.text[0].value == line
    assert not figures(at)


def test_a_result_against_the_theory_is_loud(measured):
    put(Lab(measured[0]), fakes.experiment(0.4, holds=True))
    assert "This contradicts the theory" in text(opened(LAB))


def test_rows_and_columns_stand_side_by_side(turned):
    table = tables(opened(LAB))[-1]
    up = table[table["tensor"] == "up_proj"].iloc[0]
    assert up["Linear [out, in]"].startswith("W_up_proj[perm, :]")
    assert up["Conv1D [in, out]"].startswith("W_up_proj[:, perm]")


@pytest.mark.parametrize(
    "architecture", ["llama_gqa", "gpt2", "qwen3", "mixtral", "gpt_neox", "vit"]
)
def test_the_engine_knows_all_that_the_dials_offer(architecture: str, built):
    from app.controls import lab
    from engine.checkpoint import open_checkpoint
    from engine.inspection import card
    from engine.lab.plans import plan
    from engine.lab.presets import offered

    checkpoint = open_checkpoint(str(built(architecture)))
    about = card(checkpoint)
    for preset in offered(about):
        for word in ("", *lab.options(about, preset).values()):
            for way in lab.draws(about, preset, word):
                asked = Lab(str(checkpoint.folder), preset.key, word, draw=way)
                done = plan(checkpoint, about, asked, 8)
                assert done.draw == way


def test_the_printed_command_lines_repeat_the_pages(monkeypatch, tmp_path, capsys):
    import shlex

    from engine.cli import main as command
    from tests import tiny

    root = tmp_path / "real"
    root.mkdir()
    a = str(tiny.build("llama_gqa", root / "a"))
    for name, value in Settings(a, a, "cpu", (root,), False).environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GAUGESCOPE_STORE", str(tmp_path / "store"))
    for shared in (outputs.results, outputs.registry, opening.places):
        shared.cache_clear()
    at = opened(LAB)
    at.select_slider(key="layer").set_value("1").run()
    at.number_input(key="seed").set_value(5).run()
    assert not at.exception
    line = at.code[0].value
    capsys.readouterr()
    assert command([*shlex.split(line)[3:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shown = outputs.results().get(Lab(a, layer=1, seed=5, device="cpu").key)
    assert (found["layer"], found["seed"], found["element"]) == (1, 5, shown.element)
    assert found["effect"] == plain(shown.effect)
    at = at.switch_page(ATLAS).run()
    assert command([*shlex.split(at.code[0].value)[3:], "--json"]) == 0
    card = json.loads(capsys.readouterr().out)["card"]
    assert card == plain(outputs.results().get(Inspect(a).key))
    for shared in (outputs.results, outputs.registry, opening.places):
        shared.cache_clear()


@pytest.mark.parametrize("word", ["unsafe_allow_html", "pickle.load", "torch.load", "trust_remote"])
def test_nothing_unsafe_is_called(word: str):
    sources = [*(ROOT / "app").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]
    assert not [path for path in sources if word in path.read_text()]


def test_one_model_twice_has_a_self_test_on_each_card(pair, monkeypatch: pytest.MonkeyPatch):
    """Neither measured: the two cards ask the same question, in two places of the page."""
    ended = Event()

    def answer(self: Check, progress: Any) -> Any:
        while not ended.wait(0.01):
            progress(0.5, "half way")
        return fakes.self_test(1.1e-6)

    monkeypatch.setattr(Check, "answer", answer)
    put(Inspect(pair[0]), fakes.model_card("base", "a" * 16))
    at, key = opened(a="base", b="base"), Check(pair[0]).key
    assert "The same weights twice." in text(at)
    at.button(key=f"start:B:{key}").click().run()
    assert not at.exception
    ended.set()
    wait_for(key)
    assert "exact" in str([badge.value for badge in at.run().markdown])


@pytest.mark.parametrize(
    ("link", "options"),
    [
        ({"layer": "99"}, []),
        ({"preset": "nonsense"}, []),
        ({"preset": "residual-order"}, ["--preset", "residual-order"]),
        ({"layer": "all"}, ["--layer", "-1"]),
    ],
)
def test_what_a_link_cannot_say_falls_back_to_the_default(link, options, asked, turned):
    """A layer and a preset that are not there; a preset's short word is understood."""
    at = opened(LAB, **link)
    command = shlex.split(at.get("code")[-1].value)
    assert command[3:] == ["lab", turned[0], *options]
