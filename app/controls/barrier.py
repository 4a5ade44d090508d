"""The controls of the Barrier page: what moves, which stages, on what; t; what is written there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import streamlit as st

from app import session
from app.charts.barriers import NAMES, WHATS, What
from app.controls import layers as shared
from app.controls import text as texts
from app.controls.model import Chosen
from app.inputs import chosen_device
from engine.attention import counting
from engine.errors import Refused
from engine.line import sampling
from engine.pruning import parse_layers
from engine.questions import Barrier, Merge, Orders, Slice, Using, Written
from engine.questions.line import ABLATION, MERGING
from engine.records import SCOPES, STAGES

LISTED = "layers"
"""The scope whose layers are typed."""
POINTS = ("5", "9", "13", "25", "49")
SOURCES: tuple[Using, ...] = ("weights", "activations")
MATCHED = (
    "What is matched: weights, or what both models do on the text. From activations it is told "
    "which residual coordinate is which; where A and B share all that stays, what heads look at "
    "and say, and how much of its inputs a matrix hears."
)
SWEEPS, REFINE = 20, 500
"""The most sweeps and steps along the loss that a page asks for."""
ENDS = (0.0, 1.0)
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Spot:
    """Where on the line something is read, written or kept."""

    t: float
    stage: str


@dataclass(frozen=True)
class Line:
    """Both ends, opened."""

    a: Chosen
    b: Chosen

    @property
    def parameters(self) -> int:
        return max(self.a.card.parameters, self.b.card.parameters)


def what() -> What:
    """What the figure shows."""
    return cast(What, shared.choice(session.WHAT, "Show", WHATS, "What stands against t."))


def question(line: Line) -> Barrier | None:
    """The question of the page, from its controls; None while the tokens of a text are counted.

    Errors: Refused for typed layers that are none of the model's, and for a text too short.
    """
    scope = _scope(line.a.card.layers)
    name = texts.text()
    with st.popover("What is measured", icon=":material/tune:", key="measured"):
        stages = st.multiselect(
            "Stages", _stages(), default=Barrier.stages, width=440, format_func=str,
            help="; ".join(f"{stage}: {NAMES[stage]}" for stage in _stages()),
            **session.linked(session.STAGES),
        )  # fmt: skip
        points, midpoint, adaptive = _points()
        using = shared.choice(session.MATCHED, "From", SOURCES, MATCHED)
        sweeps = shared.whole(session.SWEPT, "Sweeps of the alignment", SWEEPS)
        refine = shared.whole(session.REFINED, "Steps along the loss half way", REFINE)
        tokens, length = shared.text(Barrier.tokens, Barrier.length, (session.READ, session.WINDOW))
    amount = texts.amount(line.a.path, name, tokens, length)
    if amount is None:
        return None
    tokens, length = amount
    return Barrier(
        line.a.path,
        line.b.path,
        points=points,
        stages=tuple(stage for stage in _stages() if stage in stages) or Barrier.stages,
        scope=scope,
        midpoint=midpoint,
        adaptive=adaptive,
        using=cast(Using, using),
        sweeps=sweeps,
        refine=refine,
        tokens=tokens,
        length=length,
        text=texts.file(name),
        device=chosen_device(),
    )


def _stages() -> tuple[str, ...]:
    return tuple(stage for stage in STAGES if stage != "refined")


def _points() -> tuple[int, bool, bool]:
    session.within(session.POINTS, POINTS, str(Barrier.points))
    points = st.select_slider(
        "Points of t, evenly spread", POINTS, str(Barrier.points), width=300,
        **session.linked(session.POINTS),
    )  # fmt: skip
    midpoint = st.toggle("Midpoint only", value=False, **session.linked(session.MIDPOINT))
    adaptive = st.toggle(
        "More points where a curve bends", value=Barrier.adaptive,
        **session.linked(session.ADAPTIVE),
    )  # fmt: skip
    return int(points), bool(midpoint), bool(adaptive)


def _scope(layers: int) -> str:
    """What is interpolated, as the engine names it. Errors: Refused, see `question`."""
    offered = [*reversed(SCOPES), LISTED]
    session.within(session.SCOPE, offered)
    found = st.selectbox(
        "Interpolate", offered, width=140,
        help="Only these tensors move along the line; the others stay A's.",
        **session.linked(session.SCOPE),
    )  # fmt: skip
    if found != LISTED:
        return str(found)
    typed = st.text_input(
        "Layers", "0", width=110, placeholder="3-5", help="Numbers from 0, such as 0,2 or 3-5.",
        **session.linked(session.SPAN),
    ).strip()  # fmt: skip
    chosen = parse_layers(typed)
    if any(not 0 <= layer < layers for layer in chosen):
        raise Refused(f"There is no layer {max(chosen)}: the last of {layers} is {layers - 1}.")
    return typed


def at(asked: Barrier) -> float:
    """The main control: t, one of the points that every stage is measured at."""
    grid = sampling.grid(3 if asked.midpoint else asked.points)
    named = [name(t) for t in grid]
    held = session.value(session.T)
    if held is not None and held not in named:
        session.assign(**{session.T: name(_nearest(grid, held))})
    found = st.select_slider(
        "t: how far along the line", named, name(_nearest(grid, "0.5")),
        **session.linked(session.T),
    )  # fmt: skip
    return float(grid[named.index(str(found))])


def _nearest(grid: np.ndarray, held: str) -> float:
    """The point of the grid that is nearest to what the address says; ½ for no number."""
    try:
        wanted = float(held)
    except ValueError:
        wanted = 0.5
    wanted = wanted if np.isfinite(wanted) else 0.5
    return float(grid[np.abs(grid - wanted).argmin()])


def name(t: float) -> str:
    """A point of the grid in the address."""
    return f"{t:.3f}".rstrip("0").rstrip(".") or "0"


def stage(offered: Sequence[str]) -> str:
    """Whose models write and are merged: the last step of the alignment, or another stage."""
    order = [one for one in reversed(offered) if one != "random"]
    order += [one for one in offered if one == "random"]
    session.within(session.STAGE, order)
    return str(
        st.selectbox(
            "Stage that writes", order, width=190,
            help="; ".join(f"{one}: {NAMES[one]}" for one in order),
            **session.linked(session.STAGE),
        )
    )  # fmt: skip


def several() -> bool:
    """Whether the quarters of the line write too."""
    return bool(
        st.toggle("Every quarter of the line too", value=False, **session.linked(session.SEVERAL))
    )


ALIKE = ("using", "sweeps", "seed", "text", "device", "dtype")
ALIGNED = (*ALIKE, "scope", "scrambled")
MEASURED = ("tokens", "length")
"""What other questions about a line take over from the page's."""


