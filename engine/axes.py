"""The grammar of the tables: which coordinate each axis of a tensor carries, and how.

    pattern := axis+            axis := leg | "(" product { "+" product } ")"      product := axis+
    leg     := x  written (g)   |   x*  read (g⁻ᵀ)   |   |x|  relabelled only

A product splits an axis outer → inner, `+` stacks blocks along one axis: `"(grp head rot) res*"` is
a query projection, `"((grp head rot) + (grp rot*) + (grp val)) res*"` a fused one. An axis may have
length 0: a head that is rotated as a whole has no other channels.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeVar

from torch import Tensor, cat

Sizes = Mapping[str, int]


class Mark(Enum):
    """How a tensor axis carries its coordinate."""

    WRITE = "x"
    READ = "x*"
    RELABEL = "|x|"


@dataclass(frozen=True)
class Leg:
    """One coordinate on one axis (or one factor of an axis)."""

    name: str
    mark: Mark

    def __str__(self) -> str:
        return self.mark.value.replace("x", self.name)


@dataclass(frozen=True)
class Axis:
    """A sum (along one axis) of products (outer → inner) of legs and axes."""

    blocks: tuple[tuple["Leg | Axis", ...], ...]

    def __str__(self) -> str:
        return "(" + " + ".join(" ".join(map(str, block)) for block in self.blocks) + ")"


Pattern = tuple[Leg | Axis, ...]

_TOKEN = re.compile(r"\s*(\(|\)|\+|\|\w+\||\w+\*?)")


@cache
def parse(text: str) -> Pattern:
    """The axes of a pattern such as `"(grp head rot) res*"`; none for a single number.

    Raises ValueError that shows the pattern and the place where it stops making sense.
    """
    nodes, rest = _product(_tokens(text), text)
    if rest:
        raise ValueError(f"pattern {text!r}: unexpected {_first(rest)!r}")
    return nodes


def with_offset(text: str) -> tuple[Pattern, float]:
    """The axes of a row, and what the stored numbers lack: `"x - 1"` stands for Gemma's 1 + w."""
    axes, _, number = text.partition(" - ")
    return parse(axes), float(number or 0)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"pattern {text!r}: cannot read {text[place:].lstrip()!r}")
        tokens.append(found[1])
        place = found.end()
    return tokens


def _first(tokens: list[str]) -> str:
    return tokens[0] if tokens else "end"


def _product(tokens: list[str], text: str) -> tuple[Pattern, list[str]]:
    nodes: list[Leg | Axis] = []
    while tokens and tokens[0] not in {")", "+"}:
        if tokens[0] == "(":
            axis, tokens = _sum(tokens[1:], text)
            nodes.append(axis)
        else:
            nodes.append(_leg(tokens[0]))
            tokens = tokens[1:]
    return tuple(nodes), tokens


def _sum(tokens: list[str], text: str) -> tuple[Axis, list[str]]:
    blocks: list[Pattern] = []
    while True:
        block, tokens = _product(tokens, text)
        if not block or not tokens:
            raise ValueError(f"pattern {text!r}: empty or unclosed bracket at {_first(tokens)!r}")
        blocks.append(block)
        closing, tokens = tokens[0], tokens[1:]
        if closing == ")":
            return Axis(tuple(blocks)), tokens


def _leg(token: str) -> Leg:
    if token.startswith("|"):
        return Leg(token.strip("|"), Mark.RELABEL)
    return Leg(token.removesuffix("*"), Mark.READ if token.endswith("*") else Mark.WRITE)


def legs(nodes: Pattern) -> Iterator[Leg]:
    """Every leg of a pattern, in reading order, those in sums included."""
    for node in nodes:
        if isinstance(node, Leg):
            yield node
        else:
            for block in node.blocks:
                yield from legs(block)


def extent(node: Leg | Axis, sizes: Sizes) -> int:
    """Length of an axis: products multiply, sums add."""
    if isinstance(node, Leg):
        return sizes[node.name]
    return sum(math.prod(extent(part, sizes) for part in block) for block in node.blocks)


def shape(nodes: Pattern, sizes: Sizes) -> tuple[int, ...]:
    """The shape that a tensor with this pattern has."""
    return tuple(extent(node, sizes) for node in nodes)


T = TypeVar("T")
Piece = tuple[tuple[Leg, ...], Tensor]


def pieces(x: Tensor, nodes: Pattern, sizes: Sizes) -> Iterator[Piece]:
    """The blocks of a tensor, each with one dimension per leg (views where torch allows)."""
    where = _first_axis(nodes)
    if where is None:
        yield tuple(node for node in nodes if isinstance(node, Leg)), x
        return
    for part, block in zip(_split(x, nodes, where, sizes), _blocks(nodes, where), strict=True):
        yield from pieces(part, block, sizes)


def rewrite(
    x: Tensor, nodes: Pattern, sizes: Sizes, change: Callable[[tuple[Leg, ...], Tensor], Tensor]
) -> Tensor:
    """The tensor with `change(legs, block)` in place of each block, in its original shape."""
    where = _first_axis(nodes)
    if where is None:
        return change(tuple(node for node in nodes if isinstance(node, Leg)), x)
    changed = [
        rewrite(part, block, sizes, change).flatten(where, where + width - 1)
        for part, block, width in zip(
            _split(x, nodes, where, sizes),
            _blocks(nodes, where),
            _widths(nodes, where),
            strict=True,
        )
    ]
    return changed[0] if len(changed) == 1 else cat(changed, dim=where)


def _first_axis(nodes: Pattern) -> int | None:
    return next((i for i, node in enumerate(nodes) if isinstance(node, Axis)), None)


def _axis(nodes: Pattern, where: int) -> Axis:
    axis = nodes[where]
    assert isinstance(axis, Axis)
    return axis


def _blocks(nodes: Pattern, where: int) -> list[Pattern]:
    return [(*nodes[:where], *b, *nodes[where + 1 :]) for b in _axis(nodes, where).blocks]


def _widths(nodes: Pattern, where: int) -> list[int]:
    return [len(block) for block in _axis(nodes, where).blocks]


def _split(x: Tensor, nodes: Pattern, where: int, sizes: Sizes) -> list[Tensor]:
    lengths = [shape(block, sizes) for block in _axis(nodes, where).blocks]
    parts = x.split([math.prod(length) for length in lengths], dim=where)
    return [p.unflatten(where, length) for p, length in zip(parts, lengths, strict=True)]
