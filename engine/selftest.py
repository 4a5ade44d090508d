"""The self-test of a checkpoint: a random gauge of every coordinate must leave the logits alone."""

import time

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine import network
from engine.action import act
from engine.checkpoint import Checkpoint
from engine.errors import Progress, silent
from engine.records import SelfTest
from engine.symmetry import sample

WINDOWS, LENGTH = 2, 48


def self_test(
    checkpoint: Checkpoint,
    device: str = "auto",
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress = silent,
) -> SelfTest:
    """Largest change of any logit, relative to the largest logit, on random token ids.

    The share of tensors that moved is part of the result: a gauge that does nothing proves nothing.
    """
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    vocabulary = int(checkpoint.config["vocab_size"])
    ids = torch.randint(vocabulary, (WINDOWS, LENGTH), generator=generator)
    where, kind = network.device(device), network.dtype(dtype)
    progress(0.0, f"loading {checkpoint.name}")
    before = logits(network.load(checkpoint, where, kind), ids)
    g = sample(checkpoint.family, checkpoint.config, generator)
    changed: dict[str, Tensor] = {}
    moved = 0
    for number, name in enumerate(checkpoint.headers):
        progress(0.3 + 0.4 * number / len(checkpoint.headers), f"new coordinates for {name}")
        x = checkpoint.read(name).to(kind)
        changed[name] = act(g, name, x)
        moved += not torch.equal(changed[name], x)
    progress(0.7, "the same tokens through the changed model")
    after = logits(network.build(checkpoint, changed, where, kind), ids)
    difference = float((after - before).abs().max())
    return SelfTest(
        error=difference / max(float(before.abs().max()), 1e-300),
        difference=difference,
        moved=moved / len(checkpoint.headers),
        tensors=len(checkpoint.headers),
        seed=seed,
        device=str(where),
        dtype=dtype,
        seconds=time.perf_counter() - began,
    )


def logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Logits of all windows, [window, position, vocabulary], on the CPU."""
    return torch.cat([part.cpu() for part in network.logits(model, ids)])
