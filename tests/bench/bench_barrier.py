# ruff: noqa: T201 (a script that prints)
"""The line between two models: `python tests/bench/bench_barrier.py [--out FILE]`.

A run of five stages against the bare forward passes of as many models on the same text; a scope of
which only a few tensors move against rebuilding, and against writing and loading, each model; the
largest memory against that of three models. All in one run on one machine: quote the ratios. Where
other work runs beside it, processor seconds tell more than wall seconds. With SmolLM2-135M:
`--a smollm2 --b smollm2 --scrambled --points 3 --sampled 1`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.errors import silent
from engine.line.barrier import barrier
from engine.line.exam import Exam, exam, logits, whole
from engine.line.interpolate import Ends
from engine.line.setting import work
from engine.line.trip import trip
from engine.questions import Barrier
from engine.symmetry import Symmetry
from tests.clock import timed

STAGES = ("none", "res", "ffn", "heads", "all")
SCOPES = ("first-attention", "first-layer")


def mean(once: Callable[[], object], times: int) -> dict[str, float]:
    """Of some repetitions, after one that is not counted."""
    once()
    with timed() as found:
        for _ in range(times):
            once()
    return {name: found[name] / times for name in ("seconds", "processor_seconds")} | {
        "gb": found["gb"]
    }


def passes(a: Checkpoint, given: Exam, times: int) -> dict[str, float]:
    """One bare forward pass over the text: the model called, its logits thrown away."""
    model = network.load(a)

    @torch.inference_mode()
    def once() -> None:
        for part in given.parts():
            logits(model, given.some(part))

    return mean(once, times)


def bench_run(a: Checkpoint, b: Checkpoint, asked: Barrier, times: int) -> dict[str, object]:
    """A whole run, the reading of both models and the alignment included."""
    given = exam(a, asked)
    before = passes(a, given, times)
    with timed() as mine:
        record = barrier(a, b, asked)
    after = passes(a, given, times)
    bare = {name: (before[name] + after[name]) / 2 for name in before}
    planned = len(STAGES) * len(record.grid)
    size = a.parameters * 4 / 1e9
    return {
        "ours": mine | {"aligning": record.aligning, "models": record.models},
        "pass": bare,
        "planned_models": planned,
        "over_planned_passes": mine["seconds"] / (planned * bare["seconds"]),
        "over_planned_passes_processor": mine["processor_seconds"]
        / (planned * bare["processor_seconds"]),
        "over_its_passes_processor": mine["processor_seconds"]
        / (record.models * bare["processor_seconds"]),
        "gb_of_three_models": 3 * size,
        "gb_of_a_pass": bare["gb"],
        "memory_over_three_models_and_a_pass": mine["gb"] / (3 * size + max(bare["gb"], 0.0)),
    }


def rebuilt(both: Ends, given: Exam) -> Callable[[], object]:
    """One model of the line from both checkpoints on disk: interpolated, built and run."""

    def once() -> object:
        return given.read(whole(network.build(both.a, halves(both)), given))

    return once


def written(both: Ends, given: Exam) -> Callable[[], object]:
    """The same written to a folder and loaded from there."""

    def once() -> object:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "model"
            save_checkpoint(place, halves(both).items(), like=both.a)
            return given.read(whole(network.load(open_checkpoint(str(place))), given))

    return once


def halves(both: Ends) -> dict[str, Tensor]:
    """Every tensor half way."""
    return {
        name: torch.lerp(both.theirs(name), both.b.read(name).float(), 0.5)
        for name in both.a.headers
    }


def bench_scope(a: Checkpoint, b: Checkpoint, asked: Barrier, times: int) -> dict[str, object]:
    """One model of a line on which only a few tensors move, against making it anew."""
    with work(a, b, asked) as both:
        here = trip(both, asked, silent)
        line = here.ground.line(Symmetry(a.family, a.config, {}))
        say = line.say(here.exam)

        def once() -> None:
            line.at(0.5)
            here.exam.read(say)

        mine = mean(once, times)
        others = {"rebuilt": rebuilt, "written_and_loaded": written}
        found: dict[str, object] = {"ours": mine}
        for name, other in others.items():
            theirs = mean(other(both.ends, here.exam), times)
            found[name] = theirs | {
                "times_faster": theirs["seconds"] / mine["seconds"],
                "times_less_processor": theirs["processor_seconds"] / mine["processor_seconds"],
            }
        return found


def bench(
    a: str, b: str, asked: Barrier, sampled: int, scopes: Sequence[str] = SCOPES
) -> dict[str, object]:
    """All figures on one pair."""
    models = open_checkpoint(a), open_checkpoint(b)
    found: dict[str, object] = {"threads": torch.get_num_threads(), "tokens": asked.tokens}
    found["five_stages"] = bench_run(*models, asked, sampled)
    for scope in scopes:
        part = replace(asked, scope=scope, scrambled=False)
        found[scope] = bench_scope(*models, part, sampled)
    return found


def main() -> None:
    """All figures as one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the figures to a file")
    parser.add_argument("--a", default="demo:base")
    parser.add_argument("--b", default="demo:seed-1")
    parser.add_argument("--scrambled", action="store_true", help="B under a random gauge")
    parser.add_argument("--points", type=int, default=25)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--sampled", type=int, default=10, help="repetitions of each alternative")
    parser.add_argument("--scopes", nargs="*", default=SCOPES)
    given = parser.parse_args()
    asked = Barrier(
        given.a, given.b, points=given.points, stages=STAGES, adaptive=False,
        scrambled=given.scrambled, tokens=given.tokens, length=given.length,
    )  # fmt: skip
    text = json.dumps(bench(given.a, given.b, asked, given.sampled, given.scopes), indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
