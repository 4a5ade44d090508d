"""Tables that claim too much, or forget something: what the lab's false experiments act by.

Each takes a family and the word of a coordinate, and gives another table with the word that acts in
it. Where something is left behind, its leg is called `left` and stands still.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from engine import axes
from engine.axes import Axis, Leg, Mark, Pattern
from engine.family import Coordinate, Family, named
from engine.groups import ROTARY_HALF, Group, Trivial
from engine.slide import family_of_blind

LEFT = "left"
Claim = Callable[[Family, str], tuple[Family, str]]
Change = Callable[[Leg], Leg]


def legged(text: str, change: Change) -> str:
    """A row with other legs."""
    nodes, offset = axes.with_offset(text)
    changed = " ".join(str(_changed(node, change)) for node in nodes)
    return f"{changed} - {offset:g}" if offset else changed


def _changed(node: Leg | Axis, change: Change) -> Leg | Axis:
    if isinstance(node, Leg):
        return change(node)
    return Axis(tuple(tuple(_changed(part, change) for part in block) for block in node.blocks))


def allowing(family: Family, word: str, group: Group) -> Family:
    """The table with another group on one coordinate."""
    changed = replace(family.coordinates[word], group=group)
    return replace(family, coordinates={**family.coordinates, word: changed})


def leaving(
    family: Family, word: str, behind: Callable[[str, Pattern, Leg], bool], mark: Mark | None = None
) -> Family:
    """The table with some legs of a coordinate left behind; `mark` replaces those of the rest."""
    still = replace(family.coordinates[word], group=Trivial("left behind"))

    def row(name: str, text: str) -> str:
        nodes, _ = axes.with_offset(text)

        def change(leg: Leg) -> Leg:
            if leg.name != word:
                return leg
            if behind(name, nodes, leg):
                return replace(leg, name=LEFT)
            return replace(leg, mark=mark or leg.mark)

        return legged(text, change)

    return replace(
        family,
        coordinates={**family.coordinates, LEFT: still},
        tensors={name: row(name, text) for name, text in family.tensors.items()},
    )


def same(family: Family, word: str) -> tuple[Family, str]:
    """The table as it is."""
    return family, word


def bias_left(family: Family, word: str) -> tuple[Family, str]:
    """Without the rows that have this coordinate alone: biases."""
    return leaving(family, word, lambda _, nodes, __: nodes == (Leg(word, Mark.WRITE),)), word


def gate_left(family: Family, word: str) -> tuple[Family, str]:
    """Without the legs that are relabelled: a gate, or the gains of a norm."""
    return leaving(family, word, lambda _, __, leg: leg.mark is Mark.RELABEL), word


def one_sided(family: Family, word: str) -> tuple[Family, str]:
    """Only the matrices that write."""

    def behind(_: str, nodes: Pattern, leg: Leg) -> bool:
        return leg.mark is not Mark.WRITE or len(nodes) == 1

    return leaving(family, word, behind), word


def way_out(family: Family, word: str) -> tuple[Family, str]:
    """Only the matrices that read, and these are multiplied."""
    return leaving(family, word, lambda _, __, leg: leg.mark is not Mark.READ, Mark.WRITE), word


def written(family: Family, word: str) -> tuple[Family, str]:
    """Every leg is multiplied, none divided."""
    return leaving(family, word, lambda _, __, ___: False, Mark.WRITE), word


def reader_left(family: Family, word: str) -> tuple[Family, str]:
    """Without the first matrix of a layer that reads."""
    first = next(
        name
        for (name, _), (_, row) in zip(family.tensors.items(), family.rows, strict=True)
        if "{l}" in name and Leg(word, Mark.READ) in axes.legs(row.axes)
    )
    return leaving(family, word, lambda name, _, leg: name == first and leg.mark is Mark.READ), word


def router_left(family: Family, word: str) -> tuple[Family, str]:
    """Only the places in names: the router, which has the experts on an axis, stays."""
    return leaving(family, word, lambda _, __, ___: True), word


def across(family: Family, _: str) -> tuple[Family, str]:
    """All query heads as one coordinate."""
    head, group = family.coordinates["head"], family.coordinates["grp"]
    every = replace(head, title="query head", size=f"({group.size}) * ({head.size})", over=())
    return _renamed(family, "grp head", "every", every), "every"


def pairs(family: Family, _: str) -> tuple[Family, str]:
    """The channels of a head as rotary pairs, although a norm stands before the rotation."""
    half = family.coordinates["rot"]
    turn = replace(half, title="rotary channel", group=ROTARY_HALF, size=f"2 * ({half.size})")
    return _renamed(family, "half rot", "turn", turn), "turn"


def _renamed(family: Family, old: str, new: str, coordinate: Coordinate) -> Family:
    tensors = {n: re.sub(rf"\b{old}\b", new, text) for n, text in family.tensors.items()}
    hidden = {n: re.sub(rf"\b{old}\b", new, text) for n, text in family.hidden.items()}
    coordinates = {**family.coordinates, new: coordinate}
    return replace(family, coordinates=coordinates, tensors=tensors, hidden=hidden)


def depth(family: Family, _: str) -> tuple[Family, str]:
    """Layers as a coordinate that lives in names."""
    layer = Coordinate("layer", Trivial("a composition, not a sum"), family.depth)
    tensors = {name.replace("{l}", "{depth}"): text for name, text in family.tensors.items()}
    return (
        replace(family, coordinates={**family.coordinates, "depth": layer}, tensors=tensors),
        "depth",
    )


def gain(family: Family, word: str) -> tuple[Family, str]:
    """A norm's gains against their readers: a blind direction of the family."""
    blind = next(blind for blind in family.blind if blind.name == word)
    return family_of_blind(family, blind), word


def gain_alone(family: Family, word: str) -> tuple[Family, str]:
    """The gains without their readers."""
    table, _ = gain(family, word)
    return leaving(table, word, lambda _, __, leg: leg.mark is Mark.READ), word


CLAIMS: Mapping[str, Claim] = {
    "": same,
    "allow": same,
    "text": same,
    "bias left": bias_left,
    "gate left": gate_left,
    "gains left": gate_left,
    "folded": gate_left,
    "one-sided": one_sided,
    "way out": way_out,
    "written": written,
    "reader left": reader_left,
    "router left": router_left,
    "across": across,
    "pairs": pairs,
    "depth": depth,
    "gain": gain,
    "gain alone": gain_alone,
    "blind": gain,
}
"""What a preset calls its table."""
WIDER = frozenset(
    {
        "allow",
        "across",
        "depth",
        "folded",
        "gains left",
        "written",
        "way out",
        "router left",
        "text",
    }
)
"""The claims that put the preset's group on the coordinate."""


def text_of(family: Family, tensor: str) -> str:
    """The row of a tensor as the table says it; empty where there is none."""
    row = family.find(tensor)
    if row is None:
        return ""
    axes_of = " ".join(map(str, row.axes))
    return f"{axes_of} - {row.offset:g}" if row.offset else axes_of


def carrying(family: Family, word: str) -> tuple[str, ...]:
    """The names in the table of the tensors that carry a coordinate."""
    return tuple(
        named(key)[0]
        for key, (_, row) in zip(family.tensors, family.rows, strict=True)
        if word in {leg.name for leg in axes.legs(row.axes)} or f"{{{word}}}" in key
    )
