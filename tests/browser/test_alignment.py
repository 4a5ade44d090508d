"""The Alignment page in a browser, on the real engine: a run seen live, cancelled, and written."""

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

RUN = "Put B into A's coordinates"
SO_FAR, OBJECTIVE = "Objective against sweeps, so far", "Objective against sweeps"


@pytest.fixture(scope="module")
def aligning_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on the demo pair and a child with a layer less; nothing of its device is stored."""
    from engine.checkpoint import open_checkpoint
    from engine.pruning import prune

    folder = tmp_path_factory.mktemp("aligning")
    root = folder / "models"
    root.mkdir()
    prune(open_checkpoint("demo:base"), (2,), root / "child")
    settings = Settings("demo:base", "demo:twin", "cpu", (root,), False)
    with serving(folder, settings, {"folder": str(folder)}) as served:
        yield served


def opened(page: Page, site: Site, path: str = "alignment", **link: str) -> None:
    page.goto(f"{site.address}/{path}?{urlencode(link)}")
    expect(related(page)).to_contain_text(re.compile("p [<=]"))


def related(page: Page) -> Locator:
    return page.locator(".st-key-related")


def verdict(page: Page) -> Locator:
    return page.locator(".st-key-verdict")


def picture(page: Page, about: str) -> Locator:
    return page.locator(f"[data-testid=stVegaLiteChart][aria-label='{about}'] svg")


def sound(page: Page) -> None:
    """No traceback and no refusal on the page, and nothing wider than it."""
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_text("refused", exact=True).count() == 0
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0


def test_a_run_is_seen_live_and_a_cancel_leaves_things_as_they_were(
    aligning_site: Site, page: Page
):
    opened(page, aligning_site, b="demo:seed-1", restarts="20")
    expect(related(page)).to_contain_text("Unrelated")
    page.get_by_role("button", name=RUN, exact=True).click()
    expect(picture(page, SO_FAR)).to_be_visible()
    expect(page.get_by_text(re.compile("^So far: [1-9]"))).to_be_visible()
    page.locator("[class*='st-key-job']").get_by_role("button", name="Cancel").click()
    expect(
        page.get_by_text(re.compile("^Stopped; nothing was written. Until then: "))
    ).to_be_visible()
    expect(page.get_by_role("button", name=f"{RUN} again")).to_be_visible()
    assert not list(Path(aligning_site.models["folder"]).glob("store/models/*"))
    sound(page)


def test_a_twin_is_put_back_and_its_checkpoint_opens_in_transformers(
    aligning_site: Site, page: Page
):
    from transformers import AutoModelForCausalLM

    opened(page, aligning_site)
    expect(related(page)).to_contain_text("The same function in other coordinates.")
    page.get_by_role("button", name=RUN, exact=True).click()
    expect(verdict(page)).to_contain_text("Same function in other coordinates.")
    expect(verdict(page)).to_contain_text("Relative distance of all weights")
    for about in (OBJECTIVE, "Share of the distance by coordinate"):
        expect(picture(page, about)).to_be_visible()
    page.get_by_role("button", name="Write the checkpoint").click()
    expect(page.get_by_text(re.compile("^Written: "))).to_be_visible()
    (folder,) = Path(aligning_site.models["folder"]).glob("store/models/aligned-*")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "symmetry.safetensors", "report.json"} <= names
    assert AutoModelForCausalLM.from_pretrained(folder).config.num_hidden_layers == 6
    sound(page)


@pytest.mark.parametrize("path", ["alignment", ""])
def test_a_child_with_a_layer_less_is_found_in_its_parent(
    aligning_site: Site, browser: Browser, tmp_path: Path, path: str
):
    with fresh(browser) as page:
        page.goto(f"{aligning_site.address}/{path}?{urlencode({'b': 'child'})}")
        place = page.get_by_role("button", name="Test whether they are related")
        place.or_(page.get_by_text("One lineage:")).first.wait_for()
        if place.count():
            place.click()
        expect(related(page)).to_contain_text("One lineage")
        expect(page.get_by_text("no partner: layer 2.")).to_be_visible()
        expect(picture(page, "How alike every layer of A is to every layer of B")).to_be_visible()
        expect(verdict(page)).to_contain_text("Different depths")
        sound(page)
        page.screenshot(path=tmp_path / f"child-{path or 'models'}.png")


def test_the_page_fits_a_narrow_window(aligning_site: Site, browser: Browser):
    with fresh(browser, 390, 844) as page:
        opened(page, aligning_site, only="grp")
        line = "Only grp: grp and head are solved together. Say heads for both of them."
        expect(page.get_by_text(line)).to_be_visible()
        main = "document.querySelector('[data-testid=stMain]')"
        assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
