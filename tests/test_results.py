"""The results that ship with the demo pair are those of this engine and these checkpoints."""

import numpy as np
import pytest

from app.inputs import DEMO_PAIRS
from assets.make_results import PAIRS, RESULTS, shipped
from engine.questions import Align, Check, Lab, Match
from engine.records import AlignmentReport, Experiment, ResidualMatch, SelfTest
from engine.store import Store

STORE = Store(RESULTS)


def test_every_shipped_question_has_its_answer_and_nothing_else_ships() -> None:
    keys = {question.key for question in shipped()}
    assert all(STORE.has(key) for key in keys)
    assert len(list(RESULTS.rglob("*.json"))) == len(keys)


def test_every_offered_pair_ships() -> None:
    assert set(DEMO_PAIRS.values()) == set(PAIRS)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_fresh_alignment_says_the_same(pair: tuple[str, str]) -> None:
    stored, fresh = STORE.get(Align(*pair).key), Align(*pair).answer()
    assert isinstance(stored, AlignmentReport)
    assert (stored.flipped, stored.recovered, stored.tensors) == (
        fresh.flipped,
        fresh.recovered,
        fresh.tensors,
    )
    assert stored.same_function == fresh.same_function
    assert stored.same_weights == fresh.same_weights
    assert (stored.same_weights == "exact") == (pair == ("demo:base", "demo:twin"))
    np.testing.assert_allclose(stored.before, fresh.before, rtol=1e-5)
    assert stored.midpoint_before == pytest.approx(fresh.midpoint_before, rel=1e-3)


@pytest.mark.parametrize("asked", [q for q in shipped() if isinstance(q, Match)], ids=str)
def test_a_fresh_matching_says_the_same(asked: Match) -> None:
    stored, fresh = STORE.get(asked.key), asked.answer()
    assert isinstance(stored, ResidualMatch)
    for old, new in zip(stored.absolute, fresh.absolute, strict=True):
        np.testing.assert_array_equal(old.permutation, new.permutation)
        np.testing.assert_array_equal(old.sign, new.sign)
    np.testing.assert_allclose(stored.correlation, fresh.correlation, atol=1e-4)


@pytest.mark.parametrize("preset", ["ffn-order", "residual-reader-left", "rotation-folded"])
def test_a_fresh_experiment_says_the_same(preset: str) -> None:
    asked = Lab("demo:base", preset=preset)
    stored, fresh = STORE.get(asked.key), asked.answer()
    assert isinstance(stored, Experiment)
    assert stored.verdict == fresh.verdict
    assert stored.as_expected
    assert stored.element == fresh.element
    np.testing.assert_array_equal(stored.weight_after, fresh.weight_after)
    assert stored.effect.divergence == pytest.approx(fresh.effect.divergence, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("asked", [q for q in shipped() if isinstance(q, Check)], ids=str)
def test_every_shipped_self_test_passed_in_every_row(asked: Check) -> None:
    stored = STORE.get(asked.key)
    assert isinstance(stored, SelfTest)
    assert stored.verdict == "exact"
    assert {row.verdict for row in stored.rows if not row.approximate} == {"exact"}
