"""What users ask: frozen questions with a key, a command line and, on request, an answer."""

from engine.questions.base import STARTING, Question, ask
from engine.questions.layers import Continue, Cut, Drop, Gap, Layers
from engine.questions.models import Check, Inspect, Lab
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
    "Check",
    "Continue",
    "CostKind",
    "Cut",
    "Drop",
    "Gap",
    "Heads",
    "Inspect",
    "Known",
    "Lab",
    "Layers",
    "Match",
    "NeuronCost",
    "Question",
    "Related",
    "Stage2",
    "Turn",
    "Using",
    "ask",
]
