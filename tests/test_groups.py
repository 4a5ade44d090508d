"""Laws of the groups: inverse, composition, pairing, projection; and what is no element of one."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.llama.modeling_llama import rotate_half

from engine.elements import Element, Mixed, Ordered, Turned
from engine.groups import (
    COMMON_SIGN,
    DIAGONAL,
    LINEAR,
    MONOMIAL,
    ORTHOGONAL,
    PERMUTATION,
    POSITIVE,
    ROTARY_HALF,
    ROTARY_NEIGHBOURS,
    SCALE,
    SIGNED,
    SIGNS,
    Group,
    Monomial,
    Trivial,
)

ONE_SIGN = Monomial("{±1}", orders=False, common=True)
GROUPS = {
    "permutation": PERMUTATION,
    "signed": SIGNED,
    "common": COMMON_SIGN,
    "one sign": ONE_SIGN,
    "signs": SIGNS,
    "diagonal": DIAGONAL,
    "scale": SCALE,
    "positive": POSITIVE,
    "monomial": MONOMIAL,
    "rotary": ROTARY_HALF,
    "neighbours": ROTARY_NEIGHBOURS,
    "linear": LINEAR,
    "orthogonal": ORTHOGONAL,
    "trivial": Trivial("a name"),
}
groups = pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
ordered = pytest.mark.parametrize("group", [PERMUTATION, SIGNED, COMMON_SIGN, MONOMIAL])
SIZE = 6
BATCHES = [(), (3,), (2, 3)]
SEEDS = st.integers(0, 2**31)
ACTIONS = ("write", "read")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(group: Group, batch: tuple[int, ...], seed: int, count: int = 2) -> list[Element]:
    generator = seeded(seed)
    return [group.sample(SIZE, batch, generator) for _ in range(count)]


def points(batch: tuple[int, ...], seed: int, rows: int = 4) -> Tensor:
    return torch.randn(*batch, rows, SIZE, generator=seeded(seed + 1), dtype=torch.float64)


def close(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, rtol=1e-10, atol=1e-10)


def same(g: Element, h: Element) -> bool:
    """The same element: its numbers agree (angles up to whole turns)."""
    if isinstance(g, Turned) and isinstance(h, Turned):
        return close(torch.view_as_real(g.z), torch.view_as_real(h.z))
    a, b = g.numbers(), h.numbers()
    return a.keys() == b.keys() and all(close(a[k].double(), b[k].double()) for k in a)


@groups
@pytest.mark.parametrize("batch", BATCHES)
def test_the_identity_changes_nothing(group: Group, batch: tuple[int, ...]) -> None:
    identity = group.identity(SIZE, batch)
    x = points(batch, 0)
    assert identity.batch == batch
    assert torch.equal(identity.write(x), x)
    assert torch.equal(identity.read(x), x)
    (g,) = draw(group, batch, 0, 1)
    assert same(g.compose(identity), g)
    assert same(identity.compose(g), g)


@groups
@given(st.sampled_from(BATCHES), SEEDS)
def test_the_inverse_takes_back(group: Group, batch: tuple[int, ...], seed: int) -> None:
    (g,) = draw(group, batch, seed, 1)
    x = points(batch, seed)
    for action in ACTIONS:
        forth, back = getattr(g, action), getattr(g.inverse(), action)
        assert close(back(forth(x)), x)
        assert close(forth(back(x)), x)
    assert close(g.compose(g.inverse()).write(x), x)


@groups
@given(st.sampled_from(BATCHES), SEEDS)
def test_composition_acts_right_to_left(group: Group, batch: tuple[int, ...], seed: int) -> None:
    g, h, k = draw(group, batch, seed, 3)
    x = points(batch, seed)
    for action in ACTIONS:
        one_by_one = getattr(g, action)(getattr(h, action)(x))
        assert close(getattr(g.compose(h), action)(x), one_by_one)
    assert same(g.compose(h).compose(k), g.compose(h.compose(k)))


@groups
@given(st.sampled_from(BATCHES), SEEDS)
def test_reading_undoes_writing_in_every_product(
    group: Group, batch: tuple[int, ...], seed: int
) -> None:
    """⟨g x, g⁻ᵀ y⟩ = ⟨x, y⟩: what `x` and `x*` mean."""
    (g,) = draw(group, batch, seed, 1)
    x, y = points(batch, seed), points(batch, seed + 1)
    assert close(g.write(x) @ g.read(y).mT, x @ y.mT)


@pytest.mark.parametrize("group", [MONOMIAL, ROTARY_HALF, LINEAR])
def test_writing_twice_is_not_invariant(group: Group) -> None:
    (g,) = draw(group, (), 0, 1)
    x = points((), 0)
    assert not torch.allclose(g.write(x) @ g.write(x).mT, x @ x.mT, rtol=0.01)


@ordered
@given(st.sampled_from(BATCHES), SEEDS)
def test_relabelling_is_writing_without_factors(
    group: Group, batch: tuple[int, ...], seed: int
) -> None:
    (g,) = draw(group, batch, seed, 1)
    x = points(batch, seed)
    assert isinstance(g, Ordered)
    assert torch.equal(g.relabel(x), Ordered(g.permutation, torch.ones_like(g.scale)).write(x))


@pytest.mark.parametrize(("group", "word"), [(ROTARY_HALF, "rotary"), (LINEAR, "mixed")])
def test_channels_without_an_order_refuse_to_be_relabelled(group: Group, word: str) -> None:
    (g,) = draw(group, (), 0, 1)
    message = f"^a {word} channel has no order to relabel: mark its legs x or x\\*$"
    with pytest.raises(TypeError, match=message):
        g.relabel(points((), 0))


@groups
def test_taking_reorders_the_batch(group: Group) -> None:
    (g,) = draw(group, (3,), 0, 1)
    order = torch.tensor([2, 0, 1])
    x = points((3,), 0)
    assert close(g.take(order).write(x[order]), g.write(x)[order])
    assert close(g.take(order).read(x[order]), g.read(x)[order])


@groups
@given(st.sampled_from(BATCHES), SEEDS)
def test_numbers_restore_the_element(group: Group, batch: tuple[int, ...], seed: int) -> None:
    (g,) = draw(group, batch, seed, 1)
    restored = group.restore(g.numbers())
    assert type(restored) is type(g)
    assert same(restored, g)
    assert restored.batch == batch


def test_the_numbers_have_documented_names() -> None:
    names = {name: set(draw(group, (9,), 0, 1)[0].numbers()) for name, group in GROUPS.items()}
    assert names == {
        "permutation": {"permutation"},
        "signed": {"permutation", "sign"},
        "common": {"permutation", "sign"},
        "one sign": {"permutation", "sign"},
        "signs": {"permutation", "sign"},
        "diagonal": {"permutation", "scale"},
        "scale": {"permutation", "scale"},
        "positive": {"permutation", "scale"},
        "monomial": {"permutation", "scale"},
        "rotary": {"angle", "log_scale"},
        "neighbours": {"angle", "log_scale"},
        "linear": {"matrix"},
        "orthogonal": {"matrix"},
        "trivial": {"permutation"},
    }


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "trivial"])
def test_samples_repeat_by_seed_only(name: str) -> None:
    first, again, other = (draw(GROUPS[name], (9,), seed, 1)[0] for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)


def test_samples_fill_the_group() -> None:
    """All 48 signed permutations of three letters, and signs of factors independent of order."""
    g = SIGNED.sample(3, (3000,), seeded(0))
    rows = torch.cat([g.permutation, g.scale.long()], dim=-1)
    counts = rows.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 48
    assert counts.min() > 30
    factor = MONOMIAL.sample(3, (3000,), seeded(0)).scale
    assert 0.45 < (factor > 0).double().mean() < 0.55
    assert factor.abs().min() >= 0.5
    assert factor.abs().max() <= 2
    assert factor.abs().log().mean().abs() < 0.02


def test_samples_of_a_common_sign_fill_its_group() -> None:
    """All 12 of S_3 × {±1}: one sign for all letters, a coin's, whatever the order."""
    g = COMMON_SIGN.sample(3, (1200,), seeded(0))
    rows = torch.cat([g.permutation, g.scale.long()], dim=-1)
    counts = rows.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 12
    assert counts.min() > 60
    assert torch.equal(g.scale.abs(), torch.ones(1200, 3).double())
    assert bool((g.scale == g.scale[:, :1]).all())


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_samples_of_all_orthogonal_matrices_are_uniform(size: int) -> None:
    """g gᵀ = 1, reflections as often as rotations, E g = 0 and E g_ij² = 1/n as Haar's."""
    g = ORTHOGONAL.sample(size, (4000,), seeded(0)).matrix
    assert close(g @ g.mT, torch.eye(size, dtype=torch.float64).expand(4000, size, size))
    assert 0.47 < float((torch.linalg.det(g) > 0).double().mean()) < 0.53
    assert g.mean(0).abs().max() < 4 / math.sqrt(4000 * size)
    assert torch.allclose(g.square().mean(0), torch.tensor(1 / size).double(), rtol=0.15)
    assert torch.allclose(
        g.diagonal(dim1=-2, dim2=-1).sum(-1).square().mean(), torch.ones(()).double(), rtol=0.15
    )  # E (tr g)² = 1


