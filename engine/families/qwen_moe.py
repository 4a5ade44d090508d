"""Qwen2-MoE: Mixtral's table with biases, finer experts, and one expert that every token visits."""

from dataclasses import replace

from engine.families import _decoders
from engine.families.mixtral import FAMILY as MIXTRAL
from engine.families.mixtral import router
from engine.family import Coordinate
from engine.groups import MONOMIAL, Trivial
from engine.rows import ByLayer

_LAYER = "model.layers.{l}."
_ATT = _LAYER + "self_attn."
_MLP = _LAYER + "mlp."
_EXPERT = _MLP + "experts.{exp}."
_SHARED = _MLP + "shared_expert."


def _renamed(name: str) -> str:
    """A tensor of Mixtral under its name here."""
    for old, new in (
        ("block_sparse_moe", "mlp"), ("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj"),
    ):  # fmt: skip
        name = name.replace(old, new)
    return name


_TENSORS = {
    **{_renamed(name): axes for name, axes in MIXTRAL.tensors.items()},
    _ATT + "q_proj.bias?qkv_bias": "(grp head rot)",
    _ATT + "k_proj.bias?qkv_bias": "(grp rot*)",
    _ATT + "v_proj.bias?qkv_bias": "(grp val)",
    _SHARED + "gate_proj.weight": "|sffn| res*",
    _SHARED + "up_proj.weight": "sffn res*",
    _SHARED + "down_proj.weight": "res sffn*",
    _MLP + "shared_expert_gate.weight": "one res*",
}

FAMILY = replace(
    MIXTRAL,
    name="Qwen2-MoE",
    model_types=("qwen2_moe",),
    coordinates={
        **MIXTRAL.coordinates,
        "exp": replace(MIXTRAL.coordinates["exp"], size="num_experts"),
        "ffn": replace(
            MIXTRAL.coordinates["ffn"], size="moe_intermediate_size",
            why="In each expert up writes and down reads it linearly; the gate passes through an "
            "activation, which allows an order only.",
        ),
        "sffn": Coordinate(
            "FFN neuron of the shared expert", MONOMIAL, "shared_expert_intermediate_size",
            why="Up writes and down reads it linearly; the gate passes through an activation, "
            "which allows an order only.",
        ),
        "one": Coordinate(
            "gate of the shared expert", Trivial("there is only one"), "1",
            why="One number a token opens the shared expert.",
        ),
    },
    tensors=_TENSORS,
    by_layer=ByLayer(listed=("layer_types",), counted=("max_window_layers",)),
    compared=(
        *MIXTRAL.compared, "layer_types", "max_window_layers", "norm_topk_prob", "qkv_bias",
        "use_sliding_window",
    ),
    constants={
        **MIXTRAL.constants, "mlp_only_layers": ([], None), "decoder_sparse_step": (1,),
    },
    assumed={"qkv_bias": True},
    limits={"num_experts_per_tok": "num_experts"},
    harmless={
        **MIXTRAL.harmless, "intermediate_size": "width of layers without experts: there are none",
    },
    hidden={**MIXTRAL.hidden, "in model.layers.{l}.mlp.shared_expert.down_proj": "sffn"},
    blind=(
        *_decoders.block(
            _TENSORS,
            ffn=(
                _MLP + "gate.weight", _EXPERT + "gate_proj.weight", _EXPERT + "up_proj.weight",
                _SHARED + "gate_proj.weight", _SHARED + "up_proj.weight",
                _MLP + "shared_expert_gate.weight",
            ),
            down=(_EXPERT + "down_proj.weight", _SHARED + "down_proj.weight"),
        ),
        router(_MLP + "gate.weight"),
    ),
)  # fmt: skip
