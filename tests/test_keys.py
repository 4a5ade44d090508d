"""A stored result is found by what its text became: the tokenizer's content, never its place."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assets.make_results import RESULTS
from engine import texts
from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.questions import Align, Check, Continue, Gap, Inspect, Lab, Layers, Match, Question
from engine.store import Store

ONE: list[Callable[[str], Question]] = [Layers, Lab, Continue, lambda model: Gap((model,))]
"""Questions about one model that read words."""


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(open_checkpoint("demo:base").folder, folder))


def exchanged(folder: Path) -> Path:
    """The same weights with two words of the vocabulary exchanged."""
    path = copied(folder) / "tokenizer.json"
    held = json.loads(path.read_text())
    words = held["model"]["vocab"]
    words["the"], words["a"] = words["a"], words["the"]
    path.write_text(json.dumps(held))
    return folder


def templated(folder: Path) -> Path:
    """The same tokenizer with a template for chats, which no text is read through."""
    (copied(folder) / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def wordless(folder: Path) -> Path:
    for path in copied(folder).glob("tokenizer*"):
        path.unlink()
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of the same weights, by how their tokenizer differs."""
    root = tmp_path_factory.mktemp("keys")
    kinds = (copied, exchanged, templated, wordless)
    return {kind.__name__: str(kind(root / kind.__name__)) for kind in kinds}


@pytest.mark.parametrize("ask", ONE, ids=["layers", "lab", "continue", "gap"])
def test_the_key_of_a_text_holds_the_tokenizer_and_no_path(
    ask: Callable[[str], Question], made: dict[str, str]
) -> None:
    keys = {kind: ask(folder).key for kind, folder in made.items()}
    assert ask("demo:base").key == keys["copied"] == keys["templated"]
    assert len({keys["copied"], keys["exchanged"], keys["wordless"]}) == 3


@pytest.mark.parametrize("ask", [Inspect, Check], ids=["inspect", "check"])
def test_a_question_without_a_text_does_not_care(
    ask: Callable[[str], Question], made: dict[str, str]
) -> None:
    assert {ask(folder).key for folder in made.values()} == {ask("demo:base").key}


@pytest.mark.parametrize("ask", [Match, Align], ids=["match", "align"])
def test_a_pair_reads_by_the_tokenizer_of_its_first_model(
    ask: Callable[[str, str], Question], made: dict[str, str]
) -> None:
    twin = "demo:twin"
    assert {ask(twin, folder).key for folder in made.values()} == {ask(twin, "demo:base").key}
    assert ask(made["exchanged"], twin).key != ask(made["copied"], twin).key


def read(folder: str) -> np.ndarray | None:
    try:
        return texts.tokens(open_checkpoint(folder), texts.DEFAULT, 512)
    except Refused:
        return None


def test_keys_tell_apart_what_the_tokens_of_a_text_tell_apart(made: dict[str, str]) -> None:
    mine, key = read("demo:base"), Layers("demo:base").key
    for folder in made.values():
        assert np.array_equal(read(folder), mine) == (Layers(folder).key == key)


def test_what_ships_is_found_for_a_copy_and_for_no_other_tokenizer(made: dict[str, str]) -> None:
    found = {kind: Store(RESULTS).has(Layers(folder).key) for kind, folder in made.items()}
    assert found == {"copied": True, "exchanged": False, "templated": True, "wordless": False}


def test_a_tokenizer_that_cannot_be_read_is_refused(
    made: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Layers(made["copied"])
    checkpoint = asked.checkpoints[0]

    def fails(path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fails)
        with pytest.raises(Refused, match="cannot be read: Input/output error"):
            _ = checkpoint.tokenizer
