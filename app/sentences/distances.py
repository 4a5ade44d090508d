"""How far two models are apart: one distance, under one name, wherever it is told."""

from dataclasses import dataclass
from math import isclose

import numpy as np

from app.charts import shares
from app.sentences.numbers import apart
from engine.records import AlignmentReport

ALL, MEAN = "Relative distance of all weights", "Mean relative distance of the tensors"


@dataclass(frozen=True)
class Distance:
    """Before and after an alignment."""

    name: str
    before: float
    after: float

    @property
    def nearer(self) -> bool:
        """Whether the alignment brought the two nearer, by more than rounding."""
        return self.after < self.before and not isclose(self.after, self.before, rel_tol=1e-6)

    @property
    def told(self) -> str:
        """Both values under the name, in digits that tell them apart."""
        before, after = apart(self.before, self.after)
        return f"{self.name} {before} as the files stand, {after} after alignment."


def distance(report: AlignmentReport) -> Distance:
    """√(Σ ‖A − B‖² / Σ ‖A‖²) over all tensors; without their norms the mean of ‖A − B‖ / ‖A‖."""
    if (both := shares.total(report)) is not None:
        return Distance(ALL, *both)
    return Distance(MEAN, float(np.mean(report.before)), float(np.mean(report.after)))
