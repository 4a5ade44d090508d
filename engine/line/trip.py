"""A ground, an exam, and what both ends of every line make of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from engine import network
from engine.errors import Progress
from engine.layers.inputs import Asked
from engine.line.exam import Exam, Marks, Say, exam, label
from engine.line.gauges import Work
from engine.line.interpolate import Disk, Ground, Line, ground
from engine.records import Curve, Run
from engine.symmetry import Symmetry


class Measured(Asked, Protocol):
    """What a question says of how it is measured."""

    @property
    def dtype(self) -> str: ...


@dataclass(frozen=True)
class Trip:
    """Lines from one A, and what stands at their ends."""

    both: Work
    ground: Ground | Disk
    exam: Exam
    first: Marks  # of A
    last: Marks  # of B, or of A with B's tensors where they move
    norm: float  # ‖A‖ over what moves

    def read(self, line: Line, t: float) -> Marks:
        """The model at t on all windows."""
        line.at(t)
        return self.exam.read(line.say(self.exam))

    def end(self, line: Line) -> Marks:
        """The model at t = 1: B's own marks where the line's gauge keeps B's function."""
        return self.last if self.both.shared else self.read(line, 1.0)

    def distance(self, line: Line) -> float:
        """√(Σ ‖A − g·B‖² / Σ ‖A‖²) over what moves."""
        return line.distance / max(self.norm, 1e-300)

    def points(self, stage: str, g: Symmetry, at: Sequence[float]) -> Curve:
        """A, the models at some t in order, and the other end."""
        line = self.ground.line(g)
        found = [self.first, *(self.read(line, t) for t in at), self.end(line)]
        loss, right = (np.stack([one[k] for one in found]) for k in (0, 1))
        t = np.array([0.0, *at, 1.0])
        places = self.exam.positions
        return Curve(stage, t, loss, right, places, self.distance(line), complete=True)


def trip(both: Work, asked: Measured, progress: Progress, given: Exam | None = None) -> Trip:
    """Both models in memory, and what they say themselves; `given`: the exam if it is read."""
    progress(0.0, "reading the text")
    found = exam(both.ends.a, asked, both.ends.known) if given is None else given
    progress(0.1, "reading both models")
    base = ground(both.ends)
    line = base.line(still(both))
    found = label(found, (_at(line, found, 0.0), _at(line, found, 1.0)))
    marks: list[Marks] = []
    for name, t in ((both.ends.a.name, 0.0), (both.ends.b.name, 1.0)):
        progress(0.4 + 0.3 * t, f"running {name}")
        line.at(t)
        marks.append(found.read(line.say(found)))
    return Trip(both, base, found, marks[0], marks[1], norm(both))


def still(both: Work) -> Symmetry:
    """B as it is."""
    return Symmetry(both.ends.a.family, both.ends.a.config, {})


def norm(both: Work) -> float:
    """‖A‖ over what moves."""
    every = (both.ends.theirs(name).double() for name in sorted(both.ends.inside))
    return sum(float(x.square().sum()) for x in every) ** 0.5


def run(found: Exam, asked: Measured, began: float) -> Run:
    """On what something was measured."""
    return Run(
        text=found.what,
        tokens=found.tokens,
        windows=found.windows,
        aggregate="mean",
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def _at(line: Line, asked: Exam, t: float) -> Say:
    """A model at one t, set there before each part: both ends share one buffer."""

    def say(part: slice) -> Tensor:
        line.at(t)
        return line.say(asked)(part)

    return say
