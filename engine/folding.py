"""A layer's attention without the blind directions of its norm: what its readers see of x / ‖x‖."""

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.axes import Leg, Mark, legs
from engine.family import Family

Tensors = Mapping[str, Tensor]
ATTENTION = "att"
"""The blind direction of every table that names the attention's norm and what reads it."""


def folded(family: Family, tensors: Tensors) -> dict[str, Tensor]:
    """W → W diag(γ) for what reads the attention's norm, b → b + W β where both are there.

    γ · c against W / c, and β + δ against b − W δ, cost nothing then. Under LayerNorm W γ is also
    centred over the residual coordinates, and so is what attention writes: nothing sees the rest.
    """
    names = {family.row(name).name: name for name in tensors}
    norm, readers = _around(family, names)
    if norm is None:
        return dict(tensors)
    gain = tensors[norm] + family.row(norm).offset
    shift = tensors.get(norm.removesuffix("weight") + "bias")
    found = dict(tensors)
    for name in readers:
        found[name] = _scaled(family, name, found[name], gain)
        bias = name.removesuffix("weight") + "bias"
        if shift is not None and bias in found:
            found[bias] = found[bias] + _along(family, name, tensors[name]) @ shift
    if family.norm != "LayerNorm":
        return found
    return {name: _centred(family, name, x, readers) for name, x in found.items()}


def _around(family: Family, names: Mapping[str, str]) -> tuple[str | None, list[str]]:
    """The gain of the attention's norm and the matrices that read it, by name on disk."""
    row = next((blind for blind in family.blind if blind.name == ATTENTION and blind.table), None)
    if row is None:
        return None, []
    layers = {family.row(name).layer for name in names.values()} - {None}
    if len(layers) != 1:
        return None, []
    layer = layers.pop()
    table = {key.partition("?")[0].replace("{l}", str(layer)): t for key, t in row.table.items()}
    read = [names[n] for n, text in table.items() if f"{ATTENTION}*" in text and n in names]
    gains = [n for n, text in table.items() if f"{ATTENTION}*" not in text and n.endswith("weight")]
    return (names[gains[0]] if gains and gains[0] in names else None), read


def _residual(family: Family, name: str) -> int | None:
    """The axis of a matrix that is the residual stream alone, if it has one."""
    nodes = family.row(name).axes
    found = [i for i, node in enumerate(nodes) if isinstance(node, Leg) and node.name == "res"]
    return found[0] if found and len(nodes) > 1 else None


def _along(family: Family, name: str, x: Tensor) -> Tensor:
    """The matrix with its residual axis last."""
    axis = _residual(family, name)
    return x if axis is None else x.movedim(axis, -1)


def _scaled(family: Family, name: str, x: Tensor, gain: Tensor) -> Tensor:
    axis = _residual(family, name)
    return x if axis is None else (x.movedim(axis, -1) * gain).movedim(-1, axis)


def _centred(family: Family, name: str, x: Tensor, readers: list[str]) -> Tensor:
    """Without its mean over the residual coordinates, if it reads the norm or writes attention."""
    axis = _residual(family, name)
    here = list(legs(family.row(name).axes))
    writes = any(leg.name == "val" and leg.mark is Mark.READ for leg in here)
    if axis is None or not (writes or name in readers):
        return x
    return x - x.mean(axis, keepdim=True)


def attention(family: Family, tensors: Tensors) -> dict[str, Tensor]:
    """Those tensors of a layer that carry a head, and the norm before them, in float32 or finer."""
    words = {"grp", "head", "rot", "qk", "val", "gain"}
    norm, _ = _around(family, {family.row(n).name: n for n in tensors})
    around = () if norm is None else (norm, norm.removesuffix("weight") + "bias")
    return {
        name: x if x.dtype == torch.float64 else x.float()
        for name, x in tensors.items()
        if name in around or words & {leg.name for leg in legs(family.row(name).axes)}
    }
