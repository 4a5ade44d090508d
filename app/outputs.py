"""What every page shows in the same way: verdicts, jobs, explanations, downloads, command lines."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import streamlit as st

from app import session
from app.jobs import Asked, Job, Jobs, Keeps, unfinished
from app.sentences import links
from app.sentences.verdicts import Verdict
from app.sentences.words import seconds
from engine import store
from engine.exports.documents import made, written
from engine.questions import Question
from engine.store import Store

EVERY = 1.0
"""Seconds between two looks at a running job."""

SMALL, PATIENCE = 10_000_000, 20.0
"""Parameters of a model that is run without being asked; seconds that a page waits for it."""


@cache
def results() -> Store:
    """The results of this process: the user's own and those that come with the program."""
    return store.results()


@cache
def registry() -> Jobs:
    """The jobs of this process."""
    return Jobs()


def plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$:])", r"\\\1", text)


def say(verdict: Verdict, key: str) -> None:
    """A verdict: headline, reserved word with its number, sentences."""
    with st.container(border=True, key=key):
        if verdict.basis:
            st.caption(plain(verdict.basis))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{plain(verdict.headline)}**", width="content")
            if verdict.badge:
                st.badge(verdict.badge, color=verdict.tone, help=verdict.about or None)
        st.markdown(plain(verdict.text))
        if verdict.more:
            with st.expander("More, and what this does not show"):
                st.markdown(plain(verdict.more))


def refuse(message: str) -> None:
    """The one line of a refusal, exactly as the command line prints it."""
    with st.container(border=True):
        st.badge("refused", color="red", icon=":material/block:")
        st.text(message)


def replaced() -> None:
    """One line for each value of the address that is not on offer."""
    session.settle()
    for name, (said, now) in session.replaced().items():
        st.warning(plain(links.replaced(name, said, now)), icon=":material/link_off:")


def explain(what: str, bad: str) -> None:
    """Two lines under a picture."""
    st.caption(f"**What am I looking at?** {what}  \n**What would bad look like?** {bad}")


def formula(text: str, source: str, of: str = "") -> None:
    """The mathematics behind the page, or of one part of it, with where it comes from."""
    title = f"The formula of {of} and its source" if of else "The formula and its source"
    with st.expander(title, icon=":material/function:"):
        st.markdown(text)
        st.caption(source)


@dataclass(frozen=True)
class Download:
    """A file that a page offers; `make` runs when it is asked for."""

    label: str
    name: str
    mime: str
    make: Callable[[], bytes | str]


def document(
    label: str, name: str, body: Callable[[], Any], asked: Question | None = None
) -> Download:
    """JSON values as a file, under `question` what made them; None: no question did."""

    def make() -> str:
        return written(body() if asked is None else made(body(), asked))

    return Download(label, name, "application/json", make)


def take_away(files: list[Download], commands: list[str], note: str = "") -> None:
    """Downloads, and the command lines that reproduce what the page shows."""
    st.subheader("Take away")
    with st.container(horizontal=True):
        for file in files:
            st.download_button(
                file.label,
                file.make,
                file_name=file.name,
                mime=file.mime,
                on_click="ignore",
                icon=":material/download:",
                key=session.local("download", file.name),
            )
    st.caption(f"{note} The same results without a browser:".strip())
    st.code("\n".join(commands), language="bash", wrap_lines=True)


def known(question: Question) -> Any | None:
    """The stored answer, if there is one."""
    return results().get(question.key)


def so_far(question: Question) -> Any | None:
    """The stored answer, else what work that goes on or was stopped has found of it."""
    record = known(question)
    return results().get(unfinished(question.key)) if record is None else record


