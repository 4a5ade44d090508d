"""What a running job has found so far, on pages that draw it as a whole."""

from typing import Any

import streamlit as st

from app import outputs
from engine.questions import Question


def follow(question: Question, parts: str, record: Any | None) -> None:
    """While the question's job runs, run the page anew whenever its record has one more part."""
    job = outputs.registry().look(question.key)
    if job is not None and not job.over:
        _look(question, parts, _count(record, parts))


@st.fragment(run_every=outputs.EVERY)
def _look(question: Question, parts: str, seen: int) -> None:
    """It only reads."""
    if _count(outputs.so_far(question), parts) > seen:
        st.rerun()


def _count(record: Any | None, parts: str) -> int:
    return -1 if record is None else len(getattr(record, parts))
