"""What each step of a layer's alignment leaves, head by head, and the matrices it found."""

from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd

from app.charts.theme import MINUS, PLUS, QUIET, TRUTH, Shade
from engine.records import STEPS, TOLERANCE, HeadsReport

Side = Literal["query–key", "value–output"]
SIDES: tuple[Side, Side] = ("query–key", "value–output")
FLOOR = 1e-8
"""What is smaller is drawn here: rounding."""
NAMES = dict(zip(STEPS, ("stored", "order", "orthogonal", "full"), strict=True))
COLOURS = (PLUS, MINUS, TRUTH, QUIET, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
TALL = 260


def objectives(record: HeadsReport) -> pd.DataFrame:
    """√(objective / ‖A‖²) of every head at every step, for both sides."""
    found = []
    for side, values, norm in (
        (SIDES[0], record.query_key, record.query_key_norm),
        (SIDES[1], record.value_output, record.value_output_norm),
    ):
        left = np.sqrt(np.maximum(values, 0) / np.maximum(norm, 1e-300))
        for step, row, raw in zip(STEPS, left, values, strict=True):
            found += [
                {"head": head, "side": side, "step": NAMES[step], "objective": float(raw[head]),
                 "distance": float(row[head]), "drawn": max(float(row[head]), FLOOR)}
                for head in range(record.heads)
            ]  # fmt: skip
    return pd.DataFrame(found)


def steps(record: HeadsReport, side: Side, look: Shade, chosen: int) -> Any:
    """The relative distance of every head through the four steps, on a logarithmic scale."""
    table = objectives(record)
    table = table[table["side"] == side]
    strong = alt.condition(alt.datum.head == chosen, alt.value(1.0), alt.value(0.35))
    wide = alt.condition(alt.datum.head == chosen, alt.value(3), alt.value(1.5))
    x = alt.X("step:O", sort=list(NAMES.values()), title=None, axis=alt.Axis(labelAngle=0))
    tips = ["head:O", "step:N", alt.Tooltip("distance:Q", format=".3g"),
            alt.Tooltip("objective:Q", format=".3g")]  # fmt: skip
    base = alt.Chart(table, title=side).encode(
        x, _logarithmic(table["drawn"], "relative distance"), detail="head:N", tooltip=tips
    )
    line = base.mark_line(color=PLUS).encode(opacity=strong, strokeWidth=wide)
    point = base.mark_point(filled=True, size=60, color=PLUS).encode(opacity=strong)
    return alt.layer(_tolerance(look), line, point).properties(height=TALL)


def left(record: HeadsReport, look: Shade, chosen: int) -> Any:
    """The relative distance that is left for every head, both sides, beside what counts as exact.

    A dot lies below the dashed line where the head is exact.
    """
    table = pd.DataFrame({
        "head": np.tile(np.arange(record.heads), 2),
        "side": np.repeat(SIDES, record.heads),
        "distance": np.concatenate([record.query_key_left, record.value_output_left]),
    })  # fmt: skip
    table["drawn"] = table["distance"].clip(lower=FLOOR)
    colour = alt.Color(
        "side:N", scale=alt.Scale(domain=list(SIDES), range=[PLUS, MINUS]),
        legend=alt.Legend(title=None, orient="top"),
    )  # fmt: skip
    size = alt.condition(alt.datum.head == chosen, alt.value(150), alt.value(70))
    values = list(range(0, record.heads, max(1, record.heads // 16)))
    point = alt.Chart(table).mark_point(filled=True, opacity=1).encode(
        alt.X("head:O", title="head of A", axis=alt.Axis(labelAngle=0, values=values)),
        _logarithmic(table["drawn"], "relative distance left"), colour, size=size,
        shape=alt.Shape("side:N", legend=None),
        tooltip=["head:O", "side:N", alt.Tooltip("distance:Q", format=".3g")],
    )  # fmt: skip
    return alt.layer(_tolerance(look), point).properties(height=TALL)


def singular(values: np.ndarray, what: str, look: Shade) -> Any:
    """Singular values of the matrix that was found for each key/value head; 1 means untouched."""
    groups, channels = values.shape
    table = pd.DataFrame({
        "group": [f"{group}" for group in np.repeat(np.arange(groups), channels)],
        "place": np.tile(np.arange(1, channels + 1), groups),
        "value": np.maximum(np.asarray(values, np.float64), 1e-12).ravel(),
    })  # fmt: skip
    colour = alt.Color(
        "group:N",
        scale=alt.Scale(range=list(COLOURS)),
        sort=[f"{group}" for group in range(groups)],
        legend=alt.Legend(title="key/value head", orient="top") if groups <= 8 else None,
    )
    low, high = (float(find(table["value"].to_numpy())) for find in (np.min, np.max))
    scale = alt.Scale(type="log", domain=[min(low * 0.8, 0.5), max(high * 1.25, 2.0)], nice=False)
    y = alt.Y("value:Q", scale=scale, title="singular value", axis=alt.Axis(tickCount=4))
    line = alt.Chart(table, title=what).mark_line(point=channels <= 32, strokeWidth=2).encode(
        alt.X("place:Q", title="largest first", axis=alt.Axis(format="d", tickMinStep=1)),
        y, colour,
        tooltip=["group:N", "place:Q", alt.Tooltip("value:Q", format=".3g")],
    )  # fmt: skip
    one = alt.Chart(pd.DataFrame({"at": [1.0]})).mark_rule(color=look.ink, strokeDash=[5, 4])
    return alt.layer(one.encode(y="at:Q"), line).properties(height=TALL)


def removal(record: HeadsReport, removed: np.ndarray, look: Shade, chosen: int) -> Any:
    """What it costs to remove each head."""
    table = pd.DataFrame({"head": np.arange(record.heads), "KL": np.asarray(removed, np.float32)})
    on = alt.condition(alt.datum.head == chosen, alt.value(MINUS), alt.value(PLUS))
    values = list(range(0, record.heads, max(1, record.heads // 16)))
    bars = alt.Chart(table).mark_bar(stroke=look.surface).encode(
        alt.X("head:O", title="head that is removed", axis=alt.Axis(labelAngle=0, values=values)),
        alt.Y("KL:Q", title="mean KL, nats"),
        color=on,
        tooltip=["head:O", alt.Tooltip("KL:Q", format=".3g")],
    )  # fmt: skip
    return bars.properties(height=TALL)


def _logarithmic(values: Any, title: str) -> alt.Y:
    low, high = float(min(values.min(), TOLERANCE)) / 2, float(max(values.max(), 1.0)) * 1.5
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(format=".0e", tickCount=6, grid=True, gridOpacity=0.3)
    return alt.Y("drawn:Q", scale=scale, title=title, axis=axis)


def _tolerance(look: Shade) -> alt.Chart:
    """The line under which a distance counts as exact."""
    rule = alt.Chart(pd.DataFrame({"at": [TOLERANCE]}))
    return rule.mark_rule(color=look.ink, strokeDash=[5, 4], opacity=0.6).encode(y="at:Q")
