"""Colours and layout shared by every figure: colour-blind safe, calm, light and dark."""

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

PLUS, MINUS, TRUTH, QUIET = "#0072B2", "#D55E00", "#8A6FB0", "#8A8F98"
"""Okabe–Ito blue for +, vermilion for −; violet rings for the truth; grey for what is secondary."""

FONT = "Source Sans, Source Sans Pro, Segoe UI, sans-serif"

Scale = list[tuple[float, str]]


@dataclass(frozen=True)
class Shade:
    """One of the two backgrounds that a figure can be drawn on."""

    name: str
    surface: str
    ink: str
    grid: str
    diverging: Scale  # −1 … 0 … +1
    sequential: Scale  # 0 … 1
    cyclic: Scale  # −1 … 0 … +1, both ends alike; 0 is quiet


LIGHT = Shade(
    "light",
    "#FFFFFF",
    "#2A2E35",
    "#E3E5E8",
    [(0.0, "#8C3B00"), (0.25, "#E08A4A"), (0.5, "#FFFFFF"), (0.75, "#5AA5D4"), (1.0, "#00436B")],
    [(0.0, "#FFFFFF"), (0.3, "#C9DFEE"), (0.65, "#4F93C2"), (1.0, "#08305C")],
    [(0.0, "#2B2140"), (0.25, "#D55E00"), (0.5, "#FFFFFF"), (0.75, "#0072B2"), (1.0, "#2B2140")],
)
DARK = Shade(
    "dark",
    "#171A20",
    "#E6E7E9",
    "#343943",
    [(0.0, "#FFB27A"), (0.25, "#B65A1C"), (0.5, "#1B1F26"), (0.75, "#2477AE"), (1.0, "#9AD5FF")],
    [(0.0, "#1B1F26"), (0.3, "#1F4565"), (0.65, "#3F8FC6"), (1.0, "#C6E7FF")],
    [(0.0, "#F0E6FF"), (0.25, "#E0762A"), (0.5, "#1B1F26"), (0.75, "#3592D0"), (1.0, "#F0E6FF")],
)


def shade(name: str | None) -> Shade:
    """The shade named "dark" or, for every other name, the light one."""
    return DARK if name == "dark" else LIGHT


def arrange(figure: go.Figure, look: Shade, height: int, **layout: Any) -> go.Figure:
    """The figure with the common margins, fonts and axes; further layout on top."""
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        font={"family": FONT, "size": 13, "color": look.ink},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "title": None},
        hoverlabel={"font": {"family": FONT}},
    )
    for axes in (figure.update_xaxes, figure.update_yaxes):
        axes(gridcolor=look.grid, zeroline=False, automargin=True, linecolor=look.grid)
    return figure.update_layout(**layout)


def config(name: str) -> dict[str, Any]:
    """Plotly's client-side settings: no logo, a PNG button that names its file."""
    return {
        "displaylogo": False,
        "modeBarButtonsToRemove": ["lasso2d", "autoScale2d", "toggleSpikelines"],
        "toImageButtonOptions": {"format": "png", "scale": 2, "filename": name},
    }
