"""A layer's heads against themselves in disguise: what each cost says, and what the model says."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.theme import MINUS, PLUS, Shade
from engine.records import HeadsReport

FLOOR = 1e-12
"""What is smaller is rounding, and drawn here."""
TOP = 10.0
UNRELATED = 2.0
"""Cost of two unrelated heads of one size, over the size of one."""
LABELS = f"datum.value <= {FLOOR} ? '0' : datum.value < 1 ? format(datum.value, '.0e') : '1'"
TITLE = "cost between queries and keys, over ‖M‖² of the head"
NAMES = {
    "matrix": "any matrix",
    "exchange": "frequencies exchanged",
    "turn": "frequencies turned",
}
OURS, PUBLISHED = "ours", "published"


def costs(record: HeadsReport) -> pd.DataFrame:
    """One row for each disguise, cost and head."""
    found = [
        {"disguise": NAMES[one.kind], "by": by, "head": head, "cost": float(cost),
         "drawn": float(np.clip(cost, FLOOR, TOP))}
        for one in record.disguises
        for by, values in ((OURS, one.own), (PUBLISHED, one.published))
        for head, cost in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(found, columns=["disguise", "by", "head", "cost", "drawn"])


def chart(record: HeadsReport, look: Shade) -> Any:
    """The cost of every head against itself disguised, on a logarithmic scale that has a zero."""
    ends = [FLOOR / 10, TOP * 3]
    ticks = [FLOOR, 1e-9, 1e-6, 1e-3, 1.0]
    axis = alt.Axis(
        values=ticks,
        labelExpr=LABELS,
        grid=True,
        gridOpacity=0.3,
    )
    scale = alt.Scale(type="log", domain=ends, nice=False)
    colour = alt.Color(
        "by:N", scale=alt.Scale(domain=[OURS, PUBLISHED], range=[PLUS, MINUS]),
        legend=alt.Legend(title=None, orient="top"),
    )  # fmt: skip
    order = [NAMES[one.kind] for one in record.disguises]
    points = alt.Chart(costs(record)).mark_point(filled=True, size=80, opacity=0.75).encode(
        alt.X("drawn:Q", scale=scale, axis=axis, title=TITLE),
        alt.Y("disguise:N", sort=order, title=None, axis=alt.Axis(labelLimit=200, labelPadding=8)),
        colour,
        yOffset=alt.YOffset("by:N", sort=[OURS, PUBLISHED]),
        shape=alt.Shape("by:N", scale=alt.Scale(domain=[OURS, PUBLISHED],
                                                range=["circle", "diamond"])),
        tooltip=["disguise:N", "by:N", "head:O", alt.Tooltip("cost:Q", format=".3g")],
    )  # fmt: skip
    rule = alt.Chart(pd.DataFrame({"at": [UNRELATED]}))
    line = rule.mark_rule(color=look.ink, strokeDash=[5, 4], opacity=0.6).encode(x="at:Q")
    return alt.layer(line, points).properties(height=64 * len(order))


def table(record: HeadsReport) -> pd.DataFrame:
    """One row for each disguise: both costs at their largest, and how far the output moved."""
    return pd.DataFrame({
        "disguise": [NAMES[one.kind] for one in record.disguises],
        "published": [float(one.published.max()) for one in record.disguises],
        "ours": [float(one.own.max()) for one in record.disguises],
        "output moved": [one.error for one in record.disguises],
        "KL, nats": [one.divergence for one in record.disguises],
        "output": [one.output for one in record.disguises],
    })  # fmt: skip
