"""Orders of neurons from several scores, and which of them leaves the smallest distance."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.alignment.close import (
    CLOSE,
    ROWS,
    SAMPLE,
    WORTH,
    distances,
    moments,
    part,
    stands,
)
from engine.alignment.gauges import fit_factor, fit_factor_nearby
from engine.alignment.heads import gather
from engine.alignment.stages import one_expert, relative
from engine.alignment.widths import Both, both_have, completed
from engine.assignment import matching
from engine.axes import Mark, Sizes
from engine.elements import Element, Ordered
from engine.family import Family
from engine.groups import Monomial
from engine.questions import NeuronCost

Tensors = Mapping[str, Tensor]
Rows = Mapping[Mark, Float[Tensor, "_ _"]]
Inner = Mapping[Mark, Float[Tensor, "_ _"]]


@dataclass(frozen=True)
class Heard:
    """|correlation| of the activations of a layer's neurons, and what it weighs."""

    correlation: Float[Tensor, "n n"]  # rows A
    weight: float  # a correlation of 1 in every neuron counts like this squared distance

    def gain(self, order: Int[Tensor, " n"]) -> float:
        """What an order is worth."""
        chosen = self.correlation.gather(1, order[:, None])
        return self.weight * float(chosen.double().mean())


@dataclass(frozen=True)
class Judged:
    """How orders of neurons are found and judged."""

    cost: NeuronCost = "invariant"
    heard: Heard | None = None
    both: Both | None = None  # numbers of neurons, where they differ and layers are padded
    still: Callable[[], Tensor | None] = lambda: None  # what each leaves as they stand, if known


def best_neurons(
    family: Family,
    sizes: Sizes,
    a: Tensors,
    b: Tensors,
    *,
    word: str,
    now: Element | None,
    how: Judged,
) -> dict[str, Element]:
    """The best of all candidates, expert by expert where experts contain neurons."""
    group = family.coordinates[word].group
    assert isinstance(group, Monomial)
    if not family.coordinates[word].over:
        x, y = (gather(family, sizes, z, word, dtype=torch.float32) for z in (a, b))
        return {word: _best(group, x, y, now, how)}
    found = []
    for e in range(sizes["exp"]):
        inside = (one_expert(family, z, e) for z in (a, b))
        x, y = (gather(family, sizes, z, word, dtype=torch.float32) for z in inside)
        found.append(_best(group, x, y, now and now.take(torch.tensor(e)), Judged(how.cost)))
    order = torch.stack([one.permutation for one in found])
    return {word: Ordered(order, torch.stack([one.scale for one in found]))}


def _best(group: Monomial, x: Rows, y: Rows, now: Element | None, how: Judged) -> Ordered:
    fine, heard, both = how.cost == "published", how.heard, how.both
    known = None if heard or fine or both else certain(group, x, y, now, how.still)
    if known is not None:
        return known
    orders = list(_orders(group, x, y, how))
    if isinstance(now, Ordered):
        orders.append(now.permutation)
    judged = [with_factors(group, x, y, order, fit=not fine, both=both) for order in orders]
    values = [value - (heard.gain(found.permutation) if heard else 0.0) for found, value in judged]
    return judged[min(range(len(values)), key=values.__getitem__)][0]


def _orders(group: Monomial, x: Rows, y: Rows, how: Judged) -> Iterator[Int[Tensor, " n"]]:
    """Orders by each score; those of the weights lead to the activations' when these weigh all.

    "published" is git re-basin's (Ainsworth et al. 2023): the sum of all inner products, no sign
    and no factor. The others: `invariant` and `by_distance`.
    """
    size = next(iter(x.values())).shape[1]
    n, m = how.both or (size, size)
    x, y = {k: z[:, :n] for k, z in x.items()}, {k: z[:, :m] for k, z in y.items()}
    inner = {k: x[k].mT.float() @ y[k].float() for k in x}
    if how.cost == "published":
        yield _solved(torch.stack([*inner.values()]).sum(0), size)
        return
    scores = [by_distance(group, x, y, inner)]
    if how.both:
        scores[0] = scores[0] - _constant(group, x, y)
    if group.scales:
        scores.append(invariant(x, y, inner))
    for number, score in enumerate(scores):
        if how.heard and number == 0:
            extra = how.heard.weight * how.heard.correlation[:n, :m] / size
            yield _solved(2 * score + extra, size)
        yield _solved(score, size)


