"""Sentences about FFN neurons: which is which, signs, what excites them, what they are worth."""

import numpy as np

from app.sentences.verdicts import WHY, Verdict, margin, unlike
from app.sentences.words import count, number, seconds
from engine.records import TOLERANCE, ModelCard, NeuronLayers, NeuronMatch, Spared

COMPARED = {
    "invariant": "by their weights",
    "inputs": "by the weights with which they read",
    "correlation": "by how they fire together",
}


ALIKE = {
    "invariant": "their weights, up to sign and scale. With score 1 the two are one neuron",
    "inputs": "what they read, up to sign and scale. With score 1 one fires as a multiple of the "
    "other (factor), whatever they write",
    "correlation": "how they fire together on the text. With score 1 one fires as a multiple of "
    "the other (factor) wherever it was run, whatever they write",
}
"""By what two neurons of one model are alike."""


def question(*, itself: bool) -> str:
    """What the page asks."""
    if itself:
        return "Which neurons of A could do without each other?"
    return "Which neuron of B is which neuron of A?"


def cost(record: NeuronMatch) -> str:
    """What looking at every layer costs, from what this one took."""
    one, all_of = (seconds(record.seconds * layers) for layers in (1, record.layers))
    return f"{count(record.layers, 'layer')}, this one took {one}: about {all_of}."


def where(record: NeuronMatch) -> str:
    """Layer and expert."""
    if record.expert == "shared":
        return f"the shared expert of layer {record.layer}"
    inside = f"expert {record.expert} of " if record.expert else ""
    return f"{inside}layer {record.layer}"


def matched(record: NeuronMatch | None) -> Verdict:
    """How many neurons were found, with how many flipped, and how sure."""
    if record is None:
        return _unmatched()
    if record.same_model:
        return _itself(record)
    pairs, right = len(record.rows), record.right
    flipped = ""
    if record.signs:
        flipped = f", {int((record.factor < 0).sum()):,} of them with sign −"
    text = f"{_sure(record)} {published(record)} {_basis(record)} {' '.join(record.notes)}".strip()
    if right is None:
        headline = f"{count(pairs, 'neuron')} matched in {where(record)}{flipped}."
        text = f"{text} No truth is known for this pair: the share that is right is not measured."
        return Verdict(headline, text, "not measured")
    headline = (
        f"{int(right.sum()):,} of {count(pairs, 'neuron')} found in {where(record)}{flipped}."
    )
    scale = ""
    if record.scales and record.scale_error is not None:
        scale = f"Their scales are the true ones to {number(record.scale_error)}. "
    return Verdict(headline, scale + text)


def _unmatched() -> Verdict:
    return Verdict(
        "Neurons have no order, no sign and no scale, until they are matched.",
        "Two copies of one function can list the neurons of a layer in any order, and in a gated "
        "network change the sign and the scale of each. Matching finds which is which, by a score "
        "that neither alters.",
        "not measured",
    )


def refused(a: ModelCard | None, b: ModelCard | None, itself: bool) -> Verdict:
    """What is said of a pair that is not open, or whose shapes differ."""
    if a is None or b is None:
        which = "A" if b is not None or itself else ("B" if a is not None else "A and B")
        return Verdict("No neurons to compare yet.", f"Not open: {which}. {WHY}")
    return Verdict(
        "Different groups: the neurons of these two cannot be put beside each other.",
        f"A and B differ in {'; '.join(unlike(a, b))}. Choose two models of one architecture, or "
        "look at A against itself.",
    )


def _sure(record: NeuronMatch) -> str:
    match = record.match
    return (
        f"{int(match.mutual.sum()):,} of {len(match.mutual):,} pairs choose each other; "
        f"{margin(float(match.margin.min()))}."
    )


def terms(record: NeuronMatch) -> str:
    """What the columns of a table of pairs mean."""
    blind = " neither signs nor scales" if record.signs else " weights as they stand"
    free = f"which knows{blind}" if record.signs else f"which compares{blind}"
    said = (
        "Margin: the score less that of next B, the best other neuron of B; below 0 that one is "
        "nearer, but is another's partner. Mutual: each of the two is the other's best. Published "
        f"B: the partner by git re-basin's cost, {free}."
    )
    if record.truth is not None:
        said += " Right: B is the true partner."
    if record.excited is not None:
        said += " Places shared: of those that excite each most."
    return said


def published(record: NeuronMatch) -> str:
    """What the cost without signs and scales finds."""
    if record.published_right is None:
        same = float(np.mean(record.published == record.match.permutation))
        return f"The published cost agrees on {same:.1%} of the partners."
    blind = "neither signs nor scales" if record.signs else "no scales"
    known = f", which knows {blind}," if record.scales else ""
    return f"The published cost{known} finds {record.published_right:.1%}."


def _basis(record: NeuronMatch) -> str:
    source = {"weights": "the embedding", "activations": "activations"}.get(record.using, "")
    expert = ""
    if record.expert and record.expert != "shared":
        expert = f" Its partner is expert {record.partner} of B."
    return (
        f"Compared {COMPARED[record.compared]}, with B in A's residual coordinates (from "
        f"{source}).{expert}"
    )


