"""Texts of the user's own: how much is read, in which windows, and what of it is known."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine import corpus, datasets, network, texts
from engine.checkpoint import open_checkpoint
from engine.cli import main
from engine.corpus import EDGE, LETTERS, beginning, bundled
from engine.errors import Refused
from engine.layers.inputs import inputs
from engine.questions import Barrier, Layers, Written

KNOWN = "the crows sing . nora finds a shirt . "


@pytest.fixture(scope="module")
def encode():
    """The words of the demo models."""
    words = network.tokenizer(open_checkpoint("demo:base"))
    return lambda text: words.encode(text, add_special_tokens=False, verbose=False)


def named(folder: Path, text: str) -> str:
    path = folder / "own.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("split", ["\n\n", "\n", " "])
@pytest.mark.parametrize("count", [1, 100, 1000, 4000])
def test_the_beginning_of_a_text_has_the_tokens_that_the_whole_has(encode, count, split) -> None:
    text = bundled("calibration").replace("\n\n", split)
    assert list(beginning(encode, text, count))[:count] == encode(text)[:count]


def test_no_more_of_a_text_is_encoded_than_it_takes(encode) -> None:
    seen: list[int] = []

    def counted(text: str) -> list[int]:
        seen.append(len(text))
        return encode(text)

    long = bundled("calibration") * 20
    assert len(corpus.windows(counted, [long], 4, 128)) == 4
    assert sum(seen) < 2 * LETTERS * (4 * 128 + EDGE) < len(long) / 50


def test_what_is_dropped_at_a_cut_is_what_the_cut_changed() -> None:
    """Pieces of two letters: cut at an odd place, the last token is another."""

    def pairs(text: str) -> list[int]:
        return [hash(text[i : i + 2]) for i in range(0, len(text), 2)]

    text = "abcdefg" * 5000
    found = beginning(pairs, text, 50)
    assert list(found)[:50] == pairs(text)[:50]
    odd = pairs(text[: LETTERS * (50 + EDGE) + 1])
    assert odd[-1] != pairs(text)[len(odd) - 1]


@pytest.mark.parametrize(
    "text", ["😀 " * 300, "مرحبا بكم " * 300, "abc\0def " * 300, "reporters asked ministers " * 300]
)
def test_a_text_of_unknown_words_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"The text own.txt: demo:base knows 249 tokens, and 100%"):
        texts.tokens(open_checkpoint("demo:base"), named(tmp_path, text), 256)


@pytest.mark.parametrize(("strange", "told"), [(0, ""), (1, "10% of its tokens unknown")])
def test_the_share_of_unknown_words_is_said(strange: int, told: str, tmp_path: Path) -> None:
    own = named(tmp_path, (KNOWN + "zebra " * strange) * 100)
    asked = Barrier("demo:base", "demo:base", tokens=256, text=own)
    what = inputs(open_checkpoint("demo:base"), asked).what
    assert what.startswith("own.txt")
    assert ("unknown" in what) == bool(strange)
    assert told in what
    ids = texts.tokens(open_checkpoint("demo:base"), own, 256)
    words = ids[ids != 1]
    share = texts.unknown(open_checkpoint("demo:base"), own, ids)
    assert share == pytest.approx((words == 0).mean())
    assert share == pytest.approx(strange / 10, abs=0.02)


def test_a_prompt_of_unknown_words_is_refused() -> None:
    with pytest.raises(Refused, match="The prompt: demo:base knows 249 tokens, and 100%"):
        Written("demo:base", "demo:base", prompt="xylophones").answer()


@pytest.mark.parametrize(
    ("count", "length", "shape"), [(64, 128, (1, 64)), (200, 64, (3, 64)), (256, 128, (2, 128))]
)
def test_a_count_is_kept_or_its_rounding_is_said(count, length, shape) -> None:
    a = open_checkpoint("demo:base")
    found = inputs(a, Barrier("demo:base", "demo:base", tokens=count, length=length))
    assert tuple(found.kept.shape) == shape
    cut = f"of {count} tokens asked for, as many as fill windows of {length}"
    assert (cut in found.what) == (np.prod(shape) != count)


def test_twice_as_many_windows_are_as_long() -> None:
    a = open_checkpoint("demo:base")
    found = inputs(a, Layers("demo:base", tokens=24), times=2)
    assert tuple(found.kept.shape) == (2, 24)


@pytest.mark.parametrize("length", [4096, 999_999])
def test_windows_beyond_the_positions_are_refused_when_named(length: int) -> None:
    asked = Barrier("demo:base", "demo:base", length=length)
    told = rf"--length {length:,}: demo:base has 128 positions; give at most 128"
    with pytest.raises(Refused, match=told):
        inputs(open_checkpoint("demo:base"), asked)


def test_the_usual_length_fits_itself_to_a_model_of_few_positions(built) -> None:
    small = open_checkpoint(built("gpt2"))
    longest = texts.positions(small)
    assert longest < Barrier.length
    found = inputs(small, Barrier(small.name, small.name, tokens=96))
    assert found.kept.shape[1] == longest


@pytest.mark.parametrize("rows", [[[5]] * 16, [[5, 6, 7]] * 15 + [[5]]])
def test_one_token_alone_has_no_next(rows: list, built, tmp_path: Path, capsys) -> None:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(rows))
    a = str(built("llama_gqa"))
    words = ["barrier", a, a, "--tokens", str(path), "--out", str(tmp_path / "b.json")]
    assert main(words) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert said == [
        "ids.json has windows of 1 token, and each next token is asked for: give 2 or more in each."
    ]
    path.write_text(json.dumps([[5, 6]] * 16))
    assert main([*words, "--points", "3", "--stages", "none"]) == 0


def test_a_data_set_of_the_hub_is_a_text(tmp_path: Path, monkeypatch, capsys) -> None:
    own, asked = named(tmp_path, KNOWN * 100), []

    def download(name: str, largest: int, progress) -> tuple[str, Path]:
        asked.append((name, largest))
        return "train.txt", Path(own)

    monkeypatch.setattr("engine.datasets.download", download)
    out = tmp_path / "o.json"
    few = ["--points", "3", "--stages", "none", "--count", "64"]
    assert main(["barrier", "demo:base", "demo:base", *few, "--text", "hf:owner/set", "--out",
                 str(out)]) == 0  # fmt: skip
    assert asked == [("owner/set", 20_000_000)]
    assert "text: train.txt of owner/set" in capsys.readouterr().err
    found = json.loads(out.read_text())
    assert found["text"] == "own.txt" and found["question"]["text"] == own
    monkeypatch.undo()
    words = ["barrier", "demo:base", "demo:base", "--text", "hf:owner/set"]
    assert main([*words, "--out", str(tmp_path / "p.json")]) == 1
    assert capsys.readouterr().err == f"{datasets.OFF}\n"
