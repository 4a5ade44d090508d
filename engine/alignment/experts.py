"""Which expert of one layer is which, by costs that no change of basis inside an expert can alter.

Experts are compared in A's residual coordinates with the norm before them folded in and a vector
common to all rows of the router left out (both are blind directions), by two costs: ‖r_i − r_j‖²
of the router's rows, and ½ (Σ ‖Δ gate‖² / ḡ + Σ ‖Δ (up ⊗ down)‖² / ō) over optimally matched
neurons. Each is over the mean squared size of what it compares: 0 is one expert in two bases, near
2 are unrelated ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine.alignment.gauges import fit_factor
from engine.alignment.heads import gather
from engine.alignment.stages import one_expert, router
from engine.assignment import solve
from engine.attention.pairs import Pair
from engine.axes import Mark
from engine.elements import Element, Ordered
from engine.errors import Progress, silent
from engine.folding import NEURONS, canonical

Rows = Mapping[Mark, Tensor]
"""Gate, up and down of the neurons of one expert, float64 [res, neurons] each."""


def folded(both: Pair) -> Pair:
    """Both layers in the form that no blind direction of experts and router changes.

    A gain of 0 has no inverse, and its readers are 0 in that form: there it counts as 1.
    """
    theirs, mine = (
        {
            n: x.nan_to_num(nan=1.0) if x.ndim == 1 else x
            for n, x in canonical(both.family, both.sizes, tensors, NEURONS).items()
        }
        for tensors in (both.theirs, both.mine)
    )
    return replace(both, theirs=theirs, mine=mine)


def rows(both: Pair, tensors: Mapping[str, Tensor], expert: int) -> Rows:
    """The neurons of one expert."""
    return gather(both.family, both.sizes, one_expert(both.family, tensors, expert), "ffn")


@dataclass(frozen=True)
class Sizes:
    """Mean squared size of an expert's gates and of its products up ⊗ down."""

    gate: float
    product: float


@dataclass(frozen=True)
class Found:
    """What matching found; arrays over experts are indexed by A's."""

    same: bool  # A = B
    sizes: Sizes
    router: np.ndarray
    content: np.ndarray
    order: np.ndarray
    second: np.ndarray
    margin: np.ndarray
    partner: np.ndarray
    neurons: Ordered  # [experts, neurons], of the partner
    alike: np.ndarray
    pairs: np.ndarray  # the most alike of A = B, nearest content first

    def moved(self, both: Pair, *, neurons: bool = True) -> Mapping[str, Tensor]:
        """B's layer with each partner in the place of A's expert, its neurons in A's order.

        Two experts of one model may have the same nearest one: it then stands in both places.
        """
        place = torch.from_numpy(self.partner)
        ones = torch.ones(len(place), dtype=torch.float64)
        steps: dict[str, Element] = {"exp": Ordered(place, ones)}
        return both.after(steps | ({"ffn": self.neurons} if neurons else {})).mine


def in_place(both: Pair, expert: int, place: int, neurons: Ordered | None) -> Mapping[str, Tensor]:
    """The tensors of one expert of B under the names of another, its neurons reordered."""
    still = torch.arange(both.sizes["exp"])
    still[place] = expert
    ones = torch.ones(len(still), dtype=torch.float64)
    steps: dict[str, Element] = {"exp": Ordered(still, ones)}
    if neurons is not None:
        order = torch.arange(len(neurons.permutation)).expand(len(still), -1).clone()
        scale = torch.ones(order.shape, dtype=torch.float64)
        order[place], scale[place] = neurons.permutation, neurons.scale
        steps["ffn"] = Ordered(order, scale)
    return one_expert(both.family, both.after(steps).mine, place)


def match(both: Pair, progress: Progress = silent) -> Found:
    """Both costs of all pairs of experts, the order, and the neurons of each pair of partners."""
    same = both.a.fingerprint == both.b.fingerprint
    far, sizes = router_costs(both), mean_sizes(both)
    content = content_costs(both, sizes, same=same, progress=progress)
    total = (far + content) / 2
    order = np.arange(len(total)) if same else solve(-total)[0]
    second, margin = runners_up(content if same else total, order)
    partner = second if same and len(total) > 1 else order
    matched = [matched_neurons(both, i, int(j), sizes) for i, j in enumerate(partner)]
    return Found(
        same=same,
        sizes=sizes,
        router=far,
        content=content,
        order=order,
        second=second,
        margin=margin,
        partner=partner,
        neurons=stacked([one for one, _ in matched]),
        alike=np.stack([alike for _, alike in matched]),
        pairs=most_alike(content),
    )


def stacked(every: list[Ordered]) -> Ordered:
    """Elements of single experts as one over all of them."""
    order = torch.stack([one.permutation for one in every])
    return Ordered(order, torch.stack([one.scale for one in every]))


