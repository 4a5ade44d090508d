"""Laws of the assignment: the best of all orders, its margins, and signs marginalised."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.assignment import margins, match, matching, mutual, solve

SEEDS = st.integers(0, 2**31)
SIZES = st.integers(1, 6)
ORDER = np.array([1, 2, 0, 4, 5, 3])  # two cycles of three: no inverse of its own


def scores(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, size))


@given(SIZES, SEEDS)
def test_no_other_order_is_better(size: int, seed: int) -> None:
    score, rows = scores(size, seed), np.arange(size)
    best = max(score[rows, list(order)].sum() for order in itertools.permutations(range(size)))
    permutation, _ = solve(score)
    assert sorted(permutation) == list(rows)
    assert score[rows, permutation].sum() == pytest.approx(best)


@given(SIZES, SEEDS)
def test_the_shortcut_says_whether_row_maxima_were_a_permutation(size: int, seed: int) -> None:
    score = scores(size, seed)
    assert solve(score)[1] == (len(set(score.argmax(1))) == size)


def test_a_planted_order_lists_old_positions() -> None:
    """Row i of A is row π(i) of B, not the other way round."""
    b = np.linalg.qr(scores(6, 0))[0]
    a = b[ORDER]
    permutation, shortcut = solve(a @ b.T)
    assert shortcut
    assert permutation.tolist() == ORDER.tolist()
    assert permutation.tolist() != np.argsort(ORDER).tolist()


@given(SIZES, SEEDS)
def test_margins_against_every_other_entry(size: int, seed: int) -> None:
    score = scores(size, seed)
    permutation = np.random.default_rng(seed).permutation(size)
    expected = [
        score[i, p] - max((score[i, j] for j in range(size) if j != p), default=-np.inf)
        for i, p in enumerate(permutation)
    ]
    assert margins(score, permutation) == pytest.approx(expected)


def test_a_tie_has_no_margin() -> None:
    assert margins(np.ones((3, 3)), np.array([0, 1, 2])).tolist() == [0, 0, 0]


@given(SIZES, SEEDS)
def test_mutual_neighbours_are_best_for_each_other(size: int, seed: int) -> None:
    score = scores(size, seed)
    permutation = np.random.default_rng(seed).permutation(size)
    expected = [
        all(score[i, p] >= score[i]) and all(score[i, p] >= score[:, p])
        for i, p in enumerate(permutation)
    ]
    assert mutual(score, permutation).tolist() == expected


SIGN = np.array([1, -1, -1, 1, -1, 1])


def planted() -> np.ndarray:
    correlation = 0.1 * scores(6, 1)
    correlation[np.arange(6), ORDER] += SIGN
    return correlation


def test_absolute_values_find_order_and_signs() -> None:
    found = match(planted(), absolute=True)
    assert found.permutation.tolist() == ORDER.tolist()
    assert found.sign.tolist() == SIGN.tolist()
    assert found.shortcut
    assert found.mutual.all()
    assert (found.margin > 0.5).all()
    assert found.score == pytest.approx(np.abs(planted())[np.arange(6), ORDER])


def test_signed_values_find_at_most_the_positive_half() -> None:
    found = match(planted(), absolute=False, signs=False)
    positive = SIGN > 0
    assert (found.permutation == ORDER)[positive].all()
    assert not (found.permutation == ORDER)[~positive].any()
    assert found.sign.tolist() == [1] * 6


def test_a_score_that_is_no_number_is_refused_by_the_solver() -> None:
    with pytest.raises(ValueError, match="invalid numeric entries"):
        solve(np.full((3, 3), np.nan))


@given(st.integers(2, 4), SEEDS, st.sampled_from([-0.7, 0.0, 0.7]))
def test_a_common_sign_is_that_of_the_better_of_both_tables(
    size: int, seed: int, shift: float
) -> None:
    """The best of all orders of C and of −C, one sign everywhere; margins are of that table."""
    c, rows = scores(size, seed) + shift, np.arange(size)
    worth = {
        (order, sign): sign * c[rows, list(order)].sum()
        for order in itertools.permutations(range(size))
        for sign in (1, -1)
    }
    order, sign = max(worth, key=worth.__getitem__)
    found = match(c, absolute=True, common=True)
    assert found.permutation.tolist() == list(order)
    assert found.sign.tolist() == [sign] * size
    assert found.score == pytest.approx(sign * c[rows, order], rel=1e-6)
    others = np.where(np.eye(size)[list(order)] > 0, -np.inf, sign * c)
    assert found.margin == pytest.approx(sign * c[rows, order] - others.max(1), rel=1e-5, abs=1e-6)
    free = match(c, absolute=True)
    assert free.score.sum() >= found.score.sum() - 1e-5
    assert match(c, absolute=False, common=True, signs=False).sign.tolist() == [1] * size


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_the_fewer_are_matched_to_the_best_of_the_more(shape: tuple[int, int], seed: int) -> None:
    """All rows, or all columns if those are fewer, rows ascending."""
    score = np.random.default_rng(seed).normal(size=shape)
    few, many = min(shape), max(shape)
    tall = score if shape[0] <= shape[1] else score.T
    best = max(
        itertools.permutations(range(many), few), key=lambda p: tall[range(few), list(p)].sum()
    )
    pairs = {(i, j) if shape[0] <= shape[1] else (j, i) for i, j in enumerate(best)}
    rows, columns = matching(score)
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == pairs
    assert rows.tolist() == sorted(rows.tolist())
