"""Every test of every pair of layers, adjacent pairs first: the answer to `Layers`."""

import time
from collections.abc import Sequence
from typing import Protocol

from engine import network
from engine.checkpoint import Checkpoint
from engine.costs import Cost, foretold
from engine.errors import Progress, Refused, silent
from engine.layers.filling import Filling
from engine.layers.inputs import Inputs, inputs
from engine.layers.sessions import Session, sessions
from engine.layers.stacks import Cell, Stack, bound, cells
from engine.pruning import listed, parse_layers
from engine.questions import Layers
from engine.records.layers import PAIRS, SINGLES, Aggregate, LayerMaps, Run, Test

Placed = tuple[Test, Cell, Stack]


def maps(checkpoint: Checkpoint, asked: Layers, progress: Progress = silent) -> LayerMaps:
    """All tests of a model's layers, and what its own streams say about them.

    Hands over what it has after each band of pairs. Errors: Refused for unknown tests, layers that
    are not there, and a model without an output over tokens or classes.
    """
    began = time.perf_counter()
    tests = known(asked.tests)
    tested = chosen(asked.layers, checkpoint.layers)
    reach = min(asked.reach or checkpoint.layers, len(tested) - 1)
    healed = any(test.endswith("healed") for test in tests)
    progress(0.0, "reading the text")
    every = inputs(checkpoint, asked, 2 if healed else 1)
    read_from, others = halves(every) if healed else (every, None)
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    model = network.load(checkpoint, where, kind)
    bands = list(cells(tests, tested, reach, kinds(checkpoint)))
    filling = Filling.blank(tests, checkpoint.layers, read_from.windows, sum(map(len, bands)))

    def record(*, complete: bool) -> LayerMaps:
        return LayerMaps(
            model=checkpoint.name,
            fingerprint=checkpoint.fingerprint,
            family=checkpoint.family.name,
            layers=checkpoint.layers,
            kinds=kinds(checkpoint),
            first=tested[0],
            last=tested[-1],
            reach=reach,
            **filling.found(),
            complete=complete,
            run=run(asked, asked.aggregate, read_from, began),
        )

    for windows, session in sessions(
        model, checkpoint.family, checkpoint.layers, read_from, others, asked.aggregate
    ):
        if not windows.start:
            progress(0.0, cost(session, bands, read_from))
        filling.begin(session, windows, tested)
        for gap, band in enumerate(bands):
            what = f"pairs of layers {gap} apart" if gap else "single layers"
            for share in filling.take(session, windows, band):
                progress(share, what)
            progress(filling.share, what, record(complete=False))
    return record(complete=True)


def cost(session: Session, bands: Sequence[Sequence[Placed]], every: Inputs) -> Cost:
    """What all stacks will take: a reading of each and the layers in which they differ, timed."""
    begun = time.perf_counter()
    depth = len(session.blocks.streams) - 1
    between = time.perf_counter()
    session.base()
    run, read = (between - begun) / depth, time.perf_counter() - between
    stacks = [list({stack for _, _, stack in band}) for band in bands]
    count = sum(map(len, stacks))
    whole = read * count + run * sum(bound(some, depth) for some in stacks)
    each = whole / max(count, 1) * every.windows / session.read_from.windows
    return foretold(int(every.kept.sum()), every.windows, count, each, "stack{s} of layers")


class Measured(Protocol):
    """What a question says of how it is measured."""

    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> str: ...


def run(asked: Measured, aggregate: Aggregate, read_from: Inputs, began: float) -> Run:
    """On what something was measured."""
    return Run(
        text=read_from.what,
        tokens=int(read_from.kept.sum()),
        windows=read_from.windows,
        aggregate=aggregate,
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def known(tests: Sequence[str]) -> tuple[Test, ...]:
    """The tests of these names, in the table's order; Refused for others and for none."""
    strange = [test for test in tests if test not in (*PAIRS, *SINGLES)]
    if strange or not tests:
        raise Refused(
            f"There is no test {strange[0] if strange else ''!r} of layers: choose among "
            f"{', '.join((*PAIRS, *SINGLES))}."
        )
    return tuple(test for test in (*PAIRS, *SINGLES) if test in tests)


def chosen(words: str, layers: int) -> range:
    """The layers of "3-9", both ends included; all of them for no words."""
    if not words:
        return range(layers)
    found = parse_layers(words)
    if found[-1] >= layers:
        raise Refused(f"There is no layer {found[-1]}: the model has 0 to {layers - 1}.")
    if list(found) != list(range(found[0], found[-1] + 1)):
        raise Refused(f"--layers {words} must be one range, such as 3-9: a map has no holes.")
    return range(found[0], found[-1] + 1)


def kinds(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What kind of layer each is: by what the configuration says of it and by its tensors."""
    family, config = checkpoint.family, checkpoint.config
    shapes: dict[int, list[tuple[str, tuple[int, ...]]]] = {n: [] for n in range(checkpoint.layers)}
    for name, header in checkpoint.headers.items():
        row = family.row(name)
        if row.layer is not None:
            start, stop = family.span(name, "l")
            shapes[row.layer].append((name[:start] + name[stop:], tuple(header.shape)))
    forms = list(dict.fromkeys(tuple(sorted(shapes[n])) for n in range(checkpoint.layers)))
    said = list(listed(family, config).values())
    found = []
    for n in range(checkpoint.layers):
        words = [str(values[n]).replace("_", " ") for values in said]
        form = forms.index(tuple(sorted(shapes[n])))
        words += [f"form {form + 1}"] if len(forms) > 1 else []
        found.append(", ".join(words) or "layer")
    return tuple(found)


def halves(every: Inputs) -> tuple[Inputs, Inputs]:
    """Windows that are read, and as many others that healed blocks learn from.

    Errors: Refused for fewer than two windows.
    """
    half = every.windows // 2
    if not half:
        raise Refused(
            "Layers are chosen or healed on one half of the windows and read on the other: "
            f"{every.what} has {every.windows}, give two or more."
        )
    return every.part(0, half), every.part(half, 2 * half)
