"""Inputs that the user prepared: pixels or token ids, with labels or without, from one file."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from engine.checkpoint import Checkpoint
from engine.errors import Refused

SUFFIXES = (".npz", ".safetensors")
MAIN = {"pixels": "pixel_values", "tokens": "input_ids"}
"""How transformers calls what a model reads, by the family's word for it."""
MASK, LABELS = "attention_mask", "labels"
KIND = "a .npz or .safetensors file with {} and, for a classifier, labels"


@dataclass(frozen=True)
class Prepared:
    """Windows of one kind of input, checked against the model that reads them."""

    main: Float[np.ndarray, "windows channels height width"] | Int[np.ndarray, "windows length"]
    kept: Bool[np.ndarray, "windows positions"]  # False where a window is filled up; of images one
    labels: Int[np.ndarray, " windows"] | None  # the class of each window


def is_prepared(text: str) -> bool:
    """Whether what a question reads is such a file, by its name."""
    return text.endswith(SUFFIXES)


def read(checkpoint: Checkpoint, path: Path) -> Prepared:
    """The file's inputs for a model: pixels as float32, ids as int64 and 0 where they are filling.

    Errors: Refused for what is no such file, for a tensor that is missing or strange to the model,
    and for shapes, ids and labels that the configuration denies.
    """
    name = MAIN[checkpoint.family.inputs]
    held = _tensors(path, name)
    if name not in held:
        raise Refused(
            f"Inputs file {path} must hold {name}, which {checkpoint.name} reads; found "
            f"{', '.join(sorted(held)) or 'nothing'}: store it under that name."
        )
    known = {name, LABELS, *((MASK,) if name == MAIN["tokens"] else ())}
    strange = sorted(held.keys() - known)
    if strange:
        raise Refused(
            f"Inputs file {path} holds {', '.join(strange)}; only {', '.join(sorted(known))} are "
            f"read for {checkpoint.name}: leave it out."
        )
    if name == MAIN["pixels"]:
        main = _pixels(checkpoint, held[name], path)
        kept = np.ones((len(main), 1), dtype=np.bool_)
    else:
        main, kept = _ids(checkpoint, held[name], held.get(MASK), path)
    labels = _labels(checkpoint, held[LABELS], len(main), path) if LABELS in held else None
    return Prepared(main, kept, labels)


def positions(checkpoint: Checkpoint) -> int:
    """The longest window of a model."""
    sizes = checkpoint.family.sizes(checkpoint.config)
    found = (sizes.get("pos"), checkpoint.config.get("max_position_embeddings"))
    return int(min((limit for limit in found if limit), default=2**31))


def classes(checkpoint: Checkpoint) -> int | None:
    """How many classes a classification head tells apart; None for a model without one."""
    from engine.axes import legs  # noqa: PLC0415 (it imports torch)

    rows = (checkpoint.family.row(name) for name in checkpoint.headers)
    if any(leg.name == "cls" for row in rows for leg in legs(row.axes)):
        return checkpoint.family.sizes(checkpoint.config)["cls"]
    return None


def _tensors(path: Path, name: str) -> Mapping[str, np.ndarray]:
    """Every array of a file by its name."""
    kind = KIND.format(name)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise Refused(f"Inputs file {path} {what}; give {kind}.")
    try:
        return _npz(path) if path.suffix == SUFFIXES[0] else _safetensors(path)
    except OSError as error:
        why = error.strerror or error
        raise Refused(f"Inputs file {path} cannot be read ({why}); give {kind}.") from error
    except Exception as error:  # what a damaged file makes its reader say has many classes
        reason = " ".join(str(error).split())[:120]
        raise Refused(f"{path} is no {path.suffix} file ({reason}); give {kind}.") from error


def _npz(path: Path) -> Mapping[str, np.ndarray]:
    """Numbers only: pickled objects would run what they say."""
    if not zipfile.is_zipfile(path):
        raise zipfile.BadZipFile("no archive of arrays")
    with np.load(path, allow_pickle=False) as held:
        return {name: np.asarray(held[name]) for name in held.files}


