# ruff: noqa: T201 (a script that prints)
"""Heads: `python tests/bench/bench_heads.py [--out FILE] [--width 4096]`.

Every figure stands beside a named alternative measured in the same run on the same machine; quote
the ratios.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from engine.alignment.gauges import (
    Products,
    fit_factor,
    fit_products,
    mixing_cost,
    procrustes,
    products,
)
from engine.alignment.heads import bilinear, turning
from engine.alignment.one_pass import layer_tensors
from engine.alignment.stages import head_terms
from engine.checkpoint import open_checkpoint
from engine.families.llama import FAMILY


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Median processor time of some runs after one that is not counted, on one thread."""
    times = []
    for _ in range(runs + 1):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times[1:])


def statistics_of(model: str) -> tuple[np.ndarray, ...]:
    """a, b, s, t of every frequency of every group: each layer against the next one."""
    checkpoint = open_checkpoint(model)
    sizes = checkpoint.family.sizes(checkpoint.config)
    every = [
        turning(checkpoint.family, sizes, layer_tensors(checkpoint, layer))
        for layer in range(checkpoint.layers)
    ]
    found: list[list[Tensor]] = [[], [], [], []]
    for x, y in zip(every, [*every[1:], every[0]], strict=True):
        for part, value in zip(
            found,
            (
                y.q.abs().square().sum((1, 2)),
                y.k.abs().square().sum((1, 2)),
                (y.q.conj() * x.q).sum((1, 2)),
                (y.k.conj() * x.k).sum((1, 2)),
            ),
            strict=True,
        ):
            part.append(value.flatten())
    return tuple(torch.cat(part).numpy() for part in found)


def along(a: float, b: float, s: complex, t: complex) -> Callable[[float], float]:
    """f(u) = a e^{2u} + b e^{−2u} − 2 |s e^u + t e^{−u}|, u = log r."""

    def value(u: float) -> float:
        r = np.exp(u)
        return float(a * r * r + b / (r * r) - 2 * abs(s * r + t / r))

    return value


def bench_turns(model: str) -> dict[str, float]:
    """All H(d_h) problems of a model at once, against Brent's method on each frequency."""
    a, b, s, t = statistics_of(model)
    tensors = tuple(torch.from_numpy(x) for x in (a, b, s, t))
    problems = [along(*(x[i].item() for x in (a, b, s, t))) for i in range(len(a))]
    ours = seconds(lambda: fit_factor(*tensors))
    began = time.process_time()
    brent = np.array([minimize_scalar(f, method="brent").fun for f in problems])
    theirs = time.process_time() - began
    z = fit_factor(*tensors).abs().log().numpy()
    mine = np.array([f(u) for f, u in zip(problems, z, strict=True)])
    scale = np.abs(brent) + a + b
    return {
        "problems": len(a),
        "seconds": ours,
        "brent_seconds": theirs,
        "times_faster": theirs / ours,
        "worst_against_brent": float(((mine - brent) / scale).max()),
        "brent_missed": int(((brent - mine) / scale > 1e-9).sum()),
    }


def attention(width: int, heads: int, seed: int) -> dict[str, Tensor]:
    """Random weights of one layer's attention."""
    generator = torch.Generator().manual_seed(seed)
    prefix = "model.layers.0.self_attn."
    return {
        f"{prefix}{word}_proj.weight": torch.randn(width, width, generator=generator) / width**0.5
        for word in "qkvo"
    }


def products_of_heads(a: dict[str, Tensor], b: dict[str, Tensor], heads: int) -> list[Tensor]:
    """‖M_i − M_j‖² and ‖N_i − N_j‖² from the d × d matrices of all heads."""
    found = []
    for first, second, transposed in (("q", "k", False), ("v", "o", True)):
        sides = []
        for tensors in (a, b):
            x, y = (tensors[f"model.layers.0.self_attn.{w}_proj.weight"] for w in (first, second))
            y = y.T if transposed else y
            x, y = (z.unflatten(0, (heads, -1)) for z in (x, y))
            sides.append(torch.einsum("hnd,hne->hde", x, y).flatten(1))
        m, n = sides
        inner = m @ n.T
        found.append(m.square().sum(1)[:, None] + n.square().sum(1) - 2 * inner)
        del sides, m, n
    return found


