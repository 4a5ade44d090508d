"""Parts of the Gap page: the gap against the step, the tests, properties, what to take away."""

from typing import Any

import streamlit as st

from app import outputs
from app.charts import drawing, gaps
from app.charts.gaps import ScaleOf
from app.charts.theme import LIGHT
from app.outputs import Download
from app.sections.heads import look, picture
from app.sections.layers import figure
from app.sentences import gaps as sentences
from engine.exports import layers as exports
from engine.published import SOURCE
from engine.questions import Gap
from engine.records import GapTrajectory

ACROSS, WIDE = 3, 420


def curves(record: GapTrajectory | None, name: str, told: GapTrajectory, scale: ScaleOf) -> None:
    """The gap here and the published one, in one style."""
    st.subheader("The gap of adjacent layers")
    left, right = st.columns(2)
    with left:
        st.markdown("**Measured here**")
        if record is None:
            st.markdown("Not measured yet.")
        else:
            chart = gaps.lines(record, scale, look(), published=False)
            picture(chart, "gap", "The gap of every pair of adjacent layers")
    with right:
        st.markdown(f"**{outputs.plain(name)} · published**")
        chart = gaps.lines(told, scale, look(), published=True)
        picture(chart, "gap-published", f"The published gap of {name}")
    outputs.explain(
        "Thin: one pair of adjacent layers; thick: their mean. At 0 (dashed) replacing and "
        "swapping cost the same, above it replacing costs more. Here the larger direction of "
        "replacement counts; published was one, position i running layer i + 1. Steps stand at "
        "equal distances.",
        "Thin lines on both sides of 0: the mean says nothing about a pair. A mean that jumps "
        "between neighbouring steps: too little text.",
    )


def compared(record: GapTrajectory | None, name: str, told: GapTrajectory) -> None:
    """Mean KL of each test, skipping among them."""
    st.subheader("Replace, swap, skip")
    left, right = st.columns(2)
    with left:
        st.markdown("**Measured here**")
        if record is None:
            st.markdown("Not measured yet.")
        else:
            picture(gaps.compared(record), "tests", "Mean KL of three tests")
    with right:
        st.markdown(f"**{outputs.plain(name)} · published**")
        picture(gaps.compared(told), "tests-published", f"Published mean KL of {name}")
    st.caption(f"Published: {outputs.plain(SOURCE)}. No skip was published.")
    outputs.explain(
        "Means over adjacent pairs. *skip*: layer i's output is given to the layer after i + 1, so "
        "i + 1 is left out: that is how replacement is often retold, and it is another test.",
        "All three on one line: then it would not matter how one asks.",
    )


def candidates(record: GapTrajectory, scale: ScaleOf) -> None:
    """Which property of a model goes with its gap: the candidates."""
    st.subheader("Which property goes with the gap? Candidates")
    st.markdown(outputs.plain(sentences.correlated(record, scale)))
    names = list(record.steps[0].properties)
    for start in range(0, len(names), ACROSS):
        row = names[start : start + ACROSS]
        for place, name in zip(st.columns(ACROSS), row, strict=False):
            with place:
                st.markdown(f"**{outputs.plain(sentences.WORDS.get(name, name))}**")
                chart = gaps.scatter(record, name, scale, look())
                picture(chart, f"property-{name}", f"{name} against the mean gap")
    outputs.explain(
        "One dot a model: a property of it against its mean gap. Why one model has a large gap and "
        "another a small one is an open question; this plots candidates.",
        "A cloud without direction; or a neat line through the steps of one training that the "
        "seeds do not follow.",
    )


def theory() -> None:
    """The gap as a formula."""
    outputs.formula(
        r"For adjacent layers $i, i + 1$: $\log_2 \frac{\max(R[i, i+1], R[i+1, i])}{S[i, i+1]}$, "
        "or the difference of both in nats; the thick line is the mean over pairs. "
        r"$R$, $S$ as on the Layers page.",
        "Garcia 2026 (arXiv 2605.16234), who publishes the mean difference for Pythia.",
    )


def charts(record: GapTrajectory, told: GapTrajectory, scale: ScaleOf) -> dict[str, Any]:
    """The pictures on white, by name."""
    both = [
        gaps.lines(record, scale, LIGHT, published=False).properties(width=WIDE, title="here"),
        gaps.lines(told, scale, LIGHT, published=True).properties(width=WIDE, title="published"),
    ]
    return {
        "gap": drawing.beside(*both),
        "tests": gaps.compared(record).properties(width=WIDE),
    }


def take_away(question: Gap, record: GapTrajectory, told: GapTrajectory, scale: ScaleOf) -> None:
    """Downloads and the command line."""
    files = [
        Download("Pairs (CSV)", "gap-pairs.csv", "text/csv",
                 lambda: gaps.table(record).to_csv(index=False)),
        Download("Properties (CSV)", "gap-properties.csv", "text/csv",
                 lambda: gaps.properties(record, scale).to_csv(index=False)),
        outputs.document("Record (JSON)", "gap.json", lambda: exports.of_gap(record), question),
    ]  # fmt: skip
    for title, chart in charts(record, told, scale).items():
        files += [figure(title, f"gap-{title}", chart, kind) for kind in ("png", "svg")]
    outputs.take_away(files, [question.command])
