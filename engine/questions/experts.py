"""The question about the experts of one layer."""

from dataclasses import dataclass
from typing import ClassVar

from engine.errors import Progress, silent
from engine.questions.base import Question
from engine.questions.pairs import Using
from engine.records import ExpertsReport


@dataclass(frozen=True)
class Experts(Question):
    """Which expert is which in one layer, and what it costs to merge two or to remove one.

    A and B may be one model: which two of its experts coincide up to order, signs and factors?
    """

    verb: ClassVar[str] = "experts"
    a: str
    b: str
    layer: int = 0
    using: Using = "weights"
    tokens: int = 1024
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> ExpertsReport:
        """See `engine.alignment.expert_report.report`."""
        with self.running(progress) as (a, b):
            from engine.alignment import expert_report  # noqa: PLC0415

            return expert_report.report(a, b, self, progress)
