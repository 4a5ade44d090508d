"""Maps as they fill: arrays for every test, written band by band."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from engine.layers import baselines
from engine.layers.reading import Read
from engine.layers.sessions import Session
from engine.layers.stacks import Cell, Stack, bound, whole
from engine.records.layers import PAIRS, SINGLES, SYMMETRIC, Readings, Test

SELF = ("replace", "swap", "average")
"""Tests that change nothing where both layers are one."""
Sheet = np.ndarray
"""KL, loss and agreement: float32 [3, *cells, windows], nan where not measured."""


def array(read: Read) -> np.ndarray:
    """A reading, float32 [3, windows]."""
    return torch.stack(list(read)).float().cpu().numpy()


def readings(sheet: Sheet, positions: np.ndarray) -> Readings:
    """A sheet as a record."""
    return Readings(sheet[0], sheet[1], sheet[2], positions)


@dataclass
class Filling:
    """What has been read so far. It changes as it fills; `found` gives what it holds."""

    sheets: Mapping[Test, Sheet]
    base: Sheet  # [3, windows]
    positions: np.ndarray  # int64 [windows]
    total: int  # cells
    done: float = 0.0
    passes: float = 0.0
    stacks: set[Stack] = field(default_factory=set)
    streams: list[tuple[float, dict[str, np.ndarray]]] = field(default_factory=list)

    @staticmethod
    def blank(tests: Sequence[Test], layers: int, windows: int, total: int) -> "Filling":
        """Nothing is read yet."""
        shape = dict.fromkeys(PAIRS, (layers, layers)) | dict.fromkeys(SINGLES, (layers,))
        sheets = dict[Test, Sheet]()
        for test in tests:
            sheets[test] = np.full((3, *shape[test], windows), np.nan, np.float32)
        base = np.full((3, windows), np.nan, np.float32)
        return Filling(sheets, base, np.zeros(windows, np.int64), max(total, 1))

    @property
    def share(self) -> float:
        """How much of the work is done."""
        return min(self.done / self.total, 1.0)

    def _part(self, windows: slice) -> float:
        return (windows.stop - windows.start) / len(self.positions)

    def begin(self, session: Session, windows: slice, tested: range) -> None:
        """Read the model as it is on some windows, and its streams."""
        self.base[:, windows] = array(session.base())
        at = session.reader.at
        self.positions[windows] = torch.bincount(at.window, minlength=at.windows).cpu().numpy()
        for test in self.sheets.keys() & set(SELF):
            for n in tested:
                self.sheets[test][:, n, n, windows] = self.base[:, windows]
        rows = session.streams()
        found = {
            name: baseline(rows).cpu().numpy()
            for name, baseline in (
                ("influence", baselines.influence),
                ("angular", baselines.angular),
                ("cka", baselines.cka),
            )
        }
        self.streams.append((self._part(windows), found))

    def take(
        self, session: Session, windows: slice, band: Sequence[tuple[Test, Cell, Stack]]
    ) -> Iterator[float]:
        """Read one band on some windows, a stack that several cells share once; shares done."""
        places: dict[Stack, list[tuple[Test, Cell]]] = {}
        for test, cell, stack in band:
            places.setdefault(stack, []).append((test, cell))
        self.stacks |= places.keys()
        stacks, part = list(places), self._part(windows)
        for number, read, ran in session.reads(stacks):
            self.passes += ran * part
            for test, cell in places[stacks[number]]:
                self._write(test, cell, windows, array(read))
                self.done += part
            yield self.share

    def _write(self, test: Test, cell: Cell, windows: slice, values: np.ndarray) -> None:
        self.sheets[test][(slice(None), *cell, windows)] = values
        if test in SYMMETRIC:
            self.sheets[test][(slice(None), *cell[::-1], windows)] = values

    def found(self) -> dict[str, Any]:
        """Copies of all that is known, by the fields of `LayerMaps`."""
        weight = sum(part for part, _ in self.streams)
        streams = {
            name: np.asarray(sum(part * each[name] for part, each in self.streams) / weight)
            for name in self.streams[0][1]
        }
        stacks = list(self.stacks)
        layers = len(streams["influence"])
        return {
            "base": readings(self.base.copy(), self.positions.copy()),
            "tests": {
                test: readings(sheet.copy(), self.positions.copy())
                for test, sheet in self.sheets.items()
            },
            "passes": round(self.passes),
            "bound": bound(stacks, layers),
            "whole": whole(stacks),
        } | streams
