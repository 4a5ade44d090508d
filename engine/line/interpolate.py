"""The models (1 − t) A + t g·B: one buffer, overwritten in place; A and g·B are never touched."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine import network
from engine.action import act
from engine.axes import Leg
from engine.checkpoint import Checkpoint, require_same_group
from engine.errors import Refused
from engine.layers.blocks import Blocks, cut_up
from engine.layers.reading import outcome
from engine.line.exam import Exam, Say, logits
from engine.symmetry import Symmetry

FINE = ("float32", "float64")
"""The dtypes in which models are interpolated."""
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Ends:
    """A and B as they are interpolated: one group, one spelling, the tokens that both know."""

    a: Checkpoint
    b: Checkpoint
    inside: frozenset[str]  # the tensors that move, by name on disk
    known: int | None  # tokens that both vocabularies have; None for models without tokens
    kind: torch.dtype
    device: torch.device

    @property
    def config(self) -> Mapping[str, Any]:
        """A's configuration with the common vocabulary."""
        return {**self.a.config, **({} if self.known is None else {"vocab_size": self.known})}

    def theirs(self, name: str) -> Tensor:
        """One tensor of A by its name on disk."""
        return self._cut(name, self.a.read(name))

    def moved(self, g: Symmetry, name: str) -> Tensor:
        """The same tensor of g·B where it moves, of A where it does not."""
        if name not in self.inside:
            return self.theirs(name)
        return self._cut(name, act(g, name, lambda n: self.b.read(n).to(self.kind)))

    def between(self, g: Symmetry, name: str, t: float) -> Tensor:
        """(1 − t) A + t g·B of one tensor; exactly A's and g·B's at the ends."""
        x = self.theirs(name)
        if name not in self.inside or not x.is_floating_point():
            return x
        return torch.lerp(x, self.moved(g, name), t)

    def _cut(self, name: str, x: Tensor) -> Tensor:
        """In the dtype of the line, without the tokens that only one vocabulary has."""
        for axis, leg in enumerate(self.a.family.row(name).axes):
            if self.known is not None and isinstance(leg, Leg) and leg.name == "tok":
                x = x.narrow(axis, 0, self.known)
        return x.to(self.kind) if x.is_floating_point() else x


def ends(a: Checkpoint, b: Checkpoint, inside: Collection[str], *, device: str, dtype: str) -> Ends:
    """Both models, checked.

    Errors: Refused for two groups, a dtype too coarse, and tensors that only one of them has.
    """
    if dtype not in FINE:
        raise Refused(f"--dtype {dtype}: models are interpolated in {' or '.join(FINE)}.")
    require_same_group(a, b)
    b = b.spelled_like(a)
    if odd := sorted(a.headers.keys() ^ b.headers.keys()):
        owner, other = (a, b) if odd[0] in a.headers else (b, a)
        raise Refused(
            f"{owner.name} has the tensor {odd[0]} and {other.name} has not, so that no line leads "
            "from one to the other: save both in one way."
        )
    tokens = [c.family.sizes(c.config).get("tok", 0) for c in (a, b)]
    known = min(tokens) or None
    return Ends(a, b, frozenset(inside), known, network.dtype(dtype), network.device(device))


class Line(Protocol):
    """The models between two ends."""

    @property
    def distance(self) -> float:
        """√(Σ ‖A − g·B‖²) over all tensors."""
        ...

    def at(self, t: float) -> PreTrainedModel:
        """The model at t; it is overwritten by the next."""
        ...

    def say(self, exam: Exam) -> Say:
        """What the model that was asked for last says of some windows."""
        ...


@dataclass(frozen=True)
class Ground:
    """A in memory, and one model of the same shape that takes every point of every line."""

    ends: Ends
    buffer: PreTrainedModel
    theirs: Tensors  # A's parameters by name in memory, tied ones once
    disk: Mapping[str, str]  # name in memory → on disk; empty where loading joins or moves tensors

    @torch.inference_mode()
    def line(self, g: Symmetry) -> "Held":
        """The line from A to g·B; any other line of this ground ends."""
        parameters = dict(self.buffer.named_parameters())
        for name, x in self.theirs.items():
            parameters[name].copy_(x)
        other = self._placed(g) if self.disk else self._assembled(g)
        return Held(self, {n: y for n, y in other if not torch.equal(self.theirs[n], y)})

    def _placed(self, g: Symmetry) -> Iterator[tuple[str, Tensor]]:
        """The other end where each parameter is one tensor of the file: no model is built."""
        for name, disk in self.disk.items():
            if disk in self.ends.inside:
                yield name, self.ends.moved(g, disk).to(self.ends.device)

    def _assembled(self, g: Symmetry) -> Iterator[tuple[str, Tensor]]:
        """The other end as transformers renames and joins tensors."""
        model = assembled(self.ends, lambda name: self.ends.moved(g, name))
        for name, y in model.named_parameters():
            yield name, y.detach()


