"""Atlas: which internal numbers of this model are only names?"""

import streamlit as st

from app import inputs, outputs
from app.controls import model as models
from app.sections import atlas
from app.sentences import inventory
from engine.questions import Check

st.title("Which internal numbers of this model are only names?")
verdict = st.container()
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
with row:
    letter = models.letter()
model = models.opened(letter)

if model is None:
    with verdict:
        outputs.say(inventory.closed(letter), key="verdict")
else:
    with row:
        chosen = atlas.choose(model, letter)
    test = outputs.known(Check(model.path, device=inputs.chosen_device()))
    with verdict:
        outputs.say(inventory.totals(model.card, test), key="verdict")
    atlas.picture(model, letter, chosen)
    atlas.detail(chosen)
    atlas.everything(model, test)
    atlas.blind(model, test)
    atlas.theory()
    atlas.take_away(model, test)
