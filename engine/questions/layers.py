"""Questions about the layers of one model: maps, cuts, continuations, a training."""

from dataclasses import dataclass
from typing import ClassVar

from engine.errors import Progress, silent
from engine.questions.base import Question
from engine.records import Continuation, CutCost, CutReport, GapTrajectory, LayerMaps
from engine.records.layers import Aggregate

TESTS = ("replace", "swap", "delete")
"""The tests that are run where none are named, see `engine.records.layers.PAIRS` for all."""
METHODS = ("swap", "replace", "healed", "influence", "angular", "greedy")
"""The ways to choose which layers go, see `engine.layers.cutting`."""


@dataclass(frozen=True)
class Layers(Question):
    """What every test of every pair of layers costs, adjacent pairs first."""

    verb: ClassVar[str] = "layers"
    extra: ClassVar[tuple[str, ...]] = ("--out", "layers.json")
    model: str
    tests: tuple[str, ...] = TESTS
    layers: str = ""  # "3-9", both ends included; empty for all
    reach: int = 0  # largest |i - j|; 0 for all
    aggregate: Aggregate = "mean"
    tokens: int = 512
    length: int = 32  # tokens of a window
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> LayerMaps:
        """See `engine.layers.maps`."""
        with self.running(progress) as (model,):
            from engine.layers import maps  # noqa: PLC0415

            return maps.maps(model, self, progress)


@dataclass(frozen=True)
class Cut(Question):
    """Which layers to leave out, chosen in several ways, and what each choice costs."""

    verb: ClassVar[str] = "cut"
    extra: ClassVar[tuple[str, ...]] = ("--out", "cut.json")
    model: str
    budget: int = 5
    by: tuple[str, ...] = METHODS
    reach: int = 0  # of the pair scores, as for `Layers`
    tokens: int = 512
    length: int = 32
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> CutReport:
        """See `engine.layers.cutting`."""
        with self.running(progress) as (model,):
            from engine.layers import cutting  # noqa: PLC0415

            return cutting.cut(model, self, progress)


@dataclass(frozen=True)
class Drop(Question):
    """What it costs to leave out some layers, named by hand."""

    verb: ClassVar[str] = "prune"
    extra: ClassVar[tuple[str, ...]] = ("--out", "pruned")
    model: str
    drop: tuple[int, ...]
    tokens: int = 512
    length: int = 32
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> CutCost:
        """See `engine.layers.cutting`."""
        with self.running(progress) as (model,):
            from engine.layers import cutting  # noqa: PLC0415

            return cutting.cost(model, self, progress)


@dataclass(frozen=True)
class Continue(Question):
    """What a model writes after a prompt, as it is and after one test of its layers."""

    verb: ClassVar[str] = "continue"
    model: str
    test: str = "replace"
    i: int = 0
    j: int = 1
    prompt: str = ""  # empty for the beginning of the text
    count: int = 24  # tokens
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> Continuation:
        """See `engine.layers.continuing`."""
        with self.running(progress) as (model,):
            from engine.layers import continuing  # noqa: PLC0415

            return continuing.continuation(model, self, progress)


@dataclass(frozen=True)
class Gap(Question):
    """How far replacing and swapping of adjacent layers lie apart, over saved steps or seeds."""

    verb: ClassVar[str] = "gap"
    extra: ClassVar[tuple[str, ...]] = ("--out", "gap.json")
    series: tuple[str, ...]
    tokens: int = 512
    length: int = 32
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> GapTrajectory:
        """See `engine.layers.gap`."""
        with self.running(progress) as models:
            from engine.layers import gap  # noqa: PLC0415

            return gap.gap(models, self, progress)
