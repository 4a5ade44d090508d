"""The models (1 − t) A + t g·B: one buffer, overwritten in place; A and g·B are never touched."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine import network
from engine.allocation import release
from engine.errors import Short
from engine.layers.blocks import Blocks, cut_up
from engine.layers.reading import outcome
from engine.line.ends import Ends, Tensors, assembled, put, squares
from engine.line.exam import Exam, Said, Say, Says, beheaded, whole
from engine.line.streamed import Disk, Streamed
from engine.symmetry import Symmetry


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
        mine = {n: y for n, y in other if not torch.equal(self.theirs[n], y)}
        release()  # what the actions on single tensors took on the way
        return Held(self, mine)

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


@dataclass(frozen=True)
class Held:
    """The line from A to one other end, both in memory beside the buffer."""

    ground: Ground
    mine: Tensors  # the other end's parameters by name in memory, where they are not A's

    @property
    def together(self) -> int:
        """How many points are best asked for at once: where to look next is known after each."""
        return 1

    @cached_property
    def distance(self) -> float:
        """√(Σ ‖A − g·B‖²) over all tensors."""
        return sum(squares(self.ground.theirs[n], y) for n, y in self.mine.items()) ** 0.5

    @property
    def first(self) -> int:
        """The first layer that moves; 0 where something outside the layers does."""
        start = f"{self.ground.ends.a.family.blocks}."
        found = [name.removeprefix(start).partition(".")[0] for name in self.mine]
        return min((int(n) if n.isdigit() else 0 for n in found), default=0)

    def at(self, t: float) -> PreTrainedModel:
        """The model at t; it is overwritten by the next."""
        put(self.ground.buffer, self.ground.theirs, self.mine, t)
        return self.ground.buffer

    def over(self, exam: Exam) -> Says:
        """What the models say; layers before the first that moves run once for the whole line."""
        say = self._later(exam, self.first) if self.first else whole(self.ground.buffer, exam)

        def at(t: float) -> Say:
            self.at(t)
            return say

        return lambda _, __: iter([(exam, at)])

    def _later(self, exam: Exam, first: int) -> Say:
        """The layers from the first that moves, on streams that are kept."""
        model, family = self.ground.buffer, self.ground.ends.a.family
        body, meant = beheaded(model, exam)
        prefixes: dict[int, Blocks] = {}

        def say(part: slice) -> Said:
            named = exam.some(part)
            if part.start not in prefixes:
                blocks = cut_up(model, family, named)
                prefixes[part.start] = replace(blocks, streams=(blocks.streams[first],))
            blocks = prefixes[part.start]
            state = blocks.streams[0]
            for depth in range(first, blocks.layers):
                (state,) = blocks.run(depth, [state])
            return meant(outcome(body, family, named, blocks, state))

        return say


Line = Held | Streamed
"""The models between two ends, in memory or not."""


def ground(ends: Ends) -> Ground | Disk:
    """A in memory twice, as it is and as the buffer, if the other end has room beside them.

    Else both checkpoints stay on disk, and lines are walked layer by layer. Errors: Short where
    memory does not hold one layer of either.
    """
    try:
        network.require_memory(ends.a.parameters, ends.kind, ends.device, models=3)
    except Short:
        found = Disk(ends)
        found.require_memory()
        return found
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
