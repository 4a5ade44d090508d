"""The only place that names state keys.

What a link carries is bound to the address; the rest is private to a session.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import streamlit as st

# Carried by a link (the widget's key is the name in the address).
A, B = "a", "b"
DEPTH, METHOD, TOKENS, TRUTH = "depth", "method", "tokens", "truth"
MATRIX, ORDER, COORDINATE = "matrix", "order", "coordinate"
ROWS, COLUMNS = "rows", "columns"
JOB = "job"

# Private to a session.
DEVICE = "device"
STARTED = "started"


class Linked(TypedDict):
    """Arguments of a widget whose value a link carries."""

    key: str
    bind: Literal["query-params"]


class Private(TypedDict):
    """Arguments of a widget whose value a session keeps across pages."""

    key: str
    persist_state: Literal["session"]


def linked(name: str) -> Linked:
    """The widget's value lives in the address under `name`."""
    return {"key": name, "bind": "query-params"}


def private(name: str) -> Private:
    """The widget's value lives as long as the session."""
    return {"key": name, "persist_state": "session"}


def local(*parts: str | int) -> str:
    """Key of a widget that only one place reads."""
    return ":".join(str(part) for part in parts)


def value(name: str) -> Any:
    """What the session holds under a key, or what the address says before a widget was drawn."""
    return st.session_state.get(name, st.query_params.get(name))


def assign(**values: Any) -> None:
    """Set values of widgets; for callbacks and before the widgets are drawn."""
    for name, new in values.items():
        st.session_state[name] = new


def started() -> list[str]:
    """Keys of the jobs that this session started or joined, the oldest first."""
    return st.session_state.setdefault(STARTED, [])


def follow(key: str, job: str) -> None:
    """Remember a job in the session and in the address, so that a reload finds it."""
    if key not in started():
        started().append(key)
    st.query_params[JOB] = job


def forget(keys: Iterable[str]) -> None:
    """Stop following jobs that are over."""
    gone = set(keys)
    st.session_state[STARTED] = [key for key in started() if key not in gone]
    if any(key.startswith(st.query_params.get(JOB, "?")) for key in gone):
        del st.query_params[JOB]
