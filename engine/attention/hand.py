"""The answer to `Turn`: one rotary frequency of B set by hand, against the one that was found."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from engine import network
from engine.action import acted
from engine.alignment.stages import solve_heads
from engine.attention import trials
from engine.attention.pairs import Pair, inner, pair
from engine.attention.report import turns
from engine.checkpoint import Checkpoint
from engine.elements import Element, Turned
from engine.errors import Progress, Refused, part, silent
from engine.questions import Turn
from engine.records import TurnReport

OUTSIDE = "There is no {what} {number}: layer {layer} of {name} has 0 to {last}."


def turn(a: Checkpoint, b: Checkpoint, asked: Turn, progress: Progress = silent) -> TurnReport:
    """What one frequency does to the distance from A and to the model half way; B itself stays.

    Errors: Refused where no frequency may turn freely, and for one that is not there.
    """
    began = time.perf_counter()
    both = pair(a, b.spelled_like(a), asked, part(progress, 0, 0.3))
    require(both, asked)
    heads = solve_heads(both.family, both.sizes, both.theirs, both.mine).elements
    ordered = both.after({n: e for n, e in heads.items() if n in both.family.coordinates})
    found = inner(ordered, "full")
    hand = {**found, "rot": by_hand(found["rot"], asked)}
    best = turns(ordered, found["rot"], None)
    here = asked.group, asked.frequency
    angle, log_modulus = math.radians(asked.angle), math.log(asked.modulus)
    given = trials.inputs(a, both.b, asked)
    ours, theirs = (trials.speaker(c, asked, given) for c in (a, both.b))
    progress(0.5, "A, B, B turned, and both half way")
    own, plain = ours({}), theirs({})
    turned = theirs(back(both, heads, hand))
    halves = [ours(trials.middle(ordered.after(e))) for e in (hand, found)]
    return TurnReport(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        layer=asked.layer,
        group=asked.group,
        frequency=asked.frequency,
        angle=angle,
        log_modulus=log_modulus,
        objective=float(best.objective(*here, angle, log_modulus)),
        best=best.best(*here),
        kept=_largest(turned, plain) / max(_scale(plain), 1e-300),
        midpoint=_largest(halves[0], own),
        midpoint_best=_largest(halves[1], own),
        midpoint_loss=trials.next_token_loss(halves[0], given),
        midpoint_loss_best=trials.next_token_loss(halves[1], given),
        checked_on=given.what,
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def require(both: Pair, asked: Turn) -> None:
    """Refused unless the layer has this frequency and this family may turn it."""
    group = both.family.coordinates["rot"].group if both.sizes.get("rot") else None
    if group is None or "half" in both.family.coordinates:
        raise Refused(
            f"{both.a.name} ({both.family.name}) has no rotary frequency that may turn freely: "
            "see `heads` for what its heads may do."
        )
    limits = {"group": both.sizes["grp"], "frequency": both.sizes["rot"] // 2}
    for what, size in limits.items():
        number = getattr(asked, what)
        if not 0 <= number < size:
            raise Refused(
                OUTSIDE.format(
                    what=what, number=number, layer=asked.layer, name=both.a.name, last=size - 1
                )
            )
    if not (asked.modulus > 0 and math.isfinite(asked.modulus)):
        raise Refused(f"--modulus {asked.modulus:g}: a modulus is a positive number.")


def by_hand(found: Element, asked: Turn) -> Turned:
    """The turns that were found, one of them replaced."""
    assert isinstance(found, Turned)
    z = found.z.clone()
    z[asked.group, asked.frequency] = torch.polar(
        torch.tensor(asked.modulus).double(), torch.tensor(math.radians(asked.angle)).double()
    )
    return replace(found, z=z)


def back(
    both: Pair, heads: Mapping[str, Element], hand: Mapping[str, Element]
) -> dict[str, Tensor]:
    """B's layer with its heads ordered and turned, in B's own residual coordinates."""
    there = both.after(heads).after(hand)
    g = both.outer.inverse()
    return acted(g, there.mine)


def _largest(x: dict[str, Tensor], y: dict[str, Tensor]) -> float:
    name = next(iter(x))
    return float((x[name] - y[name]).abs().max())


def _scale(x: dict[str, Tensor]) -> float:
    return float(next(iter(x.values())).abs().max())
