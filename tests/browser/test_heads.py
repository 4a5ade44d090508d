"""The Heads page in a browser, on the real engine: one screen for each architecture."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.settings import Settings
from engine.checkpoint import open_checkpoint
from engine.errors import silent
from tests.browser.conftest import WAIT, Site, fresh, serving

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT)


COSTS, ORDER = (
    "Cost of every head of A against every one of B",
    "Heads of A joined with their partners in B",
)
ANGLES, MODULI = (
    f"The {part} of every frequency of every key/value head" for part in ("angle", "modulus")
)
VALUES, QUERIES = (f"Singular values of the {part} matrices" for part in ("value", "query/key"))
DISGUISES = "Cost of heads against themselves in disguise, by either formula"
MARKS = {COSTS: "rect", ORDER: "line", ANGLES: "rect", MODULI: "rect", VALUES: "line",
         QUERIES: "line", DISGUISES: "symbol"}  # fmt: skip
"""Every picture by what a screen reader says of it, with a kind of mark that it must have."""
TURNED = (DISGUISES, ANGLES)


@dataclass(frozen=True)
class Screen:
    """A model, its heads, and the pictures that belong to its architecture."""

    a: str
    heads: int
    more: tuple[str, ...]


SCREENS = {
    "bert": Screen("demo:bert", 6, (QUERIES,)),
    "gpt2": Screen("demo:gpt2", 6, (QUERIES,)),
    "mixtral": Screen("demo:mixtral", 6, (*TURNED, MODULI)),
    "opt": Screen("opt", 3, (QUERIES,)),
    "pythia": Screen("demo:pythia", 6, (*TURNED, MODULI, QUERIES)),
    "qwen3": Screen("demo:qwen3", 6, TURNED),
    "vit": Screen("vit", 3, (QUERIES,)),
}
FURTHER = {"bert", "mixtral", "opt"}
"""Whose parts other screens show too."""


@pytest.fixture(scope="module")
def heads_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with a scrambled twin of each model, and nothing of them stored."""
    from engine.scramble import scramble  # torch and transformers come with them
    from tests import tiny

    folder = tmp_path_factory.mktemp("heads")
    root = folder / "models"
    root.mkdir()
    for name, screen in SCREENS.items():
        a = screen.a if screen.a.startswith("demo:") else tiny.build(name, root / name)
        scramble(open_checkpoint(a), root / f"{name}-twin", 1, (), silent)
    settings = Settings("demo:base", "demo:twin", "cpu", (root,), False)
    with serving(folder, settings, {name: f"{name}-twin" for name in SCREENS}) as served:
        yield served


def verdict(page: Page) -> Locator:
    return page.locator(".st-key-verdict")


def picture(page: Page, about: str) -> Locator:
    """A picture by what a screen reader says of it."""
    return page.locator(f"[data-testid=stVegaLiteChart][aria-label='{about}']")


def marks(page: Page, about: str) -> Locator:
    """What a picture has drawn."""
    return picture(page, about).locator(f"svg .mark-{MARKS[about]}.role-mark path")


def opened(page: Page, site: Site, **link: str) -> None:
    """Open an address and wait for the last part of the page."""
    page.goto(f"{site.address}/heads?{urlencode(link)}")
    expect(page.get_by_test_id("stCode").last).to_contain_text("python -m engine heads")
    sound(page)


def sound(page: Page) -> None:
    """No traceback, no refusal and no empty picture on the page, and nothing wider than it."""
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_text("refused", exact=True).count() == 0
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
    wide = page.evaluate(
        "[...document.querySelectorAll('[data-testid=stVegaLiteChart]')].map("
        "chart => (chart.querySelector('svg') ?? chart).getBoundingClientRect().right"
        " - chart.getBoundingClientRect().right)"
    )
    assert max(wide, default=0) <= 1


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in FURTHER else ()) for n in SCREENS]
)
def test_a_screen_for_every_architecture(
    heads_site: Site, browser: Browser, tmp_path: Path, name: str
):
    screen = SCREENS[name]
    with fresh(browser) as page:
        opened(page, heads_site, a=screen.a, b=heads_site.models[name])
        found = f"{screen.heads} of {screen.heads} heads found"
        expect(verdict(page)).to_contain_text(re.compile(f"^{found}.*exact"))
        expect(verdict(page)).to_be_in_viewport()
        here = {COSTS, ORDER, VALUES, *screen.more}
        for about in sorted(here):
            expect(marks(page, about).first).to_be_attached()
        assert marks(page, COSTS).count() == screen.heads**2 + 1  # and a frame
        assert not [about for about in MARKS if about not in here and picture(page, about).count()]
        turned = DISGUISES in here
        expect(page.locator(".st-key-clock .polarlayer").first).to_be_attached(attached=turned)
        why = f"Why {'not' if turned else 'is'} the published cost"
        expect(page.get_by_role("heading", name=why)).to_be_visible()
        sound(page)
        page.screenshot(path=tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_a_click_on_a_cell_shows_its_terms_the_second_best_and_the_margin(
    heads_site: Site, page: Page
):
    opened(page, heads_site)
    told = page.get_by_text(re.compile(r"Head \d of A against head \d of B"))
    expect(told).to_contain_text("Head 0 of A")
    cell = "svg .mark-rect path[aria-label*='head of A: 2;'][aria-label*='head of B: 3;']"
    picture(page, COSTS).locator(cell).first.click()
    expect(told).to_contain_text("Head 2 of A against head 3 of B")
    for part in ("query–key", "value–output", "Second best: B", "margin"):
        expect(told).to_contain_text(part)
    expect(page).to_have_url(re.compile(r"head=2&other=3"))
    sound(page)


def test_a_frequency_turned_by_hand_moves_the_objective_and_the_logits(
    heads_site: Site, page: Page
):
    opened(page, heads_site)
    objective = page.get_by_text(re.compile("^By hand the objective is"))
    logits = page.get_by_text(re.compile("Half way between A and the turned B"))
    expect(logits).to_be_visible()
    before = objective.inner_text(), logits.inner_text()
    page.get_by_role("slider", name="Angle by hand (degrees)").press("End")
    expect(objective).not_to_have_text(before[0])
    expect(logits).not_to_have_text(before[1])
    expect(page.locator(".st-key-turned")).to_contain_text("B's own output stays")
    sound(page)
    page.get_by_role("button", name="Set to the found turn").click()
    expect(objective).to_contain_text(re.compile(r"objective is (0\.00\d*|[\d.]+e-\d+) of"))


def test_two_architectures_are_told_apart_in_one_line(heads_site: Site, page: Page):
    page.goto(f"{heads_site.address}/heads?{urlencode({'a': 'demo:gpt2', 'b': 'demo:qwen3'})}")
    expect(verdict(page)).to_contain_text("Different groups")
    expect(verdict(page)).to_contain_text("family GPT-2 (gpt2) against Qwen3 (qwen3)")
    assert page.get_by_test_id("stException").count() == 0
