"""What activations say about neurons: the correlation of two models' neurons in every layer."""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from engine.activations import Correlation, trunk
from engine.errors import Progress, silent
from engine.family import Family

HELD = 2**28
"""Bytes of sums held at once: more layers are listened to in further passes."""
BATCH = 16


def places(family: Family, layers: int, word: str = "ffn") -> tuple[str, ...]:
    """The modules that are given a layer's neurons as they fire; none where experts hold them."""
    found = [key[3:] for key, axes in family.hidden.items() if key[:3] == "in " and axes == word]
    return tuple(found[0].replace("{l}", str(layer)) for layer in range(layers)) if found else ()


def correlate_neurons(
    models: Sequence[nn.Module],
    family: Family,
    tokens: Int[Tensor, "windows length"],
    dropped: Collection[int] = (),
    progress: Progress = silent,
) -> tuple[Float[Tensor, "n m"], ...]:
    """C of the neurons of every layer (rows A) over the same tokens, float32; () for experts.

    The first position of each window and the ids in `dropped` are left out, as for the stream.
    """
    layers = len(list(models[0].get_submodule(family.blocks).children()))
    names = places(family, layers)
    if not names:
        return ()
    width = models[0].get_submodule(names[0])
    size = max(width.weight.shape) if isinstance(width.weight, Tensor) else 1
    share = max(1, HELD // (8 * size * size))
    found: list[Tensor] = []
    for start in range(0, layers, share):
        progress(start / layers, f"neurons of layer {start} of {layers}")
        found += _pass(models, names[start : start + share], tokens, dropped)
    return tuple(found)


def _pass(
    models: Sequence[nn.Module],
    names: Sequence[str],
    tokens: Int[Tensor, "windows length"],
    dropped: Collection[int],
) -> list[Tensor]:
    found = [Correlation() for _ in names]
    device = next(models[0].parameters()).device
    for start in range(0, len(tokens), BATCH):
        ids = tokens[start : start + BATCH].to(device)
        kept = ~torch.isin(ids, torch.tensor([*dropped], dtype=ids.dtype, device=device))
        kept[:, 0] = False
        heard = [_inputs(model, names, ids) for model in models]
        for one, name in zip(found, names, strict=True):
            one.add(*(h[name].reshape(*ids.shape, -1)[kept].float() for h in heard))
    return [one.result().float() for one in found]


def _inputs(model: nn.Module, names: Sequence[str], ids: Tensor) -> dict[str, Tensor]:
    """What some modules are given."""
    heard: dict[str, Tensor] = {}
    with ExitStack() as stack, torch.no_grad():
        for name in names:

            def hear(_: nn.Module, args: tuple[Any, ...], name: str = name) -> None:
                heard[name] = args[0]

            stack.callback(model.get_submodule(name).register_forward_pre_hook(hear).remove)
        trunk(model)(input_ids=ids)
    return heard
