"""The only place that names state keys.

What a link carries is bound to the address; the rest is private to a session.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import streamlit as st

# Carried by a link (the widget's key is the name in the address).
A, B = "a", "b"
DEPTH, METHOD, TOKENS, TRUTH = "depth", "method", "tokens", "truth"
MATRIX, ORDER, COORDINATE = "matrix", "order", "coordinate"
ROWS, COLUMNS = "rows", "columns"
OF, WORD = "of", "word"
PRESET, LAYER, DRAW, SEVERITY = "preset", "layer", "draw", "severity"
ANGLE, ELEMENT, SEED, TEXT = "angle", "element", "seed", "text"
HEAD, OTHER, TERM, AGAINST = "head", "other", "term", "against"
COST, STAGE2, USING = "cost", "stage2", "using"
FREQUENCY, TURN, MODULUS = "frequency", "turn", "modulus"
SOURCE, TESTS, REACH, RANGE = "source", "tests", "reach", "range"
AGGREGATE, COUNT, LENGTH, PROMPT = "aggregate", "count", "length", "prompt"
LEFT, RIGHT, SCORE, ROW, COLUMN = "left", "right", "score", "i", "j"
BUDGET, LARGEST, BY, MINE = "n", "largest", "by", "mine"
SERIES, MODELS, SCALE, BESIDE = "series", "models", "gap", "beside"
SIGNS, ONLY, SWEEPS, RESTARTS = "signs", "only", "sweeps", "restarts"
MIX, NEURONS, REFINE = "mix", "neurons", "refine"
SCOPE, SPAN, STAGES, STAGE = "scope", "layers", "stages", "stage"
T, WHAT, POINTS, ADAPTIVE = "t", "what", "points", "adaptive"
MIDPOINT, SEVERAL, OWN, MATCHED = "midpoint", "several", "own", "matched"
READ, WINDOW, SWEPT, REFINED = "read", "window", "swept", "refined"
EXPERT_COST = "expert-cost"
EXPERT, NEURON, BESIDE_IT = "expert", "neuron", "beside-it"
UP, ACROSS = "up", "across"
JOB = "job"

# Private to a session.
DEVICE = "device"
STARTED = "started"
HELD = "held"
REPLACED = "replaced"
PAGE = "page"
TEXTS = "texts"


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


def within(name: str, offered: Sequence[Any], default: Any = None) -> None:
    """Before a linked choice is drawn: what is not on offer gives way to the default or the first.

    What a link asked for in vain is said on the page, see `settle`.
    """
    if offered and value(name) is not None and value(name) not in offered:
        assign(**{name: offered[0] if default is None else default})


def translate(name: str, new: Any) -> None:
    """Before a linked choice is drawn: another word of the address for one that is on offer."""
    assign(**{name: new})
    if name in st.session_state.get(HELD, {}):
        st.session_state[HELD] = {**st.session_state[HELD], name: [str(new)]}


def keep(defaults: Mapping[str, str]) -> None:
    """Before linked widgets of the frame are drawn: their values, where the address says none.

    The browser takes to the next page only what its widgets hold. A page that is left before they
    are there loses the address, and the next one would draw no choice and report it as one. At
    first no widget writes the address yet: all names at once are one step of its history.
    """
    lost = {
        name: st.session_state.get(name) or default
        for name, default in defaults.items()
        if not st.query_params.get(name) or not value(name)
    }
    if new := {name: held for name, held in lost.items() if name not in st.session_state}:
        st.query_params.update(new)
    assign(**lost)


def texts() -> list[str]:
    """Names of the texts that this session brought, the latest first."""
    return st.session_state.setdefault(TEXTS, [])


def bring(name: str) -> None:
    """Remember a text that this session brought."""
    st.session_state[TEXTS] = list(dict.fromkeys([name, *texts()]))


def hold() -> None:
    """First in every run: the address keeps what no widget has taken yet.

    A link may speak of controls that are drawn only once a model is open or a result is there. The
    browser takes to another page only what drawn widgets hold, and a widget reads the address as it
    was when the run began: what was lost is put back, and the run begins anew. What a widget has
    taken once is in the session.
    """
    settle()
    said = {name: st.query_params.get_all(name) for name in st.query_params if name != JOB}
    held = {
        name: values
        for name, values in {**st.session_state.get(HELD, {}), **said}.items()
        if name not in st.session_state
    }
    st.session_state[HELD] = held
    lost = {name: values for name, values in held.items() if name not in said}
    if lost:
        st.query_params.update(lost)
        st.rerun()


def arrive(page: str) -> None:
    """Before a page is drawn: what was replaced on another one is no news here."""
    if st.session_state.get(PAGE) != page:
        st.session_state[REPLACED] = {}
    st.session_state[PAGE] = page


def settle() -> None:
    """After a page was drawn: which values of the address a control has replaced by another.

    They are told until the control is moved: the address itself no longer shows what it asked for.
    """
    held, now = st.session_state.get(HELD, {}), st.session_state
    new = {n: (x, now[n]) for n, x in held.items() if n in now and not _says(x, now[n])}
    old = {n: pair for n, pair in replaced().items() if now.get(n, pair[1]) == pair[1]}
    st.session_state[REPLACED] = {**old, **new}
    st.session_state[HELD] = {n: x for n, x in held.items() if n not in now}


def replaced() -> dict[str, tuple[list[str], Any]]:
    """By the name in the address: what a link asked for, and what a control took instead."""
    return st.session_state.get(REPLACED, {})


def _says(said: Sequence[str], found: Any) -> bool:
    """Whether the words of an address mean this value."""
    several = isinstance(found, list | tuple | set)
    values = ["" if x is None else x for x in (found if several else [found])]
    return sorted(map(_word, said)) == sorted(map(_word, values))


def _word(said: Any) -> str:
    """A value as it is compared: numbers by their size, words without capitals."""
    try:
        return str(float(said)) if not isinstance(said, bool) else str(said).lower()
    except (TypeError, ValueError):
        return str(said).lower()


def started() -> list[str]:
    """Keys of the jobs that this session started or joined, the oldest first."""
    return st.session_state.setdefault(STARTED, [])


def follow(key: str, job: str) -> None:
    """Remember a job in the session and in the address, so that a reload finds it.

    A page change takes along only what widgets hold: the frame follows a running job in each run.
    """
    if key not in started():
        started().append(key)
    if st.query_params.get(JOB) != job:  # every change is a step of the browser's history
        st.query_params[JOB] = job


def forget(keys: Iterable[str]) -> None:
    """Stop following jobs that are over."""
    gone = set(keys)
    st.session_state[STARTED] = [key for key in started() if key not in gone]
    if any(key.startswith(st.query_params.get(JOB, "?")) for key in gone):
        del st.query_params[JOB]
