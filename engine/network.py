"""A checkpoint as a transformers model that computes: loading, building, running, memory."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import torch
import transformers
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

from engine.allocation import keep, release
from engine.checkpoint import Checkpoint
from engine.errors import Refused, Short
from engine.headers import read_json, some

DTYPES = ("float32", "bfloat16", "float16", "float64")
ALLOWANCE = 512 * 2**20
"""Bytes kept free beside the models: activations of one batch, logits, the interpreter."""
GIB = 2**30
_SILENCE = threading.RLock()


def load(
    checkpoint: Checkpoint,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    """The model in evaluation mode, without gradients, from safetensors on disk only.

    Errors: Refused when memory is short, when the files lack a tensor that the model needs (it
    would be filled with random numbers), and for weights that are not finite.
    """
    _ = checkpoint.family
    if checkpoint.view:
        return build(checkpoint, {n: checkpoint.read(n) for n in checkpoint.headers}, device, dtype)
    where = device or torch.device("cpu")
    require_memory(checkpoint.parameters, dtype, where)
    folder = {"use_safetensors": True, "local_files_only": True}
    model = assemble(checkpoint.name, checkpoint.config, dtype, checkpoint.folder, **folder)
    return ready(model, checkpoint.name, where)


def build(
    checkpoint: Checkpoint,
    tensors: Mapping[str, Tensor],
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    config: Mapping[str, Any] | None = None,
) -> PreTrainedModel:
    """The model with these tensors under their names on disk; `config` replaces the checkpoint's.

    Nothing is shared with `tensors`. Errors: as for `load`.
    """
    where = device or torch.device("cpu")
    require_memory(sum(t.numel() for t in tensors.values()), dtype, where)
    # Tensors that already have the dtype would be used as they are, not copied.
    state = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    values = checkpoint.config if config is None else config
    model = assemble(checkpoint.name, values, dtype, None, state_dict=state)
    return ready(model, checkpoint.name, where)


def assemble(
    name: str, config: Mapping[str, Any], dtype: torch.dtype, source: Path | None, **how: Any
) -> PreTrainedModel:
    """transformers' model from a folder or a state; Refused unless every tensor was there.

    transformers fills what is missing or has another shape with random numbers: it is asked to
    report both.
    """
    keep()
    kind = cast(Any, network_class(config))
    if _needs_plain_experts(config, dtype):
        how["experts_implementation"] = "eager"
    try:
        with quiet():
            model, found = kind.from_pretrained(
                source,
                config=configuration(config),
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **how,
            )
    except torch.OutOfMemoryError:
        raise
    except Refused:
        raise
    except (RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise Refused(f"{name} is not loaded by transformers ({reason}).") from error
    lacking = sorted({*found["missing_keys"], *(str(key[0]) for key in found["mismatched_keys"])})
    if lacking:
        raise Refused(
            f"{name} lacks {some(lacking)}, which the model needs: download or save it again."
        )
    return model


def _needs_plain_experts(config: Mapping[str, Any], dtype: torch.dtype) -> bool:
    """The fused product of experts has no float64, and wants rows of whole 16 bytes."""
    width = config.get("moe_intermediate_size") or config.get("intermediate_size") or 0
    return dtype == torch.float64 or bool(width * dtype.itemsize % 16)


def ready(model: PreTrainedModel, name: str, where: torch.device) -> PreTrainedModel:
    """The model checked for finite weights, frozen, on its device."""
    require_finite(model, name)
    return frozen(model, where)


def frozen(model: PreTrainedModel, where: torch.device) -> PreTrainedModel:
    """The model in evaluation mode, without gradients and without a cache, on its device."""
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return cast(Any, model.requires_grad_(False).eval()).to(where)


def require_finite(model: PreTrainedModel, name: str) -> None:
    """Refused, with tensor and count, for weights that are NaN or infinite."""
    for key, tensor in model.state_dict().items():
        bad = tensor.numel() - int(tensor.isfinite().sum())
        if bad:
            raise Refused(
                f"{name}: {key} holds {bad} values of {tensor.numel()} that are not finite (NaN "
                "or infinite): take an earlier checkpoint, or a wider dtype."
            )


def network_class(config: Mapping[str, Any]) -> type[PreTrainedModel]:
    """transformers' own class that the configuration names, else the causal language model.

    A configuration is untrusted: only a model class of its own `model_type` is taken.
    """
    names = config.get("architectures") or [""]
    found = getattr(transformers, str(names[0]), None)
    if isinstance(found, type) and issubclass(found, PreTrainedModel):
        own = found.config_class
        if own is not None and own.model_type == config["model_type"]:
            return found
    return cast(Any, MODEL_FOR_CAUSAL_LM_MAPPING[type(configuration(config))])


def configuration(config: Mapping[str, Any]) -> transformers.PreTrainedConfig:
    """transformers' configuration of a config.json; Refused for values that it does not accept."""
    try:
        return CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    except Exception as error:
        reason = " ".join(str(error).split())[-200:]
        raise Refused(
            f"transformers does not accept this configuration ({reason}); mend config.json."
        ) from error


VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""Without one of these files a tokenizer knows no words, and reads every text as one unknown."""


def tokenizer(
    checkpoint: Checkpoint, instead: str = "give token ids instead of a text"
) -> Tokenizer:
    """The checkpoint's tokenizer; Refused when it has none, or one that needs its own code.

    `instead` says what to do without one.
    """
    folder = checkpoint.folder
    if not any((folder / name).is_file() for name in VOCABULARIES):
        raise Refused(f"{checkpoint.name} has no tokenizer that opens: {instead}.")
    declared = folder / "tokenizer_config.json"
    if declared.is_file() and read_json(declared).get("auto_map"):
        raise Refused(f"{declared} declares custom code (auto_map), which is never run.")
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise Refused(f"{checkpoint.name} has no tokenizer that opens: {instead}.") from error


def device(name: str = "auto") -> torch.device:
    """The device of a name: auto, cpu, cuda, cuda:i or mps; Refused for one that is not here."""
    if name == "auto":
        return torch.device(available()[-1])
    kind, _, number = name.partition(":")
    known = kind in {"cpu", "cuda", "mps"} and (not number or (kind == "cuda" and number.isdigit()))
    if not known:
        raise Refused(f"There is no device {name!r}: write auto, cpu, cuda, cuda:0 or mps.")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if kind not in available() or int(number or 0) >= count:
        here = some(available())
        raise Refused(f"The device {name} is not available: this machine has {here}.")
    return torch.device(name)


def available() -> list[str]:
    """The kinds of device of this machine, the fastest last."""
    kinds = ["cpu"]
    if torch.backends.mps.is_available():
        kinds.append("mps")
    if torch.cuda.is_available():
        kinds.append("cuda")
    return kinds


def dtype(name: str) -> torch.dtype:
    """The torch dtype of a name; Refused for one that is not computed with."""
    if name not in DTYPES:
        raise Refused(f"There is no dtype {name!r}: write {', '.join(DTYPES)}.")
    return getattr(torch, name)


def require_memory(
    parameters: int,
    dtype: torch.dtype,
    device: torch.device,
    models: int = 1,
    allowance: int = ALLOWANCE,
) -> None:
    """Short unless models * parameters * itemsize + allowance (bytes) are free on the device."""
    release()
    need = models * parameters * dtype.itemsize + allowance
    free = free_memory(device)
    if need > free:
        kind = str(dtype).removeprefix("torch.")
        smaller = "" if dtype.itemsize <= 2 else ", or a smaller dtype such as bfloat16"
        raise Short(
            f"{models} model{'s' * (models != 1)} of {parameters / 1e6:,.0f} M parameters in "
            f"{kind} and {allowance / GIB:.1f} GiB for the work need {need / GIB:.1f} GiB, "
            f"{device} has {free / GIB:.1f} GiB free: choose a smaller model{smaller}."
        )


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return psutil.virtual_memory().available


SMALL = 10_000_000
"""Parameters below which a second torch thread costs more than it brings."""


def suited(*checkpoints: Checkpoint) -> int:
    """How many torch threads a job on these models should use: one for small ones, else torch's."""
    large = any(checkpoint.parameters >= SMALL for checkpoint in checkpoints)
    return torch.get_num_threads() if large else 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run a job on `count` torch threads: two busy jobs with all threads each slow each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(count, os.cpu_count() or 1)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing: bars stay off, remarks are left out meanwhile.

    Whatever matters in its remarks is checked, and refused in one line.
    """
    with _SILENCE:
        if logging.is_progress_bar_enabled():
            logging.disable_progress_bar()
        level = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(level)
