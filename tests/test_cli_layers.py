"""The commands on layers: what they print and write, and that a page's command repeats a record."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from engine.cli import main
from engine.errors import Cancelled
from engine.layers.stacks import cells
from engine.questions import Continue, Cut, Gap, Layers, Match
from engine.store import Store, default_root
from tests import tiny

SMALL = ["--count", "128", "--length", "8"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four layers, no tokenizer: random token ids are read."""
    return str(tiny.build("llama_gqa", tmp_path_factory.mktemp("model"), num_hidden_layers=4))


def written(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out


def test_layers_writes_every_map_and_its_command_repeats_it(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "maps.json"
    assert main(["layers", model, "--out", str(out), "--reach", "2", *SMALL]) == 0
    bands = cells(Layers(model).tests, range(4), 2, ["one kind"] * 4)
    count = sum(len({stack for _, _, stack in band}) for band in bands)
    cost = capsys.readouterr().err
    assert cost.startswith(f"128 tokens in 16 windows; {count} stacks of layers to run, about")
    found = json.loads(out.read_text())
    replace = np.array(found["replace"], float)
    assert found["complete"] is True
    assert found["direction"] == "KL(base‖modified)"
    assert np.isnan(replace[0, 3])
    assert (np.diagonal(replace) < 1e-6).all()
    assert replace[0, 1] != replace[1, 0]
    assert np.array_equal(found["swap"], np.array(found["swap"]).T)
    question = Layers(model, reach=2, tokens=128, length=8)
    stored = Store(default_root()).get(question.key)
    np.testing.assert_allclose(stored.tests["swap"].measure().value[0, 1], found["swap"][0][1])
    words = shlex.split(question.command)[3:]
    again = [str(tmp_path / "again.json") if word == "layers.json" else word for word in words]
    assert main(again) == 0
    assert json.loads((tmp_path / "again.json").read_text())["replace"] == found["replace"]


def test_an_existing_file_is_kept_and_a_strange_name_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "maps.json"
    out.write_text("mine")
    assert main(["layers", model, "--out", str(out), *SMALL]) == 1
    assert capsys.readouterr().err.strip() == f"--out {out} exists: give a new file."
    assert out.read_text() == "mine"
    assert main(["layers", model, "--out", str(tmp_path / "maps.csv"), *SMALL]) == 1
    assert "must end in .json, found '.csv'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tests", "reverse"], "no test 'reverse'"),
        (["--layers", "2-9"], "no layer 9"),
        (["--layers", "0,2"], "must be one range"),
        (["--layers", "x"], "names no layers"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
):
    assert main(["layers", model, "--out", str(tmp_path / "a.json"), *SMALL, *words]) == 1
    error = capsys.readouterr().err.strip()
    assert told in error
    assert "\n" not in error
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tests", ","], "--tests names nothing in ','"),
        (["--tokens", "ids.txt"], "--tokens ids.txt: the name must end in .json"),
        (["--tokens", "gone.json"], "oken file gone.json"),
    ],
)
def test_an_option_is_refused_by_its_own_name(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
):
    assert main(["layers", model, "--out", str(tmp_path / "a.json"), *SMALL, *words]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()


def test_more_tokens_than_are_ever_read_are_wrong_usage(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = str(tmp_path / "a.json")
    assert main(["layers", model, "--out", out, "--count", "999999999"]) == 2
    assert "Invalid value for '--count'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["layers", "cut", "gap", "match"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
):
    for kind in (Layers, Cut, Gap, Match):
        monkeypatch.setattr(kind, "answer", lambda *_: pytest.fail("work was done"))
    (tmp_path / "file").write_text("mine")
    models = [model, model] if verb == "match" else [model]
    for out in (tmp_path / "file" / "a.json", tmp_path / f"{'a' * 300}.json"):
        assert main([verb, *models, "--out", str(out)]) == 1
        error = capsys.readouterr().err.strip()
        assert error.startswith(f"--out {out} cannot be written (")
        assert "\n" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_after_an_interruption_the_file_that_holds_a_part_is_named(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    answer = Layers.answer

    def stopping(self, progress):
        def watched(share, step, partial=None, /):
            progress(share, step, partial)
            if partial is not None:
                raise KeyboardInterrupt

        return answer(self, watched)

    monkeypatch.setattr(Layers, "answer", stopping)
    out = tmp_path / "maps.json"
    assert main(["layers", model, "--out", str(out), *SMALL]) == 130
    _, told = capsys.readouterr().err.strip().splitlines()
    assert told == f"Interrupted: {out} holds what was done so far."
    assert json.loads(out.read_text())["complete"] is False


def test_one_layer_has_no_pairs_and_cannot_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    alone = str(tiny.build("llama_gqa", tmp_path / "alone", num_hidden_layers=1))
    assert main(["layers", alone, "--out", str(tmp_path / "maps.json"), *SMALL]) == 0
    assert "swap              0 cells: no two layers to compare" in written(capsys)
    for verb, told in (("cut", "none can be left out"), ("gap", "there are no pairs")):
        assert main([verb, alone, "--out", str(tmp_path / f"{verb}.json"), *SMALL]) == 1
        assert f"has one layer: {told}" in capsys.readouterr().err


def test_a_model_that_predicts_no_next_token_has_no_loss_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["gap", "demo:bert", "--out", str(tmp_path / "gap.json"), *SMALL]) == 0
    told = written(capsys)
    assert "replace" in told
    assert "loss" not in told


def test_more_to_write_than_a_model_has_positions(capsys: pytest.CaptureFixture[str]):
    assert main(["continue", "demo:base", "--count", "99999"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("--count 99999: demo:base has 128 positions")


def test_one_window_is_no_two_halves(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ids = tmp_path / "one.json"
    ids.write_text("[[5, 6, 7]]")
    out = str(tmp_path / "out")
    assert main(["prune", "demo:base", "--drop", "1", "--out", out, "--tokens", str(ids)]) == 1
    assert "one.json has 1, give two or more" in capsys.readouterr().err
    assert not Path(out).exists()


def test_what_was_done_before_a_stop_stands_in_the_file(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from engine.layers.filling import Filling

    take = Filling.take

    def stopping(self, session, windows, band):
        if band and len(band[0][1]) == 2 and abs(band[0][1][0] - band[0][1][1]) == 2:
            raise Cancelled
        yield from take(self, session, windows, band)

    monkeypatch.setattr(Filling, "take", stopping)
    out = tmp_path / "maps.json"
    with pytest.raises(Cancelled):
        main(["layers", model, "--out", str(out), *SMALL])
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert found["swap"][0][1] is not None
    assert found["swap"][0][2] is None


def test_cut_tells_each_way_and_budget(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "cut.json"
    assert main(["cut", model, "--out", str(out), "--budget", "2", *SMALL]) == 0
    lines = written(capsys)
    found = json.loads(out.read_text())
    assert [one["by"] for one in found["candidates"]] == list(Cut(model).by)
    for one in found["candidates"]:
        assert len(one["kl"]) == len(one["dropped"])
        assert one["kl"][0] < 1e-6
        assert f"{one['by']:10} n = 1" in lines
    greedy = found["candidates"][-1]
    assert greedy["stacks run to choose"] == 4 + 3


def test_continue_and_gap(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["continue", "demo:base", "--test", "swap", "--i", "1", "--j", "2"]) == 0
    assert "layers 1 and 2 exchanged: " in written(capsys)
    assert main(["continue", model]) == 1
    assert "no tokenizer that opens: choose a model with one" in capsys.readouterr().err
    other = str(tiny.build("llama_gqa", tmp_path / "other-step-20", seed=1, num_hidden_layers=4))
    out = tmp_path / "gap.json"
    assert main(["gap", model, other, "--out", str(out), *SMALL]) == 0
    assert "16 windows; 1 further model to run, about" in capsys.readouterr().err
    found = json.loads(out.read_text())
    assert [one["step"] for one in found["steps"]] == [0, 20]
    assert len(found["steps"][0]["swap"]["value"]) == 3
    assert Gap((model, other)).models == (model, other)
    assert Continue(model).models == (model,)