@pytest.mark.parametrize(
    ("group", "orders", "common", "signs", "scales"),
    [
        (PERMUTATION, True, True, False, False),
        (COMMON_SIGN, True, True, True, False),
        (SIGNED, True, False, True, False),
        (ONE_SIGN, False, True, True, False),
        (SIGNS, False, False, True, False),
        (SCALE, False, False, False, True),
        (DIAGONAL, False, False, True, True),
        (MONOMIAL, True, False, True, True),
    ],
)
def test_samples_lie_in_their_group_and_use_all_of_it(
    group: Monomial, orders: bool, common: bool, signs: bool, scales: bool
) -> None:
    g = group.sample(SIZE, (50,), seeded(0))
    still = torch.arange(SIZE).expand(50, SIZE)
    assert torch.equal(g.permutation.sort(-1).values, still)
    assert torch.equal(g.permutation, still) != orders
    sign = g.scale.sign()
    assert bool((sign == sign[:, :1]).all()) == (common or not signs)
    assert bool((g.scale < 0).any()) == signs
    assert bool((g.scale.abs() == 1).all()) != scales


def test_sampled_matrices_are_well_conditioned() -> None:
    g = LINEAR.sample(SIZE, (50,), seeded(0))
    assert torch.linalg.cond(g.matrix).max() <= 4 + 1e-9


