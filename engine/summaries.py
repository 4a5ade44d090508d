"""Records as lines of text for the terminal."""

from collections.abc import Iterator

import numpy as np

from engine.records import (
    STEPS,
    AlignmentReport,
    Experiment,
    HeadsReport,
    ModelCard,
    ResidualMatch,
    SelfTest,
    TurnReport,
)

COLUMNS = "{:5} {:26} {:26} {:>7} {:>7} {:>11} {:>10}"


def of_card(card: ModelCard) -> Iterator[str]:
    """What the model is, then one line a coordinate."""
    yield (
        f"{card.name}: {card.family}, {card.layers} layers, width {card.width}, "
        f"{card.heads} heads / {card.kv_heads} kv of {card.head_dim}, FFN {card.ffn}, "
        f"vocabulary {card.vocabulary}"
    )
    yield (
        f"{card.norm}, {card.activation}, {card.positions}, "
        f"{'tied' if card.tied else 'untied'}, {card.parameters:,} parameters in {card.dtype}, "
        f"fingerprint {card.fingerprint}"
    )
    yield COLUMNS.format(
        "", "coordinate", "group", "size", "copies", "log10 count", "continuous"
    ).rstrip()
    for c in card.coordinates:
        count = f"{c.log10:.1f}"
        yield COLUMNS.format(c.name, c.title, c.group, c.size, c.copies, count, c.dimension)
    yield (
        f"in all 10^{card.log10:,.1f} discrete changes of coordinates keep this function, and a "
        f"continuous family of dimension {card.dimension:,}"
    )
    for b in card.blind:
        limit = " (true up to the ε of a norm)" if b.approximate else ""
        yield f"blind: {b.name:12} {b.title}, dimension {b.dimension:,}{limit}"


def of_self_test(tested: SelfTest) -> Iterator[str]:
    """The reserved word with its number, and how much moved."""
    yield (
        f"self-test: {tested.verdict}, largest logit difference {tested.difference:.2g} "
        f"({tested.error:.2g} relative), {tested.moved:.0%} of {tested.tensors} tensors moved, "
        f"on {tested.device} in {tested.seconds:.1f} s"
    )
    for row in tested.rows:
        limit = ", true up to the ε of a norm" if row.approximate else ""
        yield (
            f"  {row.name:12} {row.verdict:12} {row.error:.2g}, {row.moved:.0%} of the tensors "
            f"moved: {row.title}{limit}"
        )


def of_alignment(report: AlignmentReport) -> Iterator[str]:
    """One line a stage, then what the tensors and the logits say."""
    for s in report.stages:
        right = "" if s.right is None else f", {s.right:.2%} right"
        flipped = "" if s.flipped is None else f", {s.flipped} negative"
        yield (
            f"{s.coordinate:5} {s.solved:5} solved{right}{flipped}; "
            f"relative distance {s.before:.3g} → {s.after:.3g}"
        )
    if report.unreachable is not None:
        yield (
            f"signs are off: {report.unreachable:.1%} of the residual coordinates cannot be right"
        )
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
            f"smallest margin {best.margin.min():.3f}, {best.mutual.mean():.1%} mutual"
        )
    if record.truth is not None:
        share = record.truth.positive_share
        yield f"share of positive signs ({record.truth.kind}): {share:.1%}"
    yield f"{len(record.depths)} matrices in {record.seconds:.1f} s on {record.device}"


def of_experiment(record: Experiment) -> Iterator[str]:
    """What was done, what it shows, every tensor that moved, and what came out."""
    where = "all layers" if record.layer is None else f"layer {record.layer}"
    yield f"{record.title} ({record.coordinate}, {where}, severity {record.severity:g})"
    yield from record.says
    yield f"element, {record.draw}: {record.element}"
    for tensor in record.tensors:
        yield f"{tensor.name}: {tensor.axes}; ‖after − before‖ / ‖before‖ = {tensor.change:.3g}"
    effect = record.effect
    followed = ""
    if record.equivariance is not None:
        followed = f"; hidden activations follow up to {record.equivariance:.2g}"
    yield (
        f"output: {record.verdict}, largest change of a logit {effect.logits:.3g}, "
        f"of a log-probability {effect.largest:.3g} "
        f"({effect.error:.2g} relative), KL(before ‖ after) {effect.divergence:.3g} nats, "
        f"{effect.agreement:.1%} of the positions say the same{followed}"
    )
    if record.symmetry:
        yield f"theory: the output {'stays' if record.holds else 'changes'}"
    yield f"on {effect.tokens}, {record.device}, {record.seconds:.1f} s"


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
            f"head {h:2} of A: {partner:2} of B{truth}, margin {record.margin[h]:.3f} over {other}"
            f"; left {record.query_key_left[h]:.2g} (QK), {record.value_output_left[h]:.2g} (VO)"
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
