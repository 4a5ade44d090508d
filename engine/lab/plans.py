"""What an experiment of the lab does to a model: a preset, on one coordinate, with one element."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from engine.action import Read, act
from engine.axes import legs
from engine.blind import Blind
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.errors import Refused
from engine.family import Config, Family, named
from engine.folding import unit_gains
from engine.groups import PERMUTATION, Group, Rotary, Trivial
from engine.headers import some
from engine.lab.claims import CLAIMS, WIDER, allowing, carrying, text_of
from engine.lab.draws import GROUPS, Dial, draw, in_words, ways
from engine.lab.offers import Preset, acts_on
from engine.lab.presets import offered
from engine.lab.typed import typed
from engine.questions import Lab
from engine.records import ModelCard
from engine.slide import family_of_blind, possible, slide
from engine.symmetry import Symmetry

KEPT = 300_000_000
"""Parameters up to which an experiment keeps the model's tensors in memory."""


@dataclass(frozen=True)
class Source:
    """A model as it is before the experiment: its tensors by name, its configuration."""

    read: Read
    names: tuple[str, ...]
    config: Config


@dataclass(frozen=True)
class Plan:
    """A model after the experiment, and what was done to it."""

    preset: Preset
    coordinate: str
    layer: int | None  # None where all layers take part
    draw: str
    element: str  # in words
    g: Symmetry  # in the table by which it acted; empty for a step along a shift
    before: Source
    after: Source
    axes: dict[str, str]  # tensor → row, for a step along a shift
    positions: Ordered | None = None  # of the text

    def row(self, tensor: str) -> str:
        """How a tensor was changed."""
        return self.axes.get(tensor) or text_of(self.g.family, tensor)

    def carries(self, tensor: str) -> bool:
        """Whether the coordinate is on an axis of a tensor, or all that moves is a shift."""
        row = self.g.family.find(tensor)
        return bool(self.axes) or (
            row is not None and any(leg.name == self.coordinate for leg in legs(row.axes))
        )

    def origin(self, tensor: str) -> Tensor:
        """A tensor before the experiment; a head that had to be untied was the embedding."""
        if tensor in self.before.names:
            return self.before.read(tensor)
        return untied(self.g.family, self.before).read(tensor)


def chosen(card: ModelCard, asked: Lab) -> Preset:
    """The preset that is asked for; Refused where there is none, or not for this model."""
    here = {preset.key: preset for preset in offered(card)}
    if asked.preset not in here:
        raise Refused(
            f"The preset {asked.preset!r} does not apply to {card.name}: it has {', '.join(here)}."
        )
    return here[asked.preset]


def plan(checkpoint: Checkpoint, card: ModelCard, asked: Lab, length: int) -> Plan:
    """The experiment on a model and a text of `length` positions; Refused for what cannot be."""
    preset = chosen(card, asked)
    _check(asked, checkpoint.layers)
    word = coordinate(card, preset, asked.coordinate)
    before = _source(checkpoint)
    nothing = Symmetry(checkpoint.family, checkpoint.config, {})
    still = Plan(preset, word, None, "random", "nothing", nothing, before, before, {})
    if preset.claim == "text":
        return _reordered(still, asked, length)
    blind = next((b for b in checkpoint.family.blind if b.name == word), None)
    if preset.claim == "blind" and blind is not None and not blind.table:
        return _shifted(checkpoint, blind, asked, still)
    start = before
    if preset.claim == "folded" and asked.severity:
        start = folded(checkpoint.family, untied(checkpoint.family, before))
    return _changed(checkpoint, still, asked, start)


def _check(asked: Lab, layers: int) -> None:
    if not 0 <= asked.severity <= 1:
        raise Refused(f"The severity is {asked.severity:g}: give one from 0 to 1.")
    if not math.isfinite(asked.angle):
        raise Refused(f"The angle is {asked.angle}: give a number of degrees.")
    if not -1 <= asked.layer < layers:
        raise Refused(
            f"There is no layer {asked.layer}: the model has 0 to {layers - 1}, and -1 stands for "
            "all."
        )


def coordinate(card: ModelCard, preset: Preset, asked: str) -> str:
    """The word on which a preset acts; Refused for one that it does not know."""
    options = acts_on(card, preset)
    if asked and asked not in options:
        raise Refused(
            f"The preset {preset.key!r} does not act on {asked!r}: on this model it can act on "
            f"{some(options)}."
        )
    return asked or options[0]


def _source(checkpoint: Checkpoint) -> Source:
    """The tensors in float32 or finer; those of a model of modest size are read once."""

    def read(name: str) -> Tensor:
        x = checkpoint.read(name)
        return x.float() if x.is_floating_point() and x.dtype != torch.float64 else x

    kept = cache(read) if checkpoint.parameters <= KEPT else read
    return Source(kept, tuple(checkpoint.headers), checkpoint.config)


def _reordered(still: Plan, asked: Lab, length: int) -> Plan:
    """The positions of the text in another order; no tensor moves."""
    generator = torch.Generator().manual_seed(asked.seed)
    way = _way(still.preset, PERMUTATION, asked)
    element = _element(way, asked, (PERMUTATION, PERMUTATION), Room(length), generator)
    assert isinstance(element, Ordered)
    return replace(still, draw=way, element=in_words(element), positions=element)


