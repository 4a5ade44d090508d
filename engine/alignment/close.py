"""What stands where it should already, told without comparing everything with everything.

A part of a vector is never longer than the vector. Where, over a few rows, every other j is at
least as far from i as i's own partner is over all rows, no other partner is better; and an
assignment in which every row has its best partner is the best one.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from engine.alignment.gauges import Products, fit_factor_nearby, fit_nearby
from engine.alignment.heads import Bilinear, Tensors, Turning, gather
from engine.axes import Leg, Mark, Sizes
from engine.elements import Mixed, Pairs, Turned, split
from engine.family import Family

ROWS = 24
"""Rows that are compared, where there are as many."""
ROUNDING = 1e-5
"""Of a squared length, between float32 sums taken in two ways."""
WORTH, SAMPLE = 5e-3, 16
"""Factors and turns are fitted only if one of so many says that they take off so large a share."""
CLOSE = 0.1
"""The most that a head in its place may leave of its own squared length."""
_CHUNK = 2**17


def part(x: Float[Tensor, "rows n"], rows: int = ROWS) -> Float[Tensor, "some n"]:
    """So many rows or a few more, evenly spread."""
    return x[:: max(1, len(x) // rows)]


def distances(x: Float[Tensor, "rows n"], y: Float[Tensor, "rows m"]) -> Float[Tensor, "n m"]:
    """‖x_i − y_j‖², in one product."""
    one, other = (z.square().sum(0, keepdim=True) for z in (x, y))
    left = torch.cat([-2 * x, one, torch.ones_like(one)])
    return left.mT @ torch.cat([y, torch.ones_like(other), other])


def stands(
    x: Float[Tensor, "rows n"], y: Float[Tensor, "rows n"], left: Float[Tensor, " n"]
) -> bool:
    """Whether all others are at least as far, over these rows, as each one's own partner leaves."""
    others = distances(x, y).fill_diagonal_(torch.inf).amin(1)
    return bool((others >= left + ROUNDING * x.square().sum(0)).all())


def sums(x: Float[Tensor, "rows n"]) -> Float[Tensor, " n"]:
    """The sum of every column: as a product, which adds up in parts and fast."""
    return (x.new_ones(len(x)) @ x).double()


def chunks(x: Tensor, y: Tensor, axis: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Both in parts that fit into a cache."""
    step = max(1, _CHUNK * x.shape[axis] // max(1, x.numel()))
    yield from zip(x.split(step, axis), y.split(step, axis), strict=True)


def apart(
    x: Float[Tensor, "rows n"], y: Float[Tensor, "rows n"]
) -> tuple[Float[Tensor, " rows"], Float[Tensor, " n"]]:
    """‖x − y‖² of every row and of every column, both in one pass."""
    squares = ((one - other).square() for one, other in chunks(x, y))
    rows, columns = zip(*((sums(z.mT), sums(z)) for z in squares), strict=True)
    return torch.cat(rows), torch.stack(columns).sum(0)


def along(family: Family, name: str) -> tuple[str, ...]:
    """The coordinate of every axis of a tensor; "" for a sum of several."""
    return tuple(one.name if isinstance(one, Leg) else "" for one in family.row(name).axes)


def gap(family: Family, name: str, x: Tensor, y: Tensor) -> Float[Tensor, " some"]:
    """‖x − y‖² by residual coordinate; one number where a tensor has no such axis of its own."""
    words = along(family, name)
    if words.count("res") == 1 and x.ndim == 2:
        return apart(x, y)[words.index("res")]
    rest = (x - y).double().square()
    return rest if words == ("res",) else rest.sum()[None]


def moments(
    x: Float[Tensor, "rows n"], y: Float[Tensor, "rows n"], *, gap_only: bool = False
) -> Float[Tensor, "3 n"]:
    """‖x − y‖², ‖y‖² and ⟨y, x − y⟩ of every column; with `gap_only` the first."""
    axis = int(x.stride(0) == 1)
    found = []
    for one, other in chunks(x, y, axis):
        apart = one - other
        terms = [apart * apart] if gap_only else [apart * apart, other * other, apart * other]
        found.append(torch.stack([sums(z) for z in terms]))
    return torch.cat(found, 1) if axis else torch.stack(found).sum(0)


def heads_stand(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> bool:
    """Whether every head leaves at most `CLOSE` of itself as it is, in its place."""
    for word in ("rot", "qk", "val"):
        if not sizes.get(word):
            continue
        x, y = (gather(family, sizes, z, word, "grp", "head", dtype=torch.float32) for z in (a, b))
        for mark, rows in x.items():
            apart = (rows - y[mark]).square().sum((-2, -1))
            if bool((apart > CLOSE * rows.square().sum((-2, -1))).any()):
                return False
    return True


def turned_nearby(a: Turning, b: Turning, start: Turned) -> Turned:
    """The turns that go on from others: those of B's are multiplied in first."""
    z = start.z[:, None, None]
    here = b if bool((z == 1).all()) else Turning(b.q * z.to(b.q), b.k / z.conj().to(b.k))
    both = (a.q, here.q), (a.k, here.k)
    s, t = ((y.conj() * x).sum((1, 2)).to(torch.complex128) for x, y in both)
    q, k = ((y.real.square() + y.imag.square()).sum((1, 2)).double() for _, y in both)
    return replace(start, z=start.z * fit_factor_nearby(q, k, s, t))


def worth_turning(family: Family, sizes: Sizes, a: Tensors, b: Tensors, pairs: Pairs) -> bool:
    """Whether turns take off more than `WORTH` of what is left, by a sample of frequencies.

    Near 1 both sides pull along w = log z, queries by w and keys by −w̄: a quadratic.
    """
    apart, pull, own = 0.0, [], []
    found = [gather(family, sizes, z, "rot", "grp", "head", dtype=torch.float32) for z in (a, b)]
    for mark in (Mark.WRITE, Mark.READ):
        (x, u), (y, v) = ([half[..., ::SAMPLE] for half in split(z[mark], pairs)] for z in found)
        p, q = x - y, u - v
        apart += float((p.square() + q.square()).sum())
        pull.append(torch.complex(*(z.sum((1, 2)) for z in (y * p + v * q, y * q - v * p))))
        own.append((y.square() + v.square()).sum((1, 2)))
    whole = pull[0] - pull[1].conj()
    taken = float((whole.abs().square() / (own[0] + own[1]).clamp(min=1e-30)).sum())
    return taken > WORTH * apart


def mixed_nearby(a: Bilinear, b: Bilinear, start: Mixed) -> Mixed:
    """The matrix that goes on from another."""
    left, right, mine, theirs = (t.flatten(1, 2) for t in (a.left, a.right, b.left, b.right))
    pairs = (mine, mine), (theirs, theirs), (left, mine), (right, theirs)
    own_w, own_r, cross_w, cross_r = ((x.mT @ y).double() for x, y in pairs)
    return Mixed(fit_nearby(Products(own_w, own_r, own_w, own_r, cross_w, cross_r), start.matrix))
