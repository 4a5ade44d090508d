"""Cuts: which layers go by each candidate, what it costs with every budget, which score told."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.layer_maps import CLICK, PRINTED, rounded
from app.charts.measures import COLOURS, LARGEST, ends, rise
from app.charts.theme import FONT, MINUS, QUIET, Shade
from engine.records import Candidate, CutCost, CutReport, Measure, Readings

MINE = "mine"
TALL = 300
TICKS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e6, 1e9)
"""Perplexities over the base's that an axis may name."""
Sets = Mapping[str, Sequence[int]]


def chosen(report: CutReport, n: int, mine: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The layers that each candidate leaves out at budget n, and the user's own."""
    found = {one.by: one.sets[n] for one in report.candidates if n < len(one.sets)}
    return {**found, MINE: tuple(mine)}


def strip(layers: int, sets: Sets, look: Shade) -> Any:
    """One row a candidate, one column a layer; a click on a column puts the layer into *mine*."""
    table = pd.DataFrame([
        {"by": by, "layer": layer, "cut": "cut" if layer in cut else "kept"}
        for by, cut in sets.items()
        for layer in range(layers)
    ])  # fmt: skip
    every = list(range(layers))
    x = alt.X("layer:O", scale=alt.Scale(domain=every, paddingInner=0.08), title="layer",
              axis=alt.Axis(values=every[:: max(1, layers // 32)], labelAngle=0))  # fmt: skip
    y = alt.Y("by:N", sort=list(sets), title=None, scale=alt.Scale(paddingInner=0.18))
    colour = alt.Color(
        "cut:N", scale=alt.Scale(domain=["kept", "cut"], range=[look.grid, MINUS]),
        legend=alt.Legend(title=None, orient="top"),
    )  # fmt: skip
    click = alt.selection_point(name=CLICK, fields=["layer"], toggle=False)
    base = alt.Chart(table)
    area = base.mark_rect(cursor="pointer", cornerRadius=3).encode(
        x, y, color=colour, tooltip=["by:N", "layer:O", "cut:N"]
    ).add_params(click)  # fmt: skip
    marks = [area]
    if layers <= 4 * PRINTED:
        cut = base.transform_filter(alt.datum.cut == "cut")
        small = 11 if layers <= 2 * PRINTED else 9
        text = cut.mark_text(font=FONT, fontSize=small, fontWeight="bold", color="white")
        marks.append(text.encode(x, y, text="layer:O"))
    return alt.layer(*marks).properties(height=27 * len(sets) + 66)


def costs(report: CutReport, kind: str) -> pd.DataFrame:
    """What each candidate costs with every budget: perplexity over the base's, or KL in nats."""
    parts = []
    for one in report.candidates:
        found = measured(one.readings, base(one), kind)
        low, high = ends(found)
        parts.append(pd.DataFrame({
            "by": one.by, "n": np.arange(len(one.sets)), "value": rounded(found.value),
            "from": rounded(low), "to": rounded(high),
            "layers": [", ".join(map(str, cut)) or "none" for cut in one.sets],
        }))  # fmt: skip
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)
    return table.dropna(subset=["value"])


COLUMNS = ["by", "n", "value", "from", "to", "layers"]


def base(one: Candidate) -> Readings:
    """The model as it is: every candidate's budget 0."""
    whole = one.readings
    return Readings(whole.kl[0], whole.loss[0], whole.agreement[0], whole.positions)


def measured(readings: Readings, unchanged: Readings, kind: str) -> Measure:
    """KL in nats, or the perplexity over that of the model as it is."""
    if kind == "kl":
        return readings.measure()
    found = rise(readings, unchanged)
    low, high = (None if end is None else 1 + end / 100 for end in (found.low, found.high))
    return Measure(1 + found.value / 100, low, high)


def curves(report: CutReport, kind: str, n: int, look: Shade, own: CutCost | None) -> Any:
    """Cost against the number of layers left out, one line a candidate, intervals as bands."""
    table = costs(report, kind)
    names = [one.by for one in report.candidates]
    colour = alt.Color(
        "by:N", scale=alt.Scale(domain=[*names, MINE], range=[COLOURS.get(name, QUIET)
                                                            for name in (*names, MINE)]),
        legend=alt.Legend(title=None, orient="top", columns=3, symbolOpacity=1),
    )  # fmt: skip
    mine = _mine(own, kind)
    shown = pd.concat([table, mine])[["value", "from", "to"]].to_numpy(np.float64)
    axis: dict[str, Any] = {"title": "KL(base ‖ cut), nats"} if kind == "kl" else _ratio(shown)
    y = alt.Y("value:Q", **axis)
    x = alt.X("n:Q", title="layers left out, n", axis=alt.Axis(format="d", tickMinStep=1))
    tips = ["by:N", "n:Q", "layers:N", alt.Tooltip("value:Q", format=".4g"),
            alt.Tooltip("from:Q", format=".4g"), alt.Tooltip("to:Q", format=".4g")]  # fmt: skip
    lines = alt.Chart(table)
    band = lines.transform_filter("isValid(datum.from)").mark_area(opacity=0.15)
    at = alt.Chart(pd.DataFrame({"n": [n]})).mark_rule(color=look.ink, strokeDash=[4, 3])
    marks = [
        band.encode(x, alt.Y("from:Q", **axis), y2="to:Q", color=colour),
        lines.mark_line(strokeWidth=2).encode(x, y, color=colour),
        lines.mark_point(filled=True, size=55, opacity=1).encode(x, y, color=colour, tooltip=tips),
        at.encode(x="n:Q"),
        alt.Chart(mine).mark_point(shape="diamond", filled=True, size=150, opacity=1)
        .encode(x, y, color=colour, tooltip=tips),
    ]  # fmt: skip
    return alt.layer(*marks).properties(height=TALL)


def _mine(own: CutCost | None, kind: str) -> pd.DataFrame:
    """The user's own cut as one point."""
    if own is None:
        return pd.DataFrame(columns=COLUMNS)
    found = measured(own.readings, own.base, kind)
    low, high = ends(found)
    return pd.DataFrame([{
        "by": MINE, "n": len(own.dropped), "value": float(found.value), "from": float(low),
        "to": float(high), "layers": ", ".join(map(str, own.dropped)),
    }])  # fmt: skip


def _ratio(values: np.ndarray) -> dict[str, Any]:
    """A logarithmic axis of perplexities over the base's, labelled by the rise in per cent."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (1.0, 2.0)
    low, high = max(min(low, 1.0) * 0.98, 1e-3), min(max(high, 1.05) * 1.02, np.exp(LARGEST))
    ticks = [tick for tick in TICKS if low <= tick <= high]
    ticks = ticks if len(ticks) <= 7 else ticks[:1] + ticks[1 :: max(1, len(ticks) // 6)]
    label = "(datum.value >= 1 ? '+' : '') + format(100 * (datum.value - 1), ',.0f') + ' %'"
    axis = alt.Axis(values=ticks, labelExpr=label, grid=True, gridOpacity=0.3)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    return {"scale": scale, "axis": axis, "title": "perplexity, rise over the base (log)"}


def scatter(score: np.ndarray, cost: Measure, by: str, look: Shade) -> Any:
    """A score against the measured cost of leaving out each layer alone."""
    low, high = ends(cost)
    table = pd.DataFrame({
        "layer": np.arange(len(score)), "score": rounded(score), "cost": rounded(cost.value),
        "from": rounded(low), "to": rounded(high),
    })  # fmt: skip
    table = table.dropna(subset=["score", "cost"])
    few = alt.Axis(tickCount=4, format="~g")
    x = alt.X(
        "score:Q", title=f"score by {by}", scale=_logarithmic(table[["score"]].to_numpy()), axis=few
    )
    scale = _logarithmic(table[["cost", "from", "to"]].to_numpy())
    title = "KL without the layer, nats"
    y = alt.Y("cost:Q", title=title, scale=scale, axis=few)
    tips = ["layer:O", alt.Tooltip("score:Q", format=".3g"), alt.Tooltip("cost:Q", format=".3g")]
    base = alt.Chart(table).encode(x)
    bars = base.transform_filter("isValid(datum.from)").mark_rule(color=QUIET, opacity=0.6)
    text = base.mark_text(font=FONT, fontSize=10, dx=9, dy=-6, color=look.ink)
    return alt.layer(
        bars.encode(alt.Y("from:Q", scale=scale, title=title, axis=few), y2="to:Q"),
        base.mark_point(filled=True, size=60, opacity=1, color=COLOURS.get(by, QUIET))
        .encode(y, tooltip=tips),
        text.encode(y, text="layer:O"),
    ).properties(height=250)  # fmt: skip


def _logarithmic(values: np.ndarray) -> alt.Scale:
    """A logarithmic scale where every value is above 0, a linear one elsewhere."""
    known = values[np.isfinite(values)]
    if not known.size or known.min() <= 0:
        return alt.Scale(zero=False, padding=12)
    low, high = float(known.min()) * 0.8, float(known.max()) * 1.25
    return alt.Scale(type="log", domain=[low, high], nice=False)
