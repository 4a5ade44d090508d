"""Mixtral: Llama's attention, and experts that live in the names of their tensors."""

from engine.blind import Blind, Move
from engine.families._rows import common_logit, gain, last_gain, stream
from engine.families.llama import FAMILY as LLAMA
from engine.family import Coordinate, Family
from engine.groups import MONOMIAL, PERMUTATION

_LAYER = "model.layers.{l}."
_MOE = _LAYER + "block_sparse_moe."
_EXPERT = _MOE + "experts.{exp}."

_TENSORS = {
    "model.embed_tokens.weight": "tok res",
    _LAYER + "input_layernorm.weight": "|res|",
    _LAYER + "self_attn.q_proj.weight": "(grp head rot) res*",
    _LAYER + "self_attn.k_proj.weight": "(grp rot*) res*",
    _LAYER + "self_attn.v_proj.weight": "(grp val) res*",
    _LAYER + "self_attn.o_proj.weight": "res (grp head val*)",
    _LAYER + "post_attention_layernorm.weight": "|res|",
    _MOE + "gate.weight": "exp res*",
    _EXPERT + "w1.weight": "|ffn| res*",
    _EXPERT + "w3.weight": "ffn res*",
    _EXPERT + "w2.weight": "res ffn*",
    "model.norm.weight": "|res|",
    "lm_head.weight?!tie_word_embeddings": "tok res*",
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
    harmless={
        "output_router_logits": "what is returned",
        "router_aux_loss_coef": "training only",
        "router_jitter_noise": "training only",
    },
    hidden={
        "in model.layers.{l}": "res",
        "out model.layers.{l}.self_attn.q_proj": "(grp head rot)",
        "out model.layers.{l}.self_attn.k_proj": "(grp rot*)",
        "in model.layers.{l}.self_attn.o_proj": "(grp head val)",
        "out model.layers.{l}.mlp.gate": "exp",
    },
    blind=(
        gain(
            _TENSORS, "att", "attention norm", (_LAYER + "input_layernorm.weight",),
            tuple(f"{_LAYER}self_attn.{word}_proj.weight" for word in "qkv"),
        ),
        gain(
            _TENSORS, "mlp", "FFN norm", (_LAYER + "post_attention_layernorm.weight",),
            (_MOE + "gate.weight", _EXPERT + "w1.weight", _EXPERT + "w3.weight"),
        ),
        last_gain(("model.norm.weight",)),
        common_logit(),
        router(_MOE + "gate.weight"),
        stream(
            _TENSORS,
            (
                "model.embed_tokens.weight", _LAYER + "self_attn.o_proj.weight",
                _EXPERT + "w2.weight",
            ),
            ("model.norm.weight",),
        ),
    ),
)  # fmt: skip
