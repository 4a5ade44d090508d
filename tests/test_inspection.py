"""The card of every tiny model: counts against the gauge itself, roles against the marks."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.checkpoint import open_checkpoint
from engine.elements import Mixed, Ordered, Turned
from engine.inspection import card
from engine.symmetry import sample
from tests import tiny

Built = Callable[[str], Path]
architectures = pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)


@architectures
def test_counts_are_those_of_a_random_gauge(architecture: str, built: Built) -> None:
    """As many index sets as a gauge has elements, as many continuous numbers as it has."""
    model = open_checkpoint(built(architecture))
    g = sample(model.family, model.config, torch.Generator().manual_seed(0))
    free = [c for c in card(model).coordinates if not c.fixed]
    assert {c.name for c in free} <= model.family.carried(model.headers)
    for c in free:
        elements = [e for key, e in g.elements.items() if key.rpartition(".")[2] == c.name]
        assert c.copies == sum(math.prod(e.batch) for e in elements)
        assert (c.copies > len(elements)) == any(math.prod(e.batch) > 1 for e in elements)
        numbers = 0
        for e in elements:
            match e:
                case Turned():
                    numbers += 2 * e.z.numel()
                case Mixed():
                    numbers += e.matrix.numel()
                case Ordered():
                    numbers += 0 if e.exact else e.scale.numel()
        assert c.dimension == numbers
        assert c.size == model.family.sizes(model.config)[c.name]


@architectures
def test_what_is_free_is_written_and_read_and_means_nothing_outside(
    architecture: str, built: Built
) -> None:
    for c in card(open_checkpoint(built(architecture))).coordinates:
        roles = {carrier.role for carrier in c.carriers}
        assert c.why
        if c.fixed:
            assert not all(c.criterion)
            assert c.log10 == c.dimension == 0
        else:
            assert all(c.criterion)
            closes = {"written", "read"} <= roles or roles in ({"named", "written"}, {"written"})
            assert closes, (c.name, roles)


def test_the_totals_of_a_known_model(built: Built) -> None:
    """24 residual signs and orders, 2 × 20 neurons, 2 layers of 3 groups of 2 heads."""
    found = card(open_checkpoint(built("llama_gqa")))
    orders = math.factorial(24) * math.factorial(20) ** 2 * (math.factorial(3) * 2**3) ** 2
    assert found.log10 == pytest.approx(math.log10(orders) + 64 * math.log10(2))
    assert found.dimension == 2 * (20 + 3 * 4 + 3 * 4 * 4)
    fixed = {c.name: c.fixed for c in found.coordinates if c.fixed}
    assert fixed.keys() == {"tok", "layer"}
    assert "dictionary" in fixed["tok"]


def test_blind_directions_name_what_moves(built: Built) -> None:
    found = {b.name: b for b in card(open_checkpoint(built("gpt2"))).blind}
    gain = found["att"]
    assert gain.dimension == 2 * 24
    roles = {carrier.tensor: carrier.role for carrier in gain.carriers}
    assert roles["transformer.h.{l}.ln_1.weight"] == "written"
    assert roles["transformer.h.{l}.attn.c_attn.weight"] == "read"
    value = found["value"]
    assert value.group == "shift"
    assert [c.axes for c in value.carriers] == ["+ δ", "− δ · transformer.h.{l}.attn.c_proj.weight"]
    assert found["scale"].approximate
    assert not value.approximate


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("llama_gqa", "rotary, pairs (i, i + n/2), base 10000"),
        ("llama3_scaling", "llama3 scaling"),
        ("gpt2", "learned positions"),
        ("gpt_neox", "partly rotary, pairs (i, i + n/2)"),
        ("cohere", "rotary, pairs (2i, 2i + 1)"),
        ("gemma3", "bases by layer"),
    ],
)
def test_positions_in_words(architecture: str, words: str, built: Built) -> None:
    assert words in card(open_checkpoint(built(architecture))).positions