def assembled(ends: Ends, read: Callable[[str], Tensor]) -> PreTrainedModel:
    """A model of some tensors, which it may keep as its own."""
    state = {name: read(name) for name in ends.a.headers}
    found = network.assemble(ends.a.name, ends.config, ends.kind, None, state_dict=state)
    return network.ready(found, ends.a.name, ends.device)


@dataclass(frozen=True)
class Held:
    """The line from A to one other end, both in memory beside the buffer."""

    ground: Ground
    mine: Tensors  # the other end's parameters by name in memory, where they are not A's

    @torch.inference_mode()
    def at(self, t: float) -> PreTrainedModel:
        """See `Line`."""
        parameters = dict(self.ground.buffer.named_parameters())
        for name, y in self.mine.items():
            torch.lerp(self.ground.theirs[name], y, t, out=parameters[name])
        return self.ground.buffer

    @property
    def first(self) -> int:
        """The first layer that moves; 0 where something outside the layers does."""
        start = f"{self.ground.ends.a.family.blocks}."
        found = [name.removeprefix(start).partition(".")[0] for name in self.mine]
        return min((int(n) if n.isdigit() else 0 for n in found), default=0)

    def say(self, exam: Exam) -> Say:
        """Layers before the first that moves run once for the whole line."""
        model, first = self.ground.buffer, self.first
        if not first:
            return lambda part: logits(model, exam.some(part))
        prefixes: dict[int, Blocks] = {}

        def said(part: slice) -> Tensor:
            named = exam.some(part)
            if part.start not in prefixes:
                blocks = cut_up(model, self.ground.ends.a.family, named)
                prefixes[part.start] = replace(blocks, streams=(blocks.streams[first],))
            blocks = prefixes[part.start]
            state = blocks.streams[0]
            for depth in range(first, blocks.layers):
                (state,) = blocks.run(depth, [state])
            return outcome(model, self.ground.ends.a.family, named, blocks, state)

        return said

    @property
    def distance(self) -> float:
        """See `Line`."""
        return _norm(y - self.ground.theirs[n] for n, y in self.mine.items())


@dataclass(frozen=True)
class Streamed:
    """The same where memory holds one model: read from disk and built anew at every point."""

    ends: Ends
    g: Symmetry
    built: list[PreTrainedModel]  # at most one

    def at(self, t: float) -> PreTrainedModel:
        """See `Line`."""
        self.built.clear()
        self.built.append(assembled(self.ends, lambda name: self.ends.between(self.g, name, t)))
        return self.built[0]

    def say(self, exam: Exam) -> Say:
        """See `Line`."""
        return lambda part: logits(self.built[0], exam.some(part))

    @property
    def distance(self) -> float:
        """See `Line`."""
        every = sorted(self.ends.inside)
        return _norm(self.ends.moved(self.g, n) - self.ends.theirs(n) for n in every)


@dataclass(frozen=True)
class Disk:
    """A on disk, for checkpoints of which memory holds no three."""

    ends: Ends

    def line(self, g: Symmetry) -> Streamed:
        """The line from A to g·B."""
        return Streamed(self.ends, g, [])


def ground(ends: Ends) -> Ground | Disk:
    """A in memory twice, as it is and as the buffer, if the other end has room beside them."""
    need = (ends.a.parameters, ends.kind, ends.device)
    try:
        network.require_memory(*need, models=3)
    except Refused:
        network.require_memory(*need)
        return Disk(ends)
    buffer = assembled(ends, ends.theirs)
    theirs = {n: x.detach().clone() for n, x in buffer.named_parameters()}
    return Ground(ends, buffer, theirs, places(ends, theirs))


def places(ends: Ends, theirs: Tensors) -> dict[str, str]:
    """Where each parameter stands on disk, by its name and its numbers; {} unless all are there."""
    prefix = ends.a.family.prefix
    found: dict[str, str] = {}
    for name, x in theirs.items():
        disk = next((n for n in (name, name.removeprefix(prefix)) if n in ends.a.headers), None)
        if disk is None or not torch.equal(ends.theirs(disk).to(ends.device), x):
            return {}
        found[name] = disk
    return found


def _norm(gaps: Iterable[Tensor]) -> float:
    return sum(float(x.square().sum(dtype=torch.float64)) for x in gaps) ** 0.5