def _taken(asked: Barrier, *names: str) -> dict[str, Any]:
    return {one: getattr(asked, one) for one in names}


def _of(asked: Barrier, stage: str) -> dict[str, Any]:
    """A stage, with steps along the loss only where it is theirs."""
    return {"stage": stage, "refine": asked.refine if stage == "refined" else 0}


def written(asked: Barrier, spot: Spot, prompt: str, *, quarters: bool) -> Written:
    """The question of what the models of a stage write, at t and at both ends."""
    points = sorted({*(QUARTERS if quarters else ENDS), round(spot.t, 4)})
    same = _taken(asked, *ALIGNED) | _of(asked, spot.stage)
    return Written(asked.a, asked.b, at=tuple(points), prompt=prompt, **same)


def merge(asked: Barrier, spot: Spot) -> Merge:
    """The question of the model at t, on the same text."""
    same = _taken(asked, *ALIGNED, *MEASURED) | _of(asked, spot.stage)
    return Merge(asked.a, asked.b, t=round(spot.t, 4), **same)


def ablation(asked: Barrier) -> Barrier:
    """The same line with Stage 2 none, orthogonal only, and full."""
    return replace(asked, stages=ABLATION, refine=0)


def merging(asked: Barrier) -> Barrier:
    """The same pair, B first under a random gauge."""
    return replace(asked, stages=MERGING, refine=0, scrambled=True)


def plane(asked: Barrier, stage: str) -> Slice:
    """The plane through A, B and B at a stage of the alignment, on the same text."""
    same = _taken(asked, *ALIKE, *MEASURED, "scope") | _of(asked, stage)
    return Slice(asked.a, asked.b, **same)


def orders(asked: Barrier, layer: int) -> Orders:
    """Every order of the heads of one layer."""
    same = _taken(asked, "using", "text", "device", "dtype", *MEASURED)
    return Orders(asked.a, asked.b, layer=layer, **same)


def layer(layers: int) -> int:
    """Which layer's heads, shared with the other pages."""
    here = [str(number) for number in range(layers)]
    session.within(session.LAYER, here)
    if layers == 1:
        return 0
    return int(
        st.select_slider("Layer", here, value="0", width=220, **session.linked(session.LAYER))
    )


def head_orders(line: Line) -> tuple[int, int]:
    """In how many orders the heads of a layer may stand, and how many of these are tried."""
    card = line.a.card
    inside = card.heads // max(card.kv_heads, 1)
    return counting.count(card.kv_heads, inside), counting.tried(card.kv_heads, inside)
