"""What a layer's heads do when the model runs: half way between two, and without one of them."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine import network, shared
from engine.attention.pairs import Pair, Tensors
from engine.axes import Leg, Mark, legs, rewrite
from engine.checkpoint import Checkpoint
from engine.errors import Refused
from engine.folding import HEADS
from engine.questions import Experts, Heads, Turn
from engine.running import HIDDEN, Given, at_random, divergence, from_text, log_probabilities

WINDOWS, LENGTH = 2, 64


def inputs(a: Checkpoint, b: Checkpoint, asked: Heads | Turn | Experts) -> Given:
    """The question's inputs, of texts what both know; random ones where nobody named a text.

    That is, where A has no tokenizer for the default text, or both know no whole window of it.
    """
    try:
        return from_text(a, asked.text, asked.tokens, b)
    except Refused:
        if shared.named(asked.text):
            raise
        return at_random(min(a, b, key=rows), WINDOWS, LENGTH)


def rows(checkpoint: Checkpoint) -> int:
    """How many tokens a model knows; 0 for one of images."""
    return checkpoint.family.sizes(checkpoint.config).get("tok", 0)


def part(checkpoint: Checkpoint, tensors: Tensors) -> dict[str, Tensor]:
    """The tensors of a layer's attention: those that carry a head, and their biases."""
    family = checkpoint.family
    carriers = {n for n in tensors if HEADS & {leg.name for leg in legs(family.row(n).axes)}}
    modules = {name.rpartition(".")[0] for name in carriers}
    return {n: x for n, x in tensors.items() if n.rpartition(".")[0] in modules}


Say = Callable[[Tensors], dict[str, Tensor]]
"""Log-probabilities of a model with some tensors in place of its own."""


def speaker(checkpoint: Checkpoint, asked: Heads | Turn, given: Given) -> Say:
    """The model of a checkpoint on the same inputs each time."""
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    own = {name: checkpoint.read(name) for name in checkpoint.headers}

    def say(tensors: Tensors) -> dict[str, Tensor]:
        held = {name: tensors.get(name, x).to(kind) for name, x in own.items()}
        return log_probabilities(network.build(checkpoint, held, where, kind), given.inputs)

    return say


def middle(both: Pair) -> dict[str, Tensor]:
    """½ (A + B) of the layer's attention, B in whatever order and coordinates it is."""
    a, b = part(both.a, both.theirs), part(both.b, both.mine)
    return {n: (x.float() + b[n].float()) / 2 for n, x in a.items() if n in b}


def next_token_loss(found: dict[str, Tensor], given: Given) -> float | None:
    """Mean −log p of each next token, nats; None for a model that predicts none."""
    x = found.get("logits")
    if x is None or not given.text or x.ndim != 3 or x.shape[:2] != given.inputs.shape:
        return None
    chosen = x[:, :-1].gather(-1, given.inputs[:, 1:, None])
    return -float(chosen.double().mean())


def without(both: Pair, group: int, head: int) -> dict[str, Tensor]:
    """The tensors that read the heads' values, zero where they read one head."""
    found: dict[str, Tensor] = {}
    for name, x in both.theirs.items():
        row = both.family.row(name)
        if any(leg.name == "val" and leg.mark is Mark.READ for leg in legs(row.axes)):
            places = {"grp": group, "head": head}

            def cut(found: tuple[Leg, ...], block: Tensor, places: dict = places) -> Tensor:
                mask = torch.ones_like(block)
                index = tuple(places.get(leg.name, slice(None)) for leg in found)
                mask[index] = 0
                return block * mask

            found[name] = rewrite(x, row.axes, both.sizes, cut)
    return found


def removal(both: Pair, say: Say) -> np.ndarray | None:
    """Mean KL(A ‖ A without a head) over positions, float32 [heads], nats; None without a head."""
    before = say({})
    if HIDDEN in before:
        return None
    name = next(iter(before))
    heads = range(both.sizes["grp"] * both.per_group)
    cut = (say(without(both, *divmod(head, both.per_group))) for head in heads)
    found = [divergence(before[name], after[name]) for after in cut]
    return np.array(found, np.float32)
