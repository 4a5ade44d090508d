"""A model's card as tables: coordinates, fixed ones, blind directions, carriers, self-test."""

import re
from collections.abc import Iterable, Mapping

import pandas as pd

from app.sentences.numbers import number
from engine.records import BlindCard, Carrier, CoordinateCard, DirectionTest, ModelCard, SelfTest

TICKS = ("alike", "cancels", "private")
"""The source's criterion, one column each."""

ROLES = {
    "written": "writes it",
    "read": "reads it",
    "relabelled": "only relabelled",
    "named": "numbered by it, in its name",
    "shifted": "shifted",
}
FACTORS = {"written": "multiplied", "read": "divided", "relabelled": "only relabelled"}
"""Roles along a blind direction that is a factor."""

UNMEASURED = "not measured"


def short(tensors: Iterable[str]) -> dict[str, str]:
    """Names in few words, as many as tell them apart: "model.layers.{l}.mlp.up_proj" → "up_proj".

    A weight and its bias share a name.
    """
    parts = {tensor: _parts(tensor) for tensor in tensors}
    found = {}
    for tensor, words in parts.items():
        others = {other for other in parts.values() if other != words and other[-1] == words[-1]}
        keep = 1
        while keep < len(words) and any(other[-keep:] == words[-keep:] for other in others):
            keep += 1
        found[tensor] = ".".join(words[-keep:])
    return found


def _parts(tensor: str) -> tuple[str, ...]:
    stem = tensor.removesuffix(".weight").removesuffix(".bias")
    return tuple(part for part in stem.split(".") if not re.fullmatch(r"\{\w+\}|\d+", part))


def everything(card: ModelCard) -> dict[str, str]:
    """The short names of all tensors that a card speaks of."""
    rows = (*card.coordinates, *card.blind)
    return short(carrier.tensor for row in rows for carrier in row.carriers)


def free(card: ModelCard) -> tuple[CoordinateCard, ...]:
    """The coordinates that are only names."""
    return tuple(row for row in card.coordinates if not row.fixed)


def fixed(card: ModelCard) -> tuple[CoordinateCard, ...]:
    """The index sets that nothing may act on."""
    return tuple(row for row in card.coordinates if row.fixed)


def coordinates(card: ModelCard, test: SelfTest | None = None) -> pd.DataFrame:
    """The coordinates that are only names, one row each, with the criterion and the self-test."""
    names = everything(card)
    return pd.DataFrame(
        [
            {
                "coordinate": row.title,
                "word": row.name,
                "group": row.group,
                "size": row.size,
                "copies": row.copies,
                "log₁₀ count": row.log10,
                "continuous": row.dimension,
                "self-test": tested(row.name, test),
                **_ticks(row),
                "why": row.why,
                "carried by": carried(row.carriers, names),
            }
            for row in free(card)
        ]
    )


def reasons(rows: Iterable[CoordinateCard | BlindCard], card: ModelCard) -> pd.DataFrame:
    """Why each row is in the table, and the tensors that carry it."""
    names = everything(card)
    return pd.DataFrame(
        [
            {"name": row.title, "why": row.why, "carried by": carried(row.carriers, names)}
            for row in rows
        ]
    )


def fixed_table(card: ModelCard) -> pd.DataFrame:
    """What is not only a name, with the reason and the criterion."""
    found = [
        {"index": row.title, "word": row.name, "size": row.size, **_ticks(row), "why": row.fixed}
        for row in fixed(card)
    ]
    return pd.DataFrame(found)


def blind(card: ModelCard, test: SelfTest | None = None) -> pd.DataFrame:
    """The blind directions, one row each, with what the self-test measured along each."""
    names = everything(card)
    return pd.DataFrame(
        [
            {
                "direction": row.title,
                "word": row.name,
                "group": row.group,
                "continuous": row.dimension,
                "holds": "up to ε" if row.approximate else "exactly",
                "self-test": tested(row.name, test),
                "why": row.why,
                "carried by": carried(row.carriers, names),
            }
            for row in card.blind
        ]
    )


def _ticks(row: CoordinateCard) -> dict[str, str]:
    return {name: "✓" if held else "✗" for name, held in zip(TICKS, row.criterion, strict=True)}


def carried(carriers: tuple[Carrier, ...], names: Mapping[str, str]) -> str:
    """The short names of the tensors, each once."""
    return ", ".join(dict.fromkeys(names[carrier.tensor] for carrier in carriers))


def tested(name: str, test: SelfTest | None) -> str:
    """The reserved word with its number for one row of the table."""
    rows = () if test is None else test.rows
    return next((said(row) for row in rows if row.name == name), UNMEASURED)


def said(row: DirectionTest) -> str:
    """The word with its number, "exact 1.1e-6"; a direction that is true only up to ε says so."""
    if row.verdict == "not measured":
        return UNMEASURED
    near = " (up to ε)" if row.approximate else ""
    return f"{row.verdict} {number(row.error)}{near}"


def self_test(test: SelfTest) -> pd.DataFrame:
    """Every coordinate alone, then every blind direction, with its own number and word."""
    kinds = {"coordinate": "coordinate", "blind": "blind direction"}
    ordered = sorted(test.rows, key=lambda row: row.kind != "coordinate")
    return pd.DataFrame(
        [
            {
                "result": said(row),
                "changed alone": row.title,
                "tensors moved": f"{row.moved:.0%}",
                "kind": kinds[row.kind],
            }
            for row in ordered
        ]
    )


def carriers(row: CoordinateCard | BlindCard) -> pd.DataFrame:
    """Every tensor that carries one row of the table: where, and how."""
    words = FACTORS if isinstance(row, BlindCard) else {}
    return pd.DataFrame(
        [
            {
                "tensor": carrier.tensor,
                "all its axes": carrier.axes,
                "on axis": where(carrier, row.name),
                "role": words.get(carrier.role, ROLES[carrier.role]),
            }
            for carrier in row.carriers
        ]
    )


def where(carrier: Carrier, name: str) -> str:
    """Which axis carries a coordinate: "0", "1 (blocks 0, 1)"; "name" for one in the name."""
    if carrier.role == "named":
        return "name"
    if carrier.role == "shifted":
        return "–"
    items = split(carrier.axes)
    places = [str(number) for number, item in enumerate(items) if name in legs(item)]
    return ", ".join(places)


def split(axes: str) -> list[str]:
    """The axes of a row: "res (grp head val*)" → ["res", "(grp head val*)"]."""
    found, depth = [""], 0
    for character in axes.partition(" - ")[0]:
        depth += (character == "(") - (character == ")")
        if character == " " and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [item for item in found if item]


def legs(item: str) -> list[str]:
    """The words of an axis, without their marks."""
    return re.findall(r"\w+", item)


def exported(card: ModelCard, test: SelfTest | None = None) -> pd.DataFrame:
    """All rows in one table for export: names, fixed ones, blind directions."""
    parts = {
        "only a name": coordinates(card, test).rename(columns={"coordinate": "title"}),
        "fixed": fixed_table(card).rename(columns={"index": "title"}),
        "blind": blind(card, test).rename(columns={"direction": "title"}),
    }
    return pd.concat([part.assign(kind=kind) for kind, part in parts.items() if len(part)])
