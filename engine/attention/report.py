"""The answer to `Heads`: one layer's heads matched, turned, ranked and tried."""

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine import network
from engine.alignment.heads import HeadMatch, match_heads, turning
from engine.alignment.matching import planted
from engine.alignment.stages import head_terms
from engine.attention import orders, trials
from engine.attention.counting import TRIED
from engine.attention.disguise import disguises
from engine.attention.pairs import (
    Pair,
    flat,
    gaps,
    inner,
    pair,
    query_key,
    scaled,
    scales,
    value_output,
)
from engine.checkpoint import Checkpoint
from engine.elements import Element, Mixed, Ordered, Turned
from engine.errors import Progress, Refused, part, silent
from engine.questions import Heads
from engine.records import Cost, HeadCost, HeadsReport, OrderRank, Turns
from engine.running import decodes
from engine.symmetry import Symmetry


def report(a: Checkpoint, b: Checkpoint, asked: Heads, progress: Progress = silent) -> HeadsReport:
    """Stage 1 and 2 of one layer, B in A's residual coordinates, with the truth if it is known.

    Errors: Refused for two groups, a layer that is not there, and `rotary` where nothing rotates.
    """
    began = time.perf_counter()
    both = pair(a, b.spelled_like(a), asked, part(progress, 0, 0.2))
    progress(0.2, "costs of all pairs of heads")
    own, public = costs(both)
    used = choice(asked.cost, own, a)
    found = match_heads(_nested(both, public if used == "published" else own))
    ordered = both.with_order(found.grp, found.head)
    progress(0.3, "turns and matrices inside the heads")
    done = {"none": {}} | {kind: inner(ordered, kind) for kind in ("orthogonal", "full")}
    steps = Steps.of([both, ordered, *(ordered.after(done[k]) for k in ("orthogonal", "full"))])
    rank, removed, checked = tried(both, found, steps, asked, part(progress, 0.4, 0.9))
    progress(0.9, "A's own heads in disguise")
    worn, worn_on = disguises(both, asked)
    truth = planted(a, both.b) if a.fingerprint != b.fingerprint else None
    chosen = done[asked.stage2]
    second, margin = runners_up(public if used == "published" else own, flat(found.grp, found.head))
    return HeadsReport(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        family=a.family.name,
        layer=asked.layer,
        layers=a.layers,
        groups=both.sizes["grp"],
        per_group=both.per_group,
        head_dim=both.sizes["val"],
        using="identity" if a.fingerprint == b.fingerprint else asked.using,
        used=used,
        own=own,
        published=public,
        order=flat(found.grp, found.head).numpy(),
        second=second,
        margin=margin,
        planted_order=planted_order(both, truth),
        stage2=asked.stage2,
        query_key=steps.query_key,
        value_output=steps.value_output,
        query_key_norm=steps.norms[0],
        value_output_norm=steps.norms[1],
        turns=turns(ordered, chosen.get("rot"), truth) if both.sizes.get("rot") else None,
        query_scale=None if steps.scales is None else steps.scales[0].flatten().numpy(),
        key_scale=None if steps.scales is None else steps.scales[1].numpy(),
        val_singular=singular(both, chosen.get("val"), "val"),
        qk_singular=singular(both, chosen.get("qk"), "qk") if both.sizes.get("qk") else None,
        rank=rank,
        removal=removed,
        checked_on=checked,
        disguises=worn,
        disguised_on=worn_on,
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def costs(both: Pair) -> tuple[HeadCost, HeadCost]:
    """Ours, each term over its mean, and the published one, both terms as they are."""
    kind: Cost = "rotary" if both.sizes.get("rot") else "product"
    heads = both.sizes["grp"] * both.per_group
    found: list[HeadCost] = []
    names: tuple[Cost, Cost] = (kind, "published")
    for name, own in zip(names, (True, False), strict=True):
        terms = head_terms(both.family, both.sizes, both.theirs, both.mine, own=own)
        tables = [x.reshape(heads, heads).clamp(min=0).numpy().astype(np.float32) for x in terms]
        means = [max(float(table.mean()), 1e-30) if own else 1.0 for table in tables]
        found.append(HeadCost(name, tables[0], tables[1], (means[0], means[1])))
    return found[0], found[1]


def choice(asked: str, own: HeadCost, a: Checkpoint) -> Cost:
    """The cost that a question asks for; Refused for `rotary` where no channel is rotated."""
    if asked == "published":
        return "published"
    if asked == "rotary" and own.kind != "rotary":
        raise Refused(
            f"--cost rotary needs rotary frequencies, and {a.name} ({a.family.name}) has none: "
            "use auto or published."
        )
    return own.kind


def _nested(both: Pair, cost: HeadCost) -> Tensor:
    shape = (both.sizes["grp"], both.per_group)
    return torch.from_numpy(cost.total).double().reshape(*shape, *shape)


def runners_up(cost: HeadCost, order: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest other head for each head of A, and how much dearer it is, over the mean cost."""
    table = cost.total.astype(np.float64)
    rows = np.arange(len(table))
    if len(table) == 1:
        return np.zeros(1, np.int64), np.full(1, np.inf, np.float32)
    others = table.copy()
    others[rows, order.numpy()] = np.inf
    second = others.argmin(1)
    gap = others[rows, second] - table[rows, order.numpy()]
    return second, (gap / max(table.mean(), 1e-300)).astype(np.float32)


@dataclass(frozen=True)
class Steps:
    """‖A − B‖² of every head after each step, ‖A‖², and the free scales of the last one.

    Each step lowers the sum over the query heads of a group; a single one may rise.
    """

    query_key: np.ndarray
    value_output: np.ndarray
    norms: tuple[np.ndarray, np.ndarray]
    scales: tuple[Tensor, Tensor] | None

    @staticmethod
    def of(pairs: list[Pair]) -> "Steps":
        """From B after each step; under norms of single heads free scales belong to the last."""
        first, last = pairs[0], pairs[-1]
        heads = first.per_group
        a = query_key(first, first.theirs), value_output(first, first.theirs)
        every = [(query_key(p, p.mine), value_output(p, p.mine)) for p in pairs]
        free = scales(last, a[0], every[-1][0])
        every[-1] = scaled(every[-1][0], free), every[-1][1]
        found = [
            np.stack([gaps(a[i], b[i], heads).numpy() for b in every]).astype(np.float64)
            for i in (0, 1)
        ]
        norms = [gaps(rows, None, heads).numpy().astype(np.float64) for rows in a]
        return Steps(found[0], found[1], (norms[0], norms[1]), free)


def tried(
    both: Pair, match: HeadMatch, steps: Steps, asked: Heads, progress: Progress
) -> tuple[OrderRank | None, np.ndarray | None, str]:
    """The rank among all orders, what each head's removal costs (A = B), and on what it was run."""
    progress(0.0, "all orders of the heads")
    found = orders.orders(both)
    same = both.a.fingerprint == both.b.fingerprint
    before = float(steps.query_key[0].sum() + steps.value_output[0].sum())
    few = found is not None and len(found.cost) <= TRIED and not same
    runs = same or (few and decodes(both.a))
    given = trials.inputs(both.a, both.b, asked) if runs else None
    say = trials.speaker(both.a, asked, given) if given else None

    def loss(pair: Pair) -> float:
        assert say is not None
        assert given is not None
        progress(0.5, "models half way, in every order")
        value = trials.next_token_loss(say(trials.middle(pair)), given)
        return float("nan") if value is None else value

    rank = None
    if found is not None:
        chosen = found.find(match.grp, match.head)
        reads = given is not None and given.text and not same
        rank = orders.ranked(both, chosen, found, before, loss if reads else None)
    removed = trials.removal(both, say) if same and say else None
    return rank, removed, given.what if given else ""


def turns(ordered: Pair, element: Element | None, truth: Symmetry | None) -> Turns:
    """The rotary frequencies: what was found, and all that an objective needs."""
    x, y = (turning(ordered.family, ordered.sizes, t, gains=False) for t in
            (ordered.theirs, ordered.mine))  # fmt: skip
    own = (_square(x.q) + _square(x.k)).numpy()
    z = _number(element, own.shape)
    real = None if truth is None else truth.elements.get(_key(ordered, "rot"))
    known = None if truth is None else _number(real, own.shape)
    return Turns(
        angle=np.angle(z),
        log_modulus=np.log(np.abs(z)),
        weight=(own / np.maximum(own.sum(-1, keepdims=True), 1e-300)).astype(np.float32),
        query=_square(y.q).numpy(),
        key=_square(y.k).numpy(),
        query_inner=_inner(y.q, x.q),
        key_inner=_inner(y.k, x.k),
        constant=own,
        half_turns=not isinstance(element, Turned) and "half" in ordered.family.coordinates,
        planted_angle=None if known is None else np.angle(known),
        planted_log_modulus=None if known is None else np.log(np.abs(known)),
    )


def _key(both: Pair, word: str) -> str:
    return both.family.key(word, both.layer)


def _number(element: Element | None, shape: tuple[int, ...]) -> np.ndarray:
    match element:
        case Turned():
            return element.z.numpy()
        case Ordered():
            return element.scale.numpy().astype(np.complex128)
    return np.ones(shape, np.complex128)


def _square(x: Tensor) -> Tensor:
    return x.abs().square().sum((1, 2))


def _inner(x: Tensor, y: Tensor) -> np.ndarray:
    return torch.view_as_real((x.conj() * y).sum((1, 2)).resolve_conj()).numpy()


def singular(both: Pair, element: Element | None, word: str) -> np.ndarray:
    """Singular values of the matrices of each group, descending; 1 where none was solved."""
    if isinstance(element, Mixed):
        return torch.linalg.svdvals(element.matrix).numpy()
    return np.ones((both.sizes["grp"], both.sizes[word]))


def planted_order(both: Pair, truth: Symmetry | None) -> np.ndarray | None:
    """B's head at each of A's by the gauge that was planted."""
    if truth is None:
        return None
    groups, heads = both.sizes["grp"], both.per_group
    identity = replace(both.outer, elements={})
    found = []
    for word, shape in (("grp", (groups,)), ("head", (groups, heads))):
        element = truth.elements.get(_key(both, word)) if word in identity.sizes else None
        still = torch.arange(shape[-1]).expand(shape)
        found.append(element.permutation if isinstance(element, Ordered) else still)
    return (found[0][:, None] * heads + found[1]).flatten().numpy()
