"""Which residual coordinate of B is which of A, at every depth, from activations or weights."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from engine import network, shared, texts
from engine.action import act
from engine.activations import correlate_streams, depths
from engine.alignment.differences import on_common_ground
from engine.alignment.one_pass import align, cosines, layer_tensors, start_from_embedding
from engine.alignment.sensing import require_inputs
from engine.alignment.widths import WORD, Facing, narrower
from engine.assignment import match
from engine.checkpoint import Checkpoint, require_same_group
from engine.elements import Ordered
from engine.errors import Progress, part, silent
from engine.questions import Align, Match
from engine.records import Assignment, ResidualMatch, Truth
from engine.symmetry import Symmetry, load

POOLED = "pooled"


def residual_correlation(
    a: Checkpoint, b: Checkpoint, asked: Match | Align, progress: Progress = silent
) -> Float[np.ndarray, "depths d d"]:
    """C at every depth, from activations or from weights (for `Align`: the embedding alone)."""
    if asked.using == "weights":
        if isinstance(asked, Align):
            return start_from_embedding(a, b)[None]
        return correlation_of_weights(a, b, progress)
    require_inputs(a, asked.text)
    progress(0.0, "reading the text")
    given, _ = shared.given(a, b, asked.text, asked.tokens)
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    models = [network.load(c, where, kind) for c in (a, b)]
    special = texts.special(a)
    return correlate_streams(models, (a.family, b.family), given, special, progress=progress)


def match_residual(
    a: Checkpoint, b: Checkpoint, asked: Match, progress: Progress = silent
) -> ResidualMatch:
    """Both matchings of C at every depth and of their mean, against the truth if it is known."""
    a, b = on_common_ground(a, b)
    require_same_group(a, b, but=(WORD,))
    b = b.spelled_like(a)
    began = time.perf_counter()
    found = residual_correlation(a, b, asked, part(progress, 0.0, 0.9))
    every = np.concatenate([found, found.mean(axis=0, keepdims=True)]).astype(np.float32)
    progress(0.9, "solving the assignments")
    absolute = tuple(match(c, absolute=True) for c in every)
    signed = tuple(match(c, absolute=False) for c in every)
    truth = residual_truth(a, b, asked.truth)
    from_text = asked.using == "activations"
    return ResidualMatch(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        using=asked.using,
        depths=(*depths(a.layers), POOLED),
        correlation=every,
        absolute=absolute,
        signed=signed,
        truth=truth,
        signed_accuracy=_accuracy(signed, truth),
        absolute_accuracy=_accuracy(absolute, truth),
        sign_accuracy=_accuracy(absolute, truth, signs=True),
        tokens=asked.tokens if from_text else 0,
        text=texts.describe(a, asked.text) if from_text else "none: weights only",
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def _accuracy(
    found: tuple[Assignment, ...], truth: Truth | None, *, signs: bool = False
) -> Float[np.ndarray, " depths"] | None:
    """Share of coordinates whose partner (and, with `signs`, sign) is the true one."""
    if truth is None:
        return None
    right = [
        (f.permutation == truth.permutation) & ((f.sign == truth.sign) | (not signs)) for f in found
    ]
    return np.array([r.mean() for r in right], np.float32)


def correlation_of_weights(
    a: Checkpoint, b: Checkpoint, progress: Progress = silent
) -> Float[np.ndarray, "depths d d"]:
    """C from the weights alone: depth 0 the embedding, then every layer's own tensors.

    A layer's tensors can speak once their other axes are aligned, so B first goes through a whole
    alignment that starts at the embedding; then Σ a bᵀ over the signed legs, as cosines.
    """
    start = start_from_embedding(a, b)
    g, _ = align(a, b, start, progress=progress)
    rest = g.only([name for name in a.family.free if name != "res"])
    sizes = a.family.sizes(narrower(a, b))
    facing = Facing(a, b, g)
    found = [start]
    for layer in range(a.layers):
        own = layer_tensors(b, layer)
        theirs = {n: facing.read(n) for n in layer_tensors(a, layer)}
        mine = {n: facing.cut(n, act(rest, n, own.__getitem__)) for n in own}
        found.append(cosines(a.family, sizes, theirs, mine, "res").numpy())
    return np.stack(found).astype(np.float32)


def planted(a: Checkpoint, b: Checkpoint) -> Symmetry | None:
    """The gauge g with g · B = A that a `symmetry.safetensors` beside either model records.

    A file counts only if its two fingerprints are those of the pair.
    """
    for folder in (a.folder, b.folder):
        path = Path(folder) / "symmetry.safetensors"
        if not path.is_file():
            continue
        g = load(path)
        if (g.source, g.target) == (b.fingerprint, a.fingerprint):
            return g
        if (g.source, g.target) == (a.fingerprint, b.fingerprint):
            return g.inverse()
    return None


def residual_truth(
    a: Checkpoint, b: Checkpoint, kind: Literal["planted", "identity", "none"]
) -> Truth | None:
    """The residual part of the truth that the user asked to compare with; None where unknown."""
    size = a.family.sizes(a.config)["res"]
    same = Truth("identity", np.arange(size), np.ones(size, np.int8))
    if kind == "identity":
        return same
    g = planted(a, b) if kind == "planted" else None
    if g is None:
        return None
    element = g.elements.get("res")
    if not isinstance(element, Ordered):
        return replace(same, kind="planted")
    sign = element.scale.to(torch.int8).numpy()
    return Truth("planted", element.permutation.numpy(), sign)
