"""The line between two models: a curve for every stage, its chord, and where it stands highest."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import altair as alt
import numpy as np
import pandas as pd

from app.charts.covering import covering, joined
from app.charts.layer_maps import rounded
from app.charts.measures import Number, at, ends
from app.charts.theme import FONT, QUIET, TRUTH, Shade
from app.sentences.numbers import number
from engine.records import BarrierReport, Curve, Measure

Quantity = Literal["loss", "accuracy"]
"""What a curve can be read for."""
What = Literal["loss", "accuracy", "perplexity"]
WHATS: tuple[What, ...] = get_args(What)
TITLES = {"loss": "loss, nats", "accuracy": "accuracy", "perplexity": "perplexity (log)"}
NAMES = {
    "none": "raw",
    "orders": "permutations only",
    "res-unsigned": "residual, signs off",
    "res": "residual",
    "ffn": "+ FFN",
    "heads": "+ head order",
    "orthogonal": "+ orthogonal inside heads",
    "all": "all coordinates",
    "refined": "refined along the loss",
    "random": "random gauge (control)",
}
"""What a stage is called in pictures and tables."""
COLOURS = {
    "none": "#D55E00", "orders": "#B8860B", "res-unsigned": "#E69F00", "res": "#CC79A7",
    "ffn": "#56B4E9", "heads": "#009E73", "orthogonal": TRUTH, "all": "#0072B2",
    "refined": "#7A4A2B", "random": QUIET,
}  # fmt: skip
TALL, DIGITS = 340, 3
FEW_LINES: dict[str, Any] = {"strokeWidth": 1, "strokeDash": [1, 5], "opacity": 0.7}
LEAST = 0.01
"""A barrier below this, in nats or as a share, is none that another could be a part of."""
ROOM = 1.1
"""Of the largest ratio that is drawn: room for what is written beside it."""
TINY = 0.01
"""Per cent below which a part is no longer told in digits."""
HIGHEST = 690.0
"""Nats beyond which a perplexity is no number."""
ALIKE = 1e-5
"""Relative difference of two chords that are drawn as one."""
WRAPPED = 34
"""Characters of a name in the legend up to which three stand in a row."""


def quantity(what: What) -> Quantity:
    """What a curve is read for: a perplexity is the exponential of a loss."""
    return "accuracy" if what == "accuracy" else "loss"


def drawn(curve: Curve, what: What) -> tuple[Measure, np.ndarray]:
    """The values of a curve with their intervals, and its chord.

    The chord of a perplexity is the exponential of the loss's, so that the barrier is the same.
    """
    found, chord = curve.points(quantity(what)), curve.chord(quantity(what))
    if what != "perplexity":
        return found, chord
    low, high = (None if end is None else _exp(end) for end in (found.low, found.high))
    return Measure(_exp(found.value), low, high), _exp(chord)


def _exp(values: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(values, HIGHEST))


def label(curve: Curve) -> str:
    """The stage, and that it is not whole."""
    return NAMES[curve.stage] + ("" if curve.complete else ", partial")


Names = Mapping[str, str]
"""What a figure calls a stage, where it is not `label`."""


def points(report: BarrierReport, what: What, called: Names | None = None) -> pd.DataFrame:
    """Every measured model of every stage."""
    return pd.concat(
        [_rows(curve, what, _name(curve, called)) for curve in report.curves]
        or [pd.DataFrame(columns=COLUMNS)],
        ignore_index=True,
    )


COLUMNS = ["stage", "shown", "t", "value", "from", "to", "chord", "excess"]


def _name(curve: Curve, called: Names | None) -> str:
    return label(curve) if called is None else called[curve.stage]


def _rows(curve: Curve, what: What, name: str) -> pd.DataFrame:
    found, chord = drawn(curve, what)
    low, high = ends(found)
    return pd.DataFrame({
        "stage": curve.stage, "shown": name, "t": rounded(curve.t),
        "value": rounded(found.value), "from": rounded(low), "to": rounded(high),
        "chord": rounded(chord), "excess": rounded(curve.excess(quantity(what)).value),
    })  # fmt: skip


def peaks(report: BarrierReport, what: What, called: Names | None = None) -> pd.DataFrame:
    """Where every stage is furthest from its chord: a point of the curve and one of the chord."""
    found = []
    for curve in report.curves:
        values, chord = drawn(curve, what)
        place = int(curve.excess(quantity(what)).value.argmax())
        found.append({
            "shown": _name(curve, called), "t": float(curve.t[place]),
            "value": float(values.value[place]), "chord": float(chord[place]),
            "barrier": at(curve.barrier(quantity(what))).said(DIGITS),
        })  # fmt: skip
    table = pd.DataFrame(found, columns=["shown", "t", "value", "chord", "barrier"])
    known = np.isfinite(table[["value", "chord"]].to_numpy(np.float64)).all(axis=1)
    return table.loc[known]


def chords(report: BarrierReport, what: What, called: Names | None = None) -> pd.DataFrame:
    """One chord for all stages where they agree, else one for each."""
    every = [(curve, drawn(curve, what)[1][[0, -1]]) for curve in report.curves]
    same = all(np.allclose(every[0][1], both, rtol=ALIKE) for _, both in every)
    kept = every[:1] if same else every
    rows = [
        {"shown": "chord" if same else _name(curve, called), "t": t, "value": float(value)}
        for curve, both in kept
        for t, value in zip((0.0, 1.0), both, strict=True)
    ]
    return pd.DataFrame(rows, columns=["shown", "t", "value"])


def lines(report: BarrierReport, what: What, t: float, look: Shade) -> Any:
    """Every stage against t with its interval as a band; chords dashed; the chosen t as a rule.

    A stroke from the chord to the curve marks each barrier; a click in the legend singles one out.
    """
    same = covering(report.curves)
    called, few = {one[0].stage: joined(one, label) for one in same}, len(report.grid) <= 3
    report = replace(report, curves=tuple(one[0] for one in same))
    table = points(report, what, called)
    table = table[np.isfinite(table["value"].to_numpy(np.float64))]
    shown = [called[curve.stage] for curve in report.curves]
    colours = [COLOURS[curve.stage] for curve in report.curves]
    columns = 3 if max(map(len, shown), default=0) <= WRAPPED else 2
    colour = alt.Color(
        "shown:N", scale=alt.Scale(domain=shown, range=colours),
        legend=alt.Legend(title=None, orient="top", columns=columns, symbolOpacity=1,
                          labelLimit=0),
    )  # fmt: skip
    single = alt.selection_point(name="single", fields=["shown"], bind="legend")
    strong = alt.condition(single, alt.value(1.0), alt.value(0.12))
    x = alt.X("t:Q", title="t: A at 0, the other end at 1", scale=alt.Scale(domain=[0, 1]),
              axis=alt.Axis(format=".2~f", tickCount=10))  # fmt: skip
    y = alt.Y("value:Q", title=TITLES[what], scale=_scale(what),
              axis=alt.Axis(grid=True, gridOpacity=0.3, format=".4~g"))  # fmt: skip
    base = alt.Chart(table).encode(x, color=colour)
    kept = base.transform_filter("isValid(datum.from)")
    band = kept.mark_rule(strokeWidth=7) if few else kept.mark_area()
    faint = alt.condition(single, alt.value(0.16), alt.value(0.02))
    # Three measured points are no curve: the strokes between them are only to follow.
    line = base.mark_line(**FEW_LINES) if few else base.mark_line(strokeWidth=2)
    line = line.encode(y, opacity=strong, tooltip=_tips(what))
    dots = base.mark_point(filled=True, size=70 if few else 16)
    dots = dots.encode(y, opacity=strong, tooltip=_tips(what))
    here = alt.Chart(pd.DataFrame({"t": [t]})).mark_rule(color=look.ink, strokeWidth=1.2)
    return alt.layer(
        band.encode(alt.Y("from:Q", scale=_scale(what)), y2="to:Q", opacity=faint)
        .add_params(single),
        _chord(chords(report, what, called), x, y, colour, look),
        line, dots,
        *_marked(peaks(report, what, called), x, y, colour, strong),
        here.encode(x="t:Q"),
    ).properties(height=TALL)  # fmt: skip


def _scale(what: What) -> alt.Scale:
    kind = "log" if what == "perplexity" else "linear"
    return alt.Scale(type=kind, zero=False, nice=False, padding=8)


def _tips(what: What) -> list[Any]:
    return [
        alt.Tooltip("shown:N", title="stage"), alt.Tooltip("t:Q", format=".4~f"),
        alt.Tooltip("value:Q", title=what, format=".4g"),
        alt.Tooltip("from:Q", title="interval from", format=".4g"),
        alt.Tooltip("to:Q", title="interval to", format=".4g"),
        alt.Tooltip("chord:Q", format=".4g"),
        alt.Tooltip("excess:Q", title="worse than the chord by", format=".3g"),
    ]  # fmt: skip


def _chord(table: pd.DataFrame, x: alt.X, y: alt.Y, colour: alt.Color, look: Shade) -> alt.Chart:
    marks = alt.Chart(table).mark_line(strokeDash=[6, 4], strokeWidth=1.5)
    if set(table["shown"]) == {"chord"}:
        return marks.encode(x, y, color=alt.value(look.ink))
    return marks.encode(x, y, color=colour, detail="shown:N")


def _marked(
    table: pd.DataFrame, x: alt.X, y: alt.Y, colour: alt.Color, strong: Any
) -> tuple[alt.Chart, alt.Chart]:
    """The barriers: strokes from the chord, and diamonds at their tops."""
    base = alt.Chart(table).encode(x, color=colour, opacity=strong)
    tips = [alt.Tooltip("shown:N", title="stage"), alt.Tooltip("t:Q", format=".4~f"), "barrier:N"]
    return (
        base.mark_rule(strokeWidth=1.5, strokeDash=[2, 2]).encode(y, y2="chord:Q"),
        base.mark_point(shape="diamond", filled=True, size=110).encode(y, tooltip=tips),
    )


def ratio(report: BarrierReport, stage: str, of: Quantity = "loss", to: str = "none") -> Number:
    """One barrier over another in per cent, the interval by the same windows; nan without one."""
    other, found = report.curve(to), report.relative(stage, to, of)
    if other is None or found is None or float(other.barrier(of).value) < LEAST:
        return Number(float("nan"))
    one = at(found)
    low, high = (None if end is None else 100 * end for end in (one.low, one.high))
    return Number(100 * one.value, low, high)


def ratios(report: BarrierReport, stages: tuple[str, ...], to: str, look: Shade) -> Any:
    """Barriers over that of one stage, in per cent, with their intervals."""
    none = float("nan")
    found = []
    for stage in stages:
        one = ratio(report, stage, "loss", to)
        low, high = (none if end is None else end for end in (one.low, one.high))
        said = f"below {TINY}" if one.value < TINY else number(one.value, DIGITS)
        row = {"stage": stage, "shown": NAMES[stage], "value": one.value, "from": low, "to": high,
               "said": said}  # fmt: skip
        found += [] if np.isnan(one.value) else [row]
    table = pd.DataFrame(found, columns=["stage", "shown", "value", "from", "to", "said"])
    order = [NAMES[stage] for stage in stages]
    y = alt.Y("shown:N", sort=order, title=None, axis=alt.Axis(labelLimit=240, labelPadding=10))
    top = float(np.nanmax(table[["value", "to"]].to_numpy(np.float64), initial=0.0))
    scale = alt.Scale(domain=[0, max(ROOM * top, 1e-3)], nice=False)
    x = alt.X("value:Q", title=f"barrier, % of {NAMES[to]}", scale=scale,
              axis=alt.Axis(grid=True, gridOpacity=0.3, tickCount=8))  # fmt: skip
    colour = alt.Color("stage:N", scale=alt.Scale(domain=list(stages),
                       range=[COLOURS[stage] for stage in stages]), legend=None)  # fmt: skip
    base = alt.Chart(table).encode(y)
    bars = base.transform_filter("isValid(datum.from)").mark_rule(strokeWidth=2, color=QUIET)
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x, color=colour, tooltip=["shown:N", alt.Tooltip("value:Q", format=".3g"),
                                  alt.Tooltip("from:Q", format=".3g"),
                                  alt.Tooltip("to:Q", format=".3g")],
    )  # fmt: skip
    # Left of a dot near 0 stands the name of its row.
    text = base.mark_text(font=FONT, fontSize=11, dy=-12, dx=-3, align="left", color=look.ink)
    return alt.layer(
        bars.encode(alt.X("from:Q"), x2="to:Q"), dots,
        text.encode(alt.X("value:Q"), text="said:N"),
    ).properties(height=46 * max(1, len(stages)) + 30)  # fmt: skip
