"""What experts cost when the model runs: half way between two models, merged, or out of reach.

Weights are changed under their names on disk and a model is built of them; nothing is changed in
place. Routers keep to transformers' own code: an expert that is out of reach is one whose row a
router of one row less does not have.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine import network
from engine.alignment.experts import in_place
from engine.alignment.stages import one_expert, router
from engine.attention import trials
from engine.attention.pairs import Pair
from engine.axes import legs
from engine.elements import Ordered
from engine.errors import Progress, silent
from engine.questions import Experts
from engine.records import Toll
from engine.running import HIDDEN, Given, divergence, log_probabilities

Tensors = Mapping[str, Tensor]
Said = dict[str, Tensor]


@dataclass(frozen=True)
class Runs:
    """A on one text, with some tensors in place of its own, or one expert out of reach."""

    both: Pair
    given: Given
    device: torch.device
    dtype: torch.dtype
    own: Tensors
    before: Said = field(default_factory=dict)  # log-probabilities of A, its layer folded
    usage: np.ndarray | None = None  # share of tokens that visit each expert

    def say(self, tensors: Tensors, dropped: int | None = None) -> Said:
        """Log-probabilities of A with these tensors, `dropped` out of every token's reach."""
        model = self.built(tensors)
        with unreachable(self.gate(model), dropped):
            return log_probabilities(model, self.given.inputs)

    def built(self, tensors: Tensors) -> PreTrainedModel:
        """The model with these tensors."""
        held = {n: tensors.get(n, x).to(self.dtype) for n, x in self.own.items()}
        return network.build(self.both.a, held, self.device, self.dtype)

    def gate(self, model: nn.Module) -> nn.Module:
        """The router of the layer, where the family says that scores of experts come out."""
        hidden = self.both.family.hidden
        place = next(name for name, axes in hidden.items() if axes == "exp")
        return model.get_submodule(place.removeprefix("out ").format(l=self.both.layer))

    def cost(self, found: Said) -> tuple[float, float]:
        """KL(A ‖ changed) in nats, and by how much the next-token loss is above A's."""
        name = next(iter(self.before))
        own, now = (trials.next_token_loss(x, self.given) for x in (self.before, found))
        above = np.nan if own is None or now is None else now - own
        return divergence(self.before[name], found[name]), above


def toll(costs: Iterable[tuple[float, float]]) -> Toll:
    """The costs of single changes as one record."""
    both = np.array(list(costs), np.float64).reshape(-1, 2)
    return Toll(both[:, 0], both[:, 1])


def counted(total: int, progress: Progress) -> Iterator[int]:
    """0 … total − 1, each told before its turn."""
    for number in range(total):
        progress(number / total, f"running change {number + 1} of {total}")
        yield number


def runs(both: Pair, asked: Experts) -> Runs | None:
    """A on the question's text; None for a model that has no output over tokens.

    A is run in the form that its layer is compared in (`folded`): the same function, so that in a
    coarse dtype nothing but a change itself counts.
    """
    given = trials.inputs(both.a, both.b, asked)
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    own = {name: both.a.read(name) for name in both.a.headers}
    still = Runs(both, given, where, kind, own)
    model = still.built(both.theirs)
    with visits(still.gate(model)) as seen:
        before = log_probabilities(model, given.inputs)
    if HIDDEN in before:
        return None
    chosen = torch.cat([one.flatten() for one in seen])
    count = torch.bincount(chosen, minlength=both.sizes["exp"])[: both.sizes["exp"]]
    usage = (count.double() / sum(len(one) for one in seen)).numpy()
    return Runs(both, given, where, kind, own, before, usage)


