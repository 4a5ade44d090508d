# ruff: noqa: T201 (a script that prints)
"""The line between two models: `python tests/bench/bench_barrier.py [--out FILE]`.

A run of five stages against the bare forward passes of as many models on the same text; a scope of
which only a few tensors move against making each model anew; the largest memory against that of
three models; one curve in memory, layer by layer from disk, and with a whole model built for every
point, each in a process of its own. All in one run on one machine: quote the ratios. Where other
work runs beside it, processor seconds tell more than wall seconds. With SmolLM2-135M: `--a smollm2
--b smollm2 --scrambled --points 3 --sampled 1`; one of the three ways alone: `--way
layer_by_layer`.

Made anew means: the tensors of both models interpolated in memory, then built by transformers, or
written with safetensors and loaded from the folder; called without gradients on the same windows,
eight at once (the default of transformers' own evaluation) or one by one (that of evaluation
harnesses); cross entropy and arg max of whole logits. `rebuilt_read_as_here` reads with our own
exam. Every layer after the first that moves runs at every point whoever makes the model, so that
making it in no time would gain 1 / `share_of_the_pass_processor` at most: on 2,048 tokens and one
processor about 1.6 for the demo models and for SmolLM2-135M, less than 2 on any text of more than
about 1,000 tokens.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import silent
from engine.line.barrier import barrier, spread
from engine.line.ends import Ends, ends
from engine.line.exam import Exam, exam, logits, whole
from engine.line.interpolate import Line, ground
from engine.line.setting import work
from engine.line.streamed import Disk
from engine.line.trip import trip
from engine.questions import Barrier
from engine.symmetry import Symmetry, sample
from tests.clock import timed

STAGES = ("none", "res", "ffn", "heads", "all")
SCOPES = ("first-attention", "first-layer")
BATCH = 8
"""Windows that others run at once: the default of transformers' own evaluation."""
Tensors = Mapping[str, Tensor]


def medians(work: Mapping[str, Callable[[], object]], times: int) -> dict[str, dict[str, float]]:
    """Of some rounds in which each is done once, after one that is not counted."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in work}
    for _ in range(1 + times):
        for name, once in work.items():
            with timed() as spent:
                once()
            found[name].append(dict(spent))
    return {
        name: {key: median(one[key] for one in rows[1:]) for key in rows[0]}
        for name, rows in found.items()
    }


def batches(given: Exam, size: int = BATCH) -> Iterator[slice]:
    """The windows as others run them."""
    for start in range(0, given.windows, size):
        yield slice(start, start + size)


def bare(model: PreTrainedModel, given: Exam) -> Callable[[], object]:
    """The forward passes over the text: the model called, its logits thrown away."""

    @torch.inference_mode()
    def once() -> None:
        for part in batches(given):
            logits(model, given.some(part))

    return once


@torch.no_grad()
def judged(model: PreTrainedModel, given: Exam, size: int = BATCH) -> tuple[float, float]:
    """Mean loss and share of hits as they are usually computed, from whole logits."""
    loss, right, asked = 0.0, 0, 0
    for part in batches(given, size):
        said, wanted = logits(model, given.some(part)), given.targets[part]
        every = said.flatten(0, -2), wanted.flatten()
        loss += float(cross_entropy(*every, ignore_index=-1, reduction="sum"))
        right += int((said.argmax(-1) == wanted).sum())
        asked += int((wanted >= 0).sum())
    return loss / asked, right / asked


def bench_run(a: Checkpoint, b: Checkpoint, asked: Barrier, times: int) -> dict[str, object]:
    """A whole run, the reading of both models and the alignment included."""
    given = exam(a, asked)
    once = {"pass": bare(network.load(a), given)}
    before = medians(once, times)["pass"]
    with timed() as mine:
        record = barrier(a, b, asked)
    after = medians(once, times)["pass"]
    bare_pass = {name: (before[name] + after[name]) / 2 for name in before}
    planned = len(STAGES) * len(record.grid)
    size = a.parameters * 4 / 1e9
    return {
        "ours": mine | {"aligning": record.aligning, "models": record.models},
        "pass": bare_pass,
        "planned_models": planned,
        "over_planned_passes": mine["seconds"] / (planned * bare_pass["seconds"]),
        "over_planned_passes_processor": mine["processor_seconds"]
        / (planned * bare_pass["processor_seconds"]),
        "over_its_passes_processor": mine["processor_seconds"]
        / (record.models * bare_pass["processor_seconds"]),
        "gb_of_three_models": 3 * size,
        "gb_of_a_pass": bare_pass["gb"],
        "memory_over_three_models_and_a_pass": mine["gb"] / (3 * size + max(bare_pass["gb"], 0.0)),
    }


def halves(both: tuple[Tensors, Tensors]) -> dict[str, Tensor]:
    """Every tensor half way between two checkpoints in memory."""
    a, b = both
    return {name: torch.lerp(x, b[name], 0.5) for name, x in a.items()}


def rebuilt(a: Checkpoint, both: tuple[Tensors, Tensors]) -> PreTrainedModel:
    """The model half way, built by transformers from tensors in memory."""
    kind = torch.float32
    return network.assemble(a.name, a.config, kind, None, state_dict=halves(both)).eval()


def loaded(a: Checkpoint, both: tuple[Tensors, Tensors]) -> PreTrainedModel:
    """The same by way of a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_file(halves(both), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(dict(a.config)), encoding="utf-8")
        return network.assemble(a.name, a.config, torch.float32, folder).eval()