CYCLE = torch.tensor([1, 2, 0, 4, 5, 3])  # differs from its inverse, as no swap does


@pytest.mark.parametrize("group", [PERMUTATION, SIGNED])
def test_projection_finds_a_planted_order(group: Monomial) -> None:
    sign = torch.tensor([1, -1, 1, -1, -1, 1.0]).double()
    planted = Ordered(CYCLE, sign if group.signs else torch.ones_like(sign))
    b = points((), 3, rows=50)
    found = group.project(planted.write(b).mT @ b)
    assert same(found, planted)
    assert not same(found, planted.inverse())


@pytest.mark.parametrize(
    "group",
    [PERMUTATION, SIGNED, COMMON_SIGN, ONE_SIGN, SIGNS, ROTARY_HALF, ROTARY_NEIGHBOURS, ORTHOGONAL],
)
@given(SEEDS)
def test_projection_finds_a_planted_element(group: Group, seed: int) -> None:
    (g,) = draw(group, (2,), seed, 1)
    if isinstance(g, Turned):
        g = replace(g, z=g.z / g.z.abs())
    b = points((2,), seed, rows=80)
    assert same(group.project(g.write(b).mT @ b), g)


def test_projection_finds_a_planted_rotation_of_all_channels() -> None:
    rotation = Mixed(torch.linalg.qr(torch.randn(SIZE, SIZE, generator=seeded(0)).double())[0])
    b = points((), 0, rows=20)
    assert same(LINEAR.project(rotation.write(b).mT @ b), rotation)


PLUS, MINUS = (1,) * 4, (-1,) * 4
ORDERS, IN_PLACE = list(itertools.permutations(range(4))), [(0, 1, 2, 3)]
FREE = list(itertools.product((1, -1), repeat=4))


@pytest.mark.parametrize(
    ("group", "orders", "signs"),
    [
        (PERMUTATION, ORDERS, [PLUS]),
        (SIGNED, ORDERS, FREE),
        (COMMON_SIGN, ORDERS, [PLUS, MINUS]),
        (ONE_SIGN, IN_PLACE, [PLUS, MINUS]),
        (SIGNS, IN_PLACE, FREE),
        (DIAGONAL, IN_PLACE, FREE),
        (SCALE, IN_PLACE, [PLUS]),
    ],
)
@pytest.mark.parametrize("shift", [0.0, 0.8, -0.8])
@given(SEEDS)
def test_projection_is_the_maximum_over_the_group(
    group: Monomial, orders: list, signs: list, shift: float, seed: int
) -> None:
    """Of all orders and signs that it has, one by one; C may lie to either side of 0."""
    c = torch.randn(4, 4, generator=seeded(seed), dtype=torch.float64) + shift
    worth = c[torch.arange(4), torch.tensor(orders)] @ torch.tensor(signs).double().mT
    order, sign = divmod(int(worth.argmax()), len(signs))
    found = group.project(c)
    assert tuple(found.permutation.tolist()) == orders[order]
    assert tuple(found.scale.tolist()) == signs[sign]


