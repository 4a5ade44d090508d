"""Llama and Mistral: RMSNorm, grouped queries, rotary halves, a gated FFN."""

from engine.families import _decoders
from engine.family import Coordinate, Family
from engine.groups import LINEAR, MONOMIAL, PERMUTATION, ROTARY_HALF, SIGNED, Trivial

TENSORS = {
    "model.embed_tokens.weight": "tok res",
    "model.layers.{l}.input_layernorm.weight": "|res|",
    "model.layers.{l}.self_attn.q_proj.weight": "(grp head rot) res*",
    "model.layers.{l}.self_attn.q_proj.bias?attention_bias": "(grp head rot)",
    "model.layers.{l}.self_attn.k_proj.weight": "(grp rot*) res*",
    "model.layers.{l}.self_attn.k_proj.bias?attention_bias": "(grp rot*)",
    "model.layers.{l}.self_attn.v_proj.weight": "(grp val) res*",
    "model.layers.{l}.self_attn.v_proj.bias?attention_bias": "(grp val)",
    "model.layers.{l}.self_attn.o_proj.weight": "res (grp head val*)",
    "model.layers.{l}.self_attn.o_proj.bias?attention_bias": "res",
    "model.layers.{l}.post_attention_layernorm.weight": "|res|",
    "model.layers.{l}.mlp.gate_proj.weight": "|ffn| res*",
    "model.layers.{l}.mlp.gate_proj.bias?mlp_bias": "|ffn|",
    "model.layers.{l}.mlp.up_proj.weight": "ffn res*",
    "model.layers.{l}.mlp.up_proj.bias?mlp_bias": "ffn",
    "model.layers.{l}.mlp.down_proj.weight": "res ffn*",
    "model.layers.{l}.mlp.down_proj.bias?mlp_bias": "res",
    "model.norm.weight": "|res|",
    "lm_head.weight?!tie_word_embeddings": "tok res*",
}

FAMILY = Family(
    name="Llama",
    model_types=("llama", "mistral"),
    coordinates={
        "res": Coordinate(
            "residual coordinate", SIGNED, "hidden_size",
            why="RMSNorm sees only x², and every writer and reader can follow an order and signs.",
        ),
        "ffn": Coordinate(
            "FFN neuron", MONOMIAL, "intermediate_size",
            why="Up writes and down reads it linearly; the gate passes through an activation, "
            "which allows an order only.",
        ),
        "grp": Coordinate(
            "key/value head", PERMUTATION, "num_key_value_heads",
            why="Heads run in parallel and are summed by the output projection.",
        ),
        "head": Coordinate(
            "query head in its group", PERMUTATION, "num_attention_heads / num_key_value_heads",
            over=("grp",),
            why="Query heads that share a key/value head are interchangeable, others are not.",
        ),
        "rot": Coordinate(
            "rotary query/key channel", ROTARY_HALF, "head_dim", over=("grp",),
            why="Only what commutes with every rotation is left: one complex number a frequency.",
        ),
        "val": Coordinate(
            "value channel", LINEAR, "head_dim", over=("grp",),
            why="Attention weights mix positions, not channels: any invertible matrix cancels "
            "between V and O.",
        ),
        "tok": Coordinate(
            "token", Trivial("a token id means an entry of the dictionary"), "vocab_size",
            why="The index has a meaning outside the model.", criterion=(True, True, False),
        ),
    },
    tensors=TENSORS,
    norm="RMSNorm",
    compared=(
        "attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps", "rope_parameters",
        "rope_scaling", "rope_theta", "sliding_window", "tie_word_embeddings",
    ),
    constants={"pretraining_tp": (1,), "is_encoder_decoder": (False,)},
    defaults={
        "num_key_value_heads": "num_attention_heads",
        "head_dim": "hidden_size / num_attention_heads",
    },
    prefix="model.",
    hidden={
        "in model.layers.{l}": "res",
        "out model.layers.{l}.self_attn.q_proj": "(grp head rot)",
        "out model.layers.{l}.self_attn.k_proj": "(grp rot*)",
        "in model.layers.{l}.self_attn.o_proj": "(grp head val)",
        "in model.layers.{l}.mlp.down_proj": "ffn",
    },
    blind=_decoders.block(TENSORS),
)  # fmt: skip
