"""Parts of the Alignment page: the objective, what was coordinates, the points between, writing."""

from typing import Any

import pandas as pd
import streamlit as st

from app import outputs, session, written
from app.aligned import Aligning
from app.charts import descents, drawing, layers, shares, tables
from app.charts.theme import LIGHT
from app.outputs import Download
from app.sections import checkpoints, relation
from app.sections.heads import listed, look, picture
from app.sections.layers import figure
from app.sentences import alignments as sentences
from app.sentences.words import apart, number
from app.settings import settings
from engine.questions import Align, Related
from engine.records import AlignmentProgress, AlignmentReport, Relatedness

WIDE = 460
NONE = "–"
"""What was not measured, or is none."""
FITTED = (
    "Sweeps fit all else to these pairs, and margins are measured after them: pairs of unrelated "
    "models can lead too. "
)
"""Said of margins at the end of sweeps."""


@st.fragment(run_every=outputs.EVERY)
def live(question: Align) -> None:
    """What a running job has found, drawn anew as it grows; the controls are left alone."""
    found = outputs.so_far(question)
    if isinstance(found, AlignmentProgress):
        unfinished(found, goes_on=True)


def unfinished(found: AlignmentProgress, *, goes_on: bool) -> None:
    """The pictures of a run that has not ended, or was stopped."""
    with st.container(key="so-far"):
        st.markdown(outputs.plain(sentences.unfinished(found, goes_on=goes_on)))
        if found.sweeps:
            picture(descents.objective(found.sweeps, look()), "objective-so-far",
                    "Objective against sweeps, so far")  # fmt: skip
        if any(found.losses):
            picture(descents.losses(found.losses, look()), "losses-so-far",
                    "Loss half way against steps, so far")  # fmt: skip
        elif found.steps and not found.sweeps:
            listed(stepwise(found.steps))


def stepwise(steps: Any) -> pd.DataFrame:
    """What every step did in every layer, the latest first."""
    return pd.DataFrame([
        {"layer": shares.layer_of(step.layer),
         "coordinate": shares.NAMES.get(step.coordinates, step.coordinates),
         "before": step.before, "after": step.after, "margin": step.margin}
        for step in reversed(steps)
    ])  # fmt: skip


def objective(report: AlignmentReport) -> None:
    """The objective against the sweeps of every start."""
    st.subheader("How did the objective fall?")
    st.markdown(outputs.plain(sentences.objective(report)))
    if not report.sweeps:
        return
    picture(descents.objective(report.sweeps, look()), "objective", "Objective against sweeps")
    outputs.explain(
        f"One line for each start: {descents.steps(report.sweeps)}. Dashed: the files as they "
        "stand. Diamond: the end that was taken.",
        "Starts that end at different heights: the search is stuck, try more starts. All ends near "
        "the dashed line: the files are aligned already, or nothing aligns them.",
    )
    with st.expander("Every sweep in numbers"):
        listed(descents.kept(report.sweeps), height="content")


def coordinates(question: Align, report: AlignmentReport, related: Relatedness | None) -> None:
    """How much was only coordinates, tensor by tensor and coordinate by coordinate."""
    st.subheader("How much was only coordinates?")
    st.markdown(outputs.plain(sentences.explained(report, related)))
    if report.norms is None:
        again(question)
    if not shares.shares(report).empty:
        picture(shares.bars(report, look()), "shares", "Share of the distance by coordinate")
        outputs.explain(
            "The squared distance between A's and B's tensors as the files stand, split into what "
            f"each coordinate took away, in the order {shares.order(report)}.",
            "Bars that are grey all over: the two differ by more than coordinates. A part below "
            "0: moving that coordinate made these tensors differ more.",
        )
    before, after = st.columns(2)
    sides: tuple[tuple[Any, layers.When], ...] = ((before, "before"), (after, "after"))
    for place, when in sides:
        with place:
            chart = layers.distance_map(report, when, look())
            st.altair_chart(chart, width="stretch", theme=None, key=f"distance-{when}",
                            alt=f"Distance of every tensor {when} alignment")  # fmt: skip
    outputs.explain(
        "Each cell is one tensor: the length of the difference over the length of A's tensor, on "
        "one scale before and after.",
        "A right side as dark as the left one.",
    )
    listed(stages(report), height="content")
    st.caption(terms(report))
    if report.steps:
        with st.expander("Every layer in numbers"):
            listed(by_layer(report))


def again(question: Align) -> None:
    """The question asked anew, although an answer is stored; the sidebar shows how far it is."""
    job = outputs.registry().look(question.key)
    if job is not None and not job.over:
        st.caption("It is being computed: its progress stands in the sidebar.")
        return
    if job is not None and job.state == "failed":
        outputs.refuse(job.message)
    st.button(
        "Compute it anew",
        on_click=outputs.start,
        args=(question, outputs.results(), "Put B into A's coordinates, anew"),
        icon=":material/refresh:",
        key=session.local("again", question.key),
    )


def by_layer(report: AlignmentReport) -> pd.DataFrame:
    """What every step did in every layer, with its smallest margin."""
    found = stepwise(report.steps[::-1])
    told = [NONE if pd.isna(margin) else number(margin) for margin in found.pop("margin")]
    return found.assign(**{"smallest margin": told})


