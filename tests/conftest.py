"""One thread, no network, reproducible examples; the algebra runs with its annotations checked."""

import fcntl
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import jaxtyping
import pytest
import torch
from hypothesis import settings

from tests.offline import OFFLINE

CHECKED = (
    "action", "alignment.candidates", "alignment.descent", "alignment.gauges", "alignment.heads",
    "alignment.listening", "alignment.neuron_scores", "alignment.neurons", "alignment.one_pass",
    "alignment.proposals", "alignment.refinement", "alignment.relatedness", "alignment.sensing",
    "alignment.sweeps", "alignment.weighing", "assignment", "elements", "groups", "symmetry",
)  # fmt: skip
"""Modules of the engine whose annotations, shapes included, are checked at every call."""

os.environ |= OFFLINE
jaxtyping.install_import_hook([f"engine.{name}" for name in CHECKED], "beartype.beartype")

from engine.elements import Element
from engine.groups import Group


def remember(protocol: type) -> None:
    """Ask every class once whether it keeps a protocol, where typing asks every object again.

    Python 3.11 reads all properties of the object for that: half of the time of the algebra.
    """
    found: dict[tuple[type, type], bool] = {}
    kind = type(protocol)

    def asked(cls: type, instance: object) -> bool:
        pair = cls, type(instance)
        if pair not in found:
            found[pair] = kind.__instancecheck__(cls, instance)
        return found[pair]

    protocol.__class__ = type(f"Remembering{kind.__name__}", (kind,), {"__instancecheck__": asked})


for protocol in (Element, Group):
    remember(protocol)

torch.set_num_threads(1)
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=15, database=None)
settings.load_profile("laws")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests first, then those with many: no worker is left alone with one."""
    long = {
        item.path for item in items if {"browser", "slow"} & {m.name for m in item.iter_markers()}
    }
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in long, -count[item.path], item.path))


@pytest.fixture(scope="session", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the tests keep results."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("store")
        patch.setenv("GAUGESCOPE_STORE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def scanned() -> Iterator[None]:
    """Every page under test begins with a scan of all installed packages: one scan for all."""
    with pytest.MonkeyPatch.context() as patch:
        if "streamlit.testing.v1" in sys.modules:  # no page is tested without it
            from streamlit.components.v2 import manifest_scanner

            scan = cache(manifest_scanner.scan_component_manifests)
            patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield


@pytest.fixture(scope="session")
def dequantised(store: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """SmolLM2 in this worker's store: the first worker that asks writes it for all of a run."""
    from engine.sources import SMOLLM2, resolve  # torch comes with it

    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = tmp_path_factory.getbasetemp()
    models = (base if alone else base.parent) / "dequantised"
    models.mkdir(exist_ok=True)
    with (models / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        written = resolve(SMOLLM2, models=models)
    (store / "models").mkdir(exist_ok=True)
    (store / "models" / written.name).symlink_to(written)


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
