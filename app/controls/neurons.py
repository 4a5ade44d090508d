"""The controls of the Neurons page: layer and expert, how neurons are compared, which one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import streamlit as st

from app import session
from app.controls.model import Chosen
from app.inputs import chosen_device
from engine.questions import AllNeurons, Known, Neurons, Using
from engine.records import NeuronMatch

OTHER_MODEL, ITSELF = "B", "itself"
SOURCES: tuple[Using, ...] = ("weights", "activations")
TRUTHS: tuple[Known, ...] = ("planted", "identity", "none")
BESIDE = ("partner", "next best")
SHARED = "shared"


def against() -> bool:
    """Whether A is compared with itself."""
    found = st.segmented_control(
        "A against", (OTHER_MODEL, ITSELF), required=True, default=OTHER_MODEL,
        help="Itself: which two neurons of one layer coincide up to sign and scale?",
        **session.linked(session.AGAINST),
    )  # fmt: skip
    return found == ITSELF


def question(a: Chosen, b: Chosen) -> Neurons:
    """The question of the page, from its controls."""
    layer, expert = _layer(a.card.layers), _expert(a)
    session.within(session.USING, SOURCES)
    using = st.segmented_control(
        "From", SOURCES, required=True, default=SOURCES[0],
        help="How neurons are compared: by their weights, or by how they fire together on a text.",
        **session.linked(session.USING),
    )  # fmt: skip
    truth: Known = "planted"
    if a.path != b.path:
        session.within(session.TRUTH, TRUTHS)
        truth = st.selectbox(
            "Compare with", TRUTHS, width=150,
            help="What is known to be right: the gauge that was planted in B, the identity for two "
            "models of one lineage, or nothing.",
            **session.linked(session.TRUTH),
        )  # fmt: skip
    return Neurons(
        a.path,
        b.path,
        layer=layer,
        expert=expert,
        using=cast(Using, using or SOURCES[0]),
        truth=truth,
        device=chosen_device(),
    )


def all_layers(asked: Neurons) -> AllNeurons:
    """Every layer in short; neurons of experts by their weights, for they fire on other tokens."""
    shared = asked.expert if asked.expert == SHARED else ""
    return AllNeurons(
        asked.a,
        asked.b,
        expert=shared,
        using="weights" if asked.expert else asked.using,
        truth=asked.truth,
        device=asked.device,
    )


def _layer(layers: int) -> int:
    """The layer, shared with other pages."""
    here = [str(layer) for layer in range(layers)]
    session.within(session.LAYER, here)
    if layers == 1:
        return 0
    return int(
        st.select_slider("Layer", here, value="0", width=120, **session.linked(session.LAYER))
    )


def _expert(a: Chosen) -> str:
    """The expert of A, where experts hold the neurons."""
    if not a.card.experts:
        return ""
    offered = [str(expert) for expert in range(a.card.experts)]
    if any(c.name == "sffn" for c in a.card.coordinates):
        offered.append(SHARED)
    session.within(session.EXPERT, offered)
    return str(
        st.selectbox("Expert of A", offered, width=110, **session.linked(session.EXPERT)) or "0"
    )


@dataclass(frozen=True)
class Pick:
    """The neuron that is looked at, and what stands beside it."""

    row: int  # its place among those that have a partner
    neuron: int
    other: bool  # the next best instead of the partner

    def key(self, name: str) -> str:
        """Key of a picture that can be clicked: a new choice is a new picture without the click."""
        return session.local("neurons", name, self.neuron)


POINTS = {"pairs": "y", "scales": "x"}
"""The pictures that can be clicked, and along which axis A counts."""


def pick(record: NeuronMatch) -> Pick:
    """The neuron of A, from its field or from a click on a point."""
    here = [int(neuron) for neuron in record.rows]
    start = int(record.second_score.argmax()) if record.same_model else here[0]
    held = _within(here, start)
    _take_click(here, held)
    neuron = int(
        st.number_input(
            "Neuron of A", here[0], here[-1], start, 1, width=140,
            **session.linked(session.NEURON),
        )
    )  # fmt: skip
    row = int(np.searchsorted(record.rows, neuron).clip(max=len(here) - 1))
    other = record.same_model
    if not record.same_model:
        chosen = st.segmented_control(
            "Beside it", BESIDE, required=True, default=BESIDE[0],
            **session.linked(session.BESIDE_IT),
        )  # fmt: skip
        other = chosen == BESIDE[1]
    return Pick(row, here[row], other)


def _within(here: Sequence[int], start: int) -> int:
    """The number that the field holds; another layer may have fewer neurons."""
    held = session.value(session.NEURON)
    try:
        found = int(held) if held is not None else start
    except (TypeError, ValueError):
        found = start
    if not here[0] <= found <= here[-1]:
        session.assign(**{session.NEURON: start})
        return start
    return found


def _take_click(here: Sequence[int], held: int) -> None:
    """A clicked point becomes the value of the field before it is drawn."""
    for name, axis in POINTS.items():
        state: Any = st.session_state.get(session.local("neurons", name, held)) or {}
        points = state.get("selection", {}).get("points", [])
        if points and int(points[0][axis]) in here:
            session.assign(**{session.NEURON: int(points[0][axis])})
