"""The answers to `Neurons` and `AllNeurons`: neurons matched in one layer, and in all in short."""

import time
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from engine import network, texts
from engine.alignment.firing import Heard, Site, common_windows, hear, sites
from engine.alignment.listening import correlate_neurons
from engine.alignment.neuron_matching import Scored, scored
from engine.alignment.neuron_pairs import (
    SHARED,
    Layer,
    Models,
    layer,
    layers,
    models,
    true_element,
    true_expert,
)
from engine.alignment.neuron_scores import signed
from engine.alignment.neuron_trials import spared
from engine.axes import Mark
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, part, silent
from engine.questions import AllNeurons, Neurons
from engine.records import NeuronLayers, NeuronMatch, Truth


def one_layer(
    a: Checkpoint, b: Checkpoint, asked: Neurons, progress: Progress = silent
) -> NeuronMatch:
    """The neurons of one layer matched, with what excites each; of one model, what each is worth.

    Errors: Refused for models of two groups, a layer or an expert that is not there.
    """
    began = time.perf_counter()
    if not 0 <= asked.layer < a.layers:
        raise Refused(f"There is no layer {asked.layer}: {a.name} has 0 to {a.layers - 1}.")
    both = models(a, b, asked, part(progress, 0, 0.3))
    expert = _expert(both, asked)
    progress(0.3, "reading the layer")
    here = layer(both, asked.layer)
    partner = None if expert is None else here.partner(expert)
    places = list(sites(both, asked.layer, expert, partner))
    ids, heard, notes = _text(both, places, asked, part(progress, 0.3, 0.6))
    progress(0.6, "matching the neurons")
    x, _ = here.rows(expert)
    ears = heard if asked.using == "activations" else None
    found = scored(here, expert, ears and ears.correlation, ears and ears.spread)
    best = found.score[found.rows, found.second]
    norm = (x[Mark.WRITE].norm(dim=0) * x[Mark.READ].norm(dim=0)).numpy()
    cost = None
    if both.same:
        pairs = found.second, best, found.second_factor
        cost = spared(places[0], asked, ids, pairs, norm, part(progress, 0.7, 1))
    true = _truth(both, asked.layer, expert)
    planted = None if expert is None else true_expert(both, asked.layer, expert)
    return NeuronMatch(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        family=a.family.name,
        layer=asked.layer,
        layers=a.layers,
        expert=_named(both, expert),
        partner=_named(both, partner),
        true_partner=None if planted is None else str(planted),
        gated=Mark.RELABEL in x,
        signs=both.group.signs,
        scales=both.group.scales,
        using="identity" if both.same else asked.using,
        compared=found.compared,
        sizes=both.sizes,
        score=signed(found.score, found.flipped),
        rows=found.rows,
        match=found.match,
        factor=found.factor,
        second=found.second,
        second_score=best,
        second_factor=found.second_factor,
        published=found.published,
        truth=None if true is None else true[0],
        truth_factor=None if true is None else true[1],
        norm=norm,
        excited=None if heard is None else heard.excited,
        spared=cost,
        notes=(*_notes(both), *notes),
        tokens=asked.tokens if heard else 0,
        text=heard.excited.what if heard else "",
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def _expert(both: Models, asked: Neurons) -> int | None:
    return int(asked.expert or 0) if both.experts else None


def _named(both: Models, expert: int | None) -> str:
    if both.word == "sffn":
        return SHARED
    return "" if expert is None else str(expert)


def _text(
    both: Models, places: list[Site], asked: Neurons, progress: Progress
) -> tuple[Tensor | None, Heard | None, tuple[str, ...]]:
    """What the neurons did on the text; without one, why not."""
    try:
        ids, notes = common_windows(both, asked)
    except Refused as refusal:
        if asked.text != texts.DEFAULT or asked.using == "activations":
            raise
        return None, None, (f"What excites the neurons was not measured: {refusal}",)
    return ids, hear(both, places, asked, ids, progress), notes


def _notes(both: Models) -> Iterator[str]:
    """What differs, and what was done."""
    x, y = both.sizes
    if x != y:
        fewer = "A" if x < y else "B"
        yield (
            f"A has {x:,} neurons in a layer, B {y:,}: each of {fewer}'s got a partner, "
            f"{abs(x - y):,} of the other model's have none."
        )
    tokens = [c.family.sizes(c.config).get("tok", 0) for c in (both.a, both.b)]
    if tokens[0] != tokens[1]:
        yield (
            f"A knows {tokens[0]:,} tokens, B {tokens[1]:,}: the residual coordinates were aligned "
            "on those that both have."
        )


def _truth(both: Models, number: int, expert: int | None) -> tuple[Truth, np.ndarray] | None:
    """The planted order with its signs, and the planted factors."""
    found = true_element(both, number, expert)
    if found is None:
        return None
    factor = found.scale.numpy()
    kind = "planted" if both.known == "planted" else "identity"
    sign = np.where(factor < 0, -1, 1).astype(np.int8)
    return Truth(kind, found.permutation.numpy(), sign), factor


def all_layers(
    a: Checkpoint, b: Checkpoint, asked: AllNeurons, progress: Progress = silent
) -> NeuronLayers:
    """Signs, margins and shares of every layer.

    Errors: Refused for models of two groups, and for a single expert.
    """
    began = time.perf_counter()
    both = models(a, b, asked, part(progress, 0, 0.3))
    if both.experts and asked.expert:
        raise Refused(f"Expert {asked.expert} is in one layer: name it with --layer.")
    heard = _everywhere(both, asked, part(progress, 0.3, 0.6))
    rows = []
    for number, here in enumerate(layers(both)):
        progress(0.6 + 0.4 * number / a.layers, f"neurons of layer {number} of {a.layers}")
        ears = heard[number] if heard else None
        rows.append(summary(here, ears))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    known = both.truth is not None
    from_text = asked.using == "activations" and not both.same
    return NeuronLayers(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        family=a.family.name,
        expert=SHARED if both.word == "sffn" else "",
        signs=both.group.signs,
        using="identity" if both.same else asked.using,
        pairs=columns["pairs"].astype(np.int64),
        negative=columns["negative"].astype(np.int64) if both.group.signs else None,
        truth="none" if not known else "planted" if both.known == "planted" else "identity",
        right=columns["right"].astype(np.float32) if known else None,
        published=columns["published"].astype(np.float32) if known else None,
        agree=columns["agree"].astype(np.float32),
        smallest=columns["smallest"].astype(np.float32),
        median=columns["median"].astype(np.float32),
        mutual=columns["mutual"].astype(np.float32),
        notes=tuple(_notes(both)),
        tokens=asked.tokens if from_text else 0,
        text=texts.describe(a, asked.text) if from_text else "",
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def _everywhere(both: Models, asked: AllNeurons, progress: Progress) -> tuple[Tensor, ...]:
    """C of the neurons of every layer, where it is asked for."""
    if asked.using == "weights" or both.same:
        return ()
    if both.experts or both.word != "ffn":
        raise Refused(
            "The neurons of experts fire on different tokens: compare all layers by the weights "
            "(--using weights), or one expert of one layer."
        )
    ids, _ = common_windows(both, asked)
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    found = [network.load(c, where, kind) for c in (both.a, both.b)]
    return correlate_neurons(found, both.a.family, ids, texts.special(both.a), progress)


def summary(here: Layer, correlation: Tensor | None) -> dict[str, float]:
    """One layer in numbers, all its experts together."""
    both = here.both
    found = []
    for expert in both.experts or (None,):
        one = scored(here, expert, None if correlation is None else correlation.numpy())
        true = _truth(both, here.number, expert)
        planted = None if expert is None else true_expert(both, here.number, expert)
        met = planted is None or expert is None or planted == here.partner(expert)
        found.append((one, true, met))
    joined = [one.match for one, _, _ in found]
    margin = np.concatenate([match.margin for match in joined])
    return {
        "pairs": float(len(margin)),
        "negative": float(sum((one.factor < 0).sum() for one, _, _ in found)),
        "right": _mean([met & _right(one, true) for one, true, met in found]),
        "published": _mean([met & _published(one, true) for one, true, met in found]),
        "agree": _mean([one.published == one.match.permutation for one, _, _ in found]),
        "smallest": float(margin.min()),
        "median": float(np.median(margin)),
        "mutual": _mean([match.mutual for match in joined]),
    }


def _mean(parts: list[np.ndarray]) -> float:
    return float(np.concatenate(parts).mean())


def _right(one: Scored, true: tuple[Truth, np.ndarray] | None) -> np.ndarray:
    if true is None:
        return np.zeros(len(one.rows), np.bool_)
    order, sign = one.match.permutation == true[0].permutation, one.match.sign == true[0].sign
    return order & sign


def _published(one: Scored, true: tuple[Truth, np.ndarray] | None) -> np.ndarray:
    if true is None:
        return np.zeros(len(one.rows), np.bool_)
    return one.published == true[0].permutation
