"""Gemma 2: Llama's attention with norms before and after each part; gains are stored less 1."""

from dataclasses import replace

from engine.families import _decoders, _rows
from engine.families.llama import FAMILY as LLAMA
from engine.rows import ByLayer

LAYER = "model.layers.{l}."
THIRD = LAYER + "pre_feedforward_layernorm.weight"
AFTER = (
    LAYER + "post_attention_layernorm.weight", LAYER + "post_feedforward_layernorm.weight",
)  # fmt: skip
LESS_ONE = " - 1"

TENSORS = {
    **{name: text for name, text in LLAMA.tensors.items() if not name.endswith("?mlp_bias")},
    THIRD: "|res|",
    AFTER[1]: "|res|",
}

FAMILY = replace(
    LLAMA,
    name="Gemma 2",
    model_types=("gemma2",),
    tensors=TENSORS,
    compared=(
        "attention_bias", "attn_logit_softcapping", "final_logit_softcapping",
        "hidden_activation", "layer_types", "query_pre_attn_scalar", "rms_norm_eps",
        "rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "tie_word_embeddings",
    ),
    by_layer=ByLayer(listed=("layer_types",), periodic=("_sliding_window_pattern",)),
    constants={"is_encoder_decoder": (False,), "use_bidirectional_attention": (None, False)},
    defaults={"num_key_value_heads": "4", "head_dim": "256"},
    assumed={
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
        "sliding_window": 4096,
    },
    harmless={
        "hidden_act": "an older name: hidden_activation is used",
        "sliding_window_size": "an older name: sliding_window is used",
        "_sliding_window_pattern": "said again in layer_types",
    },
    blind=(
        *_decoders.gains(TENSORS, THIRD, offset=LESS_ONE),
        _rows.stream(
            TENSORS, ("model.embed_tokens.weight", *AFTER), ("model.norm.weight",), offset=LESS_ONE
        ),
        *_decoders.outputs(TENSORS, AFTER, LESS_ONE),
        _rows.value_bias(_decoders.VALUE_BIAS, _decoders.OUT, _decoders.OUT_BIAS),
    ),
)  # fmt: skip
