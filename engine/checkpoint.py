"""A checkpoint opened lazily: its configuration and headers, one tensor at a time, and writing one.

Importing this module and opening a checkpoint need the standard library only.
"""

import hashlib
import mmap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.agreement import differences
from engine.errors import Progress, Refused, silent
from engine.fingerprints import fingerprint, sampled
from engine.headers import DTYPES, Header, read_headers, read_json, some
from engine.writing import TOKENIZER, new_folder, write_checkpoint

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from engine.family import Family


@dataclass(frozen=True)
class Checkpoint:
    """Configuration and headers of a model on disk; its tensors are read when asked for."""

    name: str  # as the user named it
    folder: Path
    config: Mapping[str, Any]
    headers: Mapping[str, Header]
    fingerprint: str  # of the content, never of the path
    view: bool = False  # headers and configuration are not those of the files, see `untied`

    @cached_property
    def family(self) -> "Family":
        """The table of its architecture, once it has been checked against this checkpoint.

        Errors: Refused for an architecture without a table, an attribute that the table does not
        know, and tensors that are unknown, missing or of another shape.
        """
        from engine.family import family_of  # noqa: PLC0415 (the tables need torch)

        family = family_of(self.config)
        family.check(self.config, {name: h.shape for name, h in self.headers.items()})
        return family

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return self.family.layers(self.config)

    @property
    def tied(self) -> bool:
        """Whether embedding and unembedding are one tensor."""
        return self.family.sets(self.config, "tie_word_embeddings")

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors on disk."""
        return sum(h.stop - h.start for h in self.headers.values())

    @property
    def stamps(self) -> tuple[int, ...]:
        """mtime_ns of every file that the fingerprint read only in part.

        It belongs in the key of a result, since such a file may change unseen, and not in the
        fingerprint, since a copy is the same model.
        """
        status = [path.stat() for path in sorted({h.file for h in self.headers.values()})]
        return tuple(s.st_mtime_ns for s in status if sampled(s.st_size))

    @cached_property
    def tokenizer(self) -> str:
        """32 hexadecimal digits of SHA-256 over the files by which text becomes tokens.

        Their names and bytes enter, the folder does not; empty where there is no such file.
        Errors: Refused for one that cannot be read.
        """
        found = {path for pattern in TOKENIZER for path in self.folder.glob(pattern)}
        state = hashlib.sha256()
        try:
            files = [path for path in sorted(found) if path.is_file()]
            for path in files:
                content = hashlib.sha256(path.read_bytes()).digest()
                state.update(path.name.encode() + b"\0" + content)
        except OSError as error:
            raise Refused(f"{self.folder} cannot be read: {error.strerror or error}.") from error
        return state.hexdigest()[:32] if files else ""

    @property
    def parameters(self) -> int:
        """Number of values in all tensors on disk."""
        return sum(h.parameters for h in self.headers.values())

    @property
    def dtype(self) -> str:
        """The dtype that holds most values, in torch's word."""
        total: dict[str, int] = {}
        for h in self.headers.values():
            total[h.dtype] = total.get(h.dtype, 0) + h.parameters
        most = max(total, key=lambda kind: total[kind])
        return DTYPES.get(most, most)

    def spelled_like(self, other: "Checkpoint") -> "Checkpoint":
        """The same checkpoint, its tensors under the names that the other's file gives them."""
        names = {other.family.row(name).name: name for name in other.headers}
        rows = {name: self.family.row(name).name for name in self.headers}
        headers = {names.get(rows[name], name): h for name, h in self.headers.items()}
        return replace(self, headers=headers)

    def read(self, name: str, *, mapped: bool = False) -> "Tensor":
        """One tensor in its dtype on disk and in memory of its own.

        `mapped`: its values stay pages of the file until they are written to. Fast, for what is
        looked at once and let go: whoever cuts the file short meanwhile ends this process.

        Errors: Refused for a name that is not there, a dtype without arithmetic, a file changed
        since it was opened, and for values that are not finite.
        """
        import torch  # noqa: PLC0415 (headers need no torch)

        if name not in self.headers:
            raise Refused(f"{self.name} has no tensor {name}: it has {some(sorted(self.headers))}.")
        h = self.headers[name]
        if h.dtype not in DTYPES:
            raise Refused(
                f"{self.name}: {name} is stored as {h.dtype}, which is not computed with: convert "
                "it to bfloat16 or float32."
            )
        dtype = getattr(torch, DTYPES[h.dtype])
        if not h.parameters:
            return torch.empty(h.shape, dtype=dtype)
        found = self.pages(h) if mapped else self.values(h)
        tensor = torch.frombuffer(found, dtype=dtype).reshape(h.shape)
        # A sum is finite only if all its terms are, and far cheaper than counting them.
        whole = not tensor.is_floating_point() or bool(tensor.sum().isfinite())
        bad = 0 if whole else h.parameters - int(tensor.isfinite().sum())
        if bad:
            raise Refused(
                f"{self.name}: {name} holds {bad} values of {h.parameters} that are not finite "
                "(NaN or infinite): take an earlier checkpoint."
            )
        return tensor

    def values(self, h: Header) -> "np.ndarray":
        """The bytes of one tensor; Refused when the file no longer has them."""
        import numpy as np  # noqa: PLC0415 (headers need no numpy)

        raw = np.empty(h.stop - h.start, np.uint8)
        try:
            with h.file.open("rb") as file:
                file.seek(h.start)
                found = file.readinto(raw.data)
        except OSError as error:
            raise Refused(f"{h.file} cannot be read any more ({error.strerror}).") from error
        if found != len(raw):
            raise Refused(shorter(h))
        return raw

    def pages(self, h: Header) -> "memoryview | np.ndarray":
        """The same as pages of the file; copied where they would not stand on whole numbers."""
        if h.start % 8:
            return self.values(h)
        before = h.start % mmap.ALLOCATIONGRANULARITY
        try:
            with h.file.open("rb") as file:
                size = h.stop - h.start + before
                found = mmap.mmap(
                    file.fileno(), size, access=mmap.ACCESS_COPY, offset=h.start - before
                )
        except OSError as error:
            raise Refused(f"{h.file} cannot be read any more ({error.strerror}).") from error
        except ValueError as error:
            raise Refused(shorter(h)) from error
        return memoryview(found)[before:]


