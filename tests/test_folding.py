"""A cost of heads sees no blind direction of the family's table, and what is not one it sees."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.alignment.one_pass import layer_tensors
from engine.alignment.stages import head_terms
from engine.axes import legs
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.elements import Ordered
from engine.errors import Refused
from engine.folding import HEADS, folded, unit_gains
from engine.lab.plans import Source
from engine.lab.plans import folded as without_gains
from engine.slide import possible, slide
from tests import laws

Built = Callable[[str], Path]
Tensors = dict[str, Tensor]
SHAPES = (
    "bert_masked", "cohere", "gemma2", "gemma3", "gpt2", "gpt_neox", "gpt_neox_tied", "gptj",
    "llama_gqa", "mixtral", "olmo2", "opt", "phi3_partial", "qwen2", "qwen3", "qwen3_moe", "vit",
    "vit_no_biases",
)  # fmt: skip
WHOLE = {"scale", "out", "out_sign"}
"""What a layer writes times one factor for all heads, or row by row with a norm behind it."""
LAYER = 1


def opened(folder: Path) -> tuple[Checkpoint, Tensors]:
    """A checkpoint and one layer of it, float64."""
    a = open_checkpoint(folder)
    return a, {name: x.double() for name, x in layer_tensors(a, LAYER).items()}


def carries(a: Checkpoint, name: str) -> bool:
    return any(leg.name in HEADS for leg in legs(a.family.row(name).axes))


def costs(a: Checkpoint, x: Tensors, y: Tensors) -> Tensor:
    """Both terms over their means, [2, heads, heads]."""
    terms = head_terms(a.family, a.family.sizes(a.config), x, y)
    return torch.stack([t.flatten(2).flatten(0, 1) / t.mean() for t in terms])


def moved(a: Checkpoint, x: Tensors) -> dict[str, Tensors]:
    """The layer after a random move along each direction that moves a head, by its name."""
    found = {}
    for blind in possible(a.family, a.config, a.headers):
        draw = torch.Generator().manual_seed(1)
        read = slide(a.family, a.config, blind, lambda n: a.read(n).double(), draw, a.headers)
        y = {name: read(name) for name in x}
        if any(carries(a, n) and not torch.equal(x[n], y[n]) for n in x):
            found[blind.name] = y
    return found


@pytest.mark.parametrize("architecture", SHAPES)
def test_no_blind_direction_changes_a_cost(architecture: str, built: Built) -> None:
    a, x = opened(built(architecture))
    plain = costs(a, x, x)
    assert plain.diagonal(dim1=1, dim2=2).abs().max() < 1e-9
    gaps = {n: float((costs(a, x, y) - plain).abs().max()) for n, y in moved(a, x).items()}
    assert gaps
    assert {n for n, gap in gaps.items() if gap > 1e-9} <= WHOLE


@pytest.mark.parametrize("architecture", sorted({*SHAPES} - {"bert_masked", "olmo2"}))
def test_half_of_a_move_changes_it(architecture: str, built: Built) -> None:
    """The norm's gain or bias moves and its readers stay."""
    a, x = opened(built(architecture))
    plain = costs(a, x, x)
    ways = {name: y for name, y in moved(a, x).items() if name in {"att", "att_bias"}}
    assert "att" in ways
    for y in ways.values():
        half = {n: x[n] if carries(a, n) else y[n] for n in x}
        assert float((costs(a, x, half) - plain).abs().max()) > 0.01


@pytest.mark.parametrize("architecture", ["gptj", "vit_no_biases"])
def test_a_slope_that_no_bias_takes_back_is_seen(architecture: str, built: Built) -> None:
    """W_q + δ (1/γ)ᵀ where queries have no bias: Σ β/γ δ is added to every query."""
    folder = built(architecture)
    a, x = opened(folder)
    query = next(n for n in x if "q_proj.weight" in n or "query.weight" in n)
    norm = next(n for n in x if "ln_1.weight" in n or "layernorm_before.weight" in n)
    delta = torch.randn(len(x[query]), generator=torch.Generator().manual_seed(0)).double()
    y = {**x, query: x[query] + 0.3 * delta[:, None] / x[norm]}
    doubles = laws.doubles(folder)
    assert laws.error(folder, {**doubles, query: y[query]}) > laws.VISIBLE
    assert costs(a, x, y)[0].diagonal().min() > 1e-3


def test_the_form_of_two_models_that_differ_by_gains_is_the_same(built: Built) -> None:
    """Gains of 1 + w too: W · γ, whatever γ is."""
    for architecture in ("gemma2", "gpt2", "llama_gqa"):
        a, x = opened(built(architecture))
        sizes = a.family.sizes(a.config)
        y = moved(a, x)["att"]
        form, other = folded(a.family, sizes, x), folded(a.family, sizes, y)
        for name, tensor in form.items():
            assert torch.allclose(tensor, other[name], atol=1e-12)
        assert any(not torch.equal(tensor, x[name]) for name, tensor in form.items())


@pytest.mark.parametrize("architecture", ["gpt2", "llama_gqa"])
def test_what_a_gain_of_0_hides_costs_nothing(architecture: str, built: Built) -> None:
    a, x = opened(built(architecture))
    norm = next(n for n in x if "ln_1.weight" in n or "input_layernorm.weight" in n)
    query = next(n for n in x if "c_attn.weight" in n or "q_proj.weight" in n)
    x[norm] = x[norm].clone()
    x[norm][3] = 0
    columns = torch.zeros_like(x[query])
    (columns[3] if architecture == "gpt2" else columns[:, 3]).fill_(1)
    bias = norm.replace("weight", "bias")
    without = {**x, bias: x[bias] * (x[norm] != 0)} if bias in x else x
    y = {**without, query: without[query] + columns}
    plain, after = costs(a, without, without), costs(a, without, y)
    assert plain.isfinite().all()
    assert torch.allclose(plain, after, atol=1e-9)
    assert not torch.allclose(plain, costs(a, without, {**y, norm: x[norm] + 1}), atol=1e-2)


def test_a_gain_of_0_cannot_be_folded_away(built: Built) -> None:
    a = open_checkpoint(built("llama_gqa"))
    norm = "model.layers.1.input_layernorm.weight"

    def read(name: str) -> Tensor:
        x = a.read(name)
        return x * (torch.arange(len(x)) != 3) if name == norm else x

    said = (
        "^The gain of the attention norm against its readers cannot be folded away: a gain is 0.$"
    )
    with pytest.raises(Refused, match=said):
        without_gains(a.family, Source(read, tuple(a.headers), a.config))
    plain = without_gains(a.family, Source(a.read, tuple(a.headers), a.config))
    assert torch.allclose(plain.read(norm), torch.ones(1))


def test_gains_are_told_from_biases(built: Built) -> None:
    """GPT-2's direction of gains moves both; c = 1/γ comes from the gain."""
    a = open_checkpoint(built("gpt2"))
    blind = next(b for b in possible(a.family, a.config, a.headers) if b.name == "att")
    found = unit_gains(a.family, blind, a.read, a.headers)
    assert list(found) == ["layers.0.att", "layers.1.att"]
    element = found["layers.1.att"]
    assert isinstance(element, Ordered)
    assert torch.allclose(
        element.scale * a.read("transformer.h.1.ln_1.weight"), torch.ones(1).double()
    )
