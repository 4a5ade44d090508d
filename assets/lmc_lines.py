"""One pair of models on a line, for `make_lmc`: barriers, ratios, orders of the heads, images."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assets import images
from assets.lmc_models import KINDS
from engine.checkpoint import Checkpoint
from engine.errors import silent
from engine.line.barrier import Filling, spread
from engine.line.exam import Exam
from engine.line.gauges import gauges
from engine.line.setting import work
from engine.line.trip import standing
from engine.questions import Barrier
from engine.questions.line import ABLATION
from engine.records import BarrierReport, HeadOrders, Measure

STAGES: Mapping[str, str] = dict(
    zip(("naive", "none", "orthogonal", "full"), ABLATION, strict=True)
)
"""The published words for how much of Stage 2 there is, and the stages of a line here."""
IMAGES = 512


def rounded(x: float | np.ndarray) -> Any:
    """Five digits are more than an interval has."""
    if isinstance(x, np.ndarray):
        return [rounded(float(one)) for one in x.tolist()]
    return float(f"{x:.5g}")


def _measure(found: Measure) -> list[float]:
    ends = () if found.low is None or found.high is None else (found.low, found.high)
    return [rounded(float(x)) for x in (found.value, *ends)]


def described(report: BarrierReport) -> dict[str, Any]:
    """One pair: losses at its ends, curves, barriers, and each relative to the naive one."""
    curves = {word: report.curve(stage) for word, stage in STAGES.items()}
    kept = {word: curve for word, curve in curves.items() if curve is not None}
    ratios = {word: report.relative(STAGES[word]) for word in kept if word != "naive"}
    if "naive" not in kept or not sure(kept["naive"].barrier()):
        ratios = {}
    both = report.difference(STAGES["full"], STAGES["orthogonal"])
    return {
        "moved": list(report.moved),
        "barrier": {word: _measure(curve.barrier()) for word, curve in kept.items()},
        "accuracy barrier": {w: _measure(curve.barrier("accuracy")) for w, curve in kept.items()},
        "relative": {w: _measure(ratio) for w, ratio in ratios.items() if ratio is not None},
        "full less orthogonal": None if both is None else _measure(both),
        "loss": {word: rounded(curve.points().value) for word, curve in kept.items()},
        "accuracy": {w: rounded(curve.points("accuracy").value) for w, curve in kept.items()},
        "windows": report.run.windows,
        "seconds": rounded(report.run.seconds),
    }


def sure(found: Measure) -> bool:
    """Whether a barrier is above 0 with its whole interval: only then is it divided by."""
    return bool((found.value if found.low is None else found.low) > 0)


def ordered(report: HeadOrders) -> dict[str, Any]:
    """Every order of one layer's heads: what is left of the objective, and the barrier."""
    by_objective, by_barrier = report.ranks
    barriers = np.array([float(one.barrier().value) for one in report.curves])
    return {
        "layer": report.layer,
        "orders": [list(one) for one in report.orders],
        "objective": rounded(report.objective),
        "barrier": rounded(barriers),
        "naive": rounded(float(report.naive.barrier().value)),
        "chosen": report.chosen,
        "rank by objective": by_objective,
        "rank by barrier": by_barrier,
        "seconds": rounded(report.run.seconds),
    }


def kept(folder: Path) -> str:
    """A file of other images, from which activations are taken."""
    pixels, _ = images.images(8, IMAGES)
    np.savez(folder / "images.npz", pixel_values=pixels.numpy())
    return str(folder / "images.npz")


def labelled(count: int = IMAGES, seed: int = 7) -> Exam:
    """Images that no model was trained on, and their true classes."""
    pixels, labels = images.images(seed, count)
    return Exam(
        named={"pixel_values": pixels}, targets=labels[:, None], target="given class",
        what=KINDS["vit"].data, classes=len(images.SHAPES), tokens=count,
    )  # fmt: skip


def barriers(a: Checkpoint, b: Checkpoint, asked: Barrier, exam: Exam | None) -> BarrierReport:
    """The answer to a question of a line, on the text that it names or on labelled images."""
    if exam is None:
        return asked.answer()
    began = time.perf_counter()
    with work(a, b, asked) as both:
        here = standing(both, exam)
        found = gauges(both, asked.wanted, silent)
        aligning = time.perf_counter() - began
        filling = Filling(b, asked, here, spread(asked), began, aligning)
        for stage, g in found.items():
            filling.walk(stage, g, silent)
        return filling.record(complete=True)