def bench_scope(a: Checkpoint, b: Checkpoint, asked: Barrier, times: int) -> dict[str, object]:
    """One model of a line on which only a few tensors move, against making it anew."""
    with work(a, b, asked) as both:
        here = trip(both, asked, silent)
        line, given = here.ground.line(Symmetry(a.family, a.config, {})), here.exam
        says = line.over(given)
        ends = both.ends
        held = tuple({n: c.read(n).float() for n in a.headers} for c in (ends.a, ends.b))
        standing = network.load(a)
        spent = medians(
            {
                "ours": lambda: dict(here.read(says, (0.5,))),
                "pass": bare(standing, given),
                "judged": lambda: judged(standing, given),
                "written_and_loaded": lambda: judged(loaded(a, held), given),
                "written_loaded_and_read_one_by_one": lambda: judged(loaded(a, held), given, 1),
                "rebuilt": lambda: judged(rebuilt(a, held), given),
                "rebuilt_read_as_here": lambda: given.read(whole(rebuilt(a, held), given)),
            },
            times,
        )
    mine, alone = (spent[name]["processor_seconds"] for name in ("ours", "pass"))
    return {
        name: theirs
        | {
            "times_ours": theirs["seconds"] / spent["ours"]["seconds"],
            "times_ours_processor": theirs["processor_seconds"] / mine,
            "share_of_the_pass_processor": alone / theirs["processor_seconds"],
        }
        for name, theirs in spent.items()
    }


def walked(line: Line, given: Exam, points: Sequence[float]) -> None:
    """Some models of a line on all windows."""
    for piece, at in line.over(given)(points, silent):
        for t in points:
            piece.read(at(t))


def in_memory(both: Ends, given: Exam, g: Symmetry, points: Sequence[float]) -> None:
    """A, g·B and one buffer in memory."""
    walked(ground(both).line(g), given, points)


def layer_by_layer(both: Ends, given: Exam, g: Symmetry, points: Sequence[float]) -> None:
    """Both checkpoints on disk, the streams of all points side by side."""
    walked(Disk(both).line(g), given, points)


def built_anew(both: Ends, given: Exam, g: Symmetry, points: Sequence[float]) -> None:
    """Both checkpoints on disk, a whole model for every point."""
    line = Disk(both).line(g)
    for t in points:
        given.read(whole(line.at(t), given))


WAYS = {"in_memory": in_memory, "layer_by_layer": layer_by_layer, "built_anew": built_anew}


def one_way(name: str, asked: Barrier) -> dict[str, float]:
    """One curve to B under a random gauge, in this process; `peak_gb` is all of its memory."""
    a, b = open_checkpoint(asked.a), open_checkpoint(asked.b)
    both = ends(a, b, a.headers, device=asked.device, dtype=asked.dtype)
    g = sample(a.family, a.config, torch.Generator().manual_seed(0))
    given = exam(a, asked, both.known)
    with timed() as found:
        WAYS[name](both, given, g, spread(asked).tolist())
    return found | {"peak_gb": peak()}


def peak() -> float:
    """The largest memory of this process since it began, in GB; nan where Linux does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    kilobytes = (float(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return next(kilobytes, math.nan) * 1024 / 1e9


def bench_ways(asked: Barrier) -> dict[str, dict[str, float]]:
    """Each in a process of its own: seconds and memory, and as shares of those in memory."""
    found: dict[str, dict[str, float]] = {}
    for name in WAYS:
        command = [
            sys.executable, __file__, "--way", name, "--a", asked.a, "--b", asked.b, "--points",
            str(asked.points), "--tokens", str(asked.tokens), "--length", str(asked.length),
        ]  # fmt: skip
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        mine: dict[str, float] = json.loads(said)
        held = found.get("in_memory", mine)
        found[name] = mine | {f"{n}_over_in_memory": mine[n] / held[n] for n in mine}
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
    parser.add_argument("--way", choices=sorted(WAYS), help="one curve in one way, nothing else")
    given = parser.parse_args()
    asked = Barrier(
        given.a, given.b, points=given.points, stages=STAGES, adaptive=False,
        scrambled=given.scrambled, tokens=given.tokens, length=given.length,
    )  # fmt: skip
    if given.way:
        found: dict[str, object] = {**one_way(given.way, asked)}
    else:
        found = bench(given.a, given.b, asked, given.sampled, given.scopes)
        found["three_ways"] = bench_ways(asked)
    text = json.dumps(found, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
