"""Moving a model along a blind direction: the weights change, the output does not."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial

import torch
from torch import Generator, Tensor

from engine import axes
from engine.action import Read, act
from engine.axes import Leg, Sizes
from engine.blind import Blind, Move
from engine.family import Config, Coordinate, Family, Row
from engine.groups import Trivial
from engine.symmetry import sample

SHIFT = 0.3
"""Standard deviation of a random shift, in units of the first tensor that it moves."""


def possible(family: Family, config: Config, names: Iterable[str]) -> tuple[Blind, ...]:
    """The blind directions of a model with these tensors."""
    rows = [row for name in names if (row := family.find(name)) is not None]
    present = {row.name for row in rows if not family.idle(config, row)}
    possible_here = (b for b in family.blind if _has(family, config, b, present))
    return tuple(blind for blind in possible_here if not (blind.head and bare(config)))


def bare(config: Config) -> bool:
    """Whether the configuration names a model without an output layer, such as GPT2Model."""
    name = str((config.get("architectures") or [""])[0])
    return name.endswith("Model") and "Head" not in name


def _has(family: Family, config: Config, blind: Blind, present: set[str]) -> bool:
    if not all(_matches(name, present) for name in blind.needs):
        return False
    if blind.table:
        table = family_of_blind(family, blind)
        if not table.sizes(config)[blind.name]:
            return False
        marks = {
            leg.mark
            for name in present
            if (row := table.find(name)) is not None
            for leg in axes.legs(row.axes)
            if leg.name == blind.name
        }
        return len(marks) == len({leg.mark for leg in _own_legs(table, blind)}) > 0
    return shifts(family.sizes(config), blind, present)


def shifts(sizes: Sizes, blind: Blind, present: set[str]) -> bool:
    """Whether a shift has coordinates to run over, and among these tensors all that it touches."""
    if not all(sizes[leg.name] for leg in axes.legs(axes.parse(blind.shift))):
        return False
    needed = {*blind.needs, *(name for move in blind.moves for name in move.names)}
    return all(_matches(name, present) for name in needed)


def moves(family: Family, blind: Blind, tensor: str) -> bool:
    """Whether a direction changes a tensor, by its name on disk."""
    row = family.find(tensor)
    return row is not None and any(_matches(name, {row.name}) for name, _ in blind.carriers)


def _own_legs(table: Family, blind: Blind) -> Iterator[Leg]:
    for _, row in table.rows:
        yield from (leg for leg in axes.legs(row.axes) if leg.name == blind.name)


def _matches(name: str, present: set[str]) -> bool:
    return any(_stands_for(name, found) for found in present)


@lru_cache(2**14)
def _stands_for(name: str, found: str) -> bool:
    return _pattern(name).fullmatch(found) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", r"\\d+", re.escape(name)))


def family_of_blind(family: Family, blind: Blind) -> Family:
    """The table of a blind direction made of factors: its own leg acts, all others stand still."""
    if id(blind) not in family.derived:
        family.derived[id(blind)] = blind, _table_of(family, blind)
    return family.derived[id(blind)][1]


def _table_of(family: Family, blind: Blind) -> Family:
    still = {n: replace(c, group=Trivial("stands still")) for n, c in family.coordinates.items()}
    own = Coordinate(blind.title, blind.group, blind.size, blind.over, blind.why)
    return replace(
        family, coordinates={**still, blind.name: own}, tensors=blind.table, blind=(), hidden={}
    )


def slide(
    family: Family,
    config: Config,
    blind: Blind,
    read: Read,
    generator: Generator,
    names: Iterable[str] = (),
) -> Read:
    """The tensors after a random move along a blind direction, in every layer.

    `names` are the tensors on disk: needed where a file spells them in its own way.
    """
    if blind.table:
        g = sample(family_of_blind(family, blind), config, generator)
        return lambda name: act(g, name, read)
    drawn = partial(at_random, generator.initial_seed())
    return Shifted(family, family.sizes(config), blind, read, drawn, spelled(family, names))


def spelled(family: Family, names: Iterable[str]) -> dict[str, str]:
    """Names on disk by their names in the table."""
    return {row.name: name for name in names if (row := family.find(name)) is not None}


@dataclass(frozen=True)
class Shifted:
    """Tensors moved by a δ of every layer."""

    family: Family
    sizes: Sizes
    blind: Blind
    read: Read
    step: Callable[["Shifted", int | None], Tensor]  # δ of a layer, float64, with the legs `own`
    stored: Mapping[str, str] = field(default_factory=dict)  # name in the table → name on disk

    @property
    def own(self) -> tuple[Leg, ...]:
        """The legs of δ."""
        return tuple(axes.legs(axes.parse(self.blind.shift)))

    def __call__(self, name: str) -> Tensor:
        row = self.family.find(name)
        x = self.read(name)
        if row is None:
            return x
        for move in self.blind.moves:
            if _matches(move.name, {row.name}):
                x = self._moved(x, row, move)
        return x

    def first(self, layer: int | None) -> tuple[Row, Tensor]:
        """The first tensor that moves, and its row."""
        name = self.blind.moves[0].name.replace("{l}", str(layer))
        return self.family.row(name), self.read(self.stored.get(name, name))

    def _moved(self, x: Tensor, row: Row, move: Move) -> Tensor:
        delta, factors = self.step(self, row.layer), self.factors(move, row.layer)

        def change(found: tuple[Leg, ...], block: Tensor) -> Tensor:
            total = self.spread(delta, factors, found)
            if total is None:
                return block
            return (block.double() + move.sign * total).to(x.dtype)

        return axes.rewrite(x, row.axes, self.sizes, change)

    def spread(
        self, delta: Tensor, factors: Sequence[list[axes.Piece]], found: tuple[Leg, ...]
    ) -> Tensor | None:
        """Σ δ · factors for a block with these legs; None for one that does not move."""
        chosen = [_piece(pieces, found) for pieces in factors]
        inside = {leg.name for legs, _ in chosen for leg in legs}
        marks = {leg.name: leg.mark for leg in found}
        for leg in self.own:
            if marks.get(leg.name, leg.mark) != leg.mark:
                return None
            elsewhere = leg.name not in marks and leg.name not in inside
            if elsewhere and self.sizes[leg.name] > 1:  # one number fits everywhere
                return None
        return _product([(self.own, delta), *chosen], found, self.sizes)

    def factors(self, move: Move, layer: int | None) -> list[list[axes.Piece]]:
        """What δ is multiplied with, factor by factor, in the blocks of its tensor."""
        return [self._factor(factor, layer) for factor in move.times]

    def _factor(self, factor: str, layer: int | None) -> list[axes.Piece]:
        name = factor.removeprefix("1/").replace("{l}", str(layer))
        row = self.family.row(name)
        x = self.read(self.stored.get(name, name)).double() + row.offset
        if factor.startswith("1/"):
            x = x.reciprocal()
        return list(axes.pieces(x, row.axes, self.sizes))


def at_random(seed: int, shifted: Shifted, layer: int | None) -> Tensor:
    """A random δ in units of the first tensor's root mean square; the same for every tensor."""
    generator = torch.Generator().manual_seed(seed + 1000 * (layer or 0))
    shape = [shifted.sizes[leg.name] for leg in shifted.own]
    draw = torch.randn(shape, generator=generator, dtype=torch.float64)
    unit = float(shifted.first(layer)[1].double().square().mean().sqrt()) or 1.0
    return SHIFT * unit * draw


