"""Laws of the continuous solvers: planted elements come back, and no other point is better."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.alignment.gauges import (
    factor_cost,
    fit_factor,
    fit_factor_nearby,
    fit_mixing,
    fit_products,
    fit_unit,
    mixing_cost,
    products,
)

SEEDS = st.integers(0, 2**31)
kinds = pytest.mark.parametrize("kind", [torch.complex128, torch.float64], ids=["complex", "real"])


def draw(*shape: int, seed: int = 0, kind: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=kind)


def statistics(
    written_a: Tensor, written_b: Tensor, read_a: Tensor, read_b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a, b, s, t of rows in the last dimension."""
    return (
        written_b.abs().square().sum(-1),
        read_b.abs().square().sum(-1),
        (written_b.conj() * written_a).sum(-1),
        (read_b.conj() * read_a).sum(-1),
    )


def random(kind: torch.dtype, count: int, rows: int, seed: int = 0) -> tuple[Tensor, ...]:
    return statistics(*draw(4, count, rows, seed=seed, kind=kind))


def objective(a: Tensor, b: Tensor, s: Tensor, t: Tensor, z: Tensor) -> Tensor:
    """‖A_w - z B_w‖² + ‖A_r - B_r / z̄‖² without the norms of A, straight from its definition."""
    return a * z.abs().square() + b / z.abs().square() - 2 * (z.conj() * s).real - 2 * (t / z).real


def modulus(*statistic: Tensor, radius: Tensor) -> Tensor:
    """The objective along the best phase of each radius."""
    a, b, s, t = (x[..., None] for x in statistic)
    return a * radius**2 + b / radius**2 - 2 * (s * radius + t / radius).abs()


def minima(*statistic: Tensor) -> tuple[Tensor, Tensor]:
    """Local minima on a fine logarithmic grid: how many, and the lowest value."""
    grid = torch.linspace(-4, 4, 2001, dtype=torch.float64).exp()
    values = modulus(*statistic, radius=(statistic[1] / statistic[0])[..., None] ** 0.25 * grid)
    inside = values[..., 1:-1]
    found = (inside < values[..., :-2]) & (inside < values[..., 2:])
    return found.sum(-1), values.amin(-1)


@kinds
@given(st.integers(1, 5), SEEDS)
def test_a_planted_factor_comes_back(kind: torch.dtype, rows: int, seed: int) -> None:
    z = draw(7, seed=seed, kind=kind)
    written, read = draw(2, 7, rows, seed=seed + 1, kind=kind)
    moved = z[:, None] * written, read / z[:, None].conj()
    found = fit_factor(*statistics(moved[0], written, moved[1], read))
    assert found.dtype == kind
    assert torch.allclose(found, z, rtol=1e-10, atol=0)


@kinds
@pytest.mark.parametrize("rows", [1, 3])
def test_no_modulus_or_phase_is_better(kind: torch.dtype, rows: int) -> None:
    statistic = random(kind, 1000, rows)
    reached = objective(*statistic, fit_factor(*statistic))
    assert (reached <= minima(*statistic)[1] + 1e-12).all()


@kinds
def test_neighbours_are_no_better(kind: torch.dtype) -> None:
    statistic = random(kind, 500, 2)
    z = fit_factor(*statistic)
    reached = objective(*statistic, z)
    for seed in range(8):
        step = 1 + 1e-4 * draw(500, seed=seed, kind=kind)
        assert (objective(*statistic, z * step) >= reached - 1e-14).all()


def test_the_slope_vanishes() -> None:
    statistic = random(torch.complex128, 500, 2)
    z = fit_factor(*statistic)
    parts = torch.view_as_real(z).clone().requires_grad_()
    objective(*statistic, torch.view_as_complex(parts)).sum().backward()
    assert parts.grad is not None
    scale = statistic[0] * z.abs() + statistic[1] / z.abs() ** 3
    assert (parts.grad.norm(dim=-1) / scale).max() < 1e-10


def test_the_lower_of_two_valleys() -> None:
    """Where two minima exist, descent from the wrong side ends in the higher one."""
    statistic = random(torch.complex128, 1000, 1)
    count, lowest = minima(*statistic)
    two = count == 2
    assert 0.1 < two.double().mean() < 0.2  # one row: about 15 %
    a, b, s, t = (x[two] for x in statistic)
    ends = [descended(a, b, s, t, (b / a).log() / 4 + start) for start in (-2, 2)]
    higher = torch.maximum(*ends) > lowest[two] + 1e-3
    assert higher.double().mean() > 0.8
    assert (objective(a, b, s, t, fit_factor(a, b, s, t)) <= lowest[two] + 1e-12).all()


