"""The controls of the Layers page: whose maps, what is measured, which pair, what is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import streamlit as st

from app import session
from app.charts.layer_maps import CLICK, Maps, Pair
from app.controls.model import Chosen
from app.inputs import chosen_device
from engine import published
from engine.layers.selection import HOWS, How
from engine.questions import Continue, Layers
from engine.records.layers import PAIRS, SINGLES, Aggregate

HERE, TOLD = "this model", "published "
"""What the field *Maps of* offers, as it stands in the address."""
EVERY = (*PAIRS, *SINGLES)
STARTING = Layers.tests
TOKENS, LENGTHS = (256, 512, 1024, 2048, 4096, 8192), (16, 32, 64, 128, 256)
AGGREGATES: tuple[Aggregate, ...] = ("mean", "last")


def source() -> str:
    """Whose maps: the name of published ones; empty for this model's."""
    offered = [HERE, *(f"{TOLD}{name}" for name in published.names())]
    session.within(session.SOURCE, offered)
    found = st.selectbox(
        "Maps of", offered, width=230,
        help="What is measured here, or what a paper published, in the same pictures.",
        **session.linked(session.SOURCE),
    )  # fmt: skip
    return "" if found == HERE else str(found).removeprefix(TOLD)


def question(model: Chosen) -> Layers:
    """The question of the page, from its controls."""
    aggregate = choice(
        session.AGGREGATE, "Positions", AGGREGATES,
        "Which positions of a window are read: all of them, or the last one only.",
    )  # fmt: skip
    with st.popover("What is measured", icon=":material/tune:", key="measured"):
        tests = st.multiselect(
            "Tests", EVERY, default=STARTING, width=420, **session.linked(session.TESTS)
        )
        reach = whole(session.REACH, "Largest |i − j| (0: all)", model.card.layers - 1)
        first, last = _range(model.card.layers)
        tokens, length = text(Layers.tokens, Layers.length)
    every = (first, last) == (0, model.card.layers - 1)
    return Layers(
        model.path,
        tests=tuple(test for test in EVERY if test in tests) or STARTING,
        layers="" if every else f"{first}-{last}",
        reach=reach,
        aggregate=cast(Aggregate, aggregate),
        tokens=tokens,
        length=length,
        device=chosen_device(),
    )


AMOUNT = (session.COUNT, session.LENGTH)


def text(tokens: int, length: int, keys: tuple[str, str] = AMOUNT) -> tuple[int, int]:
    """How many tokens are read, and how long a window of them is, from what a question starts.

    A page whose question starts elsewhere has `keys` of its own: values go along between pages.
    """
    tokens = st.select_slider("Tokens", TOKENS, tokens, width=300, **session.linked(keys[0]))
    length = st.select_slider(
        "Tokens of a window", LENGTHS, length, width=300,
        help="Intervals resample windows: they need 16 or more.",
        **session.linked(keys[1]),
    )  # fmt: skip
    return int(tokens), int(length)


def whole(name: str, label: str, last: int, start: int = 0, width: int = 200) -> int:
    """A whole number from 0; one that is too large for this model gives way to the largest."""
    held = session.value(name)
    if held is not None and str(held).isdigit() and int(held) > last:
        session.assign(**{name: last})
    return int(st.number_input(label, 0, last, start, 1, width=width, **session.linked(name)))


def _range(layers: int) -> tuple[int, int]:
    if layers < 2:
        return 0, layers - 1
    held = session.value(session.RANGE)
    if isinstance(held, tuple | list) and max(int(end) for end in held) >= layers:
        session.assign(**{session.RANGE: (0, layers - 1)})
    first, last = st.slider(
        "Layers that are tested, both ends included", 0, layers - 1, (0, layers - 1),
        width=300, **session.linked(session.RANGE),
    )  # fmt: skip
    return int(first), int(last)


def choice(name: str, label: str, offered: Sequence[str], about: str) -> str:
    """One of a few words."""
    session.within(name, offered)
    found = st.segmented_control(
        label, offered, required=True, default=offered[0], help=about, **session.linked(name)
    )
    return str(found or offered[0])


@dataclass(frozen=True)
class Pick:
    """What of the maps is looked at."""

    pair: Pair
    left: str
    right: str
    how: How

    def key(self, name: str) -> str:
        """Key of a map: a new pair is a new picture without the click that chose it."""
        return _key(name, self.pair.i, self.pair.j)


SIDES = ("left", "right", "apart")
"""The maps that can be clicked."""


def _key(name: str, i: Any, j: Any) -> str:
    return session.local("layers", name, i, j)


def pick(maps_layers: int, tests: Sequence[str]) -> Pick:
    """The pair from the fields or from a click, the tests of both maps, how directions join."""
    start = max(0, maps_layers // 2 - 1), min(maps_layers // 2, maps_layers - 1)
    take_click(start)
    last = maps_layers - 1
    i = whole(session.ROW, "Depth i", last, start[0], 110)
    j = whole(session.COLUMN, "Layer j", last, start[1], 110)
    offered = [test for test in PAIRS if test in tests] or ["replace"]
    left = _test(session.LEFT, "Left map", offered, 0)
    right = _test(session.RIGHT, "Right map", offered, 1)
    how = choice(session.SCORE, "Pair score", HOWS, "How both directions become one number.")
    return Pick(Pair(i, j), left, right, cast(How, how))


def _test(name: str, label: str, offered: list[str], start: int) -> str:
    if session.value(name) not in (None, *offered):
        session.assign(**{name: offered[min(start, len(offered) - 1)]})
    return str(
        st.selectbox(
            label, offered, index=min(start, len(offered) - 1), width=150, **session.linked(name)
        )
    )


def take_click(start: tuple[int, int]) -> None:
    """A clicked cell becomes the values of the fields, before they are drawn."""
    held = [session.value(name) for name in (session.ROW, session.COLUMN)]
    at = [first if value is None else value for value, first in zip(held, start, strict=True)]
    for name in SIDES:
        found = clicked(_key(name, *at))
        if found is not None:
            session.assign(**{session.ROW: found.i, session.COLUMN: found.j})


def clicked(key: str) -> Pair | None:
    """The pair that a click on a map chose."""
    state = st.session_state.get(key) or {}
    found = (state.get("selection", {}).get(CLICK) or [{}])[0]
    return Pair(int(found["i"]), int(found["j"])) if {"i", "j"} <= set(found) else None


def prompt() -> str:
    """With what a continuation begins; empty for the beginning of the text."""
    return str(
        st.text_input(
            "Prompt (empty: the beginning of the text)", "", width=520,
            **session.linked(session.PROMPT),
        )
    )  # fmt: skip


def continuation(asked: Layers, pick: Pick, test: str, beginning: str) -> Continue:
    """The question of what the model writes under one test of the chosen pair."""
    i, j = pick.pair.i, pick.pair.j
    if not test.startswith("replace"):
        i, j = min(i, j), max(i, j)
    return Continue(asked.model, test=test, i=i, j=j, prompt=beginning, device=asked.device)


def offered(maps: Maps) -> list[str]:
    """The tests of pairs that a map holds."""
    return [test for test in PAIRS if test in maps.pairs]
