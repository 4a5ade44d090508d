"""The commands on a line: what they print and write, and that a page's command repeats a record."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from engine import texts
from engine.checkpoint import open_checkpoint
from engine.cli import main
from engine.costs import foretold as foretold_by
from engine.errors import Refused
from engine.questions import Barrier
from engine.scramble import scramble
from engine.store import Store, default_root
from tests import tiny

SMALL = ["--count", "96", "--length", "6"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two tiny models, no tokenizer: random token ids are read."""
    folder = tmp_path_factory.mktemp("pair")
    return [str(tiny.build("llama_gqa", folder / name, seed)) for seed, name in enumerate("ab")]


def foretold(error: str) -> list[tuple[int, ...]]:
    """Tokens, windows and models of every line that says what a run will cost."""
    found = re.findall(r"^([\d,]+) tokens in (\d+) windows?; (\d+) models", error, re.MULTILINE)
    return [tuple(int(part.replace(",", "")) for part in one) for one in found]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out


def test_barrier_writes_the_promised_document_and_its_command_repeats_it(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "barrier.json"
    words = ["barrier", *pair, "--points", "4", "--stages", "all,none", "--adaptive", "off"]
    words += SMALL
    assert main([*words, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "barrier" in said.out
    assert foretold(said.err) == [(96, 16, 4)]
    assert foretold(said.out) == []
    found = json.loads(out.read_text())
    assert found["t"] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert found["complete"] is True
    asked = Barrier(*pair, points=4, stages=("all", "none"), adaptive=False, tokens=96, length=6)
    told = found["question"]
    assert told["key"] == asked.key and told["stages"] == ["all", "none"]
    assert told["fingerprints"] == [open_checkpoint(one).fingerprint for one in pair]
    assert {"points", "adaptive", "seed", "length", "dtype", "version", "command"} <= told.keys()
    assert "the logarithm of 96" in said.out  # random models guess worse
    assert "loss of A" in said.out and "accuracy falls by" in said.out
    assert list(found["stages"]) == ["none", "all"]
    for stage in found["stages"].values():
        assert len(stage["loss"]) == len(stage["accuracy"]) == len(stage["loss interval"]) == 4
        np.testing.assert_allclose(stage["perplexity"], np.exp(stage["loss"]))
        low, high = stage["barrier interval"]
        assert low <= stage["barrier"] <= high
    stored = Store(default_root()).get(asked.key)
    assert stored.models == 2 + 4
    assert stored.curve("all").barrier().value == pytest.approx(found["stages"]["all"]["barrier"])
    again = shlex.split(asked.command)[3:]
    assert (
        main([str(tmp_path / "b.json") if word == "barrier.json" else word for word in again]) == 0
    )
    assert json.loads((tmp_path / "b.json").read_text())["stages"] == found["stages"]


def test_points_that_were_added_stand_apart(pair: list[str], tmp_path: Path) -> None:
    out = tmp_path / "finer.json"
    assert (
        main(["barrier", *pair, "--points", "3", "--stages", "none", "--out", str(out), *SMALL])
        == 0
    )
    stage = json.loads(out.read_text())["stages"]["none"]
    assert len(stage["loss"]) == 3
    finer = stage.get("finer", {"t": [], "loss": []})
    assert len(finer["t"]) == len(finer["loss"]) <= 12
    assert not {0.0, 0.5, 1.0} & set(finer["t"])


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.2, "1 s"), (89.4, "89 s"), (200, "3 min"), (9000, "2.5 h")]
)
def test_a_cost_is_told_in_the_unit_that_fits(seconds: float, told: str) -> None:
    said = foretold_by(4096, 1, 1000, seconds / 1000)
    assert said.startswith("4,096 tokens in 1 window; 1,000 models to run, about ")
    assert said.endswith(f"on this machine: about {told}")


def test_one_run_is_told_of_as_one() -> None:
    assert "; 1 model (more where a curve bends) to run, about 2 s each" in foretold_by(
        8, 2, 1, 2.0, "model{s} (more where a curve bends)"
    )
    assert "; 2 stacks of layers to run" in foretold_by(8, 2, 2, 2.0, "stack{s} of layers")
    assert "; 1 stack of layers to run" in foretold_by(8, 2, 1, 2.0, "stack{s} of layers")


