"""Blind rows of decoders whose tensors are named like Llama's."""

from dataclasses import replace

from engine.blind import Blind
from engine.families import _rows
from engine.families._rows import Tensors

LAYER = "model.layers.{l}."
ATTENTION, MLP = LAYER + "self_attn.", LAYER + "mlp."
QUERIES, KEYS, VALUES = (f"{ATTENTION}{word}_proj.weight" for word in "qkv")
VALUE_BIAS = ATTENTION + "v_proj.bias"
OUT, OUT_BIAS = ATTENTION + "o_proj.weight", ATTENTION + "o_proj.bias"
GATE, UP, DOWN = (f"{MLP}{word}_proj.weight" for word in ("gate", "up", "down"))
FIRST, SECOND = LAYER + "input_layernorm.weight", LAYER + "post_attention_layernorm.weight"
EMBEDDING, LAST = "model.embed_tokens.weight", "model.norm.weight"


def written(tensors: Tensors, *names: str) -> tuple[str, ...]:
    """Those matrices, and their biases where the table has any."""
    both = (n for name in names for n in (name, name.removesuffix("weight") + "bias"))
    present = {key.partition("?")[0] for key in tensors}
    return tuple(name for name in both if name in present)


def gains(
    tensors: Tensors,
    second: str = SECOND,
    attention: tuple[str, ...] = (QUERIES, KEYS, VALUES),
    ffn: tuple[str, ...] = (GATE, UP),
    offset: str = "",
) -> tuple[Blind, ...]:
    """Both norms of a block, and the last one, against what reads them."""
    return (
        _rows.gain(tensors, "att", "attention norm", (FIRST,), attention, offset=offset),
        _rows.gain(tensors, "mlp", "FFN norm", (second,), ffn, offset=offset),
        _rows.last_gain((LAST,), offset=offset),
    )


def block(
    tensors: Tensors,
    attention: tuple[str, ...] = (QUERIES, KEYS, VALUES),
    ffn: tuple[str, ...] = (GATE, UP),
    down: tuple[str, ...] = (DOWN,),
) -> tuple[Blind, ...]:
    """Llama's: gains, the scale of the stream, values against outputs, the head's common vector."""
    biases = (_rows.value_bias(VALUE_BIAS, OUT, OUT_BIAS),)
    return (
        *gains(tensors, attention=attention, ffn=ffn),
        _rows.stream(tensors, written(tensors, EMBEDDING, OUT, *down), (LAST,)),
        *(biases if OUT_BIAS in written(tensors, OUT) else ()),
        _rows.common_logit(),
    )


def outputs(tensors: Tensors, norms: tuple[str, str], offset: str = "") -> tuple[Blind, ...]:
    """Scale and signs of what attention and FFN write, with a norm on it."""
    attention, ffn = "the attention's output projection", "the FFN's down projection"
    out, down = written(tensors, OUT), written(tensors, DOWN)
    return (
        _rows.output_scale(tensors, "out", attention, out),
        _rows.output_scale(tensors, "down", ffn, down),
        _rows.output_sign(tensors, "out_sign", attention, out, norms[0], offset),
        _rows.output_sign(tensors, "down_sign", ffn, down, norms[1], offset),
    )


def with_pairs(blind: Blind) -> Blind:
    """The same direction where the channels of a head are pairs."""
    table = {name: text.replace("rot", "half rot") for name, text in blind.table.items()}
    return replace(blind, table=table)
