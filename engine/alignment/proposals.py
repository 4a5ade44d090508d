"""What one layer may change to in a sweep: its neurons, its heads and what is inside them.

Every proposal is judged by the distance that it leaves, so that it may come from any score.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from engine.action import act
from engine.alignment.candidates import Heard, Judged, best_neurons
from engine.alignment.close import (
    along,
    apart,
    gap,
    heads_stand,
    mixed_nearby,
    turned_nearby,
    worth_turning,
)
from engine.alignment.heads import bilinear, turning
from engine.alignment.one_pass import stages
from engine.alignment.stages import Solver, solve_mixing
from engine.alignment.widths import WORD, Both, both_have, carries, placed
from engine.axes import Sizes, legs
from engine.elements import Element, Mixed, Ordered, Turned
from engine.family import Family
from engine.folding import HEADS, NEURONS
from engine.questions import NeuronCost, Stage2
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
Found = dict[str, Element]
Find = Callable[[Family, Sizes, Tensors, Tensors], Found]
STEPS = 20
"""Of Gauss–Newton for a matrix: in sweeps it is solved again and again."""
HELD = frozenset({"exp", "grp", "head"})
"""Orders that may stay while all that is inside them is solved again."""


def square(x: Tensor) -> float:
    """‖x‖²: a dot product adds up in parts, so that float32 is fine enough, and fast."""
    flat = x.flatten()
    return float(torch.dot(flat, flat))


@dataclass(frozen=True)
class Stage:
    """Coordinates that are solved together, and how."""

    names: tuple[str, ...]
    find: Find


@dataclass(frozen=True)
class Scene:
    """One layer of both models, folded, B in A's residual coordinates; and what may be solved."""

    family: Family
    config: Mapping[str, Any]
    layer: int | None
    a: Tensors
    b: Tensors
    chosen: Collection[str]
    stage2: Stage2 = "full"
    cost: NeuronCost = "invariant"
    heard: Heard | None = None
    both: Both | None = None  # numbers of neurons, where they differ and layers are padded
    order: Tensor | None = None  # of B's neurons, where padded; None: as they came

    @cached_property
    def sizes(self) -> Sizes:
        """Size of every coordinate."""
        return self.family.sizes(self.config)

    def after(self, elements: Mapping[str, Element]) -> "Scene":
        """B under some elements, by coordinate; tensors that none of them moves are the same."""
        moving = {n: e for n, e in elements.items() if not still(e)}
        if not moving:
            return self
        keyed = {self.family.key(n, self.layer): e for n, e in moving.items()}
        g = Symmetry(self.family, self.config, keyed)
        read = self.b.__getitem__
        moved = {n: act(g, n, read) if self.carries(n, moving) else x for n, x in self.b.items()}
        neurons = moving.get(WORD)
        order = self.order
        if self.both and isinstance(neurons, Ordered):
            order = neurons.permutation if order is None else order[neurons.permutation]
        return replace(self, b=moved, order=order)

    def left(self, name: str) -> Tensor:
        """‖A_t − B_t‖² of one tensor, by residual coordinate where it has such an axis.

        Neurons that only one model has count nothing.
        """
        x, y = self.a[name], self.b[name]
        if self.both and carries(self.family, name):
            order = torch.arange(self.sizes[WORD]) if self.order is None else self.order
            places = torch.where(both_have(order, self.both), torch.arange(len(order)), -1)
            x, y = (placed(self.family, self.sizes, name, z, places) for z in (x, y))
        elif "res" in (words := along(self.family, name)) and WORD in words:
            return self._apart(name)[words.index("res")]
        return gap(self.family, name, x, y)

    def neurons_left(self) -> Tensor | None:
        """‖a − b‖² of every neuron as both models stand; None where a tensor holds more of them."""
        found = []
        for name in self.a:
            words = along(self.family, name)
            if WORD in words and len(words) == 2:
                found.append(self._apart(name)[words.index(WORD)])
            elif self.carries(name, {WORD}):
                return None
        return torch.stack(found).sum(0)

    def _apart(self, name: str) -> tuple[Tensor, Tensor]:
        """‖A_t − B_t‖² of every row and every column of a matrix, computed once."""
        if name not in self._known:
            self._known[name] = apart(self.a[name], self.b[name])
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, tuple[Tensor, Tensor]]:
        return {}

    def carries(self, tensor: str, names: Collection[str]) -> bool:
        """Whether a tensor has one of some coordinates on an axis or in its name."""
        row = self.family.row(tensor)
        return bool({*names} & {*row.places, *(leg.name for leg in legs(row.axes))})

    def blocks(self, now: Mapping[str, Element]) -> list[tuple[Stage, ...]]:
        """The stages by what they share: the feed-forward network, attention, each other one."""
        found = stages(self.family, self.sizes, self.chosen, self.layer, self.stage2)
        every = [Stage(names, self._find(names, solver, now)) for names, solver in found]
        parts = [tuple(s for s in every if set(s.names) <= words) for words in (NEURONS, HEADS)]
        others = [(s,) for s in every if not set(s.names) <= NEURONS | HEADS]
        return [part for part in (*parts, *others) if part]

    def _find(self, names: tuple[str, ...], solver: Solver, now: Mapping[str, Element]) -> Find:
        if set(names) <= {"ffn", "sffn"}:
            mine = Judged(self.cost, self.heard, self.both, self.neurons_left)
            how = mine if names == (WORD,) else Judged(self.cost)
            return partial(best_neurons, word=names[0], now=now.get(names[0]), how=how)
        if set(names) <= {"val", "qk"} and self.stage2 == "full":
            solver = partial(solve_mixing, word=names[0], steps=STEPS)

        def find(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Found:
            elements = solver(family, sizes, a, b).elements
            return {n: elements[n] for n in names}

        return find


def still(element: Element) -> bool:
    """Whether an element leaves everything as it is."""
    if isinstance(element, Turned):
        return bool((element.z == 1).all())
    if not isinstance(element, Ordered) or not bool((element.scale == 1).all()):
        return False
    order = element.permutation
    return torch.equal(order, torch.arange(order.shape[-1]).expand(order.shape))


@dataclass(frozen=True)
class Outcome:
    """One layer solved."""

    elements: Found
    there: Scene  # B under them
    left: Mapping[str, Tensor]  # ‖A_t − B_t‖² of every tensor, as `Scene.left`
    gaps: tuple[float, float]  # Σ ‖A − B‖², before and after
    worth: tuple[float, float]  # what the neurons' activations are worth, before and after


def total(left: Mapping[str, Tensor], names: Collection[str]) -> float:
    """Σ over some tensors."""
    return float(torch.cat([left[n] for n in names]).sum()) if names else 0.0


def solve_layer(scene: Scene, now: Mapping[str, Element]) -> Outcome:
    """The best proposal of every block, the present elements among them."""
    present = scene.after(now)
    found, tensors = dict(now), dict(present.b)
    at_first = {n: present.left(n) for n in present.a}
    left = dict(at_first)
    for block in scene.blocks(now):
        names = {name for stage in block for name in stage.names}
        carriers = [n for n in scene.a if scene.carries(n, names)]
        least = total(at_first, carriers) - _worth(present, now, names)
        for elements, there in proposals(scene, present, block, now):
            here = {n: at_first[n] if there.b[n] is present.b[n] else there.left(n)
                    for n in carriers}  # fmt: skip
            value = total(here, carriers) - _worth(there, elements, names)
            if value < least or (value == least and not elements.keys() <= found.keys()):
                least = value
                found |= elements
                left |= here
                tensors |= {n: there.b[n] for n in carriers}
    gaps = total(at_first, [*at_first]), total(left, [*left])
    worth = heard(scene, now), heard(scene, found)
    return Outcome(found, replace(scene, b=tensors), left, gaps, worth)


def _worth(scene: Scene, elements: Mapping[str, Element], names: Collection[str]) -> float:
    return heard(scene, elements) if "ffn" in names else 0.0


def heard(scene: Scene, elements: Mapping[str, Element]) -> float:
    """What the order of the neurons is worth to their activations, as squared distance."""
    if scene.heard is None:
        return 0.0
    neurons = elements.get("ffn")
    order = torch.arange(len(scene.heard.correlation))
    return scene.heard.gain(neurons.permutation if isinstance(neurons, Ordered) else order)


def proposals(
    scene: Scene, present: Scene, block: tuple[Stage, ...], now: Mapping[str, Element]
) -> Iterator[tuple[Found, Scene]]:
    """Elements of a block: by all its stages, and in the present order of experts and heads.

    Heads that are close already keep their places, and matrices in them move on from where they
    are: nothing else is tried.
    """
    names = {name for stage in block for name in stage.names}
    if names <= HEADS and heads_stand(scene.family, scene.sizes, present.a, present.b):
        held = {n: now.get(n) or _identity(scene, n) for n in names & HELD}
        rest = (s for s in block if not set(s.names) & HELD)
        yield _chain(scene, tuple(_nearby(scene, stage, now) for stage in rest), held)
        return
    yield _chain(scene, block, {})
    held = {n: e for n, e in now.items() if n in names & HELD}
    if held:
        yield _chain(scene, tuple(s for s in block if not set(s.names) & held.keys()), held)


def _identity(scene: Scene, word: str) -> Element:
    batch = scene.family.batch(word, scene.sizes)
    return scene.family.coordinates[word].group.identity(scene.sizes[word], batch)


def _nearby(scene: Scene, stage: Stage, now: Mapping[str, Element]) -> Stage:
    """The same stage from where things are: a matrix from its own, turns from none."""
    word = stage.names[0]
    if scene.stage2 != "full" or not isinstance(
        start := now.get(word) or _identity(scene, word), Mixed | Turned
    ):
        return stage

    def find(family: Family, sizes: Sizes, a: Tensors, b: Tensors) -> Found:
        if isinstance(start, Turned):
            if word not in now and not worth_turning(family, sizes, a, b, start.pairs):
                return {word: start}
            x, y = (turning(family, sizes, z, gains=False, dtype=torch.float32) for z in (a, b))
            return {word: turned_nearby(x, y, start)}
        left, right = (bilinear(family, sizes, z, word, dtype=torch.float32) for z in (a, b))
        return {word: mixed_nearby(left, right, start)}

    return Stage(stage.names, find)


def _chain(scene: Scene, block: tuple[Stage, ...], held: Found) -> tuple[Found, Scene]:
    """The stages one after the other, each on B after those before it."""
    found, here = dict(held), scene.after(held)
    for stage in block:
        step = stage.find(scene.family, scene.sizes, scene.a, here.b)
        found |= step
        here = here.after(step)
    return found, here
