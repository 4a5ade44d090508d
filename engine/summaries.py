"""Records as lines of text for the terminal."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from engine.records import (
    STEPS,
    AlignmentReport,
    Continuation,
    CutCost,
    CutReport,
    Experiment,
    GapTrajectory,
    HeadsReport,
    LayerMaps,
    Measure,
    ModelCard,
    ResidualMatch,
    Run,
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


def of_cost(record: CutCost) -> Iterator[str]:
    """KL, loss and perplexity, each with its interval where there are enough windows."""
    yield f"KL(before ‖ after) {interval(record.readings.measure('kl'))} nats a position"
    if np.isnan(record.base.loss).all():
        yield "no next-token loss: this model does not continue texts"
    else:
        before, after = (interval(r.measure("loss")) for r in (record.base, record.readings))
        more = replace(record.readings, loss=record.readings.loss - record.base.loss)
        percent = interval(more.measure("loss"), lambda x: 100 * float(np.expm1(x)), "+.1f")
        yield f"loss {before} → {after} nats a token; perplexity {percent} %"
    yield where(record.run)


def where(run: Run) -> str:
    """On what something was measured."""
    return (
        f"on {run.tokens} tokens in {run.windows} windows of {run.text}, {run.device}, "
        f"{run.seconds:.1f} s"
    )


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
    value = format(scaled(float(measure.value)), digits)
    if measure.low is None or measure.high is None:
        return value
    low, high = (format(scaled(float(x)), digits) for x in (measure.low, measure.high))
    return f"{value} ({low} to {high})"