def test_a_common_sign_is_minus_where_that_is_worth_more() -> None:
    c = torch.tensor([[[1.0, -3.0], [-2.0, 1.0]], [[1.0, 3.0], [2.0, 1.0]]]).double()
    found = COMMON_SIGN.project(c)
    assert found.permutation.tolist() == [[1, 0], [1, 0]]
    assert found.scale.tolist() == [[-1, -1], [1, 1]]
    assert ONE_SIGN.project(-torch.eye(3).double()).scale.tolist() == [-1, -1, -1]


@given(SEEDS)
def test_no_orthogonal_matrix_gains_more_than_its_projection(seed: int) -> None:
    """max ⟨g, C⟩ = Σ σ(C) over O(n): of 2 × 2 all turns and reflections, in steps of 0.1°."""
    c = torch.randn(2, SIZE, SIZE, generator=seeded(seed), dtype=torch.float64)
    g = ORTHOGONAL.project(c).matrix
    assert close(g @ g.mT, torch.eye(SIZE, dtype=torch.float64).expand(2, SIZE, SIZE))
    gained = (g * c).sum((-2, -1)).numpy()
    assert gained == pytest.approx(np.linalg.svd(c.numpy())[1].sum(-1))
    others = ORTHOGONAL.sample(SIZE, (200, 2), seeded(seed)).matrix
    assert ((others * c).sum((-2, -1)).amax(0).numpy() < gained).all()
    small = c[0, :2, :2]
    angle = torch.linspace(0, 2 * math.pi, 3601, dtype=torch.float64)
    x, y = angle.cos(), angle.sin()
    every = torch.stack([torch.stack([x, -y, y, x], -1), torch.stack([x, y, y, -x], -1)])
    best = float((every.unflatten(-1, (2, 2)) * small).sum((-2, -1)).max())
    found = ORTHOGONAL.project(small).matrix
    assert float((found * small).sum()) == pytest.approx(best, abs=1e-5)


def test_a_reflection_is_found_and_no_turn_in_its_place() -> None:
    mirror = torch.diag(torch.tensor([1.0, 1, 1, 1, 1, -1])).double()
    b = points((), 0, rows=40)
    for planted in (Mixed(mirror), Mixed(-mirror), Mixed(torch.eye(SIZE, dtype=torch.float64))):
        assert same(ORTHOGONAL.project(planted.write(b).mT @ b), planted)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [(COMMON_SIGN, SIGNED), (PERMUTATION, COMMON_SIGN), (SIGNS, SIGNED), (ORTHOGONAL, LINEAR)],
)
def test_projection_finds_no_element_of_a_larger_group(smaller: Group, larger: Group) -> None:
    planted = [larger.sample(SIZE, (), seeded(seed)) for seed in range(6)]
    b = points((), 1, rows=80)
    found = [smaller.project(g.write(b).mT @ b) for g in planted]
    wrong = [not close(f.write(b), g.write(b)) for f, g in zip(found, planted, strict=True)]
    assert sum(wrong) >= 3


@groups
@given(SEEDS)
def test_lengths_and_means_are_kept_by_the_groups_that_keep_them(group: Group, seed: int) -> None:
    """RMSNorm commutes with what keeps lengths, LayerNorm with what also keeps the mean's place."""
    (g,) = draw(group, (9,), seed, 1)
    x = points((9,), seed)
    y, still = g.write(x), isinstance(group, Trivial)
    lengths = still or group in (PERMUTATION, SIGNED, COMMON_SIGN, ONE_SIGN, SIGNS, ORTHOGONAL)
    assert close(y.norm(dim=-1), x.norm(dim=-1)) == lengths
    assert close(g.read(x), y) == lengths  # g⁻ᵀ = g
    means = still or group in (PERMUTATION, COMMON_SIGN, ONE_SIGN)
    centred = g.write(x - x.mean(-1, keepdim=True))
    assert close(centred, y - y.mean(-1, keepdim=True)) == means


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_counts_agree_with_enumeration(size: int) -> None:
    orders = list(itertools.permutations(range(size)))
    signed = list(itertools.product(orders, itertools.product((1, -1), repeat=size)))
    assert 10 ** PERMUTATION.log10(size) == pytest.approx(len(orders))
    assert 10 ** SIGNED.log10(size) == pytest.approx(len(signed))
    assert 10 ** MONOMIAL.log10(size) == pytest.approx(len(signed))
    assert 10 ** COMMON_SIGN.log10(size) == pytest.approx(2 * len(orders))
    assert 10 ** SIGNS.log10(size) == 10 ** DIAGONAL.log10(size) == pytest.approx(2**size)
    assert 10 ** ONE_SIGN.log10(size) == pytest.approx(2)
    assert SCALE.log10(size) == ORTHOGONAL.log10(size) == LINEAR.log10(size) == 0
    assert 10 ** PERMUTATION.log10(size) == 10 ** POSITIVE.log10(size)
    assert 10 ** Trivial("a name").log10(size) == 1


