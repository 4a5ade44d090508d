"""Putting B into A's coordinates, one layer of both at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engine.action import act, acted, correlate
from engine.alignment.heads import gather
from engine.alignment.stages import STAGES, UNIT, Solver
from engine.alignment.weighing import SILENT, Layers
from engine.alignment.widths import (
    WORD,
    chosen_neurons,
    common_neurons,
    narrower,
    widths,
)
from engine.assignment import match
from engine.axes import Mark, Sizes, legs
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.errors import Progress, Refused, silent
from engine.family import Family
from engine.groups import COMMON_SIGN, Trivial
from engine.questions import Stage2
from engine.records import LayerStage
from engine.symmetry import Symmetry, words

Tensors = Mapping[str, Tensor]


def cosines(
    family: Family, sizes: Sizes, a: Tensors, b: Tensors, coordinate: str
) -> Float[Tensor, "*over n n"]:
    """Σ a bᵀ over all signed legs of a coordinate over both norms; every other axis aligned.

    Under LayerNorm the mean over the coordinates is left out first: nothing reads it.
    """
    centred = family.coordinates[coordinate].group == COMMON_SIGN

    def total(x: Tensors, y: Tensors) -> Tensor:
        parts = [correlate(family, sizes, n, x[n].double(), y[n].double(), coordinate) for n in x]
        found = torch.stack([part for part in parts if part is not None]).sum(0)
        if not centred:
            return found
        means = found.mean(-1, keepdim=True), found.mean(-2, keepdim=True)
        return found - means[0] - means[1] + found.mean((-2, -1), keepdim=True)

    def norms(x: Tensors) -> Tensor:
        found = gather(family, sizes, x, coordinate, *family.coordinates[coordinate].over)
        signed = [block for mark, block in found.items() if mark is not Mark.RELABEL]
        if centred:
            signed = [block - block.mean(-1, keepdim=True) for block in signed]
        return torch.stack([block.square().sum(-2) for block in signed]).sum(0).sqrt()

    return total(a, b) / (norms(a).unsqueeze(-1) * norms(b).unsqueeze(-2)).clamp(min=1e-300)


def start_from_embedding(a: Checkpoint, b: Checkpoint) -> Float[np.ndarray, "d d"]:
    """C of the residual coordinates without data: the tensors whose other axes are fixed.

    These are the token embedding and an untied `lm_head`; token ids that only one of the
    vocabularies has (the rows at the end) are left out.
    """
    family = a.family

    def ready(name: str) -> bool:
        others = {leg.name for leg in legs(family.row(name).axes)} - {"res"}
        fixed = (isinstance(family.coordinates[o].group, Trivial) for o in others)
        return bool(others) and all(fixed) and name in b.headers

    both = {n: common(a.read(n), b.read(n)) for n in a.headers if ready(n)}
    theirs, mine = ({n: pair[i] for n, pair in both.items()} for i in (0, 1))
    return cosines(family, family.sizes(a.config), theirs, mine, "res").numpy()


def common(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The leading part that two tensors share where their vocabularies differ in size."""
    shared = tuple(slice(min(pair)) for pair in zip(x.shape, y.shape, strict=True))
    return x[shared], y[shared]


def layer_tensors(
    checkpoint: Checkpoint, layer: int | None, *, mapped: bool = False
) -> dict[str, Tensor]:
    """The tensors of one layer (None: those of no layer)."""
    names = (n for n in checkpoint.headers if checkpoint.family.row(n).layer == layer)
    return {n: checkpoint.read(n, mapped=mapped) for n in names}


