"""Heads in disguise: M stays, the published cost sees nothing, the output and our cost do."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call

from engine.alignment.heads import published
from engine.alignment.stages import head_terms
from engine.attention import disguise
from engine.attention.disguise import costs, disguises, dressed, each, exchanged, worn
from engine.attention.pairs import Pair, pair
from engine.checkpoint import open_checkpoint
from engine.elements import split
from engine.groups import Rotary
from engine.questions import Heads
from tests import tiny

Built = Callable[[str], Path]
ROTARY = ("cohere", "gemma3", "gpt_neox", "gptj", "llama_gqa", "mixtral", "olmo2", "qwen3")
PLAIN = ("bert_masked", "gpt2", "opt", "vit")
ROUNDING = 1e-12


def itself(folder: Path) -> tuple[Pair, Heads]:
    """A layer of a model against itself."""
    asked = Heads(str(folder), str(folder), layer=1, tokens=64)
    a = open_checkpoint(folder)
    return pair(a, a, asked, lambda *_: None), asked


@pytest.mark.parametrize("architecture", ROTARY)
def test_only_the_true_change_of_basis_is_free_by_our_cost(architecture: str, built: Built) -> None:
    found, what = disguises(*itself(built(architecture)))
    assert "random token ids" in what
    assert [one.kind for one in found][-1] == "turn"
    for one in found:
        assert one.published.max() < ROUNDING
    *moved, kept = found
    assert moved
    for one in moved:
        assert one.own.min() > 0.02
        assert one.output != "exact"
    assert kept.own.max() < ROUNDING
    assert kept.output == "exact"


@pytest.mark.parametrize("architecture", ["gpt_neox", "llama_gqa"])
def test_a_disguise_moves_the_output_by_what_transformers_says(
    architecture: str, built: Built, tmp_path: Path
) -> None:
    """max |Δ log p| / max |log p|, and KL(A ‖ A in disguise), A's own distribution first, nats."""
    folder = built(architecture)
    both, asked = itself(folder)
    ids, path = tiny.tokens(), tmp_path / "ids.json"
    path.write_text(json.dumps(ids.tolist()))
    found, what = disguises(both, replace(asked, text=str(path), dtype="float64"))
    assert what == "24 tokens of ids.json"
    here = tiny.network(folder)

    def log_p(changed: Mapping[str, torch.Tensor]) -> np.ndarray:
        state = {**tiny.tensors(folder), **changed}
        with torch.no_grad():
            said = functional_call(here.model, here.parameters(state), (), {"input_ids": ids})
        return said.logits.log_softmax(-1).numpy()

    put_on = worn(both, torch.Generator().manual_seed(0))
    assert [one.kind for one in found] == list(put_on)
    before = log_p({})
    for one in found:
        after = log_p(dressed(both, put_on[one.kind]))
        error = abs(after - before).max() / abs(before).max()
        there, back = (
            (np.exp(p) * (p - q)).sum(-1).mean() for p, q in ((before, after), (after, before))
        )
        assert one.error == pytest.approx(error, rel=1e-4, abs=1e-6)
        assert one.divergence == pytest.approx(there, rel=1e-4, abs=1e-9)
        if one.kind != "turn":
            assert abs(there / back - 1) > 0.005
            assert error > 0.01
            assert abs(before).max() > 2  # so that it counts what the error is over


@pytest.mark.parametrize("architecture", PLAIN)
def test_there_are_no_disguises_where_nothing_is_rotated(architecture: str, built: Built) -> None:
    assert disguises(*itself(built(architecture))) == ((), "")


@pytest.mark.parametrize("architecture", ROTARY)
def test_m_stays_and_is_not_left_alone(architecture: str, built: Built) -> None:
    """M = W_qᵀ W_k of every head in every disguise, although queries and keys all moved."""
    both, _ = itself(built(architecture))
    before = {n: x.double() for n, x in both.theirs.items()}
    for put in worn(both, torch.Generator().manual_seed(0)).values():
        changed = dressed(both, put)
        assert all((changed[n] - before[n]).norm() > 1e-3 for n in changed if before[n].ndim > 1)
        x, y = (published(both.family, both.sizes, z) for z in (before, {**before, **changed}))
        products = [z.left @ z.right.mT for z in (x, y)]
        assert torch.allclose(*products, atol=1e-12)


