"""The root of the app: names and folders of written checkpoints, devices, the command line."""

import importlib.machinery
import sys
import types
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app import devices, outputs, settings, written
from app.__main__ import started
from app.aligned import Aligning
from app.merged import Merging
from app.pruned import Pruning
from app.settings import Settings
from engine.errors import Refused


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of written checkpoints in an empty store."""
    held: Any = SimpleNamespace(models=tmp_path / "store" / "models")
    monkeypatch.setattr(written, "results", lambda: held)
    return held.models


def asked(key: str, a: str, b: str, **more: Any) -> Any:
    """A question of this key about two checkpoints, by what their fingerprints begin with."""
    both = (SimpleNamespace(fingerprint=f"{letters}{'0' * 24}") for letters in (a, b))
    return SimpleNamespace(key=key, checkpoints=tuple(both), **more)


def test_a_checkpoint_is_named_by_both_models_and_by_how_it_was_made(models: Path) -> None:
    a, b, key = "a1a1a1a1", "b2b2b2b2", "0123456789abcdef"
    aligned = Aligning(asked(key, a, b, device="cpu"))
    assert aligned.name == "aligned-b2b2b2b2-to-a1a1a1a1-01234567"
    assert aligned.out == models / aligned.name
    assert aligned.device == "cpu"
    merged = Merging(asked(key, a, b, t=0.25))
    assert merged.name == "merged-a1a1a1a1-b2b2b2b2-0.25-01234567"
    pruned = Pruning("model", (3, 5, 10))
    pruned.__dict__["checkpoint"] = SimpleNamespace(fingerprint="c3c3c3c3ffff")
    assert pruned.name == "pruned-c3c3c3c3-without-3-5-10"
    assert pruned.device == "disk"


@dataclass(frozen=True)
class Named(written.Writing):
    """The request to write a checkpoint of this name."""

    called: str

    @cached_property
    def key(self) -> str:
        return "fedcba9876543210"

    @property
    def name(self) -> str:
        return self.called

    def fill(self, out: Path, progress: Any) -> None:
        out.mkdir()
        (out / "config.json").write_text(self.called)


@pytest.mark.parametrize(("length", "kept"), [(7, True), (120, True), (121, False)])
def test_a_name_that_is_too_long_for_a_folder_ends_in_its_key(
    models: Path, length: int, kept: bool
) -> None:
    name = ("pruned-" + "0123456789" * 20)[:length]
    found = name if kept else f"{name[:100]}-fedcba98"
    assert Named(name).out == models / found


def test_a_checkpoint_is_written_once(models: Path) -> None:
    said: list[float] = []
    wanted = Named("merged-1")
    assert wanted.answer(said.append) == models / "merged-1"
    (models / "merged-1" / "config.json").write_text("mine")
    assert wanted.answer(said.append) == models / "merged-1"
    assert (models / "merged-1" / "config.json").read_text() == "mine"
    (models.parent / "file").write_text("")
    written.results().models = models.parent / "file" / "models"
    with pytest.raises(Refused, match=r"cannot be made .*set GAUGESCOPE_STORE to one that can be"):
        Named("merged-2").answer(said.append)


def test_an_imported_torch_is_used_and_says_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert devices.torch_ready() is torch
    for cuda, mps, found in (
        (False, False, ()), (True, False, ("cuda",)), (False, True, ("mps",)),
        (True, True, ("cuda", "mps")),
    ):  # fmt: skip
        here = [SimpleNamespace(is_available=partial(bool, one)) for one in (cuda, mps)]
        monkeypatch.setattr(torch, "cuda", here[0], raising=False)
        monkeypatch.setattr(torch, "backends", SimpleNamespace(mps=here[1]), raising=False)
        assert devices.devices() == ("auto", "cpu", *found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo:base"], "give two models, A and B, or none"),
        (["--port", "65536"], "--port 65536 is not between 1 and 65535"),
        (["--port", "0"], "--port 0 is not between 1 and 65535"),
        (["--device", "tpu"], "--device tpu is none of auto, cpu, cuda, cuda:1, mps"),
        (["--roots", "/nowhere"], "--roots /nowhere is no folder"),
    ],
)
def test_wrong_usage_is_told_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        started(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"python -m app: error: {said}"


def test_the_command_line_becomes_the_settings(tmp_path: Path) -> None:
    found, port = started(["--port", "65535", "--device", "cuda:1", "--roots", str(tmp_path)])
    assert (found.device, found.hosted, found.roots, port) == ("cuda:1", False, (tmp_path,), 65535)
    found, port = started(["demo:base", "smollm2", "--hosted", "--roots", str(tmp_path)])
    assert (found.a, found.b, found.device, found.hosted) == ("demo:base", "smollm2", "auto", True)
    assert (port, found.roots) == (8501, (tmp_path,))


def test_settings_are_handed_over_by_the_environment() -> None:
    given = Settings("demo:base", None, "cpu", (Path("/x"), Path("/y")), hosted=True)
    assert given.environment() == {
        "GAUGESCOPE_A": "demo:base", "GAUGESCOPE_HOSTED": "1", "GAUGESCOPE_DEVICE": "cpu",
        "GAUGESCOPE_ROOTS": "/x:/y",
    }  # fmt: skip
    assert settings.settings(given.environment()) == given
    assert settings.settings({"GAUGESCOPE_B": "b", "GAUGESCOPE_HOSTED": "0"}) == Settings(
        None, "b", "auto", (Path.cwd(),), hosted=False
    )


def test_text_stands_in_markdown_as_it_is() -> None:
    assert outputs.plain("W_q[0] * 2") == r"W\_q\[0\] \* 2"
