"""Phi-3: Llama's block with q, k, v fused and gate, up fused; a head may be rotated in part."""

from dataclasses import replace

from engine.families import _decoders
from engine.families._coordinates import UNROTATED, sized
from engine.families.llama import FAMILY as LLAMA

LAYER = "model.layers.{l}."
QKV = LAYER + "self_attn.qkv_proj.weight"
GATE_UP = LAYER + "mlp.gate_up_proj.weight"
FUSED = "((grp head (rot + qk)) + (grp (rot* + qk*)) + (grp val))"
ROTATED = "head_dim * rope_parameters.partial_rotary_factor"

TENSORS = {
    "model.embed_tokens.weight": "tok res",
    LAYER + "input_layernorm.weight": "|res|",
    QKV: f"{FUSED} res*",
    LAYER + "self_attn.o_proj.weight": "res (grp head val*)",
    LAYER + "post_attention_layernorm.weight": "|res|",
    GATE_UP: "(|ffn| + ffn) res*",
    LAYER + "mlp.down_proj.weight": "res ffn*",
    "model.norm.weight": "|res|",
    "lm_head.weight?!tie_word_embeddings": "tok res*",
}

FAMILY = replace(
    LLAMA,
    name="Phi-3",
    model_types=("phi3",),
    coordinates={
        **LLAMA.coordinates,
        "rot": replace(LLAMA.coordinates["rot"], size=ROTATED),
        "qk": sized(UNROTATED, f"head_dim - {ROTATED}"),
    },
    tensors=TENSORS,
    compared=(
        "hidden_act", "original_max_position_embeddings",
        "partial_rotary_factor", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta",
        "sliding_window", "tie_word_embeddings",
    ),
    constants={
        "attention_bias": (False,), "full_attn_mod": (1,), "interpolate_factor": (1,),
        "is_encoder_decoder": (False,), "lm_head_bias": (False,), "mlp_bias": (False,),
    },
    defaults={
        **LLAMA.defaults,
        "rope_parameters.partial_rotary_factor": "partial_rotary_factor",
        "partial_rotary_factor": "1",
    },
    hidden={
        "in model.layers.{l}": "res",
        "out model.layers.{l}.self_attn.qkv_proj": FUSED,
        "in model.layers.{l}.self_attn.o_proj": "(grp head val)",
        "in model.layers.{l}.mlp.down_proj": "ffn",
    },
    blind=_decoders.block(TENSORS, (QKV,), (GATE_UP,)),
)  # fmt: skip
