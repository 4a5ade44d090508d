"""Records as tables: what is listed on a page and what is exported."""

import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style_render import StylerRenderer

from engine.records import AlignmentReport, Assignment, Experiment, ResidualMatch, named_arrays


def sign_mark(sign: int) -> str:
    """A sign in one character."""
    return "+" if sign > 0 else "−"


def matched(record: ResidualMatch, depth: int) -> pd.DataFrame:
    """Every coordinate of A with its partner in B, the sign, score and margin, at one depth."""
    match = record.absolute[depth]
    table = pd.DataFrame(
        {
            "coordinate of A": np.arange(len(match.permutation)),
            "coordinate of B": match.permutation,
            "sign": match.sign,
            "score": match.score,
            "margin": match.margin,
            "mutual": match.mutual,
        }
    )
    if record.truth is not None:
        table["true coordinate of B"] = record.truth.permutation
        table["true sign"] = record.truth.sign
    return table


def least_certain(record: ResidualMatch, depth: int, count: int = 20) -> pd.DataFrame:
    """The coordinates with the smallest margins, with the best alternative of each."""
    match = record.absolute[depth]
    rows = np.argsort(match.margin, kind="stable")[:count]
    return pd.DataFrame([partners(record, depth, int(row)) for row in rows])


def partners(record: ResidualMatch, depth: int, row: int) -> dict[str, Any]:
    """One coordinate of A: its partner in B, the best alternative, and the truth where known."""
    match = record.absolute[depth]
    best = int(match.permutation[row])
    strength = np.abs(np.asarray(record.correlation[depth][row]))
    second = _runner_up(strength, best)
    found: dict[str, Any] = {
        "A": row,
        "B": best,
        "sign": sign_mark(int(match.sign[row])),
        "|C|": float(strength[best]),
        "next B": second,
        "its |C|": float(strength[second]),
        "margin": float(match.margin[row]),
        "mutual": bool(match.mutual[row]),
    }
    if record.truth is not None:
        found["right"] = _right(match, record, row)
    return found


def _runner_up(strength: np.ndarray, best: int) -> int:
    if len(strength) == 1:
        return best
    others = strength.copy()
    others[best] = -np.inf
    return int(others.argmax())


def _right(match: Assignment, record: ResidualMatch, row: int) -> bool:
    assert record.truth is not None
    place = match.permutation[row] == record.truth.permutation[row]
    return bool(place and match.sign[row] == record.truth.sign[row])


def through_depths(record: ResidualMatch, row: int) -> pd.DataFrame:
    """One coordinate of A at every depth: partner, sign, strength, margin."""
    found = [{"depth": name, **partners(record, k, row)} for k, name in enumerate(record.depths)]
    return pd.DataFrame(found).drop(columns=["A"])


def shown(table: pd.DataFrame, chosen: int | None = None) -> StylerRenderer:
    """A table of partners with three decimals; the row of the chosen coordinate is tinted."""

    def tint(row: pd.Series) -> list[str]:
        on = chosen is not None and row.get("A") == chosen
        return ["background-color: rgba(0, 114, 178, 0.2)" if on else ""] * len(row)

    numbers = {name: "{:.3f}" for name in ("|C|", "its |C|", "margin") if name in table}
    return table.style.apply(tint, axis=1).format(numbers)


def distances(report: AlignmentReport) -> pd.DataFrame:
    """Relative distance of every tensor, before and after."""
    layer, kind = zip(*(split(name) for name in report.tensors), strict=True)
    return pd.DataFrame(
        {
            "tensor": report.tensors,
            "layer": layer,
            "kind": kind,
            "before": report.before,
            "after": report.after,
        }
    )


def split(name: str) -> tuple[int | None, str]:
    """A tensor's layer (None outside the blocks) and its kind, without the names around it."""
    parts = name.removesuffix(".weight").split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    kind = parts if number is None else parts[number + 1 :]
    keep = 2 if kind[-1] == "bias" else 1
    return (None if number is None else int(parts[number])), ".".join(kind[-keep:])


def stages(report: AlignmentReport) -> pd.DataFrame:
    """The stages of an alignment, one row each."""
    return pd.DataFrame(
        [
            {field.name: getattr(stage, field.name) for field in fields(stage)}
            for stage in report.stages
        ]
    )


def changes(record: Experiment) -> pd.DataFrame:
    """Every tensor that an experiment moved, the furthest first."""
    found = sorted(record.tensors, key=lambda change: -change.change)
    return pd.DataFrame(
        [{"tensor": c.name, "axes": c.axes, "relative change": c.change} for c in found]
    )


def document(record: Any) -> dict[str, Any]:
    """A record by its fields: arrays as lists, those of rank three or more left to NPZ."""
    return {field.name: _plain(getattr(record, field.name)) for field in fields(record)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return document(value)
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim < 3 else f"array {list(value.shape)}: see the NPZ"
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def as_npz(record: Any) -> bytes:
    """Every array of a record as NPZ."""
    return npz(named_arrays(record))


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays by name as NPZ (no pickled objects)."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def gauge_npz(record: ResidualMatch, depth: int) -> bytes:
    """The matching of one depth and its matrix as NPZ."""
    match = record.absolute[depth]
    arrays = {
        "permutation": match.permutation,
        "sign": match.sign,
        "score": match.score,
        "margin": match.margin,
        "mutual": match.mutual,
        "correlation": np.asarray(record.correlation[depth]),
    }
    if record.truth is not None:
        arrays |= {"true_permutation": record.truth.permutation, "true_sign": record.truth.sign}
    return npz(arrays)
