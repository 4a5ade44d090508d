"""Parts of the Barrier page: the curves, t, the stages in numbers, what to take away."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from app import outputs
from app.charts import barrier_tables, barriers, drawing
from app.charts.barriers import What
from app.charts.theme import LIGHT
from app.controls import barrier as controls
from app.controls import text
from app.outputs import Download
from app.sections import growing
from app.sections.heads import listed, look, picture
from app.sentences import barriers as sentences
from engine.exports import line as exports
from engine.questions import Barrier
from engine.records import BarrierReport

WIDE = 720


def forecast(question: Barrier, parameters: int) -> None:
    """What the run will cost, before it begins."""
    if outputs.known(question) is not None:
        return
    asked = question.forecast
    found = outputs.known(asked)
    if found is None and not growing.runs(question):
        found = outputs.answered(
            asked, parameters, "Count the tokens and time one model", "Estimate the cost",
            "Cuts the text and runs A on it once.",
        )  # fmt: skip
    if found is not None:
        st.caption(outputs.plain(sentences.cost(found)))


@st.fragment(run_every=outputs.EVERY)
def live(question: Barrier, what: What, t: float) -> None:
    """The curves as far as they are, drawn anew as they grow; the controls are left alone."""
    report = outputs.so_far(question)
    if report is None or not report.curves:
        return
    outputs.say(sentences.told(report, barriers.quantity(what)), key="verdict-so-far")
    pictures(report, what, t)


def pictures(report: BarrierReport, what: What, t: float) -> None:
    """The curves, and both tables under them."""
    curves(report, what, t)
    standing(report, t)
    stages(report, what)


def curves(report: BarrierReport, what: What, t: float) -> None:
    """All stages in one figure."""
    chart = barriers.lines(report, what, t, look())
    picture(chart, f"line-{what}", f"{what} of every model between A and B, stage by stage")
    ends = (
        "every stage ends at a model of its own, A with that stage's B where tensors move"
        if report.scope != "whole" and not report.shared
        else "the other end is B, whatever its coordinates"
    )
    outputs.explain(
        f"One line a stage: {what} of the models (1 − t) A + t B; {ends}. Dashed: the chord "
        "between the ends. Curves that cover each other are one line with all their names. The "
        "stroke with a diamond is the barrier, the largest distance from chord to curve. Bands: "
        "95 % intervals from windows drawn again. Grey: B in random coordinates, the control. "
        "Upright: the chosen t. Click the legend to single one out.",
        "A line of all coordinates as high as the raw one and the control: the alignment found "
        "nothing, or there is a hill that no change of coordinates removes.",
    )


def standing(report: BarrierReport, t: float) -> None:
    """What every stage's model at t says."""
    st.markdown(f"**At t = {controls.name(t)}**")
    listed(barrier_tables.standing(report, t), height="content")


def stages(report: BarrierReport, what: What) -> None:
    """The barrier of every stage."""
    st.markdown("**Stage by stage**")
    of = barriers.quantity(what)
    listed(barrier_tables.stages(report, of), height="content")
    st.caption(
        "Barrier: the largest distance from the chord. Per cent: of the raw line's, with both on "
        f"the same windows{sentences.own_chords(report)}. Distance: √(Σ ‖A − B‖² / Σ ‖A‖²) over "
        "the tensors that move, B in the stage's coordinates. In brackets: 95 % intervals."
    )


def theory() -> None:
    """The barrier as a formula."""
    outputs.formula(
        r"$B(g) = \sup_t \left[\ell\left((1-t)\,\theta_A + t\, g\theta_B\right) - (1-t)\,"
        r"\ell(\theta_A) - t\,\ell(g\theta_B)\right]$, and for accuracy the largest depth below "
        r"the chord. $\ell$ is the mean $-\log p$ of what is asked for. Models are interpolated in "
        "float32 or finer, tied tensors once. All stages are cut from one alignment. Intervals "
        "draw windows of the text again, the same for every t and every stage. From activations, "
        "where A and B share all that stays, heads are matched by the distance of their attention "
        r"patterns $P$ and of what they say, $P x V O$, other tensors by "
        r"$\|(W_A - W_B)\,\Sigma^{1/2}\|^2$ with $\Sigma = E[x x^\top]$ over a layer's inputs.",
        "Linear mode connectivity: Frankle et al. 2020 (arXiv 1912.05671). The barrier: Entezari "
        "et al. 2022 (arXiv 2110.06296). Permutations: Ainsworth et al. 2023 (git re-basin).",
    )


def drawn(title: str, name: str, chart: Callable[[], Any]) -> list[Download]:
    """A picture on white as files; it is drawn when one is asked for."""
    mimes: dict[drawing.Kind, str] = {"png": "image/png", "svg": "image/svg+xml"}

    def file(kind: drawing.Kind) -> bytes:
        return drawing.image(chart(), kind)

    return [
        Download(f"{title} ({kind.upper()})", f"{name}.{kind}", mime, partial(file, kind))
        for kind, mime in mimes.items()
    ]


def take_away(
    question: Barrier,
    report: BarrierReport,
    what: What,
    t: float,
    more: tuple[list[Download], list[str]],
) -> None:
    """Downloads and command lines, those of the other parts of the page with them."""
    files = [
        Download("Points (CSV)", "barrier-points.csv", "text/csv",
                 lambda: barrier_tables.every(report).to_csv(index=False)),
        Download("Stages (CSV)", "barrier-stages.csv", "text/csv",
                 lambda: barrier_tables.every_stage(report).to_csv(index=False)),
        outputs.document("Record (JSON)", "barrier.json",
                         lambda: exports.of_barrier(report), question),
    ]  # fmt: skip
    files += drawn(
        "Line", "barrier-line",
        lambda: barriers.lines(report, what, t, LIGHT).properties(width=WIDE),
    )  # fmt: skip
    commands = [question.command, *more[1]]
    shown = [text.shown(one) for one in commands]
    outputs.take_away([*files, *more[0]], shown, barrier_tables.COLUMNS)
