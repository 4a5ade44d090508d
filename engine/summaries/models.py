"""One model as lines of text: its card, its self-test, an experiment."""

from collections.abc import Iterator

from engine.records import Experiment, ModelCard, SelfTest

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
