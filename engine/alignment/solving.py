"""The gauge that an alignment asks for: each coordinate once, or sweeps, then a refinement."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from engine import network, shared, texts
from engine.action import acted
from engine.alignment.descent import Descent, Listened
from engine.alignment.listening import correlate_neurons
from engine.alignment.margins import margins
from engine.alignment.matching import residual_correlation
from engine.alignment.one_pass import (
    align,
    layer_tensors,
    require_whole_stages,
    start_from_embedding,
    took,
)
from engine.alignment.refinement import midpoints, refine
from engine.alignment.sensing import sense
from engine.alignment.stages import STAGES
from engine.alignment.starting import Fate, sentences
from engine.alignment.sweeps import Start, gauge, lowest
from engine.alignment.watching import Watch
from engine.alignment.weighing import Layers
from engine.alignment.widths import Facing, widths
from engine.checkpoint import Checkpoint
from engine.errors import Brief, Progress, Refused, part, silent
from engine.questions import Align
from engine.records import LayerStage, Midpoint, Sweep
from engine.symmetry import Symmetry, words

COVERED = 0.5
"""Share of the vocabulary that a text must hold before it says which tokens never occur."""
TRAINED = (262_144, 65_536)
"""Tokens that a refinement reads: the most that the text holds, else as many as were asked for."""
JUDGED = 4_096
"""Further tokens, which judge it."""
REFINED = "refined"
"""What the steps of a refinement are called, which moves several coordinates at once."""
Begun = Callable[[], np.ndarray]
"""A correlation that is computed when it is asked for."""
SWEPT = ("restarts", "mix", "neurons")
"""What a question says that only sweeps read."""
NOISE = 0.3
"""Of a perturbed start, in units of the correlation's own spread."""


@dataclass(frozen=True)
class Solution:
    """g with g · B ≈ A, and how it was found."""

    g: Symmetry
    begun: np.ndarray | Begun
    margins: Mapping[str, Sequence[float]]  # relative, by coordinate
    steps: tuple[LayerStage, ...]
    sweeps: tuple[Sweep, ...] = ()
    midpoints: tuple[Midpoint, ...] = ()
    notes: tuple[str, ...] = ()  # of starts that were left out, and of those that ended early
    layers: Layers = field(default_factory=dict)  # what was known of them besides their weights

    @property
    def pooled(self) -> np.ndarray:
        """The correlation of the residual coordinates, computed when first asked for."""
        return self.begun() if callable(self.begun) else self.begun


def solve(a: Checkpoint, b: Checkpoint, asked: Align, progress: Progress = silent) -> Solution:
    """Whatever `asked` says: one pass, `sweeps` of coordinate descent, `refine` steps after it.

    Errors: Refused as for `require_sound`.
    """
    require_sound(a, b, asked)
    seen = Watch(a.name, b.name)
    progress = seen.reporting(progress)

    @cache
    def pooled() -> np.ndarray:
        found = residual_correlation(a, b, asked, part(progress, 0, 0.3))
        return found.mean(axis=0) if asked.using == "activations" else found[0]

    told = part(progress, 0.3, 0.6 if asked.refine else 1.0)
    way = swept if asked.sweeps else once
    first = way(a, b, asked, pooled, seen, told)
    return refined(a, b, asked, first, seen, part(progress, 0.6, 1)) if asked.refine else first


def require_sound(a: Checkpoint, b: Checkpoint, asked: Align) -> None:
    """Refused, before any work, for numbers out of range and a part of what is solved together.

    Also for what only sweeps read, where there are none.
    """
    asked.require()
    require_sweeps(asked)
    if asked.refine and (both := widths(a, b)):
        raise Refused(
            f"{a.name} has {both[0]} neurons in each layer and {b.name} {both[1]}: a refinement "
            "needs as many in both; align without it."
        )
    require_whole_stages(words(a.family, asked.only) & a.family.carried(b.headers), a.family)


