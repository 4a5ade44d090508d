"""Layer × layer maps that can be clicked, on one scale; where two tests disagree; strips below."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.drawing import scaled
from app.charts.measures import ends
from app.charts.theme import FONT, Scale, Shade
from app.sentences.numbers import number
from engine.records import Measure

CLICK = "clicked"
"""Name of the selection that a click on a cell makes."""
FLOOR = 1e-6
"""Nats: what is smaller is drawn here, rounding."""
PRINTED = 12
"""Up to this many layers a cell also shows its number."""
DIGITS = 4
DECADES = 1e3
"""How far a row of the strip reaches down from its largest value."""
KIND_COLOURS = ("#BBD5E8", "#F2D3A9", "#CFE3CB", "#E3CDE0", "#D9D9D9")


@dataclass(frozen=True)
class Maps:
    """What is drawn: tests of pairs and of single layers, nan where not measured."""

    layers: int
    kinds: tuple[str, ...]
    pairs: Mapping[str, Measure]  # [layers, layers], the diagonal nan
    singles: Mapping[str, Measure]  # [layers]
    influence: np.ndarray | None  # [layers]
    published: bool


@dataclass(frozen=True)
class Pair:
    """Two layers: depth i, layer j."""

    i: int
    j: int

    @property
    def same(self) -> bool:
        return self.i == self.j


Domain = tuple[float, float]


def domain(measures: Iterable[Measure]) -> Domain:
    """The ends of one scale for several maps, in nats, at least a factor of ten apart."""
    parts = [np.asarray(measure.value, np.float64).ravel() for measure in measures]
    values = np.concatenate([*parts, np.zeros(0)])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return 1e-3, 1.0
    low, high = max(float(values.min()), FLOOR), max(float(values.max()), FLOOR)
    return min(low, high / 10), max(high, 10 * FLOOR)


def cells(measure: Measure, low: float) -> pd.DataFrame:
    """Every measured cell, `drawn` no lower than the scale."""
    value = np.asarray(measure.value, np.float64)
    i, j = np.nonzero(~np.isnan(value))
    table = pd.DataFrame({"i": i, "j": j, "KL": rounded(value[i, j])})
    table["drawn"] = table["KL"].clip(lower=low)
    if measure.low is not None:
        table["from"], table["to"] = (rounded(end[i, j]) for end in ends(measure))
    return table


def rounded(values: np.ndarray) -> np.ndarray:
    """Values in four digits: less to send, no difference to see."""
    return np.array([float(f"{value:.{DIGITS}g}") for value in np.asarray(values).ravel()])


def pair_map(
    maps: Maps, test: str, span: Domain, look: Shade, chosen: Pair, *, clicks: bool = True
) -> Any:
    """KL of every pair, depth i down and layer j across; a click on a cell selects its pair."""
    table = cells(maps.pairs[test], span[0])
    scale = _logarithmic(look.sequential, span)
    tips = [alt.Tooltip("i:O", title="depth i"), alt.Tooltip("j:O", title="layer j"),
            alt.Tooltip("KL:Q", title=f"{test}, nats", format=".3g")]  # fmt: skip
    if "from" in table:
        tips += [alt.Tooltip(end, format=".3g", title=f"interval {end}") for end in ("from", "to")]
    legend = _legend("KL, nats (log)", "~g", values=ticks(span))
    colour = alt.Color("drawn:Q", scale=scale, legend=legend)
    layers = [_area(table, maps.layers, colour, tips, clicks=clicks)]
    if maps.layers <= PRINTED:
        dark = float(np.sqrt(span[0] * span[1])) * (span[1] / span[0]) ** 0.15
        layers.append(_numbers(table, maps.layers, "KL", alt.datum.drawn > dark, look))
    return _framed(layers, maps.layers, look, chosen)


def ratios(left: Measure, right: Measure) -> pd.DataFrame:
    """log₂(left / right) of every pair that both have measured."""
    a, b = (np.asarray(measure.value, np.float64) for measure in (left, right))
    i, j = np.nonzero(~np.isnan(a) & ~np.isnan(b))
    top, bottom = (np.maximum(values[i, j], FLOOR) for values in (a, b))
    return pd.DataFrame({
        "i": i, "j": j, "log": rounded(np.log2(top / bottom)), "ratio": rounded(top / bottom),
    })  # fmt: skip


def disagreement(
    maps: Maps, left: Measure, right: Measure, names: tuple[str, str], look: Shade, chosen: Pair
) -> Any:
    """log₂ of the first pair score over the second: 0 where both tests agree."""
    table = ratios(left, right)
    top = float(np.abs(table["log"].to_numpy()).max(initial=1.0))
    title = f"log₂({names[0]} / {names[1]})"
    tips = [alt.Tooltip("i:O"), alt.Tooltip("j:O"), alt.Tooltip("log:Q", title=title, format=".2f"),
            alt.Tooltip("ratio:Q", title=f"{names[0]} over {names[1]}", format=".3g")]  # fmt: skip
    scale = scaled(look.diverging, -top, top)
    colour = alt.Color("log:Q", scale=scale, legend=_legend(title, ".1f", tickCount=5))
    layers = [_area(table, maps.layers, colour, tips, clicks=True)]
    if maps.layers <= PRINTED:
        strong = (alt.datum.log > 0.6 * top) | (alt.datum.log < -0.6 * top)
        layers.append(_numbers(table, maps.layers, "log", strong, look))
    return _framed(layers, maps.layers, look, chosen)


def _area(
    table: pd.DataFrame, layers: int, colour: alt.Color, tips: list[Any], *, clicks: bool
) -> alt.Chart:
    area = alt.Chart(table).mark_rect(cursor="pointer")
    area = area.encode(*_axes(layers), color=colour, tooltip=tips)
    click = alt.selection_point(name=CLICK, fields=["i", "j"], toggle=False)
    return area.add_params(click) if clicks else area


def _axes(layers: int) -> tuple[alt.X, alt.Y]:
    every = list(range(layers))
    thin = every[:: max(1, layers // 12)]
    scale = alt.Scale(domain=every, paddingInner=0.04, paddingOuter=0)
    axis = alt.Axis(values=thin, labelAngle=0)
    return (
        alt.X("j:O", scale=scale, axis=axis, title="layer j"),
        alt.Y("i:O", scale=scale, axis=axis, title="depth i"),
    )


def _logarithmic(colours: Scale, span: Domain) -> alt.Scale:
    low, high = np.log10(span)
    at = [float(10 ** (low + (high - low) * share)) for share, _ in colours]
    return alt.Scale(type="log", domain=at, range=[c for _, c in colours], interpolate="rgb")


def ticks(span: Domain) -> list[float]:
    """Round numbers on a logarithmic scale: powers of ten, with halves between where few."""
    low, high = (int(np.floor(np.log10(end))) for end in span)
    powers = [float(f"1e{power}") for power in range(low, high + 2)]
    inside = [x for x in powers if span[0] <= x <= span[1]]
    if len(inside) > 2:
        return inside
    some = [float(f"{m}e{power}") for power in range(low, high + 1) for m in (1, 2, 5)]
    return [x for x in some if span[0] <= x <= span[1]]


def _legend(title: str, digits: str, **more: Any) -> alt.Legend:
    return alt.Legend(
        title=title, orient="top", direction="horizontal", gradientLength=180, gradientThickness=8,
        format=digits, titleFontWeight="normal", **more,
    )  # fmt: skip


def _numbers(table: pd.DataFrame, layers: int, column: str, dark: Any, look: Shade) -> alt.Chart:
    text = table.assign(shown=[number(float(x), 2) for x in table[column]])
    ends = look.sequential[0][1], look.ink
    ink = alt.condition(dark, alt.value(ends[0]), alt.value(ends[1]))
    mark = alt.Chart(text).mark_text(font=FONT, fontSize=11)
    return mark.encode(*_axes(layers), text="shown:N", color=ink)


def _framed(layers: list[alt.Chart], count: int, look: Shade, chosen: Pair) -> Any:
    """The layers of a map with a frame on the chosen pair, on a ground that says: not measured."""
    x, y = _axes(count)
    here = alt.Chart(pd.DataFrame([{"i": chosen.i, "j": chosen.j}]))
    rims = ((look.surface, 5.0), (look.ink, 2.5))  # a light rim inside a dark cell, a dark one too
    found = [
        *layers,
        *(
            here.mark_rect(fillOpacity=0, stroke=ink, strokeWidth=width).encode(x, y)
            for ink, width in rims
        ),
    ]
    ground = alt.ViewBackground(fill=look.grid, fillOpacity=0.9)
    return alt.layer(*found).properties(height=tall(count), view=ground)


def tall(layers: int) -> int:
    """Pixels of a picture with a row for each layer."""
    return int(min(max(layers * 34, 180), 380)) + 50


def strip(rows: Mapping[str, np.ndarray], kinds: tuple[str, ...], look: Shade, chosen: Pair) -> Any:
    """One row a measure, each on a scale of its own from its least to its most; the kinds below."""
    table = strips(rows)
    count = len(kinds)
    order = [*rows, *(["kind of layer"] if len(set(kinds)) > 1 else [])]
    every = list(range(count))
    axis = alt.Axis(values=every[:: max(1, count // 30)], labelAngle=0)
    x = alt.X("layer:O", scale=alt.Scale(domain=every, paddingInner=0.06), axis=axis, title="layer")
    y = alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=260),
              scale=alt.Scale(domain=order, paddingInner=0.12))  # fmt: skip
    tips = ["row:N", "layer:O", alt.Tooltip("value:Q", format=".3g")]
    colour = alt.Color("share:Q", scale=scaled(look.sequential, 0.0, 1.0), legend=None)
    base = alt.Chart(table)
    found = [base.mark_rect().encode(x, y, color=colour, tooltip=tips)]
    if count <= PRINTED + 4:
        ink = alt.condition(
            alt.datum.share > 0.6, alt.value(look.sequential[0][1]), alt.value(look.ink)
        )
        text = base.mark_text(font=FONT, fontSize=11).encode(x, y, text="shown:N", color=ink)
        found.append(text)
    if len(set(kinds)) > 1:
        found.append(_kinds(kinds, x, y))
    frame = pd.DataFrame([{"row": r, "layer": k} for r in order for k in {chosen.i, chosen.j}])
    marks = alt.Chart(frame).mark_rect(fillOpacity=0, stroke=look.ink, strokeWidth=1.5)
    found.append(marks.encode(x, y))
    ground = alt.ViewBackground(fill=look.grid, fillOpacity=0.9)
    height = 26 * len(order) + 46
    return alt.layer(*found).resolve_scale(color="independent").properties(
        height=height, view=ground
    )  # fmt: skip


def strips(rows: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Rows of one value a layer; `share` is where it stands between the row's least and most."""
    found = []
    for row, values in rows.items():
        share = shares(np.asarray(values, np.float64))
        found += [
            {"row": row, "layer": layer, "value": float(value), "share": round(float(part), 4),
             "shown": number(float(value), 2)}
            for layer, (value, part) in enumerate(zip(values, share, strict=True))
            if not np.isnan(value)
        ]  # fmt: skip
    return pd.DataFrame(found, columns=["row", "layer", "value", "share", "shown"])


def shares(values: np.ndarray) -> np.ndarray:
    """0 at the least, 1 at the most, logarithmic over at most three decades.

    An infinite value counts as the most, one below the decades, or below 0, as the least.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.ones_like(values)
    top = max(float(finite.max()), FLOOR)
    drawn = np.log(np.maximum(np.where(np.isposinf(values), top, values), top / DECADES))
    low, high = np.nanmin(drawn), np.nanmax(drawn)
    return (drawn - low) / (high - low) if high > low else np.full_like(drawn, 0.5)


def _kinds(kinds: tuple[str, ...], x: alt.X, y: alt.Y) -> alt.Chart:
    known = list(dict.fromkeys(kinds))
    table = pd.DataFrame({"row": "kind of layer", "layer": range(len(kinds)), "kind": kinds})
    scale = alt.Scale(domain=known, range=[*KIND_COLOURS][: len(known)])
    colour = alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="bottom"))
    return alt.Chart(table).mark_rect().encode(x, y, color=colour, tooltip=["layer:O", "kind:N"])
