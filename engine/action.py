"""What a table does: `act` rewrites a tensor, `correlate` compares two, `legs` lists carriers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from engine import axes
from engine.axes import Leg, Mark, Sizes
from engine.elements import Element
from engine.family import Family, named
from engine.symmetry import Symmetry


def act(g: Symmetry, name: str, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """g · x for one tensor by its name on disk: every leg is written, read or relabelled.

    Signed permutations are exact in any dtype; a continuous gauge answers in float32 or finer.
    """
    row = g.family.row(name)
    here: dict[str, Element] = {}
    for leg in axes.legs(row.axes):
        element = g.elements.get(g.family.key(leg.name, row.layer))
        if element is not None:
            here[leg.name] = element
    if not here:
        return x
    if x.dtype.itemsize < torch.float32.itemsize and not all(e.exact for e in here.values()):
        x = x.float()
    change = partial(_move, g.family, here)
    return axes.rewrite(x, row.axes, g.family.sizes(g.config), change)


def _move(
    family: Family, elements: Mapping[str, Element], legs: tuple[Leg, ...], block: Tensor
) -> Tensor:
    """Apply elements by coordinate, outer ones first: inner ones are indexed by the new group."""
    for leg in sorted(legs, key=lambda leg: len(family.coordinates[leg.name].over)):
        if leg.name in elements:
            block = _along(family, legs, leg, block, elements[leg.name])
    return block


def _along(
    family: Family, legs: Sequence[Leg], leg: Leg, block: Tensor, element: Element
) -> Tensor:
    """Apply an element to one dimension: containers lead, it comes last, the rest between."""
    over = family.coordinates[leg.name].over
    order = _order(legs, leg, over)
    turned = block.permute(order)
    lead = len(over)
    flat = turned.flatten(lead, -2) if turned.ndim > lead + 1 else turned.unsqueeze(lead)
    move: Callable[[Tensor], Tensor] = {
        Mark.WRITE: element.write, Mark.READ: element.read, Mark.RELABEL: element.relabel,
    }[leg.mark]  # fmt: skip
    back = torch.tensor(order).argsort().tolist()
    return move(flat).reshape(turned.shape).permute(back)


def _order(legs: Sequence[Leg], leg: Leg, lead: Sequence[str]) -> list[int]:
    names = [other.name for other in legs]
    first = [names.index(name) for name in lead if name in names]
    last = legs.index(leg)
    return [*first, *(i for i in range(len(legs)) if i not in {*first, last}), last]


def legs(family: Family, coordinate: str) -> dict[str, str]:
    """The rows that carry a coordinate: name on disk (with `{l}`) → axes."""
    return {
        named(name)[0]: text
        for name, text in family.tensors.items()
        if any(leg.name == coordinate for leg in axes.legs(axes.parse(text)))
    }


def blocks(
    family: Family, sizes: Sizes, name: str, x: Tensor, coordinate: str, lead: Sequence[str] = ()
) -> Iterator[tuple[Mark, Float[Tensor, "*lead m n"]]]:
    """The parts of a tensor that carry a coordinate, as [*lead, everything else, coordinate].

    A leading coordinate that a part does not have gets length 1.
    """
    for found, block in axes.pieces(x, family.row(name).axes, sizes):
        names = [leg.name for leg in found]
        for leg in found:
            if leg.name != coordinate:
                continue
            turned = block.permute(_order(found, leg, lead))
            shape = [sizes[outer] if outer in names else 1 for outer in lead]
            yield leg.mark, turned.reshape(*shape, -1, sizes[coordinate])


def correlate(
    family: Family, sizes: Sizes, name: str, a: Tensor, b: Tensor, coordinate: str
) -> Float[Tensor, "*over n n"] | None:
    """Σ a bᵀ over the signed legs (x, x*) of one coordinate in one tensor, rows A, columns B.

    Every other axis of the tensor must already be aligned. None where only relabelled legs carry
    the coordinate: a gain has no sign and would ruin a signed sum.
    """
    over = family.coordinates[coordinate].over
    pairs = zip(
        blocks(family, sizes, name, a, coordinate, over),
        blocks(family, sizes, name, b, coordinate, over),
        strict=True,
    )
    products = [x.mT @ y for (mark, x), (_, y) in pairs if mark is not Mark.RELABEL]
    return torch.stack(products).sum(0) if products else None
