"""Where every tensor of a block stands: writers left, readers right, the relabelled between."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd

from app.charts import cards
from engine.records import Carrier, CoordinateCard, ModelCard

Side = Literal["written by", "read by", "only relabelled"]
SIDES: tuple[Side, ...] = get_args(Side)

LINE, GAP, HEAD = 18, 16, 26
"""Pixels: a tensor's line, the space between two rows, the headings."""

LEFT, RIGHT, BOX = 0.25, 0.75, (0.34, 0.66)
"""Where the dots of writers and readers stand, and the box between them, of the width."""


@dataclass(frozen=True)
class Node:
    """One tensor on one side of one coordinate."""

    word: str
    side: Side
    label: str
    tip: str  # full names and axes
    fused: bool  # the same tensor also stands on the other side


def sides(carrier: Carrier, name: str, neutral: frozenset[str]) -> tuple[Side, ...]:
    """On which sides of a coordinate a tensor stands.

    An order is carried alike by both (g⁻ᵀ = g), so its own mark says nothing: the legs beside it on
    the axis decide, those of `neutral` words (orders only) left out.
    """
    if carrier.role in {"relabelled", "named"}:
        return ("only relabelled",)
    if name not in neutral:
        return ("read by",) if carrier.role == "read" else ("written by",)
    beside = [
        leg
        for product in _products(carrier.axes, name)
        for leg in re.findall(r"\w+\*?", product)
        if leg.rstrip("*") != name and leg.rstrip("*") not in neutral
    ]
    if not beside:
        return ("written by",)
    written = any(not leg.endswith("*") for leg in beside)
    read = any(leg.endswith("*") for leg in beside)
    found: list[Side] = ["written by"] if written else []
    return (*found, "read by") if read else tuple(found)


def _products(axes: str, name: str) -> list[str]:
    """The innermost brackets around a word, inner brackets of other words included."""
    found = []
    for place in re.finditer(rf"\b{name}\b", axes):
        depth, start = 0, -1
        for at in range(place.start() - 1, -1, -1):
            depth += (axes[at] == ")") - (axes[at] == "(")
            if depth < 0:
                start = at
                break
        if start >= 0:
            found.append(axes[start : _end(axes, start)])
    return found


def _end(axes: str, start: int) -> int:
    depth = 0
    for at in range(start, len(axes)):
        depth += (axes[at] == "(") - (axes[at] == ")")
        if depth == 0:
            return at + 1
    return len(axes)


def nodes(card: ModelCard) -> list[Node]:
    """Every tensor on its sides, a weight and its bias together."""
    names, neutral = cards.everything(card), _neutral(card)
    found = []
    for row in cards.free(card):
        placed: dict[tuple[Side, str], list[Carrier]] = {}
        for carrier in row.carriers:
            for side in sides(carrier, row.name, neutral):
                held = placed.setdefault((side, names[carrier.tensor]), [])
                held.extend([] if carrier in held else [carrier])
        found += [_node(row, side, label, placed) for side, label in placed]
    return found


def _node(
    row: CoordinateCard, side: Side, label: str, placed: Mapping[tuple[Side, str], list[Carrier]]
) -> Node:
    held = placed[side, label]
    tip = " · ".join(f"{carrier.tensor}: {carrier.axes}" for carrier in held)
    other: Side = "read by" if side == "written by" else "written by"
    fused = side != "only relabelled" and (other, label) in placed
    both = any(carrier.tensor.endswith(".bias") for carrier in held)
    alone = all(carrier.tensor.endswith(".bias") for carrier in held)
    shown = f"{label} (bias)" if alone else f"{label} + bias" if both else label
    return Node(row.name, side, shown, tip, fused)


def _neutral(card: ModelCard) -> frozenset[str]:
    """Coordinates that are an order only: no tensor has their other mark."""
    roles = {row.name: {carrier.role for carrier in row.carriers} for row in card.coordinates}
    return frozenset(name for name, found in roles.items() if not found & {"read", "relabelled"})


@dataclass(frozen=True)
class Drawing:
    """Where everything stands; y in pixels from the top."""

    boxes: pd.DataFrame
    tensors: pd.DataFrame
    edges: pd.DataFrame
    height: int


def layout(card: ModelCard) -> Drawing:
    """One row for each coordinate: writers left, readers right, the relabelled under the box."""
    every, top = nodes(card), float(HEAD)
    boxes, tensors, edges = [], [], []
    for row in cards.free(card):
        mine = [node for node in every if node.word == row.name]
        by = {side: [node for node in mine if node.side == side] for side in SIDES}
        middle = by["only relabelled"]
        lines = max(len(by["written by"]), len(by["read by"]), 2 + len(middle))
        height = lines * LINE
        up = top + (height - (2 + len(middle)) * LINE) / 2
        boxes.append(_box(row, up))
        for k, node in enumerate(middle):
            tensors.append(_placed(node, 0.5, up + (2.5 + k) * LINE))
        for side, x in (("written by", LEFT), ("read by", RIGHT)):
            first = top + (height - len(by[side]) * LINE) / 2
            for k, node in enumerate(by[side]):
                y = first + (k + 0.5) * LINE
                tensors.append(_placed(node, x, y))
                edges += _edge(len(edges), node, x, y, up + LINE)
        top += height + GAP
    columns = ["edge", "word", "side", "x", "y"]
    return Drawing(
        pd.DataFrame(boxes), pd.DataFrame(tensors), pd.DataFrame(edges, columns=columns), int(top)
    )


def _box(row: CoordinateCard, up: float) -> dict[str, Any]:
    return {
        "word": row.name,
        "title": row.title,
        "under": f"{row.group} · n = {row.size:,} · {_copies(row.copies)}",
        "why": row.why,
        "x": BOX[0],
        "x2": BOX[1],
        "y": up,
        "y2": up + 2 * LINE,
        "middle": 0.5,
        "first": up + 0.62 * LINE,
        "second": up + 1.48 * LINE,
    }


def _copies(count: int) -> str:
    return "one for the model" if count == 1 else f"{count:,} of them"


def _placed(node: Node, x: float, y: float) -> dict[str, Any]:
    return {
        "word": node.word,
        "side": node.side,
        "tensor": node.label,
        "axes": node.tip,
        "fused": node.fused,
        "role": f"{node.side}, and on the other side too" if node.fused else node.side,
        "x": x,
        "y": y,
    }


def _edge(number: int, node: Node, x: float, y: float, box: float) -> Iterator[dict[str, Any]]:
    """A smooth line between a dot and the box."""
    end = BOX[0] if x < 0.5 else BOX[1]
    for step in range(13):
        t = step / 12
        ease = t * t * (3 - 2 * t)
        yield {
            "edge": number,
            "word": node.word,
            "side": node.side,
            "x": x + (end - x) * t,
            "y": y + (box - y) * ease,
        }
