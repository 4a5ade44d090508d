"""Two checkpoints in an allowed folder, for tests of pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import opening, outputs, written
from app.settings import Settings
from engine.questions import Inspect
from tests import fakes

SHARED = (outputs.results, outputs.registry, opening.places, written.places)
"""What a process makes once, from its settings."""


@contextmanager
def stored_pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """A pair with its cards stored and nothing measured; the process begins anew with it."""
    root = folder / "models"
    root.mkdir()
    a, b = (str(fakes.checkpoint(root / name, n)) for n, name in enumerate(("base", "twin")))
    for name, value in Settings(a, b, "auto", (root,), False).environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GAUGESCOPE_STORE", str(folder / "store"))
    for shared in SHARED:
        shared.cache_clear()
    outputs.results().put(Inspect(a).key, fakes.model_card("base", "a" * 16))
    outputs.results().put(Inspect(b).key, fakes.model_card("twin", "b" * 16))
    yield a, b
    for shared in SHARED:
        shared.cache_clear()
