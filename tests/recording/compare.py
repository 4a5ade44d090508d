"""What differs between two recorded answers, and where it is only the order of sums."""

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 1e-12
"""Of a number, or of the largest in its list: what another order of the same sums may change."""
MISSING = "(nothing)"
"""Where one of two mappings has no such name."""


@dataclass(frozen=True)
class Difference:
    """One place where two answers differ; `sums` where it is by the order of sums only."""

    path: str
    before: Any
    after: Any
    sums: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {short(self.before)} → {short(self.after)}"


def short(value: Any) -> str:
    """A value in at most 60 characters."""
    text = value if value == MISSING else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def differences(before: Any, after: Any, path: str = "", around: float = 0) -> Iterator[Difference]:
    """All places, in order; `around` is the largest magnitude in the list that holds a number."""
    before, after = unpacked(before), unpacked(after)
    if type(before) is not type(after):  # 1, 1.0 and True are three values
        yield Difference(path, before, after)
    elif isinstance(before, dict):
        yield from _in_mappings(before, after, path)
    elif isinstance(before, list) and len(before) == len(after):
        around = around or max(largest(before), largest(after))
        for k, both in enumerate(zip(before, after, strict=True)):
            yield from differences(*both, f"{path}[{k}]", around)
    elif isinstance(before, list):
        yield Difference(path, f"{len(before)} values", f"{len(after)} values")
    elif repr(before) != repr(after):  # nan is nan, and -0.0 is not 0.0
        sums = isinstance(before, float) and close(before, after, around)
        yield Difference(path, before, after, sums)


def _in_mappings(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Difference]:
    if "sha256" in before and "sha256" in after:
        yield from _in_digests(before, after, path)
        return
    for name in {**before, **after}:
        both = (held.get(name, MISSING) for held in (before, after))
        yield from differences(*both, f"{path}.{name}")


def _in_digests(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Difference]:
    """Arrays of which only ‖x‖ and a weighted sum are known: one difference an array."""
    both = before, after
    for name in ("dtype", "shape", "sha256"):
        values = [held[name] for held in both]
        if values[0] != values[1] and name == "sha256" and all("norm" in held for held in both):
            norm = max(held["norm"] for held in both)
            sums = all(close(before[n], after[n], norm) for n in ("norm", "sum"))
            yield Difference(path, *([held["norm"], held["sum"]] for held in both), sums)
        elif values[0] != values[1]:
            yield Difference(f"{path}.{name}", *values)
            return


def close(before: float, after: float, around: float) -> bool:
    """Whether two numbers are equal but for the order of sums; infinite ones are not."""
    size = max(abs(before), abs(after), around)
    return math.isfinite(size) and abs(after - before) <= TOLERANCE * size


def largest(values: list[Any]) -> float:
    """The largest finite magnitude of the floats in nested lists, 0 where there is none."""
    found = 0.0
    for value in map(unpacked, values):
        if isinstance(value, list):
            found = max(found, largest(value))
        elif isinstance(value, float) and math.isfinite(value):
            found = max(found, abs(value))
    return found


def unpacked(value: Any) -> Any:
    """Nested lists for what `answers.packed` made of long ones, everything else as it is."""
    if not isinstance(value, dict) or value.keys() != {"shape", "float64"}:
        return value
    held = np.frombuffer(base64.b64decode(value["float64"]), "<f8")
    return held.reshape(value["shape"]).tolist()


def count(value: Any) -> tuple[int, int]:
    """How many numbers an answer holds, and how many arrays of which a digest is kept."""
    if isinstance(value, dict) and "sha256" in value:
        return 0, 1
    if isinstance(value, dict) and "float64" in value:
        return math.prod(value["shape"]), 0
    if isinstance(value, dict | list):
        parts = [count(x) for x in (value.values() if isinstance(value, dict) else value)]
        return sum(n for n, _ in parts), sum(n for _, n in parts)
    return int(isinstance(value, int | float) and not isinstance(value, bool)), 0