def require_sweeps(asked: Align) -> None:
    """Refused for what only sweeps read, where there are none."""
    usual = {one.name: one.default for one in fields(asked)}
    unread = [name for name in SWEPT if getattr(asked, name) != usual[name]]
    if unread and not asked.sweeps:
        raise Refused(
            f"--{unread[0]} {getattr(asked, unread[0])} needs sweeps, and there are none: give "
            "--sweeps, for instance 12."
        )


def once(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: Begun, seen: Watch, progress: Progress
) -> Solution:
    """Each coordinate once, from the residual's correlation.

    Where the residual coordinates stay as they are, activations tell what layers do instead.
    """
    lone = "res" not in words(a.family, asked.only)
    heard = lone and asked.using == "activations"
    layers = sense(a, b, asked, part(progress, 0, 0.5)) if heard else {}
    g, margins = align(
        a, b, layers if lone else pooled(), signs=asked.signs, only=asked.only, stage2=asked.stage2,
        told=seen.steps.append, progress=part(progress, 0.5 if heard else 0, 1),
    )  # fmt: skip
    return Solution(g, pooled, margins, tuple(seen.steps), layers=layers)


def swept(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: Begun, seen: Watch, progress: Progress
) -> Solution:
    """Coordinate descent from the identity, the embedding, activations and perturbed starts."""
    heard = listened(a, b, asked, pooled, part(progress, 0, 0.2))
    chosen = words(a.family, asked.only) & a.family.carried(b.headers)
    task = Descent(a, b, asked, chosen, occurring(a, asked), heard)
    begun = starts(a, b, asked, pooled, heard)
    told: list[Fate] = []
    end, rows = lowest(task, begun, part(progress, 0.2, 0.9), seen.sweeps.append, told.append)
    g, sure = gauge(task, end), margins(task, end, part(progress, 0.9, 1))
    seen.steps.extend(explained(a, b, g, sure))
    progress(1, "all sweeps are done")
    by_name = {
        name: [x for key, x in sure.items() if key.rpartition(".")[2] == name]
        for name in a.family.free
        if name in chosen
    }
    return Solution(
        g, pooled, by_name, tuple(seen.steps), rows, notes=tuple(sentences(told, asked.sweeps))
    )


def starts(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: Begun, heard: Listened | None
) -> dict[str, Start]:
    """Where descents begin, by name: computed only if those before them have not ended near."""
    found: dict[str, Start] = {"identity": None, "embedding": pooled}
    if heard is not None:
        found["embedding"] = partial(start_from_embedding, a, b)
        found["activations"] = heard.residual
    last = pooled if heard is None else lambda: heard.residual
    for number in range(1, asked.restarts + 1):
        found[f"perturbed {number}"] = partial(perturbed, last, number)
    return found


def perturbed(last: Begun, number: int) -> np.ndarray:
    """A correlation with noise, `number` its seed."""
    known = last()
    draw = np.random.default_rng(number).normal(size=known.shape)
    return known + NOISE * known.std() * draw


def listened(
    a: Checkpoint, b: Checkpoint, asked: Align, pooled: Begun, progress: Progress
) -> Listened | None:
    """Correlations of activations where they are asked for."""
    if asked.using == "weights":
        if not asked.mix:
            return None
        heard = replace(asked, using="activations")
        stream = residual_correlation(a, b, heard, part(progress, 0, 0.5)).mean(axis=0)
    else:
        stream = pooled()
    if not asked.mix:
        return Listened(stream)
    ids = torch.from_numpy(shared.shared(a, b, asked.text, asked.tokens)[0])
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    models = [network.load(c, where, kind) for c in (a, b)]
    neurons = correlate_neurons(models, a.family, ids, texts.special(a), part(progress, 0.5, 1))
    return Listened(stream, tuple(one.abs() for one in neurons))


