"""What a person does in a browser: first paint, links, a dragged box, jobs, two tabs."""

import http.client
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import WAIT, Site, fresh

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT)


def verdict(page: Page):
    return page.locator(".st-key-verdict")


def shown(page: Page) -> None:
    """Wait until the last part of a page, and its first chart, are there."""
    expect(page.get_by_role("heading", name="Take away")).to_be_visible()
    chart = page.locator(".nsewdrag, [data-testid=stVegaLiteChart] canvas, .marks").first
    chart.wait_for(state="attached")


def matrix(page: Page):
    """The drag layer of the matrix chart."""
    return page.locator("[class*='st-key-matrix-of'] .nsewdrag").first


def test_the_first_paint_shows_the_verdict(site: Site, page: Page):
    page.goto(site.address)
    expect(verdict(page)).to_contain_text("Same function in other coordinates.")
    expect(verdict(page)).to_contain_text("exact 2.1e-7")
    expect(page.locator(".st-key-card-A")).to_contain_text("A · base")
    expect(page.locator(".st-key-card-B")).to_contain_text("self-test: exact 1.1e-6")


def test_a_link_reopens_the_same_view(site: Site, browser: Browser):
    with fresh(browser) as page:
        page.goto(f"{site.address}/residual?depth=after+layer+2&coordinate=7&matrix=absolute")
        shown(page)
        expect(verdict(page)).to_contain_text("found after layer 2")
        page.get_by_text("as stored").click()
        expect(page).to_have_url(re.compile("order=as"))
        shown(page)
        link = page.url
    with fresh(browser) as page:
        page.goto(link)
        shown(page)
        assert urlsplit(page.url).path == "/residual"
        expect(verdict(page)).to_contain_text("found after layer 2")
        expect(page.get_by_role("spinbutton", name="Coordinate of A")).to_have_value("7")
        title = page.locator("[class*='st-key-matrix-of'] .xtitle")
        expect(title).to_have_text("coordinate of B")


def test_the_pair_stays_when_the_page_changes(site: Site, page: Page):
    page.goto(f"{site.address}/?b=wide")
    expect(verdict(page)).to_contain_text("Not the same function.")
    page.get_by_role("link", name="Residual").click()
    expect(verdict(page)).to_contain_text("800 of 800 coordinates found")
    page.get_by_role("link", name="Models").click()
    expect(verdict(page)).to_contain_text("Not the same function.")


def go(page: Page, name: str) -> None:
    """Click a page's name and wait for nothing."""
    page.get_by_role("link", name=name).click(no_wait_after=True)


def named(path: str, *said: str) -> re.Pattern[str]:
    """An address that says all this, in any order."""
    return re.compile("".join([rf"/{path}\?", *(rf"(?=(.*&)?{one}(&|$))" for one in said)]))


def model_b(page: Page):
    """The field of B in the sidebar."""
    return page.get_by_test_id("stSidebar").get_by_role("combobox", name="B", exact=True)


def test_the_pair_stays_when_pages_change_faster_than_they_are_drawn(site: Site, page: Page):
    page.goto(f"{site.address}/?b=wide")
    expect(verdict(page)).to_contain_text("Not the same function.")
    for pause in (0, 20, 50, 100, 200, 400):
        go(page, "Residual")
        page.wait_for_timeout(pause)
        go(page, "Models")
        page.wait_for_timeout(pause)
    expect(page).to_have_url(named("", "a=base", "b=wide"))
    expect(verdict(page)).to_contain_text("Not the same function.")
    expect(model_b(page)).to_have_value("wide")


def test_options_wait_for_their_controls_also_when_the_page_is_left(site: Site, page: Page):
    """A pair that is not matched yet draws no field for the coordinate."""
    page.goto(f"{site.address}/residual?a=twin&coordinate=7")
    asks = page.get_by_role("button", name="Match the coordinates")
    expect(asks).to_be_visible()
    go(page, "Models")
    expect(page).to_have_url(named("", "a=twin", "b=twin", "coordinate=7"))
    go(page, "Residual")
    expect(asks).to_be_visible()
    page.get_by_test_id("stSidebar").get_by_role("combobox", name="A", exact=True).click()
    page.get_by_role("option", name="base", exact=True).click()
    expect(page.get_by_role("spinbutton", name="Coordinate of A")).to_have_value("7")


def test_the_pair_stays_when_a_page_is_left_before_its_fields_are_there(site: Site, page: Page):
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/Selectbox.*.js", hold)
    page.goto(f"{site.address}/?b=wide")
    expect(verdict(page)).to_contain_text("Not the same function.")
    assert held, "the fields were drawn at once"
    go(page, "Residual")
    expect(page).to_have_url(named("residual", "a=base", "b=wide"))
    expect(verdict(page)).to_contain_text("800 of 800 coordinates found")
    for route in held:
        route.continue_()
    expect(model_b(page)).to_have_value("wide")
    go(page, "Models")
    expect(verdict(page)).to_contain_text("Not the same function.")
    page.go_back()
    expect(verdict(page)).to_contain_text("800 of 800 coordinates found")
    page.reload()
    expect(verdict(page)).to_contain_text("800 of 800 coordinates found")


