"""Published results and the same measured here, in words: theirs, ours, what differs."""

from collections.abc import Sequence

import numpy as np

from app.charts.reproductions import NAMES, of_scope, title
from app.sentences import answers
from app.sentences.answers import NOTHING, Card, standing
from app.sentences.barriers import SCOPES
from app.sentences.numbers import number, seconds
from app.sentences.verdicts import Verdict
from app.sentences.words import count
from engine.records import (
    VARIANTS,
    Connectivity,
    PublishedConnectivity,
    ScopeRatios,
)

STAGES = (
    "Stage 1 finds which residual coordinate, neuron and head of B is which of A; Stage 1 alone "
    "leaves the inside of the heads as it is. Stage 2 then solves inside each head: the orthogonal "
    "Stage 2 with turns and orthogonal matrices, the full Stage 2 with every invertible matrix."
)
"""What the alignments are called; said where they are first named."""


def told(measured: Connectivity, theirs: PublishedConnectivity, using: str = "weights") -> Verdict:
    """Where the order of the published ablation holds with layers matched in one way."""
    own = measured.by(using)
    known = [one for one in own.scopes if len(one.of("full"))]
    found = [standing(one) for one in known]
    pairs = count(sum(len(one.pairs) for one in own.scopes), "pair")
    headline = (
        f"The full Stage 2 leaves clearly less of the barrier than Stage 1 alone in "
        f"{found.count('clear')} of {count(len(known), 'setting')}."
    )
    parts = [
        sure(found),
        STAGES,
        f"A setting is an architecture and a scope; {pairs} of models from different seeds.",
        ways(measured),
        exceptions(own),
        paired(own),
        unsure(own),
        inside(own, theirs),
        "The models here are far smaller than the paper's: a ratio that differs refutes nothing.",
        f"Not measured yet: {count(len(measured.missing), 'setting')}." if measured.missing else "",
    ]
    partial = "partial" if measured.missing else ""
    return Verdict(headline, " ".join(part for part in parts if part), number=partial)


def sure(found: Sequence[str]) -> str:
    """What is meant by clearly, and how many settings are not clear."""
    return (
        f"Clearly: in every pair with intervals apart. In {found.count('lower')} more it is less "
        f"in every pair, with intervals that overlap; in {found.count('unclear')} the two are not "
        "to be told apart."
    )


def ways(measured: Connectivity) -> str:
    """What matching layers by what they do changes, over the settings that have both."""
    weights, activations = (
        {
            (one.architecture, one.scope): one.mean("full")
            for one in measured.by(using).scopes
            if len(one.of("full"))
        }
        for using in ("weights", "activations")
    )
    both = [place for place in weights if place in activations]
    if not both:
        return ""
    less = sum(activations[place] < weights[place] for place in both)
    means = [float(np.mean([way[place] for place in both])) for way in (weights, activations)]
    return (
        "With layers matched by activations rather than by weights the full Stage 2 leaves less on "
        f"the mean in {less} of {count(len(both), 'setting')} measured with both: {means[1]:.0%} "
        f"in place of {means[0]:.0%} over all of them."
    )


def setting(one: ScopeRatios) -> str:
    """An architecture and a scope, and how layers were matched where that was not by weights."""
    by = "" if one.using == "weights" else f" by {one.using}"
    return f"{title(one.architecture)}, {SCOPES[one.scope]}{by}"


def exceptions(measured: Connectivity) -> str:
    """The settings in which the full Stage 2 does not help on the mean."""
    found = [
        f"{setting(one)} ({one.mean('full'):.0%} after {one.mean('none'):.0%})"
        for one in measured.scopes
        if len(one.of("full")) and one.mean("full") >= one.mean("none")
    ]
    if not found:
        return ""
    return f"On the mean the full Stage 2 leaves no less than Stage 1 alone in: {'; '.join(found)}."


def paired(measured: Connectivity) -> str:
    """The full Stage 2 against the orthogonal one, on the same windows of every pair."""
    apart = np.concatenate([one.difference for one in measured.scopes] or [np.zeros((0, 3))])
    known = apart[~np.isnan(apart).any(1)]
    if not len(known):
        return ""
    pairs = count(len(known), "pair")
    less, more = int((known[:, 2] < 0).sum()), int((known[:, 1] > 0).sum())
    return (
        f"Full against orthogonal on the same windows: less in {less} of {pairs}, more in {more}; "
        f"in {len(known) - less - more} the interval of their difference holds 0."
    )


def unsure(measured: Connectivity) -> str:
    """The settings in which no pair has a ratio."""
    none = [one for one in measured.scopes if not len(one.of("full"))]
    found = "; ".join(map(setting, none))
    return f"No ratio, since the naive barrier may be 0: {found}." if none else ""


