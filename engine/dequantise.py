"""A GGUF file as a plain float32 checkpoint, through transformers' own reader.

The reader undoes llama.cpp's row order of rotary queries and keys; its names are then those of the
model in memory, and saving the model gives the names on disk.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import modeling_gguf_pytorch_utils as reader

from engine.errors import Cancelled, Progress, Refused
from engine.headers import some
from engine.network import quiet, require_memory

TRACES = ("_model_name_or_path", "unk_token_id")
"""Attributes that the reader adds: the file's title, and a token that is the tokenizer's."""


def dequantise(file: Path, folder: Path, progress: Progress) -> None:
    """Write `file` as a float32 safetensors checkpoint with its tokenizer into `folder`.

    Errors: Refused when memory is short, and for a file that transformers cannot read, with its
    reason in one line.
    """
    try:
        with quiet(), counted(progress):
            source = {"gguf_file": file.name, "local_files_only": True}
            config = AutoConfig.from_pretrained(file.parent, **source)
            network(file, config).save_pretrained(folder)
            AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(folder)
    except (Refused, Cancelled, torch.OutOfMemoryError):
        raise
    except Exception as error:  # readers of damaged files raise whatever they stumble over
        reason = " ".join(str(error).split())[:300]
        raise Refused(f"{file} cannot be dequantised by transformers ({reason}).") from error


def network(file: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """The model with the file's tensors in float32; Refused when the file lacks some."""
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    require_memory(skeleton.num_parameters(), torch.float32, torch.device("cpu"))
    read = reader.load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=skeleton)
    model, found = type(skeleton).from_pretrained(
        None,
        config=plain(config),
        state_dict=read["tensors"],
        dtype=torch.float32,
        output_loading_info=True,
    )
    if lacking := sorted(found["missing_keys"]):
        raise Refused(f"{file} lacks {some(lacking)}, which the model needs: download it again.")
    return model


def plain(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration without traces of its source, floats as they were before float32."""
    values = {
        name: shortest(value) if isinstance(value, float) else value
        for name, value in config.to_dict().items()
        if name not in TRACES
    }
    return type(config).from_dict(values | {"_name_or_path": ""})


def shortest(value: float) -> float:
    """The shortest decimal that rounds to the same float32: 9.999999747378752e-06 is 1e-05."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    if single != value:
        return value
    return next(v for v in (float(f"{value:.{n}g}") for n in range(1, 18)) if narrow(v) == value)


def narrow(value: float) -> float:
    """`value` rounded to float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


@contextmanager
def counted(progress: Progress) -> Iterator[None]:
    """Report each tensor that transformers' reader converts, in place of the bar it would print."""

    def count(items: Sequence[Any], **_: object) -> Iterator[Any]:
        for done, item in enumerate(items):
            progress(0.9 * done / len(items), f"dequantising tensor {done + 1} of {len(items)}")
            yield item

    bar = vars(reader)["tqdm"]
    setattr(reader, "tqdm", count)  # noqa: B010 (the reader offers no other way to be silent)
    try:
        yield
    finally:
        setattr(reader, "tqdm", bar)  # noqa: B010
