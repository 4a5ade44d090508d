"""Qwen3-MoE: Qwen2-MoE without the shared expert; queries and keys are normalised in each head."""

from dataclasses import replace

from engine.families import _decoders
from engine.families._coordinates import GAIN, HALF, HALF_TURN
from engine.families._rows import norms_of_each_head
from engine.families.mixtral import FAMILY as MIXTRAL
from engine.families.mixtral import router
from engine.families.qwen_moe import FAMILY as QWEN2_MOE
from engine.rows import ByLayer

_LAYER = "model.layers.{l}."
_ATT = _LAYER + "self_attn."
_MLP = _LAYER + "mlp."
_EXPERT = _MLP + "experts.{exp}."
_Q, _K = "(grp head half rot)", "(grp half rot*)"

_TENSORS = {
    **{
        name: axes
        for name, axes in QWEN2_MOE.tensors.items()
        if "shared_expert" not in name and "qkv_bias" not in name
    },
    _ATT + "q_proj.weight": f"{_Q} res*",
    _ATT + "q_proj.bias?attention_bias": _Q,
    _ATT + "k_proj.weight": f"{_K} res*",
    _ATT + "k_proj.bias?attention_bias": _K,
    _ATT + "v_proj.bias?attention_bias": "(grp val)",
    _ATT + "o_proj.bias?attention_bias": "res",
    _ATT + "q_norm.weight": "(half gain)",
    _ATT + "k_norm.weight": "(half gain*)",
}

FAMILY = replace(
    QWEN2_MOE,
    name="Qwen3-MoE",
    model_types=("qwen3_moe",),
    coordinates={
        **{w: c for w, c in QWEN2_MOE.coordinates.items() if w not in {"sffn", "one"}},
        "exp": replace(QWEN2_MOE.coordinates["exp"], size="num_local_experts"),
        "rot": HALF_TURN, "gain": GAIN, "half": HALF,
    },
    tensors=_TENSORS,
    by_layer=ByLayer(),
    compared=(
        *MIXTRAL.compared, "attention_bias", "norm_topk_prob", "use_sliding_window",
    ),
    assumed={},
    defaults={**MIXTRAL.defaults, "num_local_experts": "num_experts"},
    limits={"num_experts_per_tok": "num_local_experts"},
    harmless={
        **QWEN2_MOE.harmless,
        "max_window_layers": "of other Qwen models: here every layer has the same window",
    },
    hidden={
        **MIXTRAL.hidden,
        "out model.layers.{l}.self_attn.q_proj": _Q,
        "out model.layers.{l}.self_attn.k_proj": _K,
    },
    blind=(
        *_decoders.block(
            _TENSORS,
            ffn=(_MLP + "gate.weight", _EXPERT + "gate_proj.weight", _EXPERT + "up_proj.weight"),
            down=(_EXPERT + "down_proj.weight",),
        ),
        router(_MLP + "gate.weight"),
        *norms_of_each_head(),
    ),
)  # fmt: skip
