"""The loss over the plane through two models and the aligned one."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.drawing import scaled
from app.charts.layer_maps import rounded
from app.charts.theme import FONT, Shade
from engine.records import LossSlice

PLACES = ("A", "B", "B in A's coordinates")
TALL, WIDE = 340, 520


def measured(record: LossSlice) -> int:
    """How many models of the plane were measured."""
    return int((~np.isnan(record.loss)).sum())


def cells(record: LossSlice) -> pd.DataFrame:
    """Every measured model of the plane as a cell around it, in units of ‖B − A‖."""
    j, i = np.nonzero(~np.isnan(record.loss))
    (left, right), (low, high) = (_edges(axis) for axis in (record.x, record.y))
    top = _top(record.loss)
    return pd.DataFrame({
        "x": rounded(record.x[i]), "y": rounded(record.y[j]),
        "left": left[i], "right": right[i], "low": low[j], "high": high[j],
        "loss": rounded(record.loss[j, i]), "drawn": rounded(np.minimum(record.loss[j, i], top)),
        "accuracy": rounded(record.accuracy[j, i]),
    })  # fmt: skip


def _edges(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the cell of each value begins and ends."""
    if len(values) < 2:
        return values - 0.5, values + 0.5
    middle = (values[1:] + values[:-1]) / 2
    first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
    edges = np.concatenate([[first], middle, [last]])
    return edges[:-1], edges[1:]


def _top(loss: np.ndarray) -> float:
    finite = loss[np.isfinite(loss)]
    return float(finite.max()) if finite.size else 1.0


def plane(record: LossSlice, look: Shade) -> Any:
    """The loss as colour; the three models, and the lines from A to B and to aligned B."""
    table = cells(record)
    low = float(np.nanmin(table["drawn"].to_numpy(), initial=np.inf)) if len(table) else 0.0
    top = max(_top(record.loss), low + 1e-9)
    x, y = _axes(record)
    legend = alt.Legend(title="loss, nats", orient="right", titleFontWeight="normal", format=".3~g")
    colour = alt.Color("drawn:Q", scale=scaled(look.sequential, low, top), legend=legend)
    tips = [alt.Tooltip(f"{name}:Q", format=".3~g") for name in ("x", "y", "loss", "accuracy")]
    area = (
        alt.Chart(table)
        .mark_rect()
        .encode(x, y, x2="right:Q", y2="high:Q", color=colour, tooltip=tips)
    )
    ground = alt.ViewBackground(fill=look.grid, fillOpacity=0.9)
    return alt.layer(area, *_marked(record, look)).properties(height=TALL, view=ground)


def _axes(record: LossSlice) -> tuple[alt.X, alt.Y]:
    (left, right), (low, high) = (_edges(axis) for axis in (record.x, record.y))
    few = alt.Axis(tickCount=5, format=".2~g")
    x = alt.X("left:Q", title="towards B, in units of ‖B − A‖", axis=few,
              scale=alt.Scale(domain=[float(left[0]), float(right[-1])], nice=False))  # fmt: skip
    y = alt.Y("low:Q", title="towards aligned B", axis=few,
              scale=alt.Scale(domain=[float(low[0]), float(high[-1])], nice=False))  # fmt: skip
    return x, y


def _marked(record: LossSlice, look: Shade) -> list[alt.Chart]:
    table = pd.DataFrame({
        "x": record.places[:, 0], "y": record.places[:, 1], "name": PLACES[: len(record.places)],
    })  # fmt: skip
    a, b, aligned = (table.iloc[[k]] for k in range(3))
    paths = pd.concat([
        pd.concat([a, other]).assign(line=name)
        for name, other in (("raw", b), ("aligned", aligned))
    ])  # fmt: skip
    place = {"x": "x:Q", "y": "y:Q"}
    dark, light = look.ink, look.surface
    text = alt.Chart(table).mark_text(
        font=FONT, fontSize=12, fontWeight="bold", dy=-13, color=dark,
        stroke=light, strokeWidth=3, strokeOpacity=0.85,
    )  # fmt: skip
    plain = alt.Chart(table).mark_text(
        font=FONT, fontSize=12, fontWeight="bold", dy=-13, color=dark
    )
    return [
        alt.Chart(paths).mark_line(color=dark, strokeDash=[5, 4]).encode(**place, detail="line:N"),
        alt.Chart(table).mark_point(filled=True, size=110, opacity=1, color=dark, stroke=light)
        .encode(**place, tooltip="name:N"),
        text.encode(**place, text="name:N"),
        plain.encode(**place, text="name:N"),
    ]  # fmt: skip
