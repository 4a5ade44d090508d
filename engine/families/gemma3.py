"""Gemma 3, the text model: Gemma 2's block with a norm on each query and key head."""

from dataclasses import replace

from engine.families import _decoders, _rows
from engine.families._coordinates import GAIN, HALF, HALF_TURN
from engine.families.gemma2 import FAMILY as GEMMA2
from engine.families.gemma2 import LESS_ONE
from engine.rows import ByLayer

ATTENTION = "model.layers.{l}.self_attn."

FAMILY = replace(
    GEMMA2,
    name="Gemma 3",
    model_types=("gemma3_text",),
    coordinates={**GEMMA2.coordinates, "rot": HALF_TURN, "gain": GAIN, "half": HALF},
    tensors={
        **{name: text.replace("rot", "half rot") for name, text in GEMMA2.tensors.items()},
        ATTENTION + "q_norm.weight": f"(half gain){LESS_ONE}",
        ATTENTION + "k_norm.weight": f"(half gain*){LESS_ONE}",
    },
    by_layer=ByLayer(
        listed=("layer_types",), periodic=("sliding_window_pattern", "_sliding_window_pattern"),
    ),
    compared=(*GEMMA2.compared, "rope_local_base_freq", "sliding_window_pattern"),
    constants={
        **GEMMA2.constants,
        "attn_logit_softcapping": (None,),
    },
    assumed={
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "sliding_window": 4096,
    },
    hidden={name: text.replace("rot", "half rot") for name, text in GEMMA2.hidden.items()},
    blind=(
        *(_decoders.with_pairs(row) for row in GEMMA2.blind),
        *_rows.norms_of_each_head(LESS_ONE),
    ),
)  # fmt: skip
