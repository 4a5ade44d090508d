"""The answer to `Merge`: the model at one t, measured, and written as a checkpoint."""

import time
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from engine.checkpoint import Checkpoint, save_checkpoint
from engine.errors import Progress, Refused, part, silent
from engine.line.ends import Ends
from engine.line.gauges import gauges
from engine.line.setting import work
from engine.line.trip import run, trip
from engine.questions import Merge
from engine.records import MergeReport
from engine.symmetry import Symmetry


def merge(
    a: Checkpoint,
    b: Checkpoint,
    asked: Merge,
    out: Path | None = None,
    progress: Progress = silent,
) -> MergeReport:
    """Loss and accuracy of A, the model at t and the other end; `out` takes that model.

    It is written in the dtype in which it was measured, beside A's tokenizer. Errors: Refused for t
    outside [0, 1], and as for `engine.line.barrier.barrier`.
    """
    began = time.perf_counter()
    if not 0 <= asked.t <= 1:
        raise Refused(f"--t {asked.t:g}: a merge stands between its models, at t from 0 to 1.")
    with work(a, b, asked, asked.tokens) as both:
        here = trip(both, asked, part(progress, 0, 0.3))
        ((stage, g),) = gauges(both, (asked.stage,), part(progress, 0.3, 0.6)).items()
        progress(0.6, f"the model at t = {asked.t:g}")
        curve = here.points(stage, g, (asked.t,))
        if out is not None:
            tensors = between(both.ends, g, asked.t, part(progress, 0.7, 1.0))
            save_checkpoint(out, tensors, like=a, config=both.ends.config)
        return MergeReport(
            a=a.name,
            b=b.name,
            fingerprints=(a.fingerprint, b.fingerprint),
            family=a.family.name,
            t=asked.t,
            scope=asked.scope,
            scrambled=asked.scrambled,
            curve=curve,
            parameters=a.parameters,
            target=here.exam.target,
            run=run(here.exam, asked, began),
        )


def between(ends: Ends, g: Symmetry, t: float, progress: Progress) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the model at t by its name on disk, one at a time."""
    for number, name in enumerate(ends.a.headers):
        progress(number / len(ends.a.headers), f"writing {name}")
        yield name, ends.between(g, name, t)
