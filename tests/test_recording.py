"""The recording: its comparison tells a changed digit from the order of sums, its file is whole."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file

from engine.cli import COMMANDS, NAMES
from engine.families import FAMILIES
from tests.recording import asked, record
from tests.recording.answers import HUGE, LEFT_OUT, answer, digest, packed
from tests.recording.compare import MISSING, Difference, count, differences, unpacked

NEXT = math.nextafter(2.0, 3.0)
RAMP = [0.1 * k for k in range(12)]


def found(before: Any, after: Any) -> list[Difference]:
    return list(differences(before, after))


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "word", math.nan, math.inf], "b": {"c": []}},
        packed(RAMP),
        packed([[1.0] * HUGE, [2.0] * HUGE]),
    ],
)
def test_equal_answers_do_not_differ(value: Any) -> None:
    assert found(value, json.loads(json.dumps(value))) == []


def test_a_last_digit_is_the_order_of_sums() -> None:
    assert found({"a": [1.0, 2.0]}, {"a": [1.0, NEXT]}) == [Difference(".a[1]", 2.0, NEXT, True)]
    assert found(2.0, NEXT) == [Difference("", 2.0, NEXT, True)]
    assert found([math.inf, 2.0], [math.inf, NEXT]) == [Difference("[1]", 2.0, NEXT, True)]
    assert found(0.0, -0.0) == [Difference("", 0.0, -0.0, True)]


def test_of_a_list_1e_12_of_its_largest_is_the_order_of_sums() -> None:
    assert [one.sums for one in found([[1e3, 0.0], [2e-9, 1.0]], [[1e3, 0.0], [3e-9, 1.0]])] == [
        True
    ]
    assert [one.sums for one in found([[1e2, 0.0], [2e-9, 1.0]], [[1e2, 0.0], [3e-9, 1.0]])] == [
        False
    ]
    assert [one.sums for one in found([{"a": 2e-9}, 1e3], [{"a": 3e-9}, 1e3])] == [False]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-9]}, ".a[1]"),
        ({"a": {"b": "res"}}, {"a": {"b": "ffn"}}, ".a.b"),
        ({"a": 1}, {"a": 2}, ".a"),
        ({"a": 1}, {"a": 1.0}, ".a"),
        ({"a": 1}, {"a": True}, ".a"),
        ({"a": None}, {"a": math.nan}, ".a"),
        ({"a": "Infinity"}, {"a": math.inf}, ".a"),
        ([math.inf, 1.0], [-math.inf, 1.0], "[0]"),
        ([math.inf, 1.0], [math.inf, 1.1], "[1]"),
        ([1.0, math.nan], [1.0, 2.0], "[1]"),
        ([RAMP, 1], [RAMP, 2], "[1]"),
    ],
)
def test_anything_else_is_a_difference(before: Any, after: Any, path: str) -> None:
    for values in ((before, after), (after, before)):
        assert [(one.path, one.sums) for one in found(*values)] == [(path, False)]


def test_a_name_too_few_or_too_many_and_a_longer_list_are_differences() -> None:
    assert found({"a": 1}, {"a": 1, "b": 2}) == [Difference(".b", MISSING, 2)]
    assert found({"a": 1, "b": 2}, {"a": 1}) == [Difference(".b", 2, MISSING)]
    assert str(*found([1, 2], [1, 2, 3])) == ": '2 values' → '3 values'"


def test_long_lists_are_packed_and_nothing_is_lost() -> None:
    grid = [RAMP, [x + 1e-17 for x in RAMP]]
    assert packed(grid).keys() == {"shape", "float64"}
    assert unpacked(packed(grid)) == grid
    assert packed([1.0, 2.0]) == [1.0, 2.0]
    assert packed([*RAMP, None]) == [*RAMP, None]
    assert packed([*RAMP, 1]) == [*RAMP, 1]
    assert packed([RAMP, RAMP[1:]]) == [packed(RAMP), packed(RAMP[1:])]
    changed = [RAMP, [*RAMP[:-1], RAMP[-1] + 1e-9]]
    assert [one.path for one in found(packed([RAMP, RAMP]), packed(changed))] == ["[1][11]"]
    assert found(packed(RAMP), RAMP) == []
    assert unpacked(packed([0.5] * HUGE)) == [0.5] * HUGE
    assert packed([[0.5] * HUGE, [0.5] * HUGE])["shape"] == [2, HUGE]
    assert "sha256" in packed([0.5] * (HUGE + 1))


def test_of_an_array_the_digest_tells_1e_12() -> None:
    x = np.random.default_rng(0).normal(size=(70, 80))
    swapped = x.copy()
    swapped[0, :2] = swapped[0, 1::-1]
    moved = x.copy()
    moved[3, 4] += 1e-9
    for other, sums in ((x * (1 + 1e-14), True), (swapped, False), (moved, False), (-x, False)):
        assert [one.sums for one in found(digest(x), digest(other))] == [sums]
    assert found(digest(x), digest(x.T))[0].path == ".shape"
    assert found(digest(x), digest(x.astype(np.float32)))[0].path == ".dtype"
    order = np.arange(9)
    assert not found(digest(order), digest(order[::-1]))[0].sums
    assert not {"norm", "sum"} & {*digest(order), *digest(np.array([1.0, math.nan]))}


def test_the_weighted_sum_of_a_digest_by_hand() -> None:
    golden = (1 + 5**0.5) / 2
    weights = [k / golden - math.floor(k / golden) - 0.5 for k in (1, 2, 3)]
    kept = digest(np.array([[3.0, 0.0, -4.0]]))
    assert kept["norm"] == 5
    assert kept["sum"] == pytest.approx(3 * weights[0] - 4 * weights[2])
    assert (kept["dtype"], kept["shape"]) == ("float64", [1, 3])


def test_numbers_and_arrays_are_counted() -> None:
    held = {
        "a": [1, 2.5, True, None, "3"],
        "b": packed([RAMP, RAMP]),
        "c": {"d": digest(np.ones(5))},
    }
    assert count(held) == (2 + 24, 1)


def test_times_and_versions_are_left_out_by_name_and_nothing_else() -> None:
    held = {"seconds": 1.0, "second": 2.0, "deep": [{"version": "2", "versions": [1]}]}
    assert packed(held) == {"second": 2.0, "deep": [{"versions": [1]}]}
    assert set(LEFT_OUT) == {"seconds", "seconds aligning", "version", "transformers_version"}


def test_an_answer_has_what_was_printed_said_and_written(tmp_path: Path) -> None:
    def main(words: list[str]) -> int:
        out = tmp_path / words[-1]
        out.mkdir(parents=True)
        (out / "report.json").write_text('{"a": 1}')
        (out / "note.txt").write_text(f"cut from {tmp_path}/given")
        save_file({"x": torch.ones(2, dtype=torch.bfloat16)}, out / "m.safetensors", {"c": "[1]"})
        np.savez(out / "arrays.npz", n=np.arange(3))
        typer.echo('{"a": 1}')
        return 0

    known = {str(tmp_path): "FOLDER"}
    here = answer(main, ["merge", "--out", "written"], tmp_path, known)
    assert (here["code"], here["printed"], here["says"]) == (0, {"a": 1}, "")
    files = here["written"]
    assert files["report.json"] == "as printed"
    assert files["note.txt"] == "cut from FOLDER/given"
    assert files["arrays.npz"]["n"]["dtype"] == "int64"
    tensors = files["m.safetensors"]
    assert (tensors["remarks"], tensors["dtypes"]) == ({"c": [1]}, {"x": "bfloat16"})
    assert tensors["tensors"]["x"]["norm"] == 2**0.5
    assert not (tmp_path / "written").exists()
    answer(main, ["merge", "--out", "made/b"], tmp_path, known)
    assert (tmp_path / "made" / "b").is_dir()


def test_a_refusal_and_a_crash_are_answers(tmp_path: Path) -> None:
    def main(words: list[str]) -> int:
        if words[-1] == "crash":
            raise KeyError("what")
        typer.echo(f"no {words[-1]}, about 0.03 s each on this machine: about 2 s", err=True)
        return 1

    (tmp_path / "tiny").mkdir()
    here = answer(main, ["align", "--out", "tiny"], tmp_path, {})
    assert here == {"code": 1, "printed": "", "says": "no tiny, \n"}
    assert (tmp_path / "tiny").is_dir()
    assert answer(main, ["crash"], tmp_path, {})["raised"] == "KeyError: 'what'"


@pytest.mark.parametrize("code", [130, 143])
def test_a_command_that_was_stopped_is_no_answer(code: int, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        answer(lambda _: code, ["inspect"], tmp_path, {})
    assert stop.value.code == code


def test_what_differs_is_printed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = {"inspect a": {"x": list(range(30)), "y": 2.0}, "cut a": {"z": 1}}
    after = {"inspect a": {"x": list(range(1, 31)), "y": NEXT}, "cut a": {"z": 1}}
    assert record.report(before, after) == 30
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "inspect a  .x[0]: 0 → 1"
    assert lines[19:] == [
        "inspect a  .x[19]: 19 → 20",
        "inspect a  … and 10 more",
        "2 commands, 32 numbers, 0 arrays: 30 differences; 1 more by the order of sums only",
    ]
    assert record.report(before, before) == 0
    assert record.report({}, {"cut a": 1}) == 1


def test_another_machine_is_named() -> None:
    here = record.machine()
    assert record.strange(here, here) == ""
    line = record.strange(here | {"torch": "1.0"}, here)
    assert line.endswith(f"kept with torch 1.0 (here {here['torch']})")


@pytest.fixture(scope="module")
def kept() -> record.Answers:
    return record.kept()[1]


def test_the_kept_file_holds_every_line(kept: record.Answers) -> None:
    lines = list(asked.commands())
    assert list(kept) == lines
    assert len(set(lines)) == len(lines)
    assert min(count(answer)[0] for line, answer in kept.items() if answer["code"] == 0) > 0
    assert not any("raised" in answer for answer in kept.values())


def test_every_command_and_every_family_is_recorded(kept: record.Answers) -> None:
    well = [line.split() for line, answer in kept.items() if answer["code"] == 0]
    names = {command.__name__ for command in COMMANDS}
    assert {words[0] for words in well} == {NAMES.get(name, name) for name in names}
    cards = {
        words[1].removeprefix("tiny/"): kept[" ".join(words)]["printed"]["card"]["family"]
        for words in well
        if words[0] == "inspect" and "tiny/" in words[1]
    }
    shown = [cards[name].partition(" (")[0] for name in asked.FAMILIES]
    assert sorted(shown) == sorted(family.name for family in FAMILIES)
    for verb in ("layers", "cut", "align", "barrier"):
        told = {words[1] for words in map(str.split, kept) if words[0] == verb}
        assert told >= {f"tiny/{name}" for name in asked.FAMILIES}


def test_no_place_of_a_machine_is_recorded(kept: record.Answers) -> None:
    text = re.sub(r'"float64": "[^"]*"', "", json.dumps(kept))
    assert re.findall(r"(?:^|[\s\"'(=])/[\w.-]+/[\w./-]*", text) == []
    assert str(record.ROOT) not in text


def test_the_kept_file_is_small() -> None:
    assert record.KEPT.stat().st_size < 1_000_000
