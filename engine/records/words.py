"""The four reserved words of every verdict, and records as plain values."""

from dataclasses import fields, is_dataclass
from typing import Any, Literal

import numpy as np

TOLERANCE = 1e-4
"""Largest relative error that may still be called *exact* (float32 forward passes)."""

Word = Literal["exact", "approximate", "broken", "not measured"]
"""The four reserved words of every verdict."""


def word(error: float | None, tolerance: float = TOLERANCE, broken: float = 0.1) -> Word:
    """The reserved word for a relative error: exact ≤ tolerance < approximate ≤ broken < broken."""
    if error is None:
        return "not measured"
    if error <= tolerance:
        return "exact"
    return "approximate" if error <= broken else "broken"


def named_arrays(record: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Every array of a record by name, those inside a part with its name in front: `match_sign`.

    Several arrays of one name are numbered.
    """
    found: dict[str, np.ndarray] = {}
    for field in fields(record):
        value, name = getattr(record, field.name), prefix + field.name
        if isinstance(value, np.ndarray):
            found[name] = np.asarray(value)
        elif is_dataclass(value):
            found |= named_arrays(value, f"{name}_")
        elif isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
            found |= {f"{name}_{k}": np.asarray(part) for k, part in enumerate(value)}
        elif isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
            found[name] = np.array(value)
    return found


def plain(value: Any, *, arrays: bool = True) -> Any:
    """A record as JSON values: arrays become lists; without `arrays` matrices become None."""
    if isinstance(value, np.ndarray):
        return value.tolist() if arrays or value.ndim < 2 else None
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), arrays=arrays) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item, arrays=arrays) for item in value]
    return value
