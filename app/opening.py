"""Models that take time to open (downloads, GGUF files): opened once, by a job, then a folder."""

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from engine.errors import Progress, Refused
from engine.sources import SMOLLM2, resolve


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


def present(spec: str) -> Path | None:
    """The folder of a slow model that is here already, without downloading anything."""
    opening = Opening(spec)
    if places().get(opening.key) is None and spec.startswith("hf:"):
        try:
            places().put(opening.key, resolve(spec, offline=True))
        except Refused:
            return None
    return places().get(opening.key)
