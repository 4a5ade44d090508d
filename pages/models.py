"""Models: what are these two checkpoints, and are they the same function?"""

import streamlit as st

from app import inputs, outputs
from app.controls.model import Chosen
from app.sections import models, relation
from app.sentences import lineage, verdicts, words
from engine.questions import Align

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("What are these two checkpoints, and are they the same function?", width="stretch")
    models.tour()
inputs.demo_pairs()

spec_a, spec_b = inputs.pair()
top, (left, right) = st.container(), st.columns(2)
with left:
    a = models.side("A", spec_a)
with right:
    b = models.side("B", spec_b)

with top:
    opened = a is not None and b is not None
    verdict, kin = st.columns(2) if opened else (st.container(), None)
question, report, asked, related = None, None, None, None
with verdict:
    if a is None or b is None:
        outputs.say(verdicts.unopened(a, b), key="verdict")
    else:
        comparable = not verdicts.unlike(a, b) and a.fingerprint != b.fingerprint
        if comparable:
            first, second = inputs.located(spec_a), inputs.located(spec_b)
            question = Align(first, second, device=inputs.chosen_device())
            report = outputs.known(question)
        outputs.say(verdicts.pair(a, b, report), key="verdict")
        if question is not None and report is None:
            title = f"Align {inputs.label(spec_b)} with {inputs.label(spec_a)}"
            about = words.memory(a, b)
            outputs.measured(question, title, "Measure it", about, partly=False)

if a is not None and b is not None and kin is not None:
    with kin:
        if lineage.comparable(a, b):
            both = [Chosen(spec, inputs.located(spec), c) for spec, c in ((spec_a, a), (spec_b, b))]
            asked, related = relation.question(*both), relation.told(*both)
        else:
            relation.untested(a, b)
if question is not None and report is not None:
    models.pictures(report)
if asked is not None and related is not None:
    st.subheader("Are they related at all?")
    if report is None:
        relation.alone(asked, related)
    else:
        relation.pictures(related)
if question is not None and report is not None:
    models.theory()
    models.take_away(question, report, asked, related)
