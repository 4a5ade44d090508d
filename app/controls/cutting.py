"""The controls of the Cutting page: the budget, what is measured, the user's own layers."""

from collections.abc import Sequence

import streamlit as st

from app import session
from app.charts.layer_maps import CLICK
from app.controls.layers import text, whole
from app.controls.model import Chosen
from app.inputs import chosen_device
from engine.errors import Refused
from engine.layers.selection import spearman
from engine.pruning import kept, parse_layers, runs
from engine.questions import Cut, Drop
from engine.questions.layers import METHODS
from engine.records import CutReport, Measure


def question(model: Chosen) -> Cut:
    """The question of the page, from its controls."""
    layers = model.card.layers
    with st.popover("What is measured", icon=":material/tune:", key="measured"):
        methods = st.multiselect(
            "Ways to choose", METHODS, default=METHODS, width=420, **session.linked(session.BY)
        )
        largest = whole(
            session.LARGEST,
            "Largest budget",
            max(1, layers - 1),
            min(Cut.budget, max(1, layers - 1)),
        )
        reach = whole(session.REACH, "Largest |i − j| of a pair (0: all)", layers - 1)
        tokens, length = text(Cut.tokens, Cut.length)
    return Cut(
        model.path,
        budget=max(1, largest),
        by=tuple(by for by in METHODS if by in methods) or METHODS,
        reach=reach,
        tokens=tokens,
        length=length,
        device=chosen_device(),
    )


def budget(largest: int) -> int:
    """The main control: how many layers go."""
    held = session.value(session.BUDGET)
    if held is not None and str(held).isdigit() and int(held) > largest:
        session.assign(**{session.BUDGET: largest})
    if largest < 1:
        return 0
    return int(
        st.slider(
            "Layers left out, n",
            0,
            largest,
            min(1, largest),
            1,
            width=320,
            **session.linked(session.BUDGET),
        )
    )


def written(layers: Sequence[int]) -> str:
    """Layers as the field and the address hold them: "5,7,9-11"."""
    if not layers:
        return ""
    spans = runs(sorted(layers))
    return ",".join(f"{a}-{b - 1}" if b - a > 1 else f"{a}" for a, b in spans)


def chart_key() -> str:
    """Key of the strip: a new choice is a new picture without the click that made it."""
    return session.local("cutting", "strip", str(session.value(session.MINE) or ""))


def mine(name: str, layers: int) -> tuple[tuple[int, ...], str]:
    """The user's own layers and, for words that name none, why."""
    _take_click()
    typed = st.text_input(
        "Mine: layers to leave out", "", placeholder="5,7,9-11", width=220,
        help="Numbers from 0; 9-11 means 9, 10 and 11. Or click the strip.",
        **session.linked(session.MINE),
    ).strip()  # fmt: skip
    if not typed:
        return (), ""
    try:
        found = parse_layers(typed)
        kept(name, layers, found)
    except Refused as refusal:
        return (), str(refusal)
    return tuple(sorted(found)), ""


def _take_click() -> None:
    """A clicked layer joins the user's own, or leaves them, before the field is drawn."""
    held = str(session.value(session.MINE) or "")
    state = st.session_state.get(chart_key()) or {}
    found = (state.get("selection", {}).get(CLICK) or [{}])[0]
    if "layer" not in found:
        return
    try:
        now = set(parse_layers(held)) if held.strip() else set()
    except Refused:
        now = set()
    session.assign(**{session.MINE: written(sorted(now ^ {int(found["layer"])}))})


def drop(asked: Cut, layers: tuple[int, ...]) -> Drop:
    """The question of what the user's own cut costs, on the same text."""
    return Drop(
        asked.model, layers, tokens=asked.tokens, length=asked.length, text=asked.text,
        device=asked.device, dtype=asked.dtype,
    )  # fmt: skip


def correlations(report: CutReport, cost: Measure) -> list[tuple[str, float, int]]:
    """Each score with its rank correlation with the measured cost of one layer."""
    return [(by, *spearman(score, cost.value)) for by, score in report.scores.items()]
