"""Experts of a layer: costs of all pairs, how their neurons match, what merging them costs."""

from typing import Any, Literal, get_args

import altair as alt
import numpy as np
import pandas as pd

from app.charts.drawing import scaled
from app.charts.theme import FONT, MINUS, PLUS, QUIET, TRUTH, Shade
from app.sentences.numbers import number
from engine.records import ExpertsReport, Toll

Term = Literal["both", "router", "content"]
TERMS: tuple[Term, ...] = get_args(Term)
PRINTED = 12
"""Up to this many experts a cell also shows its number."""
SHARES = (0, 5, 25, 50, 75, 95, 100)
"""Percentiles of the neurons of an expert."""
KEPT, ONE, GONE = "both rows kept", "one row", "one removed"
ALIGNED, STORED = "partners aligned", "as numbered"
COLOURS = (PLUS, MINUS, TRUTH)


def costs(record: ExpertsReport, term: Term) -> np.ndarray:
    """The table of a term, float [experts, experts]: 0 is one expert in two bases."""
    return {"router": record.router, "content": record.content}.get(term, record.cost)


def cells(record: ExpertsReport, term: Term) -> pd.DataFrame:
    """Every pair of experts with its costs."""
    count = record.experts
    a, b = np.divmod(np.arange(count * count), count)
    truth, values = record.planted_order, costs(record, term).ravel()
    partner = np.zeros(count * count, bool) if record.same_model else record.order[a] == b
    return pd.DataFrame({
        "a": a,
        "b": b,
        "cost": values.astype(np.float32),
        "shown": [number(float(x)) for x in values],
        "router": np.asarray(record.router, np.float32).ravel(),
        "content": np.asarray(record.content, np.float32).ravel(),
        "partner": partner,
        "truth": False if truth is None else truth[a] == b,
    })  # fmt: skip


