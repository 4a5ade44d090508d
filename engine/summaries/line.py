"""Barriers, merges, slices and orders as lines for the terminal."""

from collections.abc import Iterator

import numpy as np

from engine.records import BarrierReport, HeadOrders, LossSlice, MergeReport, Writing
from engine.summaries.layers import interval, where


def of_barrier(record: BarrierReport) -> Iterator[str]:
    """One line a stage: the barrier with its interval, where it stands, and against naive."""
    yield (
        f"{record.a} to {record.b}, {record.scope}: {record.moved[0]:,} of {record.moved[1]:,} "
        "parameters move"
    )
    for one in record.curves:
        ratio = None if one.stage == "none" else record.relative(one.stage)
        against = "" if ratio is None else f", {float(ratio.value):.3g} of none"
        yield (
            f"{one.stage:13} barrier {interval(one.barrier('loss'))} nats at t = "
            f"{one.peak('loss'):.3f}{against}; accuracy {interval(one.barrier('accuracy'))}"
        )
    yield (
        f"{record.models} models, each asked for the {record.target}, {where(record.run)}, of "
        f"which {record.aligning:.1f} s for the alignment"
    )


def of_merge(record: MergeReport) -> Iterator[str]:
    """Its loss beside those of its ends, and that it is a function of its own."""
    loss = record.curve.points("loss").value
    yield (
        f"{record.a} and {record.b} at t = {record.t:g}, {record.curve.stage}: loss "
        f"{loss[1]:.4f} nats, {record.above:+.4f} against the chord between {loss[0]:.4f} and "
        f"{loss[2]:.4f}"
    )
    yield "a merge is a new function: it computes neither what A does nor what B does"
    yield where(record.run)


def of_written(record: Writing) -> Iterator[str]:
    """The prompt, and what every model writes."""
    yield f"{record.a} to {record.b}, {record.stage}, prompt: {record.prompt}"
    for t, text in zip(record.at, record.texts, strict=True):
        yield f"t = {t:.3f}: {text}"


def of_slice(record: LossSlice) -> Iterator[str]:
    """Where the three models stand, and the lowest loss."""
    row, column = np.unravel_index(int(np.nanargmin(record.loss)), record.loss.shape)
    for name, (x, y) in zip(("A", "B", "aligned B"), record.places, strict=True):
        yield f"{name:9} at {x:.3f}, {y:.3f}"
    yield (
        f"lowest loss {record.loss[row, column]:.4f} nats at {record.x[column]:.3f}, "
        f"{record.y[row]:.3f}; highest {np.nanmax(record.loss):.4f}"
    )
    yield where(record.run)


def of_orders(record: HeadOrders) -> Iterator[str]:
    """The rank of the chosen order, by its objective and by its barrier."""
    barriers = [float(one.barrier().value) for one in record.curves]
    first, second = record.ranks
    count = len(record.orders)
    yield (
        f"layer {record.layer}: of {count} orders the chosen one is number {first} by its "
        f"objective and number {second} by its barrier"
    )
    yield (
        f"barriers {min(barriers):.4f} to {max(barriers):.4f} nats, chosen "
        f"{barriers[record.chosen]:.4f}, as B is {float(record.naive.barrier().value):.4f}"
    )
    yield where(record.run)
