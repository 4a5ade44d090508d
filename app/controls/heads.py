"""The controls of the Heads page: layer, cost, steps; a pair of heads, a frequency, a turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import streamlit as st

from app import session
from app.charts.heads import CLICK, TERMS, Cell, Term
from app.controls.matrix import ORDERS
from app.controls.model import Chosen
from app.inputs import chosen_device
from engine.questions import Heads, Stage2, Turn, Using
from engine.records import HeadsReport, Turns

OTHER_MODEL, ITSELF = "B", "itself"
PARTNER = "partner"
STEPS: tuple[Stage2, ...] = ("full", "orthogonal", "none")
SOURCES: tuple[Using, ...] = ("weights", "activations")
RANGE = (0.2, 5.0)
"""Moduli that can be set by hand."""


def against() -> bool:
    """Whether A is compared with itself."""
    found = st.segmented_control(
        "A against", (OTHER_MODEL, ITSELF), required=True, default=OTHER_MODEL,
        help="Itself: which two heads of one model coincide up to a change of basis?",
        **session.linked(session.AGAINST),
    )  # fmt: skip
    return found == ITSELF


def question(a: Chosen, b: Chosen) -> Heads:
    """The question of the page, from its controls."""
    layer = _layer(a.card.layers)
    own = "rotary" if a.card.positions.startswith("rotary") else "product"
    cost = _choice(session.COST, "Cost", (own, "published"),
                   "By which cost heads are paired.")  # fmt: skip
    steps = _choice(session.STAGE2, "Stage 2", STEPS, "What is solved inside the paired heads.")
    using = _choice(
        session.USING, "From", SOURCES,
        "How the residual coordinates of B are brought into A's, before heads are compared.",
    )  # fmt: skip
    return Heads(
        a.path,
        b.path,
        layer=layer,
        cost="published" if cost == "published" else "auto",
        stage2=cast(Stage2, steps),
        using=cast(Using, using),
        device=chosen_device(),
    )


def _layer(layers: int) -> int:
    """The layer, shared with the Lab."""
    here = [str(layer) for layer in range(layers)]
    session.within(session.LAYER, here)
    if layers == 1:
        return 0
    return int(
        st.select_slider("Layer", here, value="0", width=120, **session.linked(session.LAYER))
    )


def _choice(name: str, label: str, offered: Sequence[str], text: str) -> str:
    session.within(name, offered)
    found = st.segmented_control(
        label, offered, required=True, default=offered[0], help=text, **session.linked(name)
    )
    return str(found or offered[0])


@dataclass(frozen=True)
class Pick:
    """What of a report is looked at."""

    cell: Cell
    other: str  # the head of B as its field has it
    term: Term
    recovered: bool
    frequency: int

    def key(self, name: str) -> str:
        """Key of a picture that can be clicked: a new choice is a new picture without the click."""
        return _key(name, self.cell.a, self.other, self.frequency)


def _key(name: str, *parts: Any) -> str:
    return session.local("heads", name, *parts)


MAPS = ("costs", "order", "angle", "modulus")
"""The pictures that can be clicked."""


def pick(record: HeadsReport) -> Pick:
    """The pair of heads, from the fields or from a click on one of the pictures."""
    heads = [str(head) for head in range(record.heads)]
    session.within(session.HEAD, heads)
    session.within(session.OTHER, [PARTNER, *heads])
    _take_click(record)
    head = int(st.selectbox("Head of A", heads, width=110, **session.linked(session.HEAD)))
    other = st.selectbox("Head of B", [PARTNER, *heads], width=130, **session.linked(session.OTHER))
    term = _choice(session.TERM, "Term", TERMS, "Which part of the cost the map shows.")
    order = st.segmented_control(
        "Columns", ORDERS, required=True, default="recovered", **session.linked(session.ORDER)
    )
    b = int(record.order[head]) if other == PARTNER else int(other)
    return Pick(Cell(head, b), other, cast(Term, term), order == "recovered", frequency(record))


def frequency(record: HeadsReport) -> int:
    """The frequency that the field holds; its field stands at the turn by hand."""
    if record.turns is None:
        return 0
    here = [str(number) for number in range(record.turns.angle.shape[1])]
    session.within(session.FREQUENCY, here)
    return int(session.value(session.FREQUENCY) or 0)


def _take_click(record: HeadsReport) -> None:
    """A clicked cell, line or frequency becomes the values of the fields before they are drawn."""
    held = [session.value(name) for name in (session.HEAD, session.OTHER, session.FREQUENCY)]
    parts = [value or start for value, start in zip(held, ("0", PARTNER, "0"), strict=True)]
    for name in MAPS:
        state = st.session_state.get(_key(name, *parts)) or {}
        found = (state.get("selection", {}).get(CLICK) or [{}])[0]
        if "frequency" in found:
            session.assign(**{
                session.HEAD: str(found["head"]), session.FREQUENCY: str(found["frequency"]),
            })  # fmt: skip
        elif "a" in found:
            a = int(found["a"])
            b = int(found.get("b", record.order[a]))
            other = PARTNER if b == record.order[a] else str(b)
            session.assign(**{session.HEAD: str(a), session.OTHER: other})


@dataclass(frozen=True)
class Hand:
    """A frequency turned by hand."""

    group: int
    frequency: int
    angle: float  # degrees
    modulus: float


def hand(turns: Turns, group: int) -> Hand:
    """The frequency, the angle and the modulus; a button sets the found ones."""
    here = [str(number) for number in range(turns.angle.shape[1])]
    with st.container(horizontal=True, vertical_alignment="bottom", key="hand"):
        chosen = here[0]
        if len(here) > 1:
            chosen = st.select_slider(
                "Frequency", here, value=here[0], width=170, **session.linked(session.FREQUENCY)
            )
        angle = st.slider(
            "Angle by hand (degrees)", -180.0, 180.0, 0.0, 0.5, "%g°", width=230,
            **session.linked(session.TURN),
        )  # fmt: skip
        modulus = st.slider(
            "Modulus by hand", *RANGE, 1.0, 0.01, width=180, disabled=turns.half_turns,
            **session.linked(session.MODULUS),
        )  # fmt: skip
        at = group, int(chosen)
        st.button(
            "Set to the found turn", icon=":material/target:", key=session.local("found-turn"),
            on_click=session.assign, kwargs={
                session.TURN: round(2 * float(np.degrees(turns.angle[at]))) / 2,
                session.MODULUS: round(float(np.clip(np.exp(turns.log_modulus[at]), *RANGE)), 2),
            },
        )  # fmt: skip
    return Hand(group, int(chosen), float(angle), 1.0 if turns.half_turns else float(modulus))


def turn(asked: Heads, by: Hand) -> Turn:
    """The question that runs the models with a frequency turned by hand."""
    return Turn(
        asked.a,
        asked.b,
        layer=asked.layer,
        group=by.group,
        frequency=by.frequency,
        angle=by.angle,
        modulus=by.modulus,
        using=asked.using,
        device=asked.device,
    )
