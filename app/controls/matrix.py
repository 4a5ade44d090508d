"""Which matrix is shown, in which order, and which window of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import session
from app.charts import matrices
from app.charts.matrices import Window

MATRICES = ("signed", "absolute")
ORDERS = ("as stored", "recovered")
"""Shown as they stand in the address, where Streamlit writes the label of a choice."""


@dataclass(frozen=True)
class Sides:
    """How long the sides of a matrix are, what stands on them, and where its window is kept."""

    rows: int
    columns: int
    noun: str = "coordinate"
    keys: tuple[str, str] = (session.ROWS, session.COLUMNS)

    @property
    def whole(self) -> Window:
        """The window that shows everything."""
        return matrices.whole(self.rows, self.columns)


@dataclass(frozen=True)
class View:
    """Which matrix, whether in recovered order, and the window of it."""

    signed: bool
    recovered: bool
    window: Window


def view(sides: Sides, kinds: Sequence[str] = MATRICES) -> View:
    """Which of the kinds, whether in recovered order, and the window, which a box may set."""
    _take_box(sides)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = MATRICES[0]
        if len(kinds) > 1:
            kind = st.segmented_control(
                "Matrix", kinds, required=True, default="signed", **session.linked(session.MATRIX)
            )
        order = st.segmented_control(
            "Columns",
            ORDERS,
            required=True,
            default="recovered",
            **session.linked(session.ORDER),
        )
        with st.popover("Window", icon=":material/crop_free:"):
            _sliders(sides)
        if _window(sides) != sides.whole:
            st.button("Whole matrix", on_click=_reset, args=(sides,), key=session.local("whole"))
    return View(kind == "signed", order == "recovered", _window(sides))


def _sliders(sides: Sides) -> None:
    for name, text, size in (
        (sides.keys[0], f"{sides.noun.capitalize()}s of A", sides.rows),
        (sides.keys[1], "Columns", sides.columns),
    ):
        st.slider(text, 0, size - 1, (0, size - 1), **session.linked(name))


def _window(sides: Sides) -> Window:
    rows, columns = (session.value(name) for name in sides.keys)
    if not isinstance(rows, tuple | list) or not isinstance(columns, tuple | list):
        return sides.whole
    return Window((int(rows[0]), int(rows[1]) + 1), (int(columns[0]), int(columns[1]) + 1))


def _take_box(sides: Sides) -> None:
    """A box dragged on the matrix becomes the sliders' values before they are drawn."""
    window = _window(sides)
    found = matrices.boxed(st.session_state.get(chart_key(window)), window)
    if found is not None and found != window:
        _set(sides, found)


def _set(sides: Sides, window: Window) -> None:
    (top, bottom), (left, right) = window.rows, window.columns
    rows, columns = sides.keys
    session.assign(**{rows: (top, bottom - 1), columns: (left, right - 1)})


def _reset(sides: Sides) -> None:
    _set(sides, sides.whole)


def chart_key(window: Window) -> str:
    """Key of the matrix chart: a new window is a new chart without the old box."""
    return session.local("matrix-of", *window.rows, *window.columns)
