"""What a table is made of: coordinates, and rows for the tensors that carry them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.axes import Pattern
from engine.groups import Group


@dataclass(frozen=True)
class Coordinate:
    """One internal index set of an architecture, and what may act on it."""

    title: str
    group: Group
    size: str  # expression of the configuration, see `engine.sizes`
    over: tuple[str, ...] = ()  # the coordinates that contain it: one element for each of theirs
    why: str = ""
    criterion: tuple[bool, bool, bool] = (True, True, True)
    """What is done in between treats all indices alike; one write and one read cancel; the index
    means nothing outside the model."""


@dataclass(frozen=True)
class ByLayer:
    """Attributes of a configuration that speak of single layers, and go along with them."""

    listed: tuple[str, ...] = ()  # lists with an entry for each layer
    counted: tuple[str, ...] = ()  # how many of the first layers are of one kind
    periodic: tuple[str, ...] = ()  # every how many layers there is one of another kind
    indexed: tuple[str, ...] = ()  # switches by which a layer's number enters the computation
    first: str = ""  # what the first layer lacks, where no other can stand in its place


@dataclass(frozen=True)
class Row:
    """One tensor of a checkpoint: its axes, and where its name places it."""

    axes: Pattern
    offset: float  # the group acts on stored + offset
    layer: int | None = None
    places: Mapping[str, int] = field(default_factory=dict)  # index of coordinates in the name
    name: str = ""  # as the table says it, with numbers
    condition: str | None = None  # see `named`


def named(key: str) -> tuple[str, str | None]:
    """A table's key as name and condition.

    `{l}` in the name stands for a layer, `{exp}` for an index of the coordinate `exp`.
    `name?attribute` may be absent unless the configuration sets the attribute, `name?!attribute`
    unless it does not, and `name?` always.
    """
    name, mark, condition = key.partition("?")
    return name, condition if mark else None


def compiled(name: str) -> re.Pattern[str]:
    """The names that a table's name stands for, each placeholder a group of digits."""
    escaped = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(name))
    return re.compile(escaped)
