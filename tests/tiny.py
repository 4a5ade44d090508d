"""Tiny real checkpoints, written by transformers' own classes with every parameter moved.

Gains, biases and matrices are drawn at random: a norm gain of 1 or a bias of 0 would hide an error.
Sizes are chosen so that groups of three exist and wrong factors cannot cancel.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.func import functional_call
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.utils import logging

logging.disable_progress_bar()

Tensors = Mapping[str, Tensor]
SIZES = {
    "vocab_size": 96,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_attention_heads": 6, "num_key_value_heads": 3}

ARCHITECTURES: Mapping[str, tuple[type[PreTrainedConfig], type[PreTrainedModel], dict]] = {
    "llama_mha": (LlamaConfig, LlamaForCausalLM, {"num_attention_heads": 3}),
    "llama_gqa": (LlamaConfig, LlamaForCausalLM, GROUPED),
    "llama_mqa_tied": (
        LlamaConfig,
        LlamaForCausalLM,
        {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    "llama_biases": (
        LlamaConfig,
        LlamaForCausalLM,
        {**GROUPED, "attention_bias": True, "mlp_bias": True},
    ),
    "llama_head_dim": (
        LlamaConfig,
        LlamaForCausalLM,
        {"hidden_size": 18, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 6},
    ),
    "mistral_window": (MistralConfig, MistralForCausalLM, {**GROUPED, "sliding_window": 4}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, GROUPED),
}
"""Name → configuration class, model class and what differs from `SIZES`."""


def moved(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """The same model with every parameter drawn anew: gains around 1, biases around 0."""
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            drawn[name] = 1 + 0.3 * draw
        elif name.endswith(".bias"):
            drawn[name] = 0.5 * draw
        else:
            drawn[name] = draw * parameter.shape[-1] ** -0.5 * 1.5
    model.load_state_dict(drawn, strict=False)
    return model


def build(architecture: str, folder: Path, seed: int = 0, **changes: object) -> Path:
    """Write a checkpoint of one of `ARCHITECTURES`; `changes` replace attributes."""
    config, model, different = ARCHITECTURES[architecture]
    made = model(config(**{**SIZES, **different, **changes}))
    moved(made, seed).save_pretrained(folder)
    return folder


def tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor on disk by its name there."""
    return load_file(folder / "model.safetensors")


@cache
def _module(folder: Path) -> PreTrainedModel:
    _, model, _ = next(a for n, a in ARCHITECTURES.items() if folder.name.startswith(n))
    return model.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()


@cache
def tokens(vocabulary: int = SIZES["vocab_size"], length: int = 12) -> Tensor:
    """Two sequences of random ids."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(vocabulary, (2, length), generator=generator)


@torch.no_grad()
def logits(folder: Path, state: Tensors | None = None) -> Tensor:
    """Logits in float64 of a checkpoint, or of its model with other tensors in place of its own."""
    model = _module(folder)
    parameters = {} if state is None else {n: x.double() for n, x in state.items()}
    return functional_call(model, parameters, (tokens(),)).logits


def distance(x: Tensor, y: Tensor) -> float:
    """‖x - y‖ / ‖y‖."""
    return float((x.double() - y.double()).norm() / y.double().norm())
