"""Running a model: random inputs, its outputs over tokens or classes, their log-probabilities."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.checkpoint import Checkpoint
from engine.errors import Refused

OUTPUTS = ("logits", "prediction_logits", "seq_relationship_logits")
"""What transformers calls the outputs that are distributions over classes."""
HIDDEN = "last_hidden_state"
"""What a model without a head gives: the residual stream itself."""
VALUES = ("reconstruction", HIDDEN)
"""Outputs that are no distributions."""


def outputs(
    model: PreTrainedModel, inputs: Tensor | Mapping[str, Tensor], batch: int = 8
) -> Iterator[dict[str, Tensor]]:
    """Logits by name, classes last, of `batch` windows at a time, on the model's device.

    `inputs` are token ids [window, position], or the model's named inputs with windows first. A
    model without a head gives one of `VALUES` instead.
    """
    named = {model.main_input_name: inputs} if isinstance(inputs, Tensor) else inputs
    count = len(next(iter(named.values())))
    for start in range(0, count, batch):
        part = {k: v[start : start + batch].to(model.device) for k, v in named.items()}
        with torch.inference_mode():
            found = model(**part)
        names = [name for name in OUTPUTS if name in found] or [n for n in VALUES if n in found]
        yield {name: found[name] for name in names}


def random_inputs(checkpoint: Checkpoint, windows: int, length: int, seed: int) -> Tensor:
    """Random token ids [windows, length], or pixels [windows, channels, height, width]."""
    generator = torch.Generator().manual_seed(seed)
    config = checkpoint.config
    if checkpoint.family.inputs == "pixels":
        side = config["image_size"]
        height, width = side if isinstance(side, list) else (side, side)
        shape = (windows, int(config["num_channels"]), height, width)
        return torch.randn(shape, generator=generator)
    sizes = checkpoint.family.sizes(config)
    limits = (sizes.get("pos"), config.get("max_position_embeddings"), length)
    shortest = min(limit for limit in limits if limit)
    return torch.randint(sizes["tok"], (windows, shortest), generator=generator)


class Headless(Refused):
    """A model without an output over tokens or classes."""


def log_probabilities(
    model: PreTrainedModel, inputs: Tensor | Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Log-probabilities of every output over its classes, on the CPU; a bare hidden state as it is.

    Logits themselves may shift by a common amount that nobody can observe.
    """
    parts = [
        {name: _normalised(name, x).cpu() for name, x in part.items()}
        for part in outputs(model, inputs)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _normalised(name: str, x: Tensor) -> Tensor:
    finer = x if x.dtype == torch.float64 else x.float()
    return finer if name in VALUES else finer.log_softmax(-1)


def logits(model: PreTrainedModel, inputs: Tensor | Mapping[str, Tensor]) -> Tensor:
    """The first output of all windows, classes last, on the CPU; Headless without one."""
    parts = list(outputs(model, inputs))
    if not set(OUTPUTS) & set(parts[0]):
        raise Headless(
            f"{type(model).__name__} has no output over tokens or classes, so nothing can be "
            "compared: open the model with its head."
        )
    return torch.cat([next(iter(part.values())).cpu() for part in parts])


def require_signal(found: Mapping[str, Tensor], name: str) -> None:
    """Refused where every output is the same number everywhere: no change could show."""
    if not any(float(x.max() - x.min()) > 0 for x in found.values()):
        raise Refused(
            f"Every output of {name} is the same number, so that no change could show: take a "
            "trained checkpoint."
        )
