"""Lab: turn a dial: do the weights move, does the output?"""

import streamlit as st

from app import outputs
from app.controls import lab as dials
from app.controls import model as models
from app.controls.model import Chosen
from app.sections import lab
from app.sentences import experiments, words

st.title("Turn a dial: do the weights move, does the output?")
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
says, verdict = st.container(), st.container()
with row:
    letter = models.letter()
model = models.opened(letter)


def turned(model: Chosen) -> None:
    """The experiment as the dials stand, with its pictures."""
    with row:
        preset = dials.preset(model.card)
    with says:
        st.markdown(outputs.plain(" ".join(preset.says)))
    question = dials.question(model, preset)
    about = words.memory(model.card, model.card)
    record = outputs.answered(question, model.card.parameters, preset.title, "Run it", about)
    with verdict:
        if record is None:
            outputs.say(experiments.waiting(preset.title), key="verdict")
        else:
            outputs.say(experiments.told(record, model.card), key="verdict")
    if record is not None:
        lab.meter(record)
        lab.weights(record)
        lab.inside(record)
        lab.code(record, model.card)
        lab.theory()
        lab.take_away(question, record)


if model is None:
    with verdict:
        outputs.say(experiments.closed(letter), key="verdict")
else:
    turned(model)
