"""Running a model: random inputs, its outputs over tokens or classes, their log-probabilities."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine import network, prepared, shared, texts
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


def random_inputs(
    checkpoint: Checkpoint, windows: int, length: int, seed: int, known: int | None = None
) -> Tensor:
    """Random token ids [windows, length], or pixels [windows, channels, height, width].

    Ids are below `known` where it is given.
    """
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
    return torch.randint(known or sizes["tok"], (windows, shortest), generator=generator)


def decodes(checkpoint: Checkpoint) -> bool:
    """Whether a model predicts next tokens."""
    return network.network_class(checkpoint.config).__name__.endswith(("CausalLM", "LMHeadModel"))


class Headless(Refused):
    """A model without an output over tokens or classes."""


def responses(model: PreTrainedModel, inputs: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every output for all windows in float32 or finer, classes last, on the CPU."""
    parts = [
        {name: (x if x.dtype == torch.float64 else x.float()).cpu() for name, x in part.items()}
        for part in outputs(model, inputs)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def normalised(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Log-probabilities over the classes of every output; what is no distribution as it is.

    Logits themselves may shift by a common amount that nobody can observe.
    """
    return {name: x if name in VALUES else x.log_softmax(-1) for name, x in found.items()}


def log_probabilities(
    model: PreTrainedModel, inputs: Tensor | Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Log-probabilities of every output of a model."""
    return normalised(responses(model, inputs))


def logits(model: PreTrainedModel, inputs: Tensor | Mapping[str, Tensor]) -> Tensor:
    """The first output of all windows, classes last; Headless without one over classes."""
    found = responses(model, inputs)
    if not set(OUTPUTS) & set(found):
        raise Headless(
            f"{type(model).__name__} has no output over tokens or classes, so nothing can be "
            "compared: open the model with its head."
        )
    return next(iter(found.values()))


def divergence(before: Tensor, after: Tensor) -> float:
    """Mean KL(before ‖ after) of log-probabilities over positions, nats, never below 0."""
    p, q = before.double(), after.double()
    return max(float((p.exp() * (p - q)).sum(-1).mean()), 0.0)


@dataclass(frozen=True)
class Given:
    """What models are run on."""

    inputs: Tensor
    what: str
    text: bool  # a text, whose next tokens a decoder predicts


def from_text(
    checkpoint: Checkpoint, text: str, count: int, other: Checkpoint | None = None
) -> Given:
    """About `count` tokens of a text, or the images of a file; Refused as these are.

    With a second model, windows with tokens that only one of both knows are left out.
    """
    if checkpoint.family.inputs == "pixels" and prepared.is_prepared(text):
        pixels = torch.from_numpy(prepared.read(checkpoint, Path(text)).main)
        return Given(pixels, f"{len(pixels)} images of {Path(text).name}", text=False)
    ids, gone = read(checkpoint, text, count, other)
    what = f"{ids.size} tokens of {texts.describe(checkpoint, text, ids)}"
    return Given(torch.from_numpy(ids), f"{what} ({gone})" if gone else what, text=True)


def read(
    checkpoint: Checkpoint, text: str, count: int, other: Checkpoint | None
) -> tuple[np.ndarray, str]:
    """The tokens of a text that one model or two know, and what was left out, in words."""
    if other is None:
        return shared.own(checkpoint, texts.tokens(checkpoint, text, count)), ""
    return shared.shared(checkpoint, other, text, count)


def at_random(checkpoint: Checkpoint, windows: int, length: int, seed: int = 0) -> Given:
    """Random ids, or images for a model of images."""
    inputs = random_inputs(checkpoint, windows, length, seed)
    images = checkpoint.family.inputs == "pixels"
    what = f"{windows} random images" if images else f"{inputs.numel()} random token ids"
    return Given(inputs, what, text=False)


def require_signal(found: Mapping[str, Tensor], name: str) -> None:
    """Refused where every output is the same number everywhere: no change could show."""
    if not any(float(x.max() - x.min()) > 0 for x in found.values()):
        raise Refused(
            f"Every output of {name} is the same number, so that no change could show: take a "
            "trained checkpoint."
        )
