"""What the tests of stacks of layers share: small sessions, and whole forwards to hold them to."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.layers.inputs import Inputs, inputs
from engine.layers.sessions import Session
from engine.layers.stacks import Averaged, Stack
from engine.questions import Layers
from engine.running import OUTPUTS
from tests import tiny

LAYERS = 4
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
KINDS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in tiny.ARCHITECTURES},
    "gemma3": ("gemma3", KINDS),
    "gemma3_biases": ("gemma3_biases", KINDS),
    "qwen2_window": ("qwen2", WINDOWS),
    "gpt2_by_depth": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
}
"""Every tiny architecture with four layers, and those whose layers differ by their place."""
HEADLESS = ("bert_bare", "vit_bare", "vit_masked")
"""Those without an output over tokens or classes."""
WITH_OUTPUT = tuple(sorted(VARIANTS.keys() - set(HEADLESS)))


def build(variant: str, folder: Path, layers: int = LAYERS) -> Path:
    """Write a checkpoint of one of `VARIANTS`."""
    architecture, changes = VARIANTS[variant]
    return tiny.build(architecture, folder, num_hidden_layers=layers, **changes)


@dataclass(frozen=True)
class Opened:
    """A model in float32, and a session on some windows."""

    checkpoint: Checkpoint
    model: PreTrainedModel
    given: Inputs
    session: Session


@cache
def opened(name: Path | str, tokens: int = 24, length: int = 12) -> Opened:
    """A checkpoint, loaded once; by default two windows of twelve tokens."""
    checkpoint = open_checkpoint(name)
    model = network.load(checkpoint)
    given = inputs(checkpoint, Layers(str(name), tokens=tokens, length=length))
    return Opened(checkpoint, model, given, Session(model, checkpoint.family, given, None))


class Exact(nn.Module):
    """A head that multiplies in float64."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.head = deepcopy(head).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.double())


def exact(model: PreTrainedModel) -> PreTrainedModel:
    """A copy whose head, if it has a linear one over tokens, multiplies in float64."""
    made = deepcopy(model)
    head = made.get_output_embeddings()
    if isinstance(head, nn.Linear):
        path = next(name for name, module in made.named_modules() if module is head)
        made.set_submodule(path, Exact(head))
    return made


def mean_of(a: nn.Module, b: nn.Module) -> nn.Module:
    """A new block with the mean of two blocks' parameters."""
    made = deepcopy(a)
    with torch.no_grad():
        for x, y in zip(made.parameters(), b.parameters(), strict=True):
            x.copy_((x + y) / 2)
    return made


def whole(
    model: PreTrainedModel, path: str, stack: Stack, *, kinds: bool = True
) -> PreTrainedModel:
    """A deep copy with a head in float64 whose list of blocks really is another one.

    Its configuration is cut along: the number of layers and, with `kinds`, the kind of each.
    """
    made = exact(model)
    parent, _, last = path.rpartition(".")
    holder = made.get_submodule(parent)
    blocks = getattr(holder, last)
    made_of = [
        mean_of(blocks[b.first], blocks[b.second]) if isinstance(b, Averaged) else blocks[b]
        for b in stack
    ]
    setattr(holder, last, nn.ModuleList(made_of))
    made.config.num_hidden_layers = len(stack)
    types = getattr(made.config, "layer_types", None)
    if kinds and types:
        places = [b.first if isinstance(b, Averaged) else b for b in stack]
        made.config.layer_types = [types[place] for place in places]
    return made


def with_weights(model: PreTrainedModel, path: str, layers: Mapping[int, int]) -> PreTrainedModel:
    """A deep copy whose depths hold the weights of other layers; all else of each depth stays."""
    made = deepcopy(model)
    ours, theirs = made.get_submodule(path), model.get_submodule(path)
    for depth, layer in layers.items():
        ours[depth].load_state_dict(theirs[layer].state_dict())
    return made


