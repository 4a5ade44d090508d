"""Two models as lines of text: lineage, alignment, matching, heads."""

from collections.abc import Iterator

import numpy as np

from engine.records import (
    STEPS,
    AlignmentReport,
    HeadsReport,
    Relatedness,
    ResidualMatch,
    TurnReport,
)
from engine.records.lineage import Coordinates
from engine.summaries.margins import lead

COORDINATES: dict[Coordinates, str] = {
    "as they stand": "as they stand",
    "embedding": "by the embedding",
    "activations": "by activations",
    "random": "at random",
}
"""How the residual coordinates were aligned, in words."""


def of_alignment(report: AlignmentReport) -> Iterator[str]:
    """One line a stage, then what the tensors and the logits say."""
    for s in report.stages:
        right = "" if s.right is None else f", {s.right:.2%} right"
        flipped = "" if s.flipped is None else f", {s.flipped} negative"
        margin = "" if s.margin is None else f", smallest margin {lead(s.margin)}"
        yield (
            f"{s.coordinate:5} {s.solved:5} solved{right}{flipped}{margin}; "
            f"relative distance {s.before:.3g} → {s.after:.3g}"
        )
    if report.unreachable is not None:
        yield (
            f"signs are off: {report.unreachable:.1%} of the residual coordinates cannot be right"
        )
    yield from report.notes
    worst = int(np.argmax(report.after))
    yield f"furthest tensor: {report.after[worst]:.2g} relative ({report.tensors[worst]})"
    if report.logits_between is None:
        yield f"the outputs were not compared; {report.seconds:.1f} s on {report.device}"
        return
    yield (
        f"on {report.checked_on}, where logits reach {report.logits_scale:.3g}: "
        f"A and B differ by {report.logits_between:.2g} ({report.same_function}), "
        f"aligning changed B by {report.logits_kept:.2g} ({report.kept})"
    )
    yield (
        f"the model half way between A and B is off by {report.midpoint_before:.2g}, "
        f"half way between A and aligned B by {report.midpoint_after:.2g}"
    )
    yield f"{report.seconds:.1f} s on {report.device}"


def of_match(record: ResidualMatch) -> Iterator[str]:
    """One line a depth, then the ceiling of a matching that ignores signs."""
    signed, absolute = record.signed_accuracy, record.sign_accuracy
    for k, depth in enumerate(record.depths):
        accuracy = ""
        if signed is not None and absolute is not None:
            accuracy = f"signed {signed[k]:.1%}, absolute {absolute[k]:.1%}, "
        best = record.absolute[k]
        yield (
            f"{depth:16} {accuracy}{int((best.sign < 0).sum())} negative signs, "
            f"smallest margin {lead(best.margin.min())}, {best.mutual.mean():.1%} mutual"
        )
    if record.truth is not None:
        share = record.truth.positive_share
        yield f"share of positive signs ({record.truth.kind}): {share:.1%}"
    yield f"{len(record.depths)} matrices in {record.seconds:.1f} s on {record.device}"


def of_heads(record: HeadsReport) -> Iterator[str]:
    """One line a head of A, then the objective after each step, and the rank of the order."""
    yield (
        f"layer {record.layer} of {record.family}: {record.heads} heads in {record.groups} groups, "
        f"{record.used} cost, residual coordinates from {record.using}"
    )
    right = record.planted_order
    for h, (partner, other) in enumerate(zip(record.order, record.second, strict=True)):
        truth = "" if right is None else (", right" if right[h] == partner else ", WRONG")
        removed = "" if record.removal is None else f"; without it KL {record.removal[h]:.3g} nats"
        yield (
            f"head {h:2} of A: {partner:2} of B{truth}, margin {lead(record.margin[h])} over "
            f"{other}; left {record.query_key_left[h]:.2g} (QK), "
            f"{record.value_output_left[h]:.2g} (VO)"
            f"{removed}"
        )
    for row, name in enumerate(STEPS):
        yield (
            f"objective, {name:10}: QK {record.query_key[row].sum():.6g}, "
            f"VO {record.value_output[row].sum():.6g}"
        )
    if record.rank is not None:
        excess = "" if record.rank.excess is None else f", L̂ {record.rank.excess:.2g}"
        yield f"rank {record.rank.rank} of {record.rank.orders} orders by the objective{excess}"
        if record.rank.midpoint_rank is not None:
            excess = record.rank.midpoint_excess
            more = "" if excess is None else f", L̂ {excess:.2g}"
            yield f"rank {record.rank.midpoint_rank} by the loss half way{more}"
    for one in record.disguises:
        moved = "" if one.error is None else f" {one.error:.2g}"
        yield (
            f"A in disguise, {one.kind:8}: published cost at most {one.published.max():.2g}, ours "
            f"{one.own.min():.2g} to {one.own.max():.2g} of ‖M‖², output {one.output}{moved}"
        )
    yield f"{record.seconds:.1f} s on {record.device}"


def of_turn(record: TurnReport) -> Iterator[str]:
    """The objective by hand and as found, what B and the middle say."""
    yield (
        f"layer {record.layer}, group {record.group}, frequency {record.frequency} at "
        f"{np.degrees(record.angle):.4g}° × {np.exp(record.log_modulus):.4g}: objective "
        f"{record.objective:.6g}, at best {record.best:.6g}"
    )
    yield f"B itself moved by {record.kept:.2g} ({record.verdict})"
    yield (
        f"half way to A the log-probabilities are off by {record.midpoint:.3g}, at best "
        f"{record.midpoint_best:.3g}"
    )
    if record.midpoint_loss is not None and record.midpoint_loss_best is not None:
        yield (
            f"loss half way {record.midpoint_loss:.4f}, at best {record.midpoint_loss_best:.4f} "
            f"nats on {record.checked_on}"
        )
    yield f"{record.seconds:.1f} s on {record.device}"


def of_relatedness(record: Relatedness) -> Iterator[str]:
    """The verdict and its p, then one line a test."""
    count = len(record.tests) - 1
    yield f"{record.verdict}: log10 p = {record.log10_p:.1f}, corrected for all tests"
    for number, test in enumerate(record.tests):
        what = "control" if number == count else "test"
        yield (
            f"{what}, residual coordinates {COORDINATES[test.coordinates]}: log10 p = "
            f"{test.log10_p:.1f}, Spearman's ρ {test.rho.mean():.3f}, {test.agreeing.mean():.1%} "
            "of the neurons alike"
        )
    if record.likeness is not None:
        shallow, deep = sorted(record.depths)
        one, other = ("B", "A") if record.depths[0] > record.depths[1] else ("A", "B")
        layers = ", ".join(map(str, record.layers))
        yield f"the {shallow} layers of {one} are layers {layers} of the {deep} of {other}"
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
