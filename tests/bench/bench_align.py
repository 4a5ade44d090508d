# ruff: noqa: T201 (a script that prints)
"""Whole alignment against git re-basin: `python tests/bench/bench_align.py [MODEL] [--layers N]`.

A model against itself, trained a little further (kept in the store), with `--scrambled` also in
other coordinates. The alternative is a straightforward port of the coordinate descent of Ainsworth
et al. 2023 (`weight_matching.py`): orders of the residual stream and of every layer's neurons, one
cost matrix from all tensors and one assignment each, in random turns until none gains. Both start
from the identity, run in turns in processes of their own that read the files themselves, and are
judged by the same distance of weights, both models folded. Seconds are medians; quote the ratios.
"""

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from engine import network, texts
from engine.action import act, blocks
from engine.alignment.one_pass import start_from_embedding
from engine.alignment.refinement import in_memory, next_token_loss
from engine.alignment.sweeps import Descent, descend
from engine.axes import legs
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.pruning import prune
from engine.questions import Align
from engine.scramble import scramble
from engine.store import default_root
from engine.symmetry import Symmetry, load, words

LENGTH = 128


def tuned(a: Checkpoint, folder: Path, steps: int, rate: float = 1e-4) -> Checkpoint:
    """The model after some steps of AdamW, one window of text each."""
    model = network.load(a).requires_grad_(True)
    ids = torch.from_numpy(texts.tokens(a, "default", (steps + 1) * LENGTH, LENGTH))
    optimiser = torch.optim.AdamW(model.parameters(), rate)
    for step in range(steps):
        rows = ids[step % len(ids)][None]
        loss = next_token_loss(model(rows), rows)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    held = {disk: model.get_parameter(name).detach() for name, disk in in_memory(a).items()}
    save_checkpoint(folder, held.items(), like=a)
    return open_checkpoint(folder)


def rebasin(a: Checkpoint, b: Checkpoint, most: int = 100, seed: int = 0) -> Symmetry:
    """git re-basin's weight matching on residual coordinates and neurons, all tensors in memory."""
    theirs, mine = ({n: c.read(n).float() for n in c.headers} for c in (a, b))
    sizes = a.family.sizes(a.config)
    keys = ["res", *(a.family.key("ffn", layer) for layer in range(a.layers))]
    order = {key: torch.arange(sizes[key.rpartition(".")[2]]) for key in keys}
    carriers = carriers_of(a, keys)
    rng = np.random.default_rng(seed)
    for _ in range(most):
        gained = False
        for number in rng.permutation(len(keys)):
            key = keys[number]
            g = Symmetry(a.family, a.config, ordered(order, key))
            table = summed(g, carriers[key], key.rpartition(".")[2], theirs, mine)
            found = torch.from_numpy(linear_sum_assignment(table.numpy(), maximize=True)[1])
            rows = torch.arange(len(found))
            gained |= float(table[rows, found].sum() - table[rows, order[key]].sum()) > 1e-12
            order[key] = found
        if not gained:
            break
    return Symmetry(a.family, a.config, ordered(order))


def carriers_of(a: Checkpoint, keys: list[str]) -> dict[str, list[str]]:
    """The tensors that carry each coordinate, by key."""
    found: dict[str, list[str]] = {key: [] for key in keys}
    for name in a.headers:
        row = a.family.row(name)
        for word in {leg.name for leg in legs(row.axes)} & {"res", "ffn"}:
            found[a.family.key(word, row.layer)].append(name)
    return found


def ordered(order: Mapping[str, Tensor], but: str = "") -> dict[str, Ordered]:
    """Orders as elements, one of them left out."""
    return {k: Ordered(p, torch.ones(len(p)).double()) for k, p in order.items() if k != but}


def summed(
    g: Symmetry, names: list[str], word: str, theirs: Mapping[str, Tensor], mine: dict[str, Tensor]
) -> Tensor:
    """Σ a bᵀ over every axis that carries a coordinate, gains too, all other orders applied."""
    total = torch.zeros(g.sizes[word], g.sizes[word])
    for name in names:
        moved = act(g, name, mine.__getitem__)
        both = (blocks(g.family, g.sizes, name, x, word) for x in (theirs[name], moved))
        for (_, x), (_, y) in zip(*both, strict=True):
            total += x.mT @ y
    return total


def ours(a: Checkpoint, b: Checkpoint) -> Symmetry:
    """Sweeps from the identity and from the embedding."""
    asked = Align(a.name, b.name, sweeps=10)
    task = Descent(a, b, asked, words(a.family, ()) & a.family.carried(b.headers))
    starts = {"identity": None, "embedding": lambda: start_from_embedding(a, b)}
    return descend(task, starts)[0]


