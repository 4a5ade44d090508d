"""The answer to `Slice`: the loss over the plane through A, B and aligned B."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, part, silent
from engine.line.ends import Tensors
from engine.line.exam import Marks, whole
from engine.line.gauges import gauges
from engine.line.interpolate import Disk, Ground
from engine.line.setting import work
from engine.line.trip import run, trip
from engine.questions import Barrier, Slice
from engine.records import LossSlice
from engine.records.planes import FLAT
from engine.symmetry import Symmetry


@dataclass(frozen=True)
class Plane:
    """θ(x, y) = A + x u + y w with u = B − A and w ⊥ u of the same length, by name in memory."""

    ground: Ground
    u: Tensors
    w: Tensors
    places: np.ndarray  # float64 [3, 2]: A, B, aligned B
    length: float

    @torch.inference_mode()
    def put(self, x: float, y: float) -> None:
        """Overwrite the buffer with the model at (x, y)."""
        for name, parameter in self.ground.buffer.named_parameters():
            torch.add(self.ground.theirs[name], self.u[name], alpha=x, out=parameter)
            parameter.add_(self.w[name], alpha=y)


@torch.inference_mode()
def plane(found: Ground | Disk, g: Symmetry) -> Plane:
    """The plane through A, B and g·B.

    Errors: Refused where the three stand on one line, and where memory holds no four models.
    """
    if isinstance(found, Disk):
        raise Refused("Memory does not hold the four models of a slice: take smaller ones.")
    theirs = found.theirs
    still = found.line(Symmetry(found.ends.a.family, found.ends.a.config, {}))
    u = {n: still.mine.get(n, x) - x for n, x in theirs.items()}
    line = found.line(g)
    v = {n: line.mine.get(n, x) - x for n, x in theirs.items()}
    own = _inner(u, u)
    along = _inner(u, v) / own if own else 0.0
    rest = {n: v[n].sub_(u[n], alpha=along) for n in v}
    across = (_inner(rest, rest) / own) ** 0.5 if own else 0.0
    if across < FLAT:
        raise Refused(
            f"{found.ends.a.name}, {found.ends.b.name} and the aligned model stand on one line: no "
            "plane goes through them alone; choose another stage."
        )
    w = {n: x.div_(across) for n, x in rest.items()}
    places = np.array([[0.0, 0.0], [1.0, 0.0], [along, across]])
    return Plane(found, u, w, places, own**0.5)


def _inner(x: Tensors, y: Tensors) -> float:
    return sum(float((x[n] * y[n]).sum(dtype=torch.float64)) for n in x)


def axes(places: np.ndarray, points: int, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """x and y of a grid that holds all three models, with a margin of the larger span around."""
    low, high = places.min(0), places.max(0)
    room = margin * float((high - low).max())
    x, y = (np.linspace(low[k] - room, high[k] + room, points) for k in (0, 1))
    return x, y


def cut(a: Checkpoint, b: Checkpoint, asked: Slice, progress: Progress = silent) -> LossSlice:
    """The loss at every place of a grid; hands over every row.

    Errors: Refused as for `plane`, and where memory does not hold A, the two directions and one
    model.
    """
    began = time.perf_counter()
    aligned = Barrier(
        asked.a, asked.b, using=asked.using, sweeps=asked.sweeps, refine=asked.refine,
        scope=asked.scope, seed=asked.seed, text=asked.text, device=asked.device, dtype=asked.dtype,
    )  # fmt: skip
    with work(a, b, aligned, asked.tokens) as both:
        here = trip(both, asked, part(progress, 0, 0.05))
        ((stage, g),) = gauges(both, (asked.stage,), part(progress, 0.05, 0.2)).items()
        through = plane(here.ground, g)
        x, y = axes(through.places, asked.points, asked.margin)
        found = np.full((2, len(y), len(x)), np.nan)
        progress(0.2, here.cost(len(y) * len(x) + 1))
        say = whole(through.ground.buffer, here.exam)
        through.put(*through.places[2].tolist())
        three = (here.first, here.last, here.exam.read(say))
        models = np.array([means(marks, here.exam.positions)[0] for marks in three])

        def record(*, complete: bool) -> LossSlice:
            return LossSlice(
                a.name, b.name, stage, x, y, found[0].copy(), found[1].copy(), through.places,
                through.length, here.exam.target, complete, run(here.exam, asked, began), models,
                asked.scope,
            )  # fmt: skip

        for row, there in enumerate(y):
            for column, along in enumerate(x):
                through.put(float(along), float(there))
                marks = here.exam.read(say)
                found[:, row, column] = means(marks, here.exam.positions)
            share = 0.2 + 0.8 * (row + 1) / len(y)
            progress(share, f"row {row + 1} of {len(y)}", record(complete=False))
        return record(complete=True)


def means(marks: Marks, positions: np.ndarray) -> list[float]:
    """Loss and accuracy over all places."""
    return [float(np.average(x, weights=positions)) for x in marks]
