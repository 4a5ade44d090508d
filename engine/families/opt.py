"""OPT: LayerNorm, learned positions, ReLU neurons, each with a positive scale of its own."""

from dataclasses import replace

from engine.families import _coordinates as common
from engine.families import _rows
from engine.family import Family
from engine.groups import POSITIVE

LAYER = "model.decoder.layers.{l}."
ATTENTION = LAYER + "self_attn."
READERS = {ATTENTION + f"{word}_proj.weight": ATTENTION + f"{word}_proj.bias" for word in "qkv"}

TENSORS = {
    "model.decoder.embed_tokens.weight": "tok res",
    "model.decoder.embed_positions.weight": "pos res",
    LAYER + "self_attn_layer_norm.weight": "|res|",
    LAYER + "self_attn_layer_norm.bias": "res",
    ATTENTION + "q_proj.weight": "(grp qk) res*",
    ATTENTION + "q_proj.bias": "(grp qk)",
    ATTENTION + "k_proj.weight": "(grp qk*) res*",
    ATTENTION + "k_proj.bias": "(grp qk*)",
    ATTENTION + "v_proj.weight": "(grp val) res*",
    ATTENTION + "v_proj.bias": "(grp val)",
    ATTENTION + "out_proj.weight": "res (grp val*)",
    ATTENTION + "out_proj.bias": "res",
    LAYER + "final_layer_norm.weight": "|res|",
    LAYER + "final_layer_norm.bias": "res",
    LAYER + "fc1.weight": "ffn res*",
    LAYER + "fc1.bias": "ffn",
    LAYER + "fc2.weight": "res ffn*",
    LAYER + "fc2.bias": "res",
    "model.decoder.final_layer_norm.weight": "|res|",
    "model.decoder.final_layer_norm.bias": "res",
    "lm_head.weight?!tie_word_embeddings": "tok res*",
}
FIRST, SECOND, LAST = (
    tuple(f"{norm}layer_norm.{part}" for part in ("weight", "bias"))
    for norm in (LAYER + "self_attn_", LAYER + "final_", "model.decoder.final_")
)

FAMILY = Family(
    name="OPT",
    model_types=("opt",),
    coordinates={
        "res": common.CENTRED,
        "ffn": replace(
            common.sized(common.NEURON, "ffn_dim"),
            group=POSITIVE,
            why="ReLU treats all neurons alike and passes a positive scale.",
        ),
        "grp": common.HEAD,
        "qk": common.UNROTATED,
        "val": common.VALUE,
        "tok": common.TOKEN,
        "pos": common.sized(common.POSITION, "max_position_embeddings + 2"),
    },
    tensors=TENSORS,
    norm="LayerNorm",
    compared=("tie_word_embeddings",),
    constants={
        "_remove_final_layer_norm": (False,),
        "activation_function": ("relu",),
        "do_layer_norm_before": (True,),
        "enable_bias": (True,),
        "is_encoder_decoder": (False,),
        "layer_norm_elementwise_affine": (True,),
    },
    assumed={"tie_word_embeddings": True},
    harmless={
        "dropout": "training only",
        "init_std": "before training only",
        "layerdrop": "training only",
        "prefix": "text only",
        "word_embed_proj_dim": "where it is not the width, the file has tensors of its own",
    },
    blocks="model.decoder.layers",
    prefix="model.",
    hidden={
        "in model.decoder.layers.{l}": "res",
        "out model.decoder.layers.{l}.self_attn.q_proj": "(grp qk)",
        "out model.decoder.layers.{l}.self_attn.k_proj": "(grp qk*)",
        "in model.decoder.layers.{l}.self_attn.out_proj": "(grp val)",
        "in model.decoder.layers.{l}.fc2": "ffn",
    },
    blind=(
        _rows.gain(TENSORS, "att", "attention norm", FIRST, tuple(READERS)),
        _rows.gain(TENSORS, "mlp", "FFN norm", SECOND, (LAYER + "fc1.weight",)),
        _rows.last_gain(LAST),
        _rows.bias_of_norm("att_bias", "attention norm", FIRST[1], READERS),
        _rows.bias_of_norm(
            "mlp_bias", "FFN norm", SECOND[1], {LAYER + "fc1.weight": LAYER + "fc1.bias"}
        ),
        *(
            _rows.slope(name, what, legs, matrix, norm[0], (bias, norm[1]))
            for (name, what, legs), norm, (matrix, bias) in zip(
                (
                    ("query_in", "the query projection", "grp qk"),
                    ("key_in", "the key projection", "grp qk*"),
                    ("value_in", "the value projection", "grp val"),
                    ("ffn_in", "the FFN's reader", "ffn"),
                ),
                (FIRST, FIRST, FIRST, SECOND),
                (*READERS.items(), (LAYER + "fc1.weight", LAYER + "fc1.bias")),
                strict=True,
            )
        ),
        _rows.mean("mean", "written by attention", "grp val*", ATTENTION + "out_proj.weight"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", LAYER + "fc2.weight"),
        _rows.value_bias(
            ATTENTION + "v_proj.bias", ATTENTION + "out_proj.weight", ATTENTION + "out_proj.bias"
        ),
        _rows.key_bias(ATTENTION + "k_proj.bias"),
        _rows.common_logit(),
    ),
)  # fmt: skip
