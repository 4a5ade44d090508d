"""The angle and modulus of every rotary frequency: maps, one head as a clock, the landscape."""

from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.charts.drawing import scaled
from app.charts.heads import CLICK
from app.charts.theme import MINUS, PLUS, QUIET, TRUTH, Shade, arrange
from engine.records import HeadsReport, Turns

Part = Literal["angle", "modulus"]
DEGREES, MODULI = 181, 81
"""Points of the landscape along each axis."""
NEAR = 1e-3
"""Turns that a clock cannot tell apart."""
AROUND = ["0°", "45°", "90°", "135°", "±180°", "−135°", "−90°", "−45°"]
"""The ticks of a clock, from 0 up to 360°, as angles φ."""


def frequencies(record: HeadsReport, turns: Turns) -> pd.DataFrame:
    """Every frequency of every key/value head: angle, modulus, weight, the truth where known."""
    groups, count = turns.angle.shape
    group, frequency = np.divmod(np.arange(groups * count), count)
    table = pd.DataFrame({
        "group of A": group,
        "group of B": record.group_order[group],
        "frequency": frequency,
        "angle": np.degrees(turns.angle).ravel(),
        "log r": turns.log_modulus.ravel(),
        "r": np.exp(turns.log_modulus).ravel(),
        "weight": turns.weight.ravel(),
    })  # fmt: skip
    if turns.planted_angle is not None and turns.planted_log_modulus is not None:
        table["planted angle"] = np.degrees(turns.planted_angle).ravel()
        table["planted log r"] = turns.planted_log_modulus.ravel()
    return table


def turn_map(
    record: HeadsReport,
    turns: Turns,
    part: Part,
    look: Shade,
    chosen: tuple[int, int],
    click: str = CLICK,
) -> Any:
    """φ on a scale whose ends meet, or log r around 0; a click selects a head and a frequency."""
    table = frequencies(record, turns)
    table["row"] = [_row(record, group) for group in table["group of A"]]
    table["head"] = table["group of A"] * record.per_group
    labels = [_row(record, group) for group in range(record.groups)]
    x = alt.X("frequency:O", title="frequency, fastest first", axis=_thin(turns.angle.shape[1]))
    y = alt.Y("row:N", sort=labels, title=None, axis=alt.Axis(labelLimit=140, labelPadding=6))
    select = alt.selection_point(name=click, fields=["head", "frequency"], toggle=False)
    tips = [
        alt.Tooltip("row:N", title="head of A"),
        "frequency:O",
        alt.Tooltip("angle:Q", title="angle φ, degrees", format=".1f"),
        alt.Tooltip("r:Q", title="modulus r", format=".3f"),
        alt.Tooltip("weight:Q", title="its share of the head", format=".1%"),
    ]
    base = alt.Chart(table)
    area = base.mark_rect(stroke=look.grid, strokeWidth=0.5, cursor="pointer").encode(
        x, y, _colour(part, turns, look), tooltip=tips
    )
    group, frequency = chosen
    on = (alt.datum["group of A"] == group) & (alt.datum.frequency == frequency)
    frame = base.transform_filter(on).mark_rect(fillOpacity=0, stroke=look.ink, strokeWidth=2.5)
    layers = alt.layer(area.add_params(select), frame.encode(x, y))
    title = {"angle": "angle φ, degrees", "modulus": "modulus, log r"}[part]
    return layers.properties(title=title, height=alt.Step(34 if record.groups <= 12 else 16))


def _row(record: HeadsReport, group: int) -> str:
    first, last = group * record.per_group, (group + 1) * record.per_group - 1
    return f"head {first}" if record.per_group == 1 else f"heads {first} to {last}"


