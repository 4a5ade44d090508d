"""A change of one coordinate as lines of code, for both ways in which a layer can store its matrix.

`Linear` stores [out, in] and computes x Wᵀ; `Conv1D` stores [in, out] and computes x W.
"""

import re
from typing import Literal

import pandas as pd

from app.charts.cards import everything, legs, split
from engine.records import Carrier, CoordinateCard, ModelCard

Convention = Literal["Linear", "Conv1D"]


def convention(card: ModelCard) -> Convention:
    """How this model's matrices are stored: by where the residual stream is read and written."""
    votes = [
        vote
        for row in card.coordinates
        if row.name == "res"
        for carrier in row.carriers
        if (vote := _vote(carrier)) is not None
    ]
    return "Conv1D" if votes.count("Conv1D") > votes.count("Linear") else "Linear"


def _vote(carrier: Carrier) -> Convention | None:
    """A reader of the stream has it on its in axis, a writer on its out axis."""
    axes = split(carrier.axes)
    if len(axes) != 2 or {"tok", "pos"} & {word for axis in axes for word in legs(axis)}:
        return None
    if "res*" in axes:
        return "Linear" if axes[1] == "res*" else "Conv1D"
    return ("Linear" if axes[0] == "res" else "Conv1D") if "res" in axes else None


def table(card: ModelCard, row: CoordinateCard) -> pd.DataFrame:
    """One line for each tensor: what happens to it under either convention."""
    names, mine = everything(card), convention(card)
    sizes = {other.name: other.size for other in card.coordinates}
    found = []
    for carrier in row.carriers:
        if carrier.role == "shifted":
            continue
        name = variable(carrier, names[carrier.tensor])
        stored = split(carrier.axes)
        swapped = stored[::-1] if _vote(carrier) or _inner(stored) else stored
        both = (stored, swapped) if mine == "Linear" else (swapped, stored)
        found.append(
            {
                "tensor": names[carrier.tensor] + (" (bias)" if ".bias" in carrier.tensor else ""),
                "Linear [out, in]": code(name, both[0], row, carrier.role, sizes),
                "Conv1D [in, out]": code(name, both[1], row, carrier.role, sizes),
            }
        )
    return pd.DataFrame(found)


def _inner(axes: list[str]) -> bool:
    """A matrix that is no dictionary: its axes may be exchanged."""
    return len(axes) == 2 and not {"tok", "pos"} & {word for axis in axes for word in legs(axis)}


def variable(carrier: Carrier, name: str) -> str:
    """A name for a tensor in code: "W_up_proj", "b_up_proj"."""
    letter = "b" if carrier.tensor.endswith(".bias") else "W"
    return f"{letter}_{re.sub(r'[^0-9a-zA-Z]+', '_', name)}"


def code(name: str, axes: list[str], row: CoordinateCard, role: str, sizes: dict[str, int]) -> str:
    """One line that changes one tensor along the axis that carries the coordinate."""
    if role == "named":
        return "the tensors themselves: new[e] = old[perm[e]]"
    axis = next((k for k, item in enumerate(axes) if row.name in legs(item)), None)
    if axis is None:
        return ""
    item, one = axes[axis], len(axes) == 1
    if "+" in item:
        return f"{name}: the same inside every block of {item}"
    if item.startswith("("):
        return _nested(name, axes, axis, row, role, sizes)
    if row.group.startswith(("GL", "H(")):
        return _mixed(name, axis, row, role)
    place = "[perm]" if one else ("[perm, :]" if axis == 0 else "[:, perm]")
    factor = "s" if one else ("s[:, None]" if axis == 0 else "s[None, :]")
    return f"{name}{place}{_factor(row, role, factor)}"


def factors(row: CoordinateCard) -> bool:
    """Whether the group has signs or factors, one for each place."""
    found = re.search(r"±1|∖\{0\}|>0", row.group)
    return found is not None and not row.group.startswith("H(")


def _factor(row: CoordinateCard, role: str, factor: str) -> str:
    """Signs and factors: multiplied where written, divided where read, nothing on a relabelled."""
    if role == "relabelled" or not factors(row):
        return ""
    return f" {'/' if role == 'read' else '*'} {factor}"


def _nested(
    name: str, axes: list[str], axis: int, row: CoordinateCard, role: str, sizes: dict[str, int]
) -> str:
    """An axis that splits, outer first: the coordinate is one of its factors."""
    if row.group.startswith(("GL", "H(")):
        return f"in each head: {_mixed(name, axis, row, role)}"
    words = legs(axes[axis])
    lengths = ", ".join(str(sizes.get(word, -1)) for word in words)
    before = words.index(row.name) + axis
    shape = lengths if len(axes) == 1 else (f"{lengths}, -1" if axis == 0 else f"-1, {lengths}")
    return f"{name}.reshape({shape})[{':, ' * before}perm]"


def _mixed(name: str, axis: int, row: CoordinateCard, role: str) -> str:
    """Matrices and rotary numbers: g where written, its inverse transposed where read."""
    if row.group.startswith("H("):
        pairs = f"{name}[pairs]" if axis == 0 else f"{name}[:, pairs]"
        return f"{pairs} / conj(z)" if role == "read" else f"z * {pairs}"
    if axis == 0:
        return f"inv(M).T @ {name}" if role == "read" else f"M @ {name}"
    return f"{name} @ inv(M)" if role == "read" else f"{name} @ M.T"
