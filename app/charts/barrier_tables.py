"""Barriers as tables: stage by stage, and every model at one t."""

import numpy as np
import pandas as pd

from app.charts.barriers import DIGITS, NAMES, TINY, WHATS, Quantity, drawn, label, quantity, ratio
from app.charts.measures import at, ends
from app.sentences.numbers import number
from engine.records import BarrierReport, Curve

UNITS = {"loss": "nats", "accuracy": "share"}


def stages(report: BarrierReport, of: Quantity, to: str = "none") -> pd.DataFrame:
    """Barrier, its share of the raw line's, where it stands, and how far the weights are apart."""
    return pd.DataFrame([
        {
            "stage": label(curve),
            f"barrier, {UNITS[of]}": at(curve.barrier(of)).said(DIGITS),
            f"% of {'raw' if to == 'none' else 'the first'}": share(report, curve.stage, of, to),
            "peak t": f"{curve.peak(of):.4g}",
            "distance": number(curve.distance, 3),
            "points": len(curve.t),
        }
        for curve in report.curves
    ])  # fmt: skip


def share(report: BarrierReport, stage: str, of: Quantity = "loss", to: str = "none") -> str:
    """One barrier over another in per cent with its interval; "–" where there is none."""
    one = ratio(report, stage, of, to)
    if stage == to or np.isnan(one.value):
        return "–"
    if one.value < TINY and (one.high or 0) < TINY:
        return f"below {TINY} %"
    said = f"{number(one.value)} %"
    if one.low is None or one.high is None:
        return said
    return f"{said} [{number(one.low)}, {number(one.high)}]"


def standing(report: BarrierReport, t: float) -> pd.DataFrame:
    """What every stage's model at t says."""
    return pd.DataFrame([
        {"stage": label(curve), **_values(curve, t)} for curve in report.curves
    ])  # fmt: skip


def _values(curve: Curve, t: float) -> dict[str, str]:
    place = int(np.abs(curve.t - t).argmin())
    if abs(float(curve.t[place]) - t) > 1e-6:
        missing = "not measured" if curve.complete else "not measured yet"
        return {"loss, nats": missing, "above the chord": "", "accuracy": "", "perplexity": ""}
    loss, accuracy = (at(curve.points(of), place) for of in ("loss", "accuracy"))
    return {
        "loss, nats": loss.said(DIGITS),
        "above the chord": at(curve.excess(), place).said(DIGITS),
        "accuracy": accuracy.said(DIGITS),
        "perplexity": number(float(np.exp(min(loss.value, 690.0))), 3),
    }


COLUMNS = (
    "In the CSV files, low and high are the ends of a 95 % interval, chord is the straight line "
    "between both ends, excess how much worse a model is than it."
)
"""What is said of the columns of the files."""


def every(report: BarrierReport) -> pd.DataFrame:
    """Every measured model with its readings and their intervals, for a file."""
    found = [pd.DataFrame({"stage": curve.stage, "t": curve.t, **_readings(curve)})
             for curve in report.curves]  # fmt: skip
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _readings(curve: Curve) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for what in WHATS:
        measure, chord = drawn(curve, what)
        low, high = ends(measure)
        found |= {what: measure.value, f"{what} low": low, f"{what} high": high}
        found[f"{what} chord"] = chord
        if what != "perplexity":
            found[f"{what} excess"] = curve.excess(quantity(what)).value
    return found


def every_stage(report: BarrierReport) -> pd.DataFrame:
    """Barrier of loss and accuracy, its share of the raw line's, place and distance, for a file."""
    return pd.DataFrame([
        {
            "stage": curve.stage, "name": NAMES[curve.stage], "complete": curve.complete,
            **_barrier(report, curve, "loss"), **_barrier(report, curve, "accuracy"),
            "distance": curve.distance, "points": len(curve.t),
        }
        for curve in report.curves
    ])  # fmt: skip


def _barrier(report: BarrierReport, curve: Curve, of: Quantity) -> dict[str, float]:
    return {
        **at(curve.barrier(of)).columns(f"{of} barrier"),
        **ratio(report, curve.stage, of).columns(f"{of} barrier, % of raw"),
        f"{of} peak t": curve.peak(of),
    }
