"""The controls of the page of published results: which part differs, how layers are matched."""

from app import session
from app.controls.barrier import SOURCES
from app.controls.layers import choice
from engine.records import SCOPES

OWN = ("first-layer", *(scope for scope in SCOPES if scope != "first-layer"))
"""The scope of the published ablation first."""


def scope() -> str:
    """Which part of the models was drawn anew and is interpolated."""
    about = "Which tensors the models of a pair do not share: those alone are interpolated."
    return choice(session.SCOPE, "Scope", OWN, about)


def using() -> str:
    """What the layers of both models were matched by."""
    about = (
        "Weights: as published. Activations: heads by what they look at and say on a text, "
        "matrices by what they make of a layer's inputs."
    )
    return choice(session.MATCHED, "Layers matched by", SOURCES, about)
