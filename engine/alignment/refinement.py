"""The continuous part of a gauge refined: descent of the loss of the model half way between.

L(½ (A + g B)) over the angles and moduli of rotary frequencies, the matrices of values and
unrotated queries and keys, and the factors of neurons and gains, all orders and signs held. None of
these changes B's function, so that whatever falls is coordinates; and since a loss is descended,
the same from the identity, without any matching, stands beside it as a control. Judged on text that
the descent has not seen.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from engine import network
from engine.action import acted
from engine.alignment.one_pass import common
from engine.checkpoint import Checkpoint
from engine.elements import Element, Mixed, Ordered, Turned
from engine.errors import Progress, Refused, silent
from engine.groups import Linear
from engine.records import Midpoint
from engine.running import decodes
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
RATE = 0.05
"""Of Adam, falling to 0 along a cosine."""
WINDOWS = 16
"""Windows of text in one step."""


@dataclass(frozen=True)
class Middle:
    """The model half way between A and g · B, as a function of B's tensors in A's coordinates."""

    a: Checkpoint
    model: nn.Module
    names: Mapping[str, str]  # name in memory → name on disk
    theirs: Tensors

    def loss(self, mine: Tensors, ids: Int[Tensor, "windows length"]) -> Tensor:
        """Mean −log p of each next token, nats."""
        state = {name: half(self.theirs[disk], mine[disk]) for name, disk in self.names.items()}
        return next_token_loss(functional_call(self.model, state, kwargs={"input_ids": ids}), ids)


def next_token_loss(output: Any, ids: Int[Tensor, "windows length"]) -> Tensor:
    """Mean −log p of each next token, nats."""
    return cross_entropy(output.logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def mean_loss(loss: Callable[[Tensor], Tensor], ids: Int[Tensor, "windows length"]) -> float:
    """The mean of a loss over all windows, a few at a time."""
    with torch.inference_mode():
        parts = [(len(rows), float(loss(rows))) for rows in ids.split(WINDOWS)]
    return sum(count * value for count, value in parts) / len(ids)


def half(x: Tensor, y: Tensor) -> Tensor:
    """½ (x + y) on the rows that both vocabularies have, x on the others."""
    if x.shape == y.shape:
        return (x + y) / 2
    shared, other = common(x, y)
    return torch.cat([(shared + other) / 2, x[len(shared) :]])


def middle(a: Checkpoint, device: torch.device) -> Middle:
    """A as a function of its tensors. Refused for models that predict no next token."""
    if not decodes(a):
        raise Refused(f"{a.name} predicts no next token: there is no loss to refine by.")
    theirs = {n: a.read(n).float().to(device) for n in a.headers}
    model = network.build(a, theirs, device)
    return Middle(a, model, in_memory(a), theirs)


def in_memory(checkpoint: Checkpoint) -> dict[str, str]:
    """Where each tensor on disk is in memory, found by building a model of numbered tensors.

    Refused where loading puts several into one (the experts of some families).
    """
    order = list(checkpoint.headers)
    marks = {n: torch.full(checkpoint.headers[n].shape, float(k)) for k, n in enumerate(order)}
    found = {}
    for name, x in network.build(checkpoint, marks).named_parameters():
        first = x.flatten()[0]
        if not bool((x == first).all()):
            raise Refused(
                f"{checkpoint.name} keeps several tensors in one ({name}): refining is not offered "
                "for this architecture."
            )
        found[name] = order[int(first)]
    return found


@dataclass(frozen=True)
class Dial:
    """The free numbers of one element, and the element that they make."""

    start: Tensor
    make: Callable[[Tensor], Element]


def dials(g: Symmetry) -> dict[str, Dial]:
    """The continuous numbers of a gauge by key: log factors, log moduli with angles, matrices.

    A coordinate that the gauge leaves alone starts at its identity.
    """
    sizes = g.sizes
    found = {}
    for key, name, _ in g.family.keys(g.config):
        group = g.family.coordinates[name].group
        if not group.dimension(sizes[name]) or (isinstance(group, Linear) and group.orthogonal):
            continue
        still = group.identity(sizes[name], g.family.batch(name, sizes))
        found[key] = _dial(g.elements.get(key, still))
    return found


def _dial(element: Element) -> Dial:
    match element:
        case Ordered():
            sign = element.scale.sign()
            return Dial(element.scale.abs().log(), lambda x: replace(element, scale=sign * x.exp()))
        case Turned():
            both = torch.stack([element.z.abs().log(), element.z.angle()])
            return Dial(both, lambda x: replace(element, z=torch.polar(x[0].exp(), x[1])))
        case Mixed():
            m = element.matrix
            eye = torch.eye(m.shape[-1], dtype=m.dtype)
            return Dial(torch.zeros_like(m), lambda x: Mixed((eye + x) @ m))
    raise TypeError(f"no dial for {type(element).__name__}")


def refine(
    a: Checkpoint,
    b: Checkpoint,
    g: Symmetry,
    ids: Int[Tensor, "windows length"],
    steps: int,
    *,
    device: torch.device | None = None,
    told: Callable[[float], None] = lambda _: None,
    progress: Progress = silent,
) -> Symmetry:
    """g with its continuous part moved by Adam along the midpoint loss, all tensors at once.

    Every step reads `WINDOWS` windows of the text in turn; `told` is given the loss before it.
    """
    where = device or torch.device("cpu")
    half_way = middle(a, where)
    own = {n: b.read(n).float().to(where) for n in b.headers}
    found = dials(g)
    numbers = {key: dial.start.clone().requires_grad_(True) for key, dial in found.items()}
    optimiser = torch.optim.Adam(numbers.values(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    for step in range(steps):
        rows = torch.arange(step * WINDOWS, (step + 1) * WINDOWS) % len(ids)
        now = _with(g, found, numbers)
        mine = acted(now, own)
        loss = half_way.loss(mine, ids[rows].to(where))
        told(loss.item())
        progress(step / steps, f"refining, step {step} of {steps}: {loss.item():.3f} nats")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return _with(g, found, {key: x.detach() for key, x in numbers.items()})


def midpoints(
    a: Checkpoint,
    b: Checkpoint,
    stages: Iterable[tuple[str, Symmetry]],
    ids: Int[Tensor, "windows length"],
    device: torch.device,
) -> tuple[Midpoint, ...]:
    """The loss half way between A and g · B, and how far it is above the mean of A's and B's."""
    half_way = middle(a, device)
    own = {n: b.read(n).float().to(device) for n in b.headers}
    ids = ids.to(device)
    ends = [network.load(c, device) for c in (a, b)]
    chord = sum(mean_loss(lambda x: next_token_loss(m(x), x), ids) for m in ends) / 2  # noqa: B023
    found = []
    for name, g in stages:
        mine = acted(g, own)
        loss = mean_loss(lambda x: half_way.loss(mine, x), ids)  # noqa: B023
        found.append(Midpoint(name, loss, loss - chord))
    return tuple(found)


def _with(g: Symmetry, found: Mapping[str, Dial], numbers: Mapping[str, Tensor]) -> Symmetry:
    made = {key: dial.make(numbers[key]) for key, dial in found.items()}
    return replace(g, elements={**g.elements, **made})
