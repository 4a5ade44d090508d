"""Residual: which coordinate of B is which coordinate of A?"""

import streamlit as st

from app import inputs, outputs
from app.controls import residual as controls
from app.sections import residual
from app.sentences import findings
from engine.errors import Refused
from engine.questions import Match

st.title("Which coordinate of B is which coordinate of A?")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")


def asked() -> Match | None:
    """The question of the controls; None, with its one line shown, for a refused pair."""
    try:
        a, b = (inputs.located(spec) for spec in inputs.pair())
        with row:
            question = controls.match(a, b)
        _ = question.key
    except Refused as refusal:
        outputs.refuse(str(refusal))
        return None
    return question


question = asked()
if question is not None:
    title = "Match {1} with {0}".format(*map(inputs.label, inputs.pair()))
    with verdict:
        place = st.container()
        record = outputs.measured(question, title, "Match the coordinates", controls.work(question))
    if record is None:
        with place:
            outputs.say(findings.unmatched(), key="verdict")
    else:
        with row:
            depth, chosen = controls.depth(record), controls.coordinate(record)
        with place:
            outputs.say(findings.matched(record, depth), key="verdict")
        residual.picture(record, depth, chosen)
        residual.depths(record, depth)
        residual.certainty(record, depth)
        residual.coordinates(record, depth, chosen)
        residual.theory()
        residual.take_away(question, record, depth)
