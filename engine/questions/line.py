"""Questions about the line between two models: barriers, what stands on it, merges, a slice."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from engine.errors import Progress, silent
from engine.line import words
from engine.questions.base import BOUNDS, Bounds, Question
from engine.questions.pairs import Using
from engine.records import (
    BarrierReport,
    Estimate,
    HeadOrders,
    LossSlice,
    MergeReport,
    Writing,
)

USUAL = ("none", "res-unsigned", "res", "ffn", "heads", "all", "random")
"""The stages that are run where none are named, see `engine.records.barriers.STAGES` for all."""
ABLATION = ("none", "heads", "orthogonal", "all")
"""Stage 2 none, orthogonal only, full: the published ablation, each relative to the first."""
MERGING = ("orders", "all")
"""With `scrambled`: what permutations alone, and the whole group, make of a hidden gauge."""


@dataclass(frozen=True)
class Barrier(Question):
    """How far loss and accuracy are from their chord on the line from A to B, stage by stage.

    B = sup_t [L((1 − t) A + t g·B) − (1 − t) L(A) − t L(B)] with g of every stage cut from one
    alignment. `points` are spread evenly over [0, 1], ends included; `adaptive` adds some where a
    curve bends; `midpoint` measures t = 0, ½ and 1 alone, for large models.
    """

    verb: ClassVar[str] = "barrier"
    extra: ClassVar[tuple[str, ...]] = ("--out", "barrier.json")
    a: str
    b: str
    points: int = 25
    stages: tuple[str, ...] = USUAL
    scope: str = "whole"  # see `engine.records.barriers.SCOPES`; or layers such as "3-5"
    midpoint: bool = False
    adaptive: bool = True
    using: Using = "weights"
    sweeps: int = 0  # as for `Align`
    refine: int = 0  # steps, on text that is not measured on; > 0 adds the stage "refined"
    scrambled: bool = False  # B is put under a random gauge first
    seed: int = 0  # of random gauges
    tokens: int = 2048
    length: int = 128  # tokens of a window
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"  # float32 or float64

    def require(self) -> None:
        super().require()
        words.require(self, self.wanted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The stages that are measured: a refinement is one."""
        return (*self.stages, *(["refined"] * (self.refine > 0)))

    def answer(self, progress: Progress = silent) -> BarrierReport:
        """See `engine.line.barrier`; hands over partial curves as it goes."""
        with self.running(progress) as (a, b):
            from engine.line import barrier  # noqa: PLC0415

            return barrier.barrier(a, b, self, progress)

    @property
    def forecast(self) -> "Forecast":
        """The same run, to be estimated."""
        return Forecast(
            self.a, self.b, self.points, self.stages, self.midpoint, self.refine > 0, self.tokens,
            self.length, self.text, self.device, self.dtype,
        )  # fmt: skip


@dataclass(frozen=True)
class Forecast(Question):
    """What a barrier run will cost: tokens as they are cut, models to run, seconds of one timed."""

    verb: ClassVar[str] = "barrier"
    extra: ClassVar[tuple[str, ...]] = ("--out", "barrier.json")
    a: str
    b: str
    points: int = 25
    stages: tuple[str, ...] = USUAL
    midpoint: bool = False
    refined: bool = False
    tokens: int = 2048
    length: int = 128
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> Estimate:
        """See `engine.line.barrier.estimate`."""
        with self.running(progress) as (a, b):
            from engine.line import barrier  # noqa: PLC0415

            return barrier.estimate(a, b, self, progress)


@dataclass(frozen=True)
class Written(Question):
    """What the models on the line write after a prompt, at every t of `at`."""

    verb: ClassVar[str] = "line"
    a: str
    b: str
    at: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    stage: str = "all"
    prompt: str = ""  # empty for the beginning of the text
    count: int = 24  # tokens
    scope: str = "whole"
    using: Using = "weights"
    sweeps: int = 0
    refine: int = 0
    scrambled: bool = False
    seed: int = 0
    text: str = "default"  # what activations and refinement read
    device: str = "auto"
    dtype: str = "float32"

    def require(self) -> None:
        super().require()
        words.require(self, (self.stage,))

    def answer(self, progress: Progress = silent) -> Writing:
        """See `engine.line.writing`."""
        with self.running(progress) as (a, b):
            from engine.line import writing  # noqa: PLC0415

            return writing.written(a, b, self, progress)


@dataclass(frozen=True)
class Merge(Question):
    """The model at one t of the line: its measured loss, and on request the checkpoint."""

    verb: ClassVar[str] = "merge"
    extra: ClassVar[tuple[str, ...]] = ("--out", "merged")
    a: str
    b: str
    t: float = 0.5
    stage: str = "all"
    scope: str = "whole"
    using: Using = "weights"
    sweeps: int = 0
    refine: int = 0
    scrambled: bool = False
    seed: int = 0
    tokens: int = 2048
    length: int = 128
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def require(self) -> None:
        super().require()
        words.require(self, (self.stage,))

    def answer(self, progress: Progress = silent, out: Path | None = None) -> MergeReport:
        """See `engine.line.merging`; `out` takes the checkpoint."""
        with self.running(progress) as (a, b):
            from engine.line import merging  # noqa: PLC0415

            return merging.merge(a, b, self, out, progress)


@dataclass(frozen=True)
class Slice(Question):
    """The loss over the plane through A, B and aligned B."""

    verb: ClassVar[str] = "slice"
    extra: ClassVar[tuple[str, ...]] = ("--out", "slice.json")
    bounds: ClassVar[Bounds] = {**BOUNDS, "points": (2, 101)}
    a: str
    b: str
    points: int = 11  # along each axis
    margin: float = 0.2  # beyond the three models, in parts of the span
    stage: str = "all"
    scope: str = "whole"
    using: Using = "weights"
    sweeps: int = 0
    refine: int = 0
    seed: int = 0
    tokens: int = 1024
    length: int = 128
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def require(self) -> None:
        super().require()
        words.require(self, (self.stage,))

    def answer(self, progress: Progress = silent) -> LossSlice:
        """See `engine.line.slices`; hands over what is measured, row by row."""
        with self.running(progress) as (a, b):
            from engine.line import slices  # noqa: PLC0415

            return slices.cut(a, b, self, progress)


@dataclass(frozen=True)
class Orders(Question):
    """The barrier of every order of the heads of one layer, the rest fixed at A's."""

    verb: ClassVar[str] = "orders"
    extra: ClassVar[tuple[str, ...]] = ("--out", "orders.json")
    a: str
    b: str
    layer: int = 0
    points: int = 5
    using: Using = "weights"
    tokens: int = 2048
    length: int = 128
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> HeadOrders:
        """See `engine.line.head_orders`."""
        with self.running(progress) as (a, b):
            from engine.line import head_orders  # noqa: PLC0415

            return head_orders.every(a, b, self, progress)
