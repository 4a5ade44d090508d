"""Barriers as tables: stage by stage, and every model at one t."""

import numpy as np
import pandas as pd

from app.charts.barriers import DIGITS, TINY, Quantity, label, points, ratio
from app.charts.measures import at
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


def every(report: BarrierReport) -> pd.DataFrame:
    """Every measured model with both readings, for a file."""
    loss, accuracy = (points(report, what) for what in ("loss", "accuracy"))
    told = loss.drop(columns="shown").rename(columns={"value": "loss"})
    more = {f"accuracy {end}": accuracy[end] for end in ("from", "to", "chord", "excess")}
    return pd.concat([told, pd.DataFrame({"accuracy": accuracy["value"], **more})], axis=1)