def align(
    a: Checkpoint,
    b: Checkpoint,
    evidence: np.ndarray | Layers,
    *,
    signs: bool = True,
    only: Collection[str] = (),
    stage2: Stage2 = "full",
    told: Callable[[LayerStage], None] = lambda _: None,
    progress: Progress = silent,
) -> tuple[Symmetry, Mapping[str, list[float]]]:
    """g with g · B ≈ A, and the relative margins that each stage met, by coordinate.

    `evidence` is C of the residual coordinates (rows A), from activations or from
    `start_from_embedding`; where they are not `only`, it may be what is known of each layer besides
    its weights (`Sensed`). With `signs` off only S_d is searched, as git re-basin does. `stage2`
    of the heads: all of it, turns and orthogonal matrices only, or none (Tran et al. 2026). `told`
    is given what each stage of each layer did to the distance.
    """
    family = a.family
    chosen = words(family, only) & family.carried(b.headers)
    require_whole_stages(chosen, family)
    sizes = family.sizes(a.config)
    found: dict[str, Element] = {}
    seen: dict[str, list[float]] = {}
    if "res" in chosen:
        assert isinstance(evidence, np.ndarray)
        found["res"], certain = residual(family, evidence, signs=signs)
        seen["res"] = [certain]
    g = Symmetry(family, b.config, found, b.fingerprint, a.fingerprint, (b.name, a.name))
    both = widths(a, b)
    inner = replace(g, config=narrower(a, b))
    known = {} if isinstance(evidence, np.ndarray) else evidence
    for layer in (*range(a.layers), None):
        progress((layer or 0) / a.layers, f"layer {layer} of {a.layers}")
        theirs, own = (layer_tensors(c, layer) for c in (a, b))
        mine = acted(g, own)
        kept = common_neurons(family, (sizes, g.sizes), theirs, mine) if both else None
        if kept:
            theirs = chosen_neurons(family, sizes, theirs, kept.a)
            own, mine = (chosen_neurons(family, g.sizes, z, kept.b) for z in (own, mine))
        if "res" in found:
            told(took(family, layer, ("res",), theirs, own, mine, margin=seen["res"][0]))
        sensed = known.get(layer, SILENT)
        heard = sensed.seen(family, inner.sizes, theirs, mine)
        for names, solver in stages(family, sizes, chosen, layer, stage2):
            solved = sensed.solver(names, solver)(family, inner.sizes, *heard)
            step = {family.key(n, layer): solved.elements[n] for n in names}
            found |= step
            here = replace(inner, elements=step)
            before, mine = mine, acted(here, mine)
            heard = heard[0], acted(here, heard[1]) if sensed.weighs else mine
            told(took(family, layer, names, theirs, before, mine, margin=solved.margin))
            for n in names:
                seen.setdefault(n, []).extend([] if solved.margin is None else [solved.margin])
        if kept:
            found |= kept.lifted(found, family.key(WORD, layer))
    return replace(g, elements=dict(found)), seen


def residual(
    family: Family, correlation: np.ndarray, *, signs: bool = True
) -> tuple[Ordered, float]:
    """The residual coordinates' element from their correlation, and its smallest margin."""
    common = family.coordinates["res"].group == COMMON_SIGN
    best = match(correlation, absolute=signs, signs=signs, common=common)
    order, sign = torch.from_numpy(best.permutation), torch.from_numpy(best.sign).double()
    return Ordered(order, sign), float(best.margin.min())


def took(
    family: Family,
    layer: int | None,
    names: Collection[str],
    a: Tensors,
    before: Tensors,
    after: Tensors,
    *,
    margin: float | None = None,
) -> LayerStage:
    """What a change of some coordinates did to the distance of one layer from A's.

    `margin` is infinite where there is one alone, and none is left to lead.
    """
    (one, own), (other, _) = (apart(family, a, b, names) for b in (before, after))
    first, last = (float(np.sqrt(gap / max(own, 1e-300))) for gap in (one, other))
    lead = margin if margin is not None and np.isfinite(margin) else None
    return LayerStage(layer, " ".join(names), first, last, lead, one - other)


def apart(family: Family, a: Tensors, b: Tensors, names: Collection[str]) -> tuple[float, float]:
    """Σ ‖A − B‖² and Σ ‖A‖² over the tensors that carry one of some coordinates."""
    gap = own = 0.0
    for name, x in a.items():
        row = family.row(name)
        if name in b and set(names) & {*row.places, *(leg.name for leg in legs(row.axes))}:
            mine, theirs = common(x.float(), b[name].float())
            gap += float((mine - theirs).square().sum(dtype=torch.float64))
            own += float(mine.square().sum(dtype=torch.float64))
    return gap, own


def stages(
    family: Family,
    sizes: Sizes,
    chosen: Collection[str],
    layer: int | None,
    stage2: Stage2 = "full",
) -> Iterator[tuple[tuple[str, ...], Solver]]:
    """The stages that a layer of this family has (None: what belongs to no layer)."""
    for words_of, solver in STAGES:
        names = tuple(n for n in words_of if n in chosen and sizes[n])
        if names and (names[0] in family.per_layer) == (layer is not None):
            if stage2 == "full" or names[0] not in UNIT:
                yield names, solver
            elif stage2 == "orthogonal":
                yield names, UNIT[names[0]]


def require_whole_stages(chosen: Collection[str], family: Family) -> None:
    """Refused where only a part of what one stage solves together was named."""
    for words_of, _ in STAGES:
        names = [name for name in words_of if name in family.free]
        absent = [name for name in names if name not in chosen]
        if absent and len(absent) < len(names):
            raise Refused(
                f"{' and '.join(names)} are solved together, and {' and '.join(absent)} was not "
                "named: say heads for both."
            )


def aligned(g: Symmetry, b: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """The tensors of g · B, one at a time."""
    for name in b.headers:
        yield name, act(g, name, b.read)
