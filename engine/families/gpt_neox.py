"""GPT-NeoX and Pythia: LayerNorm, q, k, v fused head by head, a part of each head rotated."""

from engine.families import _coordinates as common
from engine.families import _rows
from engine.family import Coordinate, Family
from engine.groups import ROTARY_HALF

LAYER = "gpt_neox.layers.{l}."
ATTENTION, MLP = LAYER + "attention.", LAYER + "mlp."
QKV = ATTENTION + "query_key_value."
UP, DOWN, OUT = MLP + "dense_h_to_4h.", MLP + "dense_4h_to_h.", ATTENTION + "dense."
FUSED = "(grp ((rot + qk) + (rot* + qk*) + val))"
ROTATED = f"{common.WIDTH} * rope_parameters.partial_rotary_factor"

TENSORS = {
    "gpt_neox.embed_in.weight": "tok res",
    LAYER + "input_layernorm.weight": "|res|",
    LAYER + "input_layernorm.bias": "res",
    QKV + "weight": f"{FUSED} res*",
    QKV + "bias?attention_bias": FUSED,
    OUT + "weight": "res (grp val*)",
    OUT + "bias?attention_bias": "res",
    ATTENTION + "bias?": "one one pos pos",
    ATTENTION + "masked_bias?": "",
    ATTENTION + "rotary_emb.inv_freq?": "freq",
    LAYER + "post_attention_layernorm.weight": "|res|",
    LAYER + "post_attention_layernorm.bias": "res",
    UP + "weight": "ffn res*",
    UP + "bias": "ffn",
    DOWN + "weight": "res ffn*",
    DOWN + "bias": "res",
    "gpt_neox.final_layer_norm.weight": "|res|",
    "gpt_neox.final_layer_norm.bias": "res",
    "embed_out.weight?!tie_word_embeddings": "tok res*",
}
FIRST, SECOND, LAST = (
    tuple(f"{norm}.{part}" for part in ("weight", "bias"))
    for norm in (
        LAYER + "input_layernorm", LAYER + "post_attention_layernorm", "gpt_neox.final_layer_norm",
    )
)  # fmt: skip
QKV_BIASES = (QKV + "bias", FIRST[1])

FAMILY = Family(
    name="GPT-NeoX",
    model_types=("gpt_neox",),
    coordinates={
        "res": common.CENTRED,
        "ffn": common.NEURON,
        "grp": common.HEAD,
        "rot": Coordinate(
            "rotary query/key channel", ROTARY_HALF, ROTATED, over=("grp",),
            why="Only what commutes with every rotation is left: one complex number a frequency.",
        ),
        "qk": common.sized(common.UNROTATED, f"{common.WIDTH} - {ROTATED}"),
        "val": common.VALUE,
        "tok": common.TOKEN,
        "pos": common.POSITION,
        "freq": common.sized(common.FREQUENCY, f"{ROTATED} / 2"),
        "one": common.ONE,
    },
    tensors=TENSORS,
    norm="LayerNorm",
    compared=(
        "attention_bias", "hidden_act", "layer_norm_eps", "partial_rotary_factor",
        "rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct",
        "tie_word_embeddings", "use_parallel_residual",
    ),
    constants={"is_encoder_decoder": (False,)},
    defaults={"rope_parameters.partial_rotary_factor": "rotary_pct", "rotary_pct": "0.25"},
    assumed={"attention_bias": True, "use_parallel_residual": True},
    harmless={"is_decoder": "attention is causal whatever it says"},
    blocks="gpt_neox.layers",
    prefix="gpt_neox.",
    hidden={
        "in gpt_neox.layers.{l}": "res",
        "out gpt_neox.layers.{l}.attention.query_key_value": FUSED,
        "in gpt_neox.layers.{l}.attention.dense": "(grp val)",
        "in gpt_neox.layers.{l}.mlp.dense_4h_to_h": "ffn",
    },
    blind=(
        _rows.gain(TENSORS, "att", "attention norm", FIRST, (QKV + "weight",)),
        _rows.gain(TENSORS, "mlp", "FFN norm", SECOND, (UP + "weight",)),
        _rows.last_gain(LAST, "embed_out.weight"),
        _rows.bias_of_norm("att_bias", "attention norm", FIRST[1], {QKV + "weight": QKV + "bias"}),
        _rows.bias_of_norm("mlp_bias", "FFN norm", SECOND[1], {UP + "weight": UP + "bias"}),
        *(
            _rows.slope(name, what, legs, QKV + "weight", FIRST[0], biases)
            for name, what, legs, biases in (
                ("query_in", "the rotated queries", "grp rot", QKV_BIASES),
                ("query_rest", "the other queries", "grp qk", QKV_BIASES),
                ("key_in", "the rotated keys", "grp rot*", QKV_BIASES),
                ("key_rest", "the other keys", "grp qk*", None),
                ("value_in", "the values", "grp val", QKV_BIASES),
            )
        ),
        _rows.slope(
            "ffn_in", "the FFN's readers", "ffn", UP + "weight", SECOND[0], (UP + "bias", SECOND[1])
        ),
        _rows.mean(
            "mean_tok", "in an untied embedding", "tok", "gpt_neox.embed_in.weight",
            ("embed_out.weight",),
        ),
        _rows.mean("mean", "written by attention", "grp val*", OUT + "weight"),
        _rows.mean("mean_bias", "in the attention's output bias", "one", OUT + "bias"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", DOWN + "weight"),
        _rows.mean("mean_ffn_bias", "in the FFN's output bias", "one", DOWN + "bias"),
        _rows.value_bias(QKV + "bias", OUT + "weight", OUT + "bias"),
        _rows.key_bias(QKV + "bias"),
        _rows.stream(
            TENSORS,
            (
                "gpt_neox.embed_in.weight", OUT + "weight", OUT + "bias", DOWN + "weight",
                DOWN + "bias",
            ),
            LAST,
            "embed_out.weight",
        ),
        _rows.common_logit("embed_out.weight"),
    ),
)  # fmt: skip
