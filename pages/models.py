"""Models: what are these two checkpoints, and are they the same function?"""

import streamlit as st

from app import inputs, outputs
from app.sections import models
from app.sentences import verdicts, words
from engine.questions import Align

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("What are these two checkpoints, and are they the same function?", width="stretch")
    models.tour()
inputs.demo_pairs()

spec_a, spec_b = inputs.pair()
verdict, (left, right) = st.container(), st.columns(2)
with left:
    a = models.side("A", spec_a)
with right:
    b = models.side("B", spec_b)

question, report = None, None
with verdict:
    if a is None or b is None:
        outputs.say(verdicts.unopened(a, b), key="verdict")
    else:
        comparable = not verdicts.differences(a, b) and a.fingerprint != b.fingerprint
        if comparable:
            first, second = inputs.located(spec_a), inputs.located(spec_b)
            question = Align(first, second, device=inputs.chosen_device())
            report = outputs.known(question)
        outputs.say(verdicts.pair(a, b, report), key="verdict")
        if question is not None and report is None:
            title = f"Align {inputs.label(spec_b)} with {inputs.label(spec_a)}"
            outputs.measured(question, title, "Measure it", words.memory(a, b))

if question is not None and report is not None:
    models.pictures(report)
    models.theory()
    models.take_away(question, report)
