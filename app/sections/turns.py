"""Parts of the Heads page: the angle of every frequency, one head as a clock, a turn by hand."""

import numpy as np
import streamlit as st

from app import outputs
from app.charts import turns as charts
from app.charts.theme import config
from app.controls import heads as controls
from app.controls.heads import Hand, Pick
from app.controls.model import Chosen
from app.sections.heads import look, picture
from app.sentences import attention, words
from app.settings import ROOT
from engine.lab.presets import offered
from engine.questions import Heads
from engine.records import HeadsReport, Turns

LAB = str(ROOT / "pages" / "lab.py")


def angles(record: HeadsReport, turns: Turns, pick: Pick) -> None:
    """Both maps, and the chosen head as a clock."""
    st.subheader("By which angle was it turned?")
    st.markdown(outputs.plain(attention.angles(turns)))
    group = pick.cell.a // record.per_group
    left, right = st.columns([3, 2])
    with left:
        for part in ("angle", "modulus"):
            if part == "modulus" and turns.half_turns:
                continue
            chart = charts.turn_map(record, turns, part, look(), (group, pick.frequency))
            about = f"The {part} of every frequency of every key/value head"
            picture(chart, pick.key(part), about, clicks=True)
        outputs.explain(
            "Row: the query heads that share a key/value head. Column: a rotary frequency. The "
            "scale of angles closes on itself, −180° and 180° are one colour. Nothing turned is "
            "blank: fine-tunes of one base have φ ≈ 0 and r ≈ 1. Click a cell.",
            "Colours at random where B was not scrambled, or big moduli on both sides: noise.",
        )
    with right:
        st.plotly_chart(
            charts.clock(turns, group, pick.frequency, look()),
            key="clock",
            config=config("clock"),
            alt="The turns of one head on a polar plot",
        )
        heads = f"head {pick.cell.a}" + (
            f" (key/value head {group})" if record.per_group > 1 else ""
        )
        outputs.explain(
            f"The turns of {heads}: distance from the centre r, direction φ, size the frequency's "
            "share of queries and keys. Rings: the planted turns, where known. Identity: all at "
            "0° on the dashed circle.",
            "Dots outside their rings; big dots all around the circle between fine-tunes.",
        )


def by_hand(
    asked: Heads, record: HeadsReport, turns: Turns, pick: Pick, a: Chosen, b: Chosen
) -> None:
    """One frequency turned by hand: the objective at once, the logits when they are measured."""
    st.subheader("Turn one frequency by hand")
    group = pick.cell.a // record.per_group
    hand = controls.hand(turns, group)
    log = float(np.log(hand.modulus))
    mine = float(turns.objective(group, hand.frequency, np.radians(hand.angle), log))
    st.markdown(outputs.plain(attention.by_hand(turns, group, hand.frequency, mine)))
    at = group, hand.frequency, hand.angle, log, look()
    left, right = st.columns(2)
    with left:
        st.plotly_chart(
            charts.curve(turns, *at), key="curve", config=config("objective"),
            alt="The objective over the angle",
        )  # fmt: skip
    with right:
        st.plotly_chart(
            charts.landscape(turns, *at), key="landscape", config=config("landscape"),
            alt="The objective over angle and modulus",
        )  # fmt: skip
    outputs.explain(
        "The objective ‖q_A − z q_B‖² + ‖k_A − k_B / z̄‖² of this frequency over its size: along "
        "the angle, and over angle and log r (logarithm, light is low). The circle is what was "
        "found, the diamond is the hand, which starts at B as stored. Twins: the circle lies at 0.",
        "A flat curve: this frequency says nothing about the angle; a second valley as deep.",
    )
    if turns.half_turns:
        st.markdown("Norms of queries and keys leave 0° and 180° free, and nothing in between.")
    else:
        logits(asked, hand, a, b)


def logits(asked: Heads, hand: Hand, a: Chosen, b: Chosen) -> None:
    """What the turn does to the output of B, and half way between the models."""
    question = controls.turn(asked, hand)
    title = f"Frequency {hand.frequency} turned by {hand.angle:g}°, × {hand.modulus:g}"
    about = words.memory(a.card, b.card)
    record = outputs.answered(question, a.card.parameters, title, "Run both models", about)
    if record is not None:
        outputs.say(attention.turned(record), key="turned")
    preset = next((row.title for row in offered(b.card) if row.key == "rotary"), None)
    if preset is not None:
        element = f"{hand.frequency}@{hand.angle:g}*{hand.modulus:g}"
        link = {"a": a.spec, "b": b.spec, "of": "B", "preset": preset, "element": element}
        st.page_link(
            LAB, label="The same turn in the Lab, on every head of the layer",
            icon=":material/experiment:", query_params={**link, "layer": str(asked.layer)},
        )  # fmt: skip
