"""Many stacks over one model, each shared prefix run once, depth first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.layers.blocks import Blocks, State
from engine.layers.stacks import Block, Stack

Rest = list[tuple[int, Stack]]
"""Numbers of stacks, and what each still has to run."""


@dataclass(frozen=True)
class Node:
    """A stream at the end of a prefix, and the stacks that begin with it."""

    state: State
    rest: Rest


def finals(
    blocks: Blocks, stacks: Sequence[Stack], width: int = 4
) -> Iterator[tuple[int, State, int]]:
    """(number, last stream, layers run for it) of every stack, in the order in which they end.

    Each prefix that several stacks share is run once, and none that the model itself has: its own
    streams are known. At most `width` siblings run at once and wait at each depth, so that memory
    is about width · depth streams. A layer counts once for all windows, and with the first stack
    that ends after it.
    """
    ran = 0
    for number, state, count in _grown(blocks, _branches(blocks, stacks), width):
        ran += count
        if number is not None and state is not None:
            yield number, state, ran
            ran = 0


Found = tuple[int | None, State | None, int]
"""A stack that has ended, or layers that were run."""


def _branches(blocks: Blocks, stacks: Sequence[Stack]) -> list[Node]:
    """The model's own streams, and the stacks that leave it there."""
    leaving: dict[int, Rest] = {}
    for number, stack in enumerate(stacks):
        depth = 0
        while depth < min(len(stack), blocks.layers) and stack[depth] == depth:
            depth += 1
        leaving.setdefault(depth, []).append((number, stack[depth:]))
    return [Node(blocks.streams[depth], rest) for depth, rest in sorted(leaving.items())]


def _grown(blocks: Blocks, nodes: Sequence[Node], width: int) -> Iterator[Found]:
    """Every stack below some nodes; nodes that run the same block next run it together."""
    for node in nodes:
        yield from ((number, node.state, 0) for number, rest in node.rest if not rest)
    waiting: list[Node] = []
    for block, parents in _next(nodes).items():
        for start in range(0, len(parents), width):
            some = parents[start : start + width]
            states = blocks.run(block, [parent.state for parent in some])
            yield None, None, len(some)
            waiting += [Node(s, p.rest) for s, p in zip(states, some, strict=True)]
            if len(waiting) >= width:
                yield from _grown(blocks, waiting, width)
                waiting = []
    if waiting:
        yield from _grown(blocks, waiting, width)


def _next(nodes: Sequence[Node]) -> dict[Block, list[Node]]:
    """By the block that comes next: the nodes before it, with what comes after it."""
    found: dict[Block, list[Node]] = {}
    for node in nodes:
        after: dict[Block, Rest] = {}
        for number, rest in node.rest:
            if rest:
                after.setdefault(rest[0], []).append((number, rest[1:]))
        for block, rest in after.items():
            found.setdefault(block, []).append(Node(node.state, rest))
    return found
