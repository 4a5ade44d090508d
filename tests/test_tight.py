"""Nothing larger is a symmetry: an enlarged group, a changed mark, a forgotten tensor must show."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import axes
from engine.action import act
from engine.axes import Axis, Leg, Mark, Pattern
from engine.elements import Element, Mixed, Ordered, Pairs, Turned
from engine.families import FAMILIES
from engine.families.llama import FAMILY
from engine.family import Family, named
from engine.groups import LINEAR, Group, Linear, Monomial, Rotary
from engine.symmetry import Symmetry
from tests import laws
from tests.laws import VISIBLE, doubles, gauge, opened

Built = Callable[[str], Path]
Shape = tuple[int, ...]


def carriers(family: Family, name: str) -> int:
    """How many rows carry a coordinate; a single one cannot be left behind by others."""
    return sum(name in {leg.name for leg in axes.legs(row.axes)} for _, row in family.rows)


MUTANTS = [
    pytest.param(family, row, place, mark, id=f"{family.name}-{row}-{leg}-as-{mark.value}")
    for family in FAMILIES
    for row, (_, entry) in zip(family.tensors, family.rows, strict=True)
    for place, leg in enumerate(axes.legs(entry.axes))
    if leg.name in family.free
    for mark in Mark
    if mark is not leg.mark
]
SKIPPED = [
    pytest.param(family, row, name, id=f"{family.name}-{row}-without-{name}")
    for family in FAMILIES
    for row, (compiled, entry) in zip(family.tensors, family.rows, strict=True)
    for name in dict.fromkeys([*(leg.name for leg in axes.legs(entry.axes)), *compiled.groupindex])
    if name in family.free and carriers(family, name) > 1
]
COORDINATES = [
    pytest.param(family, name, id=f"{family.name}-{name}")
    for family in FAMILIES
    for name in family.free
]


def effect(folder: Path, g: Symmetry) -> float:
    """Relative change of what the model says under a gauge."""
    return changed(folder, acted(folder, g, carrying(folder, coordinates(g))))


def changed(folder: Path, moved: Mapping[str, Tensor]) -> float:
    """Relative change of what the model says with some tensors moved."""
    return laws.error(folder, {**doubles(folder), **moved})


def acted(folder: Path, g: Symmetry, names: Iterable[str]) -> dict[str, Tensor]:
    """Tensors of a model under a gauge."""
    before = doubles(folder)
    return {name: act(g, name, before.__getitem__) for name in names}


@lru_cache(maxsize=64)
def true(folder: Path, name: str) -> Mapping[str, Tensor]:
    """All that carries a coordinate, under its gauge: what a changed row leaves as it was."""
    g = gauge(folder, name)
    return acted(folder, g, carrying(folder, coordinates(g)))


@cache
def still(folder: Path, name: str) -> float:
    """The effect of a coordinate's gauge with no tensor left behind."""
    return changed(folder, true(folder, name))


def coordinates(g: Symmetry) -> frozenset[str]:
    return frozenset(key.rpartition(".")[2] for key in g.elements)


@cache
def carrying(folder: Path, names: frozenset[str]) -> tuple[str, ...]:
    """The tensors on whose axes, or in whose names, some of these coordinates are."""
    family = opened(folder).family
    rows = {name: family.row(name) for name in doubles(folder)}
    return tuple(
        name
        for name, row in rows.items()
        if names & {*(leg.name for leg in axes.legs(row.axes)), *row.places}
    )


def matches(family: Family, row: str, name: str) -> bool:
    compiled = dict(zip(family.tensors, family.rows, strict=True))
    return compiled[row][0].fullmatch(family.row(name).name) is not None


def shown_on(family: Family, row: str, name: str, built: Built, among: int = 1) -> Path:
    """The first tiny model that has the tensor, among so many rows or more that carry the
    coordinate, and more than one index of it."""
    for architecture in laws.architectures(family):
        checkpoint = opened(built(architecture))
        size = family.sizes(checkpoint.config)[name]
        here = [
            other for other, (_, entry) in zip(family.tensors, family.rows, strict=True)
            if name in {leg.name for leg in axes.legs(entry.axes)}
            and any(matches(family, other, tensor) for tensor in checkpoint.headers)
        ]  # fmt: skip
        has = any(matches(family, row, tensor) for tensor in checkpoint.headers)
        if size > 1 and has and len(here) >= among:
            return built(architecture)
    raise AssertionError(f"no tiny {family.name} shows {name} in {row}")