def _thin(count: int) -> alt.Axis:
    return alt.Axis(labelAngle=0, values=list(range(0, count, max(1, count // 16))))


def _colour(part: Part, turns: Turns, look: Shade) -> alt.Color:
    thin: dict[str, Any] = {"title": None, "gradientThickness": 8, "gradientLength": 80}
    if part == "angle":
        legend = alt.Legend(values=[-180, -90, 0, 90, 180], **thin)
        return alt.Color("angle:Q", scale=scaled(look.cyclic, -180, 180), legend=legend)
    end = max(float(np.abs(turns.log_modulus).max(initial=0.0)), 0.1)
    legend = alt.Legend(format=".2f", **thin)
    return alt.Color("log r:Q", scale=scaled(look.diverging, -end, end), legend=legend)


def clock(turns: Turns, group: int, frequency: int, look: Shade) -> go.Figure:
    """One head: radius is the modulus, the angle is φ, the size is a frequency's weight."""
    figure = go.Figure()
    everywhere = np.linspace(0, 360, 121).astype(np.float32)
    circle = {"color": QUIET, "width": 1.2, "dash": "dash"}
    figure.add_trace(
        go.Scatterpolar(
            theta=everywhere, r=np.ones_like(everywhere), mode="lines", line=circle,
            name="r = 1", hoverinfo="skip",
        )
    )  # fmt: skip
    if turns.planted_angle is not None and turns.planted_log_modulus is not None:
        figure.add_trace(_rings(turns.planted_angle[group], turns.planted_log_modulus[group]))
    figure.add_trace(_hands(turns, group, frequency, look))
    arrange(figure, look, 400)
    reach = _reach(turns, group)
    axis = {"gridcolor": look.grid, "linecolor": look.grid}
    ticks = {"tickvals": list(range(0, 360, 45)), "ticktext": AROUND}
    return figure.update_layout(
        margin={"l": 40, "r": 40, "t": 30, "b": 30},
        polar={
            "bgcolor": "rgba(0,0,0,0)",
            "radialaxis": {**axis, "range": [0, reach], "angle": 90, "tickangle": 90, "nticks": 4},
            "angularaxis": {**axis, **ticks},
        },
    )


def _reach(turns: Turns, group: int) -> float:
    return float(np.exp(max(turns.log_modulus[group].max(initial=0.0), 0.0))) * 1.15


def _rings(angle: np.ndarray, log_modulus: np.ndarray) -> go.Scatterpolar:
    return go.Scatterpolar(
        theta=np.degrees(angle).astype(np.float32),
        r=np.exp(log_modulus).astype(np.float32),
        mode="markers",
        name="planted truth",
        marker={"symbol": "circle-open", "size": 19, "color": TRUTH, "line": {"width": 2}},
        hovertemplate="planted: φ %{theta:.1f}°, r %{r:.3f}<extra></extra>",
    )


def _hands(turns: Turns, group: int, frequency: int, look: Shade) -> go.Scatterpolar:
    weight = turns.weight[group]
    share = weight / max(float(weight.max()), 1e-30)
    few = len(weight) <= 16
    edge = np.where(np.arange(len(weight)) == frequency, 3.0, 0.0)
    return go.Scatterpolar(
        theta=np.degrees(turns.angle[group]).astype(np.float32),
        r=np.exp(turns.log_modulus[group]).astype(np.float32),
        mode="markers+text" if few else "markers",
        text=_names(turns, group),
        textposition="top center",
        customdata=np.stack([weight, np.arange(len(weight))], -1).astype(np.float32),
        name="found, size: weight",
        marker={
            "size": (5 + 11 * np.sqrt(share)).astype(np.float32),
            "color": PLUS,
            "line": {"width": edge, "color": look.ink},
        },
        hovertemplate="frequency %{customdata[1]:.0f}: φ %{theta:.1f}°, r %{r:.3f}, "
        "weight %{customdata[0]:.1%}<extra></extra>",
    )


def _names(turns: Turns, group: int) -> list[str]:
    """The number of every frequency; those at one place stand together, at the first of them."""
    z = np.exp(turns.log_modulus[group] + 1j * turns.angle[group])
    same = np.abs(z[:, None] - z) < NEAR
    first = same.argmax(1)
    every = np.arange(len(z))
    return [
        " ".join(str(i) for i in every[first == number]) if first[number] == number else ""
        for number in every
    ]


def share(turns: Turns, group: int, frequency: int, value: Any) -> Any:
    """An objective over ‖q_A‖² + ‖k_A‖² of its frequency."""
    return value / max(float(turns.constant[group, frequency]), 1e-300)


def curve(
    turns: Turns, group: int, frequency: int, angle: float, log_modulus: float, look: Shade
) -> go.Figure:
    """The objective over the angle, at the modulus by hand and at the one that was found."""
    here = group, frequency
    degrees = np.linspace(-180, 180, 361)
    found = float(turns.log_modulus[here])
    figure = go.Figure()
    for name, at, style in (
        ("at the found modulus", found, {"color": QUIET, "dash": "dash", "width": 1.5}),
        ("at the modulus by hand", log_modulus, {"color": PLUS, "width": 2.5}),
    ):
        values = share(turns, *here, turns.objective(*here, np.radians(degrees), at))
        figure.add_trace(
            go.Scatter(
                x=degrees.astype(np.float32), y=values.astype(np.float32), mode="lines", name=name,
                line=style, hovertemplate="φ %{x:.0f}°: %{y:.4g}<extra></extra>",
            )
        )  # fmt: skip
    best = share(turns, *here, turns.best(*here))
    figure.add_trace(_mark((np.degrees(turns.angle[here]), best), "found", "circle", PLUS, look))
    mine = share(turns, *here, float(turns.objective(*here, np.radians(angle), log_modulus)))
    figure.add_trace(_mark((angle, mine), "by hand", "diamond", MINUS, look))
    arrange(figure, look, 340)
    figure.update_xaxes(title="angle φ, degrees", range=[-183, 183], dtick=45)
    return figure.update_yaxes(title="objective, relative", rangemode="tozero")


def landscape(
    turns: Turns, group: int, frequency: int, angle: float, log_modulus: float, look: Shade
) -> go.Figure:
    """The objective over angle and log r, with the found optimum, the hand and the truth."""
    here = group, frequency
    found = float(turns.log_modulus[here])
    end = max(1.2, abs(found) + 0.4, abs(log_modulus) + 0.1)
    degrees, logs = np.linspace(-180, 180, DEGREES), np.linspace(-end, end, MODULI)
    values = turns.objective(*here, np.radians(degrees)[None], logs[:, None])
    figure = go.Figure(
        go.Contour(
            z=np.log10(np.maximum(share(turns, *here, values), 1e-4)).astype(np.float32),
            x=degrees.astype(np.float32),
            y=logs.astype(np.float32),
            ncontours=16,
            colorscale=look.sequential,
            line={"width": 0.5, "color": look.grid},
            colorbar={"thickness": 8, "title": {"text": "log₁₀", "font": {"size": 12}}},
            hovertemplate="φ %{x:.0f}°, log r %{y:.2f}: 10^%{z:.2f}<extra></extra>",
        )
    )
    if turns.planted_angle is not None and turns.planted_log_modulus is not None:
        at = np.degrees(turns.planted_angle[here]), float(turns.planted_log_modulus[here])
        ring = _mark(at, "planted truth", "circle-open", TRUTH, look, 20)
        figure.add_trace(ring)
    figure.add_trace(_mark((np.degrees(turns.angle[here]), found), "found", "circle", PLUS, look))
    figure.add_trace(_mark((angle, log_modulus), "by hand", "diamond", MINUS, look))
    arrange(figure, look, 340)
    figure.update_xaxes(title="angle φ, degrees", range=[-180, 180], dtick=45)
    return figure.update_yaxes(title="log r", range=[-end, end])


def _mark(
    where: tuple[float, float], name: str, symbol: str, colour: str, look: Shade, size: int = 12
) -> go.Scatter:
    edge = {"width": 2.5 if symbol.endswith("open") else 1.5}
    edge |= {} if symbol.endswith("open") else {"color": look.surface}
    return go.Scatter(
        x=[float(where[0])], y=[float(where[1])], mode="markers", name=name, cliponaxis=False,
        marker={"symbol": symbol, "size": size, "color": colour, "line": edge},
        hovertemplate=f"{name}: %{{x:.1f}}°, %{{y:.4g}}<extra></extra>",
    )  # fmt: skip
