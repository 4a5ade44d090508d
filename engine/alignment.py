"""Putting B into A's coordinates: stages as rows of a table, one layer of both at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engine.action import act, correlate
from engine.assignment import margins, match, solve
from engine.axes import Mark, Sizes, legs
from engine.checkpoint import Checkpoint
from engine.elements import Element, Mixed, Ordered, Turned
from engine.errors import Progress, Refused, silent
from engine.family import Family
from engine.gauges import fit_factor, fit_mixing
from engine.groups import Trivial
from engine.heads import (
    attention,
    gather,
    match_heads,
    paired,
    query_key_cost,
    value_output_cost,
)
from engine.symmetry import Symmetry, words

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Solved:
    """What one stage found in one layer."""

    elements: Mapping[str, Element]  # by coordinate
    margin: float | None = None  # relative; None for a continuous element


def solve_neurons(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """FFN neurons by what no sign or scale can change, then the factor of each.

    d(i, j) = ‖gate_i − gate_j‖² + λ ‖up_i ⊗ down_i − up_j ⊗ down_j‖², λ balancing the two; the
    factor multiplies up and divides down (`engine.gauges.fit_factor`, real).
    """
    x, y = (gather(family, sizes, tensors, "ffn") for tensors in (a, b))
    gate = _distances(
        x[Mark.RELABEL].mT @ y[Mark.RELABEL], *(_squares(z, Mark.RELABEL) for z in (x, y))
    )
    up, down = (x[mark].mT @ y[mark] for mark in (Mark.WRITE, Mark.READ))
    whole = [_squares(z, Mark.WRITE) * _squares(z, Mark.READ) for z in (x, y)]
    pair = _distances(up * down, *whole)
    score = -(relative(gate) + relative(pair)).numpy()
    order = torch.from_numpy(solve(score)[0])
    rows = torch.arange(len(order))
    factor = fit_factor(
        _squares(y, Mark.WRITE)[order], _squares(y, Mark.READ)[order],
        up[rows, order], down[rows, order],
    )  # fmt: skip
    return Solved({"ffn": Ordered(order, factor)}, float(margins(score, order.numpy()).min()))


def _squares(found: Mapping[Mark, Tensor], mark: Mark) -> Tensor:
    return found[mark].square().sum(-2)


def _distances(inner: Tensor, own_a: Tensor, own_b: Tensor) -> Tensor:
    return own_a[:, None] + own_b - 2 * inner


def relative(distance: Tensor) -> Tensor:
    """In units of its mean; parts that are dead, all of whose distances are 0, keep them."""
    return distance / distance.abs().mean().clamp(min=1e-300)


def solve_heads(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """Groups and heads by the sum of both invariant costs, each relative to its mean."""
    x, y = (attention(family, sizes, tensors) for tensors in (a, b))
    terms = [query_key_cost(x, y), value_output_cost(x, y)]
    found = match_heads(sum(map(relative, terms), torch.zeros(())))
    return Solved({"grp": found.grp, "head": found.head}, found.margin)


def solve_rotary(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """One complex number per group and frequency: `fit_factor` on the paired channels."""
    x, y = (attention(family, sizes, tensors) for tensors in (a, b))
    (qa, ka), (qb, kb) = ((paired(z.q), paired(z.k)) for z in (x, y))
    z = fit_factor(
        _power(qb), _power(kb),
        (qb.conj() * qa).sum((1, 2)), (kb.conj() * ka).sum((1, 2)),
    )  # fmt: skip
    return Solved({"rot": Turned(z)})


def _power(x: Tensor) -> Tensor:
    return (x.real.square() + x.imag.square()).sum((1, 2))


def solve_values(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Solved:
    """One invertible matrix per group between V and O."""
    x, y = (attention(family, sizes, tensors) for tensors in (a, b))
    flat = [t.flatten(1, 2) for t in (x.v, y.v, x.o, y.o)]
    return Solved({"val": Mixed(fit_mixing(*flat))})


Solver = Callable[[Family, Sizes, Tensors, Tensors], Solved]
STAGES: tuple[tuple[tuple[str, ...], Solver], ...] = (
    (("ffn",), solve_neurons),
    (("grp", "head"), solve_heads),
    (("rot",), solve_rotary),
    (("val",), solve_values),
)
"""The stages inside a layer, in order; each sees B after the stages before it."""


def cosines(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors, coordinate: str
) -> Float[Tensor, "*over n n"]:
    """Σ a bᵀ over all signed legs of a coordinate over both norms; every other axis aligned."""

    def total(x: Tensors, y: Tensors) -> Tensor:
        parts = [correlate(family, sizes, n, x[n].double(), y[n].double(), coordinate) for n in x]
        return torch.stack([part for part in parts if part is not None]).sum(0)

    def norms(x: Tensors) -> Tensor:
        found = gather(family, sizes, x, coordinate, *family.coordinates[coordinate].over)
        signed = [block for mark, block in found.items() if mark is not Mark.RELABEL]
        return torch.stack([block.square().sum(-2) for block in signed]).sum(0).sqrt()

    return total(a, b) / (norms(a).unsqueeze(-1) * norms(b).unsqueeze(-2)).clamp(min=1e-300)


def start_from_embedding(a: Checkpoint, b: Checkpoint) -> Float[np.ndarray, "d d"]:
    """C of the residual coordinates without data: the tensors whose other axes are fixed.

    These are the token embedding and an untied `lm_head`; token ids that only one of the
    vocabularies has (the rows at the end) are left out.
    """
    family = a.family

    def ready(name: str) -> bool:
        others = {leg.name for leg in legs(family.row(name).axes)} - {"res"}
        fixed = (isinstance(family.coordinates[o].group, Trivial) for o in others)
        return bool(others) and all(fixed) and name in b.headers

    both = {n: common(a.read(n), b.read(n)) for n in a.headers if ready(n)}
    theirs, mine = ({n: pair[i] for n, pair in both.items()} for i in (0, 1))
    return cosines(family, family.sizes(a.config), theirs, mine, "res").numpy()


def common(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The leading part that two tensors share where their vocabularies differ in size."""
    shared = tuple(slice(min(pair)) for pair in zip(x.shape, y.shape, strict=True))
    return x[shared], y[shared]


