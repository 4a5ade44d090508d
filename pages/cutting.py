"""Cutting: what does it cost to remove n layers?"""

import streamlit as st

from app import inputs, outputs
from app.controls import cutting as controls
from app.controls import model as models
from app.controls.model import Chosen
from app.sections import cutting, growing
from app.sentences import cuts as sentences
from app.sentences import layers as layer_verdicts
from app.sentences import words
from engine.questions import Cut
from engine.records import CutReport

st.title("What does it cost to remove n layers?")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
with row:
    letter = models.letter()
model = models.opened(letter)


def asked(model: Chosen) -> None:
    """The question of the controls, and its answer as far as it is known."""
    with row:
        question = controls.question(model)
    name = inputs.label(model.spec)
    with verdict:
        place = st.container()
        about = words.memory(model.card, model.card)
        record = outputs.answered(
            question, model.card.parameters, f"Cuts of {name}", "Measure the cuts", about
        )
    record = outputs.so_far(question) if record is None else record
    growing.follow(question, "candidates", record)
    if record is None:
        with place:
            outputs.say(sentences.waiting(name), key="verdict")
        return
    with row:
        n = controls.budget(max((len(one.sets) - 1 for one in record.candidates), default=0))
        mine, wrong = controls.mine(name, record.layers)
    with place:
        outputs.say(sentences.told(record, n), key="verdict")
    shown(question, record, model, n, mine, wrong)


def shown(
    question: Cut, report: CutReport, model: Chosen, n: int, mine: tuple[int, ...], wrong: str
) -> None:
    """All pictures of a report."""
    if wrong:
        outputs.refuse(wrong)
    cutting.strip(report, n, mine)
    own = cutting.own(question, mine, model)
    st.markdown(outputs.plain(sentences.mine(own, mine)))
    cutting.curves(report, n, own)
    cutting.candidates(report, n, own)
    cutting.scores(report)
    written = cutting.write(model, report, n, mine)
    cutting.theory()
    cutting.take_away(question, report, n, own, written)


if model is None:
    with verdict:
        outputs.say(layer_verdicts.closed(letter), key="verdict")
else:
    asked(model)
