"""The objective of an alignment against its sweeps; the loss half way, stage by stage."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from app.charts.objectives import COLOURS
from app.charts.theme import MINUS, PLUS, QUIET, TRUTH, Shade
from app.sentences.numbers import number
from engine.records import AlignmentReport, Midpoint, Sweep

TALL = 260
REFINED, CONTROL = "refined", "refined without matching"
"""The last two midpoints: the end, and the same from the identity."""
FAR, LEAST = 1e-2, 1e-16
"""Below this share of the start the axis is logarithmic; the least objective that it shows."""
LINES = ("after the matching", "without matching (control)")


def stored(sweeps: Sequence[Sweep]) -> float:
    """The objective as the files stand: where the first start, the identity, arrives."""
    return sweeps[0].before


def steps(sweeps: Sequence[Sweep]) -> str:
    """What stands at the steps that are drawn."""
    if all(sweep.number == 0 for sweep in sweeps):
        return "0 on arrival, 1 after its only sweep"
    return "whole steps solve all that is inside layers, half steps the residual coordinates"


def far(sweeps: Sequence[Sweep]) -> bool:
    """Whether the ends are so far below the start that only a logarithm shows them."""
    return chosen(sweeps).after < FAR * stored(sweeps)


def chosen(sweeps: Sequence[Sweep]) -> Sweep:
    """The sweep that ends lowest: where the alignment is taken from."""
    return min(sweeps, key=lambda sweep: sweep.after)


def points(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """The objective on arrival, after each sweep and after each new residual assignment.

    A sweep takes a whole step; between two sweeps the residual coordinates are solved anew.
    """
    found = []
    for sweep in sweeps:
        at = sweep.number + (0.5 if sweep.number else 0.0)
        what = "residual solved anew" if sweep.number else "on arrival"
        ends = ((at, what, sweep.before), (sweep.number + 1.0, "after the sweep", sweep.after))
        for place, step, value in ends:
            found.append({"start": sweep.start, "sweep": place, "step": step, "objective": value,
                          "distance": sweep.distance if place > at else None})  # fmt: skip
    return pd.DataFrame(found, columns=["start", "sweep", "step", "objective", "distance"])


def objective(sweeps: Sequence[Sweep], look: Shade) -> Any:
    """One line for each start; dashed the value of the identity, a diamond the lowest end."""
    table, end = points(sweeps), chosen(sweeps)
    table["height"] = table["objective"].clip(lower=LEAST)
    names = list(dict.fromkeys(table["start"]))
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(names))]
    colour = alt.Color(
        "start:N", scale=alt.Scale(domain=names, range=colours),
        legend=alt.Legend(title="start", orient="top", columns=4),
    )  # fmt: skip
    last = max(sweep.number for sweep in sweeps) + 1.0
    axis = alt.Axis(format="d", tickMinStep=1, values=list(range(int(last) + 1))[:: _every(last)])
    across = alt.Scale(domain=[-0.02 * last, 1.02 * last], nice=False)
    x = alt.X("sweep:Q", title="sweeps", axis=axis, scale=across)
    y = _height(sweeps)
    tips = ["start:N", "sweep:Q", "step:N", alt.Tooltip("objective:Q", format=".4g")]
    lines = alt.Chart(table).mark_line(point={"size": 50}, strokeWidth=2.5).encode(
        x, y, colour, tooltip=tips
    )  # fmt: skip
    rule = alt.Chart(pd.DataFrame({"height": [stored(sweeps)]})).mark_rule(
        color=look.ink, strokeDash=[5, 4]
    )
    height = max(end.after, LEAST)
    best = pd.DataFrame([{"sweep": end.number + 1.0, "height": height, "start": end.start}])
    mark = alt.Chart(best).mark_point(
        shape="diamond", size=260, filled=False, strokeWidth=2.5, color=look.ink
    )
    return alt.layer(rule.encode(y), lines, mark.encode(x, y)).properties(height=TALL)


def _height(sweeps: Sequence[Sweep]) -> alt.Y:
    """The axis of the objective: from 0, of what is there, or logarithmic."""
    axis = {"grid": True, "gridOpacity": 0.3}
    if far(sweeps):
        power = alt.Axis(format=".0e", tickCount=6, **axis)
        return alt.Y("height:Q", title="objective", scale=alt.Scale(type="log"), axis=power)
    low = chosen(sweeps).after < 0.5 * stored(sweeps)
    scale = alt.Scale(zero=low, padding=8)
    return alt.Y("height:Q", title="objective", scale=scale, axis=alt.Axis(**axis))


def _every(last: float) -> int:
    return max(1, int(last) // 10)


def losses(found: Sequence[Sequence[float]], look: Shade) -> Any:
    """The loss half way on the text that a refinement reads, step by step, and of the control."""
    table = pd.DataFrame([
        {"step": step, "loss": loss, "from": name}
        for name, values in zip(LINES, found, strict=False)
        for step, loss in enumerate(values)
    ], columns=["step", "loss", "from"])  # fmt: skip
    colour = alt.Color(
        "from:N", scale=alt.Scale(domain=list(LINES), range=[PLUS, MINUS]),
        legend=alt.Legend(title=None, orient="top", labelLimit=220),
    )  # fmt: skip
    axis = alt.Axis(grid=True, gridOpacity=0.3, gridColor=look.grid)
    return alt.Chart(table).mark_line(strokeWidth=2).encode(
        alt.X("step:Q", title="step", axis=alt.Axis(format="d", tickMinStep=1)),
        alt.Y("loss:Q", title="loss half way, nats", scale=alt.Scale(zero=False), axis=axis),
        colour,
        tooltip=["from:N", "step:Q", alt.Tooltip("loss:Q", format=".3f")],
    ).properties(height=TALL)  # fmt: skip


def half_way(report: AlignmentReport) -> pd.DataFrame:
    """The loss half way at every stage, and how far it lies above the chord."""
    return pd.DataFrame([
        {"stage": point.stage, "loss": point.loss, "above": point.above, "kind": _kind(point),
         "chord": point.loss - point.above, "shown": f"{point.above:+.3f}".replace("-", "−")}
        for point in report.midpoints
    ])  # fmt: skip


def _kind(point: Midpoint) -> str:
    if point.stage in {REFINED, CONTROL}:
        return point.stage
    return "matched" if point.stage.startswith("with ") else point.stage


def midpoints(report: AlignmentReport, look: Shade) -> Any:
    """Nats above the chord at every stage; the dashed line is the chord."""
    table = half_way(report)
    kinds = {"unaligned": QUIET, "matched": PLUS, REFINED: TRUTH, CONTROL: MINUS}
    colour = alt.Color(
        "kind:N", legend=None, scale=alt.Scale(domain=list(kinds), range=list(kinds.values()))
    )
    above = [point.above for point in report.midpoints]
    reach = max(*map(abs, above), 1e-3)
    low = min(0.0, *above) - 0.02 * reach
    x = alt.X("above:Q", title="nats above the chord (dashed)",
              scale=alt.Scale(domain=[low, 1.18 * reach], nice=False),
              axis=alt.Axis(grid=True, gridOpacity=0.3))  # fmt: skip
    y = alt.Y("stage:N", sort=list(table["stage"]), title=None, axis=alt.Axis(labelLimit=170))
    tips = ["stage:N", alt.Tooltip("loss:Q", format=".4f"), alt.Tooltip("above:Q", format="+.4f"),
            alt.Tooltip("chord:Q", format=".4f")]  # fmt: skip
    bars = alt.Chart(table).mark_bar(size=16).encode(x, y, colour, tooltip=tips)
    words = alt.Chart(table).mark_text(align="left", dx=5, color=look.ink, fontSize=11)
    chord = alt.Chart(pd.DataFrame({"above": [0.0]})).mark_rule(color=look.ink, strokeDash=[5, 4])
    return alt.layer(
        bars, words.encode(x, y, text="shown:N"), chord.encode(x="above:Q")
    ).properties(height=alt.Step(24))


def kept(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """Every sweep as a row."""
    return pd.DataFrame([
        {"start": s.start, "sweep": s.number + 1, "objective before": s.before,
         "objective after": s.after, "distance of weights": s.distance,
         "seconds": number(s.seconds)}
        for s in sweeps
    ])  # fmt: skip
