"""The continuous part of a gauge: the best factor or matrix between two coordinates already paired.

All solvers work in float64 on every instance at once; none loops over frequencies or heads.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

_GRID = 193
_SPAN = 12.0  # in log r, to either side of the balanced modulus
_HALVINGS = 60
_STEPS, _GAIN = 40, 1e-8
_LENGTHS = (1.0, 0.5, 0.1, 0.01)


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
    log r finds the lower valley, bisection on f′ finds its floor. Where nothing is written or
    nothing is read (a = 0 or b = 0) the modulus is 1.
    """
    dead = (a <= 0) | (b <= 0)
    a, b = (torch.where(dead, torch.ones_like(x), x) for x in (a, b))
    centre = (b / a).log() / 4
    grid = centre.unsqueeze(-1) + torch.linspace(-_SPAN, _SPAN, _GRID).to(a)
    best = _objective(a, b, s, t, grid).argmin(-1, keepdim=True)
    low = grid.gather(-1, (best - 1).clamp(min=0)).squeeze(-1)
    high = grid.gather(-1, (best + 1).clamp(max=_GRID - 1)).squeeze(-1)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        falling = _slope(a, b, s, t, middle) < 0
        low, high = torch.where(falling, middle, low), torch.where(falling, high, middle)
    u = torch.where(dead, torch.zeros_like(low), (low + high) / 2)
    direction = s * u.exp() + t * (-u).exp()
    length = direction.abs()
    unit = torch.where(length > 0, direction / length.clamp(min=1e-300), torch.ones_like(direction))
    return unit * u.exp()


def _objective(a: Tensor, b: Tensor, s: Tensor, t: Tensor, u: Tensor) -> Tensor:
    a, b, s, t = (x.unsqueeze(-1) for x in (a, b, s, t))
    return a * (2 * u).exp() + b * (-2 * u).exp() - 2 * (s * u.exp() + t * (-u).exp()).abs()


def _slope(a: Tensor, b: Tensor, s: Tensor, t: Tensor, u: Tensor) -> Tensor:
    plus, minus = s * u.exp() + t * (-u).exp(), s * u.exp() - t * (-u).exp()
    cross = (plus.conj() * minus).real if plus.is_complex() else plus * minus
    return a * (2 * u).exp() - b * (-2 * u).exp() - cross / plus.abs().clamp(min=1e-300)


def fit_mixing(
    written_a: Float[Tensor, "*g r n"],
    written_b: Float[Tensor, "*g r n"],
    read_a: Float[Tensor, "*g q n"],
    read_b: Float[Tensor, "*g q n"],
) -> Float[Tensor, "*g n n"]:
    """The matrix M that minimises ‖A_w − B_w Mᵀ‖² + ‖A_r − B_r M⁻¹‖², rows as stored.

    Gauss–Newton on the group: with M ← (1 + E) M and the current W = B_w Mᵀ, R = B_r M⁻¹, both
    residuals are linear in E, so that E (WᵀW) + (RᵀR) E = (A_w − W)ᵀW − Rᵀ(A_r − R). It starts
    from the lower of two: orthogonal Procrustes, which never leaves the group, and the least
    squares of A_r M ≈ B_r, exact for twins but nearly singular for unrelated heads.
    """
    data = _Products(
        written_b.mT @ written_b, read_b.mT @ read_b, written_a.mT @ written_b, read_a.mT @ read_b
    )
    left, _, right = torch.linalg.svd(data.cross_w + data.cross_r)
    linear = _sylvester(read_a.mT @ read_a, data.own_w, data.cross_w + data.cross_r)
    m = _lower(data, left @ right, linear)
    for _ in range(_STEPS):
        before = m
        step = _newton_step(data, before) @ before
        for length in _LENGTHS:
            m = _lower(data, m, before + length * step)
        gained = _cost(data, before) - _cost(data, m)
        if bool((gained <= _GAIN * _cost(data, before).abs()).all()):
            break
    return m


@dataclass(frozen=True)
class _Products:
    """All that the fit needs of the rows: products over them, [*g, n, n]."""

    own_w: Tensor  # B_wᵀ B_w
    own_r: Tensor  # B_rᵀ B_r
    cross_w: Tensor  # A_wᵀ B_w
    cross_r: Tensor  # A_rᵀ B_r


def _cost(data: _Products, m: Tensor) -> Tensor:
    """The objective without the norms of A; infinite where M has no inverse."""
    inverse, failed = torch.linalg.inv_ex(m)
    write = (m @ data.own_w - 2 * data.cross_w) * m
    read = (data.own_r @ inverse - 2 * data.cross_r.mT) * inverse
    found = write.sum((-2, -1)) + read.sum((-2, -1))
    return torch.where(failed == 0, found, torch.inf).nan_to_num(nan=torch.inf)


def _lower(data: _Products, m: Tensor, other: Tensor) -> Tensor:
    return torch.where((_cost(data, other) < _cost(data, m))[..., None, None], other, m)


def _newton_step(data: _Products, m: Tensor) -> Tensor:
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
