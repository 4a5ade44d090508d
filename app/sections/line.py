"""Parts of the Barrier page about models on the line: what they write, merges, gauges."""

import streamlit as st

from app import merged, outputs, written
from app.charts import barrier_tables, barriers
from app.controls import barrier as controls
from app.controls import layers as shared
from app.controls.barrier import Line, Spot
from app.sections import checkpoints, growing
from app.sections.heads import listed, look, picture
from app.sentences import barriers as sentences
from app.sentences import lines, words
from app.settings import settings
from engine.questions import Barrier
from engine.questions.line import ABLATION
from engine.records import BarrierReport, Writing

SHOWN = ("heads", "orthogonal", "all")
"""Stages of the ablation that are shown relative to the raw line."""


def texts(question: Barrier, report: BarrierReport, line: Line, spot: Spot) -> list[str]:
    """What the model at t writes, beside both ends; the command line that does."""
    st.subheader("What does it write there?")
    if report.target != "next token":
        st.markdown("Nothing: these models predict no next token.")
        return []
    with st.container(horizontal=True, vertical_alignment="bottom"):
        prompt = shared.prompt()
        quarters = controls.several()
    asked = controls.written(question, spot, prompt, quarters=quarters)
    about = words.memory(line.a.card, line.b.card)
    title = f"Write on the line at t = {controls.name(spot.t)}"
    record = outputs.answered(asked, line.parameters, title, "Write there", about)
    if record is not None:
        _written(record, spot)
    outputs.explain(
        "The likeliest next token, again and again, from one beginning. A single text is an "
        "example, not a measurement.",
        "Broken words in the middle of a line whose barrier is called low.",
    )
    return [asked.command]


def _written(record: Writing, spot: Spot) -> None:
    """One text for each t, the chosen one marked."""
    for n, (at, text) in enumerate(zip(record.at, record.texts, strict=True)):
        here = abs(float(at) - spot.t) < 1e-3
        name = f"t = {controls.name(float(at))}"
        name = f"**{name}**" if here else name
        st.markdown(f"{name} · {outputs.plain(lines.written(record, n))}")
        st.code(f"{record.prompt}▸{text}", language=None, wrap_lines=True)


def merge(question: Barrier, spot: Spot) -> list[str]:
    """The model at t as a checkpoint, and its measured loss; the command line."""
    st.subheader("Keep the model at t")
    asked = controls.merge(question, spot)
    record = outputs.known(asked)
    if settings().hosted:
        st.caption("A hosted server writes no checkpoints: use the command line below.")
        title = f"Measure the merge at t = {controls.name(spot.t)}"
        record = outputs.measured(asked, title, "Measure it", "On the same text.")
    else:
        job = merged.Merging(asked)
        title = f"Write the merge at t = {controls.name(spot.t)}"
        about = f"To {job.out}, measured on the same text; A and B are not changed."
        place = outputs.measured(job, title, "Write the checkpoint", about, written.places())
        if place is not None:
            checkpoints.written(place, "`report.json`")
            record = outputs.known(asked)
    st.markdown(outputs.plain(lines.MERGE if record is None else lines.merged(record)))
    return [asked.command]


def ablation(question: Barrier, report: BarrierReport) -> list[str]:
    """Inside the heads nothing, orthogonal matrices, everything: relative to the raw line."""
    st.subheader("What do the matrices inside the heads add?")
    asked = controls.ablation(question)
    have = {curve.stage for curve in report.curves if curve.complete}
    held = report if set(ABLATION) <= have else _known(asked, "Ablation", "Measure the ablation")
    if held is not None and held.curves:
        picture(barriers.ratios(held, SHOWN, "none", look()), "ablation",
                "Barriers relative to the raw line")  # fmt: skip
        st.markdown(outputs.plain(sentences.ablation(held)))
    outputs.explain(
        "Residual coordinates, neurons and the order of the heads are found first (upper dot); "
        "then orthogonal matrices inside the heads; then every invertible one. 100 % is the raw "
        "line. Both barriers of a ratio, and of the difference, draw the same windows again.",
        "Intervals that hold 100 %: the step does nothing on this text. A difference whose "
        "interval holds 0 tells no order.",
    )
    return [named(asked, "ablation")]


def named(asked: Barrier, file: str) -> str:
    """The command line, with a file of its own for what it finds."""
    return asked.command.replace("--out barrier.json", f"--out {file}.json")


def _known(asked: Barrier, title: str, label: str) -> BarrierReport | None:
    """The answer, or what a running or stopped job has found of it."""
    about = f"{len(asked.stages)} stages on the same text."
    record = outputs.measured(asked, title, label, about, where=title)
    record = outputs.so_far(asked) if record is None else record
    growing.follow(asked, "curves", record)
    return record


def gauges(question: Barrier, spot: Spot) -> list[str]:
    """The same pair with B under a random gauge: permutations only against everything."""
    st.subheader("Permutations are not enough")
    if question.scope != "whole":
        st.markdown("Only for the whole model: a random gauge moves every tensor.")
        return []
    asked = controls.merging(question)
    held = _known(asked, "Gauge and merging", "Hide B under a random gauge and measure")
    if held is not None and held.curves:
        chart = barriers.lines(held, "loss", spot.t, look()).properties(height=240)
        picture(chart, "gauge", "Loss on the line after a random gauge, two alignments")
        listed(barrier_tables.stages(held, "loss", "orders"), height="content")
        st.markdown(outputs.plain(sentences.gauge(held)))
    outputs.explain(
        "B is first put under a random element of the whole group: the same function. Then it is "
        "aligned twice, with orders alone and with signs, factors, angles and matrices too.",
        "Both equally high: then the rest of the group would not matter, or neither found B.",
    )
    return [named(asked, "gauge")]
