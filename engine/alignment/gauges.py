"""The continuous part of a gauge: the best factor or matrix between two coordinates already paired.

All solvers work in float64 on every instance at once; none loops over frequencies or heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

_SPAN, _FAR = 12.0, 300.0  # of log r: around the balanced modulus, and at all
_GRID = 1e-4 * torch.sinh(torch.linspace(0, 13.6, 35, dtype=torch.float64))  # log r − log r₀, to 40
_HALVINGS, _NEWTON = 10, 6
STEPS, _GAIN = 150, 1e-10
_RIDGE = 1e-12
_SMALL = 0.05  # of a step: one thousandth of it is about the next one
_LENGTHS = (4.0, 2.0, 1.0, 0.5, 0.1, 0.01)


def fit_factor(
    a: Float[Tensor, "*n"],
    b: Float[Tensor, "*n"],
    s: Float[Tensor, "*n"] | Complex[Tensor, "*n"],
    t: Float[Tensor, "*n"] | Complex[Tensor, "*n"],
) -> Float[Tensor, "*n"] | Complex[Tensor, "*n"]:
    """The factor z = r e^{iφ} that minimises ‖A_w − z B_w‖² + ‖A_r − B_r / z̄‖².

    With a = ‖B_w‖², b = ‖B_r‖², s = ⟨B_w, A_w⟩, t = ⟨B_r, A_r⟩ (⟨u, v⟩ = Σ ū v) that is, up to a
    constant, f(r) = a r² + b / r² − 2 |s r + t / r| with φ = arg(s r + t / r). Rotary frequencies
    have complex s and t, FFN neurons real ones (φ is then a sign). Two minima occur: a grid in
    log r finds the valleys, bisection on f′ their floors; the lower one is taken. Where nothing is
    written or nothing is read (a = 0 or b = 0) the modulus is 1.
    """
    dead = (a <= 0) | (b <= 0)
    a, b = (torch.where(dead, torch.ones_like(x), x) for x in (a, b))
    u = torch.where(dead, torch.zeros_like(a), _lowest(a, b, s, t))
    return _unit(s * u.exp() + t * (-u).exp()) * u.exp()


def fit_factor_nearby(
    a: Float[Tensor, "*n"],
    b: Float[Tensor, "*n"],
    s: Float[Tensor, "*n"] | Complex[Tensor, "*n"],
    t: Float[Tensor, "*n"] | Complex[Tensor, "*n"],
) -> Float[Tensor, "*n"] | Complex[Tensor, "*n"]:
    """The same where the factor 1 leaves little: Newton's steps from there, no other valley."""
    terms, u = torch.stack([a, b, _power(s), _power(t), 2 * _real(s, t)]), torch.zeros_like(a)
    for _ in range(3):
        slope, curvature = _slopes(terms, u)
        u = torch.where(curvature > 0, u - (slope / curvature.clamp(min=1e-300)).clamp(-1, 1), u)
    return _unit(s * u.exp() + t * (-u).exp()) * u.exp()


def fit_unit(
    s: Float[Tensor, "*n"] | Complex[Tensor, "*n"], t: Float[Tensor, "*n"] | Complex[Tensor, "*n"]
) -> Float[Tensor, "*n"] | Complex[Tensor, "*n"]:
    """The same with |z| = 1, a turn or a sign: z = (s + t) / |s + t|."""
    return _unit(s + t)


def factor_cost(a: Tensor, b: Tensor, s: Tensor, t: Tensor, z: Tensor) -> Float[Tensor, "*n"]:
    """‖A_w − z B_w‖² + ‖A_r − B_r / z̄‖² without the norms of A."""
    r = z.abs()
    pull = (z.conj() * (s + t / r.square())).real if z.is_complex() else z * (s + t / r.square())
    return a * r.square() + b / r.square() - 2 * pull


def _unit(direction: Tensor) -> Tensor:
    length = direction.abs()
    unit = direction / length.clamp(min=1e-300)
    return torch.where(length > 0, unit, torch.ones_like(direction))


