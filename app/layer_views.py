"""Maps of layers in one form, whether they were made here or published."""

import hashlib
from dataclasses import dataclass

import numpy as np

from app.charts.layer_maps import Maps
from app.charts.measures import apart
from engine.layers import selection
from engine.layers.selection import How
from engine.layers.stacks import Cell, cells
from engine.records import LayerMaps, Measure, PublishedMaps
from engine.records.layers import PAIRS, SINGLES, SYMMETRIC, Test


def of_model(record: LayerMaps) -> Maps:
    """What was measured here."""
    found = {name: readings.measure() for name, readings in record.tests.items()}
    return Maps(
        layers=record.layers,
        kinds=record.kinds,
        pairs={name: _apart(found[name]) for name in PAIRS if name in found},
        singles={name: found[name] for name in SINGLES if name in found},
        influence=record.influence,
        published=False,
    )


def digest(record: LayerMaps) -> str:
    """What stands in the maps that `of_model` makes, as one word."""
    found = hashlib.sha256(repr((record.kinds, record.layers)).encode())
    for name, readings in record.tests.items():
        found.update(name.encode())
        for part in (readings.kl, readings.positions):
            found.update(np.ascontiguousarray(part).tobytes())
    found.update(np.ascontiguousarray(record.influence).tobytes())
    return found.hexdigest()


def of_published(record: PublishedMaps) -> Maps:
    """What a paper published."""
    pairs = {"replace": record.replace} | ({} if record.swap is None else {"swap": record.swap})
    return Maps(
        layers=record.layers,
        kinds=("",) * record.layers,
        pairs={name: _apart(measure) for name, measure in pairs.items()},
        singles={} if record.removal is None else {"removal": record.removal},
        influence=None,
        published=True,
    )


def _apart(measure: Measure) -> Measure:
    """The measure without its diagonal: a layer and itself are no pair."""
    same = np.eye(len(measure.value), dtype=bool)
    parts = (measure.value, measure.low, measure.high)
    found = [None if part is None else np.where(same, np.nan, part) for part in parts]
    return Measure(found[0] if found[0] is not None else measure.value, *found[1:])


def scored(maps: Maps, test: str, how: How) -> Measure:
    """The pair scores of a test, with the interval of the direction that gives them.

    A mean of two directions, whose windows are not kept, has none.
    """
    measure = maps.pairs[test]
    value = selection.pair_score(measure.value, how)
    if measure.low is None or measure.high is None or how in {"mean", "geometric"}:
        both = test in SYMMETRIC
        return Measure(value, measure.low if both else None, measure.high if both else None)
    there = np.nan_to_num(measure.value, nan=-1.0)
    first = there >= there.T if how == "max" else there <= there.T
    ends = (np.where(first, end, end.T) for end in (measure.low, measure.high))
    return Measure(value, *(np.where(np.isnan(value), np.nan, end) for end in ends))


def layers_of(maps: Maps, test: str, how: How) -> np.ndarray:
    """s(i) of a test, [layers]."""
    return selection.layer_scores(selection.pair_score(maps.pairs[test].value, how))


@dataclass(frozen=True)
class Counted:
    """How two tests of the same pairs compare."""

    pairs: int
    above: int  # pairs in which swapping costs more than replacing
    apart: int  # of those, how many whose intervals share no value
    intervals: bool
    factor: float  # median of replace over swap


def counted(maps: Maps, how: How, tests: tuple[str, str] = ("replace", "swap")) -> Counted | None:
    """Over every pair that both tests have measured; None without one."""
    if any(test not in maps.pairs for test in tests):
        return None
    replace, swap = (scored(maps, test, how) for test in tests)
    upper = np.triu(~np.isnan(replace.value) & ~np.isnan(swap.value), 1)
    if not upper.any():
        return None
    above = upper & (swap.value > replace.value)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = replace.value[upper] / swap.value[upper]
    return Counted(
        pairs=int(upper.sum()),
        above=int(above.sum()),
        apart=int((above & apart(replace, swap)).sum()),
        intervals=replace.low is not None and swap.low is not None,
        factor=float(np.nanmedian(ratio)),
    )


def wanted(record: LayerMaps) -> int:
    """Pairs and single layers that a finished map of this kind holds."""
    return len(_cells(record))


def measured(record: LayerMaps) -> int:
    """How many of those have a value."""
    return sum(not np.isnan(record.tests[test].kl[cell]).all() for test, cell in _cells(record))


def _cells(record: LayerMaps) -> list[tuple[Test, Cell]]:
    """Every cell that the question has, each unordered pair once."""
    tests: list[Test] = [test for test in (*PAIRS, *SINGLES) if test in record.tests]
    tested = range(record.first, record.last + 1)
    bands = cells(tests, tested, record.reach, record.kinds)
    return [(test, cell) for band in bands for test, cell, _ in band]
