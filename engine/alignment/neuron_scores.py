"""How alike two neurons are, by weights alone, and which is which.

Rows of neurons come as `engine.alignment.heads.gather` gives them: gate, up and down, or rows in
and rows out, by mark, [rows, neurons] each.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from engine.alignment.gauges import fit_factor
from engine.assignment import margins, matching
from engine.axes import Mark
from engine.groups import Monomial
from engine.records import Assignment

Rows = Mapping[Mark, Tensor]
Score = Float[np.ndarray, "n m"]
Flipped = Bool[np.ndarray, "n m"] | None


def alike(group: Monomial, x: Rows, y: Rows) -> tuple[Score, Flipped]:
    """The score that no change of the group alters, and which factors would be negative.

    The mean of 2 ⟨p, q⟩ / (‖p‖² + ‖q‖²) = 1 − ‖p − q‖² / (‖p‖² + ‖q‖²) over what describes a
    neuron. Gated: its gate, and up ⊗ down; ReLU: rows in ⊗ rows out; without factors: both as they
    are. 1 is one neuron in two bases, near 0 are unrelated ones.
    """
    inner = {mark: x[mark].mT @ y[mark] for mark in x}
    own = [{mark: rows.square().sum(0) for mark, rows in z.items()} for z in (x, y)]
    direct = [m for m in x if m is Mark.RELABEL or not group.scales]
    terms = [_relative(inner[m], own[0][m], own[1][m]) for m in direct]
    if group.scales:
        whole = [z[Mark.WRITE] * z[Mark.READ] for z in own]
        terms.append(_relative(inner[Mark.WRITE] * inner[Mark.READ], *whole))
    score = torch.stack(terms).mean(0).numpy()
    return score, flips(x, y) if group.signs else None


def _relative(inner: Tensor, mine: Tensor, theirs: Tensor) -> Float[Tensor, "n m"]:
    return 2 * inner / (mine[:, None] + theirs).clamp(min=1e-30)


def signed(score: Score, flipped: Flipped) -> Score:
    """The score where it is above 0, else 0, with the sign of each pair."""
    found = np.maximum(score, 0).astype(np.float32)
    return found if flipped is None else np.where(flipped, -found, found)


def neuron_factors(group: Monomial, x: Rows, y: Rows) -> Float[Tensor, " n"]:
    """The best factor on each of B's neurons for A's neuron in the same place (`fit_factor`)."""
    one, other = ({mark: rows.double() for mark, rows in z.items()} for z in (x, y))
    if not group.scales:
        return torch.ones(one[Mark.WRITE].shape[1], dtype=torch.float64)
    inner = {mark: (one[mark] * other[mark]).sum(0) for mark in one}
    own = {mark: rows.square().sum(0) for mark, rows in other.items()}
    factor = fit_factor(own[Mark.WRITE], own[Mark.READ], inner[Mark.WRITE], inner[Mark.READ])
    return factor if group.signs else factor.abs()


def flips(x: Rows, y: Rows) -> Bool[np.ndarray, "n m"]:
    """Whether s √b + t √a < 0: s = ⟨up_B, up_A⟩, t of down, a = ‖up_B‖², b of down."""
    pull = torch.zeros(())
    for mark, other in ((Mark.WRITE, Mark.READ), (Mark.READ, Mark.WRITE)):
        pull = pull + (x[mark].mT @ y[mark]) * y[other].norm(dim=0)
    return (pull < 0).numpy()


def reading_alike(group: Monomial, x: Rows) -> tuple[Score, Flipped]:
    """The same for two neurons of one model, by what they read: gate, and up (rows in) to a factor.

    Two neurons that read alike fire alike, whatever they write, and what one writes can be added to
    what the other does. |cos| takes the place of up ⊗ down; cos where factors are positive.
    """
    up = x[Mark.WRITE]
    if not group.scales:
        own = up.square().sum(0)
        return _relative(up.mT @ up, own, own).numpy(), None
    unit = up / up.norm(dim=0).clamp(min=1e-30)
    cosine = unit.mT @ unit
    terms = [cosine.abs() if group.signs else cosine]
    if Mark.RELABEL in x:
        gate = x[Mark.RELABEL]
        own = gate.square().sum(0)
        terms.append(_relative(gate.mT @ gate, own, own))
    score = torch.stack(terms).mean(0).numpy()
    return score, (cosine < 0).numpy() if group.signs else None


def reading_factors(group: Monomial, x: Rows, other: Tensor) -> Float[Tensor, " n"]:
    """f with up_i ≈ f up_j for j = other[i], so that h_i ≈ f h_j."""
    if not group.scales:
        return torch.ones(len(other), dtype=torch.float64)
    up = x[Mark.WRITE].double()
    there = up[:, other]
    found = (up * there).sum(0) / there.square().sum(0).clamp(min=1e-300)
    return found if group.signs else found.clamp(min=0)


def published(x: Rows, y: Rows) -> Int[np.ndarray, " n"]:
    """Partners by git re-basin's cost (Ainsworth et al. 2023), the sum of all inner products.

    It knows no signs and no scales. −1 for a neuron that has none.
    """
    score = torch.stack([x[mark].mT @ y[mark] for mark in x]).sum(0).numpy()
    rows, columns = matching(score)
    found = np.full(len(score), -1, np.int64)
    found[rows] = columns
    return found


def matched(
    score: Score, flipped: Flipped, *, same: bool = False
) -> tuple[Int[np.ndarray, " k"], Assignment]:
    """The rows that have a partner, and their matching; the identity for one model."""
    every = np.arange(len(score))
    rows, order = (every, every) if same else matching(score)
    best = score[rows].argmax(1)
    chosen = score[rows, order]
    sign = np.ones(len(rows)) if flipped is None else np.where(flipped[rows, order], -1, 1)
    return rows, Assignment(
        permutation=order.astype(np.int64),
        sign=sign.astype(np.int8),
        score=chosen.astype(np.float32),
        margin=margins(score[rows], order).astype(np.float32),
        mutual=(best == order) & (score.argmax(0)[order] == rows),
        shortcut=np.array_equal(best, order),
    )


def runners_up(
    score: Score, rows: Int[np.ndarray, " k"], order: Int[np.ndarray, " k"]
) -> Int[np.ndarray, " k"]:
    """The best other column of each row."""
    if score.shape[1] == 1:
        return order
    others = score[rows]
    others[np.arange(len(rows)), order] = -np.inf
    return others.argmax(1).astype(np.int64)
