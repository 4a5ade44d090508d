"""Records of layers as the JSON documents that the command line writes and the pages offer."""

from typing import Any

import numpy as np

from engine.exports.documents import cleaned, intervals, numbers
from engine.records import CutReport, GapTrajectory, LayerMaps, PublishedMaps, plain


def of_maps(record: LayerMaps) -> dict[str, Any]:
    """Every map by name: KL in nats, [i][j] for depth i running layer j; null: not measured."""
    found: dict[str, Any] = {
        "model": record.model,
        "fingerprint": record.fingerprint,
        "text": record.run.text,
        "tokens": record.run.tokens,
        "windows": record.run.windows,
        "aggregate": record.run.aggregate,
        "layers": record.layers,
        "kinds": list(record.kinds),
        "direction": "KL(base‖modified)",
        "complete": record.complete,
    }
    for name, readings in record.tests.items():
        measure = readings.measure("kl")
        found[name] = numbers(measure.value)
        found |= {f"{name} interval": intervals(measure)} if measure.low is not None else {}
        found[f"{name} loss"] = numbers(readings.measure("loss").value)
        found[f"{name} agreement"] = numbers(readings.measure("agreement").value)
    found["loss"] = numbers(record.base.measure("loss").value)
    found |= {n: numbers(getattr(record, n)) for n in ("influence", "angular", "cka")}
    found["layers run"] = {"done": record.passes, "least": record.bound, "whole": record.whole}
    return found | {"seconds": record.run.seconds, "device": record.run.device}


def of_published(record: PublishedMaps) -> dict[str, Any]:
    """Published maps under the names of those made here; a layer and itself differ by 0."""
    found: dict[str, Any] = {
        "model": record.model,
        "published": record.source,
        "note": record.note,
        "aggregate": record.aggregate,
        "layers": record.layers,
        "direction": "KL(base‖modified)",
    }
    for name in ("replace", "swap"):
        measure = getattr(record, name)
        if measure is not None:
            same = np.eye(record.layers, dtype=bool)
            found[name] = numbers(np.where(same, 0.0, measure.value))
    return found | ({} if record.removal is None else {"removal": numbers(record.removal.value)})


def of_cut(record: CutReport) -> dict[str, Any]:
    """Every candidate with its sets and what they cost, and the cost of each layer alone."""
    return {
        "model": record.model,
        "layers": record.layers,
        "text": record.run.text,
        "windows": record.run.windows,
        "complete": record.complete,
        "candidates": [
            {
                "by": one.by,
                "dropped": [list(some) for some in one.sets],
                "kl": numbers(one.readings.measure("kl").value),
                "kl interval": intervals(one.readings.measure("kl")),
                "loss": numbers(one.readings.measure("loss").value),
                "loss interval": intervals(one.readings.measure("loss")),
                "stacks run to choose": one.forwards,
                "stopped": one.stopped,
            }
            for one in record.candidates
        ],
        "single": {
            "kl": numbers(record.single.measure("kl").value),
            "loss": numbers(record.single.measure("loss").value),
        },
        "scores": {name: numbers(value) for name, value in record.scores.items()},
        "seconds": record.run.seconds,
    }


def of_gap(record: GapTrajectory) -> dict[str, Any]:
    """Every step as it is recorded."""
    return cleaned(plain(record))
