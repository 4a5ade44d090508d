"""Mixtral: Llama's attention, and experts that live in the names of their tensors."""

from engine.blind import Blind, Move
from engine.families import _decoders
from engine.families.llama import FAMILY as LLAMA
from engine.family import Coordinate, Family
from engine.groups import MONOMIAL, PERMUTATION

_LAYER = "model.layers.{l}."
_MOE = _LAYER + "block_sparse_moe."
_EXPERT = _MOE + "experts.{exp}."

_TENSORS = {
    **{
        name: axes
        for name, axes in LLAMA.tensors.items()
        if ".mlp." not in name and "?attention_bias" not in name
    },
    _MOE + "gate.weight": "exp res*",
    _EXPERT + "w1.weight": "|ffn| res*",
    _EXPERT + "w3.weight": "ffn res*",
    _EXPERT + "w2.weight": "res ffn*",
}


def router(gate: str) -> Blind:
    """W_r + 1 δᵀ."""
    return Blind(
        "router",
        "a common vector on the router's rows",
        "It adds the same number to all scores of a token, and the softmax does not see it.",
        shift="res*",
        moves=(Move(gate, +1),),
    )


FAMILY = Family(
    name="Mixtral",
    model_types=("mixtral",),
    coordinates={
        **{word: LLAMA.coordinates[word] for word in ("res", "grp", "head", "rot", "val", "tok")},
        "exp": Coordinate(
            "expert", PERMUTATION, "num_local_experts",
            why="The router's scores follow the experts' order, and the chosen ones are summed.",
        ),
        "ffn": Coordinate(
            "FFN neuron of an expert", MONOMIAL, "intermediate_size", over=("exp",),
            why="In each expert w3 writes and w2 reads it linearly; w1 passes through an "
            "activation, which allows an order only.",
        ),
    },
    tensors=_TENSORS,
    norm="RMSNorm",
    compared=(
        "hidden_act", "num_experts_per_tok", "rms_norm_eps", "rope_parameters", "rope_scaling",
        "rope_theta", "sliding_window", "tie_word_embeddings",
    ),
    constants={"is_encoder_decoder": (False,)},
    defaults={
        "num_key_value_heads": "num_attention_heads",
        "head_dim": "hidden_size / num_attention_heads",
    },
    limits={"num_experts_per_tok": "num_local_experts"},
    harmless={
        "output_router_logits": "what is returned",
        "router_aux_loss_coef": "training only",
        "router_jitter_noise": "training only",
    },
    hidden={
        **{name: axes for name, axes in LLAMA.hidden.items() if axes != "ffn"},
        "out model.layers.{l}.mlp.gate": "exp",
    },
    blind=(
        *_decoders.block(
            _TENSORS,
            ffn=(_MOE + "gate.weight", _EXPERT + "w1.weight", _EXPERT + "w3.weight"),
            down=(_EXPERT + "w2.weight",),
        ),
        router(_MOE + "gate.weight"),
    ),
)  # fmt: skip
