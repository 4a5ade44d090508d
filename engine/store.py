"""Results on disk: one JSON file a record, arrays beside it as memory-mapped `.npy`; no pickle.

An entry is `records/<digest>.json` plus, when it has arrays, `records/<digest>.<token>/<n>.npy`.
The arrays are written first and the JSON replaces the old one in a single step, so a reader sees a
whole record or none, whoever else writes. Values keep their kind: a tuple comes back as a tuple, a
mapping with its own keys, an array with its dtype.
"""

import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from engine.errors import Refused
from engine.records import REGISTRY

ENVIRONMENT = "GAUGESCOPE_STORE"
UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError,
)  # fmt: skip
"""What a damaged or half entry can raise on the way to its record."""
TUPLE, MAP, RECORD, ARRAY = "$tuple", "$map", "$record", "$array"


SHIPPED = tuple(
    Path(__file__).resolve().parents[1] / "assets" / folder
    for folder in ("demo/results", "results")
)
"""Results that come with the program."""


def default_root() -> Path:
    """The folder of `GAUGESCOPE_STORE`, else the user's cache folder for gaugescope."""
    declared = os.environ.get(ENVIRONMENT)
    return Path(declared) if declared else Path(platformdirs.user_cache_dir("gaugescope"))


@dataclass(frozen=True)
class Store:
    """Records by key under `root`; `shipped` folders of the same layout are read, never written.

    `registry` names the record classes. Dataclasses that appear in the type hints of a registered
    class need no entry of their own.
    """

    root: Path
    shipped: tuple[Path, ...] = ()
    registry: Mapping[str, type] = field(default_factory=lambda: REGISTRY)

    @property
    def models(self) -> Path:
        """The folder for models that had to be written out, such as dequantised ones."""
        return self.root / "models"

    @cached_property
    def classes(self) -> Mapping[str, type]:
        """Every dataclass that a record may hold, by name."""
        return reachable(self.registry)

    def get(self, key: str) -> Any:
        """The record of `key`, arrays read-only and memory-mapped; None when there is none."""
        for root in (self.root, *self.shipped):
            record = read(root / "records" / f"{digest(key)}.json", key, self.classes)
            if record is not None:
                return record
        return None

    def has(self, key: str) -> bool:
        """Whether `get(key)` would return a record."""
        return self.get(key) is not None

    def put(self, key: str, record: object) -> None:
        """Write `record`, replacing the key's old one in one step.

        Errors: Refused when the folder cannot be written; TypeError for a value that is neither a
        number, a string, a tuple, a list, a mapping, an array nor a registered dataclass.
        """
        arrays: list[np.ndarray] = []
        entry = {"key": key, "value": encode(record, arrays, self.classes)}
        folder = self.root / "records"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write(folder, digest(key), entry, arrays)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refused(
                f"The results store {self.root} cannot be written ({reason}): set {ENVIRONMENT} "
                "to a folder that can."
            ) from error


def results() -> Store:
    """The user's own results, and those that come with the program."""
    return Store(default_root(), shipped=SHIPPED)


def digest(key: str) -> str:
    """The file name of a key: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def write(folder: Path, name: str, entry: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Arrays into a new folder of their own, then the JSON in one replacing rename."""
    own = f"{name}.{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as made:
        staged = Path(made)
        (staged / "arrays").mkdir()
        for number, array in enumerate(arrays):
            np.save(staged / "arrays" / f"{number}.npy", array, allow_pickle=False)
        named = {**entry, "arrays": own} if arrays else entry
        (staged / "entry").write_text(json.dumps(named), encoding="utf-8")
        if arrays:
            (staged / "arrays").rename(folder / own)
        old = arrays_of(folder / f"{name}.json")
        (staged / "entry").replace(folder / f"{name}.json")
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def arrays_of(path: Path) -> Path | None:
    """The arrays folder that an entry's JSON names, if it can be read."""
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["arrays"]
        return path.parent / Path(name).name
    except UNREADABLE:
        return None


def read(path: Path, key: str, classes: Mapping[str, type]) -> Any | None:
    """The record in `path`; None for anything that is not a whole record of `key`.

    A writer may replace the entry between our two reads and remove the arrays that the first named:
    one more look finds the new ones.
    """
    for _ in range(2):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry["key"] != key:
                return None
            folder = path.parent / Path(entry.get("arrays", "")).name
            return decode(entry["value"], folder, classes)
        except UNREADABLE:
            continue
    return None


def encode(value: Any, arrays: list[np.ndarray], classes: Mapping[str, type]) -> Any:
    """`value` as JSON; each array is appended to `arrays` and replaced by its number."""

    def inner(part: Any) -> Any:
        return encode(part, arrays, classes)

    match value:
        case np.generic():  # first: a numpy float is a Python float too
            coded = value.item()
        case None | bool() | int() | float() | str():
            coded = value
        case np.ndarray():
            arrays.append(value)
            coded = {ARRAY: len(arrays) - 1}
        case tuple():
            coded = {TUPLE: [inner(part) for part in value]}
        case list():
            coded = [inner(part) for part in value]
        case Mapping():
            coded = {MAP: [[inner(k), inner(v)] for k, v in value.items()]}
        case _:
            name = known(value, classes)
            fields = [f.name for f in dataclasses.fields(value) if f.init]
            coded = {RECORD: name, "fields": {f: inner(getattr(value, f)) for f in fields}}
    return coded


def known(value: object, classes: Mapping[str, type]) -> str:
    """The name under which `classes` lists the class of `value`; TypeError if it does not."""
    name = type(value).__name__
    if classes.get(name) is not type(value):
        raise TypeError(f"The store holds no {name}: it knows {', '.join(sorted(classes))}.")
    return name


def decode(value: Any, folder: Path, classes: Mapping[str, type]) -> Any:
    """The inverse of `encode`, arrays opened from `folder`.

    Errors: LookupError, TypeError, ValueError, OSError for what `encode` does not write.
    """

    def inner(part: Any) -> Any:
        return decode(part, folder, classes)

    if isinstance(value, list):
        return [inner(part) for part in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return open_array(folder / f"{int(value[ARRAY])}.npy")
    if TUPLE in value:
        return tuple(inner(part) for part in value[TUPLE])
    if MAP in value:
        return {inner(k): inner(v) for k, v in value[MAP]}
    return classes[value[RECORD]](**{k: inner(v) for k, v in value["fields"].items()})


def open_array(path: Path) -> np.ndarray:
    """A read-only array on the file; an empty one, which no file can map, is read instead."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:
        array = np.load(path, allow_pickle=False)
    plain = np.asarray(array)
    plain.flags.writeable = False
    return plain


def reachable(registry: Mapping[str, type]) -> Mapping[str, type]:
    """The registered dataclasses and those that their type hints mention, by class name."""
    found: dict[str, type] = {}
    queue = list(registry.values())
    while queue:
        cls = queue.pop()
        if found.setdefault(cls.__name__, cls) is not cls:
            raise TypeError(f"Two record classes are called {cls.__name__}: rename one.")
        hints = typing.get_type_hints(cls).values()
        queue += [c for hint in hints for c in mentioned(hint) if found.get(c.__name__) is not c]
    return types.MappingProxyType(found)


def mentioned(hint: Any) -> Iterator[type]:
    """The dataclasses that a type hint mentions, inside unions and containers too."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from mentioned(part)
