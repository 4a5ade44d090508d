"""Maps of layers, cuts and continuations as lines of text."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from engine.records import (
    ROUNDING,
    Continuation,
    CutCost,
    CutReport,
    GapTrajectory,
    LayerMaps,
    Measure,
    Run,
)


def of_cost(record: CutCost) -> Iterator[str]:
    """KL, loss and perplexity, each with its interval where there are enough windows."""
    yield f"KL(before ‖ after) {interval(record.readings.measure('kl'))} nats a position"
    if np.isnan(record.base.loss).all():
        yield "no next-token loss: this model does not continue texts"
    else:
        before, after = (interval(r.measure("loss")) for r in (record.base, record.readings))
        more = replace(record.readings, loss=record.readings.loss - record.base.loss)
        percent = interval(more.measure("loss"), lambda x: 100 * float(np.expm1(x)), "+.1f")
        yield f"loss {before} → {after} nats; perplexity {percent} %"
    yield where(record.run)


def where(run: Run) -> str:
    """On what something was measured; an image is one input."""
    inputs = f"{run.tokens} tokens in {run.windows} window{'s' * (run.windows != 1)}"
    inputs = f"{run.windows} inputs" if run.tokens == run.windows else inputs
    return f"on {inputs} of {run.text}, {run.device}, {run.seconds:.1f} s"


def of_maps(record: LayerMaps) -> Iterator[str]:
    """For each test its cheapest cells, and how many layers were run."""
    yield f"{record.model}: {record.layers} layers, KL(before ‖ after) in nats a position"
    for name, readings in record.tests.items():
        value = readings.measure("kl").value.copy()
        if value.ndim == 2:
            np.fill_diagonal(value, np.nan)
            if np.array_equal(value, value.T, equal_nan=True):  # told once for each pair
                value[np.tril_indices(len(value))] = np.nan
        known = [cell for cell in np.argsort(value, axis=None) if not np.isnan(value.flat[cell])]
        best = (np.unravel_index(cell, value.shape) for cell in known[:3])
        told = (f"{', '.join(map(str, map(int, cell)))}: {value[cell]:.3g}" for cell in best)
        lowest = f", lowest {'; '.join(told)}" if known else ": no two layers to compare"
        yield f"{name:14} {len(known):4} cells{lowest}"
    yield (
        f"layers run {record.passes:,} (at least {record.bound:,}; whole forwards "
        f"{record.whole:,}), {where(record.run)}"
    )


def of_cut(record: CutReport) -> Iterator[str]:
    """One line for each way and budget: what goes, and what it costs."""
    for one in record.candidates:
        kl, loss = one.readings.measure("kl"), one.readings.measure("loss")
        for n, some in enumerate(one.sets[1:], start=1):
            percent = 100 * float(np.expm1(loss.value[n] - loss.value[0]))
            cost = "" if np.isnan(percent) else f", perplexity {percent:+.1f} %"
            what = ", ".join(map(str, sorted(some)))
            yield f"{one.by:10} n = {n}: layers {what}: KL {kl.value[n]:.4g}{cost}"
        if one.stopped:
            yield f"{one.by:10} {one.stopped}"
    yield where(record.run)


def of_gap(record: GapTrajectory) -> Iterator[str]:
    """One line for each model: means over adjacent pairs."""
    for one in record.steps:
        replace_, swap, skip = (float(np.mean(x.value)) for x in (one.replace, one.swap, one.skip))
        loss = "" if np.isnan(one.loss) else f"loss {one.loss:.3f}, "
        yield (
            f"{one.model:24} step {one.step:6}: {loss}replace {replace_:.4g}, "
            f"swap {swap:.4g}, skip {skip:.4g}"
        )
    yield where(record.run)


def of_continuation(record: Continuation) -> Iterator[str]:
    """The prompt, and both texts."""
    yield f"{record.model}, prompt: {record.prompt}"
    yield f"before: {record.before}"
    yield f"{record.stack}: {record.after}"
    yield f"the two part after {record.same} tokens"


def interval(
    measure: Measure, scaled: Callable[[float], float] = float, digits: str = ".4g"
) -> str:
    """One number, with its 95 % interval where it has one."""
    value = said(scaled(float(measure.value)), digits)
    if measure.low is None or measure.high is None:
        return value
    low, high = (said(scaled(float(x)), digits) for x in (measure.low, measure.high))
    return f"{value} ({low} to {high})"


def said(value: float, digits: str = ".4g") -> str:
    """A number in few digits; what rounding alone leaves is 0, and 0 has no sign."""
    small = abs(value) < ROUNDING
    found = format(0.0 if small else value, digits)
    return found if small or found.strip("+-0.") else format(0.0, digits.removeprefix("+"))
