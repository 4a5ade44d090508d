"""Which layers go: laws of the scores and of both rules, and what the published data gives."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from engine import published
from engine.layers import selection
from engine.layers.selection import HOWS, How
from tests import fake_layers

GOLDEN = Path(published.FOLDER)


@pytest.fixture(scope="module")
def qwen3():
    return published.published("qwen3-8b")


@pytest.fixture(scope="module")
def validity():
    return published.published("qwen3-8b-removal")


def costs(seed: int, layers: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.01, 2, (layers, layers))


@pytest.mark.parametrize("how", HOWS)
def test_pair_scores_are_symmetric_and_lie_between_both_directions(how: How):
    d = costs(0)
    score = selection.pair_score(d, how)
    np.testing.assert_allclose(score, score.T, rtol=1e-15)
    assert (score >= np.minimum(d, d.T) - 1e-15).all()
    assert (score <= np.maximum(d, d.T) + 1e-15).all()


def test_pair_scores_are_what_they_are_called():
    d = np.array([[0.0, 4.0], [1.0, 0.0]])
    found = {how: selection.pair_score(d, how)[0, 1] for how in HOWS}
    assert found == {"max": 4.0, "mean": 2.5, "geometric": 2.0, "min": 1.0}


@pytest.mark.parametrize("how", HOWS)
def test_a_symmetric_map_is_its_own_score(how: How):
    d = fake_layers.swaps()
    np.testing.assert_allclose(selection.pair_score(d, how), d, rtol=1e-14)


@pytest.mark.parametrize("how", HOWS)
def test_a_pair_with_one_direction_has_no_score_unless_no_pair_has_both(how: How):
    d = costs(1)
    d[2, 4] = np.nan
    score = selection.pair_score(d, how)
    assert np.isnan(score[2, 4]) and np.isnan(score[4, 2])
    assert np.isnan(score).sum() == 2
    upper = np.where(np.triu(np.ones_like(d), 1) > 0, costs(1), np.nan)
    one_way = selection.pair_score(upper, how)
    np.testing.assert_array_equal(one_way[0, 1:], upper[0, 1:])
    np.testing.assert_array_equal(one_way, one_way.T)


def test_rounding_below_zero_gives_no_imaginary_mean():
    d = np.array([[0.0, -1e-9], [0.5, 0.0]])
    assert selection.pair_score(d, "geometric")[0, 1] == 0.0


def test_a_layer_scores_its_nearest_partner_and_never_itself():
    d = costs(2)
    np.fill_diagonal(d, 0.0)
    scores = selection.layer_scores(d)
    for i, score in enumerate(scores):
        assert score == min(d[i, j] for j in range(len(d)) if j != i)
    d[3] = np.nan
    assert np.isnan(selection.layer_scores(d)[3])


@given(some.permutations(range(7)))
def test_scores_follow_a_relabelling_of_the_layers(order):
    d, order = costs(3), np.array(order)
    scores = selection.layer_scores(selection.pair_score(d))
    moved = selection.layer_scores(selection.pair_score(d[np.ix_(order, order)]))
    np.testing.assert_array_equal(moved, scores[order])


@given(some.lists(some.floats(0, 1), min_size=1, max_size=12), some.integers(0, 12))
def test_the_greedy_rule_takes_the_lowest_that_are_free(scores, n):
    chosen = selection.greedy(np.array(scores), n)
    assert len(chosen) == len(set(chosen)) <= n
    assert all(abs(a - b) > 1 for a in chosen for b in chosen if a != b)
    free = [i for i in range(len(scores)) if all(abs(i - k) > 1 for k in chosen)]
    assert len(chosen) == n or not free
    values = [(scores[i], i) for i in chosen]
    assert values == sorted(values)


def test_spacing_is_what_keeps_neighbours_apart():
    scores = np.array([0.3, 0.1, 0.2, 0.9, 0.8])
    assert selection.greedy(scores, 3) == (1, 4)
    assert selection.greedy(scores, 3, spaced=False) == (1, 2, 0)


@given(some.floats(0.1, 10), some.floats(0, 5))
def test_the_rule_sees_only_the_order_of_the_scores(factor, shift):
    scores = selection.layer_scores(costs(4))
    assert selection.greedy(scores, 3) == selection.greedy(factor * scores**3 + shift, 3)


def test_ties_go_to_the_lower_index_and_unknown_layers_never_go():
    assert selection.greedy(np.full(6, 0.5), 3) == (0, 2, 4)
    assert selection.greedy(np.array([np.nan, 0.5, np.nan, 0.1]), 4) == (3, 1)


def test_the_contiguous_block_is_the_one_with_the_nearest_ends():
    depth = np.array([0.0, 1.0, 1.05, 1.15, 2.5, 4.0, 6.0])
    angular = np.abs(depth[:, None] - depth[None]) / 10
    assert selection.contiguous(angular, 0) == ()
    assert selection.contiguous(angular, 1) == (1,)
    assert selection.contiguous(angular, 2) == (1, 2)
    assert selection.contiguous(angular, 6) == (0, 1, 2, 3, 4, 5)
    assert selection.contiguous(angular, 7) == ()
    assert selection.contiguous(np.zeros((5, 5)), 2) == (0, 1)


@pytest.mark.parametrize(
    ("replace", "swap", "regime"),
    [
        (0.01, 0.02, "both low"),
        (0.099, 0.06, "both low"),
        (0.5, 0.02, "swap low, replace high"),
        (0.02, 0.5, "replace low, swap high"),
        (0.10, 0.10, "both high"),
        (float("nan"), 0.1, None),
    ],
)
def test_regimes(replace, swap, regime):
    assert selection.regime(replace, swap) == regime
    assert regime is None or selection.REGIMES[regime].endswith(".")


@pytest.mark.parametrize(
    ("value", "word"),
    [(0.0499, "strong"), (0.05, "conditional"), (0.0999, "conditional"), (0.1, "neither"),
     (float("nan"), "not measured")],
)  # fmt: skip
def test_strength_has_the_published_thresholds(value, word):
    assert selection.strength(value) == word


def test_rank_correlation_sees_order_only_and_leaves_out_what_is_not_known():
    x = np.array([3.0, 1.0, 2.0, np.nan, 5.0])
    rho, n = selection.spearman(x, np.exp(x))
    assert (round(rho, 12), n) == (1.0, 4)
    rho, _ = selection.spearman(x, -x)
    assert round(rho, 12) == -1.0
    infinite = np.array([3.0, 1.0, 2.0, 7.0, np.inf])
    assert round(selection.spearman(x, infinite)[0], 12) == 1.0
    assert np.isnan(selection.spearman([1, 2], np.array([1, 2]))[0])
    assert np.isnan(selection.spearman([1, 1, 1], np.array([1, 2, 3]))[0])


def test_rank_correlation_is_that_of_mean_ranks():
    """Equal values share the mean of their places: ρ = cov / (σ σ) of the ranks, by hand."""
    scores = np.array([0.3, 0.1, 0.3, 0.9, np.nan, 0.2, 0.1])
    cost = np.array([2.0, 1.0, 5.0, 4.0, 3.0, np.inf, 1.0])
    x = np.array([4.5, 1.5, 4.5, 6, 3, 1.5]) - 3.5
    y = np.array([3, 1.5, 5, 4, 6, 1.5]) - 3.5
    assert (x @ y, x @ x, y @ y) == (9, 16.5, 17)
    rho, n = selection.spearman(scores, cost)
    assert (rho, n) == (pytest.approx(9 / np.sqrt(16.5 * 17)), 6)
    known = ~np.isnan(scores)
    assert rho == pytest.approx(stats.spearmanr(scores[known], cost[known]).statistic)


def test_the_published_rule_gives_the_published_layers(qwen3):
    swap = selection.layer_scores(selection.pair_score(qwen3.swap.value))
    replace = selection.layer_scores(selection.pair_score(qwen3.replace.value))
    assert selection.greedy(swap, 5) == (25, 28, 20, 22, 18)
    assert selection.greedy(replace, 5) == (15, 17, 19, 21, 23)
    assert selection.greedy(swap, 5, spaced=False) != (25, 28, 20, 22, 18)


def test_published_predictors_of_the_cost_of_removal(validity):
    held = json.loads((GOLDEN / "qwen3_8b_predictor_validity.json").read_text(encoding="utf-8"))
    cost, pairs = validity.removal.value, [(i, i + 1) for i in range(35)]
    cheaper = np.array([min(cost[i], cost[j]) for i, j in pairs])
    swap = [validity.swap.value[i, j] for i, j in pairs]
    rho, n = selection.spearman(swap, cheaper)
    assert (rho, n) == (pytest.approx(held["pair_metrics"]["interchange"]["spearman_rho"]), 34)
    assert round(rho, 2) == 0.62
    # Theirs keeps a pair whose second direction is not a number, as Python's max happens to do.
    d = validity.replace.value
    theirs = [max(d[i, j], d[j, i]) for i, j in pairs]
    rho, n = selection.spearman(theirs, cheaper)
    assert (rho, n) == (pytest.approx(held["pair_metrics"]["replacement"]["spearman_rho"]), 33)
    assert round(rho, 2) == 0.78
    ours = selection.pair_score(d)
    rho, n = selection.spearman([ours[i, j] for i, j in pairs], cheaper)
    assert n == 32 and round(rho, 2) == 0.77


def test_importing_it_loads_no_torch():
    import subprocess
    import sys

    code = (
        "import sys, engine.layers.selection, engine.published, engine.pruning;"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
