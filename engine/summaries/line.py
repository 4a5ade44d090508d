"""Barriers, merges, slices and orders as lines for the terminal."""

from collections.abc import Iterator

import numpy as np

from engine.records import (
    ROUNDING,
    BarrierReport,
    Curve,
    HeadOrders,
    LossSlice,
    MergeReport,
    Writing,
)
from engine.summaries.layers import interval, said, where


def of_barrier(record: BarrierReport) -> Iterator[str]:
    """One line a stage: the barrier with its interval, where it stands, and against naive."""
    yield (
        f"{record.a} to {record.b}, {record.scope}: {record.moved[0]:,} of {record.moved[1]:,} "
        "parameters move"
    )
    if record.curves:
        yield from ends(record, record.curves[0])
    for one in record.curves:
        yield f"{one.stage:13} {hill(one)}{against(record, one)}; {lost(one)}"
    yield matched(record)
    yield (
        f"{record.models} models, each asked for the {record.target}, {where(record.run)}, of "
        f"which {record.aligning:.1f} s for the alignment"
    )


def matched(record: BarrierReport) -> str:
    """By what coordinates were matched."""
    if record.sensed:
        return (
            "layers matched by what they do: attention patterns, outputs, weights on their inputs"
        )
    if record.using == "activations":
        return "residual coordinates matched by activations, what is inside layers by weights"
    return "matched by weights"


def ends(record: BarrierReport, curve: Curve) -> Iterator[str]:
    """The loss at both ends, and a warning where one is worse than a guess that knows nothing."""
    loss = curve.points("loss").value[[0, -1]]
    other = "B" if record.shared else "the other end"
    yield f"loss of A {loss[0]:.4f} nats, of {other} {loss[1]:.4f}"
    worse = [name for name, x in zip(("A", other), loss, strict=True) if x > record.blind]
    if worse:
        yield (
            f"a guess that knows nothing loses {record.blind:.4f} nats (the logarithm of "
            f"{record.classes:,}), less than {' and '.join(worse)}: no barrier says much on a text "
            "that a model does not know"
        )


def hill(curve: Curve) -> str:
    """How high the loss stands above its chord and where, or how deep it lies below it."""
    valley = curve.valley()
    if valley is not None:
        depth, t = valley
        return f"no barrier: a valley, below its chord everywhere, by {depth:.4g} nats at t = {t:g}"
    if curve.barrier("loss").value < ROUNDING:
        return "no barrier"
    return f"barrier {interval(curve.barrier('loss'))} nats at t = {curve.peak('loss'):.3f}"


def against(record: BarrierReport, curve: Curve) -> str:
    """Which part of the barrier without alignment is left, where both are more than rounding."""
    naive = record.curve("none")
    if naive is None or naive is curve:
        return ""
    ratio = record.relative(curve.stage)
    small = min(one.barrier("loss").value for one in (naive, curve)) < ROUNDING
    return "" if ratio is None or small else f", {float(ratio.value):.3g} of none"


def lost(curve: Curve) -> str:
    """By how much the accuracy falls below its chord."""
    return f"accuracy falls by {interval(curve.barrier('accuracy'))}"


def of_merge(record: MergeReport) -> Iterator[str]:
    """Its loss beside those of its ends, and whether it is a function of its own."""
    loss = record.curve.points("loss").value
    yield (
        f"{record.a} and {record.b} at t = {record.t:g}, {record.curve.stage}: loss "
        f"{loss[1]:.4f} nats, {beside(record.above)} the chord between {loss[0]:.4f} and "
        f"{loss[2]:.4f}"
    )
    yield computed(record)
    yield where(record.run)


def beside(above: float) -> str:
    """Where a loss stands that is so far above a chord, in words."""
    if said(above, ".4f") == said(0.0, ".4f"):
        return "on"
    return f"{abs(above):.4f} {'above' if above > 0 else 'below'}"


def computed(record: MergeReport) -> str:
    """What a merge computes, by its loss in every window; only "exact" counts as the same."""
    if record.t in {0.0, 1.0}:
        return f"this is {'A' if record.t == 0 else 'the other end'} itself, not a merge"
    each = list(zip(("A", "the other end"), record.same, record.apart, strict=True))
    alike = [end for end, word, _ in each if word == "exact"]
    gaps = " and ".join(f"by {gap:.2g} from {end}'s ({word})" for end, word, gap in each)
    found = (
        f"the merge computes what {' and '.join(alike)} do{'es' * (len(alike) == 1)}"
        if alike
        else "the merge is a new function: it computes neither what A does nor what B does"
    )
    return f"{found}; in the worst window of {record.run.windows} its loss differs {gaps}, relative"


def of_written(record: Writing) -> Iterator[str]:
    """The prompt, and what every model writes."""
    yield f"{record.a} to {record.b}, {record.stage}, prompt: {record.prompt}"
    for t, text in zip(record.at, record.texts, strict=True):
        yield f"t = {t:.3f}: {text}"


def of_slice(record: LossSlice) -> Iterator[str]:
    """Where the three models stand, what they lose, and the lowest of all that were measured."""
    losses = [None] * 3 if record.models is None else record.models
    for name, (x, y), loss in zip(("A", "B", "aligned B"), record.places, losses, strict=True):
        own = "" if loss is None else f", loss {loss:.4f} nats"
        yield f"{name:9} at {said(x, '.3f')}, {said(y, '.3f')}{own}"
    loss, x, y = record.lowest
    yield (
        f"lowest of the {record.measured} models measured {loss:.4f} nats at {said(x, '.3f')}, "
        f"{said(y, '.3f')}; highest {np.nanmax(record.loss):.4f}"
    )
    yield where(record.run)


def of_orders(record: HeadOrders) -> Iterator[str]:
    """The rank of the chosen order by its objective and by its barrier, and what these are."""
    barriers = [float(one.barrier().value) for one in record.curves]
    first, second = record.ranks
    count = len(record.orders)
    if count < record.count:
        yield f"{count} of {record.count:,} orders: the chosen one, and others drawn at random"
    yield (
        f"layer {record.layer}: of {count} orders the chosen one is number {first} by its "
        f"objective and number {second} by its barrier"
    )
    if first > 1:
        yield (
            "the alignment compares heads two by two, by what no matrix inside them changes (or by "
            "what they do), and fits the matrices then; the objective is what that fit leaves, so "
            "that another order can have a lower one"
        )
    naive = float(record.naive.barrier().value)
    every = (min(barriers), max(barriers), barriers[record.chosen], naive)
    low, high, own, without = (said(x, ".4f") for x in every)
    yield f"barriers {low} to {high} nats; chosen order {own}, B's heads as they stand {without}"
    yield where(record.run)
