# ruff: noqa: T201 (a script that prints)
"""The engine on SmolLM2-135M: `python tests/bench/bench_engine.py [--out FILE]`.

Every figure stands beside a named alternative measured in the same run on the same machine; quote
the ratios.
"""

import argparse
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from engine.action import act
from engine.alignment.comparison import compare
from engine.assignment import solve
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.questions import Align
from engine.scramble import scramble
from engine.symmetry import Symmetry, sample


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Median wall time of some runs after one that is not counted."""
    times = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def copy_file(checkpoint: Checkpoint, folder: Path) -> None:
    """The alternative to `act`: read every tensor once and write it once, unchanged."""
    shutil.rmtree(folder, ignore_errors=True)
    save_checkpoint(folder, ((n, checkpoint.read(n)) for n in checkpoint.headers), like=checkpoint)


def apply_all(g: Symmetry, checkpoint: Checkpoint) -> None:
    """`act` on every tensor, already in memory one at a time; the result is thrown away."""
    for name in checkpoint.headers:
        act(g, name, checkpoint.read)


def bench_act(checkpoint: Checkpoint, folder: Path) -> dict[str, float]:
    """All coordinates of the whole checkpoint, against one read plus one write of its file."""
    g = sample(checkpoint.family, checkpoint.config, torch.Generator().manual_seed(0))
    ours = seconds(lambda: apply_all(g, checkpoint))
    copy = seconds(lambda: copy_file(checkpoint, folder / "copy"))
    return {"act_s": ours, "read_and_write_s": copy, "ratio": ours / copy}


def bench_align(a: Checkpoint, b: Checkpoint, folder: Path) -> dict[str, float]:
    """A whole alignment with its check of the logits, and the largest memory of this process."""
    began = time.perf_counter()
    report, _ = compare(a, b, Align(a.name, b.name), folder / "aligned")
    taken = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"align_s": taken, "peak_gb": peak / 1e9, "largest_error": float(report.after.max())}


def bench_assignment(size: int = 1536) -> dict[str, float]:
    """A clear matching: row maxima against SciPy's solver."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=(size, size))
    score[np.arange(size), rng.permutation(size)] += 10
    ours = seconds(lambda: solve(score))
    theirs = seconds(lambda: linear_sum_assignment(score, maximize=True))
    return {"row_maxima_s": ours, "scipy_s": theirs, "ratio": ours / theirs}


def main() -> None:
    """Run all and print one JSON document."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, help="also write the figures to a file")
    out = options.parse_args().out
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        a = open_checkpoint("smollm2")
        scramble(a, folder / "b", seed=1)
        b = open_checkpoint(folder / "b")
        figures = {
            "threads": torch.get_num_threads(),
            "align": bench_align(a, b, folder),
            "act": bench_act(a, folder),
            "assignment": bench_assignment(),
        }
    text = json.dumps(figures, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
