"""The app in process, as tests of pages open and read it."""

import json
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parent.parent
MAIN = str(ROOT / "app" / "main.py")


def opened(page: str = MAIN, *, seconds: int = 30, **link: Any) -> AppTest:
    """A page as a link with these parameters opens it, every run within so many seconds."""
    at = AppTest.from_file(MAIN, default_timeout=seconds)
    for name, value in link.items():
        at.query_params[name] = value
    at = at.run()
    at = at if page == MAIN else at.switch_page(page).run()
    assert not at.exception
    return at


def text(at: AppTest) -> str:
    """All Markdown of a page, without its escapes."""
    return "\n".join(item.value for item in at.markdown).replace("\\", "")


def captions(at: AppTest) -> str:
    """All captions, likewise."""
    return "\n".join(item.value for item in at.caption).replace("\\", "")


def figures(at: AppTest) -> list[Any]:
    """The specifications of all Plotly figures."""
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def plots(at: AppTest) -> list[Any]:
    """The specifications of all Altair charts."""
    return [json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")]
