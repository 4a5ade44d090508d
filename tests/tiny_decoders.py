"""The tiny decoders: every family of them, every variant that its table has rows for."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

POSITIONS = 16
GROUPED = {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8}
SMALL = 1e-7
"""ε of the norms: directions that hold up to ε must show nothing else."""
PLAIN = {
    "num_attention_heads": 3,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": SMALL,
}
GPT2 = {
    "num_attention_heads": 3,
    "n_inner": 20,
    "n_positions": POSITIONS,
    "layer_norm_epsilon": SMALL,
}
OPT = {
    "num_attention_heads": 3,
    "ffn_dim": 20,
    "word_embed_proj_dim": 24,
    "max_position_embeddings": POSITIONS,
}
GEMMA = {**GROUPED, "query_pre_attn_scalar": 8, "sliding_window": 4}
KINDS = {"layer_types": ["sliding_attention", "full_attention"]}
CAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}
UNTIED_BIASES = {"attention_bias": True, "tie_word_embeddings": False}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
PHI3 = {
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "pad_token_id": 0,
    "rms_norm_eps": SMALL,
}
OLMO2 = {**GROUPED, "rms_norm_eps": SMALL}
COHERE = {**GROUPED, "logit_scale": 0.5, "layer_norm_eps": SMALL}

DECODERS: Mapping[str, tuple[type[PreTrainedConfig], type[PreTrainedModel], dict]] = {
    "llama3_scaling": (
        LlamaConfig,
        LlamaForCausalLM,
        {**GROUPED, "rope_parameters": LLAMA3, "max_position_embeddings": 128},
    ),
    "gpt2": (GPT2Config, GPT2LMHeadModel, GPT2),
    "gpt2_untied": (GPT2Config, GPT2LMHeadModel, {**GPT2, "tie_word_embeddings": False}),
    "gpt2_old": (GPT2Config, GPT2LMHeadModel, {**GPT2, "n_inner": None}),
    "gpt_neox": (GPTNeoXConfig, GPTNeoXForCausalLM, {**PLAIN, "rotary_pct": 0.5}),
    "gpt_neox_full": (
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        {**PLAIN, "rotary_pct": 1.0, "use_parallel_residual": False},
    ),
    "gpt_neox_tied": (
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        {**PLAIN, "rotary_pct": 0.5, "attention_bias": False, "tie_word_embeddings": True},
    ),
    "gpt_neox_old": (GPTNeoXConfig, GPTNeoXForCausalLM, {**PLAIN, "rotary_pct": 0.5}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, GROUPED),
    "qwen3_tied": (Qwen3Config, Qwen3ForCausalLM, {**GROUPED, "tie_word_embeddings": True}),
    "qwen3_biases": (Qwen3Config, Qwen3ForCausalLM, {**GROUPED, "attention_bias": True}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {**GEMMA, **CAPS}),
    "gemma2_biases": (Gemma2Config, Gemma2ForCausalLM, {**GEMMA, **UNTIED_BIASES}),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, {**GEMMA, **KINDS}),
    "gemma3_biases": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {**GEMMA, **KINDS, **UNTIED_BIASES},
    ),
    "phi3": (Phi3Config, Phi3ForCausalLM, PHI3),
    "phi3_partial": (
        Phi3Config,
        Phi3ForCausalLM,
        {**PHI3, "hidden_size": 48, "partial_rotary_factor": 0.5},
    ),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM, OLMO2),
    "olmo2_biases": (Olmo2Config, Olmo2ForCausalLM, {**OLMO2, "attention_bias": True}),
    "gptj": (GPTJConfig, GPTJForCausalLM, {**GPT2, "rotary_dim": 4}),
    "gptj_full": (GPTJConfig, GPTJForCausalLM, {**GPT2, "n_inner": None, "rotary_dim": 8}),
    "gptj_old": (GPTJConfig, GPTJForCausalLM, {**GPT2, "rotary_dim": 4}),
    "opt": (OPTConfig, OPTForCausalLM, OPT),
    "opt_untied": (OPTConfig, OPTForCausalLM, {**OPT, "tie_word_embeddings": False}),
    "cohere": (CohereConfig, CohereForCausalLM, COHERE),
    "cohere_biases": (
        CohereConfig,
        CohereForCausalLM,
        {**COHERE, **UNTIED_BIASES},
    ),
}
"""Name → configuration class, model class and what differs from the common sizes."""


def masks(prefix: str) -> dict[str, Tensor]:
    """What old programs stored beside the weights of attention: the mask and its low score."""
    mask = torch.ones(POSITIONS, POSITIONS).tril()[None, None]
    held = {f"{prefix.format(l=layer)}bias": mask.clone() for layer in range(2)}
    low = torch.tensor(-1e9)
    return held | {f"{prefix.format(l=layer)}masked_bias": low.clone() for layer in range(2)}


def _rewrite(folder: Path, held: dict[str, Tensor]) -> None:
    save_file(held, folder / "model.safetensors", {"format": "pt"})


def old_gpt2(folder: Path) -> None:
    """Without the prefix `transformer.`, with masks."""
    held = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): x for name, x in held.items()}
    _rewrite(folder, bare | masks("h.{l}.attn."))


def old_gptj(folder: Path) -> None:
    """With masks."""
    held = load_file(folder / "model.safetensors")
    _rewrite(folder, held | masks("transformer.h.{l}.attn."))


def old_gpt_neox(folder: Path) -> None:
    """With masks and tables of frequencies; the rotary embedding in its own attributes."""
    held = load_file(folder / "model.safetensors") | masks("gpt_neox.layers.{l}.attention.")
    for layer in range(2):
        name = f"gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq"
        held[name] = 10000.0 ** -(torch.arange(2.0) / 2)
    _rewrite(folder, held)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps({**config, "rotary_pct": 0.5, "rotary_emb_base": 10000}))


OLD: Mapping[str, Callable[[Path], None]] = {
    "gpt2_old": old_gpt2,
    "gpt_neox_old": old_gpt_neox,
    "gptj_old": old_gptj,
}
"""Checkpoints rewritten as old programs left them."""
