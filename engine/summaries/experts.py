"""Experts of a layer as lines of text for the terminal."""

from collections.abc import Iterator

import numpy as np

from engine.records import ExpertsReport, Toll
from engine.summaries.margins import lead


def of_experts(record: ExpertsReport) -> Iterator[str]:
    """What the layer is, one line an expert, then what was measured by running models."""
    shared = f", one more of {record.shared} for every token" if record.shared else ""
    yield (
        f"layer {record.layer} of {record.family}: {record.experts} experts of {record.neurons} "
        f"neurons, {record.active} a token{shared}; residual coordinates from {record.using}"
    )
    yield from (_expert(record, expert) for expert in range(record.experts))
    yield from _itself(record) if record.same_model else _between(record)
    where = f" on {record.checked_on}," if record.checked_on else ""
    yield f"{record.seconds:.1f} s{where} {record.device}"


def _expert(record: ExpertsReport, i: int) -> str:
    j, truth = int(record.partner[i]), record.planted_order
    whose = "nearest other" if record.same_model else "of B"
    right = "" if truth is None else (", right" if truth[i] == j else ", WRONG")
    used = "" if record.usage is None else f"; visited by {record.usage[i]:.1%} of the tokens"
    return (
        f"expert {i:2} of A: {j:2} {whose}{right}, router {record.router[i, j]:.3g}, content "
        f"{record.content[i, j]:.3g}, margin {lead(record.margin[i])}; neurons alike "
        f"{record.alike[i].mean():.3f} (least {record.alike[i].min():.3f}), distance "
        f"{record.before[i]:.2g} → {record.left[i]:.2g}{used}"
    )


def _between(record: ExpertsReport) -> Iterator[str]:
    apart = int((record.by_router != record.by_content).sum())
    yield f"router and content name different partners for {apart} of {record.experts} experts"
    if record.halfway is None or record.halfway_stored is None:
        return
    for k in range(record.experts + 1):
        where = f"expert {k:2}" if k < record.experts else "all experts and router"
        yield (
            f"half way to B in {where}: {told(record.halfway, k)}; with B as numbered: "
            f"{told(record.halfway_stored, k)}"
        )


def _itself(record: ExpertsReport) -> Iterator[str]:
    if record.removal is not None:
        for k in range(record.experts):
            yield f"without expert {k:2}: {told(record.removal, k)}"
    if record.merged is None or record.single is None:
        return
    for k, (i, j) in enumerate(record.pairs):
        yield (
            f"experts {i:2} and {j:2} (content {record.content[i, j]:.3g}) merged behind both "
            f"router rows: {told(record.merged, k)}; behind one row: {told(record.single, k)}"
        )


def told(toll: Toll, k: int) -> str:
    """What one change costs."""
    loss = toll.loss[k]
    more = "" if np.isnan(loss) else f", loss {loss:+.3g}"
    return f"KL {toll.kl[k]:.3g} nats{more}"