def least(shifted: Shifted, layer: int | None) -> Tensor:
    """The δ that leaves the least of the first tensor T: −⟨T, u⟩ / ⟨u, u⟩, u its factors.

    A whole tensor goes where u is 1; not finite where u is not, under a gain of 0.
    """
    row, x = shifted.first(layer)
    move = shifted.blind.moves[0]
    factors = shifted.factors(move, layer)
    ones = torch.ones([shifted.sizes[leg.name] for leg in shifted.own], dtype=torch.float64)
    along, power = torch.zeros_like(ones), torch.zeros_like(ones)
    for found, block in axes.pieces(x, row.axes, shifted.sizes):
        u = shifted.spread(ones, factors, found)
        if u is not None:
            u = u.expand_as(block)
            along = along + _product([(found, u * block.double())], shifted.own, shifted.sizes)
            power = power + _product([(found, u * u)], shifted.own, shifted.sizes)
    return -move.sign * along / power


def _piece(pieces: list[axes.Piece], target: tuple[Leg, ...]) -> axes.Piece:
    """The block of a factor that belongs to a block of the moved tensor."""
    if len(pieces) == 1:
        return pieces[0]
    return max(pieces, key=lambda piece: len(set(piece[0]) & set(target)))


def _product(parts: list[axes.Piece], target: tuple[Leg, ...], sizes: Sizes) -> Tensor:
    """Σ of the product over all legs that the target lacks, in the target's order of legs."""
    numbers = _numbered(leg.name for legs, _ in parts for leg in legs)
    operands: list[Tensor | list[int]] = []
    for legs, x in parts:
        operands += [x, [numbers[leg.name] for leg in legs]]
    kept = [leg.name for leg in target if leg.name in numbers]
    total = torch.einsum(*operands, [numbers[name] for name in kept])
    shape = [sizes[leg.name] if leg.name in numbers else 1 for leg in target]
    return total.reshape(shape)


def _numbered(names: Iterable[str]) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
