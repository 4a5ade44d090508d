"""What Altair pictures share: their settings, and how they become a file."""

from typing import Any, Literal

import altair as alt
import vl_convert

from app.charts.theme import FONT, LIGHT, Scale, Shade

Kind = Literal["png", "svg"]


def settings(look: Shade) -> dict[str, Any]:
    """Configuration of a whole chart."""
    text = {"labelColor": look.ink, "titleColor": look.ink, "labelFont": FONT, "titleFont": FONT}
    quiet = {"grid": False, "domain": False, "ticks": False, "labelFontSize": 11}
    return {
        "background": "transparent",
        "font": FONT,
        "axis": {**text, **quiet, "titleFontWeight": "normal"},
        "legend": text,
        "title": {"color": look.ink, "font": FONT, "fontSize": 13, "anchor": "start"},
        "view": {"stroke": None},
    }


def scaled(colours: Scale, low: float, high: float) -> alt.Scale:
    """A colour scale of the theme between two ends."""
    domain = [low + (high - low) * at for at, _ in colours]
    return alt.Scale(domain=domain, range=[colour for _, colour in colours], interpolate="rgb")


def shown(chart: Any, look: Shade) -> Any:
    """A chart for a page, as wide as its place."""
    return chart.properties(width="container").configure(**settings(look))


def beside(*charts: Any) -> Any:
    """Pictures in a row, each with its own scales."""
    return alt.hconcat(*charts, spacing=24).resolve_scale(color="independent")


def above(*charts: Any) -> Any:
    """Pictures in a column, each with its own scales."""
    return alt.vconcat(*charts, spacing=16).resolve_scale(color="independent")


def image(chart: Any, kind: Kind) -> bytes:
    """A chart on white as PNG or SVG, drawn without a browser."""
    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.configure(**settings(LIGHT)).to_dict() | {"background": "white"}
    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    return vl_convert.vegalite_to_png(spec, scale=2)