def measured(
    question: Asked,
    title: str,
    label: str,
    about: str = "",
    keeps: Keeps | None = None,
    *,
    where: str = "",
    partly: bool = True,
) -> Any | None:
    """The stored answer; else the job that makes it, or a button that starts one.

    `where` tells two places of a page apart that may ask the same; `partly`: the page shows what a
    stopped job has found.
    """
    keeps = keeps or results()
    record = keeps.get(question.key)
    if record is not None:
        return record
    job = registry().look(question.key)
    if job is not None and not job.over:
        if job.key not in session.started():
            session.follow(job.key, job.id)
        _watch(job.key, where)
        return None
    _explain_absence(job, partly and keeps.get(unfinished(question.key)) is not None)
    if job is not None and job.lasting:
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        again = job is not None and job.state in {"failed", "cancelled"}
        st.button(
            f"{label} again" if again else label,
            key=session.local("start", *filter(None, (where,)), question.key),
            on_click=start,
            args=(question, keeps, title),
            icon=":material/play_arrow:",
        )
        if about:
            st.caption(about, width="content")
    return None


def barred(question: Question) -> bool:
    """Whether a question was refused, and would be again."""
    job = registry().look(question.key)
    return job is not None and job.lasting


def answered(
    question: Asked,
    parameters: int,
    title: str,
    label: str,
    about: str = "",
    keeps: Keeps | None = None,
) -> Any | None:
    """The answer of a small model at once, as a dial is turned; of a large one by a button.

    Both are jobs: they take turns on their device and end in the same store.
    """
    keeps = keeps or results()
    new = keeps.get(question.key) is None and registry().look(question.key) is None
    if parameters <= SMALL and new:
        with st.spinner(f"{title} …"):
            _wait(registry().submit(question, keeps, title, question.device).key)
    return measured(question, title, label, about, keeps)


def _wait(key: str) -> None:
    """Until a job is over, or patience ends and its progress is shown instead."""
    for _ in range(int(PATIENCE / 0.02)):
        job = registry().look(key)
        if job is None or job.over:
            return
        time.sleep(0.02)


def start(question: Asked, keeps: Keeps, title: str) -> None:
    """Queue a question and follow its job; for callbacks."""
    job = registry().submit(question, keeps, title, question.device)
    session.follow(job.key, job.id)


def _explain_absence(last: Job | None, shown: bool) -> None:
    """Why the last try gave no answer; `shown`: a part of it is on the page."""
    if last is not None and last.state == "failed":
        refuse(last.message)
    if last is not None and last.state == "cancelled":
        part = "Stopped; what was measured so far is shown."
        st.caption(part if shown else "Cancelled; nothing was changed.")


@st.fragment(run_every=EVERY)
def _watch(key: str, where: str = "") -> None:
    """A running job in the page; it only reads, and reruns the page when the job is over."""
    job = registry().look(key)
    if job is None or job.over:
        st.rerun()
    with st.container(
        border=True,
        horizontal=True,
        vertical_alignment="center",
        key=session.local("job", where, job.id),
    ):
        _bar(job)
        _cancel(job, f"page{where}")


def _bar(job: Job) -> None:
    left = job.left(registry().now())
    state = "stopping …" if job.state == "cancelling" else job.step or "starting …"
    if job.state == "queued":
        state = f"waiting: place {job.place + 1} in the queue of {job.lane}"
    rest = "" if left is None else f" · about {seconds(left)} left"
    st.progress(job.share, text=f"{plain(job.title)} · {plain(state)}{rest}")


def _cancel(job: Job, where: str) -> None:
    st.button(
        "Cancel",
        key=session.local("cancel", where, job.id),
        on_click=registry().cancel,
        args=(job.key,),
        disabled=job.state == "cancelling",
        icon=":material/stop:",
    )


def sidebar_jobs() -> None:
    """The jobs that this session follows, and the one its link names."""
    linked = registry().look(st.query_params.get(session.JOB, ""))
    running = [linked, *reversed(_followed())]
    named = next((job for job in running if job is not None and not job.over), None)
    if named is not None:
        session.follow(named.key, named.id)
        _watch_all()
    else:
        session.forget([job.key for job in _followed()])


def _followed() -> list[Job]:
    found = (registry().look(key) for key in session.started())
    return [job for job in found if job is not None]


@st.fragment(run_every=EVERY)
def _watch_all() -> None:
    """The jobs of this session in the sidebar; it only reads."""
    active = [job for job in _followed() if not job.over]
    if not active:
        st.rerun()
    st.markdown("**Running**")
    for job in active:
        _bar(job)
        _cancel(job, "sidebar")