def without(measured: Connectivity, scope: str) -> str:
    """Why an architecture has no dot in the picture of a scope, or not all of its pairs."""
    if measured.scopes and not of_scope(measured, scope):
        return (
            f"No dots: with {SCOPES[scope]} interpolated nothing is shared that both models hear, "
            "and pairs are matched by weights alone."
        )
    found = [
        f"{title(one.architecture)} ({len(one.pairs) - len(one.of('full'))} of "
        f"{count(len(one.pairs), 'pair')})"
        for one in of_scope(measured, scope)
        if len(one.of("full")) < len(one.pairs)
    ]
    if not found:
        return ""
    return (
        f"Not in the picture: {', '.join(found)}. The naive barrier there is not above 0 with its "
        "whole interval, so nothing can be a share of it."
    )


def took(measured: Connectivity) -> str:
    """What the command of the barriers takes."""
    if not measured.seconds:
        return ""
    return (
        "The command trains and measures all architectures and scopes anew: "
        f"{seconds(measured.seconds)} on one processor core; --only names some."
    )


def inside(measured: Connectivity, theirs: PublishedConnectivity) -> str:
    """How often the mean of the full Stage 2 falls into the published range of its own scope."""
    own = [one for one in of_scope(measured, theirs.scope) if len(one.of("full"))]
    low, high = theirs.relative["full"]
    near = sum(low <= one.mean("full") <= high for one in own)
    return (
        f"In the paper's scope, {SCOPES[theirs.scope]}, {near} of "
        f"{count(len(own), 'architecture')} here lie in its {low:.0%} to {high:.0%}."
    )


def ablation(measured: Connectivity, theirs: PublishedConnectivity, scope: str) -> Card:
    """What is left of the naive barrier with none, an orthogonal and a full Stage 2."""
    ranges = ", ".join(
        f"{NAMES[v]} {low:.0%} to {high:.0%}" for v, (low, high) in theirs.relative.items()
    )
    own = of_scope(measured, scope)
    lines = [f"{title(one.architecture)}: {_percents(one)}" for one in own]
    data = f"{', '.join(theirs.data)}, {SCOPES[theirs.scope]}"
    differs = [
        f"Theirs: {theirs.models} on {data}, ranges over data sets.",
        "Ours: 3 to 6 layers of width 48 or 96 on generated data.",
        "" if scope == theirs.scope else f"The paper has no ablation of {SCOPES[scope]}.",
        " ".join(measured.left_out),
    ]
    return Card(
        "What Stage 2 removes of the barrier",
        f"{ranges}, in {SCOPES[theirs.scope]}.",
        f"In {SCOPES[scope]}, {', '.join(NAMES.values())}: {'; '.join(lines)}." if own else NOTHING,
        " ".join(part for part in differs if part),
        theirs.source,
        measured.command,
        answers.ablation(own, theirs.relative["full"] if scope == theirs.scope else None),
        took(measured),
    )


def _percents(one: ScopeRatios) -> str:
    if not len(one.of("full")):
        return "no ratio"
    return ", ".join(f"{one.mean(variant):.0%}" for variant in VARIANTS)


def connected(measured: Connectivity, theirs: PublishedConnectivity, scope: str) -> Card:
    """Whether the line is free of a barrier in one scope."""
    small, large = theirs.found[scope]
    own = of_scope(measured, scope)
    left = np.concatenate([one.left for one in own]) if own else np.zeros((0, 3))
    sure = int((np.where(np.isnan(left[:, 1]), left[:, 0], left[:, 1]) > 0).sum())
    ours = (
        f"After a full Stage 2 the barrier is above 0 with its whole interval in {sure} of "
        f"{count(len(left), 'pair')}; it lies between {number(left[:, 0].min())} and "
        f"{number(left[:, 0].max())} nats."
        if len(left)
        else NOTHING
    )
    return Card(
        f"Connected or not: {SCOPES[scope]}",
        f"Small data: {small}. Large data: {large}.",
        ours,
        "What is called connected is a judgement on a curve: here it holds where the interval of "
        "no barrier lies above 0.",
        theirs.source,
        measured.command,
        answers.connected(sure, len(left)),
        took(measured),
    )


def orders(measured: Connectivity, theirs: PublishedConnectivity) -> Card:
    """How good the order of the heads is that Stage 1 takes."""
    ranks = [
        f"{title(one.architecture)} {one.ranks[1]} of {len(one.barrier)} ({number(one.lost)})"
        for one in measured.orders
    ]
    return Card(
        "The order of the heads among all orders",
        f"Of 24 orders, {theirs.orders}.",
        "Rank of the chosen order by its measured barrier, and in brackets what it loses of 100 "
        f"that the best gains: {', '.join(ranks)}."
        if ranks
        else NOTHING,
        "Each order here gets its own Stage 2 before the line is measured; first attention.",
        theirs.source,
        measured.command,
        answers.orders(measured.orders),
        took(measured),
    )
