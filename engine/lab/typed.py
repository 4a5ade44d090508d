"""Elements typed by hand: `(0 3 5) -7 2*1.5`, `0@90 3*1.2`, `0~1@30`.

    orders      (0 3 5)   coordinate 0 goes to place 3, 3 to 5, 5 to 0
                -7        the sign of 7; `-` alone: of all
                2*1.5     2 times 1.5
    rotary      0@90      frequency 0 turned by 90 degrees
                3*1.2     frequency 3 stretched; 0@90*1.2 both
    matrices    all of orders, and
                0~1@30    the plane of 0 and 1 turned by 30 degrees
                0=1       both become their mean, where that is asked for

Items act in the order in which they are written, on every copy of a coordinate. A severity below 1
keeps the first of them.
"""

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise

import torch

from engine.elements import Element, Mixed, Ordered, Shape, Turned
from engine.errors import Refused
from engine.groups import Group, Linear, Monomial, Rotary
from engine.lab.draws import CUT, MEAN, count, mean, plane

_NUMBER = r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
ITEMS: Mapping[str, str] = {
    "cycle": r"\(\s*\d+(?:[\s,]+\d+)+\s*\)",
    "plane": rf"\d+~\d+@{_NUMBER}",
    "mean": r"\d+=\d+",
    "turn": rf"\d+@{_NUMBER}(?:\*{_NUMBER})?",
    "factor": rf"\d+\*{_NUMBER}",
    "sign": r"-\d+",
    "all": r"-",
}
"""What may be written, by kind."""
_ITEM = re.compile("|".join(f"(?P<{kind}>{item})(?=[\\s(]|$)" for kind, item in ITEMS.items()))
Item = tuple[str, str]


def typed(text: str, group: Group, size: int, batch: Shape, severity: float = 1.0) -> Element:
    """The element that a text describes; Refused for one that the group does not have."""
    items = _items(text)
    items = items[: count(severity, len(items))]
    match group:
        case Monomial():
            return _ordered(items, group, size, batch)
        case Rotary():
            return _turned(items, group, size // 2, batch)
        case Linear():
            return _mixed(items, group, size, batch)
    raise Refused(f"An element of {group.notation} cannot be typed: leave it to chance.")


def _items(text: str) -> list[Item]:
    items: list[Item] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        if text[place].isspace():
            place += 1
            continue
        found = _ITEM.match(text, place)
        if found is None:
            raise Refused(
                f"The element {text!r} makes no sense at {text[place:].strip()!r}: write cycles "
                "(0 3 5), signs -7, factors 2*1.5, turns 0@90 or planes 0~1@30."
            )
        items.append((str(found.lastgroup), found[0]))
        place = found.end()
    return items


def _places(item: Item, size: int) -> list[int]:
    """The indices that an item names; Refused for one that is not there, or named twice."""
    kind, text = item
    before = re.split(r"[@*]", text)[0] if kind != "cycle" else text
    places = [int(word) for word in re.findall(r"\d+", before)]
    if beyond := [place for place in places if place >= size]:
        raise Refused(f"{text}: there is no {beyond[0]}, this coordinate counts 0 to {size - 1}.")
    if len(set(places)) < len(places):
        raise Refused(f"{text}: the same index stands there twice.")
    return places


def _numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(rf"(?<=[@*]){_NUMBER}", text)]


def _factor(text: str, *, zero: bool = False) -> float:
    factor = _numbers(text)[-1]
    if not math.isfinite(factor) or (factor == 0 and not zero):
        raise Refused(f"{text}: a factor is a number other than 0, or nothing could undo it.")
    return factor


def _refuse(item: Item, group: Group) -> Refused:
    what = {
        "cycle": "orders", "sign": "signs", "all": "signs", "factor": "factors",
        "turn": "turns of frequencies", "plane": "turns of planes", "mean": "means",
    }[item[0]]  # fmt: skip
    return Refused(f"{item[1]}: the group here is {group.notation}, which has no {what}.")


def _ordered(items: list[Item], group: Monomial, size: int, batch: Shape) -> Ordered:
    order, scale = torch.arange(size), torch.ones(size, dtype=torch.float64)
    for item in items:
        kind, places = item[0], _places(item, size)
        if kind == "cycle" and group.orders:
            order, scale = (_cycled(x, places) for x in (order, scale))
        elif kind == "sign" and group.signs:
            scale[places] *= -1
        elif kind == "all" and (group.signs or group.common):
            scale = -scale
        elif kind == "factor":
            scale[places] *= _allowed(item, group)
        else:
            raise _refuse(item, group)
    return Ordered(order.expand(*batch, size).contiguous(), scale.expand(*batch, size).contiguous())


def _allowed(item: Item, group: Monomial) -> float:
    """A factor, if the group has it: −1 is a sign, a negative one needs both."""
    factor = _factor(item[1], zero=group is CUT)
    size_allowed = group.scales or abs(factor) == 1
    if not size_allowed or (factor < 0 and not group.signs):
        raise _refuse(item, group)
    return factor


def _cycled(x: torch.Tensor, places: list[int]) -> torch.Tensor:
    """What stood at each place of a cycle goes to the next."""
    moved = x.clone()
    for old, new in pairwise([*places, places[0]]):
        moved[new] = x[old]
    return moved


def _turned(items: list[Item], group: Rotary, size: int, batch: Shape) -> Turned:
    z = torch.ones(size, dtype=torch.complex128)
    for item in items:
        kind, text = item
        places = _places(item, size)
        if kind == "turn":
            degrees, *stretch = _numbers(text)
            modulus = abs(_factor(text)) if stretch else 1.0
            z[places] *= torch.polar(
                torch.tensor(modulus).double(), torch.tensor(math.radians(degrees)).double()
            )
        elif kind == "factor":
            z[places] *= _factor(text)
        elif kind == "sign":
            z[places] *= -1
        else:
            raise _refuse(item, group)
    return Turned(z.expand(*batch, size).contiguous(), group.pairs)


def _mixed(items: list[Item], group: Linear, size: int, batch: Shape) -> Mixed:
    matrix = torch.eye(size, dtype=torch.float64)
    for item in items:
        matrix = _step(item, group, size) @ matrix
    return Mixed(matrix.expand(*batch, size, size).contiguous())


def _step(item: Item, group: Linear, size: int) -> torch.Tensor:
    kind, text = item
    places = _places(item, size)
    matrix = torch.eye(size, dtype=torch.float64)
    if group is MEAN:
        if kind != "mean":
            raise Refused(f"{text}: two coordinates become their mean here: write 0=1.")
        return mean(size, *places)
    steps: dict[str, Callable[[], torch.Tensor]] = {
        "cycle": lambda: _cycled(matrix, places),
        "plane": lambda: plane(size, places[0], places[1], _numbers(text)[0]),
        "sign": lambda: _scaled(matrix, places, -1.0),
        "all": lambda: -matrix,
        "factor": lambda: _scaled(matrix, places, _factor(text)),
    }
    if kind not in steps or (kind == "factor" and group.orthogonal and abs(_factor(text)) != 1):
        raise _refuse(item, group)
    return steps[kind]()


def _scaled(matrix: torch.Tensor, places: list[int], factor: float) -> torch.Tensor:
    scaled = matrix.clone()
    scaled[places] *= factor
    return scaled