def _lowest(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Float[Tensor, "*n"]:
    """log r of the global minimum: the valley on either side of the shortest |s r + t / r|.

    Around its place r₀ = √(|t| / |s|), r² = r₀² w, all terms are multiples of w and 1/w:
    f = α w + β / w − 2 √(P w + Q / w + c).
    """
    size, other = _power(s), _power(t)
    middle = ((other / size.clamp(min=1e-300)).clamp(min=1e-300).log() / 4).clamp(-_FAR, _FAR)
    balance = (b / a).log() / 4
    middle = torch.minimum(torch.maximum(middle, balance - _SPAN), balance + _SPAN)
    up, down = (2 * middle).exp(), (-2 * middle).exp()
    terms = torch.stack([a * up, b * down, size * up, other * down, 2 * _real(s, t)])
    grid = torch.cat([-_GRID.flip(0), _GRID[1:]]).to(a)
    values = _value(terms.unsqueeze(-1), grid)
    half = len(_GRID)
    best = torch.stack(
        [values[..., :half].argmin(-1), values[..., half - 1 :].argmin(-1) + half - 1]
    )
    low, high = grid[(best - 1).clamp(min=0)], grid[(best + 1).clamp(max=len(grid) - 1)]
    terms = terms.unsqueeze(1)
    floor = (low + high) / 2
    for step in range(_HALVINGS + _NEWTON):
        slope, curvature = _slopes(terms, floor)
        falling = slope < 0
        low, high = torch.where(falling, floor, low), torch.where(falling, high, floor)
        centre = (low + high) / 2
        if step < _HALVINGS:
            floor = centre
        else:
            found = floor - slope / curvature.clamp(min=1e-300)
            floor = torch.where((found >= low) & (found <= high), found, centre)
    first, second = _value(terms, floor)
    return middle + torch.where(first <= second, *floor)


def _power(x: Tensor) -> Tensor:
    return x.real.square() + x.imag.square() if x.is_complex() else x.square()


def _real(x: Tensor, y: Tensor) -> Tensor:
    return x.real * y.real + x.imag * y.imag if x.is_complex() else x * y


def _value(terms: Tensor, u: Tensor) -> Tensor:
    """f at r = r₀ eᵘ."""
    a, b, p, q, c = terms
    w = (2 * u).exp()
    back = w.reciprocal()
    length = torch.addcmul(p * w, q, back).add_(c).clamp_(min=0).sqrt_()
    return torch.addcmul(a * w, b, back).sub_(length, alpha=2)


def _slopes(terms: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """½ df/du and ½ d²f/du²."""
    a, b, p, q, c = terms
    w = (2 * u).exp()
    back = w.reciprocal()
    up, down, rise, fall = a * w, b * back, p * w, q * back
    length = (rise + fall + c).clamp(min=1e-300).sqrt()
    pull = (rise - fall) / length
    curvature = 2 * (up + down) - (2 * (rise + fall) - pull.square()) / length
    return up - down - pull, curvature


Start = Literal["orthogonal", "balanced", "linear"]
STARTS: tuple[Start, ...] = ("orthogonal", "balanced", "linear")


@dataclass(frozen=True)
class Products:
    """All that the fit of a matrix needs of the rows: products over them, [*g, n, n]."""

    a_w: Tensor  # A_wᵀ A_w
    a_r: Tensor  # A_rᵀ A_r
    own_w: Tensor  # B_wᵀ B_w
    own_r: Tensor  # B_rᵀ B_r
    cross_w: Tensor  # A_wᵀ B_w
    cross_r: Tensor  # A_rᵀ B_r


def products(
    written_a: Float[Tensor, "*g r n"],
    written_b: Float[Tensor, "*g r n"],
    read_a: Float[Tensor, "*g q n"],
    read_b: Float[Tensor, "*g q n"],
) -> Products:
    """The products of rows as stored."""
    return Products(
        written_a.mT @ written_a, read_a.mT @ read_a, written_b.mT @ written_b,
        read_b.mT @ read_b, written_a.mT @ written_b, read_a.mT @ read_b,
    )  # fmt: skip


def fit_mixing(
    written_a: Float[Tensor, "*g r n"],
    written_b: Float[Tensor, "*g r n"],
    read_a: Float[Tensor, "*g q n"],
    read_b: Float[Tensor, "*g q n"],
) -> Float[Tensor, "*g n n"]:
    """The matrix M that minimises ‖A_w − B_w Mᵀ‖² + ‖A_r − B_r M⁻¹‖², rows as stored."""
    return fit_products(products(written_a, written_b, read_a, read_b))


def fit_products(
    data: Products, starts: Sequence[Start] = STARTS, *, steps: int = STEPS
) -> Float[Tensor, "*g n n"]:
    """The same from the products alone; `starts` and `steps` give the published variants.

    Gauss–Newton on the group: with M ← (1 + E) M and the current W = B_w Mᵀ, R = B_r M⁻¹, both
    residuals are linear in E, so that E (WᵀW) + (RᵀR) E = (A_w − W)ᵀW − Rᵀ(A_r − R). It begins at
    the lowest of three: orthogonal Procrustes (Tran et al. 2026), the same between balanced heads,
    and the least squares of A_r M ≈ B_r, exact for twins but nearly singular for unrelated heads.
    """
    m = _START[starts[0]](data)
    for start in starts[1:]:
        m = _lower(data, m, _START[start](data))
    return _descended(data, m, steps)


def _descended(data: Products, m: Tensor, steps: int) -> Tensor:
    """Gauss–Newton with the best of a few steps, all tried at once; what stands still is left."""
    lead, size = m.shape[:-2], m.shape[-1]
    data = Products(*(x.expand(m.shape).reshape(-1, size, size) for x in vars(data).values()))
    m = m.reshape(-1, size, size).clone()
    cost, moving = mixing_cost(data, m), torch.arange(len(m))
    lengths = torch.tensor(_LENGTHS, dtype=m.dtype)[:, None, None, None]
    for _ in range(steps):
        here = Products(*(x[moving] for x in vars(data).values()))
        before, old = m[moving], cost[moving]
        tried = before + lengths * (_newton_step(here, before) @ before)
        least, which = mixing_cost(here, tried).min(0)
        best = tried[which, torch.arange(len(moving))]
        m[moving] = torch.where((least < old)[:, None, None], best, before)
        cost[moving] = torch.minimum(least, old)
        moving = moving[old - cost[moving] > _GAIN * old.abs()]
        if not len(moving):
            break
    return m.reshape(*lead, size, size)


def fit_nearby(
    data: Products, m: Float[Tensor, "*g n n"], steps: int = 4
) -> Float[Tensor, "*g n n"]:
    """The same from a matrix that is nearly right: whole steps, each kept where it lowers the cost.

    They converge quadratically, so that after a small one the next would change nothing.
    """
    for _ in range(steps):
        step = _newton_step(data, m)
        m = _lower(data, m, m + step @ m)
        if float(step.abs().max()) < _SMALL:
            break
    return m


def procrustes(data: Products) -> Float[Tensor, "*g n n"]:
    """The best orthogonal M: the polar factor of A_wᵀB_w + A_rᵀB_r."""
    return _polar(data.cross_w + data.cross_r)


def balanced(data: Products) -> Float[Tensor, "*g n n"]:
    """S_A⁻¹ O S_B: each head balanced (S WᵀW S = S⁻¹ RᵀR S⁻¹), then Procrustes between them.

    S² is the geometric mean of (WᵀW)⁻¹ and RᵀR. Exact for twins, whatever matrix is between them.
    """
    sides = (data.a_w, data.a_r), (data.own_w, data.own_r)
    (s, s_back), (t, t_back) = (_balance(*side) for side in sides)
    return s_back @ _polar(s @ data.cross_w @ t + s_back @ data.cross_r @ t_back) @ t


def _linear(data: Products) -> Tensor:
    return _sylvester(data.a_r, data.own_w, data.cross_w + data.cross_r)


_START = {"orthogonal": procrustes, "balanced": balanced, "linear": _linear}


def _polar(x: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(x)
    return left @ right


def _balance(write: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """S and S⁻¹ of one head, S² = G_w^{-½} (G_w^{½} G_r G_w^{½})^{½} G_w^{-½}."""
    root, back = _root(write)
    middle, _ = _root(root @ read @ root)
    return _root(back @ middle @ back)


def _root(x: Tensor) -> tuple[Tensor, Tensor]:
    """X^{½} and X^{-½} of a positive matrix, regularised."""
    values, vectors = torch.linalg.eigh((x + x.mT) / 2)
    floor = (values[..., -1:] * _RIDGE).clamp(min=1e-150)
    half = values.clamp(min=floor).sqrt().unsqueeze(-2)
    return (vectors * half) @ vectors.mT, (vectors / half) @ vectors.mT


def mixing_cost(data: Products, m: Tensor) -> Tensor:
    """The objective without the norms of A; infinite where M has no inverse."""
    inverse, failed = torch.linalg.inv_ex(m)
    write = (m @ data.own_w - 2 * data.cross_w) * m
    read = (data.own_r @ inverse - 2 * data.cross_r.mT) * inverse
    found = write.sum((-2, -1)) + read.sum((-2, -1))
    return torch.where(failed == 0, found, torch.inf).nan_to_num(nan=torch.inf)


def _lower(data: Products, m: Tensor, other: Tensor) -> Tensor:
    return torch.where((mixing_cost(data, other) < mixing_cost(data, m))[..., None, None], other, m)


def _newton_step(data: Products, m: Tensor) -> Tensor:
    inverse = torch.linalg.inv(m)
    write, read = m @ data.own_w @ m.mT, inverse.mT @ data.own_r @ inverse
    target = data.cross_w @ m.mT - write - inverse.mT @ data.cross_r.mT + read
    return _sylvester(read, write, target)


def _sylvester(left: Tensor, right: Tensor, target: Tensor) -> Tensor:
    """X with left X + X right = target for symmetric sides, least squares where both vanish."""
    p, u = torch.linalg.eigh(left)
    q, v = torch.linalg.eigh(right)
    total = p.unsqueeze(-1) + q.unsqueeze(-2)
    floor = total.amax((-2, -1), keepdim=True) * torch.finfo(total.dtype).eps
    return u @ (u.mT @ target @ v / total.clamp(min=floor.clamp(min=1e-300))) @ v.mT
