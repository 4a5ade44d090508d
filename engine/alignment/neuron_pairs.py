"""The neurons of two models, layer by layer, B in A's residual coordinates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from engine.action import acted
from engine.agreement import differences
from engine.alignment.differences import on_common_ground
from engine.alignment.heads import gather
from engine.alignment.matching import planted, residual_correlation
from engine.alignment.neuron_scores import Rows
from engine.alignment.one_pass import layer_tensors, residual, start_from_embedding
from engine.alignment.stages import one_expert, solve_experts
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.errors import Progress, Refused
from engine.folding import NEURONS, canonical
from engine.groups import Monomial
from engine.questions import Align, AllNeurons, Neurons
from engine.symmetry import Symmetry

Tensors = Mapping[str, Tensor]
WORDS = ("ffn", "sffn")
"""The coordinates that are neurons."""
SHARED = "shared"


@dataclass(frozen=True)
class Models:
    """Two models that differ in the width of their FFNs at most."""

    a: Checkpoint
    b: Checkpoint
    word: str  # of the neurons' coordinate
    outer: Symmetry  # the residual part of g
    truth: Symmetry | None  # the whole of g, where the user asks for it and it is known
    known: str  # "planted", "identity" or "none"

    @property
    def same(self) -> bool:
        """Are they one model?"""
        return self.a.fingerprint == self.b.fingerprint

    @property
    def group(self) -> Monomial:
        """What may act on the neurons."""
        found = self.a.family.coordinates[self.word].group
        assert isinstance(found, Monomial)
        return found

    @property
    def sizes(self) -> tuple[int, int]:
        """How many neurons a layer (an expert) of each has."""
        return neurons(self.a, self.word), neurons(self.b, self.word)

    @property
    def experts(self) -> tuple[int, ...]:
        """Experts that hold the neurons; none where the layer itself does."""
        over = self.a.family.coordinates[self.word].over
        return tuple(range(self.a.family.sizes(self.a.config)["exp"])) if over else ()


def neurons(checkpoint: Checkpoint, word: str) -> int:
    """How many neurons a layer, or an expert, has."""
    return checkpoint.family.sizes(checkpoint.config).get(word, 0)


def models(a: Checkpoint, b: Checkpoint, asked: Neurons | AllNeurons, progress: Progress) -> Models:
    """Both, with the element that puts B into A's residual coordinates.

    Errors: Refused for two groups, for an expert that is not there, for layers without neurons.
    """
    a, b = on_common_ground(a, b)
    require_one_stream(a, b)
    b = b.spelled_like(a)
    word = coordinate(a, asked.expert)
    found: dict[str, Element] = {}
    if a.fingerprint != b.fingerprint:
        found["res"] = residual(a.family, _correlation(a, b, asked, progress))[0]
    outer = Symmetry(a.family, b.config, found, b.fingerprint, a.fingerprint, (b.name, a.name))
    known: str = asked.truth if neurons(a, word) == neurons(b, word) else "none"
    truth = {"planted": planted(a, b), "identity": replace(outer, elements={})}.get(known)
    return Models(a, b, word, outer, truth, known if truth is not None else "none")


def require_one_stream(a: Checkpoint, b: Checkpoint) -> None:
    """Refused unless both are one architecture, apart from the width of their FFNs."""
    wide = {f"{c.size} ({c.title})" for n, c in a.family.coordinates.items() if n in WORDS}
    for what, mine, theirs in differences(a.family, a.config, b.family, b.config):
        if what not in wide:
            raise Refused(
                f"The neurons of {b.name} cannot be put beside those of {a.name}: {what} is "
                f"{mine!r} in {a.name} and {theirs!r} in {b.name}; compare two models that agree "
                "in it."
            )


def coordinate(a: Checkpoint, expert: str) -> str:
    """The word of the neurons' coordinate; Refused for an expert that is not there."""
    family, sizes = a.family, a.family.sizes(a.config)
    if expert == SHARED:
        if not sizes.get("sffn"):
            raise Refused(f"{a.name} has no shared expert: leave --expert out, or name a number.")
        return "sffn"
    if not sizes.get("ffn"):
        raise Refused(f"{a.name} has no FFN neurons to match: its family has no ffn coordinate.")
    if not family.coordinates["ffn"].over:
        if expert:
            raise Refused(
                f"{a.name} has no experts, and --expert {expert} names one: leave it out."
            )
    elif expert and not (expert.isdecimal() and int(expert) < sizes["exp"]):
        more = ', or "shared"' if sizes.get("sffn") else ""
        raise Refused(f"There is no expert {expert!r}: {a.name} has 0 to {sizes['exp'] - 1}{more}.")
    return "ffn"