def descended(a: Tensor, b: Tensor, s: Tensor, t: Tensor, u: Tensor) -> Tensor:
    """The objective where gradient descent in u = log r ends."""
    for _ in range(300):
        r = u.exp()
        plus, minus = s * r + t / r, s * r - t / r
        slope = a * r**2 - b / r**2 - (plus.conj() * minus).real / plus.abs()
        u = u - 0.05 * slope / (a * r**2 + b / r**2)
    return modulus(a, b, s, t, radius=u.exp()[:, None])[:, 0]


def test_the_sign_of_a_neuron() -> None:
    """sign(s √b + t √a): the sign of s alone is wrong for a quarter of unrelated pairs."""
    a, b, s, t = random(torch.float64, 4000, 3)
    sign = fit_factor(a, b, s, t).sign()
    assert torch.equal(sign, (s * b.sqrt() + t * a.sqrt()).sign())
    assert 0.2 < (sign != s.sign()).double().mean() < 0.3


def test_the_factor_of_a_neuron_is_a_root() -> None:
    """a c⁴ - s c³ + t c - b = 0."""
    a, b, s, t = random(torch.float64, 500, 3)
    c = fit_factor(a, b, s, t)
    assert ((a * c**4 - s * c**3 + t * c - b).abs() / (a * c**4 + b)).max() < 1e-10


@kinds
@pytest.mark.parametrize("dead", ["written", "read", "both"])
def test_dead_inputs_keep_the_modulus(kind: torch.dtype, dead: str) -> None:
    written = draw(1, 3, kind=kind) * (dead == "read")
    read = draw(1, 3, seed=1, kind=kind) * (dead == "written")
    unit = torch.full((1,), -1.0, dtype=kind)
    found = fit_factor(*statistics(unit * written, written, unit * read, read))
    assert torch.allclose(found, torch.ones_like(unit) if dead == "both" else unit)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_sizes_far_apart(scale: float) -> None:
    z = draw(5, kind=torch.complex128)
    written, read = draw(5, 3, seed=1, kind=torch.complex128), draw(5, 3, kind=torch.complex128)
    b = written * scale, read / scale
    a = z[:, None] * b[0], b[1] / z[:, None].conj()
    assert torch.allclose(fit_factor(*statistics(a[0], b[0], a[1], b[1])), z, rtol=1e-10)


