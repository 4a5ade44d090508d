# ruff: noqa: T201 (a script that prints)
"""The app in Chromium on the demo pair: `python tests/bench/bench_pages.py`.

First page: seconds from a server that answers to the verdict on screen, beside an empty Streamlit
page opened in the same way. Warm pages: seconds from a click in the sidebar to all charts drawn.
Scripts: seconds that a page's own Python takes, without a browser.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, sync_playwright
from streamlit.testing.v1 import AppTest

EMPTY = "import streamlit as st\nst.container(key='verdict').write('ready')\n"
CHARTS = {"models": ("[data-testid=stVegaLiteChart]", 2), "residual": (".js-plotly-plot", 5)}
VISITS = 20
LAUNCH = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def serving(script: Path, folder: Path) -> Iterator[str]:
    """A fresh server; its address once the port answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    environment = os.environ | {"GAUGESCOPE_STORE": str(folder / "store")}
    server = subprocess.Popen(
        [*command, "--server.headless", "true"],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def first_page(browser: Browser, script: Path, folder: Path) -> float:
    """Seconds to the verdict in a new browser context and a new server."""
    with serving(script, folder) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        began = time.perf_counter()
        page.goto(address)
        page.locator(".st-key-verdict").first.wait_for(timeout=120_000)
        taken = time.perf_counter() - began
        page.close()
    return taken


def warm(page: Page, name: str) -> float:
    """Seconds from the click on a page's name to its last chart."""
    selector, count = CHARTS[name]
    began = time.perf_counter()
    page.locator("[data-testid=stSidebarNavLink]", has_text=name.title()).click()
    page.locator(selector).nth(count - 1).wait_for(state="attached", timeout=120_000)
    return time.perf_counter() - began


def warm_pages(browser: Browser, folder: Path) -> dict[str, dict[str, float]]:
    """Median and 95th percentile of going back and forth between the pages."""
    times: dict[str, list[float]] = {name: [] for name in CHARTS}
    with serving(ROOT / "app" / "main.py", folder) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.locator(".st-key-verdict").wait_for(timeout=120_000)
        for visit in range(VISITS + 2):
            for name in ("residual", "models"):
                taken = warm(page, name)
                if visit >= 2:
                    times[name].append(taken)
    return {
        name: {"median_s": statistics.median(t), "p95_s": statistics.quantiles(t, n=20)[-1]}
        for name, t in times.items()
    }


def scripts() -> dict[str, float]:
    """Median seconds of a page's script on the stored demo results, run again and again."""
    found = {}
    test = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=120)
    test.run()
    for name in CHARTS:
        test.switch_page(str(ROOT / "pages" / f"{name}.py"))
        times = []
        for _ in range(7):
            began = time.perf_counter()
            test.run()
            times.append(time.perf_counter() - began)
        found[name] = statistics.median(times[2:])
    return found


def main() -> None:
    """Run all and print one JSON document."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as start:
        folder = Path(made)
        empty = folder / "empty.py"
        empty.write_text(EMPTY)
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = start.chromium.launch(executable_path=path, args=LAUNCH)
        app = ROOT / "app" / "main.py"
        ours = [first_page(browser, app, folder) for _ in range(3)]
        theirs = [first_page(browser, empty, folder) for _ in range(3)]
        figures = {
            "first_page_s": statistics.median(ours),
            "empty_streamlit_page_s": statistics.median(theirs),
            "ratio": statistics.median(ours) / statistics.median(theirs),
            "warm": warm_pages(browser, folder),
            "script_s": scripts(),
        }
        browser.close()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
