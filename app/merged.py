"""Models on the line between two, written as checkpoints."""

from dataclasses import dataclass
from pathlib import Path

from app.outputs import results
from app.written import Answering
from engine.errors import Progress
from engine.exports import line as exports
from engine.exports.documents import made, written
from engine.questions import Merge
from engine.writing import new_folder


@dataclass(frozen=True)
class Merging(Answering):
    """The request to write the model at t, with what it was measured to say beside it."""

    asked: Merge

    @property
    def name(self) -> str:
        """Named by both models' content, t, and all that else changes it."""
        a, b = self.prints
        return f"merged-{a}-{b}-{self.asked.t:g}-{self.asked.key[:8]}"

    def fill(self, out: Path, progress: Progress) -> None:
        """The checkpoint and `report.json`; what was measured goes into the store too."""
        with new_folder(out) as staged:
            record = self.asked.answer(progress, staged)
            document = made(exports.of_merge(record), self.asked)
            (staged / "report.json").write_text(written(document, 1), encoding="utf-8")
        results().put(self.asked.key, record)
