"""Models that take time to open (downloads, GGUF files): opened once, by a job, then a folder."""

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from app.sentences.numbers import size
from engine.errors import Progress, Refused
from engine.sources import SMOLLM2, dequantised, is_model, packaged, resolve


class Places:
    """Where this process found the models that it opened, by the key of their opening."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}

    def get(self, key: str) -> Path | None:
        return self._folders.get(key)

    def put(self, key: str, record: Path) -> None:
        self._folders[key] = record


@cache
def places() -> Places:
    """The places of this process."""
    return Places()


def slow(spec: str) -> bool:
    """Whether opening it may download or dequantise."""
    return spec == SMOLLM2 or spec.startswith("hf:") or spec.lower().endswith(".gguf")


def cost(spec: str) -> str:
    """What opening it does, and how large what it reads is. Errors: Refused as for the file."""
    if spec.startswith("hf:"):
        return "Downloads its weights, configuration and tokenizer from the hub, once."
    file = packaged() if spec == SMOLLM2 else Path(spec)
    held = f" of {size(file.stat().st_size)}" if file.is_file() else ""
    return f"Writes its file{held} out as float32 into the store, once: several times as large."


@dataclass(frozen=True)
class Opening:
    """The request to open a slow model."""

    spec: str
    device: str = "disk"

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(f"open {self.spec}".encode()).hexdigest()[:32]

    def answer(self, progress: Progress) -> Path:
        return resolve(self.spec, progress=progress)


def _dequantised(file: Path) -> Path | None:
    """The checkpoint of a GGUF file that was dequantised before, by whomever."""
    if not file.is_file():
        return None
    state = file.stat()
    folder = _place(file, state.st_size, state.st_mtime_ns)
    return folder if is_model(folder) else None


@cache
def _place(file: Path, _size: int, _changed: int) -> Path:
    """Where its checkpoint is put: reading all of a file is done once for each state of it."""
    return dequantised(file)


def present(spec: str) -> Path | None:
    """The folder of a slow model that is here already, without downloading or dequantising."""
    opening = Opening(spec)
    if places().get(opening.key) is None and not spec.startswith("hf:"):
        found = _dequantised(packaged() if spec == SMOLLM2 else Path(spec))
        if found is not None:
            places().put(opening.key, found)
    if places().get(opening.key) is None and spec.startswith("hf:"):
        try:
            places().put(opening.key, resolve(spec, offline=True))
        except Refused:
            return None
    return places().get(opening.key)
