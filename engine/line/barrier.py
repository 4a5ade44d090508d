"""The answer to `Barrier`: loss and accuracy on the line from A to g·B, stage by stage."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from engine import network
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Short, forward, part, silent
from engine.line.ends import ends
from engine.line.exam import Exam, Marks, exam, whole
from engine.line.gauges import equal, gauges
from engine.line.interpolate import Line
from engine.line.sampling import EXTRA, coarse_first, grid, next_points
from engine.line.setting import work
from engine.line.streamed import Disk
from engine.line.trip import Trip, run, trip
from engine.questions import Barrier, Forecast
from engine.records import BarrierReport, Curve, Estimate
from engine.symmetry import Symmetry

LEAST = 1e-3
"""Nats; a smaller bend of a curve adds no point."""
EVERY = 1.0
"""Seconds between two partial records."""


def barrier(
    a: Checkpoint, b: Checkpoint, asked: Barrier, progress: Progress = silent
) -> BarrierReport:
    """Every stage's curve; hands over what it has about once a second.

    Errors: Refused for layers that there are not, two groups, and models without an output over
    tokens or classes.
    """
    began = time.perf_counter()
    points = spread(asked)
    with work(a, b, asked, asked.tokens) as both:
        given = exam(a, asked, both.ends.known)
        aligned = 0.3 if asked.refine else 0.1
        then = time.perf_counter()
        found = gauges(both, asked.wanted, part(progress, 0, aligned))
        spent = time.perf_counter() - then
        here = trip(both, asked, part(progress, aligned, aligned + 0.05), given)
        filling = Filling(b, asked, here, points, began, spent)
        aligned += 0.05
        bends = " (more where a curve bends)" if asked.adaptive and not asked.midpoint else ""
        runs = len(found) * (len(points) - len(here.ends))
        progress(aligned, here.cost(runs, "model{s}" + bends))
        for number, (stage, g) in enumerate(found.items()):
            shares = (aligned + (1 - aligned) * n / len(found) for n in (number, number + 1))
            filling.walk(stage, g, part(progress, *shares))
        return filling.record(complete=True)


def spread(asked: Barrier | Forecast) -> np.ndarray:
    """The grid of a question."""
    return grid(3 if asked.midpoint else asked.points)


@dataclass
class Growing:
    """One curve. It changes as it grows; `curve` gives a copy of what it holds."""

    stage: str
    g: Symmetry
    distance: float
    found: dict[float, Marks]
    complete: bool = False

    def curve(self, positions: np.ndarray) -> Curve:
        """The record of it."""
        t = sorted(self.found)
        loss, right = (np.stack([self.found[x][k] for x in t]) for k in (0, 1))
        return Curve(self.stage, np.array(t), loss, right, positions, self.distance, self.complete)

    def means(self, positions: np.ndarray) -> dict[float, float]:
        """The loss at every point."""
        return {t: float(np.average(m.loss, weights=positions)) for t, m in self.found.items()}


@dataclass
class Filling:
    """All curves of one question. It changes as they grow; `record` gives what there is."""

    b: Checkpoint  # as the user named it, never scrambled
    asked: Barrier
    here: Trip
    grid: np.ndarray
    began: float
    aligning: float
    curves: list[Growing] = field(default_factory=list)
    models: int = 2
    handed: float = -np.inf

    def walk(self, stage: str, g: Symmetry, progress: Progress) -> None:
        """One curve, coarse before fine; a gauge that does what an earlier one does is not run."""
        for one in self.curves:
            if equal(one.g, g, self.here.both.ends.inside):
                self.curves.append(replace(one, stage=stage, found=dict(one.found)))
                return
        progress(0.0, f"{stage}: B in A's coordinates")
        growing = Growing(stage, g, np.nan, self.here.ends)
        self.curves.append(growing)
        self.measure(growing, self.here.ground.line(g), forward(progress))
        growing.complete = True

    def measure(self, growing: Growing, line: Line, progress: Progress) -> None:
        """The missing end and the grid, then where the curve bends."""
        says = line.over(self.here.exam)
        inner = [float(self.grid[k]) for k in coarse_first(len(self.grid))]
        wanted = [*({1.0} - growing.found.keys()), *inner]
        left = EXTRA if self.asked.adaptive and not self.asked.midpoint else 0
        done, total = 0, len(wanted) + left
        while wanted:
            shares = (done / total, (done + len(wanted)) / total)
            for t, marks in self.here.read(says, wanted, part(progress, *shares)):
                growing.found[t], growing.distance = marks, self.here.distance(line)
                done, self.models = done + 1, self.models + 1
                self.tell(progress, done / total, f"{growing.stage}, t = {t:.3f}")
            wanted = self.bent(growing, min(left, line.together))
            left -= len(wanted)

    def bent(self, growing: Growing, count: int) -> list[float]:
        """Where the curve bends most, if it does."""
        values = growing.means(self.here.exam.positions)
        return next_points(values, 1 / (len(self.grid) - 1), LEAST, count)

    def tell(self, progress: Progress, share: float, step: str) -> None:
        """Progress, and about once a second what there is."""
        now = time.perf_counter()
        if now - self.handed < EVERY:
            progress(share, step)
            return
        self.handed = now
        progress(share, step, self.record(complete=False))

    def record(self, *, complete: bool) -> BarrierReport:
        """All curves as they are."""
        both, asked = self.here.both, self.asked
        a, positions = both.ends.a, self.here.exam.positions
        moved = sum(a.headers[name].parameters for name in both.ends.inside)
        return BarrierReport(
            a=a.name,
            b=self.b.name,
            fingerprints=(a.fingerprint, self.b.fingerprint),
            family=a.family.name,
            scope=asked.scope,
            moved=(moved, a.parameters),
            shared=both.shared,
            scrambled=asked.scrambled,
            using=asked.using,
            grid=self.grid,
            curves=tuple(one.curve(positions) for one in self.curves),
            target=self.here.exam.target,
            models=self.models,
            aligning=self.aligning,
            complete=complete,
            run=run(self.here.exam, asked, self.began),
            classes=self.here.exam.classes,
        )


def once(a: Checkpoint, given: Exam, asked: Forecast) -> float:
    """Seconds of A on the text, read from disk on the way where memory does not hold it."""
    try:
        model = network.load(a, network.device(asked.device), network.dtype(asked.dtype))
        say = whole(model, given)
        say(next(given.parts()))
        begun = time.perf_counter()
        given.read(say)
    except Short:
        begun = time.perf_counter()
        alone = Disk(ends(a, a, (), device=asked.device, dtype=asked.dtype))
        alone.require_memory()
        for piece, at in alone.line(Symmetry(a.family, a.config, {})).over(given)((0.0,), silent):
            piece.read(at(0.0))
    return time.perf_counter() - begun


def estimate(
    a: Checkpoint, b: Checkpoint, asked: Forecast, progress: Progress = silent
) -> Estimate:
    """What a run will cost: the text is cut, and A runs on it once (after a first part)."""
    progress(0.1, "reading the text")
    common = min(c.family.sizes(c.config).get("tok", 0) for c in (a, b)) or None
    found = exam(a, asked, common)
    progress(0.3, f"running {a.name} once")
    seconds = once(a, replace(found, targets=found.targets.clamp(min=0)), asked)
    wanted = {*asked.stages, *(["refined"] * asked.refined)}
    models = 2 + len(wanted) * (len(spread(asked)) - 2)
    return Estimate(
        text=found.what,
        tokens=found.tokens,
        windows=found.windows,
        models=models,
        seconds=models * seconds,
        device=str(network.device(asked.device)),
    )
