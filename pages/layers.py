"""Layers: can layer j stand in for layer i? It depends how you ask."""

import streamlit as st

from app import inputs, outputs
from app.controls import layers as controls
from app.controls import model as models
from app.controls.model import Chosen
from app.sections import layers
from app.sentences import layers as sentences
from app.sentences import words
from engine.published import published

st.title("Can layer j stand in for layer i? It depends how you ask.")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
fields = st.container(horizontal=True, vertical_alignment="bottom", key="pick")


def asked(model: Chosen) -> None:
    """The question of the controls, and its answer as far as it is known."""
    with row:
        question = controls.question(model)
    with fields:
        pick = controls.pick(model.card.layers, question.tests)
    title = f"Layers of {inputs.label(model.spec)}"
    with verdict:
        place = st.container()
        about = words.memory(model.card, model.card)
        record = outputs.answered(question, model.card.parameters, title, "Measure the maps", about)
    job = outputs.registry().look(question.key)
    if record is None and job is not None and not job.over:
        layers.live(question, pick)
        return
    record = outputs.so_far(question) if record is None else record
    with place:
        if record is None:
            outputs.say(sentences.waiting(inputs.label(model.spec)), key="verdict")
        else:
            outputs.say(sentences.told(layers.viewed(record), record, pick.how), key="verdict")
    if record is not None:
        layers.whole(question, record, pick, model)


with row:
    source = controls.source()
if not source:
    with row:
        letter = models.letter()
    model = models.opened(letter)
    if model is None:
        with verdict:
            outputs.say(sentences.closed(letter), key="verdict")
    else:
        asked(model)
else:
    record = published(source)
    maps = layers.viewed(record)
    with fields:
        pick = controls.pick(maps.layers, controls.offered(maps))
    with verdict:
        outputs.say(sentences.told(maps, record, pick.how), key="verdict")
    layers.whole(None, record, pick, None)
