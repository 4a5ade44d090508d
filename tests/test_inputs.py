"""Models as pages ask for them: what the engine is given, what is on offer, what is in use."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from app import inputs, opening, session
from app.settings import Settings
from engine.errors import Refused
from engine.sources import SMOLLM2
from tests import fakes
from tests.allowed import SHARED


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder under which models may be opened, in a process that begins anew."""
    folder = tmp_path / "models"
    folder.mkdir()
    started = Settings(None, "demo:seed-1", "auto", (folder,), hosted=False)
    for name, value in started.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GAUGESCOPE_A", raising=False)
    monkeypatch.delenv("GAUGESCOPE_HOSTED", raising=False)
    monkeypatch.setenv("GAUGESCOPE_STORE", str(tmp_path / "store"))
    for shared in SHARED:
        shared.cache_clear()
    yield folder
    for shared in SHARED:
        shared.cache_clear()


def opened(spec: str, folder: Path) -> None:
    """As if a job had opened the model into a folder."""
    opening.places().put(opening.Opening(spec).key, folder)


def test_the_engine_is_given_the_folder_of_what_a_hub_holds(root: Path, tmp_path: Path) -> None:
    opened("hf:owner/name", tmp_path / "snapshot")
    assert inputs.located("hf:owner/name") == str(tmp_path / "snapshot")
    assert not inputs.unopened("hf:owner/name")
    assert inputs.unopened("hf:owner/other")
    with pytest.raises(Refused, match="hf:owner/other has not been opened yet: open it on the"):
        inputs.located("hf:owner/other")


def test_the_engine_is_given_a_file_itself(root: Path, tmp_path: Path) -> None:
    file = root / "tiny.gguf"
    file.write_bytes(b"GGUF")
    opened(str(file), tmp_path / "dequantised")
    assert inputs.located("tiny.gguf") == str(file)
    opened(SMOLLM2, tmp_path / "smollm2")
    assert inputs.located(SMOLLM2) == SMOLLM2
    assert inputs.label(SMOLLM2) == "SmolLM2-135M" and inputs.label("demo:base") == "demo:base"


def test_a_folder_is_named_under_its_root_and_found_in_full(root: Path) -> None:
    folder = fakes.checkpoint(root / "mine", 0)
    assert inputs.named(folder) == "mine"
    assert inputs.located("mine") == str(folder)
    assert inputs.located("demo:base") == "demo:base"
    assert inputs.folders() == ["mine"]
    assert [spec for spec in inputs.choices() if spec != SMOLLM2 and spec[:5] != "demo:"] == [
        "mine"]  # fmt: skip
    assert inputs.named(root.parent) == str(root.parent)
    with pytest.raises(Refused, match="is no folder under the allowed ones"):
        inputs.located(str(root.parent))


def test_the_pair_in_use_is_that_of_the_address_else_that_of_the_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[str, str] = {}
    monkeypatch.setattr(session, "value", held.get)
    assert inputs.starting_pair() == inputs.pair() == ("demo:base", "demo:seed-1")
    held |= {session.B: "demo:twin"}
    assert inputs.pair() == ("demo:base", "demo:twin")
    assert not inputs.same()
    held |= {session.A: "demo:twin"}
    assert inputs.same()
    assert inputs.chosen_device() == "auto"
    held |= {session.DEVICE: "cpu"}
    assert inputs.chosen_device() == "cpu"


@pytest.mark.parametrize(
    ("kind", "typed", "spec"),
    [
        ("Hub", " owner/name ", "hf:owner/name"), ("Hub", "  ", ""), ("Folder", "", "mine"),
        ("SmolLM2-135M", "", SMOLLM2), ("Demo", "", "demo:first"),
    ],
)  # fmt: skip
def test_the_fields_of_each_kind_name_a_model(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str, typed: str, spec: str
) -> None:
    fakes.checkpoint(root / "mine", 0)
    fields = SimpleNamespace(
        selectbox=lambda label, offered, key: offered[0], caption=lambda text: None,
        text_input=lambda label, placeholder, key: typed,
    )  # fmt: skip
    monkeypatch.setattr(inputs, "st", fields)
    monkeypatch.setattr(inputs, "demos", lambda: ["first", "second"])
    assert inputs._named(kind, "A") == spec
