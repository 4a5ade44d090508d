"""The Barrier page in a browser: a deep link, the slider, and a cancel in the middle."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from app.settings import Settings
from engine.questions import Barrier, Written
from engine.store import Store
from tests import fake_barriers
from tests.browser.conftest import WAIT, Site, fresh, serving

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT)

A, B = "demo:base", "demo:seed-1"


@pytest.fixture(scope="module")
def line_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on two demo models; one scope stored, the whole model not."""
    folder = tmp_path_factory.mktemp("line")
    store = Store(folder / "store")
    asked = Barrier(A, B, scope="first-layer", device="cpu")
    store.put(asked.key, fake_barriers.scoped(scope="first-layer"))
    for t in ((0.0, 0.25, 1.0), (0.0, 0.292, 1.0)):
        told = Written(A, B, at=t, scope="first-layer", device="cpu")
        store.put(told.key, fake_barriers.writing(t))
    with serving(folder, Settings(A, B, "cpu", (folder,), False), {}) as served:
        yield served


def sound(page: Page) -> None:
    """No traceback and no refusal on the page, and nothing wider than it."""
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_text("refused", exact=True).count() == 0
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0


def opened(page: Page, site: Site, **link: str) -> None:
    page.goto(f"{site.address}/barrier?{urlencode(link)}")
    expect(page.get_by_role("heading", name="Take away")).to_be_visible()
    sound(page)


def test_a_deep_link_opens_scope_and_t_and_the_slider_moves_the_address(
    line_site: Site, page: Page
):
    opened(page, line_site, scope="first-layer", t="0.25")
    expect(page.locator(".st-key-verdict")).to_contain_text("Only the first layer is interpolated")
    expect(page.get_by_text("At t = 0.25", exact=True)).to_be_visible()
    expect(page.get_by_text("on the table, at 0.25.")).to_be_visible()
    about = "loss of every model between A and B, stage by stage"
    chart = page.locator(f"[data-testid=stVegaLiteChart][aria-label='{about}']")
    expect(chart.locator("svg .mark-line path").first).to_be_attached()
    page.get_by_role("slider", name="t: how far along the line").press("ArrowRight")
    expect(page).to_have_url(re.compile(r"[?&]t=0\.292(&|$)"))
    expect(page.get_by_text("At t = 0.292", exact=True)).to_be_visible()
    sound(page)


def test_a_cancel_in_the_middle_leaves_a_partial_curve(line_site: Site, page: Page):
    page.goto(f"{line_site.address}/barrier?{urlencode({'points': '49'})}")
    page.get_by_role("button", name="Measure the line").click()
    told = page.locator(".st-key-verdict-so-far")
    expect(told).to_contain_text("partial")
    page.locator(".st-key-job button, [class*=st-key-job] button").get_by_text("Cancel").click()
    expect(page.get_by_role("heading", name="Take away")).to_be_visible()
    expect(page.locator(".st-key-verdict")).to_contain_text("partial")
    expect(page.locator(".st-key-verdict")).to_contain_text("Raw line")
    expect(page.get_by_role("button", name="Measure the line again")).to_be_visible()
    sound(page)


def test_the_page_fits_a_narrow_window(line_site: Site, browser: Browser, tmp_path: Path):
    with fresh(browser, 390, 844) as page:
        opened(page, line_site, scope="first-layer", t="0.25")
        page.screenshot(path=tmp_path / "barrier.png", full_page=True)
        assert (tmp_path / "barrier.png").stat().st_size > 10_000
