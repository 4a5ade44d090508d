"""Atlas and Lab in a browser, on the demo models and the real engine: every preset of the Lab."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from engine.lab.offers import Preset
from engine.lab.presets import offered
from engine.questions import Inspect, Lab
from engine.records import ModelCard
from tests.browser.conftest import WAIT, Site, fresh

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT)

MODELS = ("base", "gpt2", "pythia", "qwen3", "mixtral", "bert")
"""Demo models, each of another architecture; the first one shows all of its presets."""
FURTHER = {"gpt2", "mixtral", "pythia"}
"""Whose presets are walked through only on request: the engine's tests hold them too."""

CHART = ".nsewdrag, [data-testid=stVegaLiteChart] svg"
MAIN, SIDE = "stMain", "stSidebar"
HOLDS, BREAKS = "Holds: the weights moved, the output did not.", "Breaks as it must"
NEAR, NONE = "Holds up to the ε inside a norm", "No symmetry: the function is another one now."
FIRST = {
    "atlas": "settings of the parameters are this same function",
    "lab": f"^{re.escape(HOLDS)}exact ",
}
"""What the verdict of a page says when it is opened."""


@cache
def card(name: str) -> ModelCard:
    return Inspect(f"demo:{name}").answer()


def tour() -> Iterator[tuple[str, tuple[Preset, ...]]]:
    """Each model with the presets that none before it had, and two that it shares: one true."""
    seen: set[str] = set()
    for name in MODELS:
        here = offered(card(name))
        shared = [preset for preset in here if preset.key in seen and preset.symmetry]
        two = [next((p for p in shared if p.holds is holds), None) for holds in (True, False)]
        new = [preset for preset in here if preset.key not in seen]
        seen.update(preset.key for preset in new)
        yield name, tuple(preset for preset in (*two, *new) if preset is not None)


def expected(preset: Preset) -> str:
    """The headline and the reserved word with its number, as a pattern."""
    number = r"[\d.]+(e-?\d+|%)?"
    if not preset.symmetry:
        return rf"^{re.escape(NONE)}(broken|approximate) {number}"
    if not preset.holds:
        return rf"^{BREAKS}(: .*broken|, by a little: .*approximate) {number}"
    exact = rf"{re.escape(HOLDS)}exact {number}"
    return rf"^({exact}|{NEAR}.*approximate {number})" if preset.approximate else f"^{exact}"


def verdict(page: Page) -> Locator:
    return page.locator(".st-key-verdict")


def command(page: Page) -> Locator:
    """The command line, which stands last: what is above it is of the same run."""
    return page.get_by_test_id("stCode").last


def choose(page: Page, field: str, title: str, part: str = MAIN) -> None:
    """Take an entry of a field, unless it is there."""
    box = page.get_by_test_id(part).get_by_role("combobox", name=field, exact=True)
    if box.input_value() != title:
        box.fill(title)
        page.get_by_role("option", name=title, exact=True).click()


def settled(page: Page, line: str) -> None:
    """Wait, looking often, until the page is that of a command line."""
    page.wait_for_function(
        "line => [...document.querySelectorAll('[data-testid=stCode]')].at(-1)?.textContent.trim()"
        " === line",
        arg=line,
        polling=50,
    )


def opened(page: Page, site: Site, path: str, **link: object) -> None:
    """Open an address and wait for the last part of the page."""
    page.goto(f"{site.address}/{path}?{urlencode(link)}")
    expect(command(page)).to_contain_text("python -m engine")
    sound(page)


def sound(page: Page) -> None:
    """No traceback anywhere on the page."""
    assert page.get_by_test_id("stException").count() == 0


def heading(page: Page, title: str, word: str) -> None:
    """Wait for the part of the Atlas about one row of the table."""
    expect(page.get_by_role("heading", name=f"{title} · {word}")).to_be_visible()


def test_a_link_reopens_the_coordinate_of_the_atlas(engine_site: Site, browser: Browser):
    with fresh(browser) as page:
        opened(page, engine_site, "atlas")
        choose(page, "Look at", "value channel")
        heading(page, "value channel", "val")
        expect(page).to_have_url(re.compile(r"word=value"))
        link = page.url
    with fresh(browser) as page:
        page.goto(link)
        heading(page, "value channel", "val")
        expect(page.get_by_role("combobox", name="Look at")).to_have_value("value channel")
        expect(command(page)).to_have_text("python -m engine inspect demo:base")
        sound(page)


