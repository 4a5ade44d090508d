"""What the pages ask the user: the pair, the device, and the controls of each page."""

import contextlib
from pathlib import Path
from typing import Literal

import streamlit as st

from app import opening, outputs, session, written
from app.devices import devices
from app.settings import settings
from engine.errors import Refused
from engine.questions import Inspect
from engine.records import ModelCard
from engine.sources import SMOLLM2, Roots, demos, smollm2

Letter = Literal["A", "B"]
DEMO_PAIRS = {
    "twin": ("demo:base", "demo:twin"),
    "another seed": ("demo:base", "demo:seed-1"),
    "two fine-tunes": ("demo:tune-a-step-0160", "demo:tune-b-step-0160"),
    "earlier in training": ("demo:base", "demo:base-step-1100"),
    "first attention retrained": ("demo:base", "demo:scope-first-attention-1"),
}
"""Demo models that are offered as pairs: no earlier steps, of numbered ones the first."""
SHOWN = 24
"""Characters of a name that its box in the sidebar has room for."""


def roots() -> Roots:
    """What whoever reaches the page may open."""
    chosen = settings()
    return Roots(chosen.roots, chosen.hosted)


def choices() -> list[str]:
    """Every model on offer: the demo models, SmolLM2 where installed, folders, the pair in use."""
    found = [f"demo:{name}" for name in demos()] or ["demo:base", "demo:twin"]
    found += [SMOLLM2] if smollm2() is not None else []
    found += folders()
    in_use = (*starting_pair(), *pair())
    return list(dict.fromkeys([*found, *(spec for spec in in_use if spec)]))


def folders() -> list[str]:
    """The model folders under the allowed ones, as they may be named, and what pages wrote."""
    found = [named(folder) for folder in roots().models()]
    return found if settings().hosted else [*found, *(path.name for path in written.folders())]


def admitted(spec: str) -> str:
    """The spec under which an allowed model is opened: see `Roots.admit`, and what pages wrote.

    Errors: Refused for any other.
    """
    made = None if settings().hosted else written.found(spec)
    return roots().admit(spec) if made is None else str(made)


def named(folder: Path) -> str:
    """A folder relative to the root that finds it again, else in full."""
    for root in roots().folders:
        if folder.is_relative_to(root.resolve()) and folder != root.resolve():
            short = str(folder.relative_to(root.resolve()))
            with contextlib.suppress(Refused):
                if roots().admit(short) == str(folder):
                    return short
    return str(folder)


def starting_pair() -> tuple[str, str]:
    """The pair that whoever started the program chose, else the demo twins."""
    chosen = settings()
    given = (chosen.a or "demo:base", chosen.b or "demo:twin")
    a, b = (named(Path(spec)) if Path(spec).is_absolute() else spec for spec in given)
    return a, b


def label(spec: str) -> str:
    """A model in few words."""
    return "SmolLM2-135M" if spec == SMOLLM2 else spec


def choose_pair() -> None:
    """The pair in use, in the sidebar of every page.

    No choice stands there at first, so that the address names both: it leaves out what is one, and
    a link without a name would mean another model where the program was started with another pair.
    """
    offered, names = choices(), (session.A, session.B)
    session.keep(dict(zip(names, starting_pair(), strict=True)))
    for name in names:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{name.upper()}**", width="content")
            st.selectbox(
                name.upper(), offered, index=None, required=True, label_visibility="collapsed",
                **session.linked(name),
            )  # fmt: skip
        if len(spec := session.value(name) or "") > SHOWN:
            st.caption(f"`{spec}`")


def pair() -> tuple[str, str]:
    """The two models in use, as the address names them; else those of the start."""
    a, b = starting_pair()
    return session.value(session.A) or a, session.value(session.B) or b


