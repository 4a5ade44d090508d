"""What users ask: a frozen question with its key, its command line and, on request, its answer.

Importing this module imports neither torch nor transformers; `answer` does, where it must.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Literal

from engine import VERSION
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Progress, Refused, silent
from engine.records import (
    AlignmentReport,
    Experiment,
    HeadsReport,
    ModelCard,
    Record,
    ResidualMatch,
    SelfTest,
    TurnReport,
)
from engine.store import Store

Using = Literal["weights", "activations"]
CostKind = Literal["auto", "rotary", "published"]
Stage2 = Literal["full", "orthogonal", "none"]
Known = Literal["planted", "identity", "none"]
MODELS = ("model", "a", "b")
STARTING = "importing torch and transformers"
"""The first step of the first job in a process takes seconds."""


@dataclass(frozen=True)
class Question:
    """A request whose answer depends on its fields and on the content of its checkpoints only."""

    @property
    def models(self) -> tuple[str, ...]:
        """The MODEL arguments, in order."""
        return tuple(str(v) for k, v in asdict(self).items() if k in MODELS)

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The opened checkpoints (configuration and headers only); Refused if one is not sound."""
        return tuple(open_checkpoint(model) for model in self.models)

    @cached_property
    def key(self) -> str:
        """Digest of the question's name and fields, the content it reads and the engine's version.

        A path is no key: checkpoints enter by fingerprint, a text file by its bytes.
        """
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in MODELS}
        if parts.get("text", "default") != "default":
            parts["text"] = _digest(Path(str(parts["text"])))
        prints = [(checkpoint.fingerprint, checkpoint.stamps) for checkpoint in self.checkpoints]
        text = json.dumps([type(self).__name__, VERSION, prints, parts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def command(self) -> str:
        """The command line that asks the same; options at their defaults are left out."""
        words = ["python", "-m", "engine", VERBS[type(self).__name__], *self.models]
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in MODELS and value != one.default:
                words += _option(one.name, value)
        return shlex.join([*words, *EXTRA.get(type(self).__name__, ())])

    def answer(self, progress: Progress = silent) -> Record:
        """Compute the record; `progress` may raise `Cancelled`, after which nothing has changed."""
        raise NotImplementedError

    @contextmanager
    def running(self, progress: Progress) -> Iterator[tuple[Checkpoint, ...]]:
        """The checkpoints, while as many threads run as suit them."""
        progress(0.0, STARTING)
        from engine import network  # noqa: PLC0415

        with network.threads(network.suited(*self.checkpoints)):
            yield self.checkpoints


VERBS = {
    "Inspect": "inspect",
    "Check": "inspect",
    "Match": "match",
    "Align": "align",
    "Lab": "lab",
    "Heads": "heads",
    "Turn": "turn",
}
EXTRA = {"Match": ("--out", "match.npz"), "Align": ("--out", "aligned")}


def _option(name: str, value: object) -> list[str]:
    if name == "text" and str(value).endswith(".json"):
        return ["--tokens", str(value)]
    if name == "tokens":
        return ["--count", str(value)]
    if name == "signs":
        return ["--signs", "on" if value else "off"]
    return [f"--{name}", ",".join(value) if isinstance(value, tuple) else str(value)]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise Refused(
            f"Text file {path} cannot be read ({error.strerror}); give another."
        ) from error


@dataclass(frozen=True)
class Inspect(Question):
    """The card of one model: configuration and headers only, in milliseconds."""

    model: str

    def answer(self, progress: Progress = silent) -> ModelCard:
        """See `engine.inspection.card`."""
        from engine.inspection import card  # noqa: PLC0415

        progress(0.0, f"reading the headers of {self.model}")
        return card(self.checkpoints[0])


@dataclass(frozen=True)
class Check(Question):
    """The self-test of one model on a device."""

    model: str
    device: str = "auto"
    dtype: str = "float32"
    seed: int = 0

    def answer(self, progress: Progress = silent) -> SelfTest:
        """See `engine.selftest.self_test`."""
        with self.running(progress) as (model,):
            from engine import selftest  # noqa: PLC0415

            return selftest.self_test(model, self.device, self.dtype, self.seed, progress)


@dataclass(frozen=True)
class Match(Question):
    """The residual coordinates of two models matched at every depth."""

    a: str
    b: str
    using: Using = "activations"
    tokens: int = 8192
    truth: Known = "planted"
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> ResidualMatch:
        """See `engine.matching.match_residual`."""
        with self.running(progress) as (a, b):
            from engine import matching  # noqa: PLC0415

            return matching.match_residual(a, b, self, progress)


@dataclass(frozen=True)
class Align(Question):
    """B put into A's coordinates, with a fresh check of the logits."""

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

    def answer(self, progress: Progress = silent, out: Path | None = None) -> AlignmentReport:
        """See `engine.comparison.compare`; `out` takes the aligned checkpoint and the gauge."""
        with self.running(progress) as (a, b):
            from engine import comparison  # noqa: PLC0415

            return comparison.compare(a, b, self, out, progress)[0]


@dataclass(frozen=True)
class Lab(Question):
    """One experiment of the lab: a change of the weights, and whether the output shows it.

    Empty words and numbers below 0 mean: what the preset chooses. A `layer` below 0 is every layer.
    """

    model: str
    preset: str = "ffn-order"
    coordinate: str = ""
    layer: int = 0
    draw: str = ""
    severity: float = 1.0
    angle: float = 90.0  # degrees
    element: str = ""  # typed by hand, see `engine.lab.typed`
    seed: int = 0
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> Experiment:
        """See `engine.lab.experiment.run`."""
        with self.running(progress) as (model,):
            from engine.lab import experiment  # noqa: PLC0415

            return experiment.run(model, self, progress)


@dataclass(frozen=True)
class Heads(Question):
    """Which attention head is which in one layer, and by which angles it was turned.

    A and B may be one model: which two of its heads coincide up to a change of basis?
    """

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


def ask(question: Question, store: Store, progress: Progress = silent) -> Record:
    """The stored answer, or a fresh one that is stored."""
    known = store.get(question.key)
    if known is not None:
        return known
    record = question.answer(progress)
    store.put(question.key, record)
    return record