def test_a_click_on_a_box_shows_its_tensors(engine_site: Site, page: Page):
    opened(page, engine_site, "atlas", a="demo:gpt2")
    heading(page, "residual coordinate", "res")
    box = page.locator(f"{CHART} path[aria-label*='coordinate: FFN neuron;']")
    box.click(position={"x": 8, "y": 8})
    heading(page, "FFN neuron", "ffn")
    expect(page.get_by_role("combobox", name="Look at")).to_have_value("FFN neuron")
    choose(page, "Look at", "value channel")
    heading(page, "value channel", "val")
    sound(page)


def test_a_link_reopens_the_experiment_of_the_lab(engine_site: Site, browser: Browser):
    with fresh(browser) as page:
        opened(page, engine_site, "lab")
        choose(page, "Experiment", "Attention: order of the value channels")
        expect(command(page)).to_contain_text("--preset value-order")
        page.get_by_role("slider", name="Layer").press("ArrowRight")
        expect(command(page)).to_contain_text("--layer 1")
        page.get_by_role("slider", name="Severity").press("ArrowLeft")
        expect(command(page)).to_contain_text("--severity 0.95")
        element = page.get_by_role("textbox", name="Or type an element")
        element.fill("(0 1)")
        element.press("Enter")
        expect(command(page)).to_contain_text("--element '(0 1)'")
        expect(page).to_have_url(re.compile("element="))
        link, line, said = page.url, command(page).inner_text(), verdict(page).inner_text()
    with fresh(browser) as page:
        page.goto(link)
        expect(command(page)).to_have_text(line)
        assert verdict(page).inner_text() == said
        field = page.get_by_role("combobox", name="Experiment")
        expect(field).to_have_value("Attention: order of the value channels")
        expect(page.get_by_role("textbox", name="Or type an element")).to_have_value("(0 1)")
        sound(page)


def test_a_typed_element_that_is_nonsense_is_told_in_one_line(engine_site: Site, page: Page):
    opened(page, engine_site, "lab")
    element = page.get_by_role("textbox", name="Or type an element")
    element.fill("(0 one)")
    element.press("Enter")
    refusal = page.get_by_test_id(MAIN).get_by_test_id("stText")
    expect(refusal).to_contain_text("(0 one)")
    assert "\n" not in refusal.inner_text().strip()
    expect(verdict(page)).to_contain_text("not measured")
    sound(page)
    element.fill("(0 1)")
    element.press("Enter")
    expect(verdict(page)).to_contain_text(re.compile(FIRST["lab"]))
    expect(command(page)).to_contain_text("--element '(0 1)'")
    sound(page)


@pytest.fixture(scope="module")
def walked(engine_site: Site, browser: Browser) -> Iterator[Page]:
    """One page of the Lab for all models and presets."""
    with fresh(browser) as page:
        opened(page, engine_site, "lab")
        yield page


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in FURTHER else ()) for n in MODELS]
)
def test_every_preset_shows_what_the_theory_says(walked: Page, name: str):
    page, model = walked, f"demo:{name}"
    choose(page, "A", model, SIDE)
    expect(command(page)).to_contain_text(f"lab {model} ")
    wrong: dict[str, str] = {}
    for preset in dict(tour())[name]:
        choose(page, "Experiment", preset.title)
        settled(page, Lab(model, preset=preset.key, device="cpu").command)
        said = verdict(page).text_content() or ""
        if not re.match(expected(preset), said):
            wrong[preset.key] = said
        assert preset.does in (page.get_by_test_id(MAIN).text_content() or "")
        sound(page)
    assert not wrong


@pytest.mark.parametrize(("path", "says"), FIRST.items())
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_paint_shows_the_verdict_and_fits_its_window(
    engine_site: Site,
    browser: Browser,
    tmp_path: Path,
    path: str,
    says: str,
    width: int,
    height: int,
):
    with fresh(browser, width, height) as page:
        opened(page, engine_site, path)
        expect(verdict(page)).to_contain_text(re.compile(says))
        expect(page.locator(CHART).first).to_be_visible()
        picture = tmp_path / f"{path}-{width}.png"
        page.screenshot(path=picture)
        assert picture.stat().st_size > 10_000
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        main = "document.querySelector('[data-testid=stMain]')"
        assert page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 0
        sound(page)