def in_own_process(kind: str, width: int, heads: int, queue: multiprocessing.Queue) -> None:
    """Seconds, bytes beyond the weights, and the sum of both terms of one way."""
    torch.set_num_threads(1)
    a, b = attention(width, heads, 0), attention(width, heads, 1)
    sizes = {"grp": heads, "head": 1, "rot": width // heads, "val": width // heads, "res": width}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    if kind == "formed":
        found = products_of_heads(a, b, heads)
    else:
        found = [
            x.flatten(2).flatten(0, 1)
            for x in head_terms(FAMILY, sizes, a, b, own=kind == "rotary")
        ]
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    queue.put((took, peak * 1024, [float(x.sum()) for x in found]))


def bench_costs(width: int, heads: int) -> dict[str, object]:
    """Both costs of all pairs of heads, against forming M and N of every head."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, object] = {"heads": heads, "width": width}
    ways = {}
    for kind in ("rotary", "published", "formed"):
        queue = context.Queue()
        process = context.Process(target=in_own_process, args=(kind, width, heads, queue))
        process.start()
        ways[kind] = queue.get()
        process.join()
        found[kind] = {"seconds": ways[kind][0], "MB": ways[kind][1] / 1e6}
    for kind in ("rotary", "published"):
        found[f"{kind}_times_faster"] = ways["formed"][0] / ways[kind][0]
        found[f"{kind}_times_less_memory"] = ways["formed"][1] / ways[kind][1]
    found["same_VO"] = abs(ways["rotary"][2][1] / ways["formed"][2][1] - 1)
    return found


def descended(data: Products, start: Tensor) -> Tensor:
    """L-BFGS on each matrix from the published start."""
    found = []
    for g in range(len(start)):
        one = Products(*(getattr(data, f)[g] for f in data.__dataclass_fields__))

        def value(flat: np.ndarray, one: Products = one) -> tuple[float, np.ndarray]:
            m = torch.from_numpy(flat).reshape(start.shape[1:]).requires_grad_()
            cost = mixing_cost(one, m)
            cost.backward()
            assert m.grad is not None
            return float(cost.detach()), m.grad.flatten().numpy()

        best = minimize(value, start[g].flatten().numpy(), jac=True, method="L-BFGS-B",
                        options={"maxiter": 500})  # fmt: skip
        found.append(torch.from_numpy(best.x).reshape(start.shape[1:]))
    return torch.stack(found)


def bench_matrices(first: str, second: str) -> dict[str, float]:
    """Gauss–Newton on all V–O matrices of two models, against L-BFGS from orthogonal starts."""
    parts: list[Products] = []
    a, b = open_checkpoint(first), open_checkpoint(second)
    sizes = a.family.sizes(a.config)
    for layer in range(a.layers):
        x, y = (bilinear(a.family, sizes, layer_tensors(c, layer), "val") for c in (a, b))
        rows = (z.flatten(1, 2) for z in (x.left, y.left, x.right, y.right))
        parts.append(products(*rows))
    data = Products(
        *(torch.cat([getattr(p, f) for p in parts]) for f in parts[0].__dataclass_fields__)
    )
    norm = sum(x.diagonal(dim1=-2, dim2=-1).sum(-1) for x in (data.a_w, data.a_r))
    began = time.process_time()
    other = descended(data, procrustes(data))
    theirs = time.process_time() - began
    ours = seconds(lambda: fit_products(data))
    cost = [
        (mixing_cost(data, m) + norm) / norm for m in (fit_products(data), other, procrustes(data))
    ]
    return {
        "matrices": len(norm),
        "seconds": ours,
        "lbfgs_seconds": theirs,
        "times_faster": theirs / ours,
        "relative_objective": float(cost[0].mean()),
        "relative_objective_lbfgs": float(cost[1].mean()),
        "relative_objective_orthogonal": float(cost[2].mean()),
        "worst_against_lbfgs": float((cost[0] - cost[1]).max()),
    }


def main() -> None:
    """All figures as one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        "turns": bench_turns(asked.model),
        "matrices": bench_matrices("demo:base", "demo:seed-1"),
        "costs": bench_costs(asked.width, asked.heads),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
