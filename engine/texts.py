"""Which tokens a question runs on: a demo model's own generator, the bundled text, a file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Bool, Int

from engine.checkpoint import Checkpoint
from engine.corpus import MIXES, beginning, documents, natural, windows
from engine.errors import Brief, Refused
from engine.prepared import is_prepared, positions, read

if TYPE_CHECKING:
    from engine.network import Tokenizer

DEFAULT = "default"
HELD_OUT = 20_000
"""Seed of the generated text: none of the training seeds."""
WINDOW = 128
NOTED, MOST_UNKNOWN = 0.02, 0.5
"""Shares of a text's tokens that the vocabulary does not have: said above the first, refused above
the second."""


def describe(checkpoint: Checkpoint, text: str, ids: np.ndarray | None = None) -> str:
    """What `tokens` reads, in words; of its `ids` also which share the vocabulary does not have."""
    share = 0.0 if ids is None else unknown(checkpoint, text, ids)
    strange = f", {share:.0%} of its tokens unknown to {checkpoint.name}" * (share > NOTED)
    return _named(checkpoint, text) + strange


def _named(checkpoint: Checkpoint, text: str) -> str:
    if text != DEFAULT:
        return Path(text).name
    mix = checkpoint.config.get("gaugescope_text")
    return (
        f"generated text ({mix})"
        if mix in MIXES
        else "bundled English text (where it ends, Python's help topics)"
    )


def tokens(
    checkpoint: Checkpoint, text: str, count: int, longest: int = WINDOW
) -> Int[np.ndarray, "windows length"]:
    """About `count` token ids in equal windows, in the order of the text.

    Windows have `longest` tokens, or as many as the model has positions, or as were asked for in
    all; only whole windows are read.

    `text` is "default", a text file, a .jsonl file with a document in each line, or ids (for
    checkpoints without a tokenizer): a .json file of lists, or one of `engine.prepared`. Refused
    where the text is too short, an id is not in the vocabulary, or most words of a text are not.
    """
    if checkpoint.family.inputs == "pixels":
        raise Refused(f"{checkpoint.name} reads images, and there is no text to run it on.")
    if is_prepared(text):
        return _prepared(checkpoint, Path(text))
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
    length = min(longest, positions(checkpoint), count)
    try:
        found = windows(
            lambda words: encode.encode(words, add_special_tokens=False, verbose=False),
            source,
            max(count // length, 1),
            length,
            [] if start is None else [start],
        )
    except ValueError as error:
        raise Brief(
            f"The text ({describe(checkpoint, text)}) has fewer than the {count} tokens asked for; "
            "give a longer one or a smaller --count."
        ) from error
    if text != DEFAULT:
        require_known(checkpoint, encode, found, f"The text {Path(text).name}")
    return found


def amount(checkpoint: Checkpoint, text: str, most: int) -> int:
    """How many tokens a text file holds as `tokens` reads it; `most` for more. Errors: likewise."""
    from engine.network import tokenizer  # noqa: PLC0415 (transformers is slow to import)

    encode, total = tokenizer(checkpoint), 0
    for words in _documents(Path(text)):
        total += encode.bos_token_id is not None
        total += len(beginning(
            lambda part: encode.encode(part, add_special_tokens=False, verbose=False),
            words, most - total,
        ))  # fmt: skip
        if total >= most:
            return most
    return total


def require_known(checkpoint: Checkpoint, encode: "Tokenizer", ids: np.ndarray, what: str) -> None:
    """Refused where the vocabulary has less than half of the words that were read."""
    share = _unknown(encode, ids)
    if share > MOST_UNKNOWN:
        raise Refused(
            f"{what}: {checkpoint.name} knows {len(encode):,} tokens, and {share:.0%} of what it "
            f"read of this are none of them; give a text in the words of {checkpoint.name}."
        )


def unknown(checkpoint: Checkpoint, text: str, ids: np.ndarray) -> float:
    """Share of the tokens of a text that stand for words which the vocabulary does not have.

    0 for the default text and for files of ids.
    """
    if text == DEFAULT or text.endswith(".json") or is_prepared(text):
        return 0.0
    from engine.network import tokenizer  # noqa: PLC0415 (transformers is slow to import)

    return _unknown(tokenizer(checkpoint), ids)


def _unknown(encode: "Tokenizer", ids: np.ndarray) -> float:
    """That share; a token that also starts texts stands for no unknown word."""
    none, start = encode.unk_token_id, encode.bos_token_id
    if none is None or none == start:
        return 0.0
    words = ids[ids != start]
    return float((words == none).mean()) if words.size else 0.0


def padded(
    checkpoint: Checkpoint, text: str, count: int, longest: int
) -> tuple[Int[np.ndarray, "windows length"], Bool[np.ndarray, "windows length"]]:
    """Windows that may differ in length, filled with zeros at their ends, and what is no filling.

    Only a file of ids holds such; a text is cut into equal windows. Errors: as for `tokens`.
    """
    if is_prepared(text):
        found = read(checkpoint, Path(text))
        return found.main, found.kept
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


def require_file(checkpoint: Checkpoint, path: Path) -> None:
    """Refused for a text or a file of ids that cannot be read as such."""
    if path.suffix == ".json":
        _rows(path, checkpoint, 1)
    else:
        _documents(path)


def _prepared(checkpoint: Checkpoint, path: Path) -> Int[np.ndarray, "windows length"]:
    """Equal windows of a file of `engine.prepared`; Refused for those that are filled up."""
    found = read(checkpoint, path)
    if not found.kept.all() or found.kept.shape[1] < 2:
        raise Refused(
            f"input_ids in {path} must be windows of 2 or more tokens without filling for this: "
            "cut them to one length."
        )
    return found.main


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
