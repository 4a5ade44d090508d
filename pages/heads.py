"""Heads: which head is which, and by which angle was it turned?"""

import streamlit as st

from app import inputs, outputs
from app.controls import heads as controls
from app.controls import model as models
from app.controls.model import Chosen
from app.sections import heads, published, turns
from app.sentences import attention, verdicts, words
from engine.questions import Heads
from engine.records import HeadsReport

st.title("Which head is which, and by which angle was it turned?")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
with row:
    itself = controls.against()
a = models.opened("A")
b = a if itself or inputs.same() else models.opened("B")


def asked(a: Chosen, b: Chosen) -> None:
    """The question of the controls, and its answer."""
    with row:
        question = controls.question(a, b)
    names = [inputs.label(model.spec) for model in (a, b)]
    title = f"Heads of {names[1]} and {names[0]}, layer {question.layer}"
    with verdict:
        place = st.container()
        about = words.memory(a.card, b.card)
        record = outputs.answered(question, a.card.parameters, title, "Match the heads", about)
    with place:
        outputs.say(attention.matched(record), key="verdict")
    if record is not None:
        shown(question, record, a, b)


def shown(question: Heads, record: HeadsReport, a: Chosen, b: Chosen) -> None:
    """All pictures of a report."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="pick"):
        pick = controls.pick(record)
    heads.matching(record, pick)
    published.why(record)
    if record.same_model:
        heads.coincidences(record, pick)
    elif record.turns is not None:
        turns.angles(record, record.turns, pick)
        turns.by_hand(question, record, record.turns, pick, a, b)
    if not record.same_model:
        heads.steps(record, pick)
    if not record.same_model or record.turns is None:
        heads.matrices(record)
    published.compared(record, pick)
    heads.theory()
    heads.take_away(question, record, pick)


if a is not None and b is not None and not verdicts.differences(a.card, b.card):
    asked(a, b)
else:
    with verdict:
        outputs.say(attention.refused(a and a.card, b and b.card, itself), key="verdict")
