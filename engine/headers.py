"""What the safetensors files of a folder declare, read with nothing but the standard library.

A file is 8 bytes of header length (little endian), a JSON header {name: {dtype, shape,
data_offsets}}, then the data, without holes. The file is untrusted: every number is checked against
the others and against the file's size before anything is read by it.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import Refused

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LIMIT = 100_000_000
"""Largest header that is read, in bytes: the format's own limit."""
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
    "C64": 64,
}  # fmt: skip
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""The dtypes that are computed with, in torch's words."""
POINTER = b"version https://git-lfs"
CONVERT = (
    "load it in transformers where you trust it and "
    "`save_pretrained(folder, safe_serialization=True)`"
)


@dataclass(frozen=True)
class Header:
    """One tensor on disk: bytes `start` to `stop` of `file` are its values, row-major."""

    shape: tuple[int, ...]
    dtype: str  # the format's word: "F32", "BF16", …
    file: Path
    start: int
    stop: int

    @property
    def parameters(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def read_headers(folder: Path) -> Mapping[str, Header]:
    """The tensors of `model.safetensors`, or of the shards that its index names, by name.

    Errors: Refused for missing, foreign, damaged or contradictory files.
    """
    if (folder / SINGLE).is_file():
        return read_file(folder / SINGLE)
    if (folder / INDEX).is_file():
        return read_shards(folder)
    raise Refused(absent(folder))


def read_shards(folder: Path) -> Mapping[str, Header]:
    """The tensors of all shards; Refused unless index and shards name the same ones."""
    index = read_json(folder / INDEX)
    where = index.get("weight_map")
    if not isinstance(where, dict) or not where:
        raise Refused(f"{folder / INDEX} declares no weight_map: write the checkpoint again.")
    files = sorted({plain_name(name, folder / INDEX) for name in where.values()})
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise Refused(
            f"{folder / INDEX} declares {len(files)} shards, {some(missing)} missing: copy the "
            "folder again."
        )
    headers: dict[str, Header] = {}
    for name in files:
        found = read_file(folder / name)
        agree({n for n, f in where.items() if f == name}, set(found), folder / name)
        headers |= found
    return headers


def agree(declared: set[str], found: set[str], shard: Path) -> None:
    """Refused unless the index declares for `shard` just the tensors found in it."""
    if lacking := sorted(declared - found):
        raise Refused(f"{INDEX} declares {some(lacking)} in {shard}, not found there: copy again.")
    if extra := sorted(found - declared):
        raise Refused(
            f"{shard} holds {some(extra)} that {INDEX} does not declare there: write the "
            "checkpoint again."
        )


def read_file(path: Path) -> Mapping[str, Header]:
    """The tensors of one safetensors file; Refused unless sizes, offsets and shapes fit."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(len(POINTER))
        refuse_pointer(path, first)
        length = int.from_bytes(first[:8], "little")
        if length > LIMIT:
            raise Refused(
                f"{path} is not a safetensors file: its header declares {length} bytes of itself, "
                f"at most {LIMIT} are read; copy it again."
            )
        if size < 8 + length:
            raise Refused(cut_short(path, size, 8 + length))
        file.seek(8)
        raw = file.read(length)
    declared = parse(path, raw)
    if not declared:
        raise Refused(f"{path} holds no tensors: write the checkpoint again.")
    headers = {name: header(path, name, entry, 8 + length) for name, entry in declared.items()}
    fit(path, headers.values(), 8 + length, size)
    return headers


def parse(path: Path, raw: bytes) -> dict[str, Any]:
    """The JSON header without its metadata; each name at most once."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError
        return table

    try:
        declared = json.loads(raw.decode("utf-8"), object_pairs_hook=once)
        declared.pop("__metadata__", None)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise Refused(
            f"{path}: the header is not a JSON object of distinct names: not a safetensors file, "
            "or damaged; copy it again."
        ) from error
    return declared


def header(path: Path, name: str, entry: Any, offset: int) -> Header:
    """One header entry, checked: natural numbers, a known dtype, bytes that fit the shape."""
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, start, stop]
        sound = all(type(n) is int and n >= 0 for n in numbers)
        exact = sound and math.prod(shape) * BITS[dtype] == 8 * (stop - start)
    except (LookupError, TypeError, ValueError) as error:
        raise Refused(f"{path}: the header entry of {name} is damaged: copy it again.") from error
    if not exact:
        raise Refused(
            f"{path}: {name} declares {dtype} {shape} at bytes {start} to {stop}, which do not "
            "fit: copy it again."
        )
    return Header(tuple(shape), dtype, path, offset + start, offset + stop)


def fit(path: Path, headers: Iterable[Header], start: int, size: int) -> None:
    """Refused unless the tensors cover bytes `start` to `size` without holes or overlap."""
    position = start
    for part in sorted(headers, key=lambda h: (h.start, h.stop)):
        if part.start != position:
            raise Refused(
                f"{path}: tensors overlap or leave a hole at byte {position}: damaged; copy it "
                "again."
            )
        position = part.stop
    if size < position:
        raise Refused(cut_short(path, size, position))
    if size > position:
        raise Refused(
            f"{path}: the header declares {position} bytes, the file has {size}: damaged; copy it "
            "again."
        )


def cut_short(path: Path, found: int, declared: int) -> str:
    """The message for a file that ends too early."""
    return f"{path} is cut short: {found} of {declared} bytes; copy or download it again."


def refuse_pointer(path: Path, first: bytes) -> None:
    """Refused when a file is the note that Git LFS leaves in its place."""
    if first.startswith(POINTER):
        raise Refused(
            f"{path} is a Git-LFS pointer, not the file itself: run `git lfs pull` in its folder."
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; Refused when the file is something else."""
    try:
        text = path.read_bytes()
        refuse_pointer(path, text[: len(POINTER)])
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON ({error}): write it again.") from error
    if not isinstance(value, dict):
        raise Refused(f"{path} is not a JSON object but a {type(value).__name__}: write it again.")
    return value


def plain_name(name: Any, index: Path) -> str:
    """A file name without any folder in it: an index must not reach outside its folder."""
    sound = isinstance(name, str) and name == Path(name).name and name not in {"", ".."}
    if not sound or "\\" in name or "\0" in name:
        raise Refused(
            f"{index} names {name!r}, which is no file of its own folder: write it again."
        )
    return name


def absent(folder: Path) -> str:
    """The message for a folder without loadable weights: says what was found instead."""
    names = sorted(path.name for path in folder.iterdir())
    pickled = [name for name in names if Path(name).suffix in {".bin", ".pt", ".pth", ".ckpt"}]
    other = [name for name in names if name.endswith(".safetensors")]
    if pickled and not other:
        return (
            f"{folder} has its weights in {some(pickled)} only, a format that can run code and is "
            f"not opened: {CONVERT}."
        )
    if other:
        return f"{folder} has no {SINGLE}, only {some(other)}: rename it, or add {INDEX}."
    return f"{folder} has no weights: expected {SINGLE}, or shards with {INDEX}."


def some(names: Iterable[str]) -> str:
    """At most three names, then how many more."""
    listed = list(names)
    rest = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + rest
