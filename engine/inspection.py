"""The card of a model: what its configuration and headers say, and its table of coordinates."""

import math
import re
from collections import Counter
from collections.abc import Iterator

from engine import axes
from engine.action import legs
from engine.agreement import rope
from engine.axes import Mark, Sizes
from engine.blind import Blind
from engine.checkpoint import Checkpoint
from engine.family import named
from engine.groups import Rotary, Trivial
from engine.records import BlindCard, Carrier, CoordinateCard, ModelCard, Role
from engine.sizes import attributes
from engine.slide import family_of_blind, possible

ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function")
ROLES: dict[Mark, Role] = {Mark.WRITE: "written", Mark.READ: "read", Mark.RELABEL: "relabelled"}
PAIRS = {"halves": "(i, i + n/2)", "neighbours": "(2i, 2i + 1)"}
ORDER = "each layer works on what the one before it gave: a composition, not a sum"


def card(checkpoint: Checkpoint) -> ModelCard:
    """Everything about a checkpoint that can be said without reading a weight."""
    family, config = checkpoint.family, checkpoint.config
    sizes = family.sizes(config)
    kinds = Counter(h.dtype for h in checkpoint.headers.values())
    present = possible(family, config, checkpoint.headers)
    return ModelCard(
        name=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        family=f"{family.name} ({config['model_type']})",
        layers=checkpoint.layers,
        width=sizes["res"],
        heads=sizes["grp"] * sizes.get("head", 1),
        kv_heads=sizes["grp"],
        head_dim=sizes["val"],
        ffn=sizes["ffn"],
        experts=sizes.get("exp", 0),
        vocabulary=sizes.get("tok", sizes.get("cls", 0)),
        norm=family.norm,
        activation=next((str(config[name]) for name in ACTIVATIONS if config.get(name)), "silu"),
        positions=_positions(checkpoint, sizes),
        tied=checkpoint.tied,
        dtype=", ".join(sorted(kinds)),
        parameters=checkpoint.parameters,
        bytes=checkpoint.nbytes,
        coordinates=tuple(_coordinates(checkpoint)),
        blind=tuple(_blind(checkpoint, blind) for blind in present),
    )


def _positions(checkpoint: Checkpoint, sizes: Sizes) -> str:
    if not sizes.get("rot"):
        return "learned positions" if "pos" in sizes else "no positions"
    group = checkpoint.family.coordinates["rot"].group
    pairs = PAIRS[group.pairs if isinstance(group, Rotary) else "halves"]
    part = "partly " if sizes.get("qk") else ""
    return f"{part}rotary, pairs {pairs}{_base(rope(checkpoint.config))}"


def _base(declared: dict[str, object]) -> str:
    base, kind = declared.get("rope_theta"), declared.get("rope_type", "default")
    scaling = "" if kind == "default" else f", {kind} scaling"
    return f", base {base:g}{scaling}" if isinstance(base, int | float) else ", bases by layer"


def _coordinates(checkpoint: Checkpoint) -> Iterator[CoordinateCard]:
    family, config = checkpoint.family, checkpoint.config
    sizes = family.sizes(config)
    rows = {row.name: row for row in map(family.row, checkpoint.headers)}
    carried = {leg.name for row in rows.values() for leg in axes.legs(row.axes)}
    carried |= {word for row in rows.values() for word in row.places}
    for name, coordinate in family.coordinates.items():
        helps = not attributes(coordinate.size)  # an axis that only says how another splits
        if sizes[name] and name in carried and not helps:
            yield _coordinate(checkpoint, name, sizes)
    yield CoordinateCard(
        name="layer", title="layer", group=Trivial(ORDER).notation, size=checkpoint.layers,
        copies=1, log10=0.0, dimension=0, carriers=(), why="Layers run one after another.",
        fixed=ORDER, local=False, criterion=(False, False, False),
    )  # fmt: skip


def _coordinate(checkpoint: Checkpoint, name: str, sizes: Sizes) -> CoordinateCard:
    family = checkpoint.family
    coordinate = family.coordinates[name]
    local = name in family.per_layer
    copies = (checkpoint.layers if local else 1) * math.prod(family.batch(name, sizes))
    group = coordinate.group
    return CoordinateCard(
        name=name,
        title=coordinate.title,
        group=group.notation,
        size=sizes[name],
        copies=copies,
        log10=copies * group.log10(sizes[name]),
        dimension=copies * group.dimension(sizes[name]),
        carriers=tuple(_carriers(_present(checkpoint, legs(family, name)), name)),
        why=coordinate.why,
        fixed=group.reason if isinstance(group, Trivial) else "",
        local=local,
        criterion=coordinate.criterion,
    )


def _present(checkpoint: Checkpoint, rows: dict[str, str]) -> dict[str, str]:
    """The rows of which the checkpoint has a tensor: biases may be absent, a head may be tied."""
    found = (checkpoint.family.row(tensor).name for tensor in checkpoint.headers)
    kinds = {re.sub(r"\.\d+\.", ".0.", name) for name in found}
    return {name: text for name, text in rows.items() if re.sub(r"\{\w+\}", "0", name) in kinds}


def _carriers(rows: dict[str, str], name: str) -> Iterator[Carrier]:
    """Each tensor once for every way in which it carries the coordinate."""
    for tensor, text in rows.items():
        nodes, _ = axes.with_offset(text)
        marks = [leg.mark for leg in axes.legs(nodes) if leg.name == name]
        for mark in dict.fromkeys(marks):
            yield Carrier(tensor, text, ROLES[mark])
        if f"{{{name}}}" in tensor:
            yield Carrier(tensor, text, "named")


def _blind(checkpoint: Checkpoint, blind: Blind) -> BlindCard:
    family, config = checkpoint.family, checkpoint.config
    if blind.table:
        table = family_of_blind(family, blind)
        sizes = table.sizes(config)
        local = blind.name in table.per_layer
        copies = (checkpoint.layers if local else 1) * math.prod(table.batch(blind.name, sizes))
        rows = {named(tensor)[0]: text for tensor, text in blind.table.items()}
        dimension = copies * blind.group.dimension(sizes[blind.name])
        carriers = tuple(_carriers(rows, blind.name))
        notation = blind.group.notation
        return BlindCard(
            blind.name, blind.title, blind.why, notation, dimension, blind.approximate, carriers
        )
    sizes = family.sizes(config)
    each = math.prod(sizes[leg.name] for leg in axes.legs(axes.parse(blind.shift)))
    local = any("{l}" in move.tensor for move in blind.moves)
    carriers = tuple(Carrier(tensor, text, "shifted") for tensor, text in blind.carriers)
    dimension = each * (checkpoint.layers if local else 1)
    return BlindCard(
        blind.name, blind.title, blind.why, "shift", dimension, blind.approximate, carriers
    )
