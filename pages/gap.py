"""Gap in training: when do replacing and swapping come apart?"""

import streamlit as st

from app import inputs, outputs
from app.controls import gap as controls
from app.sections import gap, growing
from app.sentences import gaps as sentences
from engine.errors import Refused
from engine.published import trajectories
from engine.questions import Gap

st.title("When do replacing and swapping come apart?")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
published = trajectories()
with row:
    specs = controls.models()
    scale = controls.scale()
    beside = controls.beside(list(published))
    tokens, length = controls.amount()


def asked() -> tuple[Gap, int] | None:
    """The question and the parameters of its models; None, with the reason, without one."""
    if not specs:
        st.markdown("Choose some models: saved steps of one training, or seeds.")
        return None
    try:
        paths = tuple(inputs.located(spec) for spec in specs)
        parameters = sum(inputs.card(path).parameters for path in paths)
        question = controls.question(paths, tokens, length)
        _ = question.key
    except Refused as refusal:
        outputs.refuse(str(refusal))
        return None
    return question, parameters


with verdict:
    place = st.container()
    found = asked()
    record = None
    if found is not None:
        about = f"Runs {len(specs)} models, one after another."
        record = outputs.answered(*found, f"Gap over {len(specs)} models", "Measure the gap", about)
        record = outputs.so_far(found[0]) if record is None else record
        growing.follow(found[0], "steps", record)
with place:
    outputs.say(
        sentences.waiting() if record is None else sentences.told(record, scale), key="verdict"
    )

shown = record if record is not None and record.steps else None
gap.curves(shown, beside, published[beside], scale)
gap.compared(shown, beside, published[beside])
if shown is not None and found is not None:
    gap.candidates(shown, scale)
    gap.theory()
    gap.take_away(found[0], shown, published[beside], scale)
