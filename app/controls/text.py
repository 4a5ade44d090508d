"""Which text a page measures on: the program's own, or one that the user brings."""

import os

import streamlit as st

from app import outputs, session, texts
from app.sentences.numbers import count, size
from app.settings import settings
from engine import datasets
from engine.errors import Refused
from engine.hub import is_offline
from engine.texts import DEFAULT

PASTED, UPLOADED, DATASET, SAID, WAY = (
    session.local("own", name) for name in ("pasted", "upload", "dataset", "said", "way")
)
WAYS = ("paste", "upload", "data set of the hub")


def text() -> str:
    """What a question reads: "default", or the name of a kept text."""
    offered = [DEFAULT, *_offered()]
    session.within(session.OWN, offered)
    found = st.selectbox(
        "Text", offered, width=130,
        help="The demo models' own text or the bundled English one; or a text of yours.",
        **session.linked(session.OWN),
    )  # fmt: skip
    _bring()
    return str(found or DEFAULT)


def file(name: str) -> str:
    """What a question is given for a text: "default", or the file of a kept one."""
    return name if name == DEFAULT else str(texts.located(name))


def amount(model: str, name: str, tokens: int, length: int) -> tuple[int, int] | None:
    """Tokens and length of a window that a text gives; None while they are counted.

    Errors: Refused for a text that is too short.
    """
    if name == DEFAULT:
        return tokens, length
    asked = texts.Counting(model, name, max(tokens, length))
    held = outputs.answered(
        asked, 0, "Count the tokens of the text", "Count its tokens", keeps=texts.names()
    )
    if held is None:
        return None
    found = texts.fitting(held, tokens, length)
    if found[0] < tokens:
        windows = count(found[0] // found[1], "window")
        st.caption(
            f"The text has {held:,} tokens: {found[0]:,} are read, in {windows}.", width="content"
        )
    return found


def shown(command: str) -> str:
    """A command line without the folder of a hosted server."""
    return command.replace(f"{texts.folder()}{os.sep}", "") if settings().hosted else command


def _offered() -> list[str]:
    """The texts that may be named: on a hosted server those of this session alone."""
    mine = [name for name in session.texts() if name in texts.kept()]
    return mine if settings().hosted else list(dict.fromkeys([*mine, *texts.kept()]))


def _bring() -> None:
    """Paste, upload, or download a text."""
    ways = WAYS[:2] if settings().hosted else WAYS
    with st.popover("Own text", icon=":material/upload_file:", key="own-text"):
        way = st.segmented_control("From", ways, default=ways[0], required=True, key=WAY)
        if way == "upload":
            _upload()
        elif way == "paste":
            _paste()
        else:
            _fetch()
        said = st.session_state.get(SAID)
        if said:
            st.text(said)


def _paste() -> None:
    st.text_area("The text", height=160, max_chars=1_000_000, key=PASTED)
    st.button(
        "Use this text",
        on_click=_keep_pasted,
        icon=":material/check:",
        key=session.local("own", "paste"),
    )


def _upload() -> None:
    st.file_uploader(
        "A UTF-8 text, or JSON lines with a field named text",
        type=["txt", "jsonl", "ndjson"],
        max_upload_size=texts.LARGEST // 1_000_000,
        key=UPLOADED,
    )
    st.button(
        "Use this file",
        on_click=_keep_uploaded,
        icon=":material/check:",
        key=session.local("own", "file"),
    )


def _fetch() -> None:
    if is_offline():
        st.text(datasets.OFF)
        return
    name = st.text_input("Data set", placeholder="owner/name", key=DATASET).strip()
    st.caption(f"Its first .txt or .jsonl file of at most {size(texts.LARGEST)} is taken.")
    if not name:
        return
    asked = texts.Fetching(name)
    found = outputs.measured(asked, f"Text of {name}", "Download it", keeps=texts.names())
    if found is not None:
        st.text(found.said)
        st.button(
            "Use it",
            on_click=_use,
            args=(found,),
            icon=":material/check:",
            key=session.local("own", "use"),
        )


def _keep_pasted() -> None:
    _keep(str(st.session_state.get(PASTED) or "").encode(), "pasted")


def _keep_uploaded() -> None:
    file = st.session_state.get(UPLOADED)
    if file is None:
        st.session_state[SAID] = "Choose a file first."
        return
    _keep(file.getvalue(), file.name)


def _keep(data: bytes, name: str) -> None:
    try:
        _use(texts.keep(data, name))
    except Refused as refusal:
        st.session_state[SAID] = str(refusal)


def _use(found: texts.Kept) -> None:
    """From now on the page reads this text."""
    session.bring(found.name)
    session.assign(**{session.OWN: found.name})
    st.session_state[SAID] = f"In use: {found.name}, {found.said}."
