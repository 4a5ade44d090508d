"""Orders of neurons from several scores, and which of them leaves the smallest distance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.alignment.gauges import fit_factor
from engine.alignment.heads import gather
from engine.alignment.stages import one_expert, relative
from engine.assignment import solve
from engine.axes import Mark, Sizes
from engine.elements import Element, Ordered
from engine.family import Family
from engine.groups import Monomial
from engine.questions import NeuronCost

SURE = 0.9
Tensors = Mapping[str, Tensor]
Rows = Mapping[Mark, Float[Tensor, "_ n"]]
Inner = Mapping[Mark, Float[Tensor, "n n"]]


@dataclass(frozen=True)
class Heard:
    """|correlation| of the activations of a layer's neurons, and what it weighs."""

    correlation: Float[Tensor, "n n"]  # rows A
    weight: float  # a correlation of 1 in every neuron counts like this squared distance

    def gain(self, order: Int[Tensor, " n"]) -> float:
        """What an order is worth."""
        chosen = self.correlation.gather(1, order[:, None])
        return self.weight * float(chosen.double().mean())


def best_neurons(
    family: Family,
    sizes: Sizes,
    a: Tensors,
    b: Tensors,
    *,
    word: str,
    now: Element | None,
    cost: NeuronCost,
    heard: Heard | None = None,
) -> dict[str, Element]:
    """The best of all candidates, expert by expert where experts contain neurons."""
    group = family.coordinates[word].group
    assert isinstance(group, Monomial)
    if not family.coordinates[word].over:
        x, y = (gather(family, sizes, z, word, dtype=torch.float32) for z in (a, b))
        return {word: _best(group, x, y, now, cost, heard)}
    found = []
    for e in range(sizes["exp"]):
        inside = (one_expert(family, z, e) for z in (a, b))
        x, y = (gather(family, sizes, z, word, dtype=torch.float32) for z in inside)
        found.append(_best(group, x, y, now and now.take(torch.tensor(e)), cost, None))
    order = torch.stack([one.permutation for one in found])
    return {word: Ordered(order, torch.stack([one.scale for one in found]))}


def _best(
    group: Monomial,
    x: Rows,
    y: Rows,
    now: Element | None,
    cost: NeuronCost,
    heard: Heard | None,
) -> Ordered:
    fine = cost == "published"
    orders = list(_orders(group, x, y, cost, heard))
    if isinstance(now, Ordered):
        orders.append(now.permutation)
    judged = [with_factors(group, x, y, order, fit=not fine) for order in orders]
    values = [value - (heard.gain(found.permutation) if heard else 0.0) for found, value in judged]
    return judged[min(range(len(values)), key=values.__getitem__)][0]


def _orders(
    group: Monomial, x: Rows, y: Rows, cost: NeuronCost, heard: Heard | None
) -> Iterator[Int[Tensor, " n"]]:
    """Orders by each score; those of the weights lead to the activations' when these weigh all.

    "published" is git re-basin's (Ainsworth et al. 2023): the sum of all inner products, no sign
    and no factor. The others: `invariant` and `by_distance`. Where `certain` knows the order, no
    score is computed.
    """
    known = None if heard or cost == "published" else certain(group, x, y)
    if known is not None:
        yield known
        return
    inner = {m: x[m].mT.float() @ y[m].float() for m in x}
    if cost == "published":
        yield _solved(torch.stack([*inner.values()]).sum(0))
        return
    scores = [by_distance(group, x, y, inner)]
    if group.scales:
        scores.append(invariant(x, y, inner))
    for number, score in enumerate(scores):
        if heard and number == 0:
            extra = heard.weight * heard.correlation / len(score)
            yield _solved(2 * score + extra)
        yield _solved(score)


def certain(group: Monomial, x: Rows, y: Rows) -> Int[Tensor, " n"] | None:
    """The order that every fourth row of the gate (or, without factors, of what is written) tells.

    Only where each neuron's partner has a cosine above `SURE` and is at most half as far (1 − cos)
    as any other: the models are then close, and no other order can leave less. None elsewhere.
    """
    mark = Mark.RELABEL if Mark.RELABEL in x else Mark.WRITE
    if (mark is Mark.WRITE and group.scales) or len(x[mark][0]) < 2:
        return None
    one, other = (z[mark][::4].float() for z in (x, y))
    one, other = (z / z.norm(dim=0).clamp(min=1e-30) for z in (one, other))
    best = (one.mT @ other).topk(2, dim=1)
    first, second = best.values.unbind(1)
    order = best.indices[:, 0]
    clear = bool(((1 - first) <= (1 - second) / 2).all()) and float(first.min()) > SURE
    return order if clear and len(order.unique()) == len(order) else None


def _solved(score: Tensor) -> Int[Tensor, " n"]:
    return torch.from_numpy(solve(score.numpy())[0])


def by_distance(group: Monomial, x: Rows, y: Rows, inner: Inner) -> Float[Tensor, "n n"]:
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


def invariant(x: Rows, y: Rows, inner: Inner) -> Float[Tensor, "n n"]:
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
    group: Monomial, x: Rows, y: Rows, order: Int[Tensor, " n"], *, fit: bool
) -> tuple[Ordered, float]:
    """The element of an order with the best factors, and the squared distance that it leaves."""
    x = {m: rows.double() for m, rows in x.items()}
    theirs = {m: rows[:, order].double() for m, rows in y.items()}
    own = {m: rows.square().sum(0) for m, rows in theirs.items()}
    inner = {m: (x[m] * theirs[m]).sum(0) for m in x}
    factor = torch.ones(len(order), dtype=torch.float64)
    if group.scales and fit:
        pair = own[Mark.WRITE], own[Mark.READ], inner[Mark.WRITE], inner[Mark.READ]
        factor = fit_factor(*pair)
        factor = factor if group.signs else factor.abs()
    left = sum(float(rows.square().sum()) for rows in x.values())
    for mark in x:
        if mark is Mark.RELABEL:
            left += float((own[mark] - 2 * inner[mark]).sum())
        else:
            z = factor if mark is Mark.WRITE else 1 / factor
            left += float((z.square() * own[mark] - 2 * z * inner[mark]).sum())
    return Ordered(order, factor), left
