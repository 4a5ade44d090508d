"""The one model that a page looks at: A or B, opened, with its card."""

from dataclasses import dataclass

import streamlit as st

from app import inputs, outputs, session
from engine.errors import Refused
from engine.records import ModelCard

LETTERS = ("A", "B")


@dataclass(frozen=True)
class Chosen:
    """A model of the pair that can be looked at."""

    spec: str  # as the address names it
    path: str  # what the engine is given
    card: ModelCard


def letter() -> str:
    """Which of the two models in use."""
    found = st.segmented_control(
        "Model", LETTERS, required=True, default="A", **session.linked(session.OF)
    )
    return str(found or "A")


def both() -> tuple[Chosen | None, Chosen | None]:
    """A and B with their cards; one model on both sides is opened, or refused, once."""
    a = opened("A")
    return a, a if inputs.same() else opened("B")


def opened(which: str) -> Chosen | None:
    """The model with its card; else the one line why not, or what opens it."""
    spec = inputs.pair()[LETTERS.index(which)]
    try:
        if inputs.open_slow(spec, "B" if which == "B" else "A"):
            return None
        path = inputs.located(spec)
        return Chosen(spec, path, inputs.card(path))
    except Refused as refusal:
        st.markdown(f"**{which}** · {outputs.plain(inputs.label(spec))}")
        outputs.refuse(str(refusal))
        return None
