"""The gauge of every stage, all cut from one alignment of B with A."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from engine import shared, texts
from engine.action import acted
from engine.alignment.one_pass import align, layer_tensors, residual, stages
from engine.alignment.refinement import refine
from engine.alignment.solving import Solution, solve
from engine.alignment.stages import UNIT
from engine.alignment.weighing import SILENT, Layers
from engine.axes import legs
from engine.elements import Element, Ordered
from engine.errors import Brief, Progress, Refused, part
from engine.line.ends import Ends
from engine.line.scopes import inner
from engine.line.words import known
from engine.questions import Align, Using
from engine.symmetry import Symmetry, sample

RES = ("res",)
NEURONS = ("exp", "ffn", "sffn")
HEADS = ("grp", "head")
ORDERS = (*RES, *NEURONS, *HEADS)
"""The coordinates whose elements are orders, with signs or factors or without."""
HEARD = 8192
"""Tokens of the default text from which activations are taken."""
DESCENDED = (65_536, 16_384, 4_096)
"""Tokens that a refinement reads: the most that the text has after those that are measured on."""


class Aligned(Protocol):
    """What a question says of its alignment."""

    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def using(self) -> Using: ...
    @property
    def sweeps(self) -> int: ...
    @property
    def refine(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def device(self) -> str: ...


@dataclass(frozen=True)
class Work:
    """Both ends, and what the question asks of their alignment."""

    ends: Ends
    asked: Aligned
    shared: bool  # A and B are equal outside what moves: no coordinate reaches beyond a layer
    measured: int = 0  # tokens that refinement must not read

    @property
    def chosen(self) -> frozenset[str]:
        """The coordinates that are solved."""
        family = self.ends.a.family
        free = inner(family) if self.shared and self.partly else frozenset(family.free)
        return free & family.carried(self.ends.b.headers)

    @property
    def partly(self) -> bool:
        """Whether some tensors stay A's."""
        return len(self.ends.inside) < len(self.ends.a.headers)


def gauges(work: Work, asked: Sequence[str], progress: Progress) -> dict[str, Symmetry]:
    """The gauge of each stage, in the order of the work; Refused as for `known`."""
    wanted = known(asked, work.asked.refine, whole=not work.partly)
    solved = [stage for stage in wanted if stage not in {"none", "random"}]
    still = Symmetry(work.ends.a.family, work.ends.a.config, {})
    found = solution(work, progress) if solved else Solution(still, _NOTHING, {}, ())
    make: dict[str, Callable[[], Symmetry]] = {
        "none": lambda: still,
        "orders": lambda: orders(work, found),
        "res-unsigned": lambda: unsigned(work, found),
        "res": lambda: found.g.only(RES),
        "ffn": lambda: found.g.only((*RES, *NEURONS)),
        "heads": lambda: found.g.only(ORDERS),
        "orthogonal": lambda: orthogonal(work, found.g.only(ORDERS), found.layers),
        "all": lambda: found.g,
        "refined": lambda: refined(work, found.g, part(progress, 0.5, 1)),
        "random": lambda: control(work),
    }
    return {stage: make[stage]() for stage in wanted}


_NOTHING = torch.zeros(0, 0).numpy()


def solution(work: Work, progress: Progress) -> Solution:
    """The one alignment, by the weights or by activations on the text."""
    asked, ends = work.asked, work.ends
    how = Align(
        asked.a,
        asked.b,
        using=asked.using,
        only=tuple(sorted(work.chosen)) if work.partly and work.shared else (),
        tokens=heard_tokens(asked.text, work.measured),
        text=asked.text,
        device=asked.device,
        sweeps=asked.sweeps,
    )
    return solve(ends.a, ends.b, how, part(bare(progress), 0, 0.5 if asked.refine else 1))


def heard_tokens(text: str, measured: int) -> int:
    """How much of a text activations are taken from: of one that was named, what is measured."""
    return HEARD if text == texts.DEFAULT else measured or 256


def bare(progress: Progress) -> Progress:
    """The callback without what an alignment hands over: a line's own curves are its parts."""

    def inner(share: float, step: str, _: object = None, /) -> None:
        progress(share, step)

    return inner


