"""The user's own texts: what is kept, under which name, and what is refused in one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine.texts
from app import opening, outputs, texts
from engine import datasets
from engine.checkpoint import open_checkpoint
from engine.errors import Refused, silent
from engine.questions import Barrier
from engine.sources import dequantised
from tests import fakes

BOTH = b'{"id": 1, "text": "one"}\n\n{"id": 2, "text": "two"}\n'


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own, offline off."""
    monkeypatch.setenv("GAUGESCOPE_STORE", str(tmp_path / "store"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "GAUGESCOPE_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    outputs.results.cache_clear()
    yield tmp_path / "store"
    outputs.results.cache_clear()


def refused(data: bytes, name: str = "notes.txt") -> str:
    with pytest.raises(Refused) as found:
        texts.keep(data, name)
    assert not texts.kept()
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_text_is_kept_by_its_content_and_found_by_its_name_alone():
    found = texts.keep("Grüße.\r\nZwei".encode(), "My notes.TXT")
    assert found.name.startswith("my-notes-") and len(found.name) == len("my-notes-") + 12
    assert found.path.read_text(encoding="utf-8") == "Grüße.\nZwei"
    assert found.said == "the text as it is"
    assert texts.located(found.name) == found.path
    assert texts.kept() == (found.name,)
    assert texts.keep("Grüße.\r\nZwei".encode(), "My notes.TXT") == found
    assert texts.keep(b"Other.", "My notes.TXT").name != found.name


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert texts.keep(b"\xef\xbb\xbfWords.").path.read_bytes() == b"Words."


def test_a_name_is_never_a_path(own):
    found = texts.keep(b"Words.", "../../..\\etc/pass wd;rm -rf.txt")
    assert found.path.parent == own / "texts"
    assert found.name.startswith("pass-wd-rm-rf-")
    (own / "secret.txt").write_text("secret")
    for name in ("../secret", "secret", "/etc/passwd", "", "a" * 80, "x-0123456789ab", "é" * 12):
        with pytest.raises(Refused, match="There is no text"):
            texts.located(name)


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"abc\xff", "notes.txt", "notes.txt is not UTF-8 (byte 3): save it as UTF-8 text."),
        (b" \n\t", "notes.txt", "notes.txt holds no text: give one with words in it."),
        (b"", "notes.txt", "notes.txt holds no text: give one with words in it."),
        (b"\n", "a.jsonl", "a.jsonl holds no line: give one JSON object a line."),
        (b'{"text": "one"}\n[1]', "a.jsonl", "a.jsonl, line 2, is no JSON object"),
        (b'{"text": "one"}\n{"text": ', "a.jsonl", "a.jsonl, line 2, is no JSON object"),
        (b"[" * 100_000, "a.jsonl", "a.jsonl, line 1, is no JSON object"),
        (b'{"text": "one"}\n\n{"text": 2}', "a.jsonl", "line 3: the field 'text' holds no string"),
        (b'{"a": "x", "b": "y"}', "a.jsonl",
         "a.jsonl has no field named text, and 2 that hold strings (a, b)"),
        (b'{"a": 1}', "a.jsonl", "a.jsonl has no field named text, and 0 that hold strings (none)"),
        (b'{"text": " "}', "a.jsonl", "a.jsonl holds no text"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_in_one_line(data, name, said):
    assert said in refused(data, name)


def test_a_text_that_is_too_large_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(texts, "LARGEST", 1_000_000)
    assert refused(b"a" * 1_000_001) == (
        "notes.txt has 1.0 MB: a text of at most 1.0 MB is taken; cut it."
    )
    assert texts.keep(b"a" * 1_000_000).path.stat().st_size == 1_000_000


def test_a_full_folder_takes_no_more(monkeypatch):
    monkeypatch.setattr(texts, "FULL", 10)
    first = texts.keep(b"12345678")
    with pytest.raises(Refused, match="holds 8 bytes of texts: remove some of them"):
        texts.keep(b"123")
    assert texts.kept() == (first.name,)


def test_a_folder_that_cannot_be_written_is_named(own):
    own.mkdir()
    (own / "texts").write_text("a file")
    with pytest.raises(Refused, match=r"cannot be written .*set GAUGESCOPE_STORE"):
        texts.keep(b"Words.")


def test_json_lines_give_the_field_text_or_the_only_string():
    found = texts.keep(BOTH, "rows.jsonl")
    assert found.path.read_text() == "one\n\ntwo"
    assert found.said == "the field 'text' of 2 lines"
    other = texts.keep(b'{"id": 1, "body": "x"}\r\n{"body": "y", "id": 2}', "rows.ndjson")
    assert other.path.read_text() == "x\n\ny"
    assert other.said == "the field 'body' of 2 lines"
    plain = texts.keep(BOTH, "rows.txt")  # the same bytes, called a text, are one
    assert plain.path.read_text() == BOTH.decode()


def test_the_key_of_a_question_follows_the_text_and_no_path(tmp_path):
    a, b = (str(fakes.checkpoint(tmp_path / name, n)) for n, name in enumerate("ab"))
    one, two = texts.keep(b"One text."), texts.keep(b"Two texts.")
    keys = {text: Barrier(a, b, text=text).key for text in map(str, (one.path, two.path))}
    assert len(set(keys.values())) == 2
    moved = tmp_path / "moved.txt"
    moved.write_bytes(one.path.read_bytes())
    assert Barrier(a, b, text=str(moved)).key == keys[str(one.path)]
    assert Barrier(a, b).key not in keys.values()


class Hub:
    """A hub with one data set."""

    def __init__(self, sizes: dict[str, int | None], fails: Exception | None = None) -> None:
        self.sizes, self.fails = sizes, fails

    def dataset_info(self, name: str, *, files_metadata: bool) -> Any:
        assert files_metadata
        if self.fails is not None:
            raise self.fails
        listed = [SimpleNamespace(rfilename=k, size=v) for k, v in self.sizes.items()]
        return SimpleNamespace(siblings=listed)


def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sizes: Any, fails: Any = None) -> list:
    asked: list[Any] = []

    def download(name: str, file: str, *, repo_type: str) -> str:
        asked.append((name, file, repo_type))
        (tmp_path / "file").write_bytes(BOTH)
        return str(tmp_path / "file")

    monkeypatch.setattr("huggingface_hub.HfApi", lambda: Hub(sizes, fails))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return asked


def test_the_first_small_text_file_of_a_data_set_is_taken(monkeypatch, tmp_path):
    sizes = {"z.txt": 5, "data/rows.jsonl": 50, "a.parquet": 10, "a.txt": 10**9, "b.txt": None}
    asked = hub(monkeypatch, tmp_path, sizes)
    found = texts.Fetching("owner/name").answer(silent)
    assert asked == [("owner/name", "data/rows.jsonl", "dataset")]
    assert found.path.read_text() == "one\n\ntwo"
    assert found.said == "data/rows.jsonl of owner/name: the field 'text' of 2 lines"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"a.parquet": 5, "b.csv": 5}, "has no .txt, .jsonl, .ndjson file (it has .csv, .parquet)"),
        ({}, "has no .txt, .jsonl, .ndjson file (it has none)"),
        ({"a.txt": 10**9}, "has no text file of at most 20 MB, only larger ones (a.txt)"),
    ],
)
def test_a_data_set_without_a_text_is_refused(monkeypatch, tmp_path, sizes, said):
    asked = hub(monkeypatch, tmp_path, sizes)
    with pytest.raises(Refused) as found:
        texts.Fetching("owner/name").answer(silent)
    assert said in str(found.value)
    assert asked == []