@pytest.mark.parametrize("command", ["line", "merge", "slice"])
def test_steps_for_a_stage_that_takes_none_are_refused(
    command: str, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = {"merge": "out", "slice": "out.json"}.get(command)
    more = ["--out", str(tmp_path / out)] if out else []
    assert main([command, *pair, "--refine", "3", *more]) == 1
    said = capsys.readouterr().err
    assert "--refine 3 makes the stage refined, and all was asked for: give --stage refined" in said


def test_merge_writes_a_checkpoint_and_what_it_costs(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "merged"
    assert main(["merge", *pair, "--t", "0.25", "--out", str(out), "--json", *SMALL]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["question"]["name"] == "Merge" and told["question"]["t"] == 0.25
    assert foretold(said.err) == []  # three models are no long run
    assert told == json.loads((out / "report.json").read_text())
    assert told["t"] == 0.25
    assert told["note"].startswith("the merge is a new function")
    assert min(told["apart"].values()) > 1e-4
    assert set(told["loss"]) == {"a", "merge", "other end"}
    assert open_checkpoint(out).family.name == "Llama"
    assert main(["merge", *pair, "--out", str(out), *SMALL]) == 1
    assert "exists and is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stage", "told"), [("all", "computes what A and the other end do"), ("none", "new function")]
)
def test_a_merge_of_twins_is_no_new_function_once_they_are_aligned(
    stage: str, told: str, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scramble(open_checkpoint(pair[0]), tmp_path / "twin", seed=4)
    words = ["merge", pair[0], str(tmp_path / "twin"), "--out", str(tmp_path / "out"), *SMALL]
    assert main([*words, "--stage", stage]) == 0
    said = printed(capsys)
    assert told in said
    assert ("(exact)" in said) == (stage == "all")


def test_slice_and_orders_write_their_documents(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "slice.json"
    assert main(["slice", *pair, "--points", "2", "--out", str(out), *SMALL, "--json"]) == 0
    said = capsys.readouterr()
    assert foretold(said.err) == [(96, 16, 2 * 2 + 1)]  # the grid, and aligned B
    assert json.loads(said.out) == json.loads(out.read_text())
    found = json.loads(out.read_text())
    assert found["lowest"]["loss"] <= min(found["loss of the models"].values())
    assert np.array(found["loss"]).shape == (2, 2)
    assert found["places"]["a"] == [0, 0]
    three = [str(tiny.build("llama_mqa_tied", tmp_path / name, 3 + (name > "a"))) for name in "ab"]
    out = tmp_path / "orders.json"
    assert main(["orders", *three, "--points", "3", "--out", str(out), *SMALL]) == 0
    found = json.loads(out.read_text())
    assert len(found["orders"]) == len(found["barrier"]) == 6
    # Half way and the end, of every order and of B as it is.
    assert foretold(capsys.readouterr().err) == [(96, 16, (6 + 1) * 2)]
    assert 0 <= found["chosen"] < 6


def test_line_writes_a_text_for_every_t(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["line", "demo:base", "demo:seed-1", "--at", "0,1", "--stage", "none", "--count", "3"]
    assert main([*words, "--prompt", "the crows", "--json"]) == 0
    told = json.loads(printed(capsys))
    assert told["at"] == [0, 1]
    assert told["same"][0] == 3
    assert len(told["texts"]) == 2
    assert main(words) == 0
    assert "t = 1.000: " in printed(capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stages", "naive"], "no stage 'naive'"),
        (["--scope", "last"], "no scope 'last'"),
        (["--scope", "9"], "--scope 9"),
        (["--stages", "refined"], "needs steps: give --refine"),
        (["--dtype", "bfloat16"], "interpolated in float32 or float64"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(
    pair: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    assert main(["barrier", *pair, "--out", str(tmp_path / "a.json"), *SMALL, *words]) == 1
    error = capsys.readouterr().err.strip()
    assert told in error
    assert "\n" not in error


def test_wrong_usage_ends_with_two(pair: list[str], tmp_path: Path) -> None:
    assert main(["merge", *pair, "--t", "1.5", "--out", str(tmp_path / "m")]) == 2
    assert main(["line", *pair, "--at", "half"]) == 2
    assert main(["barrier", *pair, "--points", "2", "--out", str(tmp_path / "a.json")]) == 2


def test_a_text_may_have_a_document_in_every_line(tmp_path: Path) -> None:
    base = open_checkpoint("demo:base")
    lines = [json.dumps("the crows sing ."), json.dumps({"text": "nora finds a shirt ."}), ""]
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(lines * 20))
    found = texts.tokens(base, str(path), 64, 16)
    assert found.shape == (4, 16)
    assert (found == base.config["bos_token_id"]).sum() > 4  # before every document
    path.write_text("the crows sing .")
    with pytest.raises(Refused, match=r"text.jsonl, line 1 is no JSON"):
        texts.tokens(base, str(path), 64, 16)
    path.write_text('\n{"words": "no text"}')
    with pytest.raises(Refused, match=r"line 2 must be a JSON string, or an object with a string"):
        texts.tokens(base, str(path), 64, 16)
