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
    Disguise,
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
from engine.records.layers import (
    WINDOWS,
    Candidate,
    Continuation,
    CutCost,
    CutReport,
    GapStep,
    GapTrajectory,
    LayerMaps,
    Measure,
    PublishedMaps,
    Readings,
    Run,
)
from engine.records.lineage import LineageTest, Relatedness
from engine.records.matches import (
    AlignmentReport,
    Assignment,
    LayerStage,
    Midpoint,
    ResidualMatch,
    StageReport,
    Sweep,
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
    "WINDOWS",
    "AlignmentReport",
    "Assignment",
    "BlindCard",
    "Candidate",
    "Carrier",
    "Continuation",
    "CoordinateCard",
    "Cost",
    "CutCost",
    "CutReport",
    "DirectionTest",
    "Disguise",
    "Effect",
    "Experiment",
    "GapStep",
    "GapTrajectory",
    "HeadCost",
    "HeadsReport",
    "LayerMaps",
    "LayerStage",
    "LineageTest",
    "Measure",
    "Midpoint",
    "ModelCard",
    "OrderRank",
    "PublishedMaps",
    "Readings",
    "Record",
    "Relatedness",
    "ResidualMatch",
    "Role",
    "Run",
    "SelfTest",
    "StageReport",
    "Sweep",
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
    | LayerMaps | CutReport | CutCost | Continuation | GapTrajectory | PublishedMaps
    | Relatedness
)  # fmt: skip

REGISTRY: Mapping[str, type] = MappingProxyType({
    cls.__name__: cls
    for cls in (
        SelfTest, ModelCard, ResidualMatch, AlignmentReport, Experiment, HeadsReport, TurnReport,
        LayerMaps, CutReport, CutCost, Continuation, GapTrajectory, PublishedMaps, Relatedness,
    )
})  # fmt: skip
"""The records that the store keeps, by name."""
