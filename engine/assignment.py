"""The linear assignment problem: which row goes with which column, and how sure that is."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment

from engine.records import Assignment


def solve(score: Float[np.ndarray, "n n"]) -> tuple[Int[np.ndarray, " n"], bool]:
    """π that maximises Σ_i score[i, π(i)], and whether the row maxima already were a permutation.

    If they are, they are optimal and no solver runs (`scipy.optimize.linear_sum_assignment`
    otherwise, O(n³)).
    """
    best = np.argmax(score, axis=1)
    if np.bincount(best, minlength=score.shape[1]).max() == 1:
        return best.astype(np.int64), True
    return linear_sum_assignment(score, maximize=True)[1].astype(np.int64), False


def matching(
    score: Float[np.ndarray, "n m"],
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """Rows and columns of the highest sum that uses all rows, or all columns if those are fewer."""
    if score.shape[0] == score.shape[1]:
        return np.arange(len(score)), solve(score)[0]
    rows, columns = linear_sum_assignment(score, maximize=True)
    return rows.astype(np.int64), columns.astype(np.int64)


def margins(
    score: Float[np.ndarray, "n m"], permutation: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """score[i, π(i)] minus the best other entry of row i (negative where another is better)."""
    rows, others = np.arange(len(score)), score.copy()
    others[rows, permutation] = -np.inf
    return score[rows, permutation] - others.max(axis=1)


def mutual(
    score: Float[np.ndarray, "n n"], permutation: Int[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """True where row i and column π(i) are each other's nearest neighbour."""
    rows = np.arange(len(score))
    return (score.argmax(axis=1) == permutation) & (score.argmax(axis=0)[permutation] == rows)


def match(
    correlation: Float[np.ndarray, "n n"],
    *,
    absolute: bool,
    signs: bool = True,
    common: bool = False,
) -> Assignment:
    """The matching of C (or of |C|): π, s_i = sign C[i, π(i)] (+1 with signs off), margins.

    Under B_d the signs must be marginalised: solve |C|, then read the signs off. A solver that
    looks at C itself can find only the coordinates whose sign is + (Sweeney 2026). Where all signs
    are equal (`common`, LayerNorm) the better of C and −C is solved instead of |C|.
    """
    if common and absolute:
        return _match_common(correlation)
    score = np.abs(correlation) if absolute else correlation
    permutation, shortcut = solve(score)
    rows = np.arange(len(score))
    chosen = correlation[rows, permutation]
    sign = np.where(chosen < 0, -1, 1) if signs else np.ones(len(score))
    return Assignment(
        permutation=permutation,
        sign=sign.astype(np.int8),
        score=score[rows, permutation].astype(np.float32),
        margin=margins(score, permutation).astype(np.float32),
        mutual=mutual(score, permutation),
        shortcut=shortcut,
    )


def _match_common(correlation: Float[np.ndarray, "n n"]) -> Assignment:
    """The matching of C or of −C, whichever scores higher, with that one sign everywhere."""
    both = [match(sign * correlation, absolute=False, signs=False) for sign in (1, -1)]
    best = int(both[1].score.sum() > both[0].score.sum())
    return replace(both[best], sign=(1 - 2 * best) * both[best].sign)
