"""Matchings of neurons without an engine: a planted order with signs and scales, chosen noise."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.records import Assignment, Excited, NeuronLayers, NeuronMatch, Spared, Truth
from tests import fakes

NEURONS, LAYERS, TOP = 40, 6, 8


@dataclass(frozen=True)
class Group:
    """What may act on the neurons."""

    gated: bool = True
    signs: bool = True
    scales: bool = True


def excited(order: np.ndarray, factor: np.ndarray, seed: int = 5) -> Excited:
    """B's neurons fire where their partners in A do."""
    draw = np.random.default_rng(seed)
    places = np.stack([draw.permutation(64)[:TOP] for _ in order]).astype(np.int32)
    values = -np.sort(-draw.random((len(order), TOP)), axis=1).astype(np.float32) + 1
    where = np.argsort(order)
    pieces = ("the", "cat|", "*sat*", "on", "\n", "mat")
    return Excited(
        pieces=pieces,
        text=draw.integers(0, len(pieces), (4, 16)).astype(np.int32),
        places=(places, places[where]),
        values=(values, (values / factor[:, None])[where].astype(np.float32)),
        what="64 tokens of a small text",
    )


def spared(count: int = 20) -> Spared:
    """Merging the alike costs a third of removing them."""
    draw = np.random.default_rng(7)
    removed = 10.0 ** -draw.uniform(4, 6, count)
    kind = (*("alike",) * 8, *("small",) * 8, *("random",) * (count - 16))
    gain = np.array([3 if k == "alike" else 1 for k in kind])
    return Spared(
        kind=kind,
        neuron=np.arange(count),
        other=np.arange(count) + 1,
        score=np.linspace(0.9, 0.1, count).astype(np.float32),
        factor=draw.normal(size=count),
        merged=removed / gain,
        removed=removed,
        merged_loss=removed / 10,
        removed_loss=removed,
        what="1,024 tokens of the text",
    )


def neuron_match(
    size: int = NEURONS, group: Group | None = None, truth: bool = True, **more: Any
) -> NeuronMatch:
    """Everything found."""
    group = group or Group()
    gauge, draw = fakes.planted(size), np.random.default_rng(2)
    sign = gauge.sign if group.signs else np.ones(size, np.int8)
    gauge = Truth("planted", gauge.permutation, sign)
    factor = sign * (np.exp(draw.uniform(-0.7, 0.7, size)) if group.scales else 1.0)
    matrix = fakes.correlation(gauge)
    match = fakes.assignment(matrix, gauge.permutation, True)
    score = np.abs(matrix)
    rest = score.copy()
    rest[np.arange(size), gauge.permutation] = -1
    given = {
        "a": "base",
        "b": "twin",
        "fingerprints": ("a" * 16, "b" * 16),
        "family": "Llama",
        "layer": 0,
        "layers": LAYERS,
        "expert": "",
        "partner": "",
        "true_partner": None,
        "gated": group.gated,
        "signs": group.signs,
        "scales": group.scales,
        "using": "weights",
        "compared": "invariant",
        "sizes": (size, size),
        "score": matrix if group.signs else score,
        "rows": np.arange(size),
        "match": replace(match, sign=sign),
        "factor": factor,
        "second": rest.argmax(1),
        "second_score": rest.max(1),
        "second_factor": factor * 0.5,
        "published": np.where(sign > 0, gauge.permutation, np.roll(gauge.permutation, 1)),
        "truth": gauge if truth else None,
        "truth_factor": factor if truth else None,
        "norm": np.linspace(1, 2, size).astype(np.float32),
        "excited": excited(gauge.permutation, factor) if size <= 2000 else None,
        "spared": None,
        "notes": (),
        "tokens": 4096,
        "text": "",
        "device": "cpu",
        "dtype": "float32",
        "seconds": 0.3,
    }
    return NeuronMatch(**(given | more))


def four_neurons(**more: Any) -> NeuronMatch:
    """Two of four pairs are the planted ones: the third has a wrong sign, the last a wrong B."""
    match = Assignment(
        np.array([2, 0, 1, 3]), np.array([1, -1, -1, 1], np.int8),
        np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([0.5, 0.25, 0.125, -0.5], np.float32),
        np.array([True, True, True, False]), False,
    )  # fmt: skip
    truth = Truth("planted", np.array([2, 0, 1, 0]), np.array([1, -1, 1, 1], np.int8))
    given = {
        "layer": 3, "match": match, "truth": truth, "factor": np.array([2.0, -0.5, -1.0, 4.0]),
        "truth_factor": np.array([2.0, -0.4, 1.0, 4.0]), "second": np.array([3, 1, 0, 2]),
        "second_score": np.array([0.4, 0.3, 0.2, 0.1], np.float32), "excited": None,
        "second_factor": np.array([1.5, -3.0, 2.5, 1.25]), "published": np.array([2, 0, 0, 3]),
        "sizes": (4, 4), "rows": np.arange(4),
    }  # fmt: skip
    return replace(neuron_match(4), **(given | more))


def itself(**more: Any) -> NeuronMatch:
    """A model against itself: the identity, and what neurons are worth."""
    same = neuron_match(truth=False)
    order, ones = np.arange(NEURONS), np.ones(NEURONS)
    given = {
        "fingerprints": ("a" * 16, "a" * 16),
        "b": "base",
        "using": "identity",
        "compared": "inputs",
        "match": replace(same.match, permutation=order, sign=ones.astype(np.int8)),
        "factor": ones,
        "published": order,
        "second": (order + 1) % NEURONS,
        "second_score": np.linspace(0.7, 0.2, NEURONS).astype(np.float32),
        "excited": excited(order, ones),
        "spared": spared(),
    }
    return replace(same, **(given | more))


def neuron_layers(truth: bool = True, signs: bool = True, **more: Any) -> NeuronLayers:
    """Half of the signs negative in every layer."""
    half = np.linspace(0.45, 0.55, LAYERS).astype(np.float32)
    given = {
        "a": "base",
        "b": "twin",
        "fingerprints": ("a" * 16, "b" * 16),
        "family": "Llama",
        "expert": "",
        "signs": signs,
        "using": "weights",
        "pairs": np.full(LAYERS, NEURONS),
        "negative": np.array([18, 19, 20, 21, 22, 20]) if signs else None,
        "truth": "planted" if truth else "none",
        "right": np.ones(LAYERS, np.float32) if truth else None,
        "published": half if truth else None,
        "agree": half,
        "smallest": half,
        "median": half + 0.2,
        "mutual": np.ones(LAYERS, np.float32),
        "notes": (),
        "tokens": 0,
        "text": "",
        "device": "cpu",
        "dtype": "float32",
        "seconds": 0.2,
    }
    return NeuronLayers(**(given | more))
