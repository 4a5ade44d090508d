"""Cohere: LayerNorm without bias, attention and FFN side by side, neighbours rotated."""

from dataclasses import replace

from engine.families import _decoders, _rows
from engine.families._coordinates import CENTRED
from engine.families.llama import FAMILY as LLAMA
from engine.groups import ROTARY_NEIGHBOURS

NORM = "model.layers.{l}.input_layernorm.weight"

TENSORS = {
    name: text
    for name, text in LLAMA.tensors.items()
    if not name.endswith(("?mlp_bias", "post_attention_layernorm.weight"))
}
READERS = (
    _decoders.QUERIES, _decoders.KEYS, _decoders.VALUES, _decoders.GATE, _decoders.UP,
)  # fmt: skip

FAMILY = replace(
    LLAMA,
    name="Cohere",
    model_types=("cohere",),
    coordinates={
        **LLAMA.coordinates,
        "res": CENTRED,
        "rot": replace(LLAMA.coordinates["rot"], group=ROTARY_NEIGHBOURS),
    },
    tensors=TENSORS,
    norm="LayerNorm",
    compared=(
        "attention_bias", "hidden_act", "layer_norm_eps", "logit_scale", "rope_parameters",
        "rope_scaling", "rope_theta", "tie_word_embeddings",
    ),
    constants={
        "is_encoder_decoder": (False,), "pretraining_tp": (1,), "use_qk_norm": (None, False),
    },
    assumed={
        "tie_word_embeddings": True, "logit_scale": 0.0625, "layer_norm_eps": 1e-5,
        "hidden_act": "silu", "rope_theta": 500000.0,
    },
    harmless={"model_max_length": "a length limit"},
    blind=(
        _rows.gain(TENSORS, "att", "block's norm", (NORM,), READERS),
        _rows.last_gain(("model.norm.weight",)),
        *(
            _rows.slope(name, what, legs, matrix, NORM)
            for (name, what, legs), matrix in zip(
                (
                    ("query_in", "the query projection", "grp head rot"),
                    ("key_in", "the key projection", "grp rot*"),
                    ("value_in", "the value projection", "grp val"),
                    ("gate_in", "the gate projection", "|ffn|"),
                    ("up_in", "the up projection", "ffn"),
                ),
                READERS,
                strict=True,
            )
        ),
        _rows.slope("fin_in", "an untied head", "tok", "lm_head.weight", "model.norm.weight"),
        _rows.mean("mean_tok", "in an untied embedding", "tok", "model.embed_tokens.weight",
                   ("lm_head.weight",)),
        _rows.mean("mean", "written by attention", "grp head val*", _decoders.OUT),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", _decoders.DOWN),
        _rows.stream(
            TENSORS,
            _decoders.written(TENSORS, "model.embed_tokens.weight", _decoders.OUT, _decoders.DOWN),
            ("model.norm.weight",),
        ),
        _rows.value_bias(_decoders.VALUE_BIAS, _decoders.OUT, _decoders.OUT_BIAS),
        _rows.common_logit(),
    ),
)  # fmt: skip