def occurring(a: Checkpoint, asked: Align) -> Tensor | None:
    """The token ids that occur in the text; None where it shows too little of the vocabulary.

    A row of the embedding that no training text used says nothing about coordinates. Errors:
    Refused for a text that the user named and that cannot be read, but not for a short one.
    """
    size = a.family.sizes(a.config).get("tok")
    if not size or a.family.inputs == "pixels":
        return None
    try:
        seen = torch.from_numpy(
            np.unique(texts.tokens(a, asked.text, max(asked.tokens, TRAINED[-1])))
        )
    except Brief:
        return None
    except Refused:
        if shared.named(asked.text):
            raise
        return None
    return seen if len(seen) >= COVERED * size else None


def explained(
    a: Checkpoint, b: Checkpoint, g: Symmetry, sure: Mapping[str, float] | None = None
) -> list[LayerStage]:
    """What each coordinate of a gauge takes off the distance, layer by layer, residual first.

    `sure`: the smallest margin of every index set, by key.
    """
    found = []
    every = (("res",), *(names for names, _ in STAGES))
    facing = Facing(a, b, g)
    for layer in (*range(a.layers), None):
        mine = layer_tensors(b, layer)
        theirs = {n: facing.read(n) for n in a.headers if a.family.row(n).layer == layer}
        seen = {n: facing.cut(n, x) for n, x in mine.items()}
        for names in every:
            step = {k: e for k, e in g.elements.items() if _word(k, layer) in names}
            if step:
                mine = acted(replace(g, elements=step), mine)
                before, seen = seen, {n: facing.cut(n, x) for n, x in mine.items()}
                margin = (sure or {}).get(a.family.key(names[0], layer))
                found.append(took(a.family, layer, names, theirs, before, seen, margin=margin))
    return found


def _word(key: str, layer: int | None) -> str:
    """The coordinate of a key that acts in a layer; "" for the keys of other layers."""
    prefix, _, name = key.rpartition(".")
    return name if not prefix or prefix == f"layers.{layer}" else ""


def long_text(a: Checkpoint, b: Checkpoint, asked: Align) -> Int[Tensor, "windows length"]:
    """The longest of the wanted texts. Errors: Refused as `engine.shared.shared`, for the last."""
    for count in TRAINED:
        try:
            return torch.from_numpy(shared.shared(a, b, asked.text, count + JUDGED)[0])
        except Brief:
            continue
    return torch.from_numpy(shared.shared(a, b, asked.text, asked.tokens)[0])


def refined(
    a: Checkpoint, b: Checkpoint, asked: Align, first: Solution, seen: Watch, progress: Progress
) -> Solution:
    """The continuous part refined, beside the same from the identity, on text not seen before."""
    where = network.device(asked.device)
    ids = long_text(a, b, asked)
    cut = max(1, min(len(ids) // 4, JUDGED // ids.shape[1]))
    still = replace(first.g, elements={})
    seen.losses += [[], []]
    ends = [
        refine(
            a, b, g, ids[:-cut], asked.refine, device=where, told=losses.append,
            progress=part(progress, low, high),
        )
        for g, low, high, losses in zip(
            (first.g, still), (0, 0.45), (0.45, 0.9), seen.losses, strict=True
        )
    ]  # fmt: skip
    own = {key.rpartition(".")[2] for key in first.g.elements}
    names = [name for name in a.family.free if name in own]
    stages = [("unaligned", still)]
    stages += [(f"with {name}", first.g.only(names[: k + 1])) for k, name in enumerate(names)]
    stages += [("refined", ends[0]), ("refined without matching", ends[1])]
    progress(0.9, "judging on other text")
    points = midpoints(a, b, stages, ids[-cut:], where)
    steps = (*first.steps, *moved(a, b, first.g, ends[0]))
    return replace(first, g=ends[0], midpoints=points, steps=steps)


def moved(a: Checkpoint, b: Checkpoint, g: Symmetry, h: Symmetry) -> Iterator[LayerStage]:
    """What going on from one gauge to another did to the distance, layer by layer."""
    for layer in (*range(a.layers), None):
        theirs, mine = (layer_tensors(c, layer) for c in (a, b))
        ends = (acted(one, mine) for one in (g, h))
        yield replace(took(a.family, layer, a.family.free, theirs, *ends), coordinates=REFINED)
