"""What the tests of the laws share: gauges of the tiny models, and how far they move an output."""

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from engine import axes
from engine.action import act, elements
from engine.axes import Leg, Mark
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.elements import Element, Ordered
from engine.families import FAMILIES
from engine.family import Family
from engine.groups import Monomial
from engine.symmetry import Symmetry, sample
from tests import tiny

EXACT = 1e-11
"""Relative error allowed where the library computes in float64 throughout."""
CAST = 2e-6
"""The same where it casts to float32 inside: in RMSNorm, routers, Cohere's LayerNorm, rotations."""
VISIBLE = 2e-5
"""A relative change that is none of rounding."""


def family_of(architecture: str) -> Family:
    """The table of a tiny architecture."""
    kind = tiny.ARCHITECTURES[architecture][0].model_type
    return next(family for family in FAMILIES if kind in family.model_types)


def architectures(family: Family) -> list[str]:
    """The tiny architectures of a table."""
    return [name for name in tiny.ARCHITECTURES if family_of(name) is family]


def tolerance(family: Family) -> float:
    """What rounding may leave of a law."""
    casts = family.norm == "RMSNorm" or family.name in {"Cohere", "ModernBERT"}
    return CAST if casts else EXACT


@cache
def opened(folder: Path) -> Checkpoint:
    """A checkpoint, opened once."""
    return open_checkpoint(folder)


@cache
def doubles(folder: Path) -> Mapping[str, Tensor]:
    """Every tensor on disk in float64."""
    return {name: x.double() for name, x in tiny.tensors(folder).items()}


@cache
def before(folder: Path) -> Tensor:
    """What a checkpoint's model says."""
    return tiny.predictions(folder)


def error(folder: Path, state: tiny.Tensors) -> float:
    """Relative change of what the model says with other tensors."""
    return tiny.distance(tiny.predictions(folder, state), before(folder))


@cache
def gauge(folder: Path, *only: str) -> Symmetry:
    """The first random gauge that shows in every coordinate what its group can do."""
    checkpoint = opened(folder)
    names = only or tuple(checkpoint.family.carried(checkpoint.headers))
    for seed in itertools.count():
        generator = torch.Generator().manual_seed(seed)
        g = sample(checkpoint.family, checkpoint.config, generator, names)
        if all(vivid(g, name) for name in names):
            return g
    raise AssertionError


def vivid(g: Symmetry, name: str) -> bool:
    """Whether a coordinate's elements are no involutions (which hide π⁻¹) and have signs."""
    found = [e for key, e in g.elements.items() if key.rpartition(".")[2] == name]
    group = g.family.coordinates[name].group
    if not found or not isinstance(group, Monomial):
        return True
    return any(_vivid(e, group) for e in found if isinstance(e, Ordered))


def _vivid(element: Ordered, group: Monomial) -> bool:
    order = element.permutation
    size = order.shape[-1]
    still = torch.arange(size)
    signed = not (group.signs or group.common) or bool((element.scale < 0).any())
    if not group.orders or size == 1:
        return signed
    if size == 2:
        return signed and not torch.equal(order, still.expand_as(order))
    return signed and not torch.equal(order.gather(-1, order), still.expand_as(order))


def applied(g: Symmetry, tensors: tiny.Tensors) -> dict[str, Tensor]:
    """All tensors of g · source."""
    return {name: act(g, name, tensors.__getitem__) for name in tensors}


def acts(element: Element, mark: Mark, x: Tensor) -> Tensor:
    """One element on the last axis, by the mark of its leg."""
    move = {Mark.WRITE: element.write, Mark.READ: element.read, Mark.RELABEL: element.relabel}
    return move[mark](x)


def same(element: Element, size: int, first: Mark, second: Mark) -> bool:
    """Whether two marks do the same under an element."""
    eye = torch.eye(size, dtype=torch.float64).expand(*element.batch, -1, -1)
    return torch.allclose(acts(element, first, eye), acts(element, second, eye))


def moves(g: Symmetry, name: str) -> bool:
    """Whether a gauge has more than an identity for a tensor."""
    row = g.family.row(name)
    for word, place in row.places.items():
        element = g.elements.get(g.family.key(word, row.layer))
        if isinstance(element, Ordered) and int(element.permutation[place]) != place:
            return True
    here = elements(g, row)
    return any(_moves(here[leg.name], leg, g) for leg in axes.legs(row.axes) if leg.name in here)


def _moves(element: Element, leg: Leg, g: Symmetry) -> bool:
    eye = torch.eye(g.sizes[leg.name], dtype=torch.float64).expand(*element.batch, -1, -1)
    return not torch.equal(acts(element, leg.mark, eye), eye)


def blocks(nodes: axes.Pattern) -> Iterator[tuple[Leg, ...]]:
    """The legs of each block of a pattern, blocks in reading order of their sums."""
    where = next((i for i, node in enumerate(nodes) if isinstance(node, axes.Axis)), None)
    if where is None:
        yield tuple(node for node in nodes if isinstance(node, Leg))
        return
    axis = nodes[where]
    assert isinstance(axis, axes.Axis)
    for block in axis.blocks:
        yield from blocks((*nodes[:where], *block, *nodes[where + 1 :]))
