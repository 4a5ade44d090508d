"""A matching drawn as points, and how sure it is."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.charts.theme import MINUS, PLUS, QUIET, TRUTH, Shade, arrange
from engine.records import Assignment, Truth

MANY = 2000
"""Above this many points WebGL draws them."""
DENSE = 512
"""Above this many, points are small, and only those that miss the truth have a ring."""


def pairs(
    match: Assignment,
    truth: Truth | None,
    look: Shade,
    selected: int | None = None,
    noun: str = "coordinate",
    rows: np.ndarray | None = None,
) -> go.Figure:
    """A point in row i and column π(i) for every i of A, + and − apart, the truth as rings.

    As in the matrix beside it, A counts downward and B across. `rows` are the coordinates of A that
    have a partner; None for all.
    """
    rows = np.arange(len(match.permutation)) if rows is None else rows
    draw: Any = go.Scattergl if len(rows) > MANY else go.Scatter
    figure = go.Figure()
    if truth is not None:
        figure.add_trace(_rings(draw, truth, rows, ringed(match, truth)))
    for name, color, symbol, keep in (
        ("sign +", PLUS, "circle", match.sign > 0),
        ("sign −", MINUS, "diamond", match.sign < 0),
    ):
        kept = np.flatnonzero(keep)
        figure.add_trace(_points(draw, match, rows, kept, (name, color, symbol)))
    place = np.flatnonzero(rows == selected)
    if len(place):
        line = {"color": look.ink, "width": 1, "dash": "dot"}
        figure.add_hline(y=selected, line=line)
        figure.add_vline(x=int(match.permutation[place[0]]), line=line)
    arrange(figure, look, 480)
    down, across = int(rows.max()), int(match.permutation.max())
    edge = max(1.0, 0.025 * max(down, across))
    figure.update_xaxes(title=f"{noun} of B", range=[-edge, across + edge])
    return figure.update_yaxes(title=f"{noun} of A", range=[down + edge, -edge])


def ringed(match: Assignment, truth: Truth) -> np.ndarray:
    """Which pairs have a ring: all, or where they are many those that miss the truth."""
    every = len(match.permutation) <= DENSE
    return np.flatnonzero(every | (match.permutation != truth.permutation))


def told(match: Assignment, truth: Truth | None) -> str:
    """What the rings mean."""
    if truth is None:
        return "No truth is known, so there are no rings."
    if len(match.permutation) <= DENSE:
        return "Rings are the truth."
    count = len(ringed(match, truth))
    return (
        f"Rings are the truth, where the point misses it: {count:,} of {len(match.permutation):,}."
    )


def astray(truth: Truth | None) -> str:
    """What bad points look like."""
    if truth is None:
        return "Points without a pattern, between models that share their past."
    return "Points outside their rings."


def _rings(draw: Any, truth: Truth, rows: np.ndarray, kept: np.ndarray) -> Any:
    missed = len(kept) < len(rows)
    ring = {"symbol": "circle-open", "size": 11, "color": TRUTH, "line": {"width": 1.2}}
    return draw(
        x=truth.permutation[kept].astype(np.int32),
        y=rows[kept].astype(np.int32),
        mode="markers",
        name=f"{truth.kind} truth{f', missed ({len(kept):,})' if missed else ''}",
        marker=ring,
        hovertemplate="truth: A %{y} ↔ B %{x}<extra></extra>",
    )


def _points(
    draw: Any,
    match: Assignment,
    rows: np.ndarray,
    places: np.ndarray,
    kind: tuple[str, str, str],
) -> Any:
    name, color, symbol = kind
    return draw(
        x=match.permutation[places].astype(np.int32),
        y=rows[places].astype(np.int32),
        customdata=match.score[places].astype(np.float32),
        mode="markers",
        name=f"{name} ({len(places):,})",
        marker={
            "size": 6 if len(match.permutation) <= DENSE else 3,
            "color": color,
            "symbol": symbol,
        },
        hovertemplate="A %{y} ↔ B %{x}, score %{customdata:.3f}<extra></extra>",
    )


def sorted_margins(match: Assignment, look: Shade, noun: str = "coordinate") -> go.Figure:
    """Margins from the least certain coordinate to the most certain."""
    margins = np.sort(match.margin).astype(np.float32)
    trace = go.Scatter(
        x=np.arange(1, len(margins) + 1, dtype=np.int32),
        y=margins,
        mode="lines",
        line={"color": PLUS, "width": 2},
        fill="tozeroy",
        fillcolor="rgba(0,114,178,0.12)",
        hovertemplate="rank %{x}: margin %{y:.3f}<extra></extra>",
    )
    figure = arrange(go.Figure(trace), look, 250, showlegend=False)
    figure.add_hline(y=0, line={"color": QUIET, "width": 1})
    figure.update_xaxes(title=f"{noun}s, least certain first")
    return figure.update_yaxes(title="margin", rangemode="tozero")


def margin_histogram(
    match: Assignment, look: Shade, bins: int = 24, noun: str = "coordinate"
) -> go.Figure:
    """How many coordinates have which margin; at or below zero the choice was forced by others."""
    low, high = float(min(0.0, match.margin.min())), float(max(match.margin.max(), 1e-6))
    counts, edges = np.histogram(match.margin, bins=bins, range=(low, high))
    centres = (edges[:-1] + edges[1:]) / 2
    trace = go.Bar(
        x=centres.astype(np.float32),
        y=counts.astype(np.int32),
        width=float(edges[1] - edges[0]) * 0.92,
        marker={"color": [MINUS if centre <= 0 else PLUS for centre in centres]},
        hovertemplate=f"margin near %{{x:.3f}}: %{{y}} {noun}s<extra></extra>",
    )
    figure = arrange(go.Figure(trace), look, 250, showlegend=False)
    figure.update_xaxes(title="margin", showgrid=False)
    return figure.update_yaxes(title=f"{noun}s", tickformat="d", rangemode="tozero")