@pytest.mark.parametrize("name", ["", "name", "a/b/c", "../x", "owner/na me", "http://x/y"])
def test_what_is_no_id_is_never_asked_for(monkeypatch, tmp_path, name):
    asked = hub(monkeypatch, tmp_path, {"a.txt": 5}, AssertionError("asked"))
    with pytest.raises(Refused, match="is no data set of the hub: write owner/name"):
        datasets.download(name, 10, silent)
    assert asked == []


def test_a_hub_that_does_not_answer_is_one_line(monkeypatch, tmp_path):
    hub(monkeypatch, tmp_path, {}, OSError("no\nroute"))
    with pytest.raises(Refused) as found:
        datasets.download("owner/name", 10, silent)
    assert str(found.value) == (
        "owner/name could not be downloaded (no route): check the network, or upload a file."
    )


def test_offline_nothing_is_downloaded(monkeypatch, tmp_path):
    asked = hub(monkeypatch, tmp_path, {"a.txt": 5}, AssertionError("asked"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refused, match="Downloads are off: paste the text, or upload a file"):
        datasets.download("owner/name", 10, silent)
    assert asked == []


def test_no_path_of_the_machine_is_told_to_who_names_a_text():
    with pytest.raises(Refused) as found:
        texts.located("x-0123456789ab")
    assert "/" not in str(found.value)


@pytest.mark.parametrize(
    ("held", "read"),
    [(5000, (2048, 128)), (2048, (2048, 128)), (2047, (1920, 128)), (128, (128, 128)),
     (127, (127, 127)), (32, (32, 32))],
)  # fmt: skip
def test_a_short_text_gives_its_whole_windows_or_one_of_all_it_has(held, read):
    assert texts.fitting(held, 2048, 128) == read


def test_a_text_of_a_few_words_is_refused_in_the_words_of_the_page():
    with pytest.raises(Refused, match="31 tokens, and at least 32 are measured on") as found:
        texts.fitting(31, 2048, 128)
    assert "--" not in str(found.value)


def test_tokens_are_counted_as_they_are_read():
    found = texts.keep(b"anna puts the book on the table . tom sees it . " * 5)
    base = open_checkpoint("demo:base")
    held = texts.Counting("demo:base", found.name, 2048).answer(silent)
    tokens = engine.texts.tokens(base, str(found.path), held, held)
    assert tokens.shape == (1, held) and held < 100
    with pytest.raises(Refused, match="fewer than"):
        engine.texts.tokens(base, str(found.path), held + 1, held + 1)
    few = texts.Counting("demo:base", found.name, 10)
    assert few.answer(silent) == 10
    other = texts.keep(b"anna puts the book on the table .")
    keys = {few.key, texts.Counting("demo:base", other.name, 10).key,
            texts.Counting("demo:base", found.name, 11).key}  # fmt: skip
    assert len(keys) == 3


def test_a_dequantised_model_opens_without_being_asked_for(own, tmp_path, monkeypatch):
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF and more")
    opening.places.cache_clear()
    assert opening.present(str(file)) is None
    folder = dequantised(file)
    assert folder.is_relative_to(own)
    folder.mkdir(parents=True)
    monkeypatch.setattr(opening, "is_model", Path.is_dir)
    assert opening.present(str(file)) == folder
    opening.places.cache_clear()
    file.write_bytes(b"GGUF and something else")  # another file is another model
    assert opening.present(str(file)) is None
    assert opening.present(str(tmp_path / "missing.gguf")) is None
    opening.places.cache_clear()
