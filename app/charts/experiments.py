"""One experiment of the lab as pictures: how far the output moved, and what moved inside."""

import html
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.charts.cards import split
from app.charts.theme import MINUS, PLUS, QUIET, Shade, arrange
from app.sentences.numbers import number
from engine.records import TOLERANCE, Experiment

LOW, BROKEN, HIGH = 1e-8, 0.1, 10.0
"""Ends of the meter, and where broken begins."""

ZONES = (
    ("exact", LOW, TOLERANCE, "rgba(0,158,115,0.25)"),
    ("approximate", TOLERANCE, BROKEN, "rgba(230,159,0,0.28)"),
    ("broken", BROKEN, HIGH, "rgba(213,94,0,0.32)"),
)
FEW, PIECE = 48, 12
"""Moves that are drawn as joined dots; characters of a piece of text on an axis."""


def meter(record: Experiment, look: Shade) -> go.Figure:
    """The largest relative change of a log-probability on a logarithmic scale."""
    figure = go.Figure()
    for name, low, high, colour in ZONES:
        figure.add_shape(
            type="rect",
            x0=low,
            x1=high,
            y0=0,
            y1=1,
            fillcolor=colour,
            line={"width": 0},
            layer="below",
        )
        middle = float(np.sqrt(low * high))
        figure.add_annotation(
            x=np.log10(middle), y=0.84, text=name, showarrow=False, font={"color": look.ink}
        )
    error = record.effect.error
    figure.add_trace(
        go.Scatter(
            x=[min(max(error, LOW * 1.15), HIGH / 1.15)],
            y=[0.36],
            mode="markers+text",
            text=[f"  {number(error)}  "],
            textposition="middle left" if error > 1e-3 else "middle right",
            textfont={"size": 15, "color": look.ink},
            marker={"symbol": "diamond", "size": 17, "color": look.ink},
            hovertemplate=f"largest relative change {number(error)}<extra></extra>",
            showlegend=False,
        )
    )
    arrange(figure, look, 120)
    figure.update_yaxes(visible=False, range=[0, 1], fixedrange=True)
    ticks = [10.0**k for k in range(-8, 2)]
    return figure.update_xaxes(
        type="log",
        range=[np.log10(LOW) - 0.35, np.log10(HIGH) + 0.05],
        tickvals=ticks,
        ticktext=["≤ 1e-8", *(f"{t:g}".replace("e-0", "e-") for t in ticks[1:])],
        title="largest change of a log-probability, relative to the largest one",
        showgrid=False,
        fixedrange=True,
    )


def weights(record: Experiment, look: Shade) -> go.Figure:
    """A window of one changed tensor before and after, on one scale; marks where it changed."""
    before, after = (np.asarray(x, np.float32) for x in (record.weight_before, record.weight_after))
    axes = split(record.weight.partition(": ")[2].partition(", ")[0])
    names = [f"axis {k}: {axis}" for k, axis in enumerate(axes)] or ["", ""]
    across, down = (names[-1], names[0]) if len(names) > 1 else (names[0], "")
    figure = _pair(before, after, look, across, 360 if len(before) > 8 else 200)
    top, left = corner(record)
    figure.update_traces(y0=top, dy=1, x0=left, dx=1)
    margin = 3.0 if np.any(before == after) else 0.5
    rows, columns = before.shape
    figure.update_yaxes(title=down, range=[top + rows - 0.5, top - margin], row=1, col=1)
    figure.update_xaxes(range=[left - margin, left + columns - 0.5])
    differ = before != after
    for axis, moved in (("y", differ.any(axis=1)), ("x", differ.any(axis=0))):
        if 0 < moved.sum() < len(moved):
            places = np.flatnonzero(moved) + (top if axis == "y" else left)
            beside = (left if axis == "y" else top) - 1.6
            figure.add_trace(_marks(axis, places, beside, look), row=1, col=2)
    return figure


def corner(record: Experiment) -> tuple[int, int]:
    """First row and column of the window, as the name of the tensor ends with them."""
    found = re.search(r"rows (\d+) to \d+, columns (\d+) to", record.weight)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _marks(axis: str, places: np.ndarray, where: float, look: Shade) -> go.Scatter:
    """Small triangles beside the rows, or above the columns, that changed."""
    beside = np.full(len(places), where, np.float32)
    spots = places.astype(np.int32)
    x, y = (beside, spots) if axis == "y" else (spots, beside)
    return go.Scatter(
        x=x,
        y=y,
        mode="markers",
        marker={
            "symbol": "triangle-right" if axis == "y" else "triangle-down",
            "size": 6,
            "color": look.ink,
        },
        hovertemplate=("row %{y}" if axis == "y" else "column %{x}") + " changed<extra></extra>",
        showlegend=False,
    )


