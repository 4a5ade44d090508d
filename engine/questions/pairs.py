"""Questions about two models: related, match, align, heads, and one turn by hand."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from engine.errors import Progress, silent
from engine.exports.documents import made, written
from engine.questions.base import Question
from engine.records import (
    AlignmentReport,
    HeadsReport,
    Relatedness,
    ResidualMatch,
    TurnReport,
    plain,
)
from engine.writing import new_folder

Using = Literal["weights", "activations"]
CostKind = Literal["auto", "rotary", "published"]
Stage2 = Literal["full", "orthogonal", "none"]
NeuronCost = Literal["invariant", "published"]
Known = Literal["planted", "identity", "none"]


@dataclass(frozen=True)
class Related(Question):
    """Whether two models have a common lineage, and how much more they have in common."""

    verb: ClassVar[str] = "related"
    a: str
    b: str
    tokens: int = 4096
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"
    thorough: bool = False  # every test, even where the embeddings settle it

    def answer(self, progress: Progress = silent) -> Relatedness:
        """See `engine.alignment.relatedness.relate`."""
        with self.running(progress) as (a, b):
            from engine.alignment import relatedness  # noqa: PLC0415

            return relatedness.relate(a, b, self, progress)


@dataclass(frozen=True)
class Match(Question):
    """The residual coordinates of two models matched at every depth."""

    verb: ClassVar[str] = "match"
    extra: ClassVar[tuple[str, ...]] = ("--out", "match.npz")
    a: str
    b: str
    using: Using = "activations"
    tokens: int = 8192
    truth: Known = "planted"
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> ResidualMatch:
        """See `engine.alignment.matching.match_residual`."""
        with self.running(progress) as (a, b):
            from engine.alignment import matching  # noqa: PLC0415

            return matching.match_residual(a, b, self, progress)


@dataclass(frozen=True)
class Align(Question):
    """B put into A's coordinates, with a fresh check of the logits."""

    verb: ClassVar[str] = "align"
    extra: ClassVar[tuple[str, ...]] = ("--out", "aligned")
    a: str
    b: str
    using: Using = "weights"
    signs: bool = True
    only: tuple[str, ...] = ()
    tokens: int = 8192
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"
    stage2: Stage2 = "full"
    sweeps: int = 0  # at most so many of `engine.alignment.sweeps`; 0: each coordinate once
    restarts: int = 0  # further starts of the sweeps, perturbed at random
    mix: float = 0.0  # weight of activations beside the distance of weights, see `BOUNDS`
    neurons: NeuronCost = "invariant"  # in sweeps
    refine: int = 0  # steps of `engine.alignment.refinement`

    def answer(self, progress: Progress = silent, out: Path | None = None) -> AlignmentReport:
        """See `engine.alignment.comparison.compare`; `out` takes aligned B and the gauge."""
        with self.running(progress) as (a, b):
            from engine.alignment import comparison  # noqa: PLC0415

            return comparison.compare(a, b, self, out, progress)[0]

    def write(self, out: Path, progress: Progress = silent) -> AlignmentReport:
        """The answer, with aligned B, `symmetry.safetensors` and `report.json` in a new folder.

        Errors: Refused as for `engine.writing.new_folder`.
        """
        with new_folder(out) as staged:
            report = self.answer(progress, staged)
            text = written(made(plain(report), self), 1)
            (staged / "report.json").write_text(text, encoding="utf-8")
        return report


@dataclass(frozen=True)
class Heads(Question):
    """Which attention head is which in one layer, and by which angles it was turned.

    A and B may be one model: which two of its heads coincide up to a change of basis?
    """

    verb: ClassVar[str] = "heads"
    a: str
    b: str
    layer: int = 0
    cost: CostKind = "auto"
    stage2: Stage2 = "full"
    using: Using = "weights"
    tokens: int = 1024
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> HeadsReport:
        """See `engine.attention.report.report`."""
        with self.running(progress) as (a, b):
            from engine.attention import report  # noqa: PLC0415

            return report.report(a, b, self, progress)


@dataclass(frozen=True)
class Turn(Question):
    """One frequency of one key/value head of B, already in A's coordinates, turned by hand."""

    verb: ClassVar[str] = "turn"
    a: str
    b: str
    layer: int = 0
    group: int = 0
    frequency: int = 0
    angle: float = 0.0  # degrees
    modulus: float = 1.0
    using: Using = "weights"
    tokens: int = 1024
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> TurnReport:
        """See `engine.attention.hand.turn`."""
        with self.running(progress) as (a, b):
            from engine.attention import hand  # noqa: PLC0415

            return hand.turn(a, b, self, progress)
