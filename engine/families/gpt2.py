"""GPT-2: LayerNorm, learned positions, one fused projection; weights are stored [in, out]."""

from engine.blind import Blind, Move
from engine.families import _coordinates as common
from engine.families import _rows
from engine.family import Family
from engine.rows import ByLayer

LAYER = "transformer.h.{l}."
ATTENTION, MLP = LAYER + "attn.", LAYER + "mlp."
FUSED = "((grp qk) + (grp qk*) + (grp val))"

TENSORS = {
    "transformer.wte.weight": "tok res",
    "transformer.wpe.weight": "pos res",
    LAYER + "ln_1.weight": "|res|",
    LAYER + "ln_1.bias": "res",
    ATTENTION + "c_attn.weight": f"res* {FUSED}",
    ATTENTION + "c_attn.bias": FUSED,
    ATTENTION + "c_proj.weight": "(grp val*) res",
    ATTENTION + "c_proj.bias": "res",
    ATTENTION + "bias?": "one one pos pos",
    ATTENTION + "masked_bias?": "",
    LAYER + "ln_2.weight": "|res|",
    LAYER + "ln_2.bias": "res",
    MLP + "c_fc.weight": "res* ffn",
    MLP + "c_fc.bias": "ffn",
    MLP + "c_proj.weight": "ffn* res",
    MLP + "c_proj.bias": "res",
    "transformer.ln_f.weight": "|res|",
    "transformer.ln_f.bias": "res",
    "lm_head.weight?!tie_word_embeddings": "tok res*",
}
FIRST, SECOND, LAST = (
    tuple(f"{norm}.{part}" for part in ("weight", "bias"))
    for norm in (LAYER + "ln_1", LAYER + "ln_2", "transformer.ln_f")
)
ATTENTION_BIASES = (ATTENTION + "c_attn.bias", FIRST[1])
SUMMARY = "of a classifier's head"

FAMILY = Family(
    name="GPT-2",
    model_types=("gpt2",),
    coordinates={
        "res": common.sized(common.CENTRED, "n_embd"),
        "ffn": common.sized(common.NEURON, "n_inner"),
        "grp": common.sized(common.HEAD, "n_head"),
        "qk": common.sized(common.UNROTATED, "n_embd / n_head"),
        "val": common.sized(common.VALUE, "n_embd / n_head"),
        "tok": common.TOKEN,
        "pos": common.sized(common.POSITION, "n_positions"),
        "one": common.ONE,
    },
    tensors=TENSORS,
    norm="LayerNorm",
    compared=(
        "activation_function", "layer_norm_epsilon", "n_positions",
        "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "tie_word_embeddings",
    ),
    constants={"add_cross_attention": (False,), "is_encoder_decoder": (False,)},
    defaults={"n_inner": "4 * n_embd"},
    assumed={"tie_word_embeddings": True, "scale_attn_weights": True},
    harmless={
        "n_ctx": "an older name of a length limit",
        "reorder_and_upcast_attn": "precision only",
        **dict.fromkeys(
            (
                "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                "summary_type", "summary_use_proj",
            ),
            SUMMARY,
        ),
    },
    depth="n_layer",
    blocks="transformer.h",
    by_layer=ByLayer(indexed=("scale_attn_by_inverse_layer_idx",)),
    prefix="transformer.",
    hidden={
        "in transformer.h.{l}": "res",
        "out transformer.h.{l}.attn.c_attn": FUSED,
        "in transformer.h.{l}.attn.c_proj": "(grp val)",
        "in transformer.h.{l}.mlp.c_proj": "ffn",
    },
    blind=(
        _rows.gain(
            TENSORS, "att", "attention norm", FIRST, (ATTENTION + "c_attn.weight",), size="n_embd"
        ),
        _rows.gain(TENSORS, "mlp", "FFN norm", SECOND, (MLP + "c_fc.weight",), size="n_embd"),
        _rows.last_gain(LAST, size="n_embd"),
        _rows.bias_of_norm(
            "att_bias", "attention norm", FIRST[1],
            {ATTENTION + "c_attn.weight": ATTENTION + "c_attn.bias"},
        ),
        _rows.bias_of_norm(
            "mlp_bias", "FFN norm", SECOND[1], {MLP + "c_fc.weight": MLP + "c_fc.bias"}
        ),
        *(
            _rows.slope(name, what, legs, ATTENTION + "c_attn.weight", FIRST[0], biases)
            for name, what, legs, biases in (
                ("query_in", "the query projection", "grp qk", ATTENTION_BIASES),
                ("key_in", "the key projection", "grp qk*", None),
                ("value_in", "the value projection", "grp val", ATTENTION_BIASES),
            )
        ),
        _rows.slope(
            "ffn_in", "the FFN's readers", "ffn", MLP + "c_fc.weight", SECOND[0],
            (MLP + "c_fc.bias", SECOND[1]),
        ),
        _rows.mean("mean", "written by attention", "grp val*", ATTENTION + "c_proj.weight"),
        _rows.mean("mean_bias", "in the attention's output bias", "one", ATTENTION + "c_proj.bias"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", MLP + "c_proj.weight"),
        _rows.mean("mean_ffn_bias", "in the FFN's output bias", "one", MLP + "c_proj.bias"),
        _rows.mean("mean_pos", "in position embeddings", "pos", "transformer.wpe.weight"),
        Blind(
            "pos_tok", "a common vector of positions against that of tokens",
            "Every token has one position, and the two are added; through a tied head the vector "
            "shifts all logits of a position alike.",
            shift="res",
            moves=(Move("transformer.wpe.weight", 1), Move("transformer.wte.weight", -1)),
        ),
        _rows.value_bias(
            ATTENTION + "c_attn.bias", ATTENTION + "c_proj.weight", ATTENTION + "c_proj.bias"
        ),
        _rows.key_bias(ATTENTION + "c_attn.bias"),
        _rows.stream(
            TENSORS,
            (
                "transformer.wte.weight", "transformer.wpe.weight",
                ATTENTION + "c_proj.weight", ATTENTION + "c_proj.bias",
                MLP + "c_proj.weight", MLP + "c_proj.bias",
            ),
            LAST,
        ),
        _rows.common_logit(),
    ),
)  # fmt: skip
