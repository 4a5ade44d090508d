"""Matchings of FFN neurons as lines of text for the terminal."""

from collections.abc import Iterator

import numpy as np

from engine.records import NeuronLayers, NeuronMatch, Spared
from engine.summaries.margins import lead


def of_neurons(record: NeuronMatch) -> Iterator[str]:
    """How many are right, how sure, the signs, and what the published cost finds."""
    match, expert = record.match, f", expert {record.expert}" if record.expert else ""
    partner = f", matched to expert {record.partner}" if record.partner != record.expert else ""
    yield (
        f"layer {record.layer} of {record.family}{expert}{partner}: {len(record.rows)} neurons, by "
        f"{record.compared}, residual coordinates from {record.using}"
    )
    yield from record.notes
    if record.same_model:
        yield from _pairs(record)
    else:
        yield from _matched(record)
    if record.excited is not None and not record.same_model:
        both = zip(record.rows, match.permutation, strict=True)
        shared = np.mean([record.excited.shared(i, j) for i, j in both])
        top = record.excited.places[0].shape[1]
        yield f"of the {top} places that excite a neuron of A most, its partner shares {shared:.2f}"
    if record.spared is not None:
        yield from _spared(record.spared)
    yield f"{record.seconds:.1f} s on {record.device}"


def _matched(record: NeuronMatch) -> Iterator[str]:
    match, right = record.match, record.right
    signs = "" if record.negative is None else f"{record.negative:.1%} negative factors, "
    yield (
        f"{signs}smallest margin {lead(match.margin.min())}, median "
        f"{np.median(match.margin):.3f}, {match.mutual.mean():.1%} choose each other"
    )
    if right is not None and record.published_right is not None:
        scale = "" if record.scale_error is None else f", scales to {record.scale_error:.1g}"
        yield (
            f"{right.mean():.1%} right{scale}; the published cost, which knows no sign and no "
            f"scale: {record.published_right:.1%}"
        )


def _pairs(record: NeuronMatch) -> Iterator[str]:
    every, other = np.arange(len(record.second)), record.second
    rows = np.flatnonzero((other[other] != every) | (every < other))  # each pair once
    for i in rows[np.argsort(-record.second_score[rows], kind="stable")][:8]:
        yield (
            f"neuron {i:5} and {record.second[i]:5}: score {record.second_score[i]:.3f}, factor "
            f"{record.second_factor[i]:.3f}"
        )


def _spared(found: Spared) -> Iterator[str]:
    for k, kind in enumerate(found.kind):
        yield (
            f"{kind:6} without {found.neuron[k]:5}: KL {found.removed[k]:.3g} nats, merged into "
            f"{found.other[k]:5}: {found.merged[k]:.3g}"
        )
    yield f"measured on {found.what}"


def of_layers(record: NeuronLayers) -> Iterator[str]:
    """One line a layer, then the share of negative factors over all."""
    yield from record.notes
    for layer, pairs in enumerate(record.pairs):
        parts = [f"layer {layer:3}: {pairs} pairs"]
        if record.negative is not None:
            parts.append(f"{record.negative[layer] / pairs:.1%} negative")
        if record.right is not None and record.published is not None:
            parts.append(f"{record.right[layer]:.1%} right")
            parts.append(f"published cost {record.published[layer]:.1%}")
        parts.append(f"margin {lead(record.smallest[layer])} at least")
        parts.append(f"{record.median[layer]:.3f} median")
        yield ", ".join(parts)
    if record.negative_share is not None:
        yield f"{record.negative_share:.1%} of all factors are negative"
    yield f"{record.seconds:.1f} s on {record.device}"