def _changed(checkpoint: Checkpoint, still: Plan, asked: Lab, start: Source) -> Plan:
    """The elements of every layer that takes part, in the table that the preset claims."""
    preset = still.preset
    table, word = CLAIMS[preset.claim](checkpoint.family, still.coordinate)
    own = table.coordinates[word].group
    group = GROUPS[preset.group] if preset.group else own
    if isinstance(group, Trivial):
        raise Refused(f"The coordinate {word!r} is fixed: {group.reason}.")
    allowed = group if preset.claim in WIDER else own
    table = allowing(table, word, allowed)
    local = any("{l}" in name for name in carrying(table, word)) and word in table.per_layer
    one = local and asked.layer >= 0
    layers = [asked.layer] if one else [*range(checkpoint.layers)] if local else [None]
    sizes = table.sizes(start.config)
    first = _first(checkpoint.family, word, sizes[word])
    room = Room(sizes[word], table.batch(word, sizes), first)
    way, generator = _way(preset, group, asked), torch.Generator().manual_seed(asked.seed)
    elements = {
        table.key(word, layer): _element(way, asked, (group, allowed), room, generator)
        for layer in layers
    }
    g = Symmetry(table, start.config, elements)
    said = in_words(next(iter(elements.values())))
    layer = asked.layer if one else None
    return replace(
        still, coordinate=word, layer=layer, draw=way, element=said, g=g, after=_acted(g, start)
    )


def _way(preset: Preset, group: Group, asked: Lab) -> str:
    """How elements are drawn; Refused for a way that the preset does not know."""
    if asked.element:
        return "typed"
    here = preset.draws or ways(group)
    if asked.draw and asked.draw not in here:
        raise Refused(
            f"The preset {preset.key!r} draws its elements by {', '.join(here)}, not by "
            f"{asked.draw!r}."
        )
    return asked.draw or here[0]


@dataclass(frozen=True)
class Room:
    """What an element acts on: how many coordinates, in how many copies, which come first."""

    size: int
    copies: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


def _element(
    way: str, asked: Lab, groups: tuple[Group, Group], room: Room, generator: torch.Generator
) -> Element:
    """Drawn from the first group, or typed within the second."""
    if way == "typed":
        return typed(asked.element, groups[1], room.size, room.copies, asked.severity)
    dial = Dial(way, asked.severity, asked.angle, room.first)
    return draw(groups[0], room.size, room.copies, dial, generator)


def _first(family: Family, word: str, size: int) -> tuple[int, ...]:
    """Rotary channels by their frequencies, the highest first; others at random."""
    if word != "rot":
        return ()
    group = family.coordinates[word].group
    if isinstance(group, Rotary) and group.pairs == "halves":
        return tuple(i + part for i in range(size // 2) for part in (0, size // 2))
    return tuple(range(size))


def _shifted(checkpoint: Checkpoint, blind: Blind, asked: Lab, still: Plan) -> Plan:
    """A random step along a blind direction that is a shift, times the severity."""
    if asked.element:
        raise Refused("A step along a shift cannot be typed: leave it to chance.")
    family, before = checkpoint.family, still.before
    local = all("{l}" in move.tensor for move in blind.moves)
    layer = asked.layer if local and asked.layer >= 0 else None
    generator = torch.Generator().manual_seed(asked.seed)
    moved = slide(family, before.config, blind, before.read, generator, before.names)
    rows = dict(_moved_rows(family, blind, before.names, layer))

    def read(name: str) -> Tensor:
        x = before.read(name)
        return x + asked.severity * (moved(name) - x) if name in rows else x

    said = f"δ over {blind.shift}, times {asked.severity:g}" if asked.severity else "nothing"
    after = replace(before, read=read)
    return replace(still, layer=layer, element=said, axes=rows, after=after)


def _moved_rows(
    family: Family, blind: Blind, names: tuple[str, ...], layer: int | None
) -> Iterator[tuple[str, str]]:
    how = dict(blind.carriers)
    for name in names:
        row = family.find(name)
        if row is None or layer not in {None, row.layer}:
            continue
        place = row.name if row.layer is None else row.name.replace(f".{row.layer}.", ".{l}.", 1)
        if place in how:
            yield name, how[place]


def untied(family: Family, source: Source) -> Source:
    """The same function with a head of its own, a copy of the embedding."""
    if not family.sets(source.config, "tie_word_embeddings"):
        return source
    names = {text: named(key)[0] for key, text in family.tensors.items()}  # axes → name
    head, embedding = names["tok res*"], names["tok res"]

    def read(name: str) -> Tensor:
        return source.read(embedding if name == head else name)

    every = (*(name for name in source.names if name != head), head)
    return Source(read, every, {**source.config, "tie_word_embeddings": False})


def folded(family: Family, source: Source) -> Source:
    """The same function with every gain 1, by the blind rows of gains; Refused where one is 0."""
    for blind in possible(family, source.config, source.names):
        elements = unit_gains(family, blind, source.read, source.names)
        if not all(bool(c.scale.isfinite().all()) for c in elements.values()):
            raise Refused(f"The {blind.title} cannot be folded away: a gain is 0.")
        if elements:
            table = family_of_blind(family, blind)
            source = _acted(Symmetry(table, source.config, elements), source)
    return source


def _acted(g: Symmetry, source: Source) -> Source:
    return replace(source, read=lambda name: act(g, name, source.read))