def _safetensors(path: Path) -> Mapping[str, np.ndarray]:
    import torch  # noqa: PLC0415 (slow to import)
    from safetensors.torch import load_file  # noqa: PLC0415

    held = load_file(path)
    return {n: (x.float() if x.dtype == torch.bfloat16 else x).numpy() for n, x in held.items()}


def _pixels(checkpoint: Checkpoint, x: np.ndarray, path: Path) -> np.ndarray:
    side = checkpoint.config["image_size"]
    height, width = side if isinstance(side, list) else (side, side)
    wanted = (int(checkpoint.config["num_channels"]), height, width)
    if x.ndim != 4 or not len(x) or x.shape[1:] != wanted:
        raise Refused(
            f"pixel_values in {path} must be [images, channels, height, width] with "
            f"{' × '.join(map(str, wanted))} as {checkpoint.name} reads them, found "
            f"{list(x.shape)}: resize them."
        )
    if not np.issubdtype(x.dtype, np.floating):
        raise Refused(
            f"pixel_values in {path} must be floating-point numbers, normalised as in the "
            f"training of {checkpoint.name}, found {x.dtype}."
        )
    with np.errstate(over="ignore"):  # told below
        found = x.astype(np.float32)
    if not np.isfinite(found).all():
        bad = int((~np.isfinite(found)).sum())
        raise Refused(f"pixel_values in {path} hold {bad} values that are no finite float32.")
    return found


def _ids(
    checkpoint: Checkpoint, x: np.ndarray, mask: np.ndarray | None, path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Ids, 0 where they are filling, and what is none; as for JSON files of ids."""
    longest, vocabulary = positions(checkpoint), int(checkpoint.config["vocab_size"])
    if x.ndim != 2 or not len(x) or not 1 <= x.shape[1] <= longest:
        raise Refused(
            f"input_ids in {path} must be [windows, length], 1 to {longest} tokens in each (the "
            f"longest window of {checkpoint.name}), found {list(x.shape)}."
        )
    _whole("input_ids", x, path)
    kept = _filled(x, mask, path)
    wrong = x[kept & ((x < 0) | (x >= vocabulary))]
    if len(wrong):
        raise Refused(
            f"input_ids in {path} must be from 0 to {vocabulary - 1} (the vocabulary of "
            f"{checkpoint.name}), found {wrong[0]}."
        )
    return np.where(kept, x, 0).astype(np.int64), kept


def _filled(x: np.ndarray, mask: np.ndarray | None, path: Path) -> np.ndarray:
    """What is no filling: windows may be filled up at their ends alone."""
    kept = np.ones(x.shape, dtype=np.bool_) if mask is None else mask == 1
    if kept.shape != x.shape or (mask is not None and not np.isin(mask, (0, 1)).all()):
        found = "other numbers" if mask is None or mask.shape == x.shape else list(mask.shape)
        raise Refused(
            f"attention_mask in {path} must be 1 for tokens and 0 for filling, {list(x.shape)} "
            f"like input_ids, found {found}."
        )
    if not kept[:, 0].all() or (kept[:, 1:] & ~kept[:, :-1]).any():
        raise Refused(
            f"attention_mask in {path} must be 1 from the start of every window and 0 after its "
            "last token: fill windows up on the right."
        )
    return kept


def _labels(checkpoint: Checkpoint, x: np.ndarray, windows: int, path: Path) -> np.ndarray:
    known = classes(checkpoint)
    if known is None:
        raise Refused(
            f"{path} holds labels, and {checkpoint.name} has no classification head to ask for "
            "them: leave them out."
        )
    if x.shape != (windows,):
        raise Refused(
            f"labels in {path} must be [{windows}], one for each input, found {list(x.shape)}."
        )
    _whole("labels", x, path)
    wrong = x[(x < 0) | (x >= known)]
    if len(wrong):
        raise Refused(
            f"labels in {path} must be from 0 to {known - 1} (the classes of {checkpoint.name}), "
            f"found {wrong[0]}."
        )
    return x.astype(np.int64)


def _whole(name: str, x: np.ndarray, path: Path) -> None:
    if not np.issubdtype(x.dtype, np.integer):
        raise Refused(f"{name} in {path} must be whole numbers, found {x.dtype}.")
