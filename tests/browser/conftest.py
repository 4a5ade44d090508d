"""A real server on this machine, on stored records, and Chromium."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from app.settings import ROOT, Settings
from engine.questions import Align, Check, Inspect, Match
from engine.store import Store
from tests import fakes

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT = 180_000
"""Milliseconds; a machine that does other work is slow."""


@dataclass(frozen=True)
class Site:
    """A running server and the models that it shows."""

    address: str
    models: dict[str, str]


@contextmanager
def serving(folder: Path, settings: Settings, models: dict[str, str]) -> Iterator[Site]:
    """`streamlit run` from another working directory, stopped at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings_of = settings.environment() | {"GAUGESCOPE_STORE": str(folder / "store")}
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "app" / "main.py")]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--server.port", str(port)],
            env=os.environ | settings_of,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            reach(port, server)
            yield Site(f"http://127.0.0.1:{port}", models)
        finally:
            server.terminate()
            server.wait(30)


def reach(port: int, server: subprocess.Popen) -> None:
    """Wait until the server answers."""
    for _ in range(600):
        assert server.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three checkpoints of one shape; base and twin measured, base and wide with a wide match."""
    folder = tmp_path_factory.mktemp("site")
    root = folder / "models"
    root.mkdir()
    names = ("base", "twin", "wide")
    models = {name: str(fakes.checkpoint(root / name, n)) for n, name in enumerate(names)}
    store = Store(folder / "store")
    for name, letter in zip(names, "abc", strict=True):
        path = models[name]
        store.put(Inspect(path).key, fakes.model_card(name, letter * 16))
        store.put(Check(path).key, fakes.self_test(1.1e-6))
    base, twin, wide = (models[name] for name in names)
    for question, record in (
        (Align(base, twin), fakes.alignment()),
        (Match(base, twin), fakes.residual_match()),
        (Align(base, wide), fakes.alignment(fakes.Logits(between=5.0), left=0.9)),
        (Match(base, wide), fakes.residual_match(width=800, layers=1)),
    ):
        store.put(question.key, record)
    with serving(folder, Settings(base, twin, "auto", (root,), False), models) as served:
        yield served


@pytest.fixture(scope="session")
def engine_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on the demo models and the engine, with nothing of its device stored."""
    folder = tmp_path_factory.mktemp("engine")
    settings = Settings("demo:base", "demo:seed-1", "cpu", (folder,), False)
    with serving(folder, settings, {}) as served:
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own session, which must not report errors."""
    with fresh(browser) as opened:
        yield opened


@contextmanager
def fresh(browser: Browser, width: int = 1280, height: int = 800) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(WAIT)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors
