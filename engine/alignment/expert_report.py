"""The report on one layer's experts: order, neurons, and what merging and removing them costs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from engine import network
from engine.alignment import expert_trials as trials
from engine.alignment.experts import Found, folded, match, matched_neurons
from engine.alignment.matching import planted
from engine.alignment.stages import one_expert
from engine.assignment import solve
from engine.attention.pairs import Pair, pair
from engine.checkpoint import Checkpoint
from engine.elements import Element, Ordered
from engine.errors import Progress, Refused, part, silent
from engine.questions import Experts
from engine.records import ExpertsReport, Toll


def report(
    a: Checkpoint, b: Checkpoint, asked: Experts, progress: Progress = silent
) -> ExpertsReport:
    """The experts of one layer matched, and what merging and removing them costs.

    Errors: Refused for a family without experts, for two groups, and for a layer that is not there.
    """
    began = time.perf_counter()
    require_experts(a)
    require_experts(b)
    both = folded(pair(a, b.spelled_like(a), asked, part(progress, 0, 0.2)))
    found = match(both, part(progress, 0.2, 0.5))
    toll, checked = tried(both, found, asked, part(progress, 0.5, 1))
    truth = planted(a, b.spelled_like(a)) if not found.same else None
    sizes = both.sizes
    return ExpertsReport(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        family=a.family.name,
        layer=asked.layer,
        layers=a.layers,
        experts=sizes["exp"],
        active=int(a.config["num_experts_per_tok"]),
        neurons=sizes["ffn"],
        shared=sizes.get("sffn", 0),
        using="identity" if found.same else asked.using,
        router=found.router.astype(np.float32),
        content=found.content.astype(np.float32),
        order=found.order,
        by_router=solve(-found.router)[0],
        by_content=solve(-found.content)[0],
        second=found.second,
        margin=found.margin.astype(np.float32),
        planted_order=None if truth is None else planted_order(both, truth.elements),
        partner=found.partner,
        neuron_order=found.neurons.permutation.numpy(),
        neuron_factor=found.neurons.scale.numpy(),
        alike=found.alike.astype(np.float32),
        before=apart(both, found.moved(both, neurons=False)),
        left=apart(both, found.moved(both)),
        usage=toll.usage,
        halfway=toll.halfway,
        halfway_stored=toll.stored,
        removal=toll.removal,
        pairs=found.pairs if found.same else np.zeros((0, 2), np.int64),
        merged=toll.merged,
        single=toll.single,
        checked_on=checked,
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def require_experts(a: Checkpoint) -> None:
    """Refused where no feed-forward network is split into experts."""
    if "exp" not in a.family.coordinates:
        raise Refused(
            f"{a.name} ({a.family.name}) has no experts: give two models that have, of the "
            "families Mixtral, Qwen2-MoE or Qwen3-MoE."
        )


def apart(both: Pair, mine: Mapping[str, Tensor]) -> np.ndarray:
    """‖A − B‖ / ‖A‖ over the tensors of each expert, float64 [experts]."""
    found = []
    for expert in range(both.sizes["exp"]):
        theirs = one_expert(both.family, both.theirs, expert)
        gap = sum(float((x.double() - mine[n].double()).square().sum()) for n, x in theirs.items())
        own = sum(float(x.double().square().sum()) for x in theirs.values())
        found.append(np.sqrt(gap / max(own, 1e-300)))
    return np.array(found)


def planted_order(both: Pair, truth: Mapping[str, Element]) -> np.ndarray:
    """B's expert at each of A's by the gauge that was planted."""
    element = truth.get(both.family.key("exp", both.layer))
    if isinstance(element, Ordered):
        return element.permutation.numpy()
    return np.arange(both.sizes["exp"])


@dataclass(frozen=True)
class Tolls:
    """What was measured by running models."""

    usage: np.ndarray | None = None
    halfway: Toll | None = None
    stored: Toll | None = None
    removal: Toll | None = None
    merged: Toll | None = None
    single: Toll | None = None


def tried(both: Pair, found: Found, asked: Experts, progress: Progress) -> tuple[Tolls, str]:
    """Every change of A that is measured, and on what."""
    runs = trials.runs(both, asked)
    if runs is None:
        return Tolls(), ""
    if found.same:
        pairs = [
            (i, j, matched_neurons(both, i, j, found.sizes)[0]) for i, j in found.pairs.tolist()
        ]
        low, high = (part(progress, *share) for share in ((0, 0.3), (0.3, 1)))
        merged, single = trials.merging(both, runs, pairs, high)
        removal = trials.removal(runs, low)
        return Tolls(runs.usage, removal=removal, merged=merged, single=single), runs.given.what
    aligned, stored = found.moved(both), both.mine
    halfway = trials.halfway(both, runs, aligned, part(progress, 0, 0.5))
    as_stored = trials.halfway(both, runs, stored, part(progress, 0.5, 1))
    return Tolls(runs.usage, halfway, as_stored), runs.given.what