def distance(a: Checkpoint, b: Checkpoint, g: Symmetry) -> float:
    """The objective of `engine.alignment.sweeps` without activations."""
    task = Descent(a, b, Align(a.name, b.name), frozenset())
    gap = own = 0.0
    for layer in task.layers():
        theirs, mine = task.pair(layer)
        for name, x in theirs.items():
            gap += float((x - act(g, name, mine.__getitem__)).square().sum())
            own += float(x.square().sum())
    return gap / own


def kept(g: Symmetry) -> float:
    """Share of residual coordinates that the gauge leaves in their places."""
    found = g.elements["res"]
    assert isinstance(found, Ordered)
    return float((found.permutation == torch.arange(len(found.scale))).double().mean())


Figures = dict[str, float]


def in_this_process(name: str, a: Checkpoint, b: Checkpoint) -> tuple[Symmetry, Figures]:
    """A solution with its wall and processor seconds, and the peak of memory beyond the start."""
    before = peak()
    began, used = time.perf_counter(), time.process_time()
    g = {"ours": ours, "rebasin": rebasin}[name](a, b)
    took = {"seconds": time.perf_counter() - began, "processor": time.process_time() - used}
    return g, {**took, "peak_mb": peak() - before}


def peak() -> float:
    """The most memory that this process has held, in MB.

    On Linux by the process itself: what `getrusage` says is inherited from the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return float(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def in_its_own(name: str, a: Checkpoint, b: Checkpoint) -> tuple[Symmetry, Figures]:
    """The same in a new process."""
    with tempfile.TemporaryDirectory() as made:
        gauge = Path(made) / "g.safetensors"
        run = [sys.executable, __file__, str(a.folder), "--solve", name, str(b.folder), str(gauge)]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
        return load(gauge), json.loads(done.stdout)


def bench(
    a: Checkpoint,
    b: Checkpoint,
    solve: Callable[..., tuple[Symmetry, Figures]] = in_this_process,
    runs: int = 1,
) -> dict[str, Figures]:
    """Seconds, memory, distance and residual coordinates in place, of both."""
    found = {"unaligned": {"distance": distance(a, b, Symmetry(a.family, a.config, {}))}}
    every = [{name: solve(name, a, b) for name in ("ours", "rebasin")} for _ in range(runs)]
    for name in ("ours", "rebasin"):
        g = every[0][name][0]
        taken = [run[name][1] for run in every]
        middle = {key: statistics.median(one[key] for one in taken) for key in taken[0]}
        found[name] = {**middle, "distance": distance(a, b, g), "in_place": kept(g)}
    mine, other = found["ours"], found["rebasin"]
    found["ratio"] = {
        "times_faster": other["seconds"] / mine["seconds"],
        "times_less_processor": other["processor"] / mine["processor"],
        "times_less_memory": other["peak_mb"] / max(mine["peak_mb"], 1e-9),
        "distance": mine["distance"] / other["distance"],
    }
    return found


def layer_mb(a: Checkpoint) -> float:
    """The largest part that is held at once: of one layer, or of none, in float32."""
    sizes: dict[int | None, float] = {}
    for name, header in a.headers.items():
        layer = a.family.row(name).layer
        sizes[layer] = sizes.get(layer, 0.0) + 4e-6 * header.parameters
    return max(sizes.values())


def prepared(spec: str, layers: int | None, steps: int) -> tuple[Checkpoint, Checkpoint]:
    """The model (its first layers) and the same trained further, written once."""
    a = open_checkpoint(spec)
    folder = default_root() / "bench"
    if layers and layers < a.layers:
        cut = folder / f"{a.fingerprint}-{layers}"
        drop = range(layers, a.layers)
        a = open_checkpoint(cut) if cut.exists() else prune(a, drop, cut)
    further = folder / f"{a.fingerprint}-after-{steps}"
    return a, open_checkpoint(further) if further.exists() else tuned(a, further, steps)


def main() -> None:
    """Run all and print one JSON document."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model", nargs="?", default="smollm2")
    options.add_argument("--layers", type=int, help="only so many first layers (all)")
    options.add_argument("--steps", type=int, default=20, help="of training")
    options.add_argument("--runs", type=int, default=3, help="of each, in turns")
    options.add_argument("--scrambled", action="store_true", help="also in other coordinates")
    options.add_argument("--out", type=Path, help="also write the figures to a file")
    options.add_argument("--solve", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.solve:
        name, other, gauge = given.solve
        g, figures = in_this_process(name, open_checkpoint(given.model), open_checkpoint(other))
        g.save(Path(gauge))
        print(json.dumps(figures))
        return
    a, b = prepared(given.model, given.layers, given.steps)
    figures = {
        "layers": a.layers,
        "threads": torch.get_num_threads(),
        "one_layer_mb": layer_mb(a),
        "tuned": bench(a, b, in_its_own, given.runs),
    }
    if given.scrambled:
        with tempfile.TemporaryDirectory() as made:
            scramble(b, Path(made) / "b", seed=1)
            figures["scrambled"] = bench(a, open_checkpoint(Path(made) / "b"), in_its_own)
    text = json.dumps(figures, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
