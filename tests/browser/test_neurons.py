"""The Neurons page in a browser, on the real engine: a verdict, a click on a point, a link."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.settings import Settings
from tests.browser.conftest import WAIT, Site, serving

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def neurons_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on the demo twins, nothing of them stored."""
    folder: Path = tmp_path_factory.mktemp("neurons-site")
    with serving(folder, Settings("demo:base", "demo:twin", "cpu", (folder,), False), {}) as found:
        yield found


def test_a_point_of_the_matching_chooses_its_neuron(neurons_site: Site, page: Page) -> None:
    page.goto(f"{neurons_site.address}/neurons?layer=3")
    verdict = page.locator(".st-key-verdict")
    expect(verdict).to_contain_text("256 of 256 neurons found in layer 3")
    point = page.locator(".st-key-neurons-pairs-0 .trace.scatter:last-child .point").nth(40)
    point.wait_for(state="attached")
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile(r"neuron=\d+"))
    found = re.search(r"neuron=(\d+)", page.url)
    assert found is not None
    expect(page.get_by_text(re.compile(f"^Neuron {found[1]} of A is neuron"))).to_be_visible()
    expect(page.get_by_text("8 of the 8 places that excite each most are the same")).to_be_visible()
