"""One number at every depth."""

import numpy as np
import plotly.graph_objects as go

from app.charts.theme import MINUS, PLUS, QUIET, Shade, arrange
from engine.records import ResidualMatch

SHORT = {"embedding": "emb"}


def depth_labels(depths: tuple[str, ...]) -> list[str]:
    """Short axis labels: "after layer 3" → "3", "embedding" → "emb"."""
    return [SHORT.get(depth, depth.removeprefix("after layer ")) for depth in depths]


def accuracy(record: ResidualMatch, look: Shade, selected: int | None = None) -> go.Figure:
    """Share of coordinates found at every depth: on C with its sign, and on |C|.

    Without a known truth, the share of pairs that choose each other instead.
    """
    figure = go.Figure()
    if record.signed_accuracy is None or record.absolute_accuracy is None or record.truth is None:
        mutual = np.array([match.mutual.mean() for match in record.absolute])
        _add(figure, record, mutual, "choose each other, on |C|", PLUS, "circle")
    else:
        _add(figure, record, record.absolute_accuracy, "on |C|", PLUS, "circle")
        _add(figure, record, record.signed_accuracy, "on C with its sign", MINUS, "diamond")
        ceiling = record.truth.positive_share
        figure.add_hline(
            y=ceiling,
            line={"color": QUIET, "width": 1.5, "dash": "dash"},
            annotation={
                "text": f"share of + signs: {ceiling:.1%}",
                "font": {"color": look.ink},
                "yanchor": "top",
            },
            annotation_position="bottom left",
        )
    if selected is not None:
        figure.add_vline(x=selected, line={"color": look.ink, "width": 1, "dash": "dot"})
    arrange(figure, look, 300)
    labels, step = depth_labels(record.depths), max(1, len(record.depths) // 12)
    ticks = list(range(0, len(labels), step))
    ticks = ticks if ticks[-1] == len(labels) - 1 else [*ticks[:-1], len(labels) - 1]
    figure.update_xaxes(
        title="depth: embedding, after layer …, pooled",
        tickvals=ticks,
        ticktext=[labels[tick] for tick in ticks],
        range=[-0.3, len(labels) - 0.7],
    )
    return figure.update_yaxes(title="share of coordinates", range=[0, 1.05], tickformat=".0%")


def _add(
    figure: go.Figure, record: ResidualMatch, y: np.ndarray, name: str, color: str, symbol: str
) -> None:
    figure.add_trace(
        go.Scatter(
            x=np.arange(len(record.depths), dtype=np.int32),
            y=np.asarray(y, dtype=np.float32),
            text=list(record.depths),
            mode="lines+markers",
            name=name,
            line={"color": color, "width": 2},
            marker={"symbol": symbol, "size": 8},
            hovertemplate="%{text}: %{y:.1%}<extra>" + name + "</extra>",
        )
    )
