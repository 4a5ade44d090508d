"""What users ask: frozen questions with a key, a command line and, on request, an answer."""

from engine.questions.base import STARTING, Question, ask
from engine.questions.experts import Experts
from engine.questions.layers import Continue, Cut, Drop, Gap, Layers
from engine.questions.line import Barrier, Forecast, Merge, Orders, Slice, Written
from engine.questions.models import Check, Inspect, Lab
from engine.questions.neurons import AllNeurons, Neurons
from engine.questions.pairs import (
    Align,
    CostKind,
    Heads,
    Known,
    Match,
    NeuronCost,
    Related,
    Stage2,
    Turn,
    Using,
)

__all__ = [
    "STARTING",
    "Align",
    "AllNeurons",
    "Barrier",
    "Check",
    "Continue",
    "CostKind",
    "Cut",
    "Drop",
    "Experts",
    "Forecast",
    "Gap",
    "Heads",
    "Inspect",
    "Known",
    "Lab",
    "Layers",
    "Match",
    "Merge",
    "NeuronCost",
    "Neurons",
    "Orders",
    "Question",
    "Related",
    "Slice",
    "Stage2",
    "Turn",
    "Using",
    "Written",
    "ask",
]
