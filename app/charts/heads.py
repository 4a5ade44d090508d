"""Head × head costs as a map that can be clicked, and the order of heads as two joined columns."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import altair as alt
import numpy as np
import pandas as pd

from app.charts.drawing import scaled
from app.charts.theme import FONT, MINUS, PLUS, QUIET, TRUTH, Shade
from app.sentences.numbers import number
from engine.records import HeadCost, HeadsReport

CLICK = "clicked"
"""Name of the selection that a click on a cell, or on a head, makes."""

Term = Literal["both", "query-key", "value-output"]
TERMS: tuple[Term, ...] = get_args(Term)
PRINTED = 12
"""Up to this many heads a cell also shows its number."""


@dataclass(frozen=True)
class Cell:
    """A head of A and a head of B."""

    a: int
    b: int


def relative(cost: HeadCost, term: Term = "both") -> np.ndarray:
    """A table of costs over its mean, float64 [heads, heads]."""
    parts = {"query-key": cost.query_key, "value-output": cost.value_output}
    table = np.asarray(parts.get(term, cost.total), np.float64)
    return table / max(float(table.mean()), 1e-300)


def cells(record: HeadsReport, cost: HeadCost, term: Term, recovered: bool) -> pd.DataFrame:
    """Every pair of heads with its cost; `x` is where B's head stands among the columns."""
    heads = record.heads
    place = np.argsort(record.order) if recovered else np.arange(heads)
    a, b = np.divmod(np.arange(heads * heads), heads)
    truth, values = record.planted_order, relative(cost, term).ravel()
    return pd.DataFrame({
        "a": a,
        "b": b,
        "x": place[b] - 0.5,
        "x2": place[b] + 0.5,
        "y": a - 0.5,
        "y2": a + 0.5,
        "middle": place[b],
        "cost": values.astype(np.float32),
        "shown": [number(float(x), 2) for x in values],
        "query–key": np.asarray(cost.query_key, np.float32).ravel(),
        "value–output": np.asarray(cost.value_output, np.float32).ravel(),
        "partner": record.order[a] == b,
        "truth": False if truth is None else truth[a] == b,
    })  # fmt: skip


def cost_map(
    record: HeadsReport, cost: HeadCost, term: Term, look: Shade, recovered: bool, chosen: Cell
) -> Any:
    """Costs over their mean, A down and B across; a click on a cell selects its two heads."""
    table = cells(record, cost, term, recovered)
    x, y = _across(record, recovered), _down(record)
    click = alt.selection_point(name=CLICK, fields=["a", "b"], toggle=False)
    tips = [
        alt.Tooltip("a:Q", title="head of A"),
        alt.Tooltip("b:Q", title="head of B"),
        alt.Tooltip("cost:Q", title="cost over the mean", format=".3g"),
        alt.Tooltip("query–key:Q", format=".3g"),
        alt.Tooltip("value–output:Q", format=".3g"),
    ]
    legend = alt.Legend(title=None, gradientThickness=8, gradientLength=120, format=".1f")
    top = max(float(relative(cost, term).max()), 1e-6)
    base = alt.Chart(table)
    area = base.mark_rect(cursor="pointer").encode(
        x, y, x2="x2:Q", y2="y2:Q", tooltip=tips,
        color=alt.Color("cost:Q", scale=scaled(look.sequential, 0.0, top), legend=legend),
    ).add_params(click)  # fmt: skip
    layers = [area, *_boundaries(record, look)]
    if record.heads <= PRINTED:
        layers.append(_numbers(base, look, top))
    layers += [_ring(base, "truth", TRUTH, 2.5), _ring(base, "partner", MINUS, 1.5)]
    on = (alt.datum.a == chosen.a) & (alt.datum.b == chosen.b)
    frame = base.transform_filter(on).mark_rect(fillOpacity=0, stroke=look.ink, strokeWidth=2.5)
    layers.append(frame.encode(x, y, x2="x2:Q", y2="y2:Q"))
    return alt.layer(*layers).properties(height=tall(record.heads))


def tall(heads: int) -> int:
    """Pixels of a picture with a row for each head."""
    return int(min(max(heads * 40, 200), 400)) + 50


