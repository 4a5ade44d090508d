"""Two vocabularies: every command on two models reads what both know, whichever is the narrower."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from engine import shared, texts
from engine.checkpoint import open_checkpoint
from engine.cli import main
from engine.corpus import bundled
from engine.errors import Refused
from tests import tiny

WIDE, NARROW = 96, 88


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Two strangers by architecture, one with fewer rows; both have the tokenizer of the wider."""
    folder = tmp_path_factory.mktemp("vocabularies")
    return {name: pair(name, folder / name) for name in ("llama_mha", "mixtral")}


def pair(architecture: str, folder: Path) -> tuple[str, str]:
    found = []
    for rows in (WIDE, NARROW):
        out = tiny.build(architecture, folder / str(rows), seed=rows, vocab_size=rows)
        tokenizer().save_pretrained(out)
        found.append(str(out))
    return found[0], found[1]


def tokenizer() -> PreTrainedTokenizerFast:
    """The commonest words of the bundled text, the rarest of them the last."""
    common = [word for word, _ in Counter(bundled("calibration").split()).most_common(WIDE - 3)]
    words = {word: k for k, word in enumerate(["<unk>", "<s>", "</s>", *common])}
    made = Tokenizer(WordLevel(words, "<unk>"))
    made.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text in these words, in which every fiftieth is one that the narrower does not know."""
    known = sorted(tokenizer().get_vocab().items(), key=lambda word: word[1])
    draw = np.random.default_rng(0)
    ids = draw.integers(3, NARROW, 6000)
    ids[::50] = draw.integers(NARROW, WIDE, len(ids[::50]))
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text(" ".join(known[i][0] for i in ids))
    return path


FEW = ("--count", "512")
COMMANDS: dict[str, tuple[str, ...]] = {
    "related": ("--thorough", "on", *FEW),
    "align": (*FEW, "--out", "{out}"),
    "align by activations": (
        "--using", "activations", "--sweeps", "1", "--mix", "0.5", "--refine", "1", *FEW,
        "--out", "{out}",
    ),
    "match": (*FEW, "--out", "{out}.npz"),
    "match neurons": ("--coordinate", "ffn", "--using", "activations", *FEW, "--out", "{out}.json"),
    "match one layer": ("--coordinate", "ffn", "--layer", "1", *FEW, "--out", "{out}.json"),
    "heads": ("--using", "activations", *FEW),
    "turn": ("--angle", "20", *FEW),
    "experts": FEW,
    "barrier": ("--points", "3", "--stages", "none,all", "--refine", "1", "--length", "16", *FEW,
                "--out", "{out}.json"),
    "merge": ("--length", "16", *FEW, "--out", "{out}"),
    "line": ("--prompt", "the of", "--count", "2", "--at", "0.5"),
    "line from the text": ("--count", "2", "--at", "0.5"),
    "slice": ("--points", "2", "--length", "16", *FEW, "--out", "{out}.json"),
    "orders": ("--points", "3", "--length", "16", *FEW, "--out", "{out}.json"),
}  # fmt: skip
"""Every command on two models that reads a text, in the ways in which it does."""


@pytest.mark.parametrize("narrower", ["A", "B"])
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_reads_what_both_models_know(
    command: str,
    narrower: str,
    pairs: dict[str, tuple[str, str]],
    words: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide, narrow = pairs["mixtral" if command == "experts" else "llama_mha"]
    both = (narrow, wide) if narrower == "A" else (wide, narrow)
    more = [word.format(out=tmp_path / "out") for word in COMMANDS[command]]
    read = ["--text", str(words), "--device", "cpu"]
    assert main([command.partition(" ")[0], *both, *more, *read]) == 0, capsys.readouterr().err


def test_windows_with_other_tokens_are_left_out_and_said(
    pairs: dict[str, tuple[str, str]], words: Path
) -> None:
    wide, narrow = map(open_checkpoint, pairs["llama_mha"])
    whole = texts.tokens(wide, str(words), 1024)
    assert whole.max() >= NARROW and whole.shape == (8, 128)
    for both in ((wide, narrow), (narrow, wide)):
        found, gone = shared.shared(*both, str(words), 1024)
        assert found.shape[1] == 16 and 32 <= len(found) < 64 and found.max() < NARROW
        cut = whole.reshape(64, 16)
        assert np.array_equal(found, cut[(cut < NARROW).all(1)])
        assert gone == (
            f"{64 - len(found)} windows of the text have tokens that only one model knows, and "
            "were left out"
        )
    same, gone = shared.shared(wide, wide, str(words), 1024)
    assert np.array_equal(same, whole) and not gone


def test_a_text_of_which_both_know_nothing_is_refused(
    pairs: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text(json.dumps([[NARROW, 1], [WIDE - 1, 2]]))
    wide, narrow = map(open_checkpoint, pairs["llama_mha"])
    with pytest.raises(Refused, match=r"holds token 95 .* have the first 88 in common"):
        shared.shared(wide, narrow, str(tmp_path / "x.json"), 1024)


def test_one_model_with_fewer_rows_than_its_tokenizer_refuses_the_text(
    pairs: dict[str, tuple[str, str]], words: Path, tmp_path: Path, capsys: Any
) -> None:
    said = "has rows for tokens 0 to 87"
    for command in (
        ["layers", "--out", f"{tmp_path}/x.json", "--text", str(words)],
        ["lab", "--text", str(words)],
        ["continue", "--prompt", max(tokenizer().get_vocab().items(), key=lambda x: x[1])[0]],
    ):
        assert main([command[0], pairs["llama_mha"][1], *command[1:]]) == 1
        assert said in capsys.readouterr().err


BAD: dict[str, tuple[str, ...]] = {
    **{name: more for name, more in COMMANDS.items() if name.partition(" ")[0] != "line"},
    "match by weights": ("--using", "weights", "--out", "{out}.npz"),
    "lab": (), "layers": ("--out", "{out}.json"), "cut": ("--out", "{out}.json"),
    "gap": ("--out", "{out}.json"), "prune": ("--drop", "1", "--out", "{out}"),
}  # fmt: skip


@pytest.mark.parametrize("command", sorted(BAD))
def test_a_named_file_that_is_none_is_refused_whether_it_is_read_or_not(
    command: str, pairs: dict[str, tuple[str, str]], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "bad.json").write_text('[["anna"]]')
    models = pairs["mixtral" if command == "experts" else "llama_mha"]
    alone = command in {"lab", "layers", "cut", "gap", "prune"}
    more = [word.format(out=tmp_path / "out") for word in BAD[command]]
    asked = [command.partition(" ")[0], *models[: 1 if alone else 2], *more]
    assert main([*asked, "--tokens", str(tmp_path / "bad.json")]) == 1
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "found 'anna'" in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_a_text_that_no_tokenizer_can_read_is_not_replaced_by_random_ids(
    built: Callable[[str], Path], words: Path, tmp_path: Path, capsys: Any
) -> None:
    folder = str(built("llama_mha"))
    for command in (["related"], ["align", "--out", str(tmp_path / "out")], ["heads"]):
        assert main([command[0], folder, folder, *command[1:], "--text", str(words)]) == 1
        assert "has no tokenizer" in capsys.readouterr().err
    assert main(["related", folder, folder]) == 0  # nobody named a text
    vit = str(built("vit"))
    assert main(["related", vit, vit, "--text", str(words)]) == 1
    assert "reads images, and words.txt is a text" in capsys.readouterr().err