def _constant(group: Monomial, x: Rows, y: Rows) -> Float[Tensor, "n m"]:
    """What `by_distance` leaves out: a choice of rows or columns would notice."""
    mine = sum(rows.square().sum(0) for rows in x.values())
    theirs = sum(rows.square().sum(0) for m, rows in y.items()
                 if m is Mark.RELABEL or not group.scales)  # fmt: skip
    return (torch.as_tensor(mine)[:, None] + theirs) / 2


def certain(
    group: Monomial,
    x: Rows,
    y: Rows,
    now: Element | None,
    still: Callable[[], Tensor | None] = lambda: None,
) -> Ordered | None:
    """The best order and factors where a few rows of the gate prove that they are; else None.

    Tried are the present order and everyone's nearest by those rows. Without a gate the rows that
    are written prove it, unless factors could change them.
    """
    mark = Mark.RELABEL if Mark.RELABEL in x else Mark.WRITE
    if mark is Mark.WRITE and group.scales:
        return None
    few = part(x[mark]), part(y[mark])
    for order in _likely(*few, now):
        fit = isinstance(now, Ordered) or worth_factors(group, x, y, order)
        known = None if fit or not _stands_still(order) else still()
        found, left = paired(group, x, y, order, fit=fit, left=known)
        more = (part(x[mark], 4 * ROWS), part(y[mark], 4 * ROWS))
        if any(stands(one, _taken(other, order), left) for one, other in (few, more)):
            return found
    return None