def _itself(record: NeuronMatch) -> Verdict:
    equal = int((record.second_score >= 1 - TOLERANCE).sum())
    best = int(record.second_score.argmax())
    pair = f"{best} and {int(record.second[best])}"
    if equal:
        several = f"{count(equal, 'neuron')} of {where(record)}"
        headline = f"{several} could be told by another one, up to sign and scale: {pair}, say."
    else:
        nearest = f"the most alike are {pair}, score {number(float(record.second_score[best]))}"
        headline = f"No two neurons of {where(record)} coincide; {nearest}."
    text = (
        f"Compared {COMPARED[record.compared]}: 1 is the same up to sign and scale, 0 has nothing "
        "in common."
    )
    if record.spared is not None:
        text = f"{text} {worth(record.spared)}"
    return Verdict(headline, f"{text} {' '.join(record.notes)}".strip())


def worth(found: Spared) -> str:
    """What merging and removing cost, of the most alike neurons and of the others."""
    alike = np.array([kind == "alike" for kind in found.kind])
    better = int((found.merged[alike] < found.removed[alike]).sum())
    costs = [number(float(np.median(x[alike]))) for x in (found.merged, found.removed)]
    first = (
        f"Of the {int(alike.sum())} most alike, merging was cheaper than removing for {better}: "
        f"at the median KL {costs[0]} against {costs[1]} nats."
    )
    parts = [first]
    for kind, name in (("small", "smallest"), ("random", "random")):
        some = np.array([other == kind for other in found.kind])
        if some.any():
            cost = number(float(np.median(found.removed[some])))
            parts.append(f"Removing one of the {int(some.sum())} {name} ones cost {cost}.")
    return f"{' '.join(parts)} Measured on {found.what}."


def pair(record: NeuronMatch, row: int, *, other: bool) -> str:
    """One neuron of A and one of B (of A itself) in words."""
    i = int(record.rows[row])
    j = int(record.second[row] if other else record.match.permutation[row])
    factor = float((record.second_factor if other else record.factor)[row])
    score = float((record.second_score if other else record.match.score)[row])
    whose = "A" if record.same_model else "B"
    if record.same_model:
        head = f"Neuron {i} of A and its most alike, {j}: score {score:.3f}"
    else:
        what = "the next best for it is" if other else "is"
        head = f"Neuron {i} of A {what} neuron {j} of B: score {score:.3f}"
    scale = f", {whose} {j} times {number(factor, 3)}" if record.scales else ""
    more = "" if other or record.same_model else f", margin {float(record.match.margin[row]):.3f}"
    truth = ""
    if record.right is not None and not other:
        truth = " This is the true partner." if record.right[row] else " This is not the true one."
    return f"{head}{scale}{more}.{truth}"


def shared(record: NeuronMatch, i: int, j: int) -> str:
    """How many of the places that excite both are the same."""
    assert record.excited is not None
    top = record.excited.places[0].shape[1]
    same = record.excited.shared(i, j)
    return f"{same} of the {top} places that excite each most are the same."


def overlap(record: NeuronMatch) -> str:
    """The same over all pairs of a layer."""
    if record.excited is None:
        return ""
    top = record.excited.places[0].shape[1]
    pairs = list(zip(record.rows.tolist(), record.match.permutation.tolist(), strict=True))
    mean = np.mean([record.excited.shared(i, j) for i, j in pairs])
    moved = np.roll(record.match.permutation, 1).tolist()
    chance = np.mean([record.excited.shared(i, j) for (i, _), j in zip(pairs, moved, strict=True)])
    return (
        f"Over the layer, partners share {mean:.1f} of the {top} places that excite each most; "
        f"neurons paired at random {chance:.1f}."
    )


def signs(record: NeuronLayers) -> str:
    """Why signs must be left free."""
    share = record.negative_share
    if share is None:
        return (
            "A neuron of this family has no sign: the activation would not pass one. There is only "
            "an order to find (with ReLU, a positive scale too)."
        )
    said = (
        f"Over all layers {share:.1%} of the factors are negative "
        f"({int((record.negative if record.negative is not None else np.zeros(1)).sum()):,} of "
        f"{int(record.pairs.sum()):,})."
    )
    if share == 0:
        return f"{said} These two still have the signs that they began with."
    if abs(share - 0.5) < 0.1:
        return (
            f"{said} It is a coin flip: a method that compares signs as they stand meets the wrong "
            "one every second time."
        )
    return said


def pictured(record: NeuronLayers) -> str:
    """What the pictures of all layers show, from left to right."""
    parts = []
    if record.negative is not None:
        parts.append(
            "How many matched neurons have a negative factor: dashed 50 %, grey what fair coins "
            "give."
        )
    if record.right is not None:
        parts.append(
            "The share found by the score that leaves sign and scale free, and by git re-basin's "
            "cost as published, which compares weights as they stand."
        )
    else:
        parts.append(
            "The share of pairs that choose each other, and of partners that git re-basin's cost "
            "as published chooses too."
        )
    return " ".join([*parts, "Margins of the score."])


def weak(record: NeuronLayers) -> str:
    """What bad pictures of all layers look like."""
    if record.right is None:
        return "Few pairs that choose each other, margins at or below 0: a match of unlike models."
    return "Both shares together below 100 %: not the signs, the match itself is weak."