def _correlation(
    a: Checkpoint, b: Checkpoint, asked: Neurons | AllNeurons, progress: Progress
) -> np.ndarray:
    if asked.using == "weights":
        return start_from_embedding(a, b)
    how = Align(
        asked.a, asked.b, "activations",
        tokens=asked.tokens, text=asked.text, device=asked.device, dtype=asked.dtype,
    )  # fmt: skip
    return residual_correlation(a, b, how, progress).mean(axis=0)


@dataclass(frozen=True)
class Layer:
    """One layer of both, B in A's residual coordinates."""

    both: Models
    number: int
    raw: tuple[Tensors, Tensors]  # as stored
    folded: tuple[Tensors, Tensors]  # in the form that no blind direction changes
    partners: Int[Tensor, " experts"] | None  # B's expert at each of A's

    def rows(self, expert: int | None, *, folded: bool = True) -> tuple[Rows, Rows]:
        """Gate, up and down, or rows in and out, of A's neurons and of B's, float32."""
        other = None if expert is None else self.partner(expert)
        pairs = zip(
            (self.both.a, self.both.b),
            self.folded if folded else self.raw,
            (expert, other),
            strict=True,
        )
        x, y = (_gathered(c, tensors, e, self.both.word) for c, tensors, e in pairs)
        return x, y

    def partner(self, expert: int) -> int:
        """B's expert."""
        return expert if self.partners is None else int(self.partners[expert])


def _gathered(checkpoint: Checkpoint, tensors: Tensors, expert: int | None, word: str) -> Rows:
    family = checkpoint.family
    inside = tensors if expert is None else one_expert(family, tensors, expert)
    sizes = family.sizes(checkpoint.config)
    return gather(family, sizes, inside, word, dtype=torch.float32)


def layer(both: Models, number: int) -> Layer:
    """A layer of both, with experts matched by their rows of the router."""
    a, b, family = both.a, both.b, both.a.family
    theirs, own = (layer_tensors(c, number) for c in (a, b))
    mine = acted(both.outer, own)
    x, y = (
        canonical(family, family.sizes(c.config), z, NEURONS) for c, z in ((a, theirs), (b, mine))
    )
    partners = None
    if both.experts and not both.same:
        found = solve_experts(family, family.sizes(a.config), x, y).elements["exp"]
        partners = found.numbers()["permutation"]
    return Layer(both, number, (theirs, mine), (x, y), partners)


def layers(both: Models) -> Iterator[Layer]:
    """Every layer, one at a time."""
    return (layer(both, number) for number in range(both.a.layers))


def true_element(both: Models, number: int, expert: int | None) -> Ordered | None:
    """The neurons' part of the truth in one layer; None where no truth is known."""
    if both.truth is None:
        return None
    found = both.truth.elements.get(both.a.family.key(both.word, number))
    if not isinstance(found, Ordered):
        return both.group.identity(both.sizes[0])
    return found if expert is None else found.take(torch.tensor(expert))


def true_expert(both: Models, number: int, expert: int) -> int | None:
    """B's expert at one of A's by the truth; None where no truth is known."""
    if both.truth is None:
        return None
    found = both.truth.elements.get(both.a.family.key("exp", number))
    return int(found.permutation[expert]) if isinstance(found, Ordered) else expert