def remarked(nodes: Pattern, place: int, mark: Mark) -> Pattern:
    """The pattern with another mark on one leg, counted in reading order."""
    count = itertools.count()

    def change(node: Leg | Axis) -> Leg | Axis:
        if isinstance(node, Leg):
            return replace(node, mark=mark) if next(count) == place else node
        return Axis(tuple(tuple(map(change, block)) for block in node.blocks))

    return tuple(map(change, nodes))


def pattern(family: Family, row: str) -> Pattern:
    return dict(zip(family.tensors, family.rows, strict=True))[row][1].axes


def mutant(family: Family, row: str, place: int, mark: Mark) -> Family:
    _, dash, offset = family.tensors[row].partition(" - ")
    text = " ".join(map(str, remarked(pattern(family, row), place, mark)))
    return replace(family, tensors={**family.tensors, row: f"{text}{dash}{offset}"})


def alike(group: Group, first: Mark, second: Mark) -> bool:
    """Marks that a group cannot tell apart: all under S_n; written and read where g = g⁻ᵀ."""
    if not isinstance(group, Monomial):
        return first is second
    if group.scales:
        return first is second
    return not (group.signs or group.common) or Mark.RELABEL not in {first, second}


def unseen(family: Family, row: str, legs: Sequence[Leg]) -> bool:
    """Whether a block may be shifted by anything: its legs are those of a shift with one move."""
    return any(
        set(axes.legs(axes.parse(blind.shift))) == set(legs) and blind.moves[0].name == row
        for blind in family.blind
        if len(blind.moves) == 1 and not blind.moves[0].times
    )


def block_of(nodes: Pattern, place: int) -> tuple[Leg, ...]:
    """The block of a leg, counted in reading order; of legs outside sums the first."""
    tagged = remarked(nodes, place, Mark.WRITE)
    leg = list(axes.legs(nodes))[place]
    for seen, block in zip(laws.blocks(_numbered(tagged)), laws.blocks(nodes), strict=True):
        if any(int(other.name) == place for other in seen):
            return block
    raise AssertionError(leg)


def _numbered(nodes: Pattern) -> Pattern:
    """The pattern with the number of each leg in reading order for its name."""
    count = itertools.count()

    def change(node: Leg | Axis) -> Leg | Axis:
        if isinstance(node, Leg):
            return replace(node, name=str(next(count)))
        return Axis(tuple(tuple(map(change, block)) for block in node.blocks))

    return tuple(map(change, nodes))


@pytest.mark.parametrize(("family", "row", "place", "mark"), MUTANTS)
def test_another_mark_shows(family: Family, row: str, place: int, mark: Mark, built: Built) -> None:
    leg = list(axes.legs(pattern(family, row)))[place]
    group = family.coordinates[leg.name].group
    folder = shown_on(family, row, leg.name, built)
    g = replace(gauge(folder, leg.name), family=mutant(family, row, place, mark))
    others = true(folder, leg.name)
    here = [name for name in others if matches(family, row, name)]
    assert here
    if mark is Mark.RELABEL and isinstance(group, Rotary | Linear):
        with pytest.raises(TypeError, match="has no order to relabel"):
            acted(folder, g, here)
        return
    hidden = alike(group, leg.mark, mark) or unseen(
        family, named(row)[0], block_of(pattern(family, row), place)
    )
    assert (changed(folder, {**others, **acted(folder, g, here)}) < VISIBLE) == hidden


@pytest.mark.parametrize("row", [r for r, text in FAMILY.tensors.items() if "ffn" in text])
def test_a_changed_row_changes_no_other(row: str, built: Built) -> None:
    """Why only its own tensors are moved anew."""
    folder = built("llama_gqa")
    legs = list(axes.legs(pattern(FAMILY, row)))
    place = next(n for n, leg in enumerate(legs) if leg.name == "ffn")
    mark = next(mark for mark in Mark if mark is not legs[place].mark)
    g = replace(gauge(folder, "ffn"), family=mutant(FAMILY, row, place, mark))
    others = true(folder, "ffn")
    found = acted(folder, g, others)
    differing = {name for name, x in found.items() if not torch.equal(x, others[name])}
    assert differing == {name for name in others if matches(FAMILY, row, name)}


