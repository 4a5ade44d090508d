"""Lines whose checkpoints stay on disk: one layer of A and g·B in memory, at all points at once.

The streams of all models of a line go through the model side by side: embedding, layer after layer,
head. Each section is read once for all points, and interpolated anew for each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from engine import network
from engine.errors import Progress, Short, part
from engine.layers.blocks import State, cut_up
from engine.line.ends import Ends, assembled
from engine.line.exam import At, Exam, Say, Says
from engine.line.sampling import EXTRA
from engine.line.sections import Named, Section, Span, blank, sections
from engine.network import GIB
from engine.symmetry import Symmetry

STREAMS = 2**30
"""Bytes of streams that are held at once: of all points, before a layer and after it."""
COPIES = 4
"""A's section, g·B's, one between, and what the gauge is at work on."""
Streams = Mapping[int, Any]
"""The streams of one model by the first window of each part of an exam; first the windows."""


@dataclass(frozen=True)
class Disk:
    """Both checkpoints on disk: memory holds no three models."""

    ends: Ends

    def line(self, g: Symmetry) -> "Streamed":
        """The line from A to g·B."""
        return Streamed(self.ends, g)

    def require_memory(self) -> None:
        """Short unless memory holds `COPIES` of the largest section, the streams, and the work."""
        a, kind = self.ends.a, self.ends.kind
        largest = max(section.parameters for section in sections(self.ends))
        need = COPIES * largest * kind.itemsize + STREAMS + network.ALLOWANCE
        free = network.free_memory(self.ends.device)
        if need > free:
            raise Short(
                f"{a.name} does not fit even layer by layer: {COPIES} times its largest part "
                f"({largest / 1e6:,.0f} M parameters) and the work need {need / GIB:.1f} GiB, "
                f"{self.ends.device} has {free / GIB:.1f} GiB free: choose a smaller model."
            )


@dataclass(frozen=True)
class Streamed:
    """The line from A to g·B, read from disk anew for every walk."""

    ends: Ends
    g: Symmetry
    gaps: dict[str, float] = field(default_factory=dict)  # ‖A − g·B‖² by tensor; walks fill it in

    @property
    def together(self) -> int:
        """How many points are best asked for at once: every walk reads both checkpoints.

        With two walks for all that a curve may add, narrow hills are found as high as one by one.
        """
        return EXTRA // 2

    @property
    def distance(self) -> float:
        """√(Σ ‖A − g·B‖²) over all tensors; nan before the first walk."""
        return sum(self.gaps.values()) ** 0.5 if self.gaps else torch.nan

    def at(self, t: float) -> PreTrainedModel:
        """The whole model at t. Errors: Short where memory does not hold it."""
        network.require_memory(self.ends.a.parameters, self.ends.kind, self.ends.device)
        return assembled(self.ends, lambda name: self.ends.between(self.g, name, t))

    def over(self, exam: Exam) -> Says:
        """What the models say; a long text goes in pieces, each with a walk of its own."""

        def says(points: Sequence[float], progress: Progress) -> Iterator[tuple[Exam, At]]:
            size, wrapped = form(self.ends, exam)
            found = list(pieces(exam, 2 * len(points) * size))
            for number, piece in enumerate(found):
                shares = (k / len(found) for k in (number, number + 1))
                yield piece, walk(self, piece, points, part(progress, *shares), wrapped=wrapped)

        return says


def form(ends: Ends, exam: Exam) -> tuple[int, bool]:
    """Bytes of a window's stream, and whether a block gives it as the first of a tuple."""
    model = network.frozen(blank(ends).build(ends.blank), ends.device)
    blocks = cut_up(model, ends.a.family, exam.some(slice(0, 1)))
    return blocks.streams[0].nbytes, blocks.wrapped


def pieces(exam: Exam, size: int) -> Iterator[Exam]:
    """The windows, as many at once as `STREAMS` allows where each takes `size` bytes."""
    step = max(1, STREAMS // size)
    for start in range(0, exam.windows, step):
        yield exam.cut(slice(start, start + step))


def walk(
    line: Streamed, exam: Exam, points: Sequence[float], progress: Progress, *, wrapped: bool
) -> At:
    """The streams of all points through embedding and layers; the head waits for what is asked."""
    named = {some.start: exam.some(some) for some in exam.parts()}
    streams: Mapping[float, Streams] = dict.fromkeys(points, named)
    *through, last = sections(line.ends)
    many = f"{len(points)} models at once" if len(points) > 1 else "one model"
    for number, section in enumerate(through):
        what = "embedding" if section.layer is None else f"layer {section.layer}"
        progress(number / len(through), f"{what}, {many}")
        streams = passed(line, section, named, streams, wrapped=wrapped)
    progress(1.0, f"head, {many}")
    span = opened(line, last)
    first = {name: x[:1] for name, x in named[0].items()}
    found = span.head(first, streams[points[0]][0][:1], wrapped=wrapped)
    reads = {start: span.last(x, found, wrapped=wrapped) for start, x in named.items()}

    def at(t: float) -> Say:
        span.at(t)
        return lambda some: reads[some.start](streams[t][some.start])

    return at


def passed(
    line: Streamed,
    section: Section,
    named: Mapping[int, Named],
    streams: Mapping[float, Streams],
    *,
    wrapped: bool,
) -> dict[float, Streams]:
    """All streams after a section; those of all points run once while nothing has moved."""
    span = opened(line, section)
    enter = span.first if section.layer is None else span.block
    runs = {start: enter(x, wrapped=wrapped) for start, x in named.items()}
    once = next(iter(streams.values()))
    if not span.mine and all(given is once for given in streams.values()):
        return dict.fromkeys(streams, ran(runs, once))
    found: dict[float, Streams] = {}
    for t, given in streams.items():
        span.at(t)
        found[t] = ran(runs, given)
    return found


def ran(runs: Mapping[int, Callable[[Any], State]], given: Streams) -> Streams:
    """The parts of one model's streams, each after its run."""
    return {start: run(given[start]) for start, run in runs.items()}


def opened(line: Streamed, section: Section) -> Span:
    """A section in memory, its part of the distance noted."""
    span = section.line(line.g)
    line.gaps.update(span.gap)
    return span
