"""The control of the page of published results: which part of the models differs."""

from app import session
from app.controls.layers import choice
from engine.records import SCOPES

OWN = ("first-layer", *(scope for scope in SCOPES if scope != "first-layer"))
"""The scope of the published ablation first."""


def scope() -> str:
    """Which part of the models was drawn anew and is interpolated."""
    about = "Which tensors the models of a pair do not share: those alone are interpolated."
    return choice(session.SCOPE, "Scope", OWN, about)
