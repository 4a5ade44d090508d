"""Writing a checkpoint: shards, their index, the configuration, and what is copied along."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import Refused
from engine.headers import INDEX, SINGLE

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SHARD = 1_000_000_000
"""Most bytes of tensors in one file that is written."""
TOKENIZER = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "*.tiktoken", "spiece.model", "sentencepiece*.model",
)  # fmt: skip
"""The files by which a text becomes tokens."""
COMPANIONS = (
    *TOKENIZER, "chat_template*", "generation_config.json", "preprocessor_config.json",
    "processor_config.json",
)  # fmt: skip
"""What is copied beside new weights: how text or pixels enter and how text is generated."""


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill: renamed to `target` when the block ends well, gone when it does not.

    Errors: Refused when `target` is no folder, exists and is not empty, or cannot be written.
    """
    try:
        if target.exists() and not target.is_dir():
            what = "a file" if target.is_file() else "no folder"
            raise Refused(f"{target} is {what}: give a new folder.")
        if target.exists() and any(target.iterdir()):
            raise Refused(f"{target} exists and is not empty: give a new folder.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
        ) as made:
            staged = Path(made) / target.name
            staged.mkdir()
            yield staged
            staged.replace(target)
    except OSError as error:
        raise Refused(f"{target} cannot be written: {error.strerror or error}.") from error


def write_checkpoint(
    folder: Path,
    tensors: "Iterable[tuple[str, Tensor]]",
    config: Mapping[str, Any],
    source: Path,
    dtype: "torch.dtype | None",
) -> None:
    """Tensors, configuration and the companions of `source` into an empty folder."""
    write_config(folder, config, write_weights(folder, tensors, dtype))
    copy_companions(source, folder)


def write_weights(
    folder: Path, tensors: "Iterable[tuple[str, Tensor]]", dtype: "torch.dtype | None"
) -> set[str]:
    """One `model.safetensors`, or numbered shards and their index; the float dtypes written."""
    from safetensors.torch import save_file  # noqa: PLC0415 (headers need no torch)

    where: dict[str, int] = {}
    kinds: set[str] = set()
    total = count = 0
    for count, shard in enumerate(shards(tensors, dtype), start=1):
        save_file(shard, folder / f"shard-{count}", metadata={"format": "pt"})
        where |= dict.fromkeys(shard, count)
        total += sum(t.nbytes for t in shard.values())
        kinds |= {
            str(t.dtype).removeprefix("torch.") for t in shard.values() if t.is_floating_point()
        }
    if count == 1:
        (folder / "shard-1").rename(folder / SINGLE)
        return kinds
    names = {n: f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)}
    for number, name in names.items():
        (folder / f"shard-{number}").rename(folder / name)
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: names[number] for name, number in sorted(where.items())},
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return kinds


def shards(
    tensors: "Iterable[tuple[str, Tensor]]", dtype: "torch.dtype | None"
) -> "Iterator[dict[str, Tensor]]":
    """Groups of at most `SHARD` bytes (or one larger tensor), in memory of their own."""
    import torch  # noqa: PLC0415 (headers need no torch)

    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        # A copy even where nothing changes: the format refuses tensors that share memory.
        own = tensor.detach().to("cpu", kind, copy=True, memory_format=torch.contiguous_format)
        if shard and size + own.nbytes > SHARD:
            yield shard
            shard, size = {}, 0
        shard[name] = own
        size += own.nbytes
    yield shard


def write_config(folder: Path, config: Mapping[str, Any], kinds: set[str]) -> None:
    """`config.json` with the dtype that was written, where there is just one."""
    values = dict(config)
    if len(kinds) == 1:
        values["torch_dtype" if "torch_dtype" in values else "dtype"] = kinds.pop()
    text = json.dumps(values, indent=2, sort_keys=True)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def copy_companions(source: Path, target: Path) -> None:
    """Copy the tokenizer and generation files, links followed."""
    for path in {path for pattern in COMPANIONS for path in source.glob(pattern)}:
        if path.is_file():
            shutil.copyfile(path, target / path.name)
