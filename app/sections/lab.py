"""Parts of the Lab page: the meter, weights and hidden state before and after, conventions."""

import pandas as pd
import streamlit as st

from app import outputs
from app.charts import conventions, experiments, tables
from app.charts.theme import Shade, config, shade
from app.outputs import Download
from app.sentences import experiments as sentences
from app.sentences.numbers import number
from engine.questions import Lab
from engine.records import CoordinateCard, Experiment, ModelCard


def _look() -> Shade:
    return shade(st.context.theme.type)


def meter(record: Experiment) -> None:
    """How far the output moved."""
    left, right = st.columns([3, 1], vertical_alignment="center")
    with left:
        st.plotly_chart(
            experiments.meter(record, _look()),
            key="meter",
            config=config("meter"),
            alt="How far the output moved, from exact to broken",
        )
    with right, st.container(horizontal=True):
        st.metric("KL, nats", number(record.effect.divergence), width="content")
        st.metric("same next token", f"{record.effect.agreement:.0%}", width="content")
    outputs.explain(
        "The diamond is the largest change of any log-probability on the same tokens. Rounding "
        "alone gives about 1e-6; up to 1e-4 counts as exact.",
        "A symmetry right of the first zone, or a change that is none inside it.",
    )


def weights(record: Experiment) -> None:
    """One changed tensor before and after, and the list of all of them."""
    st.subheader("The weights")
    if not record.weight_before.size:
        st.markdown("No tensor moved.")
        return
    st.plotly_chart(
        experiments.weights(record, _look()),
        key="weights",
        config=config("weights"),
        alt="A window of one changed tensor, before and after",
    )
    st.caption(outputs.plain(experiments.caption(record)))
    outputs.explain(
        "The same part of one tensor on one colour scale, blue positive, orange negative. "
        "Triangles mark the rows or columns that changed.",
        "Two equal pictures under a dial that is turned up: nothing moved.",
    )
    with st.expander(f"Every tensor that moved ({len(record.tensors)})"):
        table = tables.changes(record)
        numbers = {"relative change": st.column_config.NumberColumn(format="%.3g")}
        st.dataframe(table, hide_index=True, width="stretch", column_config=numbers)


def inside(record: Experiment) -> None:
    """The hidden state before and after, and which place went where."""
    if not record.hidden_before.size:
        return
    st.subheader("Inside the model")
    st.caption(outputs.plain(f"Shown: {record.hidden}."))
    st.plotly_chart(
        experiments.hidden(record, _look()),
        key="hidden",
        config=config("hidden"),
        alt="Hidden activations at each token, before and after",
    )
    outputs.explain(
        "Each row is a token of the text, each column a channel of what the model computes there. "
        + (
            "The same values stand in other places."
            if record.order.size
            else "A symmetry may change these values, if what reads them undoes it."
        ),
        (
            "Values that were not there before, under a symmetry. "
            if record.order.size
            else "A state that does not follow the change, under a symmetry. "
        )
        + _equivariance(record),
    )
    if record.order.size or record.positions.size:
        where(record)


def _equivariance(record: Experiment) -> str:
    if record.equivariance is None:
        return "Whether the state follows the change is not measured for this one."
    return f"Measured: {sentences.follows(record.equivariance)}."


def where(record: Experiment) -> None:
    """Which place went where."""
    st.markdown("**Which place went where**")
    st.plotly_chart(
        experiments.places(record, _look()),
        key="places",
        config=config("places"),
        alt="Old and new place of every channel that moved",
    )
    outputs.explain(
        "Old places against new ones: joined dots where few moved, else one point for each, those "
        "that did not move on the dotted line. The element: "
        f"{outputs.plain(record.element)}.",
        "Two lines that end in one place: an index would be lost.",
    )


def code(record: Experiment, card: ModelCard) -> None:
    """The same change as lines of code, for rows and for columns."""
    rows = {row.name: row for row in card.coordinates if not row.fixed}
    row = rows.get(record.coordinate) or next(iter(rows.values()))
    st.subheader("Rows or columns? It depends how a layer stores its matrix")
    mine = conventions.convention(card)
    st.markdown(
        f"`Linear` stores [out, in] and computes x Wᵀ; GPT-2's `Conv1D` stores [in, out] and "
        f"computes x W. This model stores **{mine}**. The same change of the "
        f"*{outputs.plain(row.title)}* acts on rows in one and on columns in the other:"
    )
    table: pd.DataFrame = conventions.table(card, row)
    st.dataframe(table, hide_index=True, width="stretch")
    st.caption(_legend(row))


def _legend(row: CoordinateCard) -> str:
    if row.group.startswith("GL"):
        return "`M` is any invertible matrix: what one side multiplies, the other divides."
    if row.group.startswith("H("):
        return (
            "`z` holds one complex number for each frequency, `[pairs]` the two channels of a "
            "frequency as one complex number."
        )
    perm = "`perm` lists old places: new[i] = old[perm[i]]."
    if not conventions.factors(row):
        return perm
    return (
        f"{perm} `s` holds a sign or factor for each new place: writers multiply, readers divide."
    )


def theory() -> None:
    """What is compared with what."""
    outputs.formula(
        r"A change $g$ of the weights $\theta$ is a symmetry if $f(g\,\theta; x) = f(\theta; x)$ "
        r"for every text $x$: one matrix writes $y \mapsto g\,y$, the next reads with $g^{-1}$, "
        r"and what stands in between commutes with $g$. The hidden state follows, "
        r"$h(g\,\theta) = g\,h(\theta)$. The meter shows $\max |\Delta \log p| / \max |\log p|$, "
        r"beside it the mean of $KL(p_\theta \,\|\, p_{g\theta})$ over positions.",
        "Signed permutations: Sweeney 2026 (arXiv 2606.31963). Attention heads: Tran et al. 2026 "
        "(arXiv 2606.17830). Order of neurons: Ainsworth et al. 2023 (git re-basin).",
    )


def take_away(question: Lab, record: Experiment) -> None:
    """Downloads and the command line."""

    def csv() -> str:
        return tables.changes(record).to_csv(index=False)

    def npz() -> bytes:
        return tables.npz(experiments.arrays(record))

    name = f"lab-{record.preset}"
    files = [
        Download("Tensors (CSV)", f"{name}.csv", "text/csv", csv),
        outputs.document(
            "Record (JSON)", f"{name}.json", lambda: tables.document(record), question
        ),
        Download("Matrices (NPZ)", f"{name}.npz", "application/octet-stream", npz),
    ]
    outputs.take_away(files, [question.command], "Every picture has a camera button (PNG).")