def test_dimensions_count_free_numbers() -> None:
    found = {name: group.dimension(SIZE) for name, group in GROUPS.items()}
    assert found == {
        "permutation": 0,
        "signed": 0,
        "common": 0,
        "one sign": 0,
        "signs": 0,
        "diagonal": SIZE,
        "scale": SIZE,
        "positive": SIZE,
        "monomial": SIZE,
        "rotary": sum(x.numel() for x in ROTARY_HALF.identity(SIZE).numbers().values()),
        "neighbours": SIZE,
        "linear": SIZE**2,
        "orthogonal": 15,
        "trivial": 0,
    }


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_orthogonal_matrices_have_the_dimension_of_the_skew_ones(size: int) -> None:
    """n (n − 1) / 2, the rank of E → E + Eᵀ's kernel: the directions at 1 that keep g gᵀ."""
    eye = torch.eye(size * size, dtype=torch.float64).reshape(-1, size, size)
    kept = size * size - int(torch.linalg.matrix_rank((eye + eye.mT).flatten(1)))
    assert ORTHOGONAL.dimension(size) == kept
    assert LINEAR.dimension(size) == size * size


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_signed_permutations_are_exact_in_every_dtype(dtype: torch.dtype) -> None:
    (g,) = draw(SIGNED, (), 0, 1)
    assert g.exact
    x = points((), 0).to(dtype)
    for action in ACTIONS:
        moved = getattr(g, action)(x)
        assert moved.dtype == dtype
        assert not torch.equal(moved, x)
        assert torch.equal(getattr(g.inverse(), action)(moved), x)


@pytest.mark.parametrize("name", ["positive", "monomial", "rotary", "linear"])
def test_continuous_elements_do_not_call_themselves_exact(name: str) -> None:
    assert not draw(GROUPS[name], (), 0, 1)[0].exact


def rotary(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding as Hugging Face computes it: x cos + rotate_half(x) sin."""
    frequency = 10000.0 ** -(torch.arange(0, SIZE, 2, dtype=torch.float64) / SIZE)
    angle = (positions[:, None] * frequency).repeat(1, 2)
    return x * angle.cos() + rotate_half(x) * angle.sin()


POSITIONS = torch.tensor([0.0, 1.0, 5.0, 11.0]).double()


@given(SEEDS)
def test_rotary_elements_commute_with_rotations(seed: int) -> None:
    (g,) = draw(ROTARY_HALF, (), seed, 1)
    x = points((), seed)
    for action in ACTIONS:
        move = getattr(g, action)
        assert close(move(rotary(x, POSITIONS)), rotary(move(x), POSITIONS))


@pytest.mark.parametrize(
    "g",
    [
        LINEAR.sample(SIZE, (), seeded(0)),
        PERMUTATION.sample(SIZE, (), seeded(0)),
        Ordered(torch.tensor([1, 0, 2, 4, 3, 5]), torch.ones(SIZE).double()),  # pairs exchanged
        Ordered(torch.arange(SIZE), torch.tensor([-1.0, 1, 1, 1, 1, 1]).double()),  # half a pair
        Ordered(torch.tensor([3, 4, 5, 0, 1, 2]), torch.ones(SIZE).double()),  # conjugation
    ],
    ids=["linear", "permutation", "pairs", "sign", "conjugation"],
)
def test_what_is_larger_does_not_commute_with_rotations(g: Element) -> None:
    x = points((), 0)
    assert not torch.allclose(
        g.write(rotary(x, POSITIONS)), rotary(g.write(x), POSITIONS), rtol=0.01, atol=0.01
    )


def test_a_turn_is_complex_multiplication() -> None:
    """x_f + i x_{f+n/2} → z times it, read with 1 / z̄: halves are paired, not neighbours."""
    z = torch.tensor([2j, 1.0 - 1j, -0.5 + 0j], dtype=torch.complex128)
    x = points((), 0, rows=1)[0]
    complex_x = torch.complex(x[:3], x[3:])
    for action, factor in (("write", z), ("read", 1 / z.conj())):
        y = getattr(Turned(z), action)(x[None])[0]
        assert close(y[:3], (factor * complex_x).real)
        assert close(y[3:], (factor * complex_x).imag)
