"""Tiny real checkpoints, written by transformers' own classes with every parameter moved.

Gains, biases and matrices are drawn at random: a norm gain of 1 or a bias of 0 would hide an error.
Sizes are chosen so that groups of three exist and wrong factors cannot cancel.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    ViTConfig,
    ViTForImageClassification,
    ViTForMaskedImageModeling,
    ViTModel,
)
from transformers.utils import logging

from tests.tiny_decoders import DECODERS, OLD

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
EXPERTS = {**GROUPED, "num_experts_per_tok": 3, "moe_intermediate_size": 12}
ENCODER = {"num_attention_heads": 3, "max_position_embeddings": 16}
MODERN = {
    **ENCODER,
    "pad_token_id": 0,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "local_attention": 4,
    "global_attn_every_n_layers": 2,
    "norm_eps": 1e-7,
}
BIASES = {"attention_bias": True, "mlp_bias": True, "classifier_bias": True}
IMAGES = {"num_attention_heads": 3, "image_size": 12, "patch_size": 4, "encoder_stride": 4}

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
    "mixtral": (MixtralConfig, MixtralForCausalLM, {**GROUPED, "num_local_experts": 4}),
    "qwen2_moe": (
        Qwen2MoeConfig,
        Qwen2MoeForCausalLM,
        {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 14},
    ),
    "qwen3_moe": (
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        {**EXPERTS, "num_local_experts": 4, "head_dim": 8, "norm_topk_prob": True},
    ),
    "qwen3_moe_biases": (
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        {**EXPERTS, "num_local_experts": 4, "head_dim": 8, "attention_bias": True},
    ),
    "bert_pretraining": (BertConfig, BertForPreTraining, ENCODER),
    "bert_masked": (BertConfig, BertForMaskedLM, ENCODER),
    "bert_untied": (BertConfig, BertForMaskedLM, {**ENCODER, "tie_word_embeddings": False}),
    "bert_classifier": (BertConfig, BertForSequenceClassification, {**ENCODER, "num_labels": 3}),
    "bert_two_classes": (BertConfig, BertForSequenceClassification, ENCODER),
    "bert_bare": (BertConfig, BertModel, ENCODER),
    "bert_old": (BertConfig, BertForPreTraining, ENCODER),
    "modernbert_masked": (ModernBertConfig, ModernBertForMaskedLM, MODERN),
    "modernbert_untied": (
        ModernBertConfig,
        ModernBertForMaskedLM,
        {**MODERN, **BIASES, "tie_word_embeddings": False},
    ),
    "modernbert_classifier": (
        ModernBertConfig,
        ModernBertForSequenceClassification,
        {**MODERN, **BIASES, "num_labels": 3},
    ),
    "vit": (ViTConfig, ViTForImageClassification, {**IMAGES, "num_labels": 5}),
    "vit_no_biases": (ViTConfig, ViTForImageClassification, {**IMAGES, "qkv_bias": False}),
    "vit_masked": (ViTConfig, ViTForMaskedImageModeling, IMAGES),
    "vit_bare": (ViTConfig, ViTModel, {**IMAGES, "pooler_output_size": 14}),
    **DECODERS,
}
"""Name → configuration class, model class and what differs from `SIZES`."""


def moved(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """The same model with every parameter drawn anew: gains around 1, biases around 0."""
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1 and name.endswith("weight"):
            stored_less = "gemma" in model.config.model_type  # it multiplies by 1 + gain
            drawn[name] = 0.3 * draw + (0 if stored_less else 1)
        elif parameter.ndim == 1:
            drawn[name] = 0.5 * draw
        else:
            spread = 0.5 if name.endswith("mlp.gate.weight") else 1.5  # no expert is left out
            drawn[name] = draw * parameter.shape[-1] ** -0.5 * spread
    model.load_state_dict(drawn, strict=False)
    return model


def build(architecture: str, folder: Path, seed: int = 0, **changes: object) -> Path:
    """Write a checkpoint of one of `ARCHITECTURES`; `changes` replace attributes."""
    config, model, different = ARCHITECTURES[architecture]
    sizes = {n: v for n, v in SIZES.items() if hasattr(config, n) or n in config.attribute_map}
    made = model(config(**{**sizes, **different, **changes}))
    moved(made, seed).save_pretrained(folder)
    if architecture in OLD:
        OLD[architecture](folder)
    if architecture == "bert_old":
        age(folder)
    return folder


def age(folder: Path) -> None:
    """Write BERT's tensors as old programs did: other endings, position ids, tied copies."""
    held = tensors(folder)
    ids = torch.arange(ENCODER["max_position_embeddings"]).unsqueeze(0)
    held |= {
        "bert.embeddings.position_ids": ids,
        "cls.predictions.decoder.weight": held["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": held["cls.predictions.bias"].clone(),
    }
    endings = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, old in endings.items():
        held = {name.replace(new, old): x for name, x in held.items()}
    save_file(held, folder / "model.safetensors", {"format": "pt"})


def tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor on disk by its name there."""
    return load_file(folder / "model.safetensors")


@dataclass(frozen=True)
class Network:
    """A checkpoint's model in float64, and where each of its parameters stands on disk.

    transformers renames, transposes and fuses tensors as it loads them: `places` holds, for every
    parameter in memory, the positions of its numbers in the concatenation of all tensors on disk.
    """

    model: PreTrainedModel
    names: tuple[str, ...]
    places: Mapping[str, Tensor]

    def parameters(self, state: Tensors) -> dict[str, Tensor]:
        """The parameters in memory for these tensors on disk."""
        flat = torch.cat([state[name].double().flatten() for name in self.names])
        return {name: flat[place] for name, place in self.places.items()}


@cache
def network(folder: Path) -> Network:
    """The model of a checkpoint, loaded once with numbers and once with their positions.

    Attention is computed by the implementation that stays in float64: where a norm casts to
    float32 anyway, the eager one, which covers all masks.
    """
    config = json.loads((folder / "config.json").read_text())
    state = {n: x for n, x in tensors(folder).items() if x.is_floating_point()}
    numbered, start = {}, 0
    for name, x in state.items():
        numbered[name] = torch.arange(start, start + x.numel()).double().reshape(x.shape)
        start += x.numel()
    model, places = (_loaded(config, s) for s in (state, numbered))
    numbers = places.state_dict()
    names = [name for name, _ in model.named_parameters()]  # of tied ones the first
    return Network(model, tuple(state), {name: numbers[name].long() for name in names})


def _loaded(config: Mapping[str, Any], state: Tensors) -> PreTrainedModel:
    kind = getattr(transformers, config["architectures"][0])
    layer_norm = any(name.startswith("layer_norm") for name in config)
    own = kind.config_class.from_dict(dict(config))
    own._experts_implementation = "eager"  # the fused one has no float64
    model, found = kind.from_pretrained(
        None,
        config=own,
        state_dict={name: x.double() for name, x in state.items()},
        dtype=torch.float64,
        attn_implementation="sdpa" if layer_norm else "eager",
        output_loading_info=True,
    )
    assert not (found["missing_keys"] or found["mismatched_keys"])
    return model.eval().requires_grad_(False)


@cache
def tokens(vocabulary: int = SIZES["vocab_size"], length: int = 12) -> Tensor:
    """Two sequences of random ids."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(vocabulary, (2, length), generator=generator)


@cache
def inputs(folder: Path) -> Mapping[str, Tensor]:
    """What a checkpoint's model is given: token ids (and segments), or pixels (and a mask)."""
    model = network(folder).model
    generator = torch.Generator().manual_seed(11)
    if model.main_input_name == "pixel_values":
        side, patch = model.config.image_size, model.config.patch_size
        shape = (2, model.config.num_channels, side, side)
        given = {"pixel_values": torch.randn(shape, generator=generator, dtype=torch.float64)}
        if "MaskedImage" in type(model).__name__:
            draw = torch.rand(2, (side // patch) ** 2, generator=generator)
            given["bool_masked_pos"] = draw < 0.4
        return given
    ids = tokens(model.config.vocab_size)
    if hasattr(model.config, "type_vocab_size"):
        types = torch.randint(model.config.type_vocab_size, ids.shape, generator=generator)
        return {"input_ids": ids, "token_type_ids": types}
    return {"input_ids": ids}


@torch.no_grad()
def outputs(folder: Path, state: Tensors | None = None) -> dict[str, Tensor]:
    """All outputs of a checkpoint, or of its model with other tensors in place of its own."""
    here = network(folder)
    parameters = {} if state is None else here.parameters(state)
    found = functional_call(here.model, parameters, (), dict(inputs(folder)))
    return {name: x for name, x in found.items() if isinstance(x, Tensor)}


def logits(folder: Path, state: Tensors | None = None) -> Tensor:
    """Logits in float64, [window, position, token]."""
    return outputs(folder, state)["logits"]


def predictions(folder: Path, state: Tensors | None = None) -> Tensor:
    """What a model says, all outputs in one row: log-probabilities over tokens or classes.

    Pixels stay as they are. Of hidden states, the outputs of a model without a head, only absolute
    values in order of size: no signed permutation changes them.
    """
    rows = []
    for name, x in outputs(folder, state).items():
        if "logits" in name:
            rows.append(x.log_softmax(-1))
        elif name in {"last_hidden_state", "pooler_output"}:
            rows.append(x.abs().sort(-1).values)
        elif name == "reconstruction":
            rows.append(x)
    return torch.cat([row.flatten() for row in rows])


@contextmanager
def listening(model: nn.Module, places: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Collect what modules are given (`in …`) or give (`out …`) while the model runs."""
    heard: dict[str, Tensor] = {}

    def first(x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else x[0]

    def before(place: str) -> Any:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            heard[place] = first(args or kwargs["hidden_states"])

        return hook

    def after(place: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            heard[place] = first(output)

        return hook

    handles = [
        module.register_forward_pre_hook(before(place), with_kwargs=True)
        if place.startswith("in ")
        else module.register_forward_hook(after(place))
        for place, module in places.items()
    ]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def hidden(
    folder: Path, places: Mapping[str, str], state: Tensors | None = None
) -> dict[str, Tensor]:
    """Hidden activations by place, for those of `places` (place → module path) that exist."""
    model = network(folder).model
    modules = dict(model.named_modules())
    here = {place: modules[path] for place, path in places.items() if path in modules}
    with listening(model, here) as heard:
        outputs(folder, state)
    return heard


def distance(x: Tensor, y: Tensor) -> float:
    """‖x - y‖ / ‖y‖."""
    return float((x.double() - y.double()).norm() / y.double().norm())
