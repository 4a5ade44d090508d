"""Square matrices of any size as one tile of at most 384² cells, windows at full resolution."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from app.charts.theme import Shade, arrange

LIMIT, TABLE, PRINTED, NAMED = 384, 64, 16, 128
"""Cells on a side: of a tile; with a table of numbers; with numbers in the cells; with names."""

Reduction = Literal["signed extreme", "maximum of |C|", "maximum of |score|"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Half-open ranges of rows and columns."""

    rows: Span
    columns: Span

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


@dataclass(frozen=True)
class Tile:
    """What is drawn: `values[i, j]` stands for `factor[0] × factor[1]` entries of the window."""

    values: NDArray[np.float32]
    window: Window
    factor: tuple[int, int]
    reduction: Reduction
    columns: (
        NDArray[np.int64] | None
    )  # which column of the matrix stands at each place; None: itself

    @property
    def caption(self) -> str:
        """The window, and how it was reduced."""
        rows, columns = self.window.shape
        size = f"{rows:,} × {columns:,} entries"
        if self.factor == (1, 1):
            return f"{size}, every one drawn."
        down, across = self.factor
        return f"{size}; each cell is the {self.reduction} of {down} × {across} of them."


def whole(size: int, columns: int | None = None) -> Window:
    """The window that shows everything of a matrix, a square one unless told."""
    return Window((0, size), (0, size if columns is None else columns))


