"""Barriers relative to the naive line: as published, and as measured here, pair by pair."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.theme import PLUS, QUIET, Shade
from engine.records import (
    VARIANTS,
    Connectivity,
    OrderTrial,
    PublishedConnectivity,
    ScopeRatios,
)

TITLES = {
    "llama": "Llama", "gpt2": "GPT-2", "vit": "ViT", "modernbert": "ModernBERT", "bert": "BERT",
}  # fmt: skip
PUBLISHED = "published: ViT, BERT"
NAMES = {
    "none": "Stage 1 alone", "orthogonal": "orthogonal Stage 2", "full": "full Stage 2",
}  # fmt: skip
"""What an alignment with so much of Stage 2 is called, in pictures, tables and sentences."""
COLOURS = {"none": QUIET, "orthogonal": "#E69F00", "full": PLUS}
ROW, LINE, AROUND, WIDEST = 50, 24, 90, 1.25
"""Pixels of an architecture, of a pair, of axes and legend; the largest ratio at its place."""


def title(name: str) -> str:
    """An architecture as it is written."""
    return TITLES.get(name, name)


def dots(measured: Connectivity, scope: str) -> pd.DataFrame:
    """Every pair of every architecture in one scope that has a ratio."""
    found = []
    for one in of_scope(measured, scope):
        for place, variant in enumerate(VARIANTS):
            for pair, (value, low, high) in zip(one.pairs, one.relative[place], strict=True):
                if not np.isnan(value):
                    found.append({
                        "who": title(one.architecture), "stage": NAMES[variant], "variant": variant,
                        "pair": " to ".join(pair), "ratio": value, "low": low, "high": high,
                    })  # fmt: skip
    columns = ["who", "stage", "variant", "pair", "ratio", "low", "high"]
    return pd.DataFrame(found, columns=columns)


def of_scope(measured: Connectivity, scope: str) -> list[ScopeRatios]:
    """What was measured in one scope."""
    return [one for one in measured.scopes if one.scope == scope]


def ranges(told: PublishedConnectivity) -> pd.DataFrame:
    """The published ranges, in the same columns."""
    return pd.DataFrame([
        {"who": PUBLISHED, "stage": NAMES[variant], "variant": variant,
         "pair": "range over data sets", "low": low, "high": high}
        for variant, (low, high) in told.relative.items()
    ])  # fmt: skip


def ratios(measured: Connectivity, told: PublishedConnectivity, scope: str, look: Shade) -> Any:
    """Bars: the published ranges. Dots: pairs with their intervals. Ticks: means over pairs."""
    table, theirs = dots(measured, scope), ranges(told)
    rows = [PUBLISHED, *dict.fromkeys(table["who"])]
    means = table.groupby(["who", "stage"], sort=False, as_index=False)["ratio"].mean()
    stages = [NAMES[variant] for variant in VARIANTS]
    y = alt.Y("who:N", sort=rows, title=None, axis=alt.Axis(labelLimit=170))
    across = alt.YOffset("stage:N", sort=stages)
    colour = alt.Color(
        "stage:N", sort=stages,
        scale=alt.Scale(domain=stages, range=[COLOURS[variant] for variant in VARIANTS]),
        legend=alt.Legend(title=None, orient="top", symbolOpacity=1, symbolType="square"),
    )  # fmt: skip
    scale = alt.Scale(domain=[0, WIDEST], clamp=True, nice=False)
    axis = alt.Axis(format="%", tickCount=6, grid=True, gridOpacity=0.3)
    x = alt.X("low:Q", scale=scale, axis=axis, title="barrier relative to the naive line")
    tips = ["who:N", "stage:N", "pair:N"]
    ends = [alt.Tooltip(f"{end}:Q", format=".1%") for end in ("low", "high")]
    band = alt.Chart(theirs).mark_bar(height=9, opacity=0.9)
    wide = alt.Chart(table).mark_rule(strokeWidth=1.5, opacity=0.45)
    dot = alt.Chart(table).mark_point(filled=True, size=45, opacity=0.85)
    tick = alt.Chart(means).mark_tick(thickness=2, height=14)
    line = alt.Chart(pd.DataFrame({"at": [1.0]})).mark_rule(color=look.ink, strokeDash=[5, 4])
    here = alt.Tooltip("ratio:Q", format=".1%")
    return alt.layer(
        line.encode(x=alt.X("at:Q", scale=scale)),
        band.encode(x, y, across, colour, x2="high:Q", tooltip=[*tips, *ends]),
        wide.encode(x, y, across, colour, x2="high:Q", tooltip=[*tips, *ends]),
        dot.encode(alt.X("ratio:Q", scale=scale), y, across, colour, tooltip=[*tips, here, *ends]),
        tick.encode(alt.X("ratio:Q", scale=scale), y, across, colour, tooltip=["who:N", here]),
    ).properties(height=ROW * len(rows) + AROUND)


def table(measured: Connectivity) -> pd.DataFrame:
    """Mean and range of the ratios of every architecture and scope, and of the naive barrier."""
    found = []
    for one in measured.scopes:
        what = measured.architectures[one.architecture]
        row = {
            "model": title(one.architecture), "positions": what.positions, "scope": one.scope,
            "matched by": one.using, "pairs": len(one.pairs),
            "naive, nats": span(one.naive, "{:.2g}"),
        }  # fmt: skip
        found.append(row | {NAMES[v]: span(one.of(v)[:, 0], "{:.0%}") for v in VARIANTS})
    return pd.DataFrame(found)


def span(values: np.ndarray, form: str) -> str:
    """Mean and, in brackets, the smallest and the largest."""
    if not len(values):
        return "no ratio"
    mean, low, high = (form.format(x) for x in (values.mean(), values.min(), values.max()))
    return f"{mean} ({low} to {high})"


def pairs(measured: Connectivity) -> pd.DataFrame:
    """Every pair: the naive barrier, three ratios with intervals, full minus orthogonal."""
    found = []
    for one in measured.scopes:
        for place, (a, b) in enumerate(one.pairs):
            row = {
                "model": title(one.architecture), "scope": one.scope, "matched by": one.using,
                "a": a, "b": b, "naive, nats": one.naive[place],
            }  # fmt: skip
            for number, variant in enumerate(VARIANTS):
                row |= _triple(NAMES[variant], one.relative[number, place])
            found.append(row | _triple("full minus orthogonal, nats", one.difference[place]))
    return pd.DataFrame(found)


def _triple(name: str, found: np.ndarray) -> dict[str, float]:
    return dict(zip((name, f"{name} low", f"{name} high"), map(float, found), strict=True))


def orders(trials: tuple[OrderTrial, ...], look: Shade) -> Any:
    """Dots: the barrier of every order of the heads, the chosen larger; ticks: the naive line."""
    rows = []
    for number, trial in enumerate(trials, 1):
        who = f"{number}: {title(trial.architecture)}"
        for place, each in enumerate(np.argsort(trial.barrier, kind="stable")):
            rows.append({"who": who, "pair": " to ".join(trial.pair), "rank": place + 1,
                         "barrier": trial.barrier[each],
                         "order": "chosen" if each == trial.chosen else "other"})  # fmt: skip
    data = pd.DataFrame(rows, columns=["who", "pair", "rank", "barrier", "order"])
    colour = alt.Color(
        "order:N", scale=alt.Scale(domain=["other", "chosen"], range=[QUIET, PLUS]),
        legend=alt.Legend(title=None, orient="top", symbolOpacity=1),
    )  # fmt: skip
    size = alt.Size("order:N", scale=alt.Scale(domain=["other", "chosen"], range=[20, 110]),
                    legend=None)  # fmt: skip
    names = list(dict.fromkeys(data["who"]))
    naive = pd.DataFrame({"who": names, "barrier": [trial.naive for trial in trials]})
    grid = alt.Axis(grid=True, gridOpacity=0.3, tickCount=6)
    x = alt.X("barrier:Q", title="barrier, nats", axis=grid)
    y = alt.Y("who:N", sort=names, title=None)
    tips = ["pair:N", "rank:Q", "order:N", alt.Tooltip("barrier:Q", format=".3g")]
    dots = alt.Chart(data).mark_point(filled=True, opacity=0.9)
    line = alt.Chart(naive).mark_tick(color=look.ink, thickness=2)
    return alt.layer(
        line.encode(x, y, tooltip=[alt.Tooltip("barrier:Q", format=".3g", title="naive")]),
        dots.encode(x, y, colour, size, tooltip=tips),
    ).properties(height=LINE * len(trials) + AROUND)
