"""The controls of the Residual page: the question, the depth, the coordinate."""

import streamlit as st

from app import session
from app.inputs import chosen_device
from engine.questions import Known, Match
from engine.records import ResidualMatch

TOKENS = (2048, 8192, 32768)
METHODS = ("activations", "weights")
TRUTHS: tuple[Known, ...] = ("planted", "identity", "none")


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