def shorter(h: Header) -> str:
    """The message for a file that no longer has a tensor's bytes."""
    return f"{h.file} became shorter since it was opened: open the model again."


def open_checkpoint(
    spec: str | Path, *, offline: bool = False, progress: Progress = silent
) -> Checkpoint:
    """The checkpoint that `spec` names (see `engine.sources`), by configuration and headers alone.

    Errors: Refused with one line for everything that is not a whole, plain safetensors checkpoint.
    Whether its architecture has a table is checked by `Checkpoint.family`.
    """
    from engine.sources import resolve  # noqa: PLC0415 (sources open checkpoints too)

    return open_folder(resolve(spec, offline=offline, progress=progress), str(spec))


def open_folder(folder: Path, name: str) -> Checkpoint:
    """The checkpoint in a folder, under the name that its user knows it by."""
    if not folder.exists():
        raise Refused(
            f"The folder {folder} does not exist: give an existing one, or hf:owner/name for a "
            "model on the hub."
        )
    if not folder.is_dir():
        raise Refused(f"{folder} is a file: give the folder that holds config.json and weights.")
    try:
        if not (folder / "config.json").is_file():
            what = "has no config.json" if any(folder.iterdir()) else "is empty"
            raise Refused(f"{folder} {what}: give one with config.json and safetensors weights.")
        config = read_json(folder / "config.json")
        refuse_custom(folder, config)
        headers = read_headers(folder)
        return Checkpoint(name, folder, config, headers, fingerprint(config, headers))
    except OSError as error:
        raise Refused(f"{folder} cannot be read: {error.strerror or error}.") from error


def refuse_custom(folder: Path, config: Mapping[str, Any]) -> None:
    """Refused for models that are more, or less, than a plain table of numbers."""
    if config.get("auto_map"):
        raise Refused(
            f"{folder} declares custom code (auto_map), which is never run: only architectures "
            f"with a table are opened ({', '.join(model_types())})."
        )
    if config.get("quantization_config"):
        found = config["quantization_config"]
        method = found.get("quant_method", "unknown") if isinstance(found, dict) else "unknown"
        raise Refused(
            f"{folder} is quantised ({method}): its stored numbers cannot be permuted or compared; "
            "open the unquantised original, or a GGUF file, which is dequantised on opening."
        )


def model_types() -> list[str]:
    """The `model_type`s that have a table."""
    from engine.families import FAMILIES  # noqa: PLC0415 (the tables need torch)

    return sorted(kind for family in FAMILIES for kind in family.model_types)


def require_same_group(a: Checkpoint, b: Checkpoint, but: Collection[str] = ()) -> None:
    """Refused unless one symmetry group acts on both: same table, sizes and compared attributes.

    Vocabularies may differ, and the sizes of the coordinates in `but` (`ffn`: the width of a
    feed-forward network). The message names the attribute and both values.
    """
    for what, mine, theirs in differences(a.family, a.config, b.family, b.config, but):
        raise Refused(
            f"No symmetry takes {b.name} to {a.name}: {what} is {mine!r} in {a.name} and "
            f"{theirs!r} in {b.name}; compare two models that agree in it."
        )


def save_checkpoint(
    folder: str | Path,
    tensors: "Iterable[tuple[str, Tensor]]",
    like: Checkpoint,
    dtype: "torch.dtype | None" = None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint that transformers loads: shards of at most 1 GB, config, tokenizer.

    `tensors` are consumed one by one, so that at most one shard is in memory; floating ones are
    written in `dtype` (default: their own). `config` replaces that of `like`, whose tokenizer and
    generation files are copied. Everything is written to a temporary folder beside `folder`,
    opened again as a check, and renamed.

    Errors: Refused when `folder` exists and is not empty, when it cannot be written, and when what
    was written is no whole checkpoint.
    """
    values = like.config if config is None else config
    with new_folder(Path(folder)) as staged:
        write_checkpoint(staged, tensors, values, like.folder, dtype)
        _ = open_folder(staged, str(folder)).family