def unsigned(work: Work, found: Solution) -> Symmetry:
    """The order of the residual coordinates alone, searched without signs, from the same scores."""
    if "res" not in work.chosen:
        return found.g.only(())
    element, _ = residual(found.g.family, found.pooled, signs=False)
    return replace(found.g, elements={"res": element})


def orders(work: Work, found: Solution) -> Symmetry:
    """Every order, found without signs; no sign, no factor, no angle and no matrix."""
    names = work.chosen & set(ORDERS)
    evidence = found.pooled if "res" in names else found.layers
    g, _ = align(work.ends.a, work.ends.b, evidence, signs=False, only=tuple(sorted(names)))
    return replace(g, elements={key: _bare(element) for key, element in g.elements.items()})


def _bare(element: Element) -> Element:
    assert isinstance(element, Ordered)
    return replace(element, scale=torch.ones_like(element.scale))


def orthogonal(work: Work, g: Symmetry, layers: Layers) -> Symmetry:
    """g and after it, inside the heads, turns and orthogonal matrices alone."""
    a, b = work.ends.a, work.ends.b
    inside = sorted(work.chosen & UNIT.keys())
    found: dict[str, Element] = {}
    for layer in range(a.layers):
        theirs, own = (layer_tensors(c, layer) for c in (a, b))
        heard = layers.get(layer, SILENT).seen(a.family, g.sizes, theirs, acted(g, own))
        for names, solver in stages(a.family, g.sizes, inside, layer, "orthogonal"):
            solved = solver(a.family, g.sizes, *heard)
            step = {a.family.key(n, layer): solved.elements[n] for n in names}
            heard = heard[0], acted(replace(g, elements=step), heard[1])
            found |= step
    return replace(g, elements={**g.elements, **found})


def refined(work: Work, g: Symmetry, progress: Progress) -> Symmetry:
    """g with its continuous part moved along the loss half way, on text that is not measured on.

    Errors: Refused for vocabularies of two sizes, and for a short text.
    """
    a, asked = work.ends.a, work.asked
    for count in DESCENDED:
        try:
            found, _ = shared.shared(a, work.ends.b, asked.text, work.measured + count)
        except Brief:
            continue
        every = torch.from_numpy(found)
        read = 1 + -(-work.measured // every.shape[1])
        if len(ids := every[read:]):
            return refine(
                a, work.ends.b, g, ids, asked.refine, device=work.ends.device, progress=progress
            )
    raise Refused(
        f"--refine needs {DESCENDED[-1]} tokens of text beyond the {work.measured} that are "
        "measured on: give a longer text."
    )


def control(work: Work) -> Symmetry:
    """A random element of the whole group, or, for a part of a model, of what lives inside it."""
    a, asked = work.ends.a, work.asked
    draw = torch.Generator().manual_seed(asked.seed)
    only = sorted(inner(a.family)) if work.partly else ()
    g = sample(a.family, a.config, draw, only)
    return replace(g, source=work.ends.b.fingerprint)


def touching(g: Symmetry, inside: frozenset[str]) -> dict[str, Element]:
    """The elements of a gauge that move one of these tensors, by key."""
    found: dict[str, Element] = {}
    for name in inside:
        row = g.family.row(name)
        for word in (*row.places, *(leg.name for leg in legs(row.axes))):
            key = g.family.key(word, row.layer)
            if key in g.elements and not _still(g.elements[key]):
                found[key] = g.elements[key]
    return found


def equal(g: Symmetry, h: Symmetry, inside: frozenset[str]) -> bool:
    """Whether two gauges do the same to these tensors, element by element."""
    first, second = (touching(one, inside) for one in (g, h))
    return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)


def _still(x: Element) -> bool:
    """Whether an order is the identity; whatever is continuous counts as a move."""
    if not isinstance(x, Ordered):
        return False
    same = torch.arange(x.permutation.shape[-1]).expand(x.permutation.shape)
    return torch.equal(x.permutation, same) and bool((x.scale == 1).all())


def _same(x: Element, y: Element) -> bool:
    if x is y:
        return True
    one, other = x.numbers(), y.numbers()
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
