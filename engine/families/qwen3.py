"""Qwen3: Llama's block with a norm on each query and key head, whose gains all heads share."""

from dataclasses import replace

from engine.families import _decoders, _rows
from engine.families._coordinates import GAIN, HALF, HALF_TURN
from engine.families.llama import FAMILY as LLAMA
from engine.rows import ByLayer

ATTENTION = "model.layers.{l}.self_attn."

TENSORS = {
    **{
        name: text.replace("rot", "half rot")
        for name, text in LLAMA.tensors.items()
        if not name.endswith("?mlp_bias")
    },
    ATTENTION + "q_norm.weight": "(half gain)",
    ATTENTION + "k_norm.weight": "(half gain*)",
}

FAMILY = replace(
    LLAMA,
    name="Qwen3",
    model_types=("qwen3",),
    coordinates={**LLAMA.coordinates, "rot": HALF_TURN, "gain": GAIN, "half": HALF},
    tensors=TENSORS,
    by_layer=ByLayer(listed=("layer_types",), counted=("max_window_layers",)),
    compared=(
        "attention_bias", "hidden_act", "layer_types", "max_window_layers", "rms_norm_eps",
        "rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "tie_word_embeddings",
        "use_sliding_window",
    ),
    constants={"is_encoder_decoder": (False,)},
    defaults={"num_key_value_heads": "num_attention_heads", "head_dim": "128"},
    hidden={name: text.replace("rot", "half rot") for name, text in LLAMA.hidden.items()},
    blind=(*_decoders.block(TENSORS), *_rows.norms_of_each_head()),
)  # fmt: skip
