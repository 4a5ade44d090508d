"""Neurons: which neuron of B is which neuron of A?"""

import streamlit as st

from app import inputs, outputs
from app.controls import model as models
from app.controls import neurons as controls
from app.controls.model import Chosen
from app.sections import experts, neurons
from app.sentences import neurons as sentences
from app.sentences import verdicts, words
from engine.questions import Neurons
from engine.records import NeuronLayers, NeuronMatch

heading, verdict = st.container(), st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
with row:
    itself = controls.against()
heading.title(sentences.question(itself=itself))
a = models.opened("A")
b = a if itself or inputs.same() else models.opened("B")


def asked(a: Chosen, b: Chosen) -> None:
    """The question of the controls, and its answer."""
    with row:
        question = controls.question(a, b)
    names = [inputs.label(model.spec) for model in (a, b)]
    title = f"Neurons of {names[1]} and {names[0]}, layer {question.layer}"
    about = words.memory(a.card, b.card)
    with verdict:
        place = st.container()
        record = outputs.answered(question, a.card.parameters, title, "Match the neurons", about)
    with place:
        outputs.say(sentences.matched(record), key="verdict")
    if record is not None:
        shown(question, record, a)
    if a.card.experts:
        experts.whole(a, b, question.layer)


def shown(question: Neurons, record: NeuronMatch, a: Chosen) -> None:
    """All pictures of a report."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="pick"):
        pick = controls.pick(record)
    every = None
    if record.same_model:
        neurons.coincidences(record)
        neurons.excited(record, pick)
    else:
        neurons.picture(record, pick)
        neurons.excited(record, pick)
        every = layers(question, record, a)
        neurons.certainty(record, pick)
    neurons.theory()
    neurons.take_away(question, record, every)


def layers(question: Neurons, record: NeuronMatch, a: Chosen) -> NeuronLayers | None:
    """Every layer in short, a question of its own."""
    other = controls.all_layers(question)
    title = f"Neurons of every layer of {record.b} and {record.a}"
    about = sentences.cost(record)
    every = outputs.answered(other, a.card.parameters, title, "Look at every layer", about)
    if every is not None:
        neurons.layers(every, record.layer)
    return every


if a is not None and b is not None and not verdicts.unlike(a.card, b.card):
    asked(a, b)
else:
    with verdict:
        outputs.say(sentences.refused(a and a.card, b and b.card, itself), key="verdict")