def test_a_matrix_on_the_queries_alone_is_seen_by_both(built: Built) -> None:
    both, _ = itself(built("llama_gqa"))
    put = worn(both, torch.Generator().manual_seed(0))["matrix"]
    one_sided = {n: x for n, x in dressed(both, put).items() if "q_proj" in n}
    assert costs(both, one_sided, own=False).min() > 0.02
    assert costs(both, one_sided, own=True).min() > 0.02


@pytest.mark.parametrize("architecture", ["gptj", "llama_gqa", "qwen3"])
def test_frequencies_change_places_whole_and_all_of_them(architecture: str, built: Built) -> None:
    both, _ = itself(built(architecture))
    family, sizes = both.family, both.sizes
    moved = exchanged(family, sizes, torch.Generator().manual_seed(1)).permutation
    assert moved.shape == (*family.batch("rot", sizes), sizes["rot"])
    still = torch.arange(sizes["rot"])
    assert (moved != still).all()
    assert torch.equal(moved.sort(-1).values, still.expand_as(moved))
    group = family.coordinates["rot"].group
    if isinstance(group, Rotary):
        first, second = split(moved, group.pairs)
        of = {int(a): int(b) for a, b in zip(*split(still, group.pairs), strict=True)}
        assert [of[int(a)] for a in first.flatten()] == second.flatten().tolist()


def test_one_frequency_has_nothing_to_change_places_with(built: Built) -> None:
    both, _ = itself(built("gpt_neox"))
    few = both.sizes["rot"] == 2
    assert ("exchange" in worn(both, torch.Generator().manual_seed(0))) is not few


@pytest.mark.parametrize("architecture", ["gpt_neox", "llama_gqa", "olmo2", "qwen3"])
@pytest.mark.parametrize("own", [False, True])
def test_a_head_costs_what_the_whole_table_says(architecture: str, own: bool, built: Built) -> None:
    both, _ = itself(built(architecture))
    changed = dressed(both, worn(both, torch.Generator().manual_seed(0))["matrix"])
    before = {n: x.double() for n, x in both.theirs.items()}
    heads = both.sizes["grp"] * both.per_group
    nothing = {n: 0 * x for n, x in before.items()}
    gap, size = (
        head_terms(both.family, both.sizes, before, z, own=own)[0].reshape(heads, heads).diagonal()
        for z in ({**before, **changed}, nothing)
    )
    found = costs(both, changed, own=own)
    np.testing.assert_allclose(found, (gap.clamp(min=0) / size).numpy(), rtol=1e-9, atol=1e-12)


def test_large_models_are_not_run(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disguise, "RUN", 0)
    found, what = disguises(*itself(built("llama_gqa")))
    assert what == ""
    assert {one.output for one in found} == {"not measured"}
    assert all(one.divergence is None for one in found)
    assert found[0].own.min() > 0.02


def test_one_head_in_disguise_is_one_head_of_the_layer(built: Built) -> None:
    """An element for each key/value head: where one is left alone, its heads cost nothing."""
    both, _ = itself(built("llama_gqa"))
    put = worn(both, torch.Generator().manual_seed(0))["matrix"]
    matrix = put.element.numbers()["matrix"].clone()
    matrix[1] = torch.eye(matrix.shape[-1])
    changed = dressed(both, replace(put, element=put.family.coordinates["rot"].group.restore(
        {"matrix": matrix}
    )))  # fmt: skip
    found = costs(both, changed, own=True).reshape(both.sizes["grp"], -1)
    assert found[1].max() < ROUNDING
    assert np.delete(found, 1, 0).min() > 0.02


def test_each_compares_a_head_with_the_same_head_alone(built: Built) -> None:
    both, _ = itself(built("llama_gqa"))
    x = published(both.family, both.sizes, {n: x.double() for n, x in both.theirs.items()})
    assert each(x, x).abs().max() < 1e-9 * each(x, replace(x, left=0 * x.left)).max()
