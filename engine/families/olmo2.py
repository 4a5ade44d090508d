"""OLMo 2: no norm before a part but one after it, and norms over all queries and all keys."""

from dataclasses import replace

from engine.families import _decoders, _rows
from engine.families._coordinates import GAIN, HALF, HALF_TURN
from engine.families.llama import FAMILY as LLAMA

LAYER = "model.layers.{l}."
AFTER = (
    LAYER + "post_attention_layernorm.weight", LAYER + "post_feedforward_layernorm.weight",
)  # fmt: skip

TENSORS = {
    **{
        name: text.replace("rot", "half rot")
        for name, text in LLAMA.tensors.items()
        if not name.endswith(("?mlp_bias", "input_layernorm.weight"))
    },
    LAYER + "self_attn.q_norm.weight": "(grp head half gain)",
    LAYER + "self_attn.k_norm.weight": "(grp half gain*)",
    AFTER[1]: "|res|",
}
READERS = (
    _decoders.QUERIES, _decoders.KEYS, _decoders.VALUES, _decoders.GATE, _decoders.UP,
)  # fmt: skip

FAMILY = replace(
    LLAMA,
    name="OLMo 2",
    model_types=("olmo2",),
    coordinates={
        **LLAMA.coordinates,
        "rot": HALF_TURN,
        "gain": replace(GAIN, over=("grp",)),
        "half": HALF,
    },
    tensors=TENSORS,
    compared=(
        "attention_bias", "hidden_act", "rms_norm_eps", "rope_parameters", "rope_scaling",
        "rope_theta", "tie_word_embeddings",
    ),
    constants={"is_encoder_decoder": (False,)},
    hidden={name: text.replace("rot", "half rot") for name, text in LLAMA.hidden.items()},
    blind=(
        _rows.last_gain(("model.norm.weight",)),
        _rows.stream(
            TENSORS, ("model.embed_tokens.weight", *AFTER), ("model.norm.weight",), readers=READERS
        ),
        *_decoders.outputs(TENSORS, AFTER),
        *_rows.norms_of_all_heads(),
        _rows.value_bias(_decoders.VALUE_BIAS, _decoders.OUT, _decoders.OUT_BIAS),
        _rows.common_logit(),
    ),
)  # fmt: skip