def layer_tensors(checkpoint: Checkpoint, layer: int | None) -> dict[str, Tensor]:
    """The tensors of one layer (None: those of no layer)."""
    family = checkpoint.family
    return {n: checkpoint.read(n) for n in checkpoint.headers if family.row(n).layer == layer}


def align(
    a: Checkpoint,
    b: Checkpoint,
    correlation: np.ndarray,
    *,
    signs: bool = True,
    only: Collection[str] = (),
    progress: Progress = silent,
) -> tuple[Symmetry, Mapping[str, list[float]]]:
    """g with g · B ≈ A, and the relative margins that each stage met, by coordinate.

    `correlation` is C of the residual coordinates (rows A): from activations, or from
    `start_from_embedding`. With `signs` off only S_d is searched, as git re-basin does.
    """
    family, chosen = a.family, words(a.family, only)
    require_whole_stages(chosen)
    sizes = family.sizes(a.config)
    found: dict[str, Element] = {}
    seen: dict[str, list[float]] = {}
    if "res" in chosen:
        best = match(correlation, absolute=signs, signs=signs)
        found["res"] = Ordered(
            torch.from_numpy(best.permutation), torch.from_numpy(best.sign).double()
        )
        seen["res"] = [float(best.margin.min())]
    g = Symmetry(family, a.config, found, b.fingerprint, a.fingerprint, (b.name, a.name))
    for layer in range(a.layers):
        progress(layer / a.layers, f"layer {layer} of {a.layers}")
        theirs = layer_tensors(a, layer)
        mine = {n: act(g, n, x) for n, x in layer_tensors(b, layer).items()}
        for names, solver in STAGES:
            if not set(names) <= chosen:
                continue
            solved = solver(family, sizes, theirs, mine)
            step = {family.key(n, layer): e for n, e in solved.elements.items()}
            found |= step
            here = replace(g, elements=step)
            mine = {n: act(here, n, x) for n, x in mine.items()}
            for n in names:
                seen.setdefault(n, []).extend([] if solved.margin is None else [solved.margin])
    return replace(g, elements=dict(found)), seen


def require_whole_stages(chosen: Collection[str]) -> None:
    """Refused where only a part of what one stage solves together was named."""
    for names, _ in STAGES:
        absent = [name for name in names if name not in chosen]
        if absent and len(absent) < len(names):
            raise Refused(
                f"{' and '.join(names)} are solved together, and {' and '.join(absent)} was not "
                "named: say heads for both."
            )


def aligned(g: Symmetry, b: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """The tensors of g · B, one at a time."""
    for name in b.headers:
        yield name, act(g, name, b.read(name))
