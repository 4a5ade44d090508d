"""The gap between replacing and swapping over saved steps or seeds, and what may go with it."""

import re
from typing import Any, Literal, get_args

import altair as alt
import numpy as np
import pandas as pd

from app.charts.layer_maps import FLOOR, rounded
from app.charts.measures import COLOURS, ends
from app.charts.theme import FONT, PLUS, QUIET, Shade
from engine.records import GapStep, GapTrajectory, Measure

ScaleOf = Literal["log ratio", "difference"]
SCALES: tuple[ScaleOf, ...] = get_args(ScaleOf)
TITLES = {"log ratio": "log₂(replace / swap)", "difference": "replace − swap, nats"}
TESTS = ("replace", "swap", "skip")
TALL = 260


def trained(record: GapTrajectory) -> bool:
    """Whether the models are steps of a training, not several models at one step."""
    steps = [step.step for step in record.steps]
    return any(
        re.search(r"(step|checkpoint)[-_]?\d+/?$", step.model) for step in record.steps
    ) and (len(set(steps)) == len(steps))


def ordered(record: GapTrajectory) -> tuple[GapStep, ...]:
    """The steps in the order of training; several models as they were given."""
    return tuple(sorted(record.steps, key=lambda s: s.step)) if trained(record) else record.steps


def label(record: GapTrajectory, step: GapStep) -> str:
    """What stands under a point: the step, or the model's name."""
    return f"{step.step:,}" if trained(record) else step.model.removeprefix("demo:")


def gap(step: GapStep, scale: ScaleOf) -> np.ndarray:
    """How far both tests lie apart, for each pair of adjacent layers, [layers − 1]."""
    replace, swap = (np.asarray(m.value, np.float64) for m in (step.replace, step.swap))
    if scale == "difference":
        return replace - swap
    return np.log2(np.maximum(replace, FLOOR) / np.maximum(swap, FLOOR))


def means(record: GapTrajectory, scale: ScaleOf) -> np.ndarray:
    """The mean gap over pairs, one value a step."""
    return np.array([float(np.nanmean(gap(step, scale))) for step in ordered(record)])


def gaps(record: GapTrajectory, scale: ScaleOf) -> pd.DataFrame:
    """The gap of every pair at every step, and the mean of each step."""
    found = []
    for place, step in enumerate(ordered(record)):
        values = rounded(gap(step, scale))
        at = {"place": place, "at": label(record, step), "step": step.step, "model": step.model}
        found += [{**at, "pair": f"{i} and {i + 1}", "gap": value, "mean": False}
                  for i, value in enumerate(values)]  # fmt: skip
        mean = _mean(gap(step, scale))
        found.append({**at, "pair": "mean of all pairs", "gap": mean, "mean": True})
    return pd.DataFrame(found)


def lines(record: GapTrajectory, scale: ScaleOf, look: Shade, published: bool) -> Any:
    """The gap of adjacent layers against the step: thin lines a pair, a thick one their mean."""
    table = gaps(record, scale)
    x = _across(record)
    y = alt.Y("gap:Q", title=TITLES[scale], axis=alt.Axis(grid=True, gridOpacity=0.3))
    tips = ["pair:N", "model:N", alt.Tooltip("gap:Q", format=".3g")]
    base = alt.Chart(table)
    pairs, mean = base.transform_filter("!datum.mean"), base.transform_filter("datum.mean")
    colour = QUIET if published else PLUS
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(color=look.ink, strokeDash=[5, 4])
    thin = pairs.mark_line(color=colour, strokeWidth=1, opacity=0.35)
    thick = mean.mark_line(color=colour, strokeWidth=3, point={"size": 70, "color": colour})
    if not trained(record):  # a line between models would say that one became the other
        thin = pairs.mark_point(color=colour, opacity=0.5, size=40)
        thick = mean.mark_tick(color=colour, thickness=4, size=46)
    return alt.layer(
        zero.encode(y="at:Q"),
        thin.encode(x, y, detail="pair:N", tooltip=tips),
        thick.encode(x, y, tooltip=tips),
    ).properties(height=TALL)


def _across(record: GapTrajectory) -> alt.X:
    order = [label(record, step) for step in ordered(record)]
    title = "training step" if trained(record) else "model"
    return alt.X("at:N", sort=order, title=title, axis=alt.Axis(labelAngle=0, labelLimit=90),
                 scale=alt.Scale(padding=0.3))  # fmt: skip


