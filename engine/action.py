"""What a table does: `act` rewrites tensors, `correlate` compares two, `legs` lists carriers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from engine import axes
from engine.axes import Leg, Mark, Sizes
from engine.elements import Element, Mixed, Ordered
from engine.family import Family, Row, named
from engine.symmetry import Symmetry

Read = Callable[[str], Tensor]
"""The tensors of a checkpoint by name."""


def act(g: Symmetry, name: str, read: Read) -> Shaped[Tensor, "*shape"]:
    """The tensor `name` of g · source: every leg of source's is written, read or relabelled.

    Experts live in names: where they change places another tensor is read. Signed permutations are
    exact in any dtype; a continuous gauge answers in float32 or finer. What has no row stays.
    """
    row = g.family.find(name)
    if row is None:
        return read(name)
    x = moved(g, name, row, read)
    here = elements(g, row)
    if not here:
        return x
    if x.dtype.itemsize < torch.float32.itemsize and not all(e.exact for e in here.values()):
        x = x.float()
    change = partial(_move, g.family, here)
    if not row.offset:
        return axes.rewrite(x, row.axes, g.sizes, change)
    changed = axes.rewrite(x.double() + row.offset, row.axes, g.sizes, change)
    return (changed - row.offset).to(x.dtype)


def acted(g: Symmetry, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All of some tensors of g · source, read from one another."""
    return {name: act(g, name, tensors.__getitem__) for name in tensors}


def elements(g: Symmetry, row: Row) -> dict[str, Element]:
    """The elements that act on the axes of one row, those inside a place of its name taken out."""
    found: dict[str, Element] = {}
    for leg in axes.legs(row.axes):
        element = g.elements.get(g.family.key(leg.name, row.layer))
        if element is not None:
            for outer in g.family.coordinates[leg.name].over:
                if outer in row.places:
                    element = element.take(torch.tensor(row.places[outer]))
            found[leg.name] = element
    return found


def moved(g: Symmetry, name: str, row: Row, read: Read) -> Tensor:
    """The source's tensor that takes this name: Σ_j M[i, j] T_j for a matrix on a named place."""
    for word, place in row.places.items():
        element = g.elements.get(g.family.key(word, row.layer))
        if isinstance(element, Ordered):
            return read(_renamed(g.family, name, word, int(element.permutation[place])))
        if isinstance(element, Mixed):
            weights = enumerate(element.matrix[place].tolist())
            parts = [w * read(_renamed(g.family, name, word, j)) for j, w in weights if w]
            return torch.stack(parts).sum(0)
    return read(name)


def _renamed(family: Family, name: str, word: str, place: int) -> str:
    """The same tensor at another place of a coordinate that lives in its name."""
    start, stop = family.span(name, word)
    return f"{name[:start]}{place}{name[stop:]}"


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
    names = {other.name for other in legs}
    over = [outer for outer in family.coordinates[leg.name].over if outer in names]
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
    """The rows that carry a coordinate, on an axis or in a name: name on disk → axes."""
    return {
        named(key)[0]: text
        for (key, text), (_, row) in zip(family.tensors.items(), family.rows, strict=True)
        if any(leg.name == coordinate for leg in axes.legs(row.axes)) or f"{{{coordinate}}}" in key
    }


def blocks(
    family: Family, sizes: Sizes, name: str, x: Tensor, coordinate: str, lead: Sequence[str] = ()
) -> Iterator[tuple[Mark, Float[Tensor, "*lead m n"]]]:
    """The parts of a tensor that carry a coordinate, as [*lead, everything else, coordinate].

    A leading coordinate that a part does not have gets length 1.
    """
    row = family.row(name)
    for found, block in axes.pieces(x + row.offset if row.offset else x, row.axes, sizes):
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
