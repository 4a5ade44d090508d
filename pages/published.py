"""Published and measured here: theirs, ours, what differs, the command."""

import streamlit as st

from app import outputs, reproduced
from app.controls import reproductions as controls
from app.sections import reproductions as sections
from app.sentences import reproductions as sentences
from engine.errors import Refused
from engine.records import Connectivity, PublishedConnectivity
from engine.reproduction import connectivity, measured

st.title("Does what was published hold here?")


def barriers(every: Connectivity, told: PublishedConnectivity) -> None:
    """The barriers in pictures and cards, then every other card."""
    verdict = st.container()
    with st.container(horizontal=True, key="controls"):
        scope, using = controls.scope(), controls.using()
    with verdict:
        outputs.say(sentences.told(every, told, using), key="verdict")
    found = every.by(using)
    cards = [
        sentences.ablation(found, told, scope),
        sentences.connected(found, told, scope),
        sentences.orders(found, told),
        *reproduced.cards(),
    ]
    sections.ratios(found, told, scope)
    for place, one in enumerate(cards[:2]):
        sections.card(one, place)
    sections.table(found)
    sections.orders(found)
    st.subheader("Card by card")
    for place, one in enumerate(cards[2:], 2):
        sections.card(one, place)
    sections.theory()
    sections.take_away(found, told, scope, cards)


try:
    barriers(measured(), connectivity())
except Refused as refusal:
    outputs.refuse(str(refusal))
    for place, one in enumerate(reproduced.cards()):
        sections.card(one, place)