def with_mean(model: PreTrainedModel, path: str, i: int, j: int) -> PreTrainedModel:
    """A deep copy whose depths i and j both hold the mean of their weights."""
    made = deepcopy(model)
    ours, theirs = made.get_submodule(path), model.get_submodule(path)
    first, second = (theirs[n].state_dict() for n in (i, j))
    mean = {name: (x + second[name]) / 2 for name, x in first.items()}
    for depth in (i, j):
        ours[depth].load_state_dict(mean)
    return made


def without_layers(model: PreTrainedModel, path: str, gone: Sequence[int]) -> PreTrainedModel:
    """A deep copy that lacks some of its blocks."""
    made = deepcopy(model)
    blocks = made.get_submodule(path)
    made.set_submodule(path, nn.ModuleList([b for n, b in enumerate(blocks) if n not in gone]))
    made.config.num_hidden_layers = len(blocks) - len(gone)
    return made


@torch.no_grad()
def alone(model: PreTrainedModel, windows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """log p of every token at every position; each window is run by itself, without a mask."""
    found = []
    for ids in windows:
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()
        found.append(logits - np.logaddexp.reduce(logits, -1, keepdims=True))
    return found


def costs(
    windows: Sequence[Sequence[int]], before: Sequence[np.ndarray], after: Sequence[np.ndarray]
) -> np.ndarray:
    """KL(before ‖ after) and share of equal likeliest tokens over all positions, loss by window."""
    kl, same, loss = [], [], []
    for ids, p, q in zip(windows, before, after, strict=True):
        kl += (np.exp(p) * (p - q)).sum(-1).tolist()
        same += (p.argmax(-1) == q.argmax(-1)).tolist()
        loss.append(-q[np.arange(len(ids) - 1), ids[1:]].mean())
    assert len(kl) == len(same) == sum(map(len, windows))
    return np.array([np.mean(kl), np.mean(same), *loss])


class Said(NamedTuple):
    """KL, loss and agreement of each window, float64."""

    kl: Tensor
    loss: Tensor
    agreement: Tensor


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, given: Inputs) -> Tensor:
    """Of tokens at every position, or of classes, float64."""
    found = model(**given.named)
    name = next(name for name in OUTPUTS if name in found)
    said = found[name].double().log_softmax(-1)
    return said if said.ndim == 3 else said[:, None]


def compared(p: Tensor, q: Tensor, given: Inputs) -> Said:
    """Window by window, from two whole distributions."""
    rows: list[list[float]] = []
    for window, (a, b) in enumerate(zip(p, q, strict=True)):
        kept = given.kept[window][: len(a)] if len(a) > 1 else torch.tensor([True])
        kl = (a.exp() * (a - b)).sum(-1)[kept].mean()
        agreement = (a.argmax(-1) == b.argmax(-1))[kept].double().mean()
        loss = torch.tensor(torch.nan)
        if given.causal and given.ids is not None:
            follows = given.ids[window][kept][1:]
            if len(follows):
                loss = -b[kept][:-1].gather(-1, follows[:, None]).mean()
        rows.append([float(kl), float(loss), float(agreement)])
    return Said(*torch.tensor(rows, dtype=torch.float64).T)


def by_hand(here: Opened, stacks: Sequence[Stack], *, kinds: bool = True) -> list[Said]:
    """Whole forwards of reordered models against the model as it is, float64 heads."""
    path, given = here.session.family.blocks, here.given
    base = log_probabilities(exact(here.model), given)
    every = (whole(here.model, path, stack, kinds=kinds) for stack in stacks)
    return [compared(base, log_probabilities(model, given), given) for model in every]


def readings(session: Session, stacks: Sequence[Stack]) -> list[Said]:
    """The same by the executor, in the order of the stacks."""
    found = {number: read for number, read, _ in session.reads(stacks)}
    return [Said(*found[number]) for number in range(len(stacks))]


def far(found: Tensor, wanted: Tensor) -> float:
    """Largest error over what is allowed: 1e-5 relative or 1e-6 nats."""
    assert torch.equal(found.isnan(), wanted.isnan())
    allowed = (1e-5 * wanted.abs()).clamp(min=1e-6)
    return float(((found - wanted).abs() / allowed).nan_to_num(0.0).max())
