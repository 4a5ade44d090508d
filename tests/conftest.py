"""One thread, no network, reproducible examples; the algebra runs with its annotations checked."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import jaxtyping
import pytest
import torch
from hypothesis import settings

CHECKED = (
    "action", "alignment.candidates", "alignment.gauges", "alignment.heads", "alignment.listening",
    "alignment.neuron_scores", "alignment.neurons", "alignment.one_pass", "alignment.proposals",
    "alignment.refinement", "alignment.relatedness", "alignment.sweeps", "assignment", "elements",
    "groups", "symmetry",
)  # fmt: skip
"""Modules of the engine whose annotations, shapes included, are checked at every call."""

jaxtyping.install_import_hook([f"engine.{name}" for name in CHECKED], "beartype.beartype")
os.environ |= {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
}
torch.set_num_threads(1)
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=15, database=None)
settings.load_profile("laws")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests first, so that no worker is left alone with one at the end."""
    long = {
        item.path for item in items if {"browser", "slow"} & {m.name for m in item.iter_markers()}
    }
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the tests keep results."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("store")
        patch.setenv("GAUGESCOPE_STORE", str(folder))
        yield folder


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Two checkpoints in an allowed folder, their cards stored, nothing measured."""
    from tests.allowed import stored_pair  # the app is imported by the tests that need it

    with stored_pair(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def generator() -> torch.Generator:
    """A generator with a fixed seed."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of the tiny checkpoints by architecture, each written once."""
    from tests import tiny  # transformers is imported by the tests that need it

    folder = tmp_path_factory.mktemp("tiny")
    return cache(lambda architecture: tiny.build(architecture, folder / architecture))
