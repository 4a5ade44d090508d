"""Kinds of tensor × layers: how far two checkpoints are apart, before and after."""

from typing import Any, Literal

import altair as alt
import pandas as pd

from app.charts.drawing import Kind, image, settings
from app.charts.tables import distances
from app.charts.theme import LIGHT, Shade
from engine.records import AlignmentReport

When = Literal["before", "after"]
OUTSIDE = "–"
"""The column of the tensors that belong to no layer."""


def distance_map(report: AlignmentReport, when: When, look: Shade) -> alt.Chart:
    """Relative distance ‖A − B‖ / ‖A‖ of every tensor; *before* and *after* share one scale."""
    return _panel(report, when, look).configure(**settings(look))


def _panel(report: AlignmentReport, when: When, look: Shade) -> alt.Chart:
    table = distances(report)
    top = max(1.0, float(table[["before", "after"]].to_numpy().max()))
    table["column"] = [_column(layer) for layer in table["layer"]]
    columns = [OUTSIDE, *(str(layer) for layer in sorted(set(table["layer"].dropna().astype(int))))]
    x = alt.X("column:N", sort=columns, title="layer (– outside the layers)", axis=_thin(columns))
    y = alt.Y("kind:N", sort=None, title=None, axis=alt.Axis(labelLimit=170))
    return (
        alt.Chart(table, title=f"{when} alignment")
        .mark_rect(stroke=look.grid, strokeWidth=0.5)
        .encode(x=x, y=y, color=_colour(when, top, look), tooltip=_tooltip(when))
        .properties(width="container", height=alt.Step(17))
    )


def _colour(when: When, top: float, look: Shade) -> alt.Color:
    domain = [top * at for at, _ in look.sequential]
    colours = [colour for _, colour in look.sequential]
    scale = alt.Scale(domain=domain, range=colours, interpolate="rgb")
    legend = alt.Legend(title=None, gradientLength=100, gradientThickness=8, format=".1f")
    return alt.Color(f"{when}:Q", scale=scale, legend=legend)


def _tooltip(when: When) -> list[Any]:
    return ["tensor:N", alt.Tooltip(f"{when}:Q", format=".2e", title=f"distance {when}")]


def _column(layer: float | None) -> str:
    return OUTSIDE if layer is None or pd.isna(layer) else str(int(layer))


def _thin(columns: list[str]) -> alt.Axis:
    """Labels of at most about a dozen layers."""
    return alt.Axis(labelAngle=0, values=columns[:: max(1, len(columns) // 12)])


def distance_image(report: AlignmentReport, kind: Kind) -> bytes:
    """Both maps side by side as PNG or SVG on white, drawn without a browser."""
    panels = [_panel(report, when, LIGHT).properties(width=300) for when in ("before", "after")]
    return image(alt.hconcat(*panels, spacing=24), kind)