def located(spec: str) -> str:
    """What the engine is given for an allowed and opened model.

    Errors: Refused for one that is not allowed, or not opened yet.
    """
    allowed = admitted(spec)
    if not opening.slow(allowed):
        return allowed
    folder = opening.present(allowed)
    if folder is None:
        raise Refused(f"{label(spec)} has not been opened yet: open it on the Models page.")
    # What a hub holds may change; a file is found again by its content.
    return str(folder) if allowed.startswith("hf:") else allowed


def open_slow(spec: str, letter: Letter = "A") -> bool:
    """Whether the model still has to be opened; if so, the button for it or its progress.

    `letter` tells the two buttons of a page apart, which two names of one file may make.
    """
    if not unopened(spec):
        return False
    allowed = admitted(spec)
    title, asked = f"Open {label(spec)}", opening.Opening(allowed)
    where, about = "" if letter == "A" else letter, opening.cost(allowed)
    place = outputs.measured(asked, title, title, about, opening.places(), where=where)
    return place is None


def unopened(spec: str) -> bool:
    """Whether a model takes time to open, and was not opened yet. Errors: Refused."""
    allowed = admitted(spec)
    return opening.slow(allowed) and opening.present(allowed) is None


def same() -> bool:
    """Whether one model stands on both sides: it is opened, or refused, once."""
    a, b = pair()
    return a == b


def card(path: str) -> ModelCard:
    """The card of a located model, from the store or from its headers. Errors: Refused."""
    question = Inspect(path)
    record = outputs.known(question)
    if record is None:
        with st.spinner("Reading the headers"):
            record = question.answer()
        with contextlib.suppress(Refused):  # a card that cannot be kept is read again next time
            outputs.results().put(question.key, record)
    return record


def change(letter: Letter) -> None:
    """Choose another model for A or B, by kind."""
    kinds = ["Demo", "SmolLM2-135M", "Folder", "Hub"]
    if smollm2() is None:
        kinds.remove("SmolLM2-135M")
    if settings().hosted:
        kinds = [kind for kind in kinds if kind not in {"Folder", "Hub"}]
    with st.popover("Change", icon=":material/swap_horiz:", key=session.local("change", letter)):
        kind = st.radio("Where from", kinds, horizontal=True, key=session.local("kind", letter))
        spec = _named(kind, letter)
        st.button(
            f"Use as {letter}",
            on_click=session.assign,
            kwargs={letter.lower(): spec},
            disabled=not spec,
            key=session.local("use", letter),
        )


def _named(kind: str, letter: Letter) -> str:
    """The model that the fields of one kind name."""
    key = session.local("name", kind, letter)
    if kind == "Demo":
        name = st.selectbox("Demo model", demos(), key=key)
        return f"demo:{name}" if name else ""
    if kind == "Folder":
        st.caption(f"Allowed folders: {outputs.plain(roots().words)}.")
        return st.selectbox("Model folder", folders(), key=key) or ""
    if kind == "Hub":
        name = st.text_input("Hub id", placeholder="owner/name", key=key).strip()
        return f"hf:{name}" if name else ""
    return SMOLLM2


def demo_pairs() -> None:
    """The demo pairs by what they show, the one in use marked: buttons, which hold no state."""
    known = {f"demo:{name}" for name in demos()}
    offered = {title: both for title, both in DEMO_PAIRS.items() if known.issuperset(both)}
    if offered:
        st.caption("Demo pairs")
    with st.container(horizontal=True):
        for title, (a, b) in offered.items():
            st.button(
                title,
                type="primary" if (a, b) == pair() else "secondary",
                on_click=session.assign,
                kwargs={session.A: a, session.B: b},
                key=session.local("demo-pair", title),
            )


def choose_device() -> None:
    """The device for new jobs, in the sidebar."""
    offered = devices()
    start = settings().device
    offered = offered if start in offered else (*offered, start)
    st.selectbox(
        "Device",
        offered,
        index=offered.index(start),
        help="Accelerators are listed once a job has run. Every result names its device.",
        **session.private(session.DEVICE),
    )


def chosen_device() -> str:
    """The device for new jobs."""
    return session.value(session.DEVICE) or settings().device
