"""What crosses from the engine into the app: frozen records of numpy arrays and scalars."""

from collections.abc import Mapping
from types import MappingProxyType

from engine.records.cards import (
    BlindCard,
    Carrier,
    CoordinateCard,
    DirectionTest,
    ModelCard,
    Role,
    SelfTest,
)
from engine.records.lab import (
    Effect,
    Experiment,
    TensorChange,
)
from engine.records.matches import (
    AlignmentReport,
    Assignment,
    ResidualMatch,
    StageReport,
    Truth,
)
from engine.records.words import (
    TOLERANCE,
    Word,
    plain,
    word,
)

__all__ = [
    "REGISTRY",
    "TOLERANCE",
    "AlignmentReport",
    "Assignment",
    "BlindCard",
    "Carrier",
    "CoordinateCard",
    "DirectionTest",
    "Effect",
    "Experiment",
    "ModelCard",
    "Record",
    "ResidualMatch",
    "Role",
    "SelfTest",
    "StageReport",
    "TensorChange",
    "Truth",
    "Word",
    "plain",
    "word",
]

Record = SelfTest | ModelCard | ResidualMatch | AlignmentReport | Experiment

REGISTRY: Mapping[str, type] = MappingProxyType(
    {cls.__name__: cls for cls in (SelfTest, ModelCard, ResidualMatch, AlignmentReport, Experiment)}
)
"""The records that the store keeps, by name."""