def cost_map(record: ExpertsReport, term: Term, look: Shade) -> Any:
    """Costs of all pairs, A down and B across; dots on partners, rings on the planted truth."""
    top = max(float(costs(record, term).max()), 1e-6)
    step = max(1, record.experts // 16)
    axis = alt.Axis(values=list(range(0, record.experts, step)), labelAngle=0)
    across = "other expert" if record.same_model else "expert of B"
    x = alt.X("b:O", title=across, axis=axis)
    y = alt.Y("a:O", title="expert" if record.same_model else "expert of A", axis=axis)
    tips = [
        alt.Tooltip("a:O", title="expert of A"),
        alt.Tooltip("b:O", title=across),
        *(alt.Tooltip(f"{name}:Q", format=".3g") for name in ("cost", "router", "content")),
    ]
    legend = alt.Legend(title=None, gradientThickness=8, gradientLength=120, format=".1f")
    base = alt.Chart(cells(record, term)).encode(x, y)
    colour = alt.Color("cost:Q", scale=scaled(look.sequential, 0.0, top), legend=legend)
    layers = [base.mark_rect().encode(colour, tooltip=tips)]
    if record.experts <= PRINTED:
        dark, light = look.sequential[-1][1], look.sequential[0][1]
        ink = alt.condition(alt.datum.cost > 0.55 * top, alt.value(light), alt.value(dark))
        text = base.mark_text(font=FONT, fontSize=11, dy=9).encode(text="shown:N", color=ink)
        layers.append(text)
    layers += [_mark(base, "truth", TRUTH, 170), _mark(base, "partner", MINUS, 45)]
    return alt.layer(*layers).properties(height=tall(record.experts))


def tall(rows: int, each: int = 40) -> int:
    """Pixels of a picture with so many rows."""
    return int(min(max(rows * each, 160), 400)) + 50


def _mark(base: alt.Chart, column: str, colour: str, size: int) -> alt.Chart:
    filled = column == "partner"
    return base.transform_filter(alt.datum[column]).mark_point(
        shape="circle", size=size, filled=filled, color=colour, opacity=1, strokeWidth=2, yOffset=-5
    )


def percentiles(record: ExpertsReport) -> pd.DataFrame:
    """How much alike the matched neurons of each expert are, by percentiles."""
    found = np.percentile(record.alike.astype(np.float64), SHARES, axis=1)
    table = pd.DataFrame({f"p{share}": row for share, row in zip(SHARES, found, strict=True)})
    table.insert(0, "expert", np.arange(record.experts))
    table.insert(1, "partner", record.partner)
    return table


def likeness(record: ExpertsReport, look: Shade) -> Any:
    """One bar an expert: all its neurons, 5 to 95 and 25 to 75 per cent of them, the median."""
    base = alt.Chart(percentiles(record))
    x = alt.X("expert:O", title="expert of A", axis=alt.Axis(labelAngle=0))
    low = float(min(record.alike.min(), 0))
    scale = alt.Scale(domain=[low, 1.02], nice=False)

    def y(name: str) -> alt.Y:
        return alt.Y(f"{name}:Q", scale=scale, title="alike", axis=alt.Axis(grid=True))

    shares = (alt.Tooltip(f"p{p}:Q", title=f"{p} %", format=".3f") for p in SHARES)
    tips = ["expert:O", "partner:O", *shares]
    bars = [
        base.mark_rule(color=QUIET, strokeWidth=1).encode(x, y("p0"), y2="p100:Q", tooltip=tips),
        base.mark_bar(color=PLUS, opacity=0.35, size=8).encode(
            x, y("p5"), y2="p95:Q", tooltip=tips
        ),
        base.mark_bar(color=PLUS, opacity=0.7, size=16).encode(
            x, y("p25"), y2="p75:Q", tooltip=tips
        ),
        base.mark_tick(color=look.ink, thickness=2, size=22).encode(x, y("p50"), tooltip=tips),
    ]
    return alt.layer(*bars).properties(height=240)


def partners(record: ExpertsReport) -> pd.DataFrame:
    """Every expert of A with its partner, both costs, how well it is known, and what is left."""
    here = np.arange(record.experts)
    j = record.partner
    other = "nearest other" if record.same_model else "expert of B"
    table = pd.DataFrame({
        "expert" if record.same_model else "expert of A": here,
        other: j,
        "router cost": record.router[here, j],
        "content cost": record.content[here, j],
        "neurons alike": record.alike.mean(1),
        "before": record.before,
        "left": record.left,
    })  # fmt: skip
    if not record.same_model:
        table.insert(4, "margin", record.margin)
        if not np.array_equal(record.by_router, record.by_content):
            table["by router"] = record.by_router
            table["by content"] = record.by_content
    if record.planted_order is not None:
        table["planted"] = record.planted_order
    if record.usage is not None:
        table["visited by"] = record.usage
    return table


def changes(record: ExpertsReport) -> pd.DataFrame:
    """What every change of A that was run costs: which, how, KL and loss."""
    found: list[pd.DataFrame] = []
    pairs = [f"{i} with {j}" for i, j in record.pairs]
    single = [f"{i}" for i in range(record.experts)]
    for names, how, toll in (
        (pairs, KEPT, record.merged),
        (pairs, ONE, record.single),
        (single, GONE, record.removal),
        ([*single, "all"], ALIGNED, record.halfway),
        ([*single, "all"], STORED, record.halfway_stored),
    ):
        if toll is not None:
            found.append(_costed(names, how, toll))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _costed(names: list[str], how: str, toll: Toll) -> pd.DataFrame:
    rows = [_named(name, how) for name in names]
    return pd.DataFrame({"change": rows, "how": how, "KL": toll.kl, "loss": toll.loss})


def tolls(record: ExpertsReport, look: Shade) -> Any:
    """KL of every change as a dot, on a scale that has room for 0; the cheapest name on top."""
    table = changes(record)
    named = set(table["how"].tolist())
    kinds = [kind for kind in (KEPT, ONE, GONE, ALIGNED, STORED) if kind in named]
    order = table["change"].tolist()
    if record.same_model:
        order = [order[k] for k in np.argsort(table["KL"].to_numpy(), kind="stable")]
    order = list(dict.fromkeys(order))
    scale = alt.Scale(type="symlog", constant=1e-4, domainMin=-2e-5)
    top = 2 * float(table["KL"].to_numpy().max())
    marks = [x for x in (0, 1e-4, 1e-3, 1e-2, 0.1, 1, 10) if x <= top]
    axis = alt.Axis(values=marks, format="~g", grid=True, gridColor=look.grid)
    chart = alt.Chart(table).mark_point(filled=True, size=80, opacity=0.9).encode(
        x=alt.X("KL:Q", scale=scale, axis=axis, title="KL(A ‖ changed A), nats a token"),
        y=alt.Y("change:N", sort=order, title=None, axis=alt.Axis(labelLimit=220)),
        color=alt.Color("how:N", scale=alt.Scale(domain=kinds, range=list(COLOURS[: len(kinds)])),
                        legend=alt.Legend(title=None, orient="top")),
        tooltip=["change:N", "how:N", alt.Tooltip("KL:Q", format=".3g"),
                 alt.Tooltip("loss:Q", title="Δ loss", format="+.3g")],
    )  # fmt: skip
    return chart.properties(height=tall(len(order), 24))


def _named(name: str, how: str) -> str:
    if how in {KEPT, ONE}:
        return f"merge {name}"
    if how == GONE:
        return f"without {name}"
    return "all, and the router" if name == "all" else f"expert {name}"
