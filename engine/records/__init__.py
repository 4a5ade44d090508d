"""What crosses from the engine into the app: frozen records of numpy arrays and scalars."""

from collections.abc import Mapping
from types import MappingProxyType

from engine.records.barriers import (
    ROUNDING,
    SCOPES,
    STAGES,
    BarrierReport,
    Curve,
    Estimate,
    MergeReport,
    Writing,
)
from engine.records.cards import (
    BlindCard,
    Carrier,
    CoordinateCard,
    DirectionTest,
    ModelCard,
    Role,
    SelfTest,
)
from engine.records.experts import ExpertsReport, Toll
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
    AlignmentProgress,
    AlignmentReport,
    Assignment,
    LayerStage,
    Midpoint,
    ResidualMatch,
    StageReport,
    Sweep,
    Truth,
)
from engine.records.neurons import Compared, Excited, NeuronLayers, NeuronMatch, Spared
from engine.records.planes import HeadOrders, LossSlice
from engine.records.reproduction import (
    VARIANTS,
    Architecture,
    Connectivity,
    OrderTrial,
    PublishedConnectivity,
    PublishedCoordinates,
    ScopeRatios,
)
from engine.records.words import (
    TOLERANCE,
    Word,
    named_arrays,
    plain,
    word,
)

__all__ = [
    "REGISTRY",
    "ROUNDING",
    "SCOPES",
    "STAGES",
    "STEPS",
    "TOLERANCE",
    "VARIANTS",
    "WINDOWS",
    "AlignmentProgress",
    "AlignmentReport",
    "Architecture",
    "Assignment",
    "BarrierReport",
    "BlindCard",
    "Candidate",
    "Carrier",
    "Compared",
    "Connectivity",
    "Continuation",
    "CoordinateCard",
    "Cost",
    "Curve",
    "CutCost",
    "CutReport",
    "DirectionTest",
    "Disguise",
    "Effect",
    "Estimate",
    "Excited",
    "Experiment",
    "ExpertsReport",
    "GapStep",
    "GapTrajectory",
    "HeadCost",
    "HeadOrders",
    "HeadsReport",
    "LayerMaps",
    "LayerStage",
    "LineageTest",
    "LossSlice",
    "Measure",
    "MergeReport",
    "Midpoint",
    "ModelCard",
    "NeuronLayers",
    "NeuronMatch",
    "OrderRank",
    "OrderTrial",
    "PublishedConnectivity",
    "PublishedCoordinates",
    "PublishedMaps",
    "Readings",
    "Record",
    "Relatedness",
    "ResidualMatch",
    "Role",
    "Run",
    "ScopeRatios",
    "SelfTest",
    "Spared",
    "StageReport",
    "Sweep",
    "TensorChange",
    "Toll",
    "Truth",
    "TurnReport",
    "Turns",
    "Word",
    "Writing",
    "named_arrays",
    "plain",
    "word",
]

Record = (
    SelfTest | ModelCard | ResidualMatch | AlignmentReport | Experiment | HeadsReport | TurnReport
    | LayerMaps | CutReport | CutCost | Continuation | GapTrajectory | PublishedMaps
    | Relatedness | AlignmentProgress | BarrierReport | Estimate | Writing | MergeReport | LossSlice
    | HeadOrders | ExpertsReport | NeuronMatch | NeuronLayers
)  # fmt: skip

REGISTRY: Mapping[str, type] = MappingProxyType({
    cls.__name__: cls
    for cls in (
        SelfTest, ModelCard, ResidualMatch, AlignmentReport, Experiment, HeadsReport, TurnReport,
        LayerMaps, CutReport, CutCost, Continuation, GapTrajectory, PublishedMaps, Relatedness,
        AlignmentProgress, BarrierReport, Estimate, Writing, MergeReport, LossSlice, HeadOrders,
        ExpertsReport, NeuronMatch, NeuronLayers,
    )
})  # fmt: skip
"""The records that the store keeps, by name."""
