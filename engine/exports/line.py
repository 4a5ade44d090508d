"""Records of the line between two models as JSON documents."""

from typing import Any

import numpy as np

from engine.exports.documents import cleaned, intervals, numbers
from engine.records import BarrierReport, Curve, HeadOrders, LossSlice, MergeReport
from engine.summaries.line import computed


def of_barrier(record: BarrierReport) -> dict[str, Any]:
    """`t` is the grid; each stage's lists stand over it, added points under `finer`."""
    return cleaned({
        "a": record.a,
        "b": record.b,
        "scope": record.scope,
        "scrambled": record.scrambled,
        "moved": list(record.moved),
        "ends shared": record.shared,
        "using": record.using,
        "target": record.target,
        "loss of a blind guess": record.blind if record.classes else None,
        "text": record.run.text,
        "tokens": record.run.tokens,
        "windows": record.run.windows,
        "complete": record.complete,
        "t": numbers(record.grid),
        "stages": {
            one.stage: of_curve(one, record.grid) | _relative(record, one.stage)
            for one in record.curves
        },
        "models run": record.models,
        "seconds": record.run.seconds,
        "seconds aligning": record.aligning,
        "device": record.run.device,
    })  # fmt: skip


def of_curve(curve: Curve, grid: np.ndarray) -> dict[str, Any]:
    """Loss, accuracy, perplexity and barrier of one stage; null where a point is missing."""
    on = np.isin(curve.t, grid)
    places = np.searchsorted(grid, curve.t[on])
    found: dict[str, Any] = {"complete": curve.complete, "distance": curve.distance}
    for name in ("loss", "accuracy"):
        measure = curve.points(name)
        values = np.full(len(grid), np.nan)
        values[places] = measure.value[on]
        found[name] = numbers(values)
        barrier = curve.barrier(name)
        word = "barrier" if name == "loss" else "accuracy barrier"
        found |= {
            word: float(barrier.value),
            f"{word} interval": intervals(barrier),
            f"{word} at": curve.peak(name),
        }
        if measure.low is not None and measure.high is not None:
            both = np.full((len(grid), 2), np.nan)
            both[places] = np.stack([measure.low, measure.high], -1)[on]
            found[f"{name} interval"] = numbers(both)
    found["perplexity"] = numbers(np.exp(np.array(found["loss"], float)))
    if not on.all():
        rest = {name: curve.points(name).value[~on] for name in ("loss", "accuracy")}
        found["finer"] = {"t": numbers(curve.t[~on])} | {n: numbers(x) for n, x in rest.items()}
    return found


def _relative(record: BarrierReport, stage: str) -> dict[str, Any]:
    measure = record.relative(stage)
    if measure is None or stage == "none":
        return {}
    return {
        "relative to none": float(measure.value),
        "relative to none interval": intervals(measure),
    }


def of_merge(record: MergeReport) -> dict[str, Any]:
    """The loss and accuracy of A, the merge and the other end."""
    loss, right = (record.curve.points(name) for name in ("loss", "accuracy"))
    above = record.curve.excess("loss")
    return cleaned({
        "a": record.a,
        "b": record.b,
        "note": computed(record),
        "stage": record.curve.stage,
        "scope": record.scope,
        "scrambled": record.scrambled,
        "t": record.t,
        "target": record.target,
        "loss": dict(zip(("a", "merge", "other end"), numbers(loss.value), strict=True)),
        "accuracy": dict(zip(("a", "merge", "other end"), numbers(right.value), strict=True)),
        "apart": dict(zip(("a", "other end"), record.apart, strict=True)),
        "above the chord": record.above,
        "above the chord interval": None if above.low is None else intervals(above)[1],
        "parameters": record.parameters,
        "text": record.run.text,
        "tokens": record.run.tokens,
        "windows": record.run.windows,
        "seconds": record.run.seconds,
    })  # fmt: skip


def of_slice(record: LossSlice) -> dict[str, Any]:
    """The loss at every place of the grid, rows y, columns x."""
    return cleaned({
        "a": record.a,
        "b": record.b,
        "stage": record.stage,
        "scope": record.scope,
        "x": numbers(record.x),
        "y": numbers(record.y),
        "loss": numbers(record.loss),
        "accuracy": numbers(record.accuracy),
        "places": dict(zip(("a", "b", "aligned b"), numbers(record.places), strict=True)),
        "loss of the models": None if record.models is None else dict(
            zip(("a", "b", "aligned b"), numbers(record.models), strict=True)
        ),
        "lowest": dict(zip(("loss", "x", "y"), record.lowest, strict=True)),
        "length": record.length,
        "target": record.target,
        "complete": record.complete,
        "text": record.run.text,
        "tokens": record.run.tokens,
        "seconds": record.run.seconds,
    })  # fmt: skip


def of_orders(record: HeadOrders) -> dict[str, Any]:
    """Every order with its objective and its barrier; `chosen` is the alignment's."""
    barriers = [one.barrier() for one in record.curves]
    return cleaned({
        "a": record.a,
        "b": record.b,
        "layer": record.layer,
        "chosen": record.chosen,
        "orders in all": record.count,
        "naive barrier": float(record.naive.barrier().value),
        "orders": [list(order) for order in record.orders],
        "objective": numbers(record.objective),
        "barrier": numbers(np.array([float(one.value) for one in barriers])),
        "barrier interval": [intervals(one) for one in barriers],
        "complete": record.complete,
        "text": record.run.text,
        "tokens": record.run.tokens,
        "seconds": record.run.seconds,
    })  # fmt: skip
