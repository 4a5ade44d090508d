"""Parts of the Residual page: the matrix, the matching, the depths, the margins."""

import pandas as pd
import streamlit as st

from app import outputs
from app.charts import curves, matching, matrices, tables
from app.charts.theme import Shade, config, shade
from app.controls import matrix as views
from app.controls.matrix import Sides, View
from app.outputs import Download
from app.sentences import findings
from engine.questions import Match
from engine.records import Assignment, ResidualMatch


def _look() -> Shade:
    return shade(st.context.theme.type)


def picture(record: ResidualMatch, depth: int, chosen: int) -> None:
    """The matrix beside the matching, and the selected coordinate in words."""
    size = len(record.absolute[depth].permutation)
    shown = views.view(Sides(size, size))
    left, right = st.columns(2)
    with left:
        matrix(record, depth, chosen, shown)
    with right:
        points(record, depth, chosen)
    found = tables.partners(record, depth, chosen)
    st.markdown(outputs.plain(findings.coordinate(found)))


def matrix(record: ResidualMatch, depth: int, chosen: int, shown: View) -> None:
    """The matrix as a tile; a dragged box, or the sliders, show a window at full resolution."""
    window = shown.window
    columns = record.absolute[depth].permutation if shown.recovered else None
    reduction = "signed extreme" if shown.signed else "maximum of |C|"
    drawn = matrices.tile(record.correlation[depth], window, reduction, columns)
    end = matrices.bound(record.absolute[depth].score)
    st.plotly_chart(
        matrices.heatmap(drawn, _look(), chosen, end=end),
        key=views.chart_key(window),
        on_select="rerun",
        selection_mode="box",
        config=config(f"matrix-{record.depths[depth].replace(' ', '-')}"),
        alt="Matrix of correlations between the coordinates of A and B",
    )
    st.caption(f"{drawn.caption} Drag a box to look closer.")
    if max(window.shape) <= matrices.TABLE:
        numbers(drawn)
    outputs.explain(
        "Row: a coordinate of A. Column: a coordinate of B. Colour: how they vary together over "
        "the text, blue alike, orange oppositely. In recovered order partners lie on the diagonal.",
        "No diagonal, or several strong cells in one row: the partner is a guess.",
    )


def numbers(drawn: matrices.Tile) -> None:
    """A small window as a table of numbers."""
    rows, names = matrices.numbers(drawn)
    with st.expander(f"The {len(rows)} × {len(names)} numbers"):
        table = pd.DataFrame(drawn.values, index=rows, columns=[f"B {name}" for name in names])
        table.index.name = "A"
        st.dataframe(table.style.format("{:.3f}"), width="stretch", height=320)


def points(record: ResidualMatch, depth: int, chosen: int) -> None:
    """The matching as points."""
    st.plotly_chart(
        matching.pairs(record.absolute[depth], record.truth, _look(), chosen),
        key="pairs",
        config=config("matching"),
        alt="Each coordinate of A against its partner in B, coloured by sign",
    )
    st.caption(findings.points(record, depth))
    outputs.explain(
        "Row: a coordinate of A. Column: its partner in B, in the files' order. Blue circles keep "
        "their sign, orange diamonds are flipped. "
        f"{matching.told(record.absolute[depth], record.truth)}",
        matching.astray(record.truth),
    )


def depths(record: ResidualMatch, depth: int) -> None:
    """Signed against absolute matching at every depth."""
    st.subheader("Why the sign must not be part of the match")
    st.markdown(outputs.plain(findings.ceiling(record)))
    st.plotly_chart(
        curves.accuracy(record, _look(), depth),
        key="accuracy",
        config=config("accuracy-by-depth"),
        alt="Share of coordinates found at every depth",
    )
    outputs.explain(
        "The share of coordinates found at each depth, by matching on C with its sign and on |C|.",
        "The blue line falling with depth, or meeting the orange one: too little text, or two "
        "models that are not related.",
    )


def certainty(record: ResidualMatch, depth: int) -> None:
    """Margins, and the coordinates with the smallest."""
    margins(record.absolute[depth], "coordinate")
    outputs.explain(
        "The margin of a coordinate: |C| with its partner minus |C| with the best alternative.",
        "Many margins near zero; below zero (orange) the best partner was already taken.",
    )


def margins(match: Assignment, noun: str) -> None:
    """Margins, sorted and counted."""
    st.subheader("How sure is each match?")
    left, right = st.columns(2)
    with left:
        figure = matching.sorted_margins(match, _look(), noun)
        st.plotly_chart(figure, key="margins", config=config("margins"), alt="Sorted margins")
    with right:
        figure = matching.margin_histogram(match, _look(), noun=noun)
        st.plotly_chart(figure, key="histogram", config=config("histogram"), alt="Margins counted")


def coordinates(record: ResidualMatch, depth: int, chosen: int) -> None:
    """The selected coordinate here and at every depth, and the least certain ones."""
    st.markdown("**The 20 least certain coordinates at this depth**")
    table = tables.least_certain(record, depth)
    st.dataframe(tables.shown(table, chosen), hide_index=True, width="stretch", height=280)
    st.markdown(f"**Coordinate {chosen} at every depth**")
    table = tables.through_depths(record, chosen)
    st.dataframe(tables.shown(table), hide_index=True, width="stretch", height=280)


def theory() -> None:
    """What matching means."""
    outputs.formula(
        r"$C_{ij}$ is the Pearson correlation of coordinate $i$ of A and $j$ of B over tokens "
        r"(from weights: the sum over the tensors that carry the residual stream). The assignment "
        r"is $\pi = \arg\max_\pi \sum_i |C_{i\,\pi(i)}|$, the sign $s_i = \operatorname{sign} "
        r"C_{i\,\pi(i)}$, and the aligned coordinate $s_i\, x_{\pi(i)}$.",
        "Sweeney 2026 (arXiv 2606.31963). The assignment is solved exactly by the Hungarian method "
        "(SciPy, linear_sum_assignment), unless the row maxima already form a permutation.",
    )


def take_away(question: Match, record: ResidualMatch, depth: int) -> None:
    """Downloads and the command line."""
    name = f"match-{record.depths[depth].replace(' ', '-')}"

    def csv() -> str:
        return tables.matched(record, depth).to_csv(index=False)

    def npz() -> bytes:
        return tables.gauge_npz(record, depth)

    files = [
        Download("Matching (CSV)", f"{name}.csv", "text/csv", csv),
        Download("Gauge and matrix (NPZ)", f"{name}.npz", "application/octet-stream", npz),
        outputs.document("Record (JSON)", "match.json", lambda: tables.document(record), question),
    ]
    outputs.take_away(files, [question.command], "Every picture has a camera button (PNG).")