def test_back_and_forward_restore_the_pair_of_each_view(site: Site, page: Page):
    page.goto(site.address)
    expect(verdict(page)).to_contain_text("Same function")
    expect(page).to_have_url(named("", "a=base", "b=twin"))  # also what is as it was started
    expect(model_b(page)).to_have_value("twin")
    go(page, "Residual")
    expect(verdict(page)).to_contain_text("96 of 96")
    shown(page)
    model_b(page).fill("wide")
    model_b(page).press("Enter")
    expect(verdict(page)).to_contain_text("800 of 800")
    page.go_back()
    expect(verdict(page)).to_contain_text("Same function")
    page.go_forward()
    expect(verdict(page)).to_contain_text("800 of 800")
    expect(model_b(page)).to_have_value("wide")


def test_a_dragged_box_is_shown_at_full_resolution(site: Site, page: Page):
    page.goto(f"{site.address}/residual?b=wide")
    shown(page)
    expect(page.get_by_text("each cell is the signed extreme of 3 × 3 of them")).to_be_visible()
    matrix(page).wait_for(state="attached")
    page.get_by_role("heading", level=1).scroll_into_view_if_needed()
    area = matrix(page).bounding_box()
    assert area is not None
    left, top = area["x"] + area["width"] * 0.3, area["y"] + area["height"] * 0.3
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(left + area["width"] * 0.1, top + area["height"] * 0.1, steps=5)
    page.mouse.move(left + area["width"] * 0.2, top + area["height"] * 0.2, steps=5)
    page.mouse.up()
    expect(page.get_by_text("every one drawn")).to_be_visible()
    expect(page).to_have_url(re.compile("rows="))
    link = page.url
    page.goto(link)
    expect(page.get_by_text("every one drawn")).to_be_visible()
    page.get_by_role("button", name="Whole matrix").click()
    expect(page.get_by_text("each cell is the signed extreme of 3 × 3 of them")).to_be_visible()


def test_two_tabs_with_two_pairs_do_not_disturb_each_other(site: Site, browser: Browser):
    with fresh(browser) as one, fresh(browser) as two:
        one.goto(site.address)
        two.goto(f"{site.address}/?b=wide")
        expect(verdict(one)).to_contain_text("Same function")
        expect(verdict(two)).to_contain_text("Not the same function.")
        one.get_by_role("link", name="Residual").click()
        two.get_by_role("link", name="Residual").click()
        expect(verdict(one)).to_contain_text("96 of 96")
        expect(verdict(two)).to_contain_text("800 of 800")


def test_a_refused_model_leaves_the_page_working(site: Site, page: Page):
    page.goto(f"{site.address}/?{urlencode({'b': '/nowhere'})}")
    expect(page.locator(".st-key-card-B")).to_contain_text(
        "'/nowhere' is no folder under the allowed ones"
    )
    expect(page.locator(".st-key-card-A")).to_contain_text("self-test: exact")


def test_a_foreign_host_is_turned_away(site: Site):
    connection = http.client.HTTPConnection(urlsplit(site.address).netloc, timeout=30)
    upgrade = {
        "Host": "example.com",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    connection.request("GET", "/_stcore/stream", headers=upgrade)
    assert connection.getresponse().status == 403


@pytest.mark.parametrize("path", ["", "residual"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_pages_fit_their_window(
    site: Site, browser: Browser, tmp_path: Path, path: str, width: int, height: int
):
    with fresh(browser, width, height) as page:
        page.goto(f"{site.address}/{path}")
        shown(page)
        page.screenshot(path=tmp_path / f"{path or 'models'}-{width}.png")
        overflow = page.evaluate(
            "document.querySelector('[data-testid=stMain]').scrollWidth"
            " - document.querySelector('[data-testid=stMain]').clientWidth"
        )
        assert overflow <= 0
        assert (tmp_path / f"{path or 'models'}-{width}.png").stat().st_size > 10_000


def test_a_job_is_found_again_after_a_reload_and_in_another_tab_and_is_cancelled(
    engine_site: Site, browser: Browser
):
    with fresh(browser) as page:
        page.goto(f"{engine_site.address}/residual?tokens=32k&truth=none")
        page.get_by_role("button", name="Match the coordinates").click()
        job = page.locator("[class*='st-key-job']")
        expect(job).to_be_visible()
        expect(page).to_have_url(re.compile("job="))
        page.reload()
        expect(job).to_be_visible()
        with fresh(browser) as other:
            other.goto(f"{engine_site.address}/?{urlsplit(page.url).query}")
            side = other.get_by_test_id("stSidebar")
            expect(side).to_contain_text("Running")
            go(other, "Atlas")
            expect(other).to_have_url(re.compile("/atlas.*job="))
            other.reload()
            expect(side).to_contain_text("Running")
            side.get_by_role("button", name="Cancel").click()
            expect(side).not_to_contain_text("Running")
        expect(page.get_by_text("Cancelled; nothing was changed.")).to_be_visible()


def test_a_job_that_ends_shows_its_result(engine_site: Site, page: Page):
    page.goto(engine_site.address)
    card = page.locator(".st-key-card-A")
    card.get_by_role("button", name="Run the self-test").click()
    expect(card).to_contain_text("self-test: exact")
    expect(page).not_to_have_url(re.compile("job="))