def hidden(record: Experiment, look: Shade) -> go.Figure:
    """What the model computes at each position, before and after, on one scale."""
    before, after = (np.asarray(x, np.float32) for x in (record.hidden_before, record.hidden_after))
    height = max(240, 18 * len(before) + 90)
    figure = _pair(before, after, look, "channel", height)
    labels = [readable(piece) for piece in record.pieces[: len(before)]]
    figure.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=labels, autorange="reversed", row=1, col=1
    )
    shown = record.channels if len(record.channels) else np.arange(before.shape[1])
    places = np.unique(np.linspace(0, len(shown) - 1, 7).round().astype(int))
    ticks = {"tickvals": places.tolist(), "ticktext": [str(shown[place]) for place in places]}
    return figure.update_xaxes(**ticks)


def readable(piece: str) -> str:
    """A piece of text on an axis: spaces and line ends visible, cut to a dozen characters."""
    shown = piece.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·")
    cut = shown if len(shown) <= PIECE else f"{shown[: PIECE - 1]}…"
    return html.escape(cut, quote=False) or "–"  # plotly reads tags


def _pair(
    before: np.ndarray, after: np.ndarray, look: Shade, across: str, height: int
) -> go.Figure:
    """Two matrices side by side on one diverging scale."""
    figure = make_subplots(
        1, 2, shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=("before", "after")
    )
    for column, values in ((1, before), (2, after)):
        figure.add_trace(
            go.Heatmap(
                z=values,
                coloraxis="coloraxis",
                hovertemplate="row %{y}, column %{x}: %{z:.3g}<extra></extra>",
            ),
            row=1,
            col=column,
        )
    end = float(max(np.abs(before).max(initial=0.0), np.abs(after).max(initial=0.0))) or 1.0
    arrange(figure, look, height, margin={"l": 8, "r": 8, "t": 28, "b": 8})
    figure.update_annotations(font={"size": 13, "color": look.ink})
    figure.update_xaxes(title=across, showgrid=False)
    figure.update_yaxes(showgrid=False, matches="y")
    return figure.update_layout(
        coloraxis={
            "colorscale": look.diverging,
            "cmin": -end,
            "cmax": end,
            "colorbar": {"thickness": 10, "len": 0.9, "tickfont": {"size": 11}},
        }
    )


def moves(record: Experiment) -> tuple[np.ndarray, np.ndarray, str]:
    """(old place, new place, of what) of every channel, or token, that the picture shows."""
    if record.positions.size:
        return np.asarray(record.positions), np.arange(len(record.positions)), "token"
    shown = record.channels if len(record.channels) == len(record.order) else None
    new = np.arange(len(record.order)) if shown is None else np.asarray(shown)
    return np.asarray(record.order), new, "channel"


def places(record: Experiment, look: Shade) -> go.Figure:
    """Which index went where: joined dots where few moved, points where many did."""
    old, new, what = moves(record)
    moved = old != new
    figure = go.Figure()
    if moved.sum() <= FEW:
        kept = moved if moved.any() else np.ones(len(old), bool)
        _joined(figure, old[kept], new[kept], look)
        arrange(figure, look, 360, showlegend=False)
        figure.update_xaxes(
            tickvals=[0, 1],
            ticktext=["old place", "new place"],
            range=[-0.15, 1.15],
            showgrid=False,
        )
        return figure.update_yaxes(title=what, autorange="reversed", showgrid=False)
    low, high = float(min(old.min(), new.min())), float(max(old.max(), new.max()))
    figure.add_trace(
        go.Scatter(
            x=[low, high],
            y=[low, high],
            mode="lines",
            line={"color": QUIET, "dash": "dot", "width": 1},
            name="unmoved",
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=old.astype(np.int32),
            y=new.astype(np.int32),
            mode="markers",
            marker={"size": 6, "color": PLUS},
            name=f"{what}s",
            hovertemplate=what + " %{x} → %{y}<extra></extra>",
        )
    )
    arrange(figure, look, 320)
    figure.update_xaxes(title=f"old place of the {what}")
    edge = max(1.0, 0.03 * float(new.max() - new.min()))
    ends = [float(new.min()) - edge, float(new.max()) + edge]
    return figure.update_yaxes(title="new place", range=ends)


def _joined(figure: go.Figure, old: np.ndarray, new: np.ndarray, look: Shade) -> None:
    """Two columns of dots joined by lines; crossings are seen at a glance."""
    for start, end in zip(old.tolist(), new.tolist(), strict=True):
        figure.add_trace(
            go.Scatter(
                x=[0, 1],
                y=[start, end],
                mode="lines+markers",
                line={"color": MINUS if end < start else PLUS, "width": 1.2},
                marker={"size": 6, "color": look.ink},
                hovertemplate=f"{start} → {end}<extra></extra>",
            )
        )


def caption(record: Experiment) -> str:
    """Which window of which tensor is drawn."""
    return f"Shown: {record.weight}."


def arrays(record: Experiment) -> dict[str, Any]:
    """Every array of an experiment, for export."""
    names = (
        *("weight_before", "weight_after", "hidden_before", "hidden_after"),
        *("order", "channels", "positions"),
    )
    return {name: np.asarray(getattr(record, name)) for name in names}
