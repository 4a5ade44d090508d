"""The controls of the Residual page: the question, the depth, the coordinate, the window."""

from dataclasses import dataclass

import streamlit as st

from app import session
from app.charts import matrices
from app.charts.matrices import Window
from app.inputs import chosen_device
from engine.questions import Known, Match
from engine.records import ResidualMatch

TOKENS = (2048, 8192, 32768)
METHODS = ("activations", "weights")
TRUTHS: tuple[Known, ...] = ("planted", "identity", "none")
MATRICES = ("signed", "absolute")
ORDERS = ("as stored", "recovered")
"""Shown as they stand in the address, where Streamlit writes the label of a choice."""


def match(a: str, b: str) -> Match:
    """The question of the Residual page, from its controls."""
    using = st.segmented_control(
        "From",
        list(METHODS),
        required=True,
        default="activations",
        **session.linked(session.METHOD),
    )
    tokens = st.segmented_control(
        "Tokens",
        TOKENS,
        required=True,
        default=8192,
        format_func=lambda n: f"{n // 1024}k",
        disabled=using == "weights",
        **session.linked(session.TOKENS),
    )
    truth = st.selectbox(
        "Compare with",
        TRUTHS,
        width=150,
        help="What is known to be right: the gauge that was planted in B, the identity for two "
        "models of one lineage, or nothing.",
        **session.linked(session.TRUTH),
    )
    using = "weights" if using == "weights" else "activations"
    counted = 8192 if using == "weights" else int(tokens or 8192)
    return Match(a, b, using=using, tokens=counted, truth=truth, device=chosen_device())


def work(question: Match) -> str:
    """What a match costs, in words."""
    if question.using == "weights":
        return "Reads the weights; runs no model."
    return f"Runs both models on {question.tokens:,} tokens."


def depth(record: ResidualMatch) -> int:
    """The depth to look at, pooled at first."""
    names = record.depths
    name = st.selectbox(
        "Depth", names, index=len(names) - 1, width=150, **session.linked(session.DEPTH)
    )
    return names.index(name)


def coordinate(record: ResidualMatch) -> int:
    """The selected coordinate of A, shared by every page."""
    last = record.correlation.shape[1] - 1
    return int(
        st.number_input(
            "Coordinate of A", 0, last, 0, 1, width=140, **session.linked(session.COORDINATE)
        )
    )


@dataclass(frozen=True)
class View:
    """Which matrix, whether in recovered order, and the window of it."""

    reduction: matrices.Reduction
    recovered: bool
    window: Window


def view(size: int) -> View:
    """Which matrix, whether in recovered order, and the window, which a dragged box may set."""
    _take_box(size)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Matrix",
            MATRICES,
            required=True,
            default="signed",
            **session.linked(session.MATRIX),
        )
        order = st.segmented_control(
            "Columns",
            ORDERS,
            required=True,
            default="recovered",
            **session.linked(session.ORDER),
        )
        with st.popover("Window", icon=":material/crop_free:"):
            _sliders(size)
        if _window(size) != matrices.whole(size):
            st.button("Whole matrix", on_click=_reset, args=(size,), key=session.local("whole"))
    reduction = "signed extreme" if kind == "signed" else "maximum of |C|"
    return View(reduction, order == "recovered", _window(size))


def _sliders(size: int) -> None:
    for name, text in ((session.ROWS, "Coordinates of A"), (session.COLUMNS, "Columns")):
        st.slider(text, 0, size - 1, (0, size - 1), **session.linked(name))


def _window(size: int) -> Window:
    rows, columns = (session.value(name) for name in (session.ROWS, session.COLUMNS))
    whole = matrices.whole(size)
    if not isinstance(rows, tuple | list) or not isinstance(columns, tuple | list):
        return whole
    return Window((int(rows[0]), int(rows[1]) + 1), (int(columns[0]), int(columns[1]) + 1))


def _take_box(size: int) -> None:
    """A box dragged on the matrix becomes the sliders' values before they are drawn."""
    window = _window(size)
    found = matrices.boxed(st.session_state.get(chart_key(window)), window)
    if found is not None and found != window:
        _set(found)


def _set(window: Window) -> None:
    (top, bottom), (left, right) = window.rows, window.columns
    session.assign(**{session.ROWS: (top, bottom - 1), session.COLUMNS: (left, right - 1)})


def _reset(size: int) -> None:
    _set(matrices.whole(size))


def chart_key(window: Window) -> str:
    """Key of the matrix chart: a new window is a new chart without the old box."""
    return session.local("matrix-of", *window.rows, *window.columns)
