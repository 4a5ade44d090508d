"""Parts of the Neurons page: matrix and matching, one pair, the layers, what removing one costs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from app import outputs, session
from app.charts import matching, matrices, neurons, tables
from app.charts.theme import Shade, config, shade
from app.controls import matrix as views
from app.controls.matrix import Sides, View
from app.controls.neurons import Pick, all_layers
from app.outputs import Download
from app.sections import residual
from app.sections.heads import listed
from app.sentences import neurons as sentences
from engine.questions import Neurons
from engine.records import NeuronLayers, NeuronMatch

NOUN = "neuron"


def _look() -> Shade:
    return shade(st.context.theme.type)


def picture(record: NeuronMatch, pick: Pick) -> None:
    """The matrix beside the matching."""
    sides = Sides(*record.sizes, NOUN, (session.UP, session.ACROSS))
    shown = views.view(sides, views.MATRICES if record.signs else views.MATRICES[:1])
    left, right = st.columns(2)
    with left:
        matrix(record, pick, shown)
    with right:
        points(record, pick)


def matrix(record: NeuronMatch, pick: Pick, shown: View) -> None:
    """The scores as a tile; a dragged box, or the sliders, show a window at full resolution."""
    window = shown.window
    columns = neurons.columns(record) if shown.recovered else None
    reduction = "signed extreme" if shown.signed else "maximum of |score|"
    drawn = matrices.tile(record.score, window, reduction, columns)
    words = matrices.Words(NOUN, "score")
    end = matrices.bound(record.match.score)
    st.plotly_chart(
        matrices.heatmap(drawn, _look(), pick.neuron, end=end, words=words),
        key=views.chart_key(window),
        on_select="rerun",
        selection_mode="box",
        config=config(f"neurons-layer-{record.layer}"),
        alt="Score of every neuron of A against every neuron of B",
    )
    st.caption(f"{drawn.caption} Drag a box to look closer.")
    if max(window.shape) <= matrices.TABLE:
        residual.numbers(drawn)
    what = "orange where B's neuron would have its sign flipped" if record.signs else "blue alike"
    outputs.explain(
        "Row: a neuron of A. Column: a neuron of B. Colour: the score, 1 for one neuron in two "
        f"bases; {what}. In recovered order partners lie on the diagonal.",
        "No diagonal, or several strong cells in one row: the partner is a guess.",
    )


def points(record: NeuronMatch, pick: Pick) -> None:
    """The matching as points; a click on one chooses it."""
    st.plotly_chart(
        matching.pairs(record.match, record.truth, _look(), pick.neuron, NOUN, record.rows),
        key=pick.key("pairs"),
        on_select="rerun",
        selection_mode="points",
        config=config("neurons-matching"),
        alt="Each neuron of A against its partner in B, coloured by sign",
    )
    outputs.explain(
        "Row: a neuron of A. Column: its partner in B, in the files' order. Blue circles keep "
        f"their sign, orange diamonds are flipped. {matching.told(record.match, record.truth)} "
        "Click a point. Fine-tunes of one base: all on the diagonal.",
        matching.astray(record.truth),
    )


def excited(record: NeuronMatch, pick: Pick) -> None:
    """One neuron of A and one of B side by side: the tokens that excite each."""
    st.subheader("Do they fire on the same tokens?")
    st.markdown(outputs.plain(sentences.pair(record, pick.row, other=pick.other)))
    if record.excited is None:
        st.markdown("What excites the neurons was not measured for this pair.")
        return
    i = pick.neuron
    j = int((record.second if pick.other else record.match.permutation)[pick.row])
    factor = float((record.second_factor if pick.other else record.factor)[pick.row])
    left, right = st.columns(2)
    whose = "A" if record.same_model else "B"
    both = [neurons.contexts(record.excited, 0, i), neurons.contexts(record.excited, 1, j, factor)]
    places = [{row[-1] for row in rows} for rows in both]
    scale = f", times {factor:.3g}" if record.scales else ""
    for place, name, rows in (
        (left, f"A {i}", both[0]),
        (right, f"{whose} {j}{scale}", both[1]),
    ):
        with place:
            st.markdown(f"**{outputs.plain(name)}**")
            st.markdown(_listed(rows, places[0] & places[1]))
    said = sentences.shared(record, i, j)
    if not record.same_model:
        said = f"{said} {sentences.overlap(record)}"
    st.markdown(outputs.plain(said))
    second = "the other's" if record.same_model else "B's"
    units = "the first one's" if record.same_model else "A's"
    outputs.explain(
        "The places of the text where each neuron fires most, in either direction: what the FFN's "
        f"last matrix is given, {second} times its factor, so that both are in {units} units. ● "
        f"marks places that excite both. From {record.excited.what}.",
        "Other tokens, or values far apart, in a pair that is said to be one neuron.",
    )


def _listed(rows: list[tuple[float, str, str, str, int]], both: set[int]) -> str:
    """Places as a table, the token in bold."""
    lines = ["| | value | where |", "|---|--:|---|"]
    for value, before, token, after, place in rows:
        text = f"{_shown(before)} **{_shown(token) or '␣'}** {_shown(after)}"
        lines.append(f"| {'●' if place in both else ''} | {value:.3g} | {text} |")
    return "\n".join(lines)


def _shown(text: str) -> str:
    """A piece of text in one line of a table."""
    return outputs.plain(" ".join(text.replace("\n", " ⏎ ").split()))


def layers(record: NeuronLayers, selected: int) -> None:
    """Signs, shares and margins of every layer."""
    st.subheader("Why the sign must not be part of the match")
    st.markdown(outputs.plain(sentences.signs(record)))
    charts: list[tuple[str, Any, str]] = [
        ("shares", neurons.shares, "Share of neurons found in every layer"),
        ("layer-margins", neurons.margins, "Margins in every layer"),
    ]
    if record.negative is not None:
        charts.insert(0, ("flips", neurons.flips, "Share of negative factors in every layer"))
    for place, (name, draw, about) in zip(st.columns(len(charts)), charts, strict=True):
        with place:
            figure = draw(record, _look(), selected)
            st.plotly_chart(figure, key=name, config=config(f"neurons-{name}"), alt=about)
    outputs.explain(sentences.pictured(record), sentences.weak(record))


def certainty(record: NeuronMatch, pick: Pick) -> None:
    """Margins, scales, and the pairs with the smallest margins."""
    residual.margins(record.match, NOUN)
    outputs.explain(
        "The margin of a neuron: its score with the partner minus that of the best alternative.",
        "Many margins near zero; below zero (orange) the best partner was already taken.",
    )
    if record.scales:
        st.plotly_chart(
            neurons.scales(record, _look(), pick.neuron),
            key=pick.key("scales"),
            on_select="rerun",
            selection_mode="points",
            config=config("neurons-scales"),
            alt="Scale of every matched neuron",
        )
        outputs.explain(
            "By how much what B's neuron is given must be multiplied, and what it gives divided. "
            "Two trainings balance the two sides alike: factors near 1. Rings: planted ones.",
            "Factors of 10 and more between models that were not rescaled: a fit to noise.",
        )
    st.markdown("**The 20 least certain pairs**")
    listed(neurons.least_certain(record), 280)
    st.caption(outputs.plain(sentences.terms(record)))


def coincidences(record: NeuronMatch) -> None:
    """One model against itself: the most alike neurons, and what doing without one costs."""
    st.subheader("Which neurons could do without each other?")
    left, right = st.columns(2)
    with left:
        listed(neurons.coincide(record), 420)
        outputs.explain(
            f"Pairs of neurons, the most alike first, by {sentences.ALIKE[record.compared]}.",
            "A high score of two neurons that hardly do anything (last columns: their sizes).",
        )
    with right:
        if record.spared is None:
            st.markdown("What it costs to do without a neuron was not measured for this model.")
        else:
            costs(record)
    if record.spared is not None:
        with st.expander("Every neuron that was tried, in numbers"):
            listed(neurons.spared(record.spared), "content")


def costs(record: NeuronMatch) -> None:
    """Merging against removing."""
    assert record.spared is not None
    st.plotly_chart(
        neurons.costs(record.spared, _look()),
        key="neuron-costs",
        config=config("neurons-costs"),
        alt="What merging and removing single neurons cost",
    )
    outputs.explain(
        "How far the output moves without a neuron: removed, or merged, its column of down times "
        "the factor added to that of its most alike. The most alike first, then the smallest, then "
        "some at random.",
        "Merging no cheaper than removing: the two only look alike.",
    )


def theory() -> None:
    """The score and the factor."""
    outputs.formula(
        r"A gated neuron has rows $g$ (gate), $u$ (up) and a column $d$ (down); $u \to c\,u$, "
        r"$d \to d / c$ with any $c \neq 0$ changes nothing. What cannot change is $g$ and "
        r"$u \otimes d$: the score is the mean of "
        r"$2\langle p, q\rangle / (\|p\|^2 + \|q\|^2)$ over both, with $\langle u_i \otimes d_i, "
        r"u_j \otimes d_j\rangle = \langle u_i, u_j\rangle\langle d_i, d_j\rangle$; the assignment "
        r"maximises its sum. Then $c$ minimises $\|u_A - c\,u_B\|^2 + \|d_A - d_B / c\|^2$, its "
        r"sign that of $\langle u_B, u_A\rangle\|d_B\| + \langle d_B, d_A\rangle\|u_B\|$. ReLU "
        r"without a gate: $c > 0$; GELU: $c = 1$, rows in and out as they are. From activations: "
        r"$|C|$ of what down is given, $c = \operatorname{sign} C \cdot \sigma_A / \sigma_B$. "
        r"Published (git re-basin): $\langle g_i, g_j\rangle + \langle u_i, u_j\rangle + "
        r"\langle d_i, d_j\rangle$. One model: gates, and $|\cos(u_i, u_j)|$; merging $j$ into $i$ "
        r"sets $d_i + c\,d_j$ for $h_j \approx c\,h_i$.",
        "Ainsworth et al. 2023 (git re-basin) for the published cost; signs and scales as in "
        "Sweeney 2026 (arXiv 2606.31963). The norm's gain is folded into gate and up first.",
    )


def take_away(question: Neurons, record: NeuronMatch, every: NeuronLayers | None) -> None:
    """Downloads and the command lines."""
    name = f"neurons-layer-{record.layer}"
    name = f"{name}-expert-{record.expert}" if record.expert else name
    sheets: dict[str, Callable[[], Any]] = {"Matching": partial(neurons.matched, record)}
    if record.same_model:
        sheets = {"Pairs": partial(neurons.coincide, record, len(record.rows))}
    if record.spared is not None:
        sheets["Costs"] = partial(neurons.spared, record.spared)
    files = [
        Download(f"{title} (CSV)", f"{name}-{title.lower()}.csv", "text/csv", _csv(make))
        for title, make in sheets.items()
    ]
    files += [
        Download("Arrays (NPZ)", f"{name}.npz", "application/octet-stream",
                 lambda: tables.as_npz(record)),
        outputs.document("Record (JSON)", f"{name}.json",
                         lambda: tables.document(record), question),
    ]  # fmt: skip
    commands = [question.command]
    if every is not None:
        asked = all_layers(question)
        commands.append(asked.command)
        files.append(outputs.document("Layers (JSON)", "neurons.json",
                                      lambda: tables.document(every), asked))  # fmt: skip
    outputs.take_away(files, commands, "Every picture has a camera button (PNG).")


def _csv(make: Callable[[], Any]) -> Callable[[], str]:
    return lambda: make().to_csv(index=False)
