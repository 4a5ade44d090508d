"""Qwen2: Llama's table; q, k and v always have a bias, and the window may belong to a layer."""

from dataclasses import replace

from engine.families import _decoders
from engine.families.llama import FAMILY as LLAMA
from engine.rows import ByLayer

TENSORS = {
    name.removesuffix("?attention_bias"): axes
    for name, axes in LLAMA.tensors.items()
    if not name.endswith(("o_proj.bias?attention_bias", "?mlp_bias"))
}

FAMILY = replace(
    LLAMA,
    name="Qwen2",
    model_types=("qwen2",),
    tensors=TENSORS,
    by_layer=ByLayer(listed=("layer_types",), counted=("max_window_layers",)),
    compared=(*LLAMA.compared, "use_sliding_window", "max_window_layers", "layer_types"),
    constants={**LLAMA.constants, "use_mrope": (False,)},
    blind=_decoders.block(TENSORS),
)