def _across(record: HeadsReport, recovered: bool) -> alt.X:
    """Columns, named by B's heads."""
    places = np.arange(0, record.heads, max(1, record.heads // 16))
    names = record.order if recovered else np.arange(record.heads)
    words = {int(place): str(int(names[place])) for place in places}
    title = "head of B" + (", at the place of its partner" if recovered else "")
    axis = alt.Axis(values=list(words), labelExpr=f"{words}[datum.value]", title=title)
    return alt.X("x:Q", scale=_span(record.heads), axis=axis)


def _down(record: HeadsReport) -> alt.Y:
    values = list(range(0, record.heads, max(1, record.heads // 16)))
    axis = alt.Axis(values=values, title="head of A", format="d", labelPadding=6)
    return alt.Y("y:Q", scale=_span(record.heads, reverse=True), axis=axis)


def _span(heads: int, **more: Any) -> alt.Scale:
    return alt.Scale(domain=[-0.5, heads - 0.5], nice=False, zero=False, **more)


def _boundaries(record: HeadsReport, look: Shade) -> list[alt.Chart]:
    """Lines between key/value groups that hold more than one query head."""
    if record.per_group == 1:
        return []
    at = pd.DataFrame({"at": np.arange(1, record.groups) * record.per_group - 0.5})
    rule = alt.Chart(at).mark_rule(color=look.ink, strokeWidth=1, strokeDash=[4, 3])
    return [rule.encode(x="at:Q"), rule.encode(y="at:Q")]


def _numbers(base: alt.Chart, look: Shade, top: float) -> alt.Chart:
    dark, light = look.sequential[-1][1], look.sequential[0][1]
    ink = alt.condition(alt.datum.cost > 0.55 * top, alt.value(light), alt.value(dark))
    return base.mark_text(font=FONT, fontSize=11, dy=9).encode(
        x="middle:Q", y="a:Q", text="shown:N", color=ink
    )


def _ring(base: alt.Chart, column: str, colour: str, width: float) -> alt.Chart:
    """A mark on the cells where a column says so: a dot for the partner, a ring for the truth."""
    filled = column == "partner"
    point = base.transform_filter(alt.datum[column]).mark_point(
        shape="circle", size=45 if filled else 170, filled=filled, color=colour,
        opacity=1, strokeWidth=width, yOffset=-5,
    )  # fmt: skip
    return point.encode(x="middle:Q", y="a:Q")


def order_map(record: HeadsReport, look: Shade, chosen: int) -> Any:
    """Heads of A left, their partners in B right, key/value groups boxed, lines between them."""
    links, dots = _links(record), _dots(record, chosen)
    click = alt.selection_point(name=CLICK, fields=["a"], toggle=False)
    scale = alt.Scale(domain=["partner", "not the planted one", "planted"],
                      range=[PLUS, MINUS, TRUTH])  # fmt: skip
    colour = alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="top"))
    x = alt.X("x:Q", scale=alt.Scale(domain=[-0.3, 1.3], nice=False), axis=None)
    y = alt.Y("y:Q", scale=_span(record.heads, reverse=True), axis=None)
    lines = alt.Chart(links).mark_line(cursor="pointer").encode(
        x, y, colour, detail="link:N",
        strokeWidth=alt.condition(alt.datum.a == chosen, alt.value(4), alt.value(1.8)),
        strokeDash=alt.condition(alt.datum.kind == "planted", alt.value([3, 3]), alt.value([1, 0])),
        tooltip=["what:N", alt.Tooltip("margin:Q", format=".3g")],
    )  # fmt: skip
    rows = alt.Chart(dots)
    on = alt.condition(alt.datum.chosen, alt.value(170), alt.value(90))
    points = rows.mark_point(filled=True, color=look.ink, opacity=1, cursor="pointer")
    points = points.encode(x, y, size=on, tooltip=["name:N", "group:N"]).add_params(click)
    layers = [_groups(record, look), lines, points]
    beside: dict[str, dict[str, Any]] = {
        "A": {"align": "right", "dx": -12},
        "B": {"align": "left", "dx": 12},
    }
    for side, where in beside.items():
        text = rows.transform_filter(alt.datum.side == side).mark_text(
            font=FONT, color=look.ink, fontSize=12 if record.heads <= 24 else 8, **where
        )
        layers.append(text.encode(x, y, text="name:N"))
    return alt.layer(*layers).properties(height=tall(record.heads))


def _links(record: HeadsReport) -> pd.DataFrame:
    """Two ends of every line: partners, and the planted ones where they differ."""
    truth = record.planted_order
    found = []
    for a in range(record.heads):
        b = int(record.order[a])
        right = truth is None or int(truth[a]) == b
        pairs = [(b, "partner" if right else "not the planted one")]
        pairs += [] if truth is None or right else [(int(truth[a]), "planted")]
        for other, kind in pairs:
            row = {"a": a, "link": f"{kind} {a}", "kind": kind, "margin": float(record.margin[a]),
                   "what": f"A {a} ↔ B {other}"}  # fmt: skip
            found += [row | {"x": 0, "y": a}, row | {"x": 1, "y": other}]
    return pd.DataFrame(found)


def _dots(record: HeadsReport, chosen: int) -> pd.DataFrame:
    back = np.argsort(record.order)
    return pd.DataFrame([
        {
            "side": side, "x": x, "y": head, "name": f"{side} {head}",
            "a": head if side == "A" else int(back[head]),
            "group": f"key/value head {head // record.per_group}",
            "chosen": head == (chosen if side == "A" else int(record.order[chosen])),
        }
        for x, side in ((0, "A"), (1, "B"))
        for head in range(record.heads)
    ])  # fmt: skip


def _groups(record: HeadsReport, look: Shade) -> alt.Chart:
    """A box around the heads of each key/value head, on both sides."""
    boxes = pd.DataFrame([
        {
            "x": x - 0.22, "x2": x + 0.22, "name": f"key/value head {group}",
            "y": group * record.per_group - 0.42, "y2": (group + 1) * record.per_group - 0.58,
        }
        for x in (0, 1)
        for group in range(record.groups)
    ])  # fmt: skip
    x = alt.X("x:Q", scale=alt.Scale(domain=[-0.3, 1.3], nice=False), axis=None)
    y = alt.Y("y:Q", scale=_span(record.heads, reverse=True), axis=None)
    box = alt.Chart(boxes).mark_rect(
        cornerRadius=6, fill=look.grid, fillOpacity=0.35, stroke=QUIET, strokeWidth=1
    )
    return box.encode(x, y, x2="x2:Q", y2="y2:Q", tooltip=["name:N"])
