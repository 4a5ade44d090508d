"""Laws of head costs: zero for equivalent heads, equal to large matrices, blind to gauges."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.llama.modeling_llama import rotate_half

from engine.alignment.heads import (
    Bilinear,
    Turning,
    bilinear,
    bilinear_cost,
    match_heads,
    rotary_cost,
    turning,
)
from engine.elements import Element, paired
from engine.families.llama import FAMILY
from engine.groups import LINEAR, ROTARY_HALF

GROUPS, HEADS, WIDTH, MODEL = 3, 3, 4, 6
SEEDS = st.integers(0, 2**31)
SIZES = {"grp": GROUPS, "head": HEADS, "rot": WIDTH, "val": WIDTH, "res": MODEL, "ffn": 5, "tok": 7}


@dataclass(frozen=True)
class Attention:
    """The four factors of some heads; a bias is one more row."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor


def query_key_cost(a: Attention, b: Attention) -> Tensor:
    x, y = (Turning(paired(z.q, "halves"), paired(z.k, "halves")) for z in (a, b))
    return rotary_cost(x, y)


def value_output_cost(a: Attention, b: Attention) -> Tensor:
    return bilinear_cost(Bilinear(a.v, a.o), Bilinear(b.v, b.o))


COSTS = {"query-key": query_key_cost, "value-output": value_output_cost}
costs = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def heads(seed: int) -> Attention:
    """Random factors, a row of biases among those of q, k and v."""
    return Attention(
        q=draw(GROUPS, HEADS, MODEL + 1, WIDTH, seed=seed),
        k=draw(GROUPS, 1, MODEL + 1, WIDTH, seed=seed + 1),
        v=draw(GROUPS, 1, MODEL + 1, WIDTH, seed=seed + 2),
        o=draw(GROUPS, HEADS, MODEL, WIDTH, seed=seed + 3),
    )


def turned(x: Attention, g: Element) -> Attention:
    """q and k written and read by one element per group."""
    each = g.take(torch.arange(GROUPS).repeat_interleave(HEADS))
    q = each.write(x.q.flatten(0, 1)).unflatten(0, (GROUPS, HEADS))
    return replace(x, q=q, k=g.read(x.k[:, 0])[:, None])


def mixed(x: Attention, g: Element) -> Attention:
    each = g.take(torch.arange(GROUPS).repeat_interleave(HEADS))
    o = each.read(x.o.flatten(0, 1)).unflatten(0, (GROUPS, HEADS))
    return replace(x, v=g.write(x.v[:, 0])[:, None], o=o)


def shuffled(x: Attention, grp: Tensor, head: Tensor) -> Attention:
    """Groups reordered, then heads by one order for each new group."""
    q, o = (torch.stack([x[g][head[new]] for new, g in enumerate(grp)]) for x in (x.q, x.o))
    return Attention(q, x.k[grp], x.v[grp], o)


def own(cost: Tensor) -> Tensor:
    """The cost of each head against the head at its own place."""
    return torch.einsum("ghgh->gh", cost)


@costs
@given(SEEDS)
def test_equal_heads_cost_nothing_others_do(cost, seed: int) -> None:
    x = heads(seed)
    found = cost(x, x)
    assert own(found).abs().max() < 1e-9 * found.mean()
    others = found.reshape(GROUPS * HEADS, -1) + torch.eye(GROUPS * HEADS) * found.max()
    assert others.min() > 0.01 * found.mean()


@costs
@given(SEEDS)
def test_costs_are_symmetric(cost, seed: int) -> None:
    a, b = heads(seed), heads(seed + 10)
    assert torch.allclose(cost(a, b), cost(b, a).permute(2, 3, 0, 1))


def test_value_output_cost_against_the_large_matrices() -> None:
    """‖W_o^A W_v^A - W_o^B W_v^B‖², each of them formed."""
    a, b = heads(0), heads(10)
    n_a, n_b = (x.o @ x.v.mT for x in (a, b))
    expected = (n_a[:, :, None, None] - n_b).square().sum((-2, -1))
    assert torch.allclose(value_output_cost(a, b), expected)


