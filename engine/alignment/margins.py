"""How sure an alignment is where it ended: the lead of every pair over its best alternative.

By the scores of the first pass (`engine.alignment.stages`), of A and g · B folded. There every
coordinate of A has its partner in its own place, so that the diagonal of a table holds the pairs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from engine import assignment
from engine.alignment.heads import gather, lead
from engine.alignment.proposals import Scene
from engine.alignment.stages import expert_score, head_cost, neuron_score, one_expert
from engine.alignment.standing import signed_rows
from engine.alignment.sweeps import Descent, State, scene
from engine.alignment.widths import WORD, both_have
from engine.errors import Progress, silent
from engine.groups import COMMON_SIGN, Monomial


@dataclass(frozen=True)
class Residual:
    """What all layers so far say of the residual coordinates of A and g · B."""

    inner: Float[Tensor, "d d"]  # Σ a bᵀ
    own: Float[Tensor, "2 d"]  # Σ a² and Σ b²

    def after(self, here: Scene) -> "Residual":
        """With one more layer."""
        inner, own = self.inner, self.own
        for a, b in signed_rows(here):
            inner = inner + a.mT @ b
            own = own + torch.stack([x.square().sum(0, dtype=torch.float64) for x in (a, b)])
        return Residual(inner, own)

    def margin(self, *, signs: bool) -> float:
        """The smallest, of cosines; with `signs` of their moduli."""
        a, b = self.own.clamp(min=1e-300).sqrt()
        cosine = (self.inner / (a[:, None] * b)).numpy()
        return smallest(np.abs(cosine) if signs else cosine)


def margins(task: Descent, end: State, progress: Progress = silent) -> dict[str, float]:
    """The smallest margin of every index set of an end, by key; one layer of both in memory."""
    size = len(end.res.scale)
    found: dict[str, float] = {}
    residual = Residual(*(torch.zeros(n, size, dtype=torch.float64) for n in (size, 2)))
    for layer in task.layers():
        progress((layer or 0) / task.a.layers, f"margins of layer {layer} of {task.a.layers}")
        here = scene(task, layer, end.res).after(end.of(task, layer))
        found |= {task.family.key(n, layer): x for n, x in inside(here)}
        if "res" in task.chosen:
            residual = residual.after(here)
    if "res" in task.chosen:
        every = task.asked.signs and task.family.coordinates["res"].group != COMMON_SIGN
        found["res"] = residual.margin(signs=every)
    return found


def inside(here: Scene) -> Iterator[tuple[str, float]]:
    """The smallest margin of every order inside one layer, by coordinate."""
    for stage in (stage for block in here.blocks({}) for stage in block):
        if margin := MARGINS.get(stage.names[0]):
            value = margin(here, stage.names[0])
            yield from ((name, value) for name in stage.names)


def of_experts(here: Scene, _: str) -> float:
    """Of rows of the router."""
    return smallest(expert_score(here.family, here.sizes, here.a, here.b).numpy())


def of_neurons(here: Scene, word: str) -> float:
    """Of neurons, expert by expert where experts contain them; those without a partner left out."""
    family, sizes = here.family, here.sizes
    group = family.coordinates[word].group
    assert isinstance(group, Monomial)
    both = [(here.a, here.b)]
    if family.coordinates[word].over:
        every = range(sizes["exp"])
        both = [tuple(one_expert(family, z, e) for z in (here.a, here.b)) for e in every]
    rows, columns = _both_real(here, word)
    found = []
    for pair in both:
        x, y = (gather(family, sizes, z, word, dtype=torch.float32) for z in pair)
        x, y = ({m: z[:, kept] for m, z in one.items()} for one, kept in ((x, rows), (y, columns)))
        score = neuron_score(group, x, y).numpy()
        found.append(smallest(score, np.flatnonzero(rows[columns])))
    return min(found)


def _both_real(here: Scene, word: str) -> tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Which neurons of A have a partner, and which of B are not padding."""
    order = torch.arange(here.sizes[word]) if here.order is None else here.order
    if word != WORD or not here.both:
        every = np.ones(here.sizes[word], bool)
        return every, every
    return both_have(order, here.both).numpy(), (order < here.both[1]).numpy()


def of_heads(here: Scene, _: str) -> float:
    """Of query heads, those of other groups among the alternatives."""
    table = head_cost(here.family, here.sizes, here.a, here.b).numpy()
    groups, heads = table.shape[:2]
    inner = np.broadcast_to(np.arange(heads), (groups, heads))
    return lead(table, np.arange(groups), inner)


def smallest(
    score: Float[np.ndarray, "n m"], partners: Int[np.ndarray, " n"] | None = None
) -> float:
    """The smallest margin of rows with their partners, on the diagonal unless named."""
    chosen = np.arange(len(score)) if partners is None else partners
    return float(assignment.margins(score, chosen).min())


MARGINS: Mapping[str, Callable[[Scene, str], float]] = {
    "exp": of_experts,
    "ffn": of_neurons,
    "sffn": of_neurons,
    "grp": of_heads,
}
"""Of the first word of a stage; all others are continuous."""
