"""Heads in disguise: what the published cost calls one head, and whether the model agrees."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor

from engine.action import act
from engine.alignment.heads import (
    Bilinear,
    Turning,
    bilinear,
    bilinear_cost,
    published,
    rotary_cost,
    turning,
)
from engine.attention import trials
from engine.attention.pairs import Pair, Tensors
from engine.axes import Sizes, legs
from engine.elements import Element, Ordered
from engine.family import Family
from engine.folding import attention, folded
from engine.groups import LINEAR, PERMUTATION, Rotary
from engine.lab.claims import allowing, pairs
from engine.questions import Heads
from engine.records import Disguise
from engine.records.heads import Clothes
from engine.running import VALUES, divergence
from engine.symmetry import Symmetry

TOKENS = 128
RUN = 300_000_000
"""Parameters up to which the model is run in each disguise."""


def disguises(both: Pair, asked: Heads) -> tuple[tuple[Disguise, ...], str]:
    """A's own heads of the layer, all of them disguised at once; and on what A was run.

    None where nothing is rotated. M = W_qᵀ W_k of every head stays in all of them.
    """
    if not both.sizes.get("rot"):
        return (), ""
    generator = torch.Generator().manual_seed(0)
    put_on = worn(both, generator).items()
    changed: dict[Clothes, Tensors] = {kind: dressed(both, put) for kind, put in put_on}
    moved, what = heard(both, asked, changed)
    found = []
    for kind, x in changed.items():
        public, ours = (costs(both, x, own=own) for own in (False, True))
        error, nats = moved[kind]
        found.append(Disguise(kind, public, ours, error, nats))
    return tuple(found), what


@dataclass(frozen=True)
class Worn:
    """An element of the rotated channels, and the table by which it acts on them."""

    family: Family
    word: str
    element: Element


def worn(both: Pair, generator: Generator) -> dict[Clothes, Worn]:
    """The disguises by name: an element for each key/value head, and how it acts.

    `matrix`: any invertible G, q → G q and k → G⁻ᵀ k; `exchange`: each frequency in the place of
    another, in q and k, where there are two; `turn`: an element of the group that rotation leaves.
    """
    family = both.family
    neighbours = isinstance(family.coordinates["rot"].group, Rotary)
    wide, word = (family, "rot") if neighbours else pairs(family, "rot")
    wide = allowing(wide, word, LINEAR)
    size, batch = wide.sizes(both.a.config)[word], family.batch("rot", both.sizes)
    found: dict[Clothes, Worn] = {"matrix": Worn(wide, word, LINEAR.sample(size, batch, generator))}
    if size > 2:
        moved = exchanged(family, both.sizes, generator)
        found["exchange"] = Worn(allowing(family, "rot", PERMUTATION), "rot", moved)
    own = family.coordinates["rot"].group.sample(both.sizes["rot"], batch, generator)
    found["turn"] = Worn(family, "rot", own)
    return found


def exchanged(family: Family, sizes: Sizes, generator: Generator) -> Ordered:
    """A random cycle over all frequencies of each key/value head, both channels of a pair kept."""
    batch, group = family.batch("rot", sizes), family.coordinates["rot"].group
    count = sizes["rot"] // 2 if isinstance(group, Rotary) else sizes["rot"]
    ring = PERMUTATION.sample(count, batch, generator).permutation
    order = torch.empty_like(ring).scatter(-1, ring, ring.roll(1, -1))
    if isinstance(group, Rotary):
        halves = group.pairs == "halves"
        places = [order, order + count] if halves else [2 * order, 2 * order + 1]
        order = torch.stack(places, -2 if halves else -1).flatten(-2)
    return Ordered(order, torch.ones_like(order, dtype=torch.float64))


def dressed(both: Pair, put: Worn) -> dict[str, Tensor]:
    """A's tensors that carry the rotated channels, after an element, float64."""
    key = put.family.key(put.word, both.layer)
    g = Symmetry(put.family, both.a.config, {key: put.element})
    return {
        name: act(g, name, lambda name: both.theirs[name].double())
        for name in both.theirs
        if put.word in {leg.name for leg in legs(put.family.row(name).axes)}
    }


Factors = Bilinear | Turning
Cost = Callable[[Factors, Factors], Tensor]


def costs(both: Pair, changed: Tensors, *, own: bool) -> np.ndarray:
    """Cost between queries and keys of every head against itself disguised, over ‖·‖² of it.

    0 is called the same head; two unrelated heads of one size are at 2.
    """
    before = {n: x.double() for n, x in both.theirs.items()}
    read = partial(_ours, both.family, both.sizes) if own else partial(_public, both)
    found = torch.zeros(both.sizes["grp"], both.per_group, dtype=torch.float64)
    size = torch.zeros_like(found)
    for x, y in zip(read(before), read({**before, **changed}), strict=True):
        found = found + each(x, y)
        size = size + each(x, type(x)(*(0 * part for part in _parts(x))))
    return (found.clamp(min=0) / size.clamp(min=1e-300)).flatten().numpy()


def _ours(family: Family, sizes: Sizes, tensors: Tensors) -> list[Factors]:
    x = folded(family, sizes, tensors)
    rest = [bilinear(family, sizes, x, "qk")] if sizes.get("qk") else []
    return [turning(family, sizes, x), *rest]


def _public(both: Pair, tensors: Tensors) -> list[Factors]:
    return [published(both.family, both.sizes, attention(both.family, tensors))]


def each(x: Factors, y: Factors) -> Tensor:
    """The cost of every head of one against the same head of the other, [grp, head]."""
    cost = rotary_cost if isinstance(x, Turning) else bilinear_cost
    some = [[type(z)(*(part[g : g + 1] for part in _parts(z))) for g in range(len(_parts(z)[1]))]
            for z in (x, y)]  # fmt: skip
    found = [cost(*two)[0, :, 0].diagonal() for two in zip(*some, strict=True)]
    return torch.stack(found)


def _parts(x: Factors) -> list[Tensor]:
    return [getattr(x, part.name) for part in fields(x)]


Moved = tuple[float | None, float | None]


def heard(
    both: Pair, asked: Heads, changed: Mapping[Clothes, Tensors]
) -> tuple[dict[Clothes, Moved], str]:
    """How far A's output moves in every disguise: max |Δ log p| / max |log p|, and mean KL, nats.

    A large model is not run; a model without classes has no KL.
    """
    if both.a.parameters > RUN:
        return dict.fromkeys(changed, (None, None)), ""
    short = replace(asked, tokens=min(asked.tokens, TOKENS))
    given = trials.inputs(both.a, both.b, short)
    say = trials.speaker(both.a, short, given)
    before = say({})
    return {kind: apart(before, say(x)) for kind, x in changed.items()}, given.what


def apart(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Moved:
    """Relative difference of all outputs, and KL of the first."""
    largest = max(float((after[name] - x).abs().max()) for name, x in before.items())
    scale = max(float(x.abs().max()) for x in before.values())
    name = next(iter(before))
    known = None if name in VALUES else divergence(before[name], after[name])
    return largest / max(scale, 1e-300), known
