"""Maps of layers as tables."""

import numpy as np
import pandas as pd

from app.charts.layer_maps import Maps, Pair
from app.charts.measures import at, ends, percent, rise
from engine.records import LayerMaps, Readings


def pairs(maps: Maps) -> pd.DataFrame:
    """Every measured pair, one row a test and direction, in nats."""
    found = []
    for test, measure in maps.pairs.items():
        low, high = ends(measure)
        for i, j in np.argwhere(~np.isnan(np.asarray(measure.value))):
            at = int(i), int(j)
            found.append({"test": test, "depth i": at[0], "layer j": at[1],
                          "KL": float(measure.value[at]), "from": float(low[at]),
                          "to": float(high[at])})  # fmt: skip
    columns = ["test", "depth i", "layer j", "KL", "from", "to"]
    return pd.DataFrame(found, columns=columns)


def pair(maps: Maps, chosen: Pair, record: LayerMaps | None) -> pd.DataFrame:
    """Both directions of every test of a pair, with intervals; perplexity where it was measured."""
    found = []
    for test, measure in maps.pairs.items():
        for words, i, j in _ways(test, chosen):
            row = {"test": words, "KL, nats": at(measure, i, j).text}
            if record is not None:
                row |= _more(record, record.tests[test], (i, j))
            found.append(row)
    return pd.DataFrame(found)


def _ways(test: str, chosen: Pair) -> list[tuple[str, int, int]]:
    """A test of a pair in words, with its cell: i ← j is depth i running layer j."""
    i, j = chosen.i, chosen.j
    words = test.replace("-", ", ")
    if test.startswith("replace"):
        return [(f"{words} {a} ← {b}", a, b) for a, b in ((i, j), (j, i))]
    low, high = min(i, j), max(i, j)
    sign = "→ after" if test == "skip" else "↔" if test.startswith("swap") else "and"
    return [(f"{words} {low} {sign} {high}", low, high)]


def _more(record: LayerMaps, readings: Readings, cell: tuple[int, int]) -> dict[str, str]:
    """How far the perplexity of one cell rises, and how often its likeliest token is the base's."""
    own = Readings(
        readings.kl[cell], readings.loss[cell], readings.agreement[cell], readings.positions
    )
    same = float(own.measure("agreement").value)
    return {
        "perplexity": percent(at(rise(own, record.base))),
        "same token": "not measured" if np.isnan(same) else f"{same:.0%}",
    }


def layers(maps: Maps, scores: dict[str, np.ndarray]) -> pd.DataFrame:
    """Every layer: its kind, what leaving it out costs, its influence, its scores."""
    table = pd.DataFrame({"layer": np.arange(maps.layers), "kind": maps.kinds})
    for name, measure in maps.singles.items():
        table[name] = np.asarray(measure.value, np.float64)
    if maps.influence is not None:
        table["block influence"] = np.asarray(maps.influence, np.float64)
    for name, score in scores.items():
        table[name] = score
    return table
