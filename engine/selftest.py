"""The self-test: random changes of every coordinate must leave what the model says alone."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from engine import network, running
from engine.action import Read, act
from engine.checkpoint import Checkpoint
from engine.elements import Element
from engine.errors import Progress, silent
from engine.groups import Group
from engine.records import DirectionTest, SelfTest
from engine.running import require_signal
from engine.slide import possible, slide
from engine.symmetry import sample

WINDOWS, LENGTH = 2, 48


@dataclass(frozen=True)
class Trial:
    """One change that should not show, and the tensors after it."""

    name: str
    title: str
    kind: Literal["coordinate", "blind"]
    approximate: bool
    read: Read
    stream: Element | None = None  # what the residual stream itself should have undergone


def trials(checkpoint: Checkpoint, tensors: Mapping[str, Tensor], seed: int) -> Iterator[Trial]:
    """All coordinates at once, each alone, each blind direction, of tensors already in memory."""
    family, config = checkpoint.family, checkpoint.config

    def trial(name: str, title: str, only: tuple[str, ...]) -> Trial:
        g = sample(family, config, torch.Generator().manual_seed(seed), only)
        read = partial(act, g, read=tensors.__getitem__)
        return Trial(name, title, "coordinate", False, read, g.elements.get("res"))

    carried = family.carried(checkpoint.headers)
    sizes = family.sizes(config)
    yield trial("all", "all coordinates at once", tuple(carried))
    for name in family.free:
        if name in carried and not _trivial(family.coordinates[name].group, sizes[name]):
            yield trial(name, family.coordinates[name].title, (name,))
    for blind in possible(family, config, checkpoint.headers):
        generator = torch.Generator().manual_seed(seed)
        read = slide(family, config, blind, tensors.__getitem__, generator, tensors)
        yield Trial(blind.name, blind.title, "blind", blind.approximate, read)


def _trivial(group: Group, size: int) -> bool:
    """Whether nothing but the identity acts on so few indices: one head in a group, no channel."""
    return group.log10(size) == 0 and group.dimension(size) == 0


def self_test(
    checkpoint: Checkpoint,
    device: str = "auto",
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress = silent,
) -> SelfTest:
    """Largest change of any log-probability, relative to the largest, on random inputs.

    Every coordinate at once, each alone, and each blind direction. The share of tensors that moved
    is part of the result: a change of nothing proves nothing. A model without a head must give its
    last hidden state in the new coordinates.
    """
    began = time.perf_counter()
    where, kind = network.device(device), network.dtype(dtype)
    inputs = running.random_inputs(checkpoint, WINDOWS, LENGTH, seed)
    progress(0.0, f"loading {checkpoint.name}")
    before = running.log_probabilities(network.load(checkpoint, where, kind), inputs)
    require_signal(before, checkpoint.name)
    tensors = {name: checkpoint.read(name).to(kind) for name in checkpoint.headers}
    planned = list(trials(checkpoint, tensors, seed))
    rows = []
    for number, trial in enumerate(planned):
        progress((number + 0.5) / (len(planned) + 0.5), f"new coordinates: {trial.title}")
        changed = {name: trial.read(name) for name in tensors}
        moved = sum(not _same(changed[n], x) for n, x in tensors.items()) / len(tensors)
        model = network.build(checkpoint, changed, where, kind)
        after = running.log_probabilities(model, inputs)
        del model, changed
        rows.append(_row(trial, _furthest(after, _expected(before, trial.stream)), moved))
    everything = rows[0]
    return SelfTest(
        error=everything.error,
        difference=everything.error * _scale(before),
        moved=everything.moved,
        tensors=len(checkpoint.headers),
        rows=tuple(rows[1:]),
        seed=seed,
        device=str(where),
        dtype=dtype,
        seconds=time.perf_counter() - began,
    )


def _same(x: Tensor, y: Tensor) -> bool:
    return x is y or torch.equal(x, y.to(x.dtype))


def _row(trial: Trial, error: float, moved: float) -> DirectionTest:
    return DirectionTest(trial.name, trial.title, trial.kind, trial.approximate, error, moved)


def _expected(before: Mapping[str, Tensor], stream: Element | None) -> Mapping[str, Tensor]:
    """Distributions stay; a bare hidden state is written by the residual element."""
    if stream is None or running.HIDDEN not in before:
        return before
    return {running.HIDDEN: stream.write(before[running.HIDDEN])}


def _furthest(after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> float:
    largest = max(float((after[n] - before[n]).abs().max()) for n in before)
    return largest / max(_scale(before), 1e-300)


def _scale(found: Mapping[str, Tensor]) -> float:
    return max(float(x.abs().max()) for x in found.values())
