"""What a running job has found so far, on pages that draw it as a whole."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from app import outputs
from engine.questions import Question

Parts = str | Callable[[Any], int]
"""What is counted of a record: the length of a field, or a number."""


def runs(question: Question) -> bool:
    """Whether the question's job waits or works."""
    job = outputs.registry().look(question.key)
    return job is not None and not job.over


def follow(question: Question, parts: Parts, record: Any | None) -> None:
    """While the question's job runs, run the page anew whenever its record has one more part."""
    if runs(question):
        _look(question, parts, _count(record, parts))


@st.fragment(run_every=outputs.EVERY)
def _look(question: Question, parts: Parts, seen: int) -> None:
    """It only reads."""
    if _count(outputs.so_far(question), parts) > seen:
        st.rerun()


def _count(record: Any | None, parts: Parts) -> int:
    if record is None:
        return -1
    return len(getattr(record, parts)) if isinstance(parts, str) else parts(record)
