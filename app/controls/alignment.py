"""The controls of the Alignment page: from what, which coordinates, by which search."""

from dataclasses import dataclass
from typing import cast

import streamlit as st

from app import session
from app.controls.heads import SOURCES, STEPS
from app.controls.layers import choice, whole
from app.controls.model import Chosen
from app.inputs import chosen_device
from engine.errors import Refused
from engine.questions import Align, NeuronCost, Stage2, Using
from engine.questions.base import BOUNDS
from engine.records import ModelCard

SWEEPS = 12
"""Most sweeps unless the page says otherwise; a descent ends by itself before."""
MOST, STARTS, REFINED = 100, 20, 1000
MIX = BOUNDS["mix"][1]
NEURONS: tuple[NeuronCost, ...] = ("invariant", "published")
TOGETHER, HEADS = ("grp", "head"), "heads"
"""Coordinates that are solved together, and the word for both."""


@dataclass(frozen=True)
class Search:
    """How much is searched in sweeps; nothing of it counts where there are none."""

    sweeps: int
    restarts: int = 0
    mix: float = 0.0
    neurons: NeuronCost = "invariant"


def question(a: Chosen, b: Chosen) -> Align:
    """The question of the page, from its controls.

    Errors: Refused for coordinates that are not there, for a part of what is solved together, and
    for a link whose weight of activations is no weight.
    """
    using = choice(
        session.USING, "From", SOURCES,
        "Where the residual coordinates are read from at first: the embedding, or activations.",
    )  # fmt: skip
    signs = choice(
        session.SIGNS, "Signs", ("on", "off"),
        "Off searches orders alone: coordinates whose sign is − cannot be right then.",
    )  # fmt: skip
    sweeps = whole(session.SWEEPS, "Sweeps at most", MOST, SWEEPS, 140)
    with st.popover("How it is solved", icon=":material/tune:", key="solved"):
        typed = st.text_input(
            "Only these coordinates", "", placeholder=",".join(offered(a.card)), width=380,
            help="Words with commas between; empty means all. A sweep solves each in turn.",
            **session.linked(session.ONLY),
        )  # fmt: skip
        stage2 = choice(
            session.STAGE2, "Inside heads", STEPS,
            "Full: angles, moduli and any matrix. Orthogonal: turns alone. None: orders alone.",
        )  # fmt: skip
        search = searched(sweeps)
        refine = whole(session.REFINE, "Steps along the loss half way (0: none)", REFINED, 0, 380)
    return Align(
        a.path,
        b.path,
        using=cast(Using, using),
        signs=signs == "on",
        only=only(typed, a.card),
        device=chosen_device(),
        stage2=cast(Stage2, stage2),
        sweeps=search.sweeps,
        restarts=search.restarts,
        mix=search.mix,
        neurons=search.neurons,
        refine=refine,
    )


def searched(sweeps: int) -> Search:
    """What only sweeps have: further starts, activations in the objective, the neurons' cost."""
    if not sweeps:
        st.caption("No sweeps: each coordinate is solved once, by no common objective.")
        return Search(0)
    restarts = whole(session.RESTARTS, "Further starts, perturbed at random", STARTS, 0, 380)
    mix = weight()
    neurons = choice(
        session.NEURONS, "Neurons by", NEURONS,
        "Invariant: what no sign or factor can change. Published: git re-basin's cost.",
    )  # fmt: skip
    return Search(sweeps, restarts, mix, cast(NeuronCost, neurons))


def weight() -> float:
    """The weight of activations in the objective. Errors: Refused for a link that says too much."""
    held = session.value(session.MIX)
    try:
        said = float(held or 0.0)
    except ValueError:
        said = 0.0
    if not 0 <= said <= MIX:
        session.assign(**{session.MIX: 0.0})
        raise Refused(
            f"mix is {said:g}: the weight of activations beside weights is from 0 to {MIX:g}."
        )
    return float(
        st.number_input(
            "Weight of activations beside weights", 0.0, MIX, 0.0, 0.05, width=380,
            **session.linked(session.MIX),
        )
    )  # fmt: skip


def offered(card: ModelCard) -> tuple[str, ...]:
    """The words that may stand in the field, grp and head as one."""
    names = [row.name for row in card.coordinates if not row.fixed]
    both = set(TOGETHER) <= set(names)
    found = [HEADS if both and name in TOGETHER else name for name in names]
    return tuple(dict.fromkeys(found))


def only(typed: str, card: ModelCard) -> tuple[str, ...]:
    """The coordinates that a field names, in the table's order; () for all of them.

    Errors: Refused for words that name none, and for one of two that are solved together.
    """
    words = {word.strip() for word in typed.split(",") if word.strip()}
    names = offered(card)
    if HEADS in names and set(TOGETHER) <= words:
        words = (words - set(TOGETHER)) | {HEADS}
    if HEADS in names and (part := sorted(words & set(TOGETHER))):
        raise Refused(
            f"Only {part[0]}: grp and head are solved together. Say heads for both of them."
        )
    if unknown := sorted(words - set(names)):
        raise Refused(
            f"Only {', '.join(unknown)}: this model has no such coordinate. It has "
            f"{', '.join(names)}."
        )
    found = tuple(name for name in names if name in words)
    return () if found == names else found


def work(question: Align) -> str:
    """What a run costs, in words."""
    what = (
        f"Up to {question.sweeps} sweeps through both models' weights from every start"
        if question.sweeps
        else "One pass through both models' weights"
    )
    ran = f", {question.refine} steps along the loss" if question.refine else ""
    return f"{what}{ran}; then both models and their mean are run on a short text."
