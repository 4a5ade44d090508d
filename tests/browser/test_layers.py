"""The three pages on layers in a browser: what comes with the program, and the engine once."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.settings import Settings
from tests.browser.conftest import WAIT, Site, fresh, serving

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT)

REPLACE, SWAP = (f"KL of every pair of layers, {test}" for test in ("replace", "swap"))
LAYERS = 6


@pytest.fixture(scope="module")
def shipped_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on the demo pair, with the results that come with the program."""
    folder = tmp_path_factory.mktemp("layers")
    settings = Settings("demo:base", "demo:twin", "auto", (folder,), False)
    with serving(folder, settings, {}) as served:
        yield served


def opened(page: Page, site: Site, path: str, **link: str) -> None:
    """Open an address and wait for the last part of the page."""
    page.goto(f"{site.address}/{path}?{urlencode(link)}")
    expect(page.get_by_role("heading", name="Take away")).to_be_visible()
    sound(page)


def sound(page: Page) -> None:
    """No traceback and no refusal on the page, and nothing wider than it."""
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_text("refused", exact=True).count() == 0
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0


def verdict(page: Page) -> Locator:
    return page.locator(".st-key-verdict")


def cells(page: Page, about: str) -> Locator:
    """The drawn cells of a map."""
    return page.locator(
        f"[data-testid=stVegaLiteChart][aria-label='{about}'] svg .mark-rect.role-mark path"
    )


def test_the_maps_stand_there_at_once_and_a_click_tells_a_pair(shipped_site: Site, page: Page):
    opened(page, shipped_site, "layers")
    expect(verdict(page)).to_be_in_viewport()
    for about in (REPLACE, SWAP):
        expect(cells(page, about).first).to_be_attached()
        assert cells(page, about).count() >= LAYERS * (LAYERS - 1)
    cell = f"[data-testid=stVegaLiteChart][aria-label='{SWAP}'] svg path"
    page.locator(f"{cell}[aria-label*='layer j: 4;'][aria-label*='depth i: 1;']").first.click()
    expect(page).to_have_url(re.compile(r"[?&]i=1(&|$)"))
    expect(page).to_have_url(re.compile(r"[?&]j=4(&|$)"))
    expect(page.get_by_role("spinbutton", name="Depth i")).to_have_value("1")
    expect(page.get_by_role("spinbutton", name="Layer j")).to_have_value("4")
    sound(page)


def test_published_maps_open_in_the_same_view_and_say_so(shipped_site: Site, page: Page):
    opened(page, shipped_site, "layers", source="published qwen3-8b")
    expect(verdict(page)).to_contain_text("published")
    expect(page.get_by_text("No Free Swap").first).to_be_visible()
    expect(page.get_by_text(re.compile("20 of (the |its )?102")).first).to_be_visible()
    expect(cells(page, REPLACE).first).to_be_attached()


def test_the_budget_and_the_own_cut_change_what_is_shown(shipped_site: Site, page: Page):
    opened(page, shipped_site, "cutting", n="1")
    expect(verdict(page)).to_be_in_viewport()
    one = verdict(page).inner_text()
    opened(page, shipped_site, "cutting", n="2", mine="4")
    expect(verdict(page)).not_to_have_text(one)
    expect(page.get_by_text(re.compile(r"[Ll]ayer 4")).first).to_be_visible()
    mine = page.get_by_text(re.compile(r"perplexity.*[+−-]\d"), exact=False).first
    expect(mine).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("mergekit")).first).to_be_visible()


def test_a_cut_that_cannot_be_is_told_in_one_line(shipped_site: Site, page: Page):
    page.goto(f"{shipped_site.address}/cutting?{urlencode({'mine': '4,99'})}")
    expect(page.get_by_text(re.compile("no layer 99"))).to_be_visible()
    expect(page.get_by_role("heading", name="Take away")).to_be_visible()
    assert page.get_by_test_id("stException").count() == 0


def test_the_gap_of_a_training_stands_beside_a_published_one(shipped_site: Site, page: Page):
    opened(page, shipped_site, "gap")
    expect(verdict(page)).to_be_in_viewport()
    expect(page.get_by_text(re.compile("[Pp]ublished")).first).to_be_visible()
    opened(page, shipped_site, "gap", series="seeds")
    expect(page.get_by_text("seed-1").first).to_be_attached()


def test_maps_that_are_not_there_are_measured_and_another_control_asks_anew(
    shipped_site: Site, page: Page
):
    opened(page, shipped_site, "layers", reach="1", count="256", length="16")
    expect(page.get_by_test_id("stCode").last).to_contain_text("--reach 1 --count 256 --length 16")
    assert cells(page, SWAP).count() >= LAYERS - 1
    page.reload()
    expect(page.get_by_role("heading", name="Take away")).to_be_visible()
    sound(page)


@pytest.mark.parametrize("path", ["layers", "cutting", "gap"])
def test_pages_fit_a_narrow_window(shipped_site: Site, browser: Browser, tmp_path: Path, path: str):
    with fresh(browser, 390, 844) as page:
        opened(page, shipped_site, path)
        page.screenshot(path=tmp_path / f"{path}.png")
        assert (tmp_path / f"{path}.png").stat().st_size > 10_000
