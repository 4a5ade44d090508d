"""The results that ship with the demo pair are those of this engine and these checkpoints."""

import numpy as np
import pytest

from app.inputs import DEMO_PAIRS
from assets.make_results import PAIRS, RESULTS, shipped
from engine.questions import Align, Match
from engine.records import AlignmentReport, ResidualMatch
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


@pytest.mark.parametrize("using", ["weights", "activations"])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_fresh_matching_says_the_same(pair: tuple[str, str], using: str) -> None:
    asked = Match(*pair, using=using)  # type: ignore[arg-type]
    stored, fresh = STORE.get(asked.key), asked.answer()
    assert isinstance(stored, ResidualMatch)
    for old, new in zip(stored.absolute, fresh.absolute, strict=True):
        np.testing.assert_array_equal(old.permutation, new.permutation)
        np.testing.assert_array_equal(old.sign, new.sign)
    np.testing.assert_allclose(stored.correlation, fresh.correlation, atol=1e-4)
