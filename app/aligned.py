"""Checkpoints in another model's coordinates."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.written import Writing
from engine.errors import Progress
from engine.questions import Align


@dataclass(frozen=True)
class Aligning(Writing):
    """The request to write B in A's coordinates, with its gauge and the report beside it."""

    asked: Align

    @property
    def device(self) -> str:
        """It is solved anew, since a report holds no gauge."""
        return self.asked.device

    @cached_property
    def key(self) -> str:
        """Of the question, but not its job."""
        return hashlib.sha256(f"write {self.asked.key}".encode()).hexdigest()[:32]

    @property
    def name(self) -> str:
        """Named by both models' content and how they were aligned."""
        a, b = (checkpoint.fingerprint[:8] for checkpoint in self.asked.checkpoints)
        return f"aligned-{b}-to-{a}-{self.asked.key[:8]}"

    def fill(self, out: Path, progress: Progress) -> None:
        """See `engine.questions.Align.write`."""
        self.asked.write(out, progress)