def router_costs(both: Pair) -> np.ndarray:
    """‖r_i − r_j‖² of the router's rows over their mean square, float64 [experts, experts]."""
    x, y = (
        gather(both.family, both.sizes, router(both.family, z), "exp")[Mark.WRITE]
        for z in (both.theirs, both.mine)
    )
    x, y = (z - z.mean(-1, keepdim=True) for z in (x, y))
    size = (x.square().sum() + y.square().sum()) / (2 * x.shape[-1])
    gap = (x[:, :, None] - y[:, None, :]).square().sum(0)
    return (gap / size.clamp(min=1e-300)).numpy()


def mean_sizes(both: Pair) -> Sizes:
    """Over all experts of both layers."""
    gates, products = [], []
    for tensors in (both.theirs, both.mine):
        for expert in range(both.sizes["exp"]):
            x = rows(both, tensors, expert)
            gates.append(float(x[Mark.RELABEL].square().sum()))
            own = [x[m].square().sum(0) for m in (Mark.WRITE, Mark.READ)]
            products.append(float((own[0] * own[1]).sum()))
    return Sizes(max(float(np.mean(gates)), 1e-300), max(float(np.mean(products)), 1e-300))


def neuron_costs(x: Rows, y: Rows, sizes: Sizes) -> np.ndarray:
    """½ (‖Δ gate‖² / ḡ + ‖Δ (up ⊗ down)‖² / ō) of all pairs of neurons, never below 0."""
    inner = {m: x[m].mT @ y[m] for m in x}
    own = [{m: z[m].square().sum(0) for m in z} for z in (x, y)]

    def gap(mine: Tensor, theirs: Tensor, pull: Tensor) -> Tensor:
        return mine[:, None] + theirs - 2 * pull

    gate = gap(own[0][Mark.RELABEL], own[1][Mark.RELABEL], inner[Mark.RELABEL])
    whole = [z[Mark.WRITE] * z[Mark.READ] for z in own]
    product = gap(whole[0], whole[1], inner[Mark.WRITE] * inner[Mark.READ])
    return ((gate / sizes.gate + product / sizes.product) / 2).clamp(min=0).numpy()


def content_costs(
    both: Pair, sizes: Sizes, *, same: bool, progress: Progress = silent
) -> np.ndarray:
    """Neuron costs of the best order, summed, of every pair of experts, float64."""
    count = both.sizes["exp"]
    found = np.zeros((count, count))
    for i in range(count):
        progress(i / count, f"expert {i} of {count}")
        x = rows(both, both.theirs, i)
        for j in range(i + 1 if same else 0, count):
            cost = neuron_costs(x, rows(both, both.mine, j), sizes)
            found[i, j] = cost[np.arange(len(cost)), solve(-cost)[0]].sum()
    return found + found.T if same else found


def matched_neurons(both: Pair, i: int, j: int, sizes: Sizes) -> tuple[Ordered, np.ndarray]:
    """B's expert j on A's expert i: order and factors, and how much alike each match is.

    Alike: ½ (cos gate + cos up · cos down), which is 1 for one neuron in two bases and near 0 for
    unrelated ones; neither a sign nor a factor changes it.
    """
    x, y = rows(both, both.theirs, i), rows(both, both.mine, j)
    order = torch.from_numpy(solve(-neuron_costs(x, y, sizes))[0])
    y = {m: z[:, order] for m, z in y.items()}
    inner = {m: (x[m] * y[m]).sum(0) for m in x}
    own = [{m: z[m].square().sum(0) for m in z} for z in (x, y)]
    factor = fit_factor(own[1][Mark.WRITE], own[1][Mark.READ], inner[Mark.WRITE], inner[Mark.READ])
    cosine = {m: inner[m] / (own[0][m] * own[1][m]).sqrt().clamp(min=1e-300) for m in x}
    alike = (cosine[Mark.RELABEL] + cosine[Mark.WRITE] * cosine[Mark.READ]) / 2
    return Ordered(order, factor), alike.numpy()


def runners_up(cost: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest other expert for each of A, and how much dearer it is, over the mean cost."""
    here = np.arange(len(cost))
    if len(cost) == 1:
        return np.zeros(1, np.int64), np.full(1, np.inf)
    others = cost.copy()
    others[here, order] = np.inf
    second = others.argmin(1)
    return second, (others[here, second] - cost[here, order]) / max(cost.mean(), 1e-300)


MANY = 28
"""So many pairs of experts are merged on trial, the most alike ones."""


def most_alike(content: np.ndarray) -> np.ndarray:
    """Pairs of experts of one model, the nearest contents first, int64 [pairs, 2]."""
    i, j = np.triu_indices(len(content), 1)
    first = np.argsort(content[i, j], kind="stable")[:MANY]
    return np.stack([i[first], j[first]], axis=1)
