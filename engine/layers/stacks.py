"""Stacks: which block runs at each depth, for every test of a model's layers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.records.layers import DIRECTED, PAIRS, SINGLES, Test


@dataclass(frozen=True)
class Averaged:
    """A block with the mean of two layers' weights."""

    first: int
    second: int


@dataclass(frozen=True)
class Healed:
    """A layer whose update is refit, channel by channel, to what its depth's own layer left.

    x + a ∘ u + b instead of x + u, with a, b by least squares over positions of other text.
    """

    layer: int | None  # None: no update at all, of which only the mean is put back
    depth: int


Block = int | Averaged | Healed
Stack = tuple[Block, ...]
Cell = tuple[int, ...]
"""(i, j) for a test of two layers, (i,) for a test of one."""


def identity(layers: int) -> Stack:
    """Every layer at its own depth."""
    return tuple(range(layers))


def without(layers: int, dropped: Sequence[int]) -> Stack:
    """Some layers left out."""
    return tuple(layer for layer in range(layers) if layer not in dropped)


def _with(layers: int, changed: Mapping[int, Block]) -> Stack:
    return tuple(changed.get(depth, depth) for depth in range(layers))


def _average(layers: int, i: int, j: int) -> Stack:
    mean = Averaged(min(i, j), max(i, j))
    return _with(layers, {i: mean, j: mean})


_STACKS: Mapping[Test, Callable[..., Stack]] = {
    "replace": lambda n, i, j: _with(n, {i: j}),
    "swap": lambda n, i, j: _with(n, {i: j, j: i}),
    "average": _average,
    "skip": lambda n, i, j: without(n, range(i + 1, j + 1)),
    "replace-healed": lambda n, i, j: _with(n, {i: Healed(j, i)}),
    "swap-healed": lambda n, i, j: _with(n, {i: Healed(j, i), j: Healed(i, j)}),
    "delete": lambda n, i: without(n, [i]),
    "delete-healed": lambda n, i: _with(n, {i: Healed(None, i)}),
}


def stack(test: Test, layers: int, *cell: int) -> Stack:
    """The stack that a test runs for one cell: see `engine.records.layers.PAIRS`."""
    return _STACKS[test](layers, *cell)


def cells(
    tests: Sequence[Test], tested: range, reach: int, kinds: Sequence[str]
) -> Iterator[list[tuple[Test, Cell, Stack]]]:
    """All stacks of some tests in bands of equal |i − j|: single layers, then adjacent pairs, ….

    Layers of different kinds are left out of every test of two, but for `skip`, which moves none.
    """
    layers = len(kinds)
    single: list[tuple[Test, Cell]] = [
        (test, (i,)) for test in SINGLES if test in tests for i in tested
    ]
    yield [(test, cell, stack(test, layers, *cell)) for test, cell in single]
    paired: list[Test] = [test for test in PAIRS if test in tests]
    for gap in range(1, min(reach, len(tested) - 1) + 1 if paired else 1):
        found = [
            placed
            for i in tested[: len(tested) - gap]
            for test in paired
            for placed in _places(test, i, i + gap, alike=kinds[i] == kinds[i + gap])
        ]
        yield [(test, cell, stack(test, layers, *cell)) for test, cell in found]


def _places(test: Test, i: int, j: int, *, alike: bool) -> list[tuple[Test, Cell]]:
    """The cells of one test of two layers: both directions where they differ."""
    if not alike and test != "skip":
        return []
    return [(test, (i, j)), (test, (j, i))] if test in DIRECTED else [(test, (i, j))]


def whole(stacks: Sequence[Stack]) -> int:
    """Layers that whole forwards of these stacks run."""
    return sum(len(one) for one in stacks)


def bound(stacks: Sequence[Stack], layers: int) -> int:
    """Different prefixes of these stacks that are no prefix of the model itself.

    The fewest layers that must run, once the model's own streams are known.
    """
    own = identity(layers)
    found = {
        one[: d + 1] for one in stacks for d in range(len(one)) if one[: d + 1] != own[: d + 1]
    }
    return len(found)
