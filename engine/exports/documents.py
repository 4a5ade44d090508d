"""Every record as a JSON document: numbers that JSON knows, and the question that made it."""

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import VERSION
from engine.records import Measure, plain

if TYPE_CHECKING:  # questions write documents themselves
    from engine.questions import Question


def made(body: dict[str, Any], asked: "Question") -> dict[str, Any]:
    """A document with what made it: the question's fields, the content it read, this program."""
    return {**body, "question": question(asked)}


def question(asked: "Question") -> dict[str, Any]:
    """Name, command line, every field, the models' fingerprints, the version, a digest of all.

    The digest changes with the content of the text too, see `Question.key`.
    """
    return {
        "name": type(asked).__name__,
        "command": asked.command,
        **{one.name: plain(getattr(asked, one.name)) for one in fields(asked)},
        "fingerprints": [checkpoint.fingerprint for checkpoint in asked.checkpoints],
        "version": VERSION,
        "key": asked.key,
    }


def written(document: Any, indent: int | None = None) -> str:
    """A document as JSON text, see `cleaned`."""
    return json.dumps(cleaned(document), indent=indent, allow_nan=False)


def numbers(values: np.ndarray | float) -> Any:
    """An array as nested lists, see `cleaned`."""
    return cleaned(np.asarray(values, np.float64).tolist())


def intervals(measure: Measure) -> Any:
    """[low, high] of every cell; null without intervals."""
    if measure.low is None or measure.high is None:
        return None
    return numbers(np.stack([measure.low, measure.high], -1))


def cleaned(value: Any) -> Any:
    """JSON knows no nan, which is null here, and no infinity, which is a word."""
    if isinstance(value, dict):
        return {name: cleaned(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(part) for part in value]
    if not isinstance(value, float) or np.isfinite(value):
        return value
    return None if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
