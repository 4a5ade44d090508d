"""What was found, counted against the gauge that was planted."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from engine import assignment
from engine.alignment.stages import UNIT
from engine.elements import Element, Mixed, Ordered, Turned
from engine.questions import Align
from engine.symmetry import Symmetry

NEAR = 1e-3
"""Relative error up to which a continuous element counts as equal to the truth."""


def unreachable(correlation: np.ndarray, truth: Symmetry | None) -> float:
    """Share of coordinates that no matching without signs can get right: those whose sign is −.

    By the truth where it is known, otherwise by the sign-marginalised matching.
    """
    residual = truth.elements.get("res") if truth else None
    if isinstance(residual, Ordered):
        return float((residual.scale < 0).double().mean())
    return float((assignment.match(correlation, absolute=True).sign < 0).mean())


def of(g: Symmetry, name: str) -> dict[str, Element]:
    """The elements of one coordinate, by key."""
    return {key: e for key, e in g.elements.items() if key.rpartition(".")[2] == name}


def sought(g: Symmetry, name: str, asked: Align) -> dict[str, Element]:
    """The elements of one coordinate that were solved for, by key: the identity among them.

    Sweeps do not keep an identity that they end with.
    """
    if asked.stage2 == "none" and name in UNIT:
        return {}
    keys = [key for key, word, _ in g.family.keys(g.config) if word == name]
    return {key: g.elements.get(key) or _identity(g, name) for key in keys}


def negative(element: Element | None) -> int | None:
    """How many factors are below 0; None for elements without factors."""
    return int((element.scale < 0).sum()) if isinstance(element, Ordered) else None


def share_right(
    g: Symmetry, truth: Symmetry | None, name: str, elements: Mapping[str, Element]
) -> float | None:
    """Share of one coordinate's numbers that equal the truth's; None where no truth is known.

    Indices must be equal; factors and matrix entries within 1e-3 of the element's largest.
    """
    if truth is None or not elements:
        return None
    right = [
        _equal(found, truth.elements.get(key) or _identity(g, name))
        for key, found in elements.items()
    ]
    return float(torch.cat(right).double().mean())


def _identity(g: Symmetry, name: str) -> Element:
    sizes = g.family.sizes(g.config)
    return g.family.coordinates[name].group.identity(sizes[name], g.family.batch(name, sizes))


def _equal(found: Element, truth: Element) -> Tensor:
    match found, truth:
        case Ordered(), Ordered():
            near = (found.scale / truth.scale - 1).abs() <= NEAR
            return ((found.permutation == truth.permutation) & near).flatten()
        case Turned(), Turned():
            return ((found.z / truth.z - 1).abs() <= NEAR).flatten()
        case Mixed(), Mixed():
            largest = truth.matrix.abs().amax((-2, -1), keepdim=True)
            return ((found.matrix - truth.matrix).abs() <= NEAR * largest).flatten()
    raise TypeError(f"elements of two kinds: {type(found).__name__}, {type(truth).__name__}")
