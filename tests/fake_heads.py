"""Reports on attention heads without an engine: a planted order, planted turns, chosen noise."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.records import Disguise, HeadCost, HeadsReport, OrderRank, TurnReport, Turns


@dataclass(frozen=True)
class Shape:
    """Key/value heads, query heads in each, channels."""

    groups: int = 2
    per_group: int = 3
    head_dim: int = 16

    @property
    def heads(self) -> int:
        return self.groups * self.per_group


def order(shape: Shape, draw: np.random.Generator) -> np.ndarray:
    """A random order of heads that keeps groups together."""
    return np.concatenate([
        group * shape.per_group + draw.permutation(shape.per_group)
        for group in draw.permutation(shape.groups)
    ])  # fmt: skip


def cost(shape: Shape, planted: np.ndarray, left: float, seed: int, kind: Any) -> HeadCost:
    """Two terms, small at the planted pairs."""
    draw = np.random.default_rng(seed)
    terms = [draw.uniform(2.0, 6.0, (shape.heads, shape.heads)) for _ in range(2)]
    for term in terms:
        term[np.arange(shape.heads), planted] = 6 * left**2
    a, b = (term.astype(np.float32) for term in terms)
    return HeadCost(kind, a, b, (float(a.mean()), float(b.mean())))


def turns(shape: Shape, noise: float = 0.0, half: bool = False, seed: int = 3) -> Turns:
    """z of every frequency and the sums that its objective is made of, from small matrices."""
    draw = np.random.default_rng(seed)
    size = shape.groups, shape.head_dim // 2
    angle = draw.uniform(-np.pi, np.pi, size)
    log = draw.normal(0, 0.4, size)
    if half:
        angle, log = np.pi * (angle > 0), np.zeros(size)
    z = np.exp(log + 1j * angle)[..., None]
    q, k = (draw.normal(size=(*size, 48, 2)) @ np.array([1, 1j]) for _ in range(2))
    off = [noise * (draw.normal(size=(*size, 48, 2)) @ np.array([1, 1j])) for _ in range(2)]
    q_b, k_b = q / z + off[0], k * np.conj(z) + off[1]

    def inner(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = (x.conj() * y).sum(-1)
        return np.stack([found.real, found.imag], -1)

    power = (abs(q) ** 2 + abs(k) ** 2).sum(-1)
    return Turns(
        angle=angle,
        log_modulus=log,
        weight=(power / power.sum(1, keepdims=True)).astype(np.float32),
        query=(abs(q_b) ** 2).sum(-1),
        key=(abs(k_b) ** 2).sum(-1),
        query_inner=inner(q_b, q),
        key_inner=inner(k_b, k),
        constant=power,
        half_turns=half,
        planted_angle=angle.copy(),
        planted_log_modulus=log.copy(),
    )


def frequencies(**more: Any) -> Turns:
    """Two frequencies, at +30° × 1 and −150° × 2; the second objective is 7 at its best, of 8."""
    angle = np.radians([[30.0, -150.0]])
    given = {
        "angle": angle, "log_modulus": np.log([[1.0, 2.0]]), "weight": np.array([[0.75, 0.25]]),
        "query": np.array([[1.0, 0.5]]), "key": np.array([[1.0, 4.0]]), "half_turns": False,
        "query_inner": np.array([[[1.0, 0.0], [np.cos(angle[0, 1]), np.sin(angle[0, 1])]]]),
        "key_inner": np.zeros((1, 2, 2)), "constant": np.array([[2.0, 8.0]]),
        "planted_angle": None, "planted_log_modulus": None,
    }  # fmt: skip
    return Turns(**(given | more))


def disguises(shape: Shape, measured: bool = True) -> tuple[Disguise, ...]:
    """Two that change the output and one that does not; all cost nothing by the published one."""
    low, nothing = np.linspace(1.5, 2.5, shape.heads), np.zeros(shape.heads)
    return (
        Disguise("matrix", nothing, low, *((0.68, 0.24) if measured else (None, None))),
        Disguise("exchange", nothing + 3e-16, low, *((0.66, 0.34) if measured else (None, None))),
        Disguise("turn", nothing, nothing, *((4e-7, 5e-9) if measured else (None, None))),
    )


def heads_report(left: float = 1e-7, shape: Shape | None = None, **more: Any) -> HeadsReport:
    """Rotary heads that a gauge turned; `left` is the relative distance that alignment leaves."""
    shape = shape or Shape()
    draw = np.random.default_rng(1)
    planted = order(shape, draw)
    own, seen = (cost(shape, planted, left, seed, kind) for seed, kind in ((1, "rotary"), (2, "p")))
    seen.query_key[0, planted[1]] = seen.value_output[0, planted[1]] = 0
    total = own.total
    rows = np.arange(shape.heads)
    rest = total.copy()
    rest[rows, planted] = np.inf
    norm = draw.uniform(80, 120, shape.heads)
    share = np.array([1.9, 1.1, 0.2, left**2])[:, None]
    given = {
        "a": "base",
        "b": "twin",
        "fingerprints": ("a" * 16, "b" * 16),
        "family": "Llama",
        "layer": 0,
        "layers": 6,
        "groups": shape.groups,
        "per_group": shape.per_group,
        "head_dim": shape.head_dim,
        "using": "weights",
        "used": "rotary",
        "own": own,
        "published": replace(seen, kind="published"),
        "order": planted,
        "second": rest.argmin(1),
        "margin": ((rest.min(1) - total[rows, planted]) / total.mean()).astype(np.float32),
        "planted_order": planted.copy(),
        "stage2": "full",
        "query_key": share * norm,
        "value_output": share * norm[::-1],
        "query_key_norm": norm,
        "value_output_norm": norm[::-1].copy(),
        "turns": turns(shape, left),
        "query_scale": None,
        "key_scale": None,
        "val_singular": np.sort(draw.uniform(0.3, 3, (shape.groups, shape.head_dim)))[:, ::-1],
        "qk_singular": None,
        "rank": OrderRank(72, 1, 0.0, 1, 0.0, (4.18, 4.18, 9.3)),
        "removal": None,
        "checked_on": "2,048 tokens of the demo models' own text",
        "disguises": disguises(shape),
        "disguised_on": "128 tokens of the demo models' own text",
        "device": "cpu",
        "dtype": "float32",
        "seconds": 0.4,
    }
    return HeadsReport(**(given | more))


def unrotated(**more: Any) -> HeadsReport:
    """Heads whose queries and keys any matrix may mix."""
    shape = Shape(4, 1, 24)
    given = {"turns": None, "qk_singular": np.ones((4, 24)), "rank": None}
    report = heads_report(shape=shape, **given, disguises=(), disguised_on="", **more)
    return replace(report, family="GPT-2", used="product", own=replace(report.own, kind="product"))


def itself(ratio: float = 0.4) -> HeadsReport:
    """A model against itself: heads 1 and 2 are the nearest, at this share of the mean cost."""
    shape = Shape()
    rows = np.arange(shape.heads)
    own = cost(shape, rows, 0.0, 1, "rotary")
    for term, scale in zip((own.query_key, own.value_output), own.balance, strict=True):
        term[1, 2] = term[2, 1] = ratio * scale / 2
    total = own.total
    rest = total + np.diag(np.full(shape.heads, np.inf))
    return heads_report(
        0.0,
        b="base",
        fingerprints=("a" * 16, "a" * 16),
        using="identity",
        own=own,
        order=rows,
        second=rest.argmin(1),
        margin=(rest.min(1) / total.mean()).astype(np.float32),
        planted_order=None,
        removal=np.linspace(0.01, 0.2, shape.heads).astype(np.float32),
    )


def turn_report(**more: Any) -> TurnReport:
    """One frequency turned by hand, away from the best angle."""
    given = {
        "a": "base",
        "b": "twin",
        "fingerprints": ("a" * 16, "b" * 16),
        "layer": 0,
        "group": 0,
        "frequency": 0,
        "angle": 0.0,
        "log_modulus": 0.0,
        "objective": 150.0,
        "best": 1e-9,
        "kept": 2e-7,
        "midpoint": 1.4,
        "midpoint_best": 3e-6,
        "midpoint_loss": 4.4,
        "midpoint_loss_best": 4.18,
        "checked_on": "2,048 tokens of the demo models' own text",
        "device": "cpu",
        "dtype": "float32",
        "seconds": 0.2,
    }
    return TurnReport(**(given | more))