def test_marks_are_alike_where_elements_are(generator: torch.Generator) -> None:
    """What no output can show is known from the groups, and is what their elements do."""
    groups = {c.group for family in FAMILIES for n, c in family.coordinates.items()
              if n in family.free}  # fmt: skip
    for group in groups:
        elements = [group.sample(4, (), generator) for _ in range(20)]
        for first, second in itertools.combinations(Mark, 2):
            if Mark.RELABEL in {first, second} and isinstance(group, Rotary | Linear):
                continue
            same = all(laws.same(element, 4, first, second) for element in elements)
            assert same == alike(group, first, second), (group, first, second)


@pytest.mark.parametrize(("family", "row", "name"), SKIPPED)
def test_a_tensor_left_behind_shows(family: Family, row: str, name: str, built: Built) -> None:
    folder = shown_on(family, row, name, built, among=2)
    moved = true(folder, name)
    assert still(folder, name) < laws.tolerance(family)
    blocks = [block for block in laws.blocks(pattern(family, row))
              if name in {leg.name for leg in block}]  # fmt: skip
    hidden = bool(blocks) and all(unseen(family, named(row)[0], block) for block in blocks)
    left = {tensor: x for tensor, x in moved.items() if not matches(family, row, tensor)}
    assert (changed(folder, left) < VISIBLE) == hidden


def ordered(
    size: int, batch: Shape = (), permutation: dict[int, int] | None = None, **scale: float
) -> Ordered:
    """The identity but for some positions: old places, and factors named like `at3=2`."""
    order, factor = torch.arange(size), torch.ones(size, dtype=torch.float64)
    for new, old in (permutation or {}).items():
        order[new] = old
    for place, value in scale.items():
        factor[int(place.removeprefix("at"))] = value
    return Ordered(order.repeat(*batch, 1), factor.repeat(*batch, 1)) if batch else Ordered(
        order, factor
    )  # fmt: skip


@dataclass(frozen=True)
class Bent(Mixed):
    """A matrix that leaves gains alone, for coordinates whose true group has an order."""

    def relabel(self, x: Tensor) -> Tensor:
        return x

    def take(self, order: Tensor) -> "Bent":
        return Bent(self.matrix[order])


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


def rotation(size: int, batch: Shape, first: int, second: int, angle: float = 0.7) -> Tensor:
    """A rotation of two coordinates."""
    turn = torch.tensor(angle).double()
    matrix = torch.eye(size, dtype=torch.float64)
    matrix[first, first] = matrix[second, second] = turn.cos()
    matrix[first, second], matrix[second, first] = -turn.sin(), turn.sin()
    return matrix.expand(*batch, size, size)


Tried = Iterator[tuple[str, Element]]


def beyond(group: Group, size: int, batch: Shape, read: bool) -> Tried:
    """Elements just outside a group; `read` where some tensor reads the coordinate."""
    if isinstance(group, Monomial):
        return beyond_monomial(group, size, batch, read)
    if isinstance(group, Rotary):
        return beyond_rotary(group.pairs, size, batch)
    return beyond_linear(size, batch)


def beyond_monomial(group: Monomial, size: int, batch: Shape, read: bool) -> Tried:
    if not group.scales:
        yield "a scale of one coordinate", ordered(size, batch, at1=1.5)
    if not group.signs and (read or group.common):
        yield "a sign of one coordinate", ordered(size, batch, at1=-1)
    if not group.orders:
        yield "an exchange", ordered(size, batch, {0: 1, 1: 0})
    yield "two coordinates mixed", Bent(rotation(size, batch, 0, 1))


def numbers(size: int) -> Tensor:
    """One complex number for each rotary frequency, of different modulus and angle."""
    modulus, angle = (torch.linspace(*ends, size).double() for ends in ((1.5, 0.7), (0.9, -1.3)))
    return torch.polar(modulus, angle)


def beyond_rotary(pairs: Pairs, size: int, batch: Shape) -> Tried:
    half = size // 2
    first, second = ((0, half), (1, half + 1)) if pairs == "halves" else ((0, 1), (2, 3))
    z = numbers(half).expand(*batch, half)
    phase = z / z.abs()

    def turned(z: Tensor) -> Turned:
        return Turned(z, pairs)

    across = rotation(size, batch, first[0], second[0])
    yield "a rotation across frequencies", Mixed(across)
    yield "any matrix", LINEAR.sample(size, batch, torch.Generator().manual_seed(0))
    swap = dict([*zip(first, second, strict=True), *zip(second, first, strict=True)])
    yield "an exchange of the two highest frequencies", ordered(size, batch, swap)
    yield "an exchange inside a pair", ordered(size, batch, {0: first[1], first[1]: 0})
    yield "a sign of half a pair", ordered(size, batch, at0=-1)
    yield "a phase of q alone", Unlike(turned(phase), turned(phase / phase))
    yield "k times z", Unlike(turned(z), turned(1 / z.conj()))
    yield "k over z without the bar", Unlike(turned(z), turned(z.conj()))


