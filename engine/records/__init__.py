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
from engine.records.heads import (
    STEPS,
    Cost,
    HeadCost,
    HeadsReport,
    OrderRank,
    TurnReport,
    Turns,
)
from engine.records.lab import (
    Effect,
    Experiment,
    TensorChange,
)
from engine.records.matches import (
    AlignmentReport,
    Assignment,
    LayerStage,
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
    "STEPS",
    "TOLERANCE",
    "AlignmentReport",
    "Assignment",
    "BlindCard",
    "Carrier",
    "CoordinateCard",
    "Cost",
    "DirectionTest",
    "Effect",
    "Experiment",
    "HeadCost",
    "HeadsReport",
    "LayerStage",
    "ModelCard",
    "OrderRank",
    "Record",
    "ResidualMatch",
    "Role",
    "SelfTest",
    "StageReport",
    "TensorChange",
    "Truth",
    "TurnReport",
    "Turns",
    "Word",
    "plain",
    "word",
]

Record = (
    SelfTest | ModelCard | ResidualMatch | AlignmentReport | Experiment | HeadsReport | TurnReport
)

REGISTRY: Mapping[str, type] = MappingProxyType({
    cls.__name__: cls
    for cls in (
        SelfTest, ModelCard, ResidualMatch, AlignmentReport, Experiment, HeadsReport, TurnReport,
    )
})  # fmt: skip
"""The records that the store keeps, by name."""
