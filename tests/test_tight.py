"""Nothing larger is a symmetry: an enlarged group, a changed mark, a forgotten tensor must show."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import axes
from engine.action import act
from engine.axes import Axis, Leg, Mark, Pattern
from engine.checkpoint import open_checkpoint
from engine.elements import Element, Mixed, Ordered, Turned
from engine.families import FAMILIES
from engine.families.llama import FAMILY
from engine.family import Family
from engine.groups import LINEAR, PERMUTATION, SIGNED
from engine.symmetry import Symmetry, sample
from tests import tiny

VISIBLE = 1e-3
Built = Callable[[str], Path]
SHOWN_ON = {"Llama": "llama_biases", "Qwen2": "qwen2"}
"""A tiny model that has every tensor of the family."""

MUTANTS = [
    pytest.param(family, row, place, mark, id=f"{family.name}-{row}-{leg}-as-{mark.value}")
    for family in FAMILIES
    for row, text in family.tensors.items()
    for place, leg in enumerate(axes.legs(axes.parse(text)))
    if leg.name in family.free
    for mark in Mark
    if mark is not leg.mark
]
SKIPPED = [
    pytest.param(family, row, name, id=f"{family.name}-{row}-without-{name}")
    for family in FAMILIES
    for row, text in family.tensors.items()
    for name in dict.fromkeys(leg.name for leg in axes.legs(axes.parse(text)))
    if name in family.free
]


@cache
def gauge(folder: Path, *only: str) -> Symmetry:
    checkpoint = open_checkpoint(folder)
    generator = torch.Generator().manual_seed(4)
    return sample(checkpoint.family, checkpoint.config, generator, only)


@cache
def doubles(folder: Path) -> dict[str, Tensor]:
    return {name: x.double() for name, x in tiny.tensors(folder).items()}


def effect(folder: Path, g: Symmetry, skip: str = "") -> float:
    """Relative change of the logits; tensors of the row `skip` stay behind."""
    after = {
        name: x if skip and matches(g.family, skip, name) else act(g, name, x)
        for name, x in doubles(folder).items()
    }
    return tiny.distance(tiny.logits(folder, after), tiny.logits(folder))


def matches(family: Family, row: str, name: str) -> bool:
    compiled = dict(zip(family.tensors, family.rows, strict=True))
    return compiled[row][0].fullmatch(name) is not None


def remarked(nodes: Pattern, place: int, mark: Mark) -> Pattern:
    """The pattern with another mark on one leg, counted in reading order."""
    count = itertools.count()

    def change(node: Leg | Axis) -> Leg | Axis:
        if isinstance(node, Leg):
            return replace(node, mark=mark) if next(count) == place else node
        return Axis(tuple(tuple(map(change, block)) for block in node.blocks))

    return tuple(map(change, nodes))


def mutant(family: Family, row: str, place: int, mark: Mark) -> Family:
    text = " ".join(map(str, remarked(axes.parse(family.tensors[row]), place, mark)))
    return replace(family, tensors={**family.tensors, row: text})


def hidden(family: Family, leg: Leg, mark: Mark) -> bool:
    """Marks that the group cannot tell apart: all under S_n, g = g⁻ᵀ under signed permutations."""
    group = family.coordinates[leg.name].group
    return group == PERMUTATION or (group == SIGNED and Mark.RELABEL not in {leg.mark, mark})


@pytest.mark.parametrize(("family", "row", "place", "mark"), MUTANTS)
def test_another_mark_shows(family: Family, row: str, place: int, mark: Mark, built: Built) -> None:
    folder = built(SHOWN_ON[family.name])
    leg = list(axes.legs(axes.parse(family.tensors[row])))[place]
    g = replace(gauge(folder, leg.name), family=mutant(family, row, place, mark))
    if mark is Mark.RELABEL and leg.name in {"rot", "val"}:
        with pytest.raises(TypeError, match="has no order to relabel"):
            effect(folder, g)
    else:
        assert (effect(folder, g) < VISIBLE) == hidden(family, leg, mark)


def test_few_mutants_are_hidden() -> None:
    """What the marks of a table cannot show is known: orders, and signs between x and x*."""
    unseen = {
        (leg.name, str(leg), mark.value)
        for case in MUTANTS
        for family, row, place, mark in [case.values]
        for leg in [list(axes.legs(axes.parse(family.tensors[row])))[place]]
        if hidden(family, leg, mark)
    }
    assert unseen == {
        ("res", "res", "x*"),
        ("res", "res*", "x"),
        ("grp", "grp", "x*"),
        ("grp", "grp", "|x|"),
        ("head", "head", "x*"),
        ("head", "head", "|x|"),
    }


@pytest.mark.parametrize(("family", "row", "name"), SKIPPED)
def test_a_tensor_left_behind_shows(family: Family, row: str, name: str, built: Built) -> None:
    folder = built(SHOWN_ON[family.name])
    assert effect(folder, gauge(folder, name)) < VISIBLE / 100
    assert effect(folder, gauge(folder, name), skip=row) > VISIBLE


def ordered(size: int, permutation: dict[int, int] | None = None, **scale: float) -> Ordered:
    """The identity but for some positions: old places, and factors named like `at3=2`."""
    order, factor = torch.arange(size), torch.ones(size, dtype=torch.float64)
    for new, old in (permutation or {}).items():
        order[new] = old
    for place, value in scale.items():
        factor[int(place.removeprefix("at"))] = value
    return Ordered(order, factor)


@dataclass(frozen=True)
class Bent(Mixed):
    """A matrix that leaves gains alone, for coordinates whose true group has an order."""

    def relabel(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Unlike:
    """Written by one element and read by another."""

    writer: Element
    reader: Element

    @property
    def batch(self) -> tuple[int, ...]:
        return self.writer.batch

    @property
    def exact(self) -> bool:
        return False

    def write(self, x: Tensor) -> Tensor:
        return self.writer.write(x)

    def read(self, x: Tensor) -> Tensor:
        return self.reader.read(x)

    def relabel(self, x: Tensor) -> Tensor:
        return self.writer.relabel(x)

    def inverse(self) -> "Unlike":
        return Unlike(self.writer.inverse(), self.reader.inverse())

    def compose(self, other: "Unlike") -> "Unlike":
        return Unlike(self.writer.compose(other.writer), self.reader.compose(other.reader))

    def take(self, order: Tensor) -> "Unlike":
        return Unlike(self.writer.take(order), self.reader.take(order))

    def numbers(self) -> dict[str, Tensor]:
        return self.writer.numbers()


def rotation(size: int, first: int, second: int, angle: float = 0.7) -> Tensor:
    """A rotation of two coordinates."""
    turn = torch.tensor(angle).double()
    matrix = torch.eye(size, dtype=torch.float64)
    matrix[first, first] = matrix[second, second] = turn.cos()
    matrix[first, second], matrix[second, first] = -turn.sin(), turn.sin()
    return matrix


def everywhere(element: Ordered, batch: int) -> Ordered:
    return Ordered(element.permutation.expand(batch, -1), element.scale.expand(batch, -1))


RES, FFN, GRP, ROT = 24, 20, 3, 4
Z = torch.polar(torch.tensor([1.5, 0.7]).double(), torch.tensor([0.9, -1.3]).double()).expand(
    GRP, 2
)
PHASE = Z / Z.abs()


def enlarged() -> Iterator[tuple[str, str, Element]]:
    """(what is tried, its key in layer 0, the element)."""
    yield "a scale of one residual coordinate", "res", ordered(RES, at3=1.5)
    yield "a rotation of two residual coordinates", "res", Bent(rotation(RES, 2, 5))
    yield (
        "a rotation inside a head across frequencies",
        "layers.0.rot",
        Mixed(rotation(ROT, 0, 1).expand(GRP, ROT, ROT)),
    )
    yield (
        "any matrix inside a rotary head",
        "layers.0.rot",
        LINEAR.sample(ROT, (GRP,), torch.Generator().manual_seed(0)),
    )
    yield (
        "an exchange of the two highest frequencies",
        "layers.0.rot",
        everywhere(ordered(ROT, {0: 1, 1: 0, 2: 3, 3: 2}), GRP),
    )
    yield "an exchange inside a pair", "layers.0.rot", everywhere(ordered(ROT, {0: 2, 2: 0}), GRP)
    yield "a sign of half a pair", "layers.0.rot", everywhere(ordered(ROT, at0=-1), GRP)
    yield "a phase of q alone", "layers.0.rot", Unlike(Turned(PHASE), Turned(PHASE / PHASE))
    yield "k times z", "layers.0.rot", Unlike(Turned(Z), Turned(1 / Z.conj()))
    yield "k over z without the bar", "layers.0.rot", Unlike(Turned(Z), Turned(Z.conj()))
    matrix = LINEAR.sample(ROT, (GRP,), torch.Generator().manual_seed(0))
    yield "values mixed without the inverse", "layers.0.val", Unlike(matrix, matrix.inverse())
    yield "values mixed on one side", "layers.0.val", Unlike(matrix, LINEAR.identity(ROT, (GRP,)))
    yield "two neurons mixed", "layers.0.ffn", Bent(rotation(FFN, 0, 1))


@pytest.mark.parametrize(("key", "element"), [
    pytest.param(key, element, id=title) for title, key, element in enlarged()
])  # fmt: skip
@pytest.mark.parametrize("architecture", ["llama_gqa", "qwen2"])
def test_an_enlarged_group_shows(
    key: str, element: Element, architecture: str, built: Built
) -> None:
    folder = built(architecture)
    assert effect(folder, replace(gauge(folder), elements={key: element})) > VISIBLE


@pytest.mark.parametrize("element", [Turned(Z), Turned(PHASE)])
def test_the_rotary_group_itself_does_not_show(element: Turned, built: Built) -> None:
    """The control: the same numbers, k over z̄."""
    folder = built("llama_gqa")
    assert effect(folder, replace(gauge(folder), elements={"layers.0.rot": element})) < 2e-6


def test_a_neuron_sign_through_the_gate_shows(built: Built) -> None:
    folder = built("llama_gqa")
    gated = {
        row: text.replace("|ffn|", "ffn") if "gate_proj" in row else text
        for row, text in FAMILY.tensors.items()
    }
    g = replace(gauge(folder), elements={"layers.0.ffn": ordered(FFN, at0=-1)})
    assert effect(folder, g) < 2e-6
    assert effect(folder, replace(g, family=replace(FAMILY, tensors=gated))) > VISIBLE


def test_query_heads_across_groups_show(built: Built) -> None:
    """Heads 1 and 2 exchanged with their outputs: each then asks the keys of the other's group."""
    folder = built("llama_gqa")

    def exchange(order: list[int]) -> float:
        after = dict(doubles(folder))
        q, o = (f"model.layers.0.self_attn.{word}_proj.weight" for word in "qo")
        after[q] = after[q].unflatten(0, (6, ROT))[order].flatten(0, 1)
        after[o] = after[o].unflatten(1, (6, ROT))[:, order].flatten(1, 2)
        return tiny.distance(tiny.logits(folder, after), tiny.logits(folder))

    assert exchange([1, 0, 2, 3, 4, 5]) < 2e-6
    assert exchange([0, 2, 1, 3, 4, 5]) > VISIBLE


def test_token_ids_and_layers_have_no_symmetry(built: Built) -> None:
    folder = built("llama_gqa")
    before = doubles(folder)
    order = torch.randperm(96, generator=torch.Generator().manual_seed(0))
    renamed = {n: x[order] if x.shape[0] == 96 else x for n, x in before.items()}
    swap = {"layers.0.": "layers.1.", "layers.1.": "layers.0."}
    swapped = {
        n: before[n.replace(old, new)] if (old := n[6:15]) in swap and (new := swap[old]) else x
        for n, x in before.items()
    }
    for after in (renamed, swapped):
        assert tiny.distance(tiny.logits(folder, after), tiny.logits(folder)) > VISIBLE
