"""FFN neurons: scales, the signs of every layer, what excites them, what removing one costs."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.charts.tables import sign_mark
from app.charts.theme import MINUS, PLUS, QUIET, TRUTH, Shade, arrange
from engine.records import Excited, NeuronLayers, NeuronMatch, Spared

AROUND = 6
"""Tokens of context on either side."""


def scales(record: NeuronMatch, look: Shade, selected: int | None = None) -> go.Figure:
    """|factor| of every pair, by sign, on a logarithmic axis; the planted ones as rings."""
    figure = go.Figure()
    if record.truth_factor is not None:
        ring = {"symbol": "circle-open", "size": 9, "color": TRUTH, "line": {"width": 1.2}}
        figure.add_trace(
            go.Scattergl(
                x=record.rows.astype(np.int32),
                y=np.abs(record.truth_factor).astype(np.float32),
                mode="markers",
                name="planted" if record.truth and record.truth.kind == "planted" else "identity",
                marker=ring,
                hoverinfo="skip",
            )
        )
    for name, color, symbol, keep in (
        ("sign +", PLUS, "circle", record.factor > 0),
        ("sign −", MINUS, "diamond", record.factor < 0),
    ):
        places = np.flatnonzero(keep)
        figure.add_trace(
            go.Scattergl(
                x=record.rows[places].astype(np.int32),
                y=np.abs(record.factor[places]).astype(np.float32),
                mode="markers",
                name=f"{name} ({len(places):,})",
                marker={"size": 4, "color": color, "symbol": symbol},
                hovertemplate="A %{x}: |factor| %{y:.4g}<extra></extra>",
            )
        )
    arrange(figure, look, 280)
    figure.add_hline(y=1, line={"color": QUIET, "width": 1})
    if selected is not None:
        figure.add_vline(x=selected, line={"color": look.ink, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="neuron of A")
    return figure.update_yaxes(title="|factor|", type="log", dtick=np.log10(2), tickformat=".2g")


def flips(record: NeuronLayers, look: Shade, selected: int | None = None) -> go.Figure:
    """Share of negative factors in every layer, with what fair coins would give."""
    assert record.negative is not None
    layers = np.arange(len(record.pairs), dtype=np.int32)
    share = (record.negative / record.pairs).astype(np.float32)
    colors = [MINUS if layer == selected else "rgba(213,94,0,0.55)" for layer in layers]
    figure = go.Figure(
        go.Bar(
            x=layers,
            y=share,
            marker={"color": colors},
            customdata=np.stack([record.negative, record.pairs], 1).astype(np.int32),
            hovertemplate="layer %{x}: %{customdata[0]} of %{customdata[1]}, %{y:.1%}"
            "<extra></extra>",
        )
    )
    arrange(figure, look, 280, showlegend=False)
    spread = 1.96 * np.sqrt(0.25 / float(record.pairs.min()))
    figure.add_hrect(
        y0=0.5 - spread, y1=0.5 + spread, fillcolor=QUIET, opacity=0.2, line={"width": 0}
    )
    figure.add_hline(y=0.5, line={"color": look.ink, "width": 1.5, "dash": "dash"})
    _layer_axis(figure, len(layers))
    return figure.update_yaxes(title="negative factors", range=[0, 1], tickformat=".0%")


def shares(record: NeuronLayers, look: Shade, selected: int | None = None) -> go.Figure:
    """Share found in every layer, by the cost that knows signs and scales and by the published one.

    Without a known truth: the share of pairs that choose each other, and that both costs choose.
    """
    lines = (
        ((record.right, "signs and scales free", PLUS, "circle"),
         (record.published, "published cost", MINUS, "diamond"))
        if record.right is not None
        else ((record.mutual, "choose each other", PLUS, "circle"),
              (record.agree, "both costs agree", MINUS, "diamond"))
    )  # fmt: skip
    figure = go.Figure()
    for values, name, color, symbol in lines:
        assert values is not None
        figure.add_trace(_line(values, name, color, symbol, ".1%"))
    arrange(figure, look, 280)
    _mark(figure, look, selected)
    _layer_axis(figure, len(record.pairs))
    title = "share of neurons found" if record.right is not None else "share of pairs"
    return figure.update_yaxes(title=title, range=[-0.02, 1.05], tickformat=".0%")


def margins(record: NeuronLayers, look: Shade, selected: int | None = None) -> go.Figure:
    """The median and the smallest margin of every layer."""
    figure = go.Figure([
        _line(record.median, "median margin", PLUS, "circle", ".3f"),
        _line(record.smallest, "smallest", QUIET, "square", ".3f"),
    ])  # fmt: skip
    arrange(figure, look, 280)
    figure.add_hline(y=0, line={"color": QUIET, "width": 1})
    _mark(figure, look, selected)
    _layer_axis(figure, len(record.pairs))
    return figure.update_yaxes(title="margin")


def _line(values: np.ndarray, name: str, color: str, symbol: str, digits: str) -> go.Scatter:
    return go.Scatter(
        x=np.arange(len(values), dtype=np.int32),
        y=np.asarray(values, np.float32),
        mode="lines+markers",
        name=name,
        line={"color": color, "width": 2},
        marker={"symbol": symbol, "size": 7},
        hovertemplate=f"layer %{{x}}: %{{y:{digits}}}<extra>{name}</extra>",
    )


def _mark(figure: go.Figure, look: Shade, selected: int | None) -> None:
    if selected is not None:
        figure.add_vline(x=selected, line={"color": look.ink, "width": 1, "dash": "dot"})


def _layer_axis(figure: go.Figure, layers: int) -> None:
    step = max(1, -(-layers // 12))
    ends = [-0.6, layers - 0.4]
    figure.update_xaxes(title="layer", range=ends, tickvals=list(range(0, layers, step)))


def costs(found: Spared, look: Shade) -> go.Figure:
    """KL of every neuron that was tried, merged into the most alike other and removed."""
    order = drawn(found)
    labels = [f"{found.neuron[k]} ({found.kind[k]})" for k in order]
    figure = go.Figure()
    for values, name, color, symbol in (
        (found.removed, "removed", MINUS, "diamond"),
        (found.merged, "merged into the other", PLUS, "circle"),
    ):
        figure.add_trace(
            go.Scatter(
                x=np.maximum(values[order], 1e-12).astype(np.float64),
                y=labels,
                mode="markers",
                name=name,
                marker={"color": color, "symbol": symbol, "size": 9},
                hovertemplate="%{y}: %{x:.3g} nats<extra>" + name + "</extra>",
            )
        )
    arrange(figure, look, 60 + 22 * len(order))
    figure.update_xaxes(title="KL(A ‖ A changed), nats a position", type="log", tickformat=".0e")
    return figure.update_yaxes(title=None, autorange="reversed")


def drawn(found: Spared) -> np.ndarray:
    """The order in which neurons are listed: by why they were tried, the most alike first."""
    kinds = {"alike": 0, "small": 1, "random": 2}
    rank = np.array([kinds[kind] for kind in found.kind])
    return np.lexsort((-found.score, rank))


def spared(found: Spared) -> pd.DataFrame:
    """What was tried, with its numbers."""
    order = drawn(found)
    table = pd.DataFrame({
        "neuron": found.neuron[order],
        "tried because": [found.kind[k] for k in order],
        "most alike": found.other[order],
        "score": found.score[order],
        "factor": found.factor[order],
        "KL merged": found.merged[order],
        "KL removed": found.removed[order],
    })  # fmt: skip
    if not np.isnan(found.removed_loss).all():
        table["loss merged"] = found.merged_loss[order]
        table["loss removed"] = found.removed_loss[order]
    return table


def coincide(record: NeuronMatch, count: int = 20) -> pd.DataFrame:
    """Pairs of neurons of one model, the most alike first, each pair once."""
    i, j = np.arange(len(record.second)), record.second
    once = (j[j] != i) | (i < j)
    rows = np.flatnonzero(once)
    rows = rows[np.argsort(-record.second_score[rows], kind="stable")][:count]
    return pd.DataFrame({
        "neuron": rows,
        "other": j[rows],
        "score": record.second_score[rows],
        "sign": [sign_mark(int(np.sign(record.second_factor[k]) or 1)) for k in rows],
        "factor": record.second_factor[rows],
        "‖up‖·‖down‖": record.norm[rows],
        "of the other": record.norm[j[rows]],
    })  # fmt: skip


def matched(record: NeuronMatch) -> pd.DataFrame:
    """Every neuron of A that has a partner."""
    match = record.match
    table = pd.DataFrame({
        "A": record.rows,
        "B": match.permutation,
        "sign": [sign_mark(int(sign)) for sign in match.sign],
        "|factor|": np.abs(record.factor),
        "score": match.score,
        "next B": record.second,
        "its score": record.second_score,
        "margin": match.margin,
        "mutual": match.mutual,
        "published B": record.published,
    })  # fmt: skip
    if record.truth is not None:
        table["right"] = record.right
        table["true B"] = record.truth.permutation
        table["true factor"] = record.truth_factor
    if record.excited is not None:
        pairs = zip(record.rows, match.permutation, strict=True)
        table["places shared"] = [record.excited.shared(int(i), int(j)) for i, j in pairs]
    return table


def least_certain(record: NeuronMatch, count: int = 20) -> pd.DataFrame:
    """The pairs with the smallest margins."""
    found = matched(record).drop(columns=["true B", "true factor"], errors="ignore")
    return found.iloc[np.argsort(record.match.margin, kind="stable")[:count]]


def columns(record: NeuronMatch) -> np.ndarray:
    """The recovered order of B's neurons, those without a partner last."""
    rest = np.setdiff1d(np.arange(record.sizes[1]), record.match.permutation)
    return np.concatenate([record.match.permutation, rest]).astype(np.int64)


def contexts(
    found: Excited, model: int, neuron: int, factor: float = 1.0
) -> list[tuple[float, str, str, str, int]]:
    """(value · factor, before, token, after, place) of the places that excite a neuron most."""
    length = found.text.shape[1]
    rows = []
    for place, value in zip(found.places[model][neuron], found.values[model][neuron], strict=True):
        window, position = divmod(int(place), length)
        line = [found.pieces[k] for k in found.text[window]]
        before = _joined(line[max(0, position - AROUND) : position])
        after = _joined(line[position + 1 : position + 1 + AROUND])
        rows.append((float(value) * factor, before, line[position], after, int(place)))
    return rows


def _joined(pieces: list[str]) -> str:
    """Tokens that bring their own spaces as they are, words without any with spaces between."""
    apart = "" if any(" " in piece for piece in pieces) else " "
    return apart.join(pieces)
