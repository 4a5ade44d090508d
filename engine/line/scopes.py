"""Which tensors a line moves, the others fixed at A's, and which coordinates live inside them."""

from collections.abc import Collection, Iterable

import torch

from engine.axes import legs
from engine.checkpoint import Checkpoint
from engine.errors import Refused
from engine.family import Family
from engine.folding import HEADS
from engine.line.words import layers_of


def scope(checkpoint: Checkpoint, word: str) -> frozenset[str]:
    """The tensors of a scope by their names on disk.

    `word` is one of `SCOPES`, or layers such as "3-5". Errors: Refused for other words and for
    layers that are not there.
    """
    family, names = checkpoint.family, list(checkpoint.headers)
    if word == "whole":
        return frozenset(names)
    if word in {"first-attention", "all-attention"}:
        found = attention(family, names)
        return frozenset(n for n in found if word[0] == "a" or family.row(n).layer == 0)
    layers = {0} if word == "first-layer" else _layers(checkpoint, word)
    return frozenset(n for n in names if family.row(n).layer in layers)


def _layers(checkpoint: Checkpoint, word: str) -> set[int]:
    found = layers_of(word)
    last = checkpoint.layers - 1
    if max(found) > last:
        raise Refused(f"--scope {word}: {checkpoint.name} has layers 0 to {last}.")
    return set(found)


def attention(family: Family, names: Iterable[str]) -> frozenset[str]:
    """The tensors that carry a head, and what stands in one module with them: their biases."""
    every = list(names)
    carriers = {n for n in every if HEADS & {leg.name for leg in legs(family.row(n).axes)}}
    modules = {n.rpartition(".")[0] for n in carriers}
    return frozenset(n for n in every if n.rpartition(".")[0] in modules)


def equal_outside(a: Checkpoint, b: Checkpoint, inside: Collection[str]) -> bool:
    """Whether A and B share every tensor that does not move."""
    others = [name for name in a.headers if name not in inside]
    return all(
        name in b.headers and torch.equal(a.read(name).double(), b.read(name).double())
        for name in others
    )


def inner(family: Family) -> frozenset[str]:
    """The coordinates that live inside one layer: tensors that are shared pin all others."""
    return family.per_layer & frozenset(family.free)
