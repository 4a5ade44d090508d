"""What two models have in common, and how an alignment got there, as lines for the terminal."""

from collections.abc import Iterator

from engine.records import AlignmentReport, Relatedness


def of_relatedness(record: Relatedness) -> Iterator[str]:
    """The verdict and its p, then one line a test."""
    count = len(record.tests) - 1
    yield f"{record.verdict}: log10 p = {record.log10_p:.1f}, corrected for all tests"
    for number, test in enumerate(record.tests):
        what = "control" if number == count else "test"
        yield (
            f"{what}, residual coordinates by {test.coordinates}: log10 p = {test.log10_p:.1f}, "
            f"correlation {test.rho.mean():.3f}, {test.agreeing.mean():.1%} of the neurons alike"
        )
    if record.likeness is not None:
        shallow, deep = sorted(record.depths)
        layers = ", ".join(map(str, record.layers))
        yield f"layers of the one, {shallow} in all, are layers {layers} of the {deep} of the other"
    if record.logits_between is not None:
        yield f"logits differ by {record.logits_between:.2g} of {record.logits_scale:.3g}"
    yield f"{record.seconds:.1f} s on {record.device}"


def of_descent(report: AlignmentReport) -> Iterator[str]:
    """The objective of the last sweep of every start, then the midpoint's loss at every stage."""
    last = {sweep.start: sweep for sweep in report.sweeps}
    first = {sweep.start: sweep for sweep in reversed(report.sweeps)}
    for start, end in last.items():
        yield (
            f"from {start}: objective {first[start].before:.5f} → {end.after:.5f} in "
            f"{end.number + 1} sweep{'s' * (end.number > 0)}, distance of weights "
            f"{end.distance:.5f}"
        )
    for point in report.midpoints:
        yield f"half way, {point.stage}: {point.above:+.3f} nats above the mean of A's and B's loss"
