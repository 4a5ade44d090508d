"""The barrier of every order of the heads of one layer: which one the alignment took."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.layer_maps import rounded
from app.charts.measures import at
from app.charts.theme import PLUS, QUIET, Shade
from engine.records import HeadOrders

CHOSEN, OTHER = "taken by the alignment", "other orders"
TALL = 250
LISTED = 30
"""Most orders that are named under the picture."""


def orders(record: HeadOrders) -> pd.DataFrame:
    """Every order that was measured: its barrier with interval, and what Stage 2 leaves of it."""
    found = []
    for number, curve in enumerate(record.curves):
        one = at(curve.barrier())
        none = float("nan")
        found.append({
            "order": " ".join(map(str, record.orders[number])), "barrier": one.value,
            "from": none if one.low is None else one.low,
            "to": none if one.high is None else one.high,
            "peak t": curve.peak(), "objective": float(record.objective[number]),
            "which": CHOSEN if number == record.chosen else OTHER,
        })  # fmt: skip
    columns = ["order", "barrier", "from", "to", "peak t", "objective", "which"]
    table = pd.DataFrame(found, columns=columns)
    for name in ("barrier", "from", "to", "objective"):
        table[name] = rounded(table[name].to_numpy(np.float64))
    return table.sort_values("barrier", kind="stable", ignore_index=True)


def _colour() -> alt.Color:
    scale = alt.Scale(domain=[CHOSEN, OTHER], range=[PLUS, QUIET])
    return alt.Color("which:N", scale=scale, legend=alt.Legend(title=None, orient="top"))


def _tips() -> list[Any]:
    real = ("barrier", "from", "to", "objective")
    return ["order:N", *(alt.Tooltip(f"{name}:Q", format=".4g") for name in real)]


def barriers(record: HeadOrders, look: Shade) -> Any:
    """Orders from the lowest barrier to the highest, with intervals; the raw heads dashed."""
    table = orders(record)
    many = len(table) > LISTED
    axis = alt.Axis(labels=not many, labelAngle=-90 if len(table) > 8 else 0)
    title = "every order, the lowest barrier first" if many else "B's heads at A's places"
    x = alt.X("order:N", sort=table["order"].tolist(), title=title, axis=axis)
    scale = alt.Scale(zero=False, padding=10)
    lines = alt.Axis(grid=True, gridOpacity=0.3)
    y = alt.Y("barrier:Q", title="barrier, nats", scale=scale, axis=lines)
    base = alt.Chart(table).encode(x, color=_colour())
    bars = base.transform_filter("isValid(datum.from)").mark_rule(strokeWidth=1.5)
    naive = pd.DataFrame({"barrier": [float(record.naive.barrier().value)]})
    return alt.layer(
        alt.Chart(naive).mark_rule(strokeDash=[5, 4], color=look.ink).encode(y="barrier:Q"),
        bars.encode(alt.Y("from:Q", scale=scale), y2="to:Q"),
        base.mark_point(filled=True, size=30 if many else 80, opacity=1)
        .encode(y, tooltip=_tips()),
    ).properties(height=TALL)  # fmt: skip


def against(record: HeadOrders) -> Any:
    """What Stage 2 leaves of an order against the barrier that it makes: does the one tell?"""
    few = alt.Axis(tickCount=4, format=".3~g")
    x = alt.X("objective:Q", title="what Stage 2 leaves", axis=few,
              scale=alt.Scale(zero=False, padding=12))  # fmt: skip
    y = alt.Y("barrier:Q", title="barrier, nats", axis=few,
              scale=alt.Scale(zero=False, padding=12))  # fmt: skip
    marks = alt.Chart(orders(record)).mark_point(filled=True, size=80, opacity=1)
    return marks.encode(x, y, color=_colour(), tooltip=_tips()).properties(height=TALL)
