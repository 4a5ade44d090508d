"""The user's own texts: pasted, uploaded or of a data set, kept below the results store.

A text is named by its content, and its file is found by that name alone: no path comes from a page.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from app.outputs import results
from app.sentences.numbers import size
from engine import datasets
from engine.checkpoint import open_checkpoint
from engine.datasets import LARGEST
from engine.errors import Progress, Refused
from engine.texts import amount

FULL = 500_000_000
"""Bytes of all texts that are kept."""
SHORTEST = 32
"""Tokens of a text that is measured on."""
FIELD = "text"
LINES = (".jsonl", ".ndjson")
NAME = re.compile(r"[a-z0-9-]{0,40}[0-9a-f]{12}")
SUFFIX = ".txt"


@dataclass(frozen=True)
class Kept:
    """A text that a question can read."""

    name: str  # what a link carries
    path: Path
    said: str  # where it came from, in words


def folder() -> Path:
    """Where texts are kept."""
    return results().root / "texts"


def kept() -> tuple[str, ...]:
    """The names of all texts that are kept."""
    found = folder().glob(f"*{SUFFIX}") if folder().is_dir() else ()
    return tuple(sorted(path.stem for path in found if NAME.fullmatch(path.stem)))


def located(name: str) -> Path:
    """The file of a kept text; Refused for every other name."""
    path = folder() / f"{name}{SUFFIX}"
    if not NAME.fullmatch(name) or not path.is_file():
        raise Refused(f"There is no text {name[:60]!r} here: paste or upload it again.")
    return path


def keep(data: bytes, name: str = "pasted") -> Kept:
    """Store a text by its content; `name` tells its kind (.jsonl), and is shown.

    Errors: Refused for what is too large, no UTF-8, empty, or no JSON lines with a text.
    """
    text, said = read(data, name)
    stem = f"{_slug(name)}{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    path = folder() / f"{stem}{SUFFIX}"
    if not path.is_file():
        _write(path, text)
    return Kept(stem, path, said)


def read(data: bytes, name: str) -> tuple[str, str]:
    """The text of a file's bytes, and in words where it was found. Errors: as for `keep`."""
    if len(data) > LARGEST:
        raise Refused(
            f"{name} has {size(len(data))}: a text of at most {size(LARGEST)} is taken; cut it."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(
            f"{name} is not UTF-8 (byte {error.start}): save it as UTF-8 text."
        ) from error
    said = "the text as it is"
    if PurePosixPath(name.lower()).suffix in LINES:
        text, said = documents(text, name)
    if not text.strip():
        raise Refused(f"{name} holds no text: give one with words in it.")
    return text.replace("\r\n", "\n"), said


def documents(text: str, name: str) -> tuple[str, str]:
    """The texts of JSON lines, a blank line between two, and which field they stand in.

    The field is `text`, else the only one of the first line that holds a string.
    """
    rows = [
        (number, _row(line, number, name))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not rows:
        raise Refused(f"{name} holds no line: give one JSON object a line.")
    field = _field(rows[0][1], name)
    for number, row in rows:
        if not isinstance(row.get(field), str):
            raise Refused(f"{name}, line {number}: the field {field!r} holds no string there.")
    return "\n\n".join(row[field] for _, row in rows), f"the field {field!r} of {len(rows):,} lines"


def _row(line: str, number: int, name: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"{name}, line {number}, is no JSON object: give one a line.")
    return found


def _field(row: dict[str, Any], name: str) -> str:
    strings = [field for field, value in row.items() if isinstance(value, str)]
    if FIELD in strings:
        return FIELD
    if len(strings) != 1:
        listed = ", ".join(strings[:5]) or "none"
        raise Refused(
            f"{name} has no field named {FIELD}, and {len(strings)} that hold strings ({listed}): "
            f"name the one that is meant {FIELD}."
        )
    return strings[0]


def _slug(name: str) -> str:
    """A name in small letters, digits and hyphens, with one at its end."""
    stem = PurePosixPath(name.replace("\\", "/")).stem.lower()
    return f"{re.sub(r'[^a-z0-9]+', '-', stem).strip('-')[:30].strip('-')}-".lstrip("-")


def _write(path: Path, text: str) -> None:
    """The file in one step. Errors: Refused where there is no room, or the folder is closed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        used = sum(other.stat().st_size for other in path.parent.glob(f"*{SUFFIX}"))
        if used + len(text.encode()) > FULL:
            raise Refused(f"{path.parent} holds {size(used)} of texts: remove some of them.")
        staged = path.with_suffix(".part")
        staged.write_text(text, encoding="utf-8", newline="")
        staged.replace(path)
    except OSError as error:
        raise Refused(
            f"The folder {path.parent} cannot be written ({error.strerror}): set GAUGESCOPE_STORE "
            "to one that can."
        ) from error


class Names:
    """What jobs about texts found while this process runs, by the key of the job."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def get(self, key: str) -> Any | None:
        return self._names.get(key)

    def put(self, key: str, record: Any) -> None:
        self._names[key] = record


@cache
def names() -> Names:
    """Those of this process: texts that it fetched, and how many tokens they have."""
    return Names()


@dataclass(frozen=True)
class Counting:
    """The request to count the tokens of a kept text, up to as many as are asked for."""

    model: str
    name: str
    most: int
    device: str = "disk"

    @cached_property
    def key(self) -> str:
        model = open_checkpoint(self.model).fingerprint
        said = f"tokens of {self.name} for {model} up to {self.most}"
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def answer(self, progress: Progress) -> int:
        """How many there are. Errors: Refused for a model without a tokenizer."""
        progress(0.5, "counting the tokens")
        return amount(open_checkpoint(self.model), str(located(self.name)), self.most)


def fitting(held: int, tokens: int, length: int) -> tuple[int, int]:
    """Tokens that are read of a text that has `held`, and the length of their windows.

    A text with fewer than are asked for gives all its whole windows, or one of all that it has.
    Errors: Refused for one that has fewer than `SHORTEST`.
    """
    if held < SHORTEST:
        raise Refused(
            f"This text has {held} tokens, and at least {SHORTEST} are measured on: paste or "
            "upload a longer one."
        )
    length = min(length, held)
    return min(tokens, held // length * length), length


@dataclass(frozen=True)
class Fetching:
    """The request to download the text of a data set of the hub."""

    dataset: str  # owner/name
    device: str = "disk"

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(f"text of {self.dataset}".encode()).hexdigest()[:32]

    def answer(self, progress: Progress) -> Kept:
        """The first text file of the data set, kept. Errors: Refused, see `engine.datasets`."""
        file, path = datasets.download(self.dataset, LARGEST, progress)
        found = keep(path.read_bytes(), PurePosixPath(file).name)
        return Kept(found.name, found.path, f"{file} of {self.dataset}: {found.said}")