def tile(
    matrix: np.ndarray,
    window: Window,
    reduction: Reduction = "signed extreme",
    columns: NDArray[np.int64] | None = None,
    limit: int = LIMIT,
) -> Tile:
    """The window of `matrix[:, columns]` in at most limit² cells, without copying the matrix.

    matrix float [n, m] (may be memory-mapped); columns: a reordering of its columns, or None.
    """
    down, across = (max(1, -(-length // limit)) for length in window.shape)
    top, bottom = window.rows
    signed = reduction == "signed extreme"
    bands = (matrix[start : min(start + down, bottom)] for start in range(top, bottom, down))
    lines = [_line(band, window.columns, columns, across, signed) for band in bands]
    values = np.asarray(lines, dtype=np.float32)
    return Tile(values, window, (down, across), reduction, columns)


def _line(
    band: np.ndarray, span: Span, columns: np.ndarray | None, across: int, signed: bool
) -> np.ndarray:
    """One row of cells: extremes over the band's rows, then over `across` columns at a time."""
    left, right = span
    place = slice(left, right) if columns is None else columns[left:right]
    part = band[:, place] if columns is None else band
    high, low = part.max(axis=0), part.min(axis=0)
    if columns is not None:
        high, low = high[place], low[place]
    starts = np.arange(0, right - left, across)
    high, low = np.maximum.reduceat(high, starts), np.minimum.reduceat(low, starts)
    return np.where(high >= -low, high, low) if signed else np.maximum(high, -low)


def bound(values: np.ndarray) -> float:
    """End of the colour scale: 1 for correlations, else the largest modulus."""
    largest = float(np.abs(values).max(initial=0.0))
    return 1.0 if largest == 0 or 0.3 < largest <= 1.0 else largest


@dataclass(frozen=True)
class Words:
    """What stands on the sides of a matrix, and the letter of what is in it."""

    noun: str = "coordinate"
    letter: str = "C"


def heatmap(
    drawn: Tile,
    look: Shade,
    selected: int | None = None,
    height: int = 480,
    end: float = 1.0,
    words: Words = Words(),
) -> go.Figure:
    """The tile as a heatmap on axes that count coordinates; a box drag selects a window."""
    signed = drawn.reduction == "signed extreme"
    (top, bottom), (left, right) = drawn.window.rows, drawn.window.columns
    down, across = drawn.factor
    trace = go.Heatmap(
        z=drawn.values,
        x0=left + (across - 1) / 2,
        dx=across,
        y0=top + (down - 1) / 2,
        dy=down,
        zmin=-end if signed else 0.0,
        zmax=end,
        colorscale=look.diverging if signed else look.sequential,
        colorbar=_bar(words.letter if signed else f"|{words.letter}|", end, signed),
        **_labels(drawn),
    )
    figure = arrange(go.Figure(trace), look, height, dragmode="select", selectdirection="d")
    figure.update_xaxes(
        title=_across(drawn, words.noun), range=[left - 0.5, right - 0.5], showgrid=False
    )
    name, ends = f"{words.noun} of A", [bottom - 0.5, top - 0.5]
    figure.update_yaxes(title=name, range=ends, showgrid=False)
    if drawn.columns is not None:
        figure.update_xaxes(**_ticks(drawn.columns, left, right))
    if selected is not None and top <= selected < bottom:
        line = {"color": look.ink, "width": 1, "dash": "dot"}
        figure.add_hrect(y0=selected - 0.5, y1=selected + 0.5, line=line, fillcolor="rgba(0,0,0,0)")
    return figure


def _bar(title: str, end: float, signed: bool) -> dict[str, Any]:
    """A flat colour bar above the matrix."""
    ticks = (-end, -end / 2, 0.0, end / 2, end) if signed else (0.0, end / 2, end)
    return {
        "orientation": "h",
        "thickness": 8,
        "len": 0.7,
        "x": 0.5,
        "y": 1.01,
        "ypad": 0,
        "yanchor": "bottom",
        "tickvals": ticks,
        "ticktext": [*(f"{tick:.2g}" for tick in ticks[:-1]), f"{title} = {ticks[-1]:.2g}"],
    }


def _across(drawn: Tile, noun: str) -> str:
    return f"{noun} of B" + (", in recovered order" if drawn.columns is not None else "")


def _labels(drawn: Tile) -> dict[str, Any]:
    """Hover text; B's own number under a reordering where it fits; numbers in few large cells."""
    rows, cells = drawn.values.shape
    labels: dict[str, Any] = {}
    other = "%{x}"
    if drawn.columns is not None and drawn.factor == (1, 1) and max(rows, cells) <= NAMED:
        names = drawn.columns[slice(*drawn.window.columns)].astype(np.int32)
        labels["customdata"] = np.broadcast_to(names, (rows, cells)).copy()
        other = "%{customdata}"
    if max(rows, cells) <= PRINTED:
        labels |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 11}}
    about = "" if drawn.factor == (1, 1) else "near "
    labels["hovertemplate"] = f"A {about}%{{y}} · B {about}{other}: %{{z:.3f}}<extra></extra>"
    return labels


def _ticks(columns: np.ndarray, left: int, right: int, count: int = 8) -> dict[str, Any]:
    """Tick labels that name B's own coordinate at each place of the recovered order."""
    places = np.unique(np.linspace(left, right - 1, count).round().astype(int))
    return {"tickvals": places.tolist(), "ticktext": [str(columns[place]) for place in places]}


def boxed(selection: Any, window: Window) -> Window | None:
    """The window inside a plotly box selection, or None where there is no usable box."""
    boxes = (selection or {}).get("selection", {}).get("box", [])
    if not boxes:
        return None
    rows, columns = _span(boxes[0]["y"], window.rows), _span(boxes[0]["x"], window.columns)
    return Window(rows, columns)


def _span(ends: Any, within: Span, least: int = 4) -> Span:
    """The half-open span of the whole numbers between two ends, at least four long, kept within."""
    low, high = sorted(float(end) for end in ends)
    start, stop = int(np.ceil(low - 0.5)), int(np.floor(high + 0.5)) + 1
    start = max(within[0], min(start, within[1] - least))
    return start, min(within[1], max(stop, start + least))


def numbers(drawn: Tile) -> tuple[list[int], list[int]]:
    """Names of the rows (of A) and columns (of B) of an unreduced tile."""
    rows = list(range(*drawn.window.rows))
    places = range(*drawn.window.columns)
    return rows, [int(drawn.columns[p]) if drawn.columns is not None else p for p in places]
