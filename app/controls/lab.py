"""The dials of the Lab: the experiment, where it acts, how an element is drawn, how far."""

import streamlit as st

from app import session
from app.controls.model import Chosen
from app.inputs import chosen_device
from app.settings import ROOT
from engine.lab.offers import Preset, acts_on
from engine.lab.presets import offered
from engine.questions import Lab
from engine.records import ModelCard

ALL, DEFAULT = "all", "default"
TEXTS = ROOT / "assets" / "text"
OWN = {
    "H(": ("random", "angle", "frequency"),
    "GL": ("matrix", "angle"),
    "{±1}": ("random", "sign"),
    "(R∖": ("random", "sign", "factor"),
    "(R>": ("random", "factor"),
    "S_n × {±1}": ("random", "transposition"),
    "S_n ⋉ (R∖": ("random", "transposition", "sign", "factor"),
    "S_n ⋉ (R>": ("random", "transposition", "factor"),
    "B_n": ("random", "transposition", "sign"),
    "S_n": ("random", "transposition"),
}
"""How elements of a coordinate's own group can be drawn, by how its notation begins."""

ANGLES = {"angle", "frequency"}
GRAMMAR = {
    "order": "`(0 3 5)`: 0 goes to place 3, 3 to 5, 5 to 0",
    "sign": "`-7`: the sign of 7",
    "factor": "`2*1.5`: 2 times 1.5",
    "frequency": "`0@90`: frequency 0 turned by 90°, `0@90*1.2` stretched too",
    "plane": "`0~1@30`: the plane of 0 and 1 turned by 30°",
    "mean": "`0=1`: both become their mean",
}
"""What may be typed, by what the draws of an experiment allow."""


def grammar(ways: tuple[str, ...]) -> str:
    """The items that an element of this experiment may have, in one line."""
    mixed = {"matrix", "rotation"} & set(ways)
    allowed = {
        "order": "transposition" in ways or mixed,
        "sign": "sign" in ways or mixed,
        "factor": {"factor", "matrix", "cut", "frequency"} & set(ways),
        "frequency": "frequency" in ways,
        "plane": mixed,
        "mean": "mean" in ways,
    }
    items = " · ".join(text for kind, text in GRAMMAR.items() if allowed[kind])
    return (
        f"To type: {items}. Several act from left to right and replace the draw." if items else ""
    )


def preset(card: ModelCard) -> Preset:
    """The experiment, in the order of the story."""
    here = {row.title: row for row in offered(card)}
    titles = {row.key: title for title, row in here.items()}
    if (named := session.value(session.PRESET)) in titles:  # a link may say the short word
        session.translate(session.PRESET, titles[named])
    session.within(session.PRESET, list(here))
    title = st.selectbox("Experiment", list(here), width=430, **session.linked(session.PRESET))
    return here[title]


def options(card: ModelCard, chosen: Preset) -> dict[str, str]:
    """On what an experiment may act, title → word, the engine's own choice first.

    Empty where the experiment has no choice.
    """
    titles = {row.name: row.title for row in (*card.coordinates, *card.blind)}
    words = acts_on(card, chosen)
    return {titles[word]: word for word in words} if len(words) > 1 else {}


def draws(card: ModelCard, chosen: Preset, word: str) -> tuple[str, ...]:
    """How elements may be drawn, the usual way first."""
    if chosen.draws:
        return chosen.draws
    first = next(iter(options(card, chosen).values()), "")
    row = next((row for row in card.coordinates if row.name == (word or first)), None)
    begins = next((k for k in OWN if row is not None and row.group.startswith(k)), "S_n")
    return OWN[begins]


def question(model: Chosen, chosen: Preset) -> Lab:
    """The experiment as the dials stand; what they leave alone keeps the engine's default."""
    card = model.card
    with st.container(horizontal=True, vertical_alignment="bottom", key="dials"):
        word = _word(card, chosen)
        layer = _layer(card)
        severity = st.slider(
            "Severity", 0.0, 1.0, 1.0, 0.05, width=160,
            help="0 changes nothing, 1 is the whole draw.",
            **session.linked(session.SEVERITY),
        )  # fmt: skip
        ways = draws(card, chosen, word)
        way = _way(ways)
        angle = _angle() if way in ANGLES else 90.0
    with st.container(horizontal=True, vertical_alignment="bottom", key="draws"):
        element = st.text_input(
            "Or type an element", placeholder="left to the draw", width=260,
            help="Replaces the draw, on every copy of the coordinate.",
            **session.linked(session.ELEMENT),
        )  # fmt: skip
        seed = int(
            st.number_input("Seed", 0, 2**31, 0, 1, width=130, **session.linked(session.SEED))
        )
        st.button(
            "New draw", icon=":material/casino:", key=session.local("new-draw"),
            on_click=session.assign, kwargs={session.SEED: seed + 1},
        )  # fmt: skip
        text = _text(card)
    st.caption(grammar(ways))
    return Lab(
        model.path,
        preset=chosen.key,
        coordinate=word,
        layer=layer,
        draw="" if way == ways[0] or element.strip() else way,
        severity=severity,
        angle=angle,
        element=element.strip(),
        seed=seed,
        text=text,
        device=chosen_device(),
    )


def _text(card: ModelCard) -> str:
    """What the model is run on: its own text, or one of the bundled ones."""
    if all(row.name != "tok" for row in card.coordinates):
        return DEFAULT
    here = [DEFAULT, *sorted(path.stem for path in TEXTS.glob("*.txt"))]
    session.within(session.TEXT, here)
    found = st.selectbox(
        "Text", here, width=150,
        help="Default: a demo model's own kind of text, else the bundled one for calibration.",
        **session.linked(session.TEXT),
    )  # fmt: skip
    return DEFAULT if found == DEFAULT else str(TEXTS / f"{found}.txt")


def _word(card: ModelCard, chosen: Preset) -> str:
    """The coordinate; empty for the engine's first choice."""
    here = options(card, chosen)
    if not here:
        return ""
    session.within(session.WORD, list(here))
    title = st.selectbox("Coordinate", list(here), width=230, **session.linked(session.WORD))
    return "" if title == next(iter(here)) else here[title]


def _layer(card: ModelCard) -> int:
    """One layer, or -1 for all of them."""
    here = [ALL, *(str(layer) for layer in range(card.layers))]
    session.within(session.LAYER, here[1:] + here[:1])
    found = st.select_slider(
        "Layer", here, value="0", width=180,
        help="Where a coordinate of one layer is changed. A coordinate of the whole model changes "
        "everywhere; the layer then says where to look inside.",
        **session.linked(session.LAYER),
    )  # fmt: skip
    return -1 if found == ALL else int(found)


def _way(here: tuple[str, ...]) -> str:
    """How the element is drawn."""
    session.within(session.DRAW, here)
    found = st.segmented_control(
        "Draw", here, required=True, default=here[0], **session.linked(session.DRAW)
    )
    return str(found or here[0])


def _angle() -> float:
    """Degrees of a turn."""
    return float(
        st.slider("Angle (degrees)", -180, 180, 90, 5, width=200, **session.linked(session.ANGLE))
    )
