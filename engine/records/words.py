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


def plain(value: Any, *, arrays: bool = True) -> Any:
    """A record as JSON values: arrays become lists; without `arrays` matrices become None."""
    if isinstance(value, np.ndarray):
        return value.tolist() if arrays or value.ndim < 2 else None
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), arrays=arrays) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item, arrays=arrays) for item in value]
    return value
