"""Laws of the groups: inverse, composition, pairing, projection; and what is no element of one."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.llama.modeling_llama import rotate_half

from engine.elements import Element, Mixed, Ordered, Turned
from engine.groups import (
    LINEAR,
    MONOMIAL,
    PERMUTATION,
    ROTARY_HALF,
    SIGNED,
    Group,
    Monomial,
    Trivial,
)

GROUPS = {
    "permutation": PERMUTATION,
    "signed": SIGNED,
    "positive": Monomial("S_n ⋉ (R>0)ⁿ", scales=True),
    "monomial": MONOMIAL,
    "rotary": ROTARY_HALF,
    "linear": LINEAR,
    "trivial": Trivial("a name"),
}
groups = pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
ordered = pytest.mark.parametrize("group", [PERMUTATION, SIGNED, MONOMIAL])
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
    names = {name: set(draw(group, (), 0, 1)[0].numbers()) for name, group in GROUPS.items()}
    assert names == {
        "permutation": {"permutation"},
        "signed": {"permutation", "sign"},
        "positive": {"permutation", "scale"},
        "monomial": {"permutation", "scale"},
        "rotary": {"angle", "log_scale"},
        "linear": {"matrix"},
        "trivial": {"permutation"},
    }


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "trivial"])
def test_samples_repeat_by_seed_only(name: str) -> None:
    first, again, other = (draw(GROUPS[name], (2,), seed, 1)[0] for seed in (0, 0, 1))
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


@pytest.mark.parametrize("group", [PERMUTATION, SIGNED, ROTARY_HALF])
@given(SEEDS)
def test_projection_finds_a_planted_element(group: Group, seed: int) -> None:
    (g,) = draw(group, (2,), seed, 1)
    if isinstance(g, Turned):
        g = Turned(g.z / g.z.abs())
    b = points((2,), seed, rows=80)
    assert same(group.project(g.write(b).mT @ b), g)


def test_projection_finds_a_planted_rotation_of_all_channels() -> None:
    rotation = Mixed(torch.linalg.qr(torch.randn(SIZE, SIZE, generator=seeded(0)).double())[0])
    b = points((), 0, rows=20)
    assert same(LINEAR.project(rotation.write(b).mT @ b), rotation)


@pytest.mark.parametrize("group", [PERMUTATION, SIGNED])
@given(SEEDS)
def test_projection_is_the_maximum_over_the_group(group: Monomial, seed: int) -> None:
    c = torch.randn(4, 4, generator=seeded(seed), dtype=torch.float64)
    rows = torch.arange(4)
    signs = list(itertools.product((1, -1), repeat=4)) if group.signs else [(1,) * 4]
    best = max(
        float((torch.tensor(sign) * c[rows, list(order)]).sum())
        for order in itertools.permutations(range(4))
        for sign in signs
    )
    found = group.project(c)
    assert float((found.scale * c[rows, found.permutation]).sum()) == pytest.approx(best)


@given(SEEDS)
def test_rotary_projection_is_the_maximum_over_all_phases(seed: int) -> None:
    c = torch.randn(SIZE, SIZE, generator=seeded(seed), dtype=torch.float64)
    angles = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)
    candidates = Turned(torch.polar(torch.ones_like(angles), angles)[:, None].expand(-1, SIZE // 2))
    eye = torch.eye(SIZE, dtype=torch.float64).expand(2001, SIZE, SIZE)
    matrices = candidates.write(eye).mT  # g as a matrix, one for each angle
    halves = torch.arange(SIZE // 2)
    gain = torch.zeros(2001, SIZE // 2, dtype=torch.float64)
    for i, j in itertools.product((0, SIZE // 2), repeat=2):
        gain += matrices[:, halves + i, halves + j] * c[halves + i, halves + j]
    found = ROTARY_HALF.project(c).write(torch.eye(SIZE, dtype=torch.float64)).mT
    assert float((found * c).sum()) == pytest.approx(float(gain.amax(0).sum()), abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_counts_agree_with_enumeration(size: int) -> None:
    orders = list(itertools.permutations(range(size)))
    signed = list(itertools.product(orders, itertools.product((1, -1), repeat=size)))
    assert 10 ** PERMUTATION.log10(size) == pytest.approx(len(orders))
    assert 10 ** SIGNED.log10(size) == pytest.approx(len(signed))
    assert 10 ** MONOMIAL.log10(size) == pytest.approx(len(signed))
    assert 10 ** Trivial("a name").log10(size) == 1


def test_dimensions_count_free_numbers() -> None:
    found = {name: group.dimension(SIZE) for name, group in GROUPS.items()}
    assert found == {
        "permutation": 0,
        "signed": 0,
        "positive": SIZE,
        "monomial": SIZE,
        "rotary": sum(x.numel() for x in ROTARY_HALF.identity(SIZE).numbers().values()),
        "linear": SIZE**2,
        "trivial": 0,
    }


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