def planted(seed: int, groups: int = 3, size: int = 5) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A matrix and the twins it makes: (A_w, B_w, A_r, B_r)."""
    matrix = draw(groups, size, size, seed=seed) + 2 * torch.eye(size)
    written, read = draw(2, groups, 3 * size, size, seed=seed + 1)
    return matrix, (written @ matrix.mT, written, read @ torch.linalg.inv(matrix), read)


@given(SEEDS)
def test_a_planted_matrix_comes_back(seed: int) -> None:
    matrix, twins = planted(seed)
    condition = float(torch.linalg.cond(matrix).max())
    assert torch.allclose(fit_mixing(*twins), matrix, rtol=0, atol=1e-12 * condition**2)


def test_a_planted_matrix_needs_only_one_side() -> None:
    """Where nothing is read (or written), the other half determines the matrix."""
    matrix, (written_a, written_b, read_a, read_b) = planted(0)
    nothing = torch.zeros_like(read_a)
    assert torch.allclose(fit_mixing(written_a, written_b, nothing, nothing), matrix)
    assert torch.allclose(fit_mixing(nothing, nothing, read_a, read_b), matrix)


def test_channels_that_are_nowhere_stay_finite() -> None:
    nothing = torch.zeros(2, 6, 4, dtype=torch.float64)
    assert fit_mixing(nothing, nothing, nothing, nothing).isfinite().all()


def cost(m: Tensor, twins: tuple[Tensor, ...]) -> Tensor:
    """‖A_w - B_w Mᵀ‖² + ‖A_r - B_r M⁻¹‖², for each group."""
    written_a, written_b, read_a, read_b = twins
    first, second = written_a - written_b @ m.mT, read_a - read_b @ torch.linalg.inv(m)
    return first.square().sum((-2, -1)) + second.square().sum((-2, -1))


def procrustes(twins: tuple[Tensor, ...]) -> Tensor:
    left, _, right = torch.linalg.svd(twins[0].mT @ twins[1] + twins[2].mT @ twins[3])
    return left @ right


@pytest.mark.parametrize("noise", [0.1, 1.0, 100.0])
def test_no_step_improves_the_fit(noise: float) -> None:
    """From twins to independent heads: stationary, and lower than the best rotation."""
    _, (written_a, written_b, read_a, read_b) = planted(0)
    written_a, read_a = (
        (x + noise * draw(*x.shape, seed=7 + i)) / (1 + noise)
        for i, x in enumerate((written_a, read_a))
    )
    twins = (written_a, written_b, read_a, read_b)
    found = fit_mixing(*twins).clone().requires_grad_()
    reached = cost(found, twins)
    assert (reached < cost(procrustes(twins), twins)).all()
    reached.sum().backward()
    assert found.grad is not None
    assert found.grad.abs().max() < 1e-3 * reached.max()


def test_independent_heads_keep_their_size() -> None:
    """A regression would shrink M towards zero and blow up what reads through its inverse."""
    twins = tuple(draw(4, 3, 40, 8))
    assert torch.linalg.cond(fit_mixing(*twins)).max() < 10


@kinds
def test_what_a_factor_leaves_is_the_distance_of_the_rows(kind: torch.dtype) -> None:
    """‖A_w − z B_w‖² + ‖A_r − B_r / z̄‖², less ‖A_w‖² + ‖A_r‖², from the rows themselves."""
    written_a, written_b, read_a, read_b = draw(4, 30, 5, kind=kind)
    z = draw(30, seed=3, kind=kind)
    moved = z[:, None] * written_b, read_b / z[:, None].conj()
    whole = sum(
        (x - y).abs().square().sum(-1) for x, y in zip((written_a, read_a), moved, strict=True)
    )
    own = sum(x.abs().square().sum(-1) for x in (written_a, read_a))
    found = factor_cost(*statistics(written_a, written_b, read_a, read_b), z)
    assert torch.allclose(found, whole - own)


@kinds
def test_no_turn_or_sign_is_better_than_the_unit_factor(kind: torch.dtype) -> None:
    statistic = random(kind, 200, 3)
    z = fit_unit(statistic[2], statistic[3])
    assert torch.allclose(z.abs(), torch.ones(200).double())
    angle = torch.linspace(0, 2 * torch.pi, 721, dtype=torch.float64)[:, None]
    every = torch.polar(torch.ones_like(angle), angle)
    if kind == torch.float64:
        every = torch.tensor([[1.0], [-1.0]]).double()
    reached, others = (objective(*statistic, x) for x in (z, every.expand(-1, 200)))
    assert (reached <= others.amin(0) + 1e-12).all()
    assert (reached > others.amin(0) - 1e-3).all()


@kinds
def test_near_one_newtons_steps_end_in_the_same_factor(kind: torch.dtype) -> None:
    written, read = draw(2, 40, 6, kind=kind)
    z = 1 + 0.05 * draw(40, seed=2, kind=kind)
    noise = 0.02 * draw(2, 40, 6, seed=4, kind=kind)
    there = z[:, None] * written + noise[0], read / z[:, None].conj() + noise[1]
    statistic = statistics(there[0], written, there[1], read)
    assert torch.allclose(fit_factor_nearby(*statistic), fit_factor(*statistic), rtol=1e-6)


def test_what_a_matrix_leaves_is_the_distance_of_the_rows() -> None:
    """`cost` from the rows, less the norms of A; without an inverse, beyond all others."""
    twins = tuple(draw(4, 3, 20, 5))
    m = draw(3, 5, 5, seed=1)
    own = sum(x.square().sum((-2, -1)) for x in (twins[0], twins[2]))
    assert torch.allclose(mixing_cost(products(*twins), m), cost(m, twins) - own)
    assert bool((mixing_cost(products(*twins), 0 * m) > 1e300).all())


def test_one_step_on_the_group_is_the_best_of_six_lengths() -> None:
    """E by least squares over all its entries at once: A_w ≈ W + W Eᵀ, A_r ≈ R − R E."""
    twins = written_a, written_b, read_a, read_b = tuple(draw(4, 60, 4, 4, seed=2))
    start, eye = procrustes(twins), torch.eye(4).double()
    found = fit_products(products(*twins), ("orthogonal",), steps=1)
    written, read = written_b @ start.mT, read_b @ torch.linalg.inv(start)
    taken = set()
    for k, m in enumerate(start):
        jacobian = torch.cat([
            torch.einsum("rj,ih->rhij", written[k], eye).reshape(-1, 16),
            -torch.einsum("qi,jh->qhij", read[k], eye).reshape(-1, 16),
        ])  # fmt: skip
        gap = torch.cat([written_a[k] - written[k], read_a[k] - read[k]]).flatten()
        e = torch.linalg.lstsq(jacobian, gap[:, None]).solution.reshape(4, 4)
        tried = torch.stack([m + length * e @ m for length in (4.0, 2.0, 1.0, 0.5, 0.1, 0.01)])
        best = int(cost(tried, tuple(x[k] for x in twins)).argmin())
        assert torch.allclose(found[k], tried[best], atol=1e-9)
        taken.add(best)
    assert taken == {2, 3, 4}
