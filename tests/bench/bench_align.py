# ruff: noqa: T201 (a script that prints)
"""Whole alignment against git re-basin: `python tests/bench/bench_align.py [MODEL] [--out FILE]`.

A model against itself, trained a little further, as it is and scrambled. The alternative is a
straightforward port of the coordinate descent of Ainsworth et al. 2023 (`weight_matching.py`):
orders of the residual stream and of every layer's neurons, one cost matrix from all tensors and one
assignment each, in random turns until none gains. Both are judged by the same distance of weights,
both models folded; seconds are of one run each, on the same machine.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
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
from engine.questions import Align
from engine.scramble import scramble
from engine.symmetry import Symmetry, words

LENGTH = 512


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


def bench(a: Checkpoint, b: Checkpoint) -> dict[str, dict[str, float]]:
    """Seconds, distance and residual coordinates in place, of both."""
    found = {"unaligned": {"distance": distance(a, b, Symmetry(a.family, a.config, {}))}}
    for name, solve in (("ours", ours), ("rebasin", rebasin)):
        began = time.perf_counter()
        g = solve(a, b)
        taken = time.perf_counter() - began
        found[name] = {"seconds": taken, "distance": distance(a, b, g), "in_place": kept(g)}
    found["ratio"] = {"times_faster": found["rebasin"]["seconds"] / found["ours"]["seconds"]}
    return found


def main() -> None:
    """Run all and print one JSON document."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model", nargs="?", default="smollm2")
    options.add_argument("--steps", type=int, default=20, help="of training")
    options.add_argument("--out", type=Path, help="also write the figures to a file")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        a = open_checkpoint(given.model)
        b = tuned(a, folder / "tuned", given.steps)
        scramble(b, folder / "scrambled", seed=1)
        figures = {
            "threads": torch.get_num_threads(),
            "tuned": bench(a, b),
            "scrambled": bench(a, open_checkpoint(folder / "scrambled")),
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        }
    text = json.dumps(figures, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
