"""A text that two models read: what both know of it; and files that the user named, checked."""

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from engine import texts
from engine.checkpoint import Checkpoint
from engine.errors import Refused
from engine.prepared import is_prepared, read

SHORTEST = 16
"""Tokens of a window below which none is halved."""
MOST_LOST = 0.5
"""Share of the windows that may be left out before all are halved."""
Ids = Int[np.ndarray, "windows length"]


def named(text: str) -> bool:
    """Whether the user named what is read, so that nothing else may be read in its place."""
    return text != texts.DEFAULT


def require(checkpoint: Checkpoint, text: str) -> None:
    """Refused for a file that the user named and that does not hold what its name says."""
    if not named(text):
        return
    if is_prepared(text):
        read(checkpoint, Path(text))
    elif checkpoint.family.inputs == "pixels":
        raise Refused(
            f"{checkpoint.name} reads images, and {Path(text).name} is a text to run it on: leave "
            "it out, or give images (--inputs FILE)."
        )
    else:
        texts.require_file(checkpoint, Path(text))


def vocabulary(*checkpoints: Checkpoint) -> int:
    """How many tokens all of some models have rows for."""
    return min(c.family.sizes(c.config)["tok"] for c in checkpoints)


def own(checkpoint: Checkpoint, ids: Ids) -> Ids:
    """The same ids; Refused for one that a tokenizer makes and the model has no row for."""
    rows = vocabulary(checkpoint)
    if int(ids.max()) >= rows:
        raise Refused(
            f"The tokenizer of {checkpoint.name} makes token {ids.max()} of the text, and the "
            f"model has rows for tokens 0 to {rows - 1}: give a text without it, or save the model "
            "with its own tokenizer."
        )
    return ids


def known(
    ids: Ids, kept: Bool[np.ndarray, "windows length"], both: int
) -> Bool[np.ndarray, " windows"]:
    """Which windows hold only tokens below `both`, filling aside. Refused where none does."""
    found = np.asarray(((ids < both) | ~kept).all(1))
    if not found.any():
        raise Refused(
            f"The text holds token {ids[kept].max()} and others in every window, and the "
            f"vocabularies of both models have the first {both} in common: give another text."
        )
    return found


def left_out(found: Bool[np.ndarray, " windows"]) -> str:
    """What is said of windows that are left out; "" for none."""
    gone = int((~found).sum())
    words = "window of the text has" if gone == 1 else "windows of the text have"
    were = "was" if gone == 1 else "were"
    return f"{gone} {words} tokens that only one model knows, and {were} left out" if gone else ""


def shared(a: Checkpoint, b: Checkpoint, text: str, count: int) -> tuple[Ids, str]:
    """A's text in windows whose tokens both models know; and what was left out, in words.

    Where more than `MOST_LOST` of the windows have other tokens, all are halved, down to `SHORTEST`
    tokens. Errors: Refused as for `engine.texts.tokens` and `known`.
    """
    ids, both = texts.tokens(a, text, count), vocabulary(a, b)
    while (ids >= both).any(1).mean() > MOST_LOST and ids.shape[1] >= 2 * SHORTEST:
        half = ids.shape[1] // 2
        ids = ids[:, : 2 * half].reshape(-1, half)
    found = known(ids, np.ones_like(ids, np.bool_), both)
    return ids[found], left_out(found)


def given(
    a: Checkpoint, b: Checkpoint, text: str, count: int
) -> tuple[Ids | Float[np.ndarray, "windows channels height width"], str]:
    """`shared`, or for models of images those of a file of inputs; Refused without one."""
    if a.family.inputs == "pixels" and is_prepared(text):
        return read(a, Path(text)).main, ""
    return shared(a, b, text, count)
