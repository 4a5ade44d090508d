"""Related or not: how alike two matchings of the neurons are, and which layer is which."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.drawing import scaled
from app.charts.theme import MINUS, PLUS, QUIET, TRUTH, Shade
from app.sentences.numbers import number
from engine.records import Relatedness

TALL = 230
CONTROL = "random (control)"
COLOURS = {"as they stand": TRUTH, "embedding": PLUS, "activations": MINUS, CONTROL: QUIET}
"""One colour for a way to align the residual coordinates."""
PRINTED = 12
"""Up to this many layers a cell also shows its number."""


def named(coordinates: str) -> str:
    """How the residual coordinates were aligned; the random ones are the control."""
    return CONTROL if coordinates == "random" else coordinates


def correlations(record: Relatedness) -> pd.DataFrame:
    """Spearman's ρ of both matchings and the share matched alike, layer by layer, every test."""
    return pd.DataFrame([
        {
            "residual coordinates": named(test.coordinates),
            "pair": pair,
            "layers": between(record, pair),
            "rho": float(test.rho[pair]),
            "alike": float(test.agreeing[pair]),
            "log10 p": float(test.log10_p),
        }
        for test in record.tests
        for pair in range(len(test.rho))
    ])  # fmt: skip


def between(record: Relatedness, pair: int) -> str:
    """Which two layers were compared, A's first: "3", or "4 · 3" where depths differ."""
    other = int(record.layers[pair])
    if record.depths[0] == record.depths[1]:
        return str(other)
    i, j = (other, pair) if record.depths[0] > record.depths[1] else (pair, other)
    return f"{i} · {j}"


def tests(record: Relatedness, look: Shade) -> Any:
    """ρ of every pair of layers for every test; the control shows what unrelated looks like."""
    table = correlations(record)
    names = list(dict.fromkeys(table["residual coordinates"]))
    colour = alt.Color(
        "residual coordinates:N",
        scale=alt.Scale(domain=names, range=[COLOURS[name] for name in names]),
        legend=alt.Legend(orient="top", title="residual coordinates by", columns=4),
    )
    order = list(dict.fromkeys(table["layers"]))
    lowest = min(float(np.min(test.rho)) for test in record.tests)
    title = "layer" if record.depths[0] == record.depths[1] else "layers of A · B"
    axis = alt.Axis(labelAngle=0, values=order[:: max(1, len(order) // 12)])
    scale = alt.Scale(domain=[min(-0.3, lowest), 1.0], nice=False)
    rho = alt.Axis(grid=True, gridOpacity=0.3, tickCount=5)
    points = alt.Chart(table).mark_point(filled=True, size=70, opacity=0.9).encode(
        alt.X("layers:N", sort=order, title=title, axis=axis),
        alt.Y("rho:Q", title="Spearman's ρ", scale=scale, axis=rho),
        colour,
        shape=alt.Shape("residual coordinates:N", sort=names, legend=None),
        tooltip=["residual coordinates:N", "layers:N", alt.Tooltip("rho:Q", format=".3f"),
                 alt.Tooltip("alike:Q", format=".1%", title="neurons alike")],
    )  # fmt: skip
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(color=look.ink, strokeDash=[5, 4])
    return alt.layer(zero.encode(y="at:Q"), points).properties(height=TALL)


def cells(record: Relatedness) -> pd.DataFrame:
    """How alike every layer of A is to every layer of B; which pairs the placement takes."""
    assert record.likeness is not None
    values = np.asarray(record.likeness, np.float64)
    i, j = (index.ravel() for index in np.indices(values.shape))
    taken = set(partners(record))
    return pd.DataFrame({
        "A": i, "B": j, "alike": values.ravel(),
        "taken": [pair in taken for pair in zip(i.tolist(), j.tolist(), strict=True)],
    })  # fmt: skip


def partners(record: Relatedness) -> list[tuple[int, int]]:
    """The pairs of layers (of A, of B) that the placement takes."""
    pairs = enumerate(int(layer) for layer in record.layers)
    if record.depths[0] > record.depths[1]:
        return [(layer, k) for k, layer in pairs]
    return list(pairs)


def likeness(record: Relatedness, look: Shade) -> Any:
    """The share of neurons that find one another, layer × layer; dots mark the placement."""
    table = cells(record)
    top = max(float(np.max(np.asarray(record.likeness))), 4 / min(record.neurons))
    colour = alt.Color(
        "alike:Q", scale=scaled(look.sequential, 0, top),
        legend=alt.Legend(title="alike", format=".0%", gradientLength=120, tickCount=4),
    )  # fmt: skip
    x, y = (
        alt.X("B:O", title="layer of B", axis=_thin(record.depths[1])),
        alt.Y("A:O", title="layer of A", axis=_thin(record.depths[0])),
    )
    tips = ["A:O", "B:O", alt.Tooltip("alike:Q", format=".1%"), "taken:N"]
    area = alt.Chart(table).mark_rect(stroke=look.grid, strokeWidth=0.5)
    dots = alt.Chart(table[table["taken"]]).mark_point(
        filled=False, color=MINUS, size=260, strokeWidth=2.5, shape="square"
    )
    layers = [area.encode(x, y, colour, tooltip=tips), dots.encode(x, y, tooltip=tips)]
    if max(record.depths) <= PRINTED:
        table["shown"] = [number(100 * value) for value in table["alike"]]
        dark = alt.condition(
            alt.datum.alike > 0.6 * top, alt.value(look.surface), alt.value(look.ink)
        )
        words = alt.Chart(table).mark_text(fontSize=10)
        layers.insert(1, words.encode(x, y, text="shown:N", color=dark))
    return alt.layer(*layers).properties(height=alt.Step(26))


def _thin(count: int) -> alt.Axis:
    return alt.Axis(labelAngle=0, values=list(range(0, count, max(1, count // 12))))
