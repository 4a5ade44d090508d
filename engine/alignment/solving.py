"""The gauge that an alignment asks for: each coordinate once, or sweeps, then a refinement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from engine import network, texts
from engine.action import act
from engine.alignment.listening import correlate_neurons
from engine.alignment.matching import residual_correlation
from engine.alignment.one_pass import align, apart, layer_tensors, start_from_embedding
from engine.alignment.refinement import midpoints, refine
from engine.alignment.stages import STAGES
from engine.alignment.sweeps import Descent, Listened, descend
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, part, silent
from engine.questions import Align
from engine.records import LayerStage, Midpoint, Sweep
from engine.symmetry import Symmetry, words

COVERED = 0.5
"""Share of the vocabulary that a text must hold before it says which tokens never occur."""
TRAINED = (262_144, 65_536)
"""Tokens that a refinement reads: the most that the text holds, else as many as were asked for."""
JUDGED = 4_096
"""Further tokens, which judge it."""
NOISE = 0.3
"""Of a perturbed start, in units of the correlation's own spread."""


@dataclass(frozen=True)
class Solution:
    """g with g · B ≈ A, and how it was found."""

    g: Symmetry
    pooled: np.ndarray  # correlation of the residual coordinates that it started from
    margins: Mapping[str, Sequence[float]]  # relative, by coordinate
    steps: tuple[LayerStage, ...]
    sweeps: tuple[Sweep, ...] = ()
    midpoints: tuple[Midpoint, ...] = ()


def solve(a: Checkpoint, b: Checkpoint, asked: Align, progress: Progress = silent) -> Solution:
    """Whatever `asked` says: one pass, `sweeps` of coordinate descent, `refine` steps after it."""
    found = residual_correlation(a, b, asked, part(progress, 0, 0.3))
    pooled = found.mean(axis=0) if asked.using == "activations" else found[0]
    told = part(progress, 0.3, 0.6 if asked.refine else 1.0)
    first = swept(a, b, asked, pooled, told) if asked.sweeps else once(a, b, asked, pooled, told)
    return refined(a, b, asked, first, part(progress, 0.6, 1)) if asked.refine else first


def once(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: np.ndarray, progress: Progress
) -> Solution:
    """Each coordinate once, from the residual's correlation."""
    steps: list[LayerStage] = []
    g, margins = align(
        a, b, pooled, signs=asked.signs, only=asked.only, stage2=asked.stage2, told=steps.append,
        progress=progress,
    )  # fmt: skip
    return Solution(g, pooled, margins, tuple(steps))


def swept(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: np.ndarray, progress: Progress
) -> Solution:
    """Coordinate descent from the identity, the embedding, activations and perturbed starts."""
    heard = listened(a, b, asked, pooled, part(progress, 0, 0.2))
    chosen = words(a.family, asked.only) & a.family.carried(b.headers)
    task = Descent(a, b, asked, chosen, occurring(a, asked), heard)
    g, rows = descend(task, starts(a, b, asked, pooled, heard), part(progress, 0.2, 1))
    margins = {name: () for name in a.family.free if name in chosen}
    return Solution(g, pooled, margins, tuple(explained(a, b, g)), rows)


def starts(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: np.ndarray, heard: Listened | None
) -> dict[str, np.ndarray | None]:
    """Where descents begin, by name."""
    found: dict[str, np.ndarray | None] = {"identity": None, "embedding": pooled}
    if heard is not None:
        found["embedding"] = start_from_embedding(a, b)
        found["activations"] = heard.residual
    last = pooled if heard is None else heard.residual
    for number in range(1, asked.restarts + 1):
        draw = np.random.default_rng(number).normal(size=last.shape)
        found[f"perturbed {number}"] = last + NOISE * last.std() * draw
    return found


def listened(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: np.ndarray, progress: Progress
) -> Listened | None:
    """Correlations of activations where they are asked for."""
    if asked.using == "weights":
        if not asked.mix:
            return None
        heard = replace(asked, using="activations")
        pooled = residual_correlation(a, b, heard, part(progress, 0, 0.5)).mean(axis=0)
    if not asked.mix:
        return Listened(pooled)
    ids = torch.from_numpy(texts.tokens(a, asked.text, asked.tokens))
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    models = [network.load(c, where, kind) for c in (a, b)]
    neurons = correlate_neurons(models, a.family, ids, texts.special(a), part(progress, 0.5, 1))
    return Listened(pooled, tuple(one.abs() for one in neurons))


def occurring(a: Checkpoint, asked: Align) -> Tensor | None:
    """The token ids that occur in the text; None where it shows too little of the vocabulary.

    A row of the embedding that no training text used says nothing about coordinates.
    """
    size = a.family.sizes(a.config).get("tok")
    if not size or a.family.inputs == "pixels":
        return None
    try:
        seen = torch.from_numpy(
            np.unique(texts.tokens(a, asked.text, max(asked.tokens, TRAINED[-1])))
        )
    except Refused:
        return None
    return seen if len(seen) >= COVERED * size else None


def explained(a: Checkpoint, b: Checkpoint, g: Symmetry) -> list[LayerStage]:
    """What each coordinate of a gauge takes off the distance, layer by layer, residual first."""
    found = []
    every = (("res",), *(names for names, _ in STAGES))
    for layer in (*range(a.layers), None):
        theirs, mine = (layer_tensors(c, layer) for c in (a, b))
        for names in every:
            step = {k: e for k, e in g.elements.items() if _word(k, layer) in names}
            if step:
                here = replace(g, elements=step)
                before = apart(a.family, theirs, mine, names)
                mine = {n: act(here, n, mine.__getitem__) for n in mine}
                after = apart(a.family, theirs, mine, names)
                found.append(LayerStage(layer, " ".join(names), before, after, None))
    return found


def _word(key: str, layer: int | None) -> str:
    """The coordinate of a key that acts in a layer; "" for the keys of other layers."""
    prefix, _, name = key.rpartition(".")
    return name if not prefix or prefix == f"layers.{layer}" else ""


def long_text(a: Checkpoint, asked: Align) -> Int[Tensor, "windows length"]:
    """The longest of the wanted texts; Refused as for `engine.texts.tokens` if even the last is."""
    for count in TRAINED:
        try:
            return torch.from_numpy(texts.tokens(a, asked.text, count + JUDGED))
        except Refused:
            continue
    return torch.from_numpy(texts.tokens(a, asked.text, asked.tokens))


def refined(
    a: Checkpoint, b: Checkpoint, asked: Align, first: Solution, progress: Progress
) -> Solution:
    """The continuous part refined, beside the same from the identity, on text not seen before."""
    where = network.device(asked.device)
    ids = long_text(a, asked)
    cut = max(1, min(len(ids) // 4, JUDGED // ids.shape[1]))
    still = replace(first.g, elements={})
    ends = [
        refine(a, b, g, ids[:-cut], asked.refine, device=where, progress=part(progress, low, high))
        for g, low, high in ((first.g, 0, 0.45), (still, 0.45, 0.9))
    ]
    own = {key.rpartition(".")[2] for key in first.g.elements}
    names = [name for name in a.family.free if name in own]
    stages = [("unaligned", still)]
    stages += [(f"with {name}", first.g.only(names[: k + 1])) for k, name in enumerate(names)]
    stages += [("refined", ends[0]), ("refined without matching", ends[1])]
    progress(0.9, "judging on other text")
    points = midpoints(a, b, stages, ids[-cut:], where)
    return replace(first, g=ends[0], midpoints=points)
