"""A ground, an exam, and what both ends of every line make of it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from engine import network
from engine.costs import Cost, foretold
from engine.errors import Progress, forward, part, silent
from engine.layers.inputs import Asked
from engine.line.ends import squares
from engine.line.exam import Exam, Marks, Says, exam, joined, label
from engine.line.gauges import Work
from engine.line.interpolate import Ground, Line, ground
from engine.line.streamed import Disk
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
    each: float  # seconds that a model took on all windows

    def cost(self, models: int, what: str = "model{s}") -> Cost:
        """What so many more will take."""
        return foretold(self.exam.tokens, self.exam.windows, models, self.each, what)

    @property
    def ends(self) -> dict[float, Marks]:
        """The ends of every line, of those where tensors stay A's the first alone."""
        return {0.0: self.first, **({1.0: self.last} if self.both.shared else {})}

    def read(
        self, says: Says, points: Sequence[float], progress: Progress = silent
    ) -> Iterator[tuple[float, Marks]]:
        """Models of a line on all windows, one after the other.

        Of a line that takes a text in pieces all of them stand at the end of the last one.
        """
        found: dict[float, list[Marks]] = {t: [] for t in points}
        done = 0
        for piece, at in says(points, progress):
            done += piece.windows
            for t in points:
                found[t].append(piece.read(at(t)))
                if done == self.exam.windows:
                    yield t, joined(found[t])

    def distance(self, line: Line) -> float:
        """√(Σ ‖A − g·B‖² / Σ ‖A‖²) over what moves."""
        return line.distance / max(self.norm, 1e-300)

    def points(self, stage: str, g: Symmetry, at: Sequence[float]) -> Curve:
        """A, the models at some t in order, and the other end."""
        line = self.ground.line(g)
        known = self.ends
        # A line on disk is as long as it was when it was walked: something is always asked.
        wanted = [t for t in (*at, 1.0) if t not in known] or [1.0]
        known |= dict(self.read(line.over(self.exam), wanted))
        t = [0.0, *at, 1.0]
        loss, right = (np.stack([known[x][k] for x in t]) for k in (0, 1))
        places = self.exam.positions
        return Curve(stage, np.array(t), loss, right, places, self.distance(line), complete=True)


def trip(both: Work, asked: Measured, progress: Progress, given: Exam | None = None) -> Trip:
    """Both models, and what they say themselves; `given`: the exam if it is read."""
    progress(0.0, "reading the text")
    found = exam(both.ends.a, asked, both.ends.known) if given is None else given
    return standing(both, found, part(progress, 0.1, 1.0))


def standing(both: Work, given: Exam, progress: Progress = silent) -> Trip:
    """Both models, and what they say of an exam that is given."""
    progress = forward(progress)
    progress(0.0, "reading both models")
    size = norm(both)  # while no model is in memory beside the tensors that it reads
    base = ground(both.ends)
    names = ((both.ends.a.name, 0.0), (both.ends.b.name, 1.0))
    found: list[tuple[Exam, Marks, Marks]] = []
    began = time.perf_counter()
    for piece, at in base.line(still(both)).over(given)((0.0, 1.0), part(progress, 0.1, 0.3)):
        known = label(piece, at)
        marks: list[Marks] = []
        for name, t in names:
            progress(0.3 + 0.35 * t, f"running {name}")
            marks.append(known.read(at(t)))
        found.append((known, marks[0], marks[1]))
    each = (time.perf_counter() - began) / len(names)
    exams, first, last = zip(*found, strict=True)
    whole = replace(given, targets=torch.cat([one.targets for one in exams]))
    return Trip(both, base, whole, joined(first), joined(last), size, each)


def still(both: Work) -> Symmetry:
    """B as it is."""
    return Symmetry(both.ends.a.family, both.ends.a.config, {})


def norm(both: Work) -> float:
    """‖A‖ over what moves."""
    return sum(squares(both.ends.theirs(name)) for name in sorted(both.ends.inside)) ** 0.5


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
