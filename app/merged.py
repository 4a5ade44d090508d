"""Models on the line between two, written as checkpoints."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.outputs import results
from app.written import Writing
from engine.errors import Progress
from engine.exports import line as exports
from engine.questions import Merge
from engine.writing import new_folder


@dataclass(frozen=True)
class Merging(Writing):
    """The request to write the model at t, with what it was measured to say beside it."""

    asked: Merge

    @property
    def device(self) -> str:
        """It is measured, so it takes its turn there."""
        return self.asked.device

    @cached_property
    def key(self) -> str:
        """Of the question, but not its job."""
        return hashlib.sha256(f"write {self.asked.key}".encode()).hexdigest()[:32]

    @property
    def name(self) -> str:
        """Named by both models' content, t, and all that else changes it."""
        a, b = (checkpoint.fingerprint[:8] for checkpoint in self.asked.checkpoints)
        return f"merged-{a}-{b}-{self.asked.t:g}-{self.asked.key[:8]}"

    def fill(self, out: Path, progress: Progress) -> None:
        """The checkpoint and `report.json`; what was measured goes into the store too."""
        with new_folder(out) as staged:
            record = self.asked.answer(progress, staged)
            document = json.dumps(exports.of_merge(record), indent=1)
            (staged / "report.json").write_text(document, encoding="utf-8")
        results().put(self.asked.key, record)