def worth_factors(group: Monomial, x: Rows, y: Rows, order: Int[Tensor, " n"]) -> bool:
    """Whether a sample of neurons says that factors take off more than `WORTH` of what is left."""
    if not group.scales:
        return False
    some = order[: max(1, len(order) // SAMPLE)]
    apart = {
        m: moments(
            x[m][:, : len(some)], _taken(y[m], some), gap_only=m is Mark.RELABEL
        )
        for m in x
    }  # fmt: skip
    left = _left(apart)
    least = left - _fitted(group, apart)[1]
    return float(left.sum() - least.clamp(min=0).sum()) > WORTH * float(left.sum())


def _likely(
    one: Float[Tensor, "_ n"], other: Float[Tensor, "_ n"], now: Element | None
) -> Iterator[Int[Tensor, " n"]]:
    yield now.permutation if isinstance(now, Ordered) else torch.arange(one.shape[1])
    nearest = distances(one, other).argmin(1)
    if len(nearest.unique()) == len(nearest):
        yield nearest


def _stands_still(order: Int[Tensor, " n"]) -> bool:
    return torch.equal(order, torch.arange(len(order)))


def _taken(rows: Float[Tensor, "_ n"], order: Int[Tensor, " m"]) -> Float[Tensor, "_ m"]:
    return rows[:, : len(order)] if _stands_still(order) else rows.index_select(1, order)


def _solved(score: Float[Tensor, "_ _"], size: int) -> Int[Tensor, " n"]:
    return completed(*matching(score.numpy()), size)


def by_distance(group: Monomial, x: Rows, y: Rows, inner: Inner) -> Float[Tensor, "n m"]:
    """Half of what a pair takes off ‖A − B‖², B's neuron in the balance of A's.

    ⟨gate, gate⟩ + |c ⟨up, up⟩ + ⟨down, down⟩ / c| − ½ m (r + 1/r), with r = ‖up_A‖ / ‖down_A‖,
    m = ‖up_B‖ ‖down_B‖ and the c that gives B's pair this r. Without factors: all inner products.
    """
    if not group.scales:
        return torch.stack([*inner.values()]).sum(0)
    up, down = (
        [z[m].norm(dim=0).clamp(min=1e-30) for z in (x, y)] for m in (Mark.WRITE, Mark.READ)
    )
    ratio = up[0] / down[0]
    c = (ratio[:, None] * (down[1] / up[1])).sqrt()
    pull = c * inner[Mark.WRITE] + inner[Mark.READ] / c
    own = (ratio + 1 / ratio)[:, None] * (up[1] * down[1]) / 2
    return inner.get(Mark.RELABEL, 0) + (pull.abs() if group.signs else pull) - own


def invariant(x: Rows, y: Rows, inner: Inner) -> Float[Tensor, "n m"]:
    """Minus ‖gate_i − gate_j‖² + λ ‖up_i ⊗ down_i − up_j ⊗ down_j‖², λ balancing both (§5)."""
    own = [{m: rows.square().sum(0) for m, rows in z.items()} for z in (x, y)]

    def distances(pull: Tensor, mine: Tensor, theirs: Tensor) -> Tensor:
        return relative(mine[:, None] + theirs - 2 * pull)

    whole = [z[Mark.WRITE] * z[Mark.READ] for z in own]
    found = distances(inner[Mark.WRITE] * inner[Mark.READ], *whole)
    if Mark.RELABEL in x:
        found = found + distances(inner[Mark.RELABEL], own[0][Mark.RELABEL], own[1][Mark.RELABEL])
    return -found


def with_factors(
    group: Monomial,
    x: Rows,
    y: Rows,
    order: Int[Tensor, " n"],
    *,
    fit: bool,
    both: Both | None = None,
) -> tuple[Ordered, float]:
    """The element of an order with the best factors, and the squared distance that it leaves.

    Neurons that only one model has count nothing and keep the factor 1.
    """
    found, left = paired(group, x, y, order, fit=fit)
    if both:
        kept = both_have(order, both)
        found = Ordered(order, torch.where(kept, found.scale, 1.0))
        left = left[kept]
    return found, float(left.sum())


def paired(
    group: Monomial,
    x: Rows,
    y: Rows,
    order: Int[Tensor, " n"],
    *,
    fit: bool = True,
    left: Float[Tensor, " n"] | None = None,
) -> tuple[Ordered, Float[Tensor, " n"]]:
    """The same with what each neuron of A leaves (`left`: what it leaves without a factor)."""
    theirs = {m: _taken(rows, order) for m, rows in y.items()}
    if not (fit and group.scales):
        if left is None:
            left = _left({m: moments(x[m], theirs[m], gap_only=True) for m in x})
        return Ordered(order, torch.ones(len(order), dtype=torch.float64)), left
    apart = {m: moments(x[m], theirs[m], gap_only=m is Mark.RELABEL) for m in x}
    factor, taken = _fitted(group, apart)
    return Ordered(order, factor), (_left(apart) - taken).clamp(min=0)


def _left(apart: Rows) -> Float[Tensor, " n"]:
    return torch.stack([z[0] for z in apart.values()]).sum(0)


def _fitted(group: Monomial, apart: Rows) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The best factor of every neuron by its moments, and what that takes off.

    ‖a − z b‖² = ‖a − b‖² + 2 (1 − z) ⟨b, a − b⟩ + (1 − z)² ‖b‖² keeps its digits where a ≈ b.
    """
    (gap_w, own_w, pull_w), (gap_r, own_r, pull_r) = apart[Mark.WRITE], apart[Mark.READ]
    near = bool((gap_w <= CLOSE * own_w).all() and (gap_r <= CLOSE * own_r).all())
    factor = (fit_factor_nearby if near else fit_factor)(
        own_w, own_r, own_w + pull_w, own_r + pull_r
    )
    z = factor if group.signs else factor.abs()
    taken = torch.zeros_like(z)
    for one, own, pull in ((1 - z, own_w, pull_w), (1 - 1 / z, own_r, pull_r)):
        taken = taken - 2 * one * pull - one.square() * own
    return z, taken
