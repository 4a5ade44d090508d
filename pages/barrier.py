"""Barrier: is there a hill on the straight line between them?"""

import streamlit as st

from app import inputs, outputs
from app.charts import barriers
from app.controls import barrier as controls
from app.controls import model as models
from app.controls.barrier import Line, Spot
from app.sections import barrier, curves, growing
from app.sentences import barriers as sentences
from app.sentences import verdicts
from engine.errors import Refused

st.title("Is there a hill on the straight line between them?")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
pick = st.container(horizontal=True, vertical_alignment="bottom", key="pick")
a, b = models.both()


def asked(both: Line) -> None:
    """The question of the controls, and its answer as far as it is known."""
    try:
        with row:
            what = controls.what()
            question = controls.question(both)
        if question is None:
            return
        _ = question.key
    except Refused as refusal:
        outputs.refuse(str(refusal))
        return
    names = inputs.label(both.a.spec), inputs.label(both.b.spec)
    title = "The line from {} to {}".format(*names)
    with verdict:
        place = st.container()
        curves.forecast(question, both.parameters)
        record = outputs.known(question)
        if not outputs.barred(question.forecast):
            record = outputs.measured(question, title, "Measure the line")
    found = outputs.so_far(question) if record is None else record
    if record is None and growing.runs(question):
        with pick:
            t = controls.at(question)
        curves.live(question, what, t)
    elif found is None or not found.curves:
        with place:
            outputs.say(sentences.waiting(names), key="verdict")
    else:
        with place:
            outputs.say(sentences.told(found, barriers.quantity(what)), key="verdict")
        with pick:
            t = controls.at(question)
            spot = Spot(t, controls.stage([curve.stage for curve in found.curves]))
        barrier.whole(question, found, both, what, spot)


if a is None or b is None:
    with verdict:
        cards = (None if side is None else side.card for side in (a, b))
        outputs.say(verdicts.unopened(*cards), key="verdict")
elif unlike := verdicts.differences(a.card, b.card):
    with verdict:
        outputs.say(sentences.apart(unlike), key="verdict")
else:
    asked(Line(a, b))