def test_query_key_cost_against_the_large_matrices() -> None:
    """Σ_f ‖M_f^A - M_f^B‖² over complex d × d matrices M_f = q_f k_f^†, each of them formed."""
    a, b = heads(0), heads(10)

    def large(x: Attention) -> Tensor:
        q, k = (torch.complex(*y.chunk(2, -1)) for y in (x.q, x.k))
        return torch.einsum("ghrf,gsf->ghfrs", q, k[:, 0].conj())

    difference = large(a)[:, :, None, None] - large(b)
    expected = difference.abs().square().sum((-3, -2, -1))
    assert torch.allclose(query_key_cost(a, b), expected)


def test_query_key_cost_is_the_distance_over_all_rotations() -> None:
    """Averaged over positions it is ‖q R k‖² in full: no other invariant is lost."""
    a, b = heads(0), heads(10)
    angles = torch.randn(20_000, 1, WIDTH // 2, generator=seeded(1), dtype=torch.float64) * 50
    angles = torch.cat([angles, angles], -1)

    def scores(x: Attention) -> Tensor:
        k = x.k[0, 0] * angles.cos() + rotate_half(x.k[0, 0]) * angles.sin()
        return x.q[0, 0] @ k.mT

    mean = (scores(a) - scores(b)).square().sum((-2, -1)).mean()
    assert float(mean) == pytest.approx(float(query_key_cost(a, b)[0, 0, 0, 0]) / 2, rel=0.02)


@given(SEEDS)
def test_the_rotary_cost_is_blind_to_rotary_gauges(seed: int) -> None:
    a, b = heads(seed), heads(seed + 10)
    g, h = (ROTARY_HALF.sample(WIDTH, (GROUPS,), seeded(seed + i)) for i in range(2))
    expected = query_key_cost(a, b)
    assert torch.allclose(query_key_cost(turned(a, g), turned(b, h)), expected, rtol=1e-9)


def test_the_rotary_cost_sees_other_gauges() -> None:
    """GL keeps W_qᵀ W_k and so the cost of published matchings, not what rotated heads compute."""
    x = heads(0)
    g = LINEAR.sample(WIDTH, (GROUPS,), seeded(0))
    y = turned(x, g)
    plain = [z.q[:, 0] @ z.k[:, 0].mT for z in (x, y)]
    assert torch.allclose(*plain)
    cost = query_key_cost(x, y)
    assert (own(cost) > 0.05 * cost.mean()).all()


@given(SEEDS)
def test_the_value_cost_is_blind_to_any_matrix(seed: int) -> None:
    a, b = heads(seed), heads(seed + 10)
    g, h = (LINEAR.sample(WIDTH, (GROUPS,), seeded(seed + i)) for i in range(2))
    expected = value_output_cost(a, b)
    assert torch.allclose(value_output_cost(mixed(a, g), mixed(b, h)), expected, rtol=1e-9)


def test_factors_are_read_off_the_table() -> None:
    """Query head i of group g has rows (g · heads + i) · width …; a bias is one more row."""
    prefix = "model.layers.0.self_attn."
    shapes = {
        "q_proj": (GROUPS * HEADS * WIDTH, MODEL),
        "k_proj": (GROUPS * WIDTH, MODEL),
        "v_proj": (GROUPS * WIDTH, MODEL),
        "o_proj": (MODEL, GROUPS * HEADS * WIDTH),
    }
    weights = {
        f"{prefix}{name}.weight": draw(*shape, seed=i)
        for i, (name, shape) in enumerate(shapes.items())
    }
    biases = {f"{prefix}{name}.bias": draw(shapes[name][0], seed=9) for name in shapes}
    every = {**weights, **biases, "model.layers.0.mlp.gate_proj.bias": draw(5)}
    turned_by, mixed_by = turning(FAMILY, SIZES, every), bilinear(FAMILY, SIZES, every, "val")
    halves = WIDTH // 2

    def channels(z: Tensor) -> Tensor:
        return torch.cat([z.real, z.imag], -1)

    q = weights[prefix + "q_proj.weight"].unflatten(0, (GROUPS, HEADS, WIDTH))
    assert torch.equal(channels(turned_by.q)[:, :, :MODEL], q.mT)
    bias = biases[prefix + "q_proj.bias"].unflatten(0, (GROUPS, HEADS, WIDTH))
    assert torch.equal(channels(turned_by.q)[:, :, MODEL], bias)
    assert torch.equal(turned_by.k[2, 0, :MODEL].imag, weights[prefix + "k_proj.weight"][10:12].T)
    assert turned_by.k.shape[-1] == halves
    assert torch.equal(mixed_by.left[1, 0], weights[prefix + "v_proj.weight"][4:8].T)
    assert torch.equal(mixed_by.right[1, 2], weights[prefix + "o_proj.weight"][:, 20:24])


def test_biases_of_values_are_left_out() -> None:
    """The output bias can take them over, so that they may differ between equal heads."""
    name = "model.layers.0.self_attn.v_proj"
    weight, bias = draw(GROUPS * WIDTH, MODEL), draw(GROUPS * WIDTH, seed=1)
    out = {"model.layers.0.self_attn.o_proj.weight": draw(MODEL, GROUPS * HEADS * WIDTH)}
    with_bias = bilinear(
        FAMILY, SIZES, {f"{name}.weight": weight, f"{name}.bias": bias, **out}, "val"
    )
    without = bilinear(FAMILY, SIZES, {f"{name}.weight": weight, **out}, "val")
    assert torch.equal(with_bias.left, without.left)


CYCLE = torch.tensor([1, 2, 0])
ORDERS = torch.tensor([[2, 0, 1], [0, 1, 2], [1, 0, 2]])


def test_a_planted_wreath_element_comes_back() -> None:
    b = heads(0)
    a = shuffled(b, CYCLE, ORDERS)
    found = match_heads(query_key_cost(a, b) + value_output_cost(a, b))
    assert found.grp.permutation.tolist() == CYCLE.tolist()
    assert found.head.permutation.tolist() == ORDERS.tolist()
    assert found.grp.exact
    assert found.head.exact
    assert found.margin > 0.1


def test_a_planted_element_comes_back_through_every_gauge() -> None:
    b = heads(0)
    a = shuffled(b, CYCLE, ORDERS)
    a = turned(a, ROTARY_HALF.sample(WIDTH, (GROUPS,), seeded(1)))
    a = mixed(a, LINEAR.sample(WIDTH, (GROUPS,), seeded(2)))
    found = match_heads(query_key_cost(a, b) + value_output_cost(a, b))
    assert found.grp.permutation.tolist() == CYCLE.tolist()
    assert found.head.permutation.tolist() == ORDERS.tolist()


def test_groups_stay_together_even_where_single_heads_would_not() -> None:
    """The cheapest free assignment moves head 0 of group 0 into group 1; the nested one may not."""
    cost = torch.ones(2, 2, 2, 2, dtype=torch.float64)
    cost[0, 0, 1, 0] = cost[1, 0, 0, 0] = 0.0  # alone they would be exchanged
    cost[0, 1, 0, 1] = cost[1, 1, 1, 1] = 0.0
    cost[0, 0, 0, 0] = 0.5
    found = match_heads(cost)
    assert found.grp.permutation.tolist() == [0, 1]
    assert found.head.permutation.tolist() == [[0, 1], [0, 1]]
    assert found.margin < 0


def test_the_nested_order_is_the_cheapest() -> None:
    cost = torch.rand(3, 2, 3, 2, generator=seeded(0), dtype=torch.float64)
    found = match_heads(cost)

    def total(grp: Tensor, head: Tensor) -> float:
        return sum(float(cost[g, h, grp[g], head[g, h]]) for g in range(3) for h in range(2))

    orders = torch.tensor([[0, 1], [1, 0]])
    best = min(
        total(grp, orders[list(pick)])
        for grp in torch.tensor(list(itertools.permutations(range(3))))
        for pick in torch.cartesian_prod(*[torch.arange(2)] * 3).tolist()
    )
    assert total(found.grp.permutation, found.head.permutation) == pytest.approx(best)


def test_a_single_head_is_sure() -> None:
    found = match_heads(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    assert found.grp.permutation.tolist() == [0]
    assert found.margin == float("inf")
