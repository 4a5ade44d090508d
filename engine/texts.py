"""Which tokens a question runs on: a demo model's own generator, the bundled text, a file."""

import json
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Bool, Int

from engine.checkpoint import Checkpoint
from engine.corpus import MIXES, documents, natural, windows
from engine.errors import Refused

DEFAULT = "default"
HELD_OUT = 20_000
"""Seed of the generated text: none of the training seeds."""
WINDOW = 128


def describe(checkpoint: Checkpoint, text: str) -> str:
    """What `tokens` will read, in words."""
    if text != DEFAULT:
        return Path(text).name
    mix = checkpoint.config.get("gaugescope_text")
    return (
        f"generated text ({mix})"
        if mix in MIXES
        else "bundled text (calibration, then CPython's topics if more is asked)"
    )


def tokens(
    checkpoint: Checkpoint, text: str, count: int, longest: int = WINDOW
) -> Int[np.ndarray, "windows length"]:
    """About `count` token ids in equal windows, in the order of the text.

    Windows have `longest` tokens, or as many as the model has positions.

    `text` is "default", a text file, a .jsonl file with a document in each line, or a .json file
    that holds lists of ids (for checkpoints without a tokenizer). Refused where the text is too
    short or an id is not in the vocabulary.
    """
    if text.endswith(".json"):
        return _ids(Path(text), checkpoint)
    from engine.network import tokenizer  # noqa: PLC0415 (transformers is slow to import)

    mix = checkpoint.config.get("gaugescope_text")
    if text == DEFAULT and mix in MIXES:
        source = documents(HELD_OUT, MIXES[str(mix)])
    else:
        source = natural() if text == DEFAULT else iter(_documents(Path(text)))
    encode = tokenizer(checkpoint)
    start = cast("int | None", encode.bos_token_id)
    length = min(longest, positions(checkpoint))
    try:
        return windows(
            lambda words: encode.encode(words, add_special_tokens=False, verbose=False),
            source,
            max(count // length, 1),
            length,
            [] if start is None else [start],
        )
    except ValueError as error:
        raise Refused(
            f"The text ({describe(checkpoint, text)}) has fewer than the {count} tokens asked for; "
            "give a longer one or a smaller --count."
        ) from error


def positions(checkpoint: Checkpoint) -> int:
    """The longest window of a model."""
    sizes = checkpoint.family.sizes(checkpoint.config)
    found = (sizes.get("pos"), checkpoint.config.get("max_position_embeddings"))
    return int(min((limit for limit in found if limit), default=2**31))


def padded(
    checkpoint: Checkpoint, text: str, count: int, longest: int
) -> tuple[Int[np.ndarray, "windows length"], Bool[np.ndarray, "windows length"]]:
    """Windows that may differ in length, filled with zeros at their ends, and what is no filling.

    Only a JSON file holds such; a text is cut into equal windows. Errors: as for `tokens`.
    """
    if not text.endswith(".json"):
        ids = tokens(checkpoint, text, count, longest)
        return ids, np.ones_like(ids, dtype=np.bool_)
    rows = _rows(Path(text), checkpoint, 1)
    length = max(len(row) for row in rows)
    ids = np.array([row + [0] * (length - len(row)) for row in rows], dtype=np.int64)
    return ids, np.arange(length) < np.array([len(row) for row in rows])[:, None]


def special(checkpoint: Checkpoint) -> tuple[int, ...]:
    """The ids of a configuration that carry no text: start of text and padding."""
    found = (checkpoint.config.get(name) for name in ("bos_token_id", "pad_token_id"))
    return tuple(value for value in found if isinstance(value, int))


def _documents(path: Path) -> list[str]:
    """The whole of a text file, or each line of JSON lines: a string, or an object's `text`."""
    text = _read(path)
    if path.suffix not in {".jsonl", ".ndjson"}:
        return [text]
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            found.append(_document(line, f"{path}, line {number}"))
    return found


def _document(line: str, where: str) -> str:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Refused(f"{where} is no JSON ({error}).") from error
    words = found.get("text") if isinstance(found, dict) else found
    if not isinstance(words, str):
        raise Refused(f'{where} must be a JSON string, or an object with a string "text".')
    return words


def _read(path: Path, kind: str = "Text file", wanted: str = "a UTF-8 text") -> str:
    if not path.is_file():
        other = "is no regular file" if path.exists() else "does not exist"
        what = "is a folder" if path.is_dir() else other
        raise Refused(f"{kind} {path} {what}; give {wanted}.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{kind} {path} is not UTF-8 (byte {error.start}); give another.") from error
    except OSError as error:
        raise Refused(f"{kind} {path} cannot be read ({error.strerror}); give another.") from error


WANTED = "Token file {path} must hold a JSON list of {kind}lists of whole numbers"


def _ids(path: Path, checkpoint: Checkpoint) -> Int[np.ndarray, "windows length"]:
    rows = _rows(path, checkpoint, 2)
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        wanted = WANTED.format(path=path, kind="equally long ")
        raise Refused(f"{wanted}, found lengths {lengths[0]} to {lengths[-1]}.")
    return np.array(rows, dtype=np.int64)


def _rows(path: Path, checkpoint: Checkpoint, shortest: int) -> list[list[int]]:
    """Lists of token ids of a model; Refused unless each has `shortest` or more."""
    wanted = WANTED.format(path=path, kind="")
    try:
        found = json.loads(_read(path, "Token file", "a JSON list of lists of ids"))
    except ValueError as error:
        raise Refused(f"{wanted}, found no JSON ({error}).") from error
    if not isinstance(found, list) or not all(isinstance(row, list) for row in found) or not found:
        raise Refused(f"{wanted}, found something else.")
    lengths = sorted({len(row) for row in found})
    longest = positions(checkpoint)
    if not shortest <= lengths[0] <= lengths[-1] <= longest:
        raise Refused(
            f"{wanted}, {shortest} to {longest} in each (the longest window of "
            f"{checkpoint.name}), found lengths {lengths[0]} to {lengths[-1]}."
        )
    vocabulary = int(checkpoint.config["vocab_size"])
    wrong = [i for row in found for i in row if type(i) is not int or not 0 <= i < vocabulary]
    if wrong:
        raise Refused(
            f"{wanted} from 0 to {vocabulary - 1} (the vocabulary of {checkpoint.name}), "
            f"found {wrong[0]!r}."
        )
    return found
