"""The answer to `Orders`: the barrier of every order of the heads of one layer."""

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.alignment.sensing import sense
from engine.alignment.stages import Solved, solve_heads
from engine.alignment.weighing import SILENT
from engine.attention import orders as attention
from engine.attention.counting import DRAWN, TRIED, count
from engine.attention.pairs import Pair, pair
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.errors import Progress, Refused, part, silent
from engine.line import scopes
from engine.line.ends import ends
from engine.line.exam import Exam
from engine.line.gauges import Work, heard_tokens
from engine.line.sampling import grid
from engine.line.setting import shared
from engine.line.trip import run, trip
from engine.questions import Barrier, Heads, Orders
from engine.records import Curve, HeadOrders
from engine.symmetry import Symmetry


def every(
    a: Checkpoint,
    b: Checkpoint,
    asked: Orders,
    progress: Progress = silent,
    given: Exam | None = None,
) -> HeadOrders:
    """Each order with its own Stage 2, only the layer's attention moving; hands over as it goes.

    Of very many orders some, see `taken`; `given` instead of the text that is asked for. Errors:
    Refused for a layer that is not there and for one with too many heads.
    """
    began = time.perf_counter()
    heads = scopes.attention(a.family, a.headers)
    inside = frozenset(name for name in heads if a.family.row(name).layer == asked.layer)
    line = ends(a, b, inside, device=asked.device, dtype=asked.dtype)
    whole = Barrier(asked.a, asked.b, text=asked.text, device=asked.device)
    work = Work(line, whole, shared(line))
    both, aligned = compared(work, asked, part(progress, 0, 0.05))
    found = ranked(both)
    here = trip(work, asked, part(progress, 0.05, 0.1), given)
    inner = grid(asked.points)[1:-1].tolist()
    mine = place(found, aligned)
    some = taken(len(found.cost), mine)
    progress(0.1, here.cost((1 + len(some)) * (asked.points - len(here.ends))))
    naive = here.points("as it is", both.outer, inner)
    names = [order(found, number) for number in some]
    curves: list[Curve] = []

    def record(*, complete: bool) -> HeadOrders:
        return HeadOrders(
            a.name, b.name, asked.layer, tuple(names), found.cost[some], some.index(mine),
            tuple(curves), naive, complete, run(here.exam, asked, began),
            total=len(found.cost),
        )  # fmt: skip

    for number, name in enumerate(names):
        outer, deep = attention.elements(both, found, some[number])
        curves.append(here.points(" ".join(map(str, name)), gauge(both, {**outer, **deep}), inner))
        share = 0.1 + 0.9 * (number + 1) / len(names)
        progress(share, f"order {number + 1} of {len(names)}", record(complete=False))
    return record(complete=True)


def compared(work: Work, asked: Orders, progress: Progress) -> tuple[Pair, Solved]:
    """The layer of both as the alignment of the line sees it, and the order that it takes."""
    heard = work.shared and asked.using == "activations"
    how = Heads(
        asked.a, asked.b, asked.layer, using="weights" if heard else asked.using,
        tokens=heard_tokens(asked.text, asked.tokens), text=asked.text,
        device=asked.device, dtype=asked.dtype,
    )  # fmt: skip
    a, b = work.ends.a, work.ends.b
    by = sense(a, b, how, progress).get(asked.layer, SILENT) if heard else SILENT
    both = pair(a, b, how, progress).seen(by)
    solver = by.solver(("grp", "head"), solve_heads)
    return both, solver(both.family, both.sizes, both.theirs, both.mine)


def ranked(both: Pair) -> attention.Orders:
    """All orders of a layer. Errors: Refused where there are too many to draw from."""
    found = attention.orders(both, DRAWN)
    if found is None:
        many = count(both.sizes["grp"], both.per_group)
        raise Refused(
            f"Layer {both.layer} of {both.a.name} has {many:,} orders of its heads, too many to "
            "draw from: take a model with fewer heads, or with fewer in a group."
        )
    return found


def taken(many: int, mine: int) -> list[int]:
    """The numbers of the orders that run: all, or that of the alignment and others at random."""
    if many <= TRIED:
        return list(range(many))
    others = np.delete(np.arange(many), mine)
    drawn = np.random.default_rng(0).choice(others, TRIED - 1, replace=False)
    return sorted([mine, *drawn.tolist()])


def place(found: attention.Orders, aligned: Solved) -> int:
    """The number of the order that an alignment takes."""
    grp, head = aligned.elements["grp"], aligned.elements["head"]
    assert isinstance(grp, Ordered)
    assert isinstance(head, Ordered)
    return found.find(grp, head)


def order(found: attention.Orders, number: int) -> tuple[int, ...]:
    """B's head at each of A's places."""
    groups, places = found.at(number)
    inside = [found.parts.inside[place].tolist() for place in places]
    each = zip(groups, inside, strict=True)
    return tuple(group * len(heads) + head for group, heads in each for head in heads)


def gauge(both: Pair, elements: Mapping[str, Element]) -> Symmetry:
    """The residual part of the alignment with some elements of the layer."""
    keyed = {both.family.key(name, both.layer): e for name, e in elements.items()}
    return replace(both.outer, elements={**both.outer.elements, **keyed})
