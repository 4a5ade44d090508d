"""GPT-J: LayerNorm, attention and FFN side by side, neighbours rotated in a part of each head."""

from engine.families import _coordinates as common
from engine.families import _rows
from engine.family import Coordinate, Family
from engine.groups import ROTARY_NEIGHBOURS

LAYER = "transformer.h.{l}."
ATTENTION, MLP = LAYER + "attn.", LAYER + "mlp."
QUERY, KEY = "(grp (rot + qk))", "(grp (rot* + qk*))"

TENSORS = {
    "transformer.wte.weight": "tok res",
    LAYER + "ln_1.weight": "|res|",
    LAYER + "ln_1.bias": "res",
    ATTENTION + "q_proj.weight": f"{QUERY} res*",
    ATTENTION + "k_proj.weight": f"{KEY} res*",
    ATTENTION + "v_proj.weight": "(grp val) res*",
    ATTENTION + "out_proj.weight": "res (grp val*)",
    ATTENTION + "bias?": "one one pos pos",
    ATTENTION + "masked_bias?": "",
    MLP + "fc_in.weight": "ffn res*",
    MLP + "fc_in.bias": "ffn",
    MLP + "fc_out.weight": "res ffn*",
    MLP + "fc_out.bias": "res",
    "transformer.ln_f.weight": "|res|",
    "transformer.ln_f.bias": "res",
    "lm_head.weight?!tie_word_embeddings": "tok res*",
    "lm_head.bias": "tok",
}
NORM, LAST = (
    tuple(f"{norm}.{part}" for part in ("weight", "bias"))
    for norm in (LAYER + "ln_1", "transformer.ln_f")
)
READERS = (
    ATTENTION + "q_proj.weight", ATTENTION + "k_proj.weight", ATTENTION + "v_proj.weight",
    MLP + "fc_in.weight",
)  # fmt: skip

FAMILY = Family(
    name="GPT-J",
    model_types=("gptj",),
    coordinates={
        "res": common.sized(common.CENTRED, "n_embd"),
        "ffn": common.sized(common.NEURON, "n_inner"),
        "grp": common.sized(common.HEAD, "n_head"),
        "rot": Coordinate(
            "rotary query/key channel", ROTARY_NEIGHBOURS, "rotary_dim", over=("grp",),
            why="Only what commutes with every rotation is left: one complex number a frequency.",
        ),
        "qk": common.sized(common.UNROTATED, "n_embd / n_head - rotary_dim"),
        "val": common.sized(common.VALUE, "n_embd / n_head"),
        "tok": common.TOKEN,
        "pos": common.sized(common.POSITION, "n_positions"),
        "one": common.ONE,
    },
    tensors=TENSORS,
    norm="LayerNorm",
    compared=("activation_function", "layer_norm_epsilon", "tie_word_embeddings"),
    constants={
        "is_encoder_decoder": (False,), "rotary": (True,), "scale_attn_weights": (True,),
    },
    defaults={"n_inner": "4 * n_embd", "rotary_dim": "64"},
    harmless={
        "n_ctx": "an older name of a length limit",
        "n_positions": "a length limit; rotary embeddings have no parameters",
        **dict.fromkeys(
            (
                "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                "summary_type", "summary_use_proj",
            ),
            "of a classifier's head",
        ),
    },
    depth="n_layer",
    blocks="transformer.h",
    prefix="transformer.",
    hidden={
        "in transformer.h.{l}": "res",
        "out transformer.h.{l}.attn.q_proj": QUERY,
        "out transformer.h.{l}.attn.k_proj": KEY,
        "in transformer.h.{l}.attn.out_proj": "(grp val)",
        "in transformer.h.{l}.mlp.fc_out": "ffn",
    },
    blind=(
        _rows.gain(TENSORS, "att", "block's norm", NORM, READERS, size="n_embd"),
        _rows.last_gain(LAST, size="n_embd"),
        _rows.bias_of_norm(
            "fin_bias", "last norm", LAST[1], {"lm_head.weight": "lm_head.bias"}
        ),
        _rows.slope("key_in", "the keys without rotation", "grp qk*", READERS[1], NORM[0]),
        _rows.slope(
            "ffn_in", "the FFN's readers", "ffn", READERS[3], NORM[0],
            (MLP + "fc_in.bias", NORM[1]),
        ),
        _rows.slope(
            "fin_in", "an untied head", "tok", "lm_head.weight", LAST[0], ("lm_head.bias", LAST[1])
        ),
        _rows.mean(
            "mean_tok", "in an untied embedding", "tok", "transformer.wte.weight",
            ("lm_head.weight",),
        ),
        _rows.mean("mean", "written by attention", "grp val*", ATTENTION + "out_proj.weight"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", MLP + "fc_out.weight"),
        _rows.mean("mean_ffn_bias", "in the FFN's output bias", "one", MLP + "fc_out.bias"),
        _rows.stream(
            TENSORS,
            (
                "transformer.wte.weight", ATTENTION + "out_proj.weight", MLP + "fc_out.weight",
                MLP + "fc_out.bias",
            ),
            LAST,
        ),
        _rows.common_logit(),
        _rows.one_logit("lm_head.bias"),
    ),
)  # fmt: skip
