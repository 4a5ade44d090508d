"""Alignment: put B into A's coordinates."""

import streamlit as st

from app import inputs, outputs
from app.controls import alignment as controls
from app.controls import model as models
from app.controls.model import Chosen
from app.sections import alignment, relation
from app.sentences import alignments as sentences
from app.sentences import lineage, verdicts
from engine.errors import Refused
from engine.records import AlignmentProgress, Relatedness

st.title("Put B into A's coordinates")
first, verdict = st.container(), st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
a, b = models.both()


def aligned(a: Chosen, b: Chosen, related: Relatedness | None) -> None:
    """The question of the controls, and its answer as far as it is known."""
    try:
        with row:
            question = controls.question(a, b)
    except Refused as refusal:
        outputs.refuse(str(refusal))
        return
    title = "Put {1} into the coordinates of {0}".format(*map(inputs.label, inputs.pair()))
    with verdict:
        place = st.container()
        label = "Put B into A's coordinates"
        report = outputs.measured(question, title, label, controls.work(question))
    if report is None:
        with place:
            outputs.say(sentences.waiting(), key="verdict")
        job, found = outputs.registry().look(question.key), outputs.so_far(question)
        if job is not None and not job.over:
            alignment.live(question)
        elif isinstance(found, AlignmentProgress):
            alignment.unfinished(found, goes_on=False)
        return
    with place:
        outputs.say(sentences.told(a.card, b.card, report, related), key="verdict")
    alignment.objective(report)
    alignment.coordinates(question, report, related)
    alignment.half_way(report)
    if related is not None:
        st.subheader("Are they related at all?")
        relation.pictures(related)
    alignment.write(question)
    alignment.theory()
    alignment.take_away(question, report, (relation.question(a, b), related))


def shown(a: Chosen, b: Chosen) -> None:
    """The relation first, then the alignment where one group acts on both."""
    related = None
    if lineage.comparable(a.card, b.card):
        with first:
            related = relation.told(a, b)
    else:
        with first:
            relation.untested(a.card, b.card)
    if verdicts.unlike(a.card, b.card) or a.card.fingerprint == b.card.fingerprint:
        with verdict:
            outputs.say(verdicts.pair(a.card, b.card, None), key="verdict")
        if related is not None:
            relation.alone(relation.question(a, b), related)
    else:
        aligned(a, b, related)


if a is None or b is None:
    with verdict:
        cards = (None if side is None else side.card for side in (a, b))
        outputs.say(verdicts.unopened(*cards), key="verdict")
else:
    shown(a, b)
