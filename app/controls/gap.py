"""The controls of the Gap page: which models, how the gap is drawn, which published one beside."""

from collections.abc import Sequence
from typing import cast

import streamlit as st

from app import inputs, session
from app.charts.gaps import SCALES, ScaleOf
from app.controls.layers import choice, text
from app.inputs import chosen_device
from engine.questions import Gap
from engine.sources import demo_series

CHOSEN = "chosen"


def models() -> tuple[str, ...]:
    """The chosen series, as the address names its models."""
    known = demo_series()
    offered = [*known, CHOSEN]
    session.within(session.SERIES, offered)
    name = st.selectbox(
        "Series", offered, width=170,
        help="Saved steps of one training of a demo model; models of one recipe from other draws; "
        "or models that you choose.",
        **session.linked(session.SERIES),
    )  # fmt: skip
    if name != CHOSEN:
        return known[name]
    return tuple(
        st.multiselect(
            "Models, in order", inputs.choices(), width=420, **session.linked(session.MODELS)
        )
    )


def scale() -> ScaleOf:
    """How two costs become one gap."""
    return cast(ScaleOf, choice(session.SCALE, "Gap as", SCALES, "How two costs become one gap."))


def beside(offered: Sequence[str]) -> str:
    """Which published training stands beside."""
    session.within(session.BESIDE, list(offered))
    return str(
        st.selectbox("Published beside", offered, width=170, **session.linked(session.BESIDE))
    )


def question(paths: tuple[str, ...], tokens: int, length: int) -> Gap:
    """The question of the page."""
    return Gap(paths, tokens=tokens, length=length, device=chosen_device())


def amount() -> tuple[int, int]:
    """Tokens, and tokens of a window."""
    with st.popover("What is measured", icon=":material/tune:", key="measured"):
        return text(Gap.tokens, Gap.length)
