"""What it costs a model to do without single neurons: merged into another, or removed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from engine import network
from engine.alignment.firing import Site, down, module
from engine.alignment.one_pass import layer_tensors
from engine.alignment.stages import one_expert
from engine.attention.trials import next_token_loss
from engine.axes import Leg, Mark, legs, rewrite
from engine.errors import Progress, silent
from engine.questions import Neurons
from engine.records import Spared
from engine.records.neurons import Kind
from engine.running import HIDDEN, Given, at_random, decodes, divergence, log_probabilities

ALIKE, SMALL, RANDOM = 8, 8, 4
WINDOWS, LENGTH = 2, 64
SMALL_MODEL, MANY, FEW = 10_000_000, 1024, 512
"""Parameters up to which a model is run on many tokens: it runs some forty times."""
Change = tuple[int, int, float]
"""h of a neuron becomes factor · h of another: (neuron, other, factor); factor 0 removes it."""
Say = Callable[[Change | None], dict[str, Tensor]]


def chosen(
    score: Float[np.ndarray, " n"], other: Int[np.ndarray, " n"], norm: Float[np.ndarray, " n"]
) -> list[tuple[Kind, int]]:
    """Which neurons are tried: of the most alike pairs the smaller one, the smallest, some more."""
    found: dict[int, Kind] = {}
    for i in np.argsort(-score, kind="stable").tolist():
        j = int(other[i])
        gone = j if other[j] == i and norm[j] < norm[i] else i
        if len(found) < ALIKE and not {i, j} & found.keys():
            found[gone] = "alike"
    further: tuple[tuple[Kind, np.ndarray, int], ...] = (
        ("small", np.argsort(norm, kind="stable"), SMALL),
        ("random", np.random.default_rng(0).permutation(len(norm)), RANDOM),
    )
    for kind, order, most in further:
        rest = [int(i) for i in order if int(i) not in found]
        found |= dict.fromkeys(rest[:most], kind)
    return [(kind, neuron) for neuron, kind in found.items()]


def spared(
    site: Site,
    asked: Neurons,
    ids: Tensor | None,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    norm: np.ndarray,
    progress: Progress = silent,
) -> Spared | None:
    """Each chosen neuron merged into the most alike other, and removed; None without an output.

    `pairs`: of every neuron the other, how alike, and the factor. `ids` None: random inputs.
    """
    other, score, factor = pairs
    given = _given(site, ids)
    say = speaker(site, asked, given)
    before = say(None)
    if HIDDEN in before or len(norm) < 2:
        return None
    name = next(iter(before))
    base = next_token_loss(before, given)
    tried = chosen(score, other, norm)
    found = np.full((len(tried), 2, 2), np.nan)
    for k, (_, neuron) in enumerate(tried):
        progress(k / len(tried), f"without neuron {neuron}")
        for way, much in enumerate((float(factor[neuron]), 0.0)):
            after = say((neuron, int(other[neuron]), much))
            loss = next_token_loss(after, given)
            found[k, way, 0] = divergence(before[name], after[name])
            found[k, way, 1] = np.nan if loss is None or base is None else loss - base
    which = np.array([neuron for _, neuron in tried], np.int64)
    return Spared(
        kind=tuple(kind for kind, _ in tried),
        neuron=which,
        other=other[which],
        score=score[which],
        factor=factor[which],
        merged=found[:, 0, 0],
        removed=found[:, 1, 0],
        merged_loss=found[:, 0, 1],
        removed_loss=found[:, 1, 1],
        what=given.what,
    )


def _given(site: Site, ids: Tensor | None) -> Given:
    if ids is None:
        return at_random(site.checkpoint, WINDOWS, LENGTH)
    most = MANY if site.checkpoint.parameters <= SMALL_MODEL else FEW
    few = ids[: max(1, most // ids.shape[1])]
    reads = decodes(site.checkpoint)
    return Given(few, f"{few.numel():,} tokens of the text", text=reads)


def speaker(site: Site, asked: Neurons, given: Given) -> Say:
    """Log-probabilities of a model with one neuron merged or removed, the same inputs each time."""
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    if down(site) is not None:
        model = network.load(site.checkpoint, where, kind)

        def hooked(change: Change | None) -> dict[str, Tensor]:
            with replaced(model, site, change):
                return log_probabilities(model, given.inputs)

        return hooked
    own = {name: site.checkpoint.read(name) for name in site.checkpoint.headers}

    def built(change: Change | None) -> dict[str, Tensor]:
        held = own | ({} if change is None else rewritten(site, change))
        tensors = {name: x.to(kind) for name, x in held.items()}
        model = network.build(site.checkpoint, tensors, where, kind)
        return log_probabilities(model, given.inputs)

    return built


@contextmanager
def replaced(model: nn.Module, site: Site, change: Change | None) -> Iterator[None]:
    """While active, one neuron fires as a multiple of another; no weight is touched.

    down_other + factor · down_neuron gives the same: factor · h_other reaches down_neuron instead.
    """
    path = down(site)
    if change is None or path is None:
        yield
        return
    neuron, other, factor = change

    def give(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        h = args[0].clone()
        h[..., neuron] = factor * args[0][..., other]
        return (h, *args[1:])

    handle = module(model, site.checkpoint.family, path).register_forward_pre_hook(give)
    try:
        yield
    finally:
        handle.remove()


def rewritten(site: Site, change: Change) -> dict[str, Tensor]:
    """The tensors that read an expert's neurons, one neuron's column added to another's."""
    neuron, other, factor = change
    family = site.checkpoint.family
    tensors = layer_tensors(site.checkpoint, site.layer)
    inside = tensors if site.expert is None else one_expert(family, tensors, site.expert)
    sizes = family.sizes(site.checkpoint.config)

    def move(found: tuple[Leg, ...], block: Tensor) -> Tensor:
        axis = next(k for k, leg in enumerate(found) if leg.name == site.word)
        x = block.float().movedim(axis, -1).clone()
        x[..., other] += factor * x[..., neuron]
        x[..., neuron] = 0
        return x.movedim(-1, axis)

    reads = Leg(site.word, Mark.READ)
    return {
        name: rewrite(x, family.row(name).axes, sizes, move)
        for name, x in inside.items()
        if reads in legs(family.row(name).axes)
    }