def terms(report: AlignmentReport) -> str:
    """What the columns of the table mean."""
    return (
        "Solved: how many index sets. Right: the share that equals the planted truth, where one is "
        "known. Margin: the smallest lead of a pair over its best alternative; below 0 another was "
        f"nearer but taken, and {NONE} stands where there is no order to choose. "
        f"{FITTED if report.sweeps else ''}Flipped: factors below 0. Before and after: relative "
        "distance of the tensors that carry the coordinate."
    )


def stages(report: AlignmentReport) -> pd.DataFrame:
    """One row a coordinate."""
    names = shares.NAMES | {"grp": "key/value heads", "head": "query heads"}
    return pd.DataFrame([
        {
            "coordinate": stage.coordinate,
            "what": names.get(stage.coordinate, stage.coordinate),
            "solved": stage.solved,
            "right": NONE if stage.right is None else f"{stage.right:.2%}",
            "smallest margin": NONE if stage.margin is None else number(stage.margin),
            "flipped": NONE if stage.flipped is None else f"{stage.flipped:,}",
            **dict(zip(("before", "after"), apart(stage.before, stage.after, 3), strict=True)),
        }
        for stage in report.stages
    ])  # fmt: skip


def half_way(report: AlignmentReport) -> None:
    """The loss of the model half way at every stage, where a refinement ran."""
    st.subheader("And between the two?")
    if not report.midpoints:
        st.markdown(
            "The loss half way was not measured: ask for steps along the loss under *How it is "
            "solved*."
        )
        return
    st.markdown(outputs.plain(sentences.half_way(report)))
    picture(descents.midpoints(report, look()), "midpoints", "Loss half way at every stage")
    outputs.explain(
        "Mean loss per token of ½ (A + g B), on text that no refinement read, above the chord: "
        "the mean of A's and B's own loss. Each bar adds one coordinate; the refined ones moved "
        "angles, factors and matrices along that loss itself.",
        "The control (orange, no matching at all) as low as the refined bar (violet): the matching "
        "added nothing. A bar that rises although the weights came nearer: it happens.",
    )


def write(question: Align) -> None:
    """B in A's coordinates as a checkpoint, written by a job."""
    st.subheader("Write it")
    if settings().hosted:
        st.caption("A hosted server writes no checkpoints: use the command line below.")
        return
    asked = Aligning(question)
    about = f"To {asked.out}; it is solved anew, and neither model is changed."
    place = outputs.measured(asked, "Write B in A's coordinates", "Write the checkpoint", about,
                             written.places(), partly=False)  # fmt: skip
    if place is not None:
        checkpoints.written(place, "`symmetry.safetensors` and `report.json`")


def theory() -> None:
    """The objective, the sweeps and the refinement."""
    outputs.formula(
        r"$J(g) = (1 - \mu) \sum_t \|A_t - (g B)_t\|^2 / \sum_t \|A_t\|^2 + \mu\,(1 - K(g))$ over "
        r"tensors with gains and biases of norms folded in; $K$ is the mean $|$correlation$|$ of "
        r"matched activations and $\mu$ its weight. A sweep solves neurons, heads, angles and "
        "values of every layer exactly with all else held, then the residual coordinates as one "
        r"assignment; $J$ never rises. Along the loss: $\min_g \ell(\frac12 (A + g B))$ over "
        "angles, factors and matrices by Adam, orders and signs held.",
        "Coordinate descent over permutations: Ainsworth et al. 2023 (git re-basin). Signs of the "
        "residual stream: Sweeney 2026 (arXiv 2606.31963). Inside heads: Tran et al. 2026 (arXiv "
        "2606.17830). The table of coordinates and the refinement of all of them are this "
        "program's.",
    )


def charts(report: AlignmentReport) -> dict[str, Any]:
    """The pictures on white, by name."""
    found = {}
    if report.sweeps:
        found["objective"] = descents.objective(report.sweeps, LIGHT).properties(width=WIDE)
    if not shares.shares(report).empty:
        found["shares"] = shares.bars(report, LIGHT).properties(width=WIDE)
    if report.midpoints:
        found["midpoints"] = descents.midpoints(report, LIGHT).properties(width=WIDE)
    return found


def take_away(
    question: Align, report: AlignmentReport, related: tuple[Related, Relatedness | None]
) -> None:
    """Downloads and the command lines."""
    files = [
        outputs.document("Report (JSON)", "alignment.json",
                         lambda: tables.document(report), question),
        Download("Tensors (CSV)", "alignment-tensors.csv", "text/csv",
                 lambda: tables.distances(report).to_csv(index=False)),
        Download("Steps (CSV)", "alignment-steps.csv", "text/csv",
                 lambda: stepwise(report.steps).to_csv(index=False)),
    ]  # fmt: skip
    if report.sweeps:
        files.append(
            Download("Sweeps (CSV)", "alignment-sweeps.csv", "text/csv",
                     lambda: descents.kept(report.sweeps).to_csv(index=False))
        )  # fmt: skip
    asked, answer = related
    if answer is not None:
        files += relation.files(asked, answer)
    for title, chart in charts(report).items():
        files += [figure(title, f"alignment-{title}", chart, kind) for kind in ("png", "svg")]
    maps: tuple[drawing.Kind, ...] = ("png", "svg")
    for kind in maps:
        mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
        files.append(Download(f"Maps ({kind.upper()})", f"alignment-maps.{kind}", mime,
                              lambda kind=kind: layers.distance_image(report, kind)))  # fmt: skip
    outputs.take_away(files, [asked.command, question.command])