@contextmanager
def visits(gate: nn.Module) -> Iterator[list[Tensor]]:
    """The experts that a router sends each token to, int64 [tokens, active], batch by batch."""
    seen: list[Tensor] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        seen.append(output[-1].cpu())

    handle = gate.register_forward_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def unreachable(gate: nn.Module, dropped: int | None) -> Iterator[None]:
    """The router answers as one without a row: softmax and choice over the other experts.

    With every expert active, a token visits one less.
    """
    if dropped is None:
        yield
        return
    smaller: Any = copy.deepcopy(gate)
    rows: Any = gate.weight
    others = [row for row in range(len(rows)) if row != dropped]
    smaller.weight = nn.Parameter(rows[others].clone(), requires_grad=False)
    smaller.top_k = min(smaller.top_k, len(others))

    def instead(_: nn.Module, args: Any, __: Any) -> Any:
        scores, weights, chosen = smaller(*args)
        return scores, weights, chosen + (chosen >= dropped)

    handle = gate.register_forward_hook(instead)
    try:
        yield
    finally:
        handle.remove()


def removal(one: Runs, progress: Progress = silent) -> Toll | None:
    """Each expert out of reach of every token; None where there is only one."""
    count = one.both.sizes["exp"]
    if count == 1:
        return None
    return toll(one.cost(one.say(one.both.theirs, expert)) for expert in counted(count, progress))


def halfway(both: Pair, one: Runs, mine: Tensors, progress: Progress = silent) -> Toll:
    """½ (A + B) in one expert after the other; last in all of them and the router."""
    count = both.sizes["exp"]
    places = [one_expert(both.family, both.theirs, expert) for expert in range(count)]
    gates = scoring(both)
    changes = [*places, {n: x for part in (*places, gates) for n, x in part.items()}]
    middle = [{n: mean(x, mine[n]) for n, x in change.items()} for change in changes]
    return toll(
        one.cost(one.say({**both.theirs, **middle[k]})) for k in counted(count + 1, progress)
    )


def scoring(both: Pair) -> dict[str, Tensor]:
    """The router's rows of A."""
    outside = router(both.family, both.theirs)
    return {
        n: x
        for n, x in outside.items()
        if any(leg.name == "exp" for leg in legs(both.family.row(n).axes))
    }


def mean(x: Tensor, y: Tensor) -> Tensor:
    """½ (x + y) in float32 or finer."""
    return (x.to(y) + y) / 2 if y.dtype.itemsize >= 4 else (x.float() + y.float()) / 2


def merging(
    both: Pair,
    one: Runs,
    pairs: list[tuple[int, int, Ordered]],
    progress: Progress = silent,
) -> tuple[Toll, Toll]:
    """Pairs of experts of A as one, behind both router rows and behind one.

    Each pair comes with the second expert's neurons on the first's. Behind both rows the mean of
    the weights stands in both places, which is exact where the two are one expert in two bases.
    Behind one, the row is the mean of both and the other expert is out of reach. That is never
    exact: the share of both together has the score log(exp r_i·x + exp r_j·x), which no row gives
    (the mean row lacks at least log 2, for which the router has no bias), and the place that
    becomes free goes to another expert.
    """
    both_rows, one_row = [], []
    for k in counted(len(pairs), progress):
        i, j, neurons = pairs[k]
        first = one_expert(both.family, both.theirs, i)
        second = in_place(both, j, i, neurons)
        inside = {n: mean(x, second[n]) for n, x in first.items()}
        twice = {**inside, **renumbered(both, inside, j)}
        both_rows.append(one.cost(one.say({**both.theirs, **twice})))
        single = {**inside, **mean_row(both, i, j)}
        one_row.append(one.cost(one.say({**both.theirs, **single}, dropped=j)))
    return toll(both_rows), toll(one_row)


def renumbered(both: Pair, inside: Tensors, place: int) -> dict[str, Tensor]:
    """The tensors of one expert under the names of another."""
    names = {}
    for name, x in inside.items():
        start, stop = both.family.span(name, "exp")
        names[f"{name[:start]}{place}{name[stop:]}"] = x
    return names


def mean_row(both: Pair, i: int, j: int) -> dict[str, Tensor]:
    """The router's rows with the mean of two in the first one's place."""
    found = {}
    for name, x in scoring(both).items():
        changed = x.clone()
        changed[i] = mean(x[i], x[j])
        found[name] = changed
    return found
