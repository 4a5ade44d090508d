"""What users ask: a frozen question with its key, its command line and, on request, its answer.

Importing this module imports neither torch nor transformers; `answer` does, where it must.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from engine import VERSION
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Progress, Refused, silent
from engine.prepared import is_prepared
from engine.records import Record
from engine.store import Store

MODELS = ("model", "a", "b", "series")
READING = ("text", "prompt")
"""Fields by which a question reads words: always through the tokenizer of its first model."""
STARTING = "importing torch and transformers"
"""The first step of the first job in a process takes seconds."""
Bounds = Mapping[str, tuple[float, float]]
"""The least and the most that a number of a question may be, by the name of its field."""
BOUNDS: Bounds = MappingProxyType(
    {
        "points": (3, 1001),
        "sweeps": (0, 10_000),
        "restarts": (0, 1000),
        "refine": (0, 10_000),
        "mix": (0, 0.99),
        "seed": (0, 2**63 - 1),
        "tokens": (1, 10_000_000),
        "length": (2, 2**31),
        "count": (1, 100_000),
        "margin": (0, 100),
    }
)
OPTIONS = MappingProxyType({"tokens": "count"})
"""Options that are not called like their field."""


@dataclass(frozen=True)
class Question:
    """A request whose answer depends on its fields and on the content of its checkpoints only."""

    verb: ClassVar[str]
    """The command that answers it."""
    extra: ClassVar[tuple[str, ...]] = ()
    """Options that the command needs beside the fields: where files go."""
    bounds: ClassVar[Bounds] = BOUNDS

    @property
    def models(self) -> tuple[str, ...]:
        """The MODEL arguments, in order."""
        found = (getattr(self, f.name) for f in fields(self) if f.name in MODELS)
        return tuple(chain.from_iterable([v] if isinstance(v, str) else v for v in found))

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The opened checkpoints (configuration and headers only); Refused if one is not sound."""
        return tuple(open_checkpoint(model) for model in self.models)

    @cached_property
    def key(self) -> str:
        """Digest of the question's name and fields, the content it reads and the engine's version.

        A path is no key: checkpoints enter by fingerprint, a text file by its bytes. The tokens of
        a text depend on the tokenizer too, which no fingerprint holds: the first model's enters
        where words are read.
        """
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in MODELS}
        if parts.get("text", "default") != "default":
            parts["text"] = _digest(Path(str(parts["text"])))
        prints = [(checkpoint.fingerprint, checkpoint.stamps) for checkpoint in self.checkpoints]
        reads = any(name in parts for name in READING)
        readers = [first.tokenizer for first in self.checkpoints[:1] if reads]
        text = json.dumps([type(self).__name__, VERSION, prints, parts, *readers], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def command(self) -> str:
        """The command line that asks the same; options at their defaults are left out."""
        words = ["python", "-m", "engine", self.verb, *self.models]
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in MODELS and value != one.default:
                words += _option(one.name, value)
        return shlex.join([*words, *self.extra])

    def answer(self, progress: Progress = silent) -> Record:
        """Compute the record; `progress` may raise `Cancelled`, after which nothing has changed."""
        raise NotImplementedError

    def require(self) -> None:
        """Refused, before anything is loaded, for numbers out of `bounds` and unknown words."""
        for one in fields(self):
            value = getattr(self, one.name)
            low, high = self.bounds.get(one.name, (value, value))
            if not low <= value <= high:
                name = OPTIONS.get(one.name, one.name)
                raise Refused(f"--{name} {value}: give {low:,} to {high:,}.")

    @contextmanager
    def running(self, progress: Progress) -> Iterator[tuple[Checkpoint, ...]]:
        """The checkpoints, while as many threads run as suit them.

        Errors: Refused as for `require`, and for a text or inputs that the user named and that are
        none, whether they are read or not.
        """
        self.require()
        progress(0.0, STARTING)
        from engine import network, shared  # noqa: PLC0415

        shared.require(self.checkpoints[0], str(getattr(self, "text", shared.texts.DEFAULT)))
        with network.threads(network.suited(*self.checkpoints)):
            yield self.checkpoints


def _option(name: str, value: object) -> list[str]:
    if name == "text" and str(value).endswith(".json"):
        return ["--tokens", str(value)]
    if name == "text" and is_prepared(str(value)):
        return ["--inputs", str(value)]
    if isinstance(value, bool):
        return [f"--{name}", "on" if value else "off"]
    name = OPTIONS.get(name, name)
    return [f"--{name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise Refused(
            f"Text file {path} cannot be read ({error.strerror}); give another."
        ) from error


def ask(question: Question, store: Store, progress: Progress = silent) -> Record:
    """The stored answer, or a fresh one that is stored."""
    known = store.get(question.key)
    if known is not None:
        return known
    record = question.answer(progress)
    store.put(question.key, record)
    return record
