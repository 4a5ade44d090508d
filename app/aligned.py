"""Checkpoints in another model's coordinates."""

from dataclasses import dataclass
from pathlib import Path

from app.written import Answering
from engine.errors import Progress
from engine.questions import Align


@dataclass(frozen=True)
class Aligning(Answering):
    """The request to write B in A's coordinates, with its gauge and the report beside it."""

    asked: Align

    @property
    def name(self) -> str:
        """Named by both models' content and how they were aligned."""
        a, b = self.prints
        return f"aligned-{b}-to-{a}-{self.asked.key[:8]}"

    def fill(self, out: Path, progress: Progress) -> None:
        """See `engine.questions.Align.write`."""
        self.asked.write(out, progress)