def tests(record: GapTrajectory) -> pd.DataFrame:
    """Mean KL over adjacent pairs of each test at each step; tests that were not run are left out.

    The interval of the mean is the mean of the intervals' ends: wider than one of the mean itself.
    """
    found = []
    for step in ordered(record):
        for test, measure in zip(TESTS, (step.replace, step.swap, step.skip), strict=True):
            if np.isnan(measure.value).all():
                continue
            low, high = (_mean(end) for end in ends(measure))
            found.append({"at": label(record, step), "step": step.step, "model": step.model,
                          "test": test, "KL": _mean(measure.value), "from": low,
                          "to": high})  # fmt: skip
    return pd.DataFrame(found, columns=["at", "step", "model", "test", "KL", "from", "to"])


def _mean(values: np.ndarray) -> float:
    known = np.asarray(values)[~np.isnan(values)]
    return float(rounded(known.mean(keepdims=True))[0]) if known.size else float("nan")


def compared(record: GapTrajectory) -> Any:
    """Mean KL of replacing, swapping and skipping adjacent layers against the step."""
    table = tests(record)
    names = [test for test in TESTS if test in set(table["test"])]
    colour = alt.Color(
        "test:N", scale=alt.Scale(domain=names, range=[COLOURS[name] for name in names]),
        legend=alt.Legend(title=None, orient="top", symbolOpacity=1),
    )  # fmt: skip
    values = table["KL"].to_numpy()
    low, high = float(values.min()), float(values.max())
    scale = alt.Scale(type="log", domain=[max(low, FLOOR) / 1.5, max(high, FLOOR) * 1.5])
    axis = alt.Axis(tickCount=4, format="~g")
    y = alt.Y("KL:Q", scale=scale, title="mean KL, nats (log)", axis=axis)
    tips = ["test:N", "model:N", alt.Tooltip("KL:Q", format=".3g")]
    base = alt.Chart(table).encode(_across(record))
    marks = [base.mark_point(filled=True, size=70, opacity=1).encode(y, color=colour, tooltip=tips)]
    if trained(record):
        marks.insert(0, base.mark_line(strokeWidth=2).encode(y, color=colour))
    return alt.layer(*marks).properties(height=TALL)


def properties(record: GapTrajectory, scale: ScaleOf) -> pd.DataFrame:
    """The properties of each model beside its mean gap."""
    return pd.DataFrame([
        {"at": label(record, step), "step": step.step, "model": step.model, "gap": float(gap),
         **step.properties}
        for step, gap in zip(ordered(record), means(record, scale), strict=True)
    ])  # fmt: skip


def scatter(record: GapTrajectory, name: str, scale: ScaleOf, look: Shade) -> Any:
    """One property of a model against its mean gap, one dot a model."""
    table = properties(record, scale)
    value, gaps = (rounded(table[column].to_numpy()) for column in (name, "gap"))
    table = pd.DataFrame({"value": value, "gap": gaps, "at": table["at"], "model": table["model"]})
    few = alt.Axis(tickCount=4, format="~g")
    x = alt.X("value:Q", title=name, scale=alt.Scale(zero=False, padding=36), axis=few)
    y = alt.Y("gap:Q", title=f"mean {TITLES[scale]}", scale=alt.Scale(zero=False, padding=14),
              axis=few)  # fmt: skip
    tips = ["model:N", alt.Tooltip("value:Q", format=".4g"), alt.Tooltip("gap:Q", format=".3g")]
    base = alt.Chart(table).encode(x, y)
    point = base.mark_point(filled=True, size=70, opacity=1, color=PLUS).encode(tooltip=tips)
    text = base.mark_text(font=FONT, fontSize=10, dx=8, dy=-7, align="left", color=look.ink)
    return alt.layer(point, text.encode(text="at:N")).properties(height=210)


def table(record: GapTrajectory) -> pd.DataFrame:
    """Every pair at every step: the three tests with their intervals, in nats."""
    found = []
    for step in ordered(record):
        for i in range(len(step.replace.value)):
            row: dict[str, Any] = {
                "model": step.model,
                "step": step.step,
                "layers": f"{i}, {i + 1}",
            }
            for test, measure in zip(TESTS, (step.replace, step.swap, step.skip), strict=True):
                row |= _cell(test, measure, i)
            found.append(row)
    return pd.DataFrame(found)


def _cell(test: str, measure: Measure, i: int) -> dict[str, float]:
    low, high = ends(measure)
    return {
        test: float(measure.value[i]),
        f"{test} from": float(low[i]),
        f"{test} to": float(high[i]),
    }