def beyond_linear(size: int, batch: Shape) -> Tried:
    matrix = LINEAR.sample(size, batch, torch.Generator().manual_seed(0))
    yield "mixed without the inverse", Unlike(matrix, matrix.inverse())
    yield "mixed on one side", Unlike(matrix, LINEAR.identity(size, batch))


def is_read(family: Family, name: str) -> bool:
    """Whether a tensor reads the coordinate by a leg (an order and a sign then cancel there)."""
    return any(
        leg.name == name and leg.mark is Mark.READ
        for _, row in family.rows
        for leg in axes.legs(row.axes)
    )


@pytest.mark.parametrize(("family", "name"), COORDINATES)
def test_an_enlarged_group_shows(family: Family, name: str, built: Built) -> None:
    row = next(
        key
        for key, (_, entry) in zip(family.tensors, family.rows, strict=True)
        if name in {leg.name for leg in axes.legs(entry.axes)}
    )
    folder = shown_on(family, row, name, built)
    sizes = family.sizes(opened(folder).config)
    tried = beyond(
        family.coordinates[name].group, sizes[name], family.batch(name, sizes),
        is_read(family, name),
    )  # fmt: skip
    effects = {
        title: effect(folder, replace(gauge(folder), elements={family.key(name, 0): element}))
        for title, element in tried
    }
    assert effects
    assert {title: error for title, error in effects.items() if error < VISIBLE} == {}


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_the_rotary_group_itself_does_not_show(pairs: Pairs, built: Built) -> None:
    """The control: numbers of any modulus and angle, k over z̄."""
    folder = built("llama_gqa" if pairs == "halves" else "cohere")
    size = gauge(folder).sizes["rot"] // 2
    z = numbers(size)
    element = Turned(z.expand(3, -1), pairs)
    assert effect(folder, replace(gauge(folder), elements={"layers.0.rot": element})) < laws.CAST


def test_a_neuron_sign_through_the_gate_shows(built: Built) -> None:
    folder = built("llama_gqa")
    gated = {
        row: text.replace("|ffn|", "ffn") if "gate_proj" in row else text
        for row, text in FAMILY.tensors.items()
    }
    g = replace(gauge(folder), elements={"layers.0.ffn": ordered(20, at0=-1)})
    assert effect(folder, g) < laws.CAST
    assert effect(folder, replace(g, family=replace(FAMILY, tensors=gated))) > VISIBLE


def test_query_heads_across_groups_show(built: Built) -> None:
    """Heads 1 and 2 exchanged with their outputs: each then asks the keys of the other's group."""
    folder = built("llama_gqa")

    def exchange(order: list[int]) -> float:
        after = dict(doubles(folder))
        q, o = (f"model.layers.0.self_attn.{word}_proj.weight" for word in "qo")
        after[q] = after[q].unflatten(0, (6, 4))[order].flatten(0, 1)
        after[o] = after[o].unflatten(1, (6, 4))[:, order].flatten(1, 2)
        return laws.error(folder, after)

    assert exchange([1, 0, 2, 3, 4, 5]) < laws.CAST
    assert exchange([0, 2, 1, 3, 4, 5]) > VISIBLE


def test_experts_without_their_router_rows_show(built: Built) -> None:
    """Two experts exchanged by name: the router then sends tokens to the wrong one."""
    folder = built("mixtral")
    before = doubles(folder)
    swap = {".experts.0.": ".experts.1.", ".experts.1.": ".experts.0."}

    def renamed(name: str) -> str:
        return next((name.replace(a, b) for a, b in swap.items() if a in name), name)

    after = {name: before[renamed(name)] for name in before}
    assert laws.error(folder, after) > VISIBLE
    gates = [name for name in before if name.endswith("gate.weight")]
    after |= {name: before[name][[1, 0, 2, 3]] for name in gates}
    assert laws.error(folder, after) < laws.CAST


def test_a_sign_of_one_coordinate_shows_under_layer_norm_only(built: Built) -> None:
    for architecture, shows in {"llama_gqa": False, "gpt2": True, "bert_masked": True}.items():
        folder = built(architecture)
        g = replace(gauge(folder), elements={"res": ordered(24, at3=-1)})
        assert (effect(folder, g) > VISIBLE) == shows


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
        assert laws.error(folder, after) > VISIBLE
