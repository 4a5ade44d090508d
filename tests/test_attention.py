"""Attention of two models: planted orders, angles and moduli come back, and what must not."""

import cmath
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import nll_loss

from engine.action import act
from engine.alignment.gauges import (
    balanced,
    factor_cost,
    fit_factor,
    fit_products,
    fit_unit,
    mixing_cost,
    procrustes,
    products,
)
from engine.alignment.one_pass import align, layer_tensors, start_from_embedding
from engine.alignment.stages import UNIT, head_terms, solve_heads
from engine.attention import orders
from engine.attention.counting import count
from engine.attention.pairs import Pair, inner, pair
from engine.attention.report import Steps, runners_up
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.cli import main
from engine.elements import Mixed, Ordered, Turned
from engine.errors import Refused, silent
from engine.groups import LINEAR
from engine.questions import Align, Heads, Turn
from engine.records import HeadCost, HeadsReport, LayerStage, Turns
from engine.scramble import scramble
from engine.slide import possible, slide
from engine.symmetry import Symmetry
from tests import tiny

Built = Callable[[str], Path]
SHAPES = (
    "llama_gqa", "gpt2", "gpt_neox", "qwen3", "olmo2", "gemma2", "bert_masked", "vit",
    "phi3_partial",
)  # fmt: skip
ANGLE = 1e-6


@pytest.fixture(scope="module")
def twins(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], HeadsReport]:
    """The report on a tiny model and its scrambled twin."""

    @cache
    def answer(architecture: str) -> HeadsReport:
        a = built(architecture)
        b = tmp_path_factory.mktemp("heads") / "twin"
        scramble(open_checkpoint(a), b, 1, (), silent)
        return Heads(str(a), str(b), layer=1, tokens=256).answer()

    return answer


@pytest.mark.parametrize("architecture", SHAPES)
def test_a_planted_pair_comes_back(architecture: str, twins: Callable[[str], HeadsReport]) -> None:
    """Order, every angle and every modulus, nothing left, first among all orders."""
    found = twins(architecture)
    assert found.right == 1
    assert found.same_weights == "exact"
    assert found.query_key[0].sum() > 0.1 * found.query_key_norm.sum()
    assert found.rank is not None
    assert found.rank.rank == 1
    assert found.rank.orders == count(found.groups, found.per_group)
    assert (found.margin > 0.05).all()
    if found.turns is None:
        assert found.qk_singular is not None
        assert found.used == "product"
        return
    assert found.turns.planted_angle is not None
    off = np.angle(np.exp(1j * (found.turns.angle - found.turns.planted_angle)))
    assert abs(off).max() < ANGLE
    assert abs(found.turns.log_modulus - found.turns.planted_log_modulus).max() < ANGLE
    assert found.turns.weight.sum(-1) == pytest.approx(np.ones(found.groups), rel=1e-5)


def test_norms_of_heads_leave_half_turns_and_scales(
    twins: Callable[[str], HeadsReport],
) -> None:
    found = twins("qwen3")
    assert found.turns is not None
    assert found.turns.half_turns
    assert set(np.round(abs(found.turns.angle), 6).ravel()) <= {0.0, round(math.pi, 6)}
    assert (found.turns.log_modulus == 0).all()
    assert found.query_scale == pytest.approx(np.ones(6), abs=1e-6)
    assert found.key_scale == pytest.approx(np.ones(3), abs=1e-6)


def factor(count: int, rows: int, seed: int = 0) -> tuple[Tensor, ...]:
    draw = torch.randn(
        4, count, rows, generator=torch.Generator().manual_seed(seed), dtype=torch.complex128
    )
    w_a, w_b, r_a, r_b = draw
    return (
        w_b.abs().square().sum(1), r_b.abs().square().sum(1),
        (w_b.conj() * w_a).sum(1), (r_b.conj() * r_a).sum(1),
    )  # fmt: skip


def lowest(statistic: tuple[Tensor, ...]) -> Tensor:
    """The objective on 401 moduli × 48 angles, then on the angle that is best for its modulus."""
    a, b, s, t = statistic
    centre = (b / a).log() / 4
    angles = torch.linspace(-math.pi, math.pi, 49, dtype=torch.float64)[1:]
    best = torch.full_like(a, torch.inf)
    for u in torch.linspace(-5, 5, 401, dtype=torch.float64):
        r = (centre + u).exp()
        pull = s * r + t / r
        flat = (pull[:, None] * torch.polar(torch.ones_like(angles), -angles)).real.amax(1)
        assert (flat <= pull.abs() + 1e-9).all()
        best = torch.minimum(best, a * r**2 + b / r**2 - 2 * pull.abs())
    return best


@pytest.mark.parametrize(("rows", "count"), [(1, 10_000), (2, 5_000), (3, 5_000)])
def test_the_global_minimum_is_found(rows: int, count: int) -> None:
    """On 20,000 instances no point of a dense grid over modulus and angle is lower."""
    statistic = factor(count, rows)
    a, b, *_ = statistic
    reached = factor_cost(*statistic, fit_factor(*statistic))
    assert ((reached - lowest(statistic)) / (a * b).sqrt()).max() < 1e-11


def test_brent_alone_misses_some() -> None:
    statistic = factor(1_500, 1)
    reached = factor_cost(*statistic, fit_factor(*statistic)).numpy()
    a, b, s, t = (x.numpy() for x in statistic)

    def along(i: int) -> float:
        def value(u: float) -> float:
            r = np.exp(u)
            return a[i] * r * r + b[i] / (r * r) - 2 * abs(s[i] * r + t[i] / r)

        return minimize_scalar(value, method="brent").fun

    brent = np.array([along(i) for i in range(len(a))])
    assert (reached <= brent + 1e-9 * (a + b)).all()
    assert (brent > reached + 1e-3).sum() > 10


def test_two_valleys_of_nearly_the_same_depth() -> None:
    """Where s r + t / r nearly vanishes both valleys lie close together, and equal to the eye."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 5_000, generator=generator, dtype=torch.float64) + 0.1
    s = torch.randn(5_000, generator=generator, dtype=torch.complex128) * 0.3
    noise = 1e-3 * torch.randn(5_000, generator=generator, dtype=torch.complex128)
    statistic = (a, b, s, -s * (b / a).sqrt() * (1 + noise))
    reached = factor_cost(*statistic, fit_factor(*statistic))
    assert ((reached - lowest(statistic)) / (a * b).sqrt()).max() < 1e-12


def test_turns_alone_are_the_best_turns_but_no_more() -> None:
    a, b, s, t = factor(500, 3)
    unit, full = fit_unit(s, t), fit_factor(a, b, s, t)
    assert torch.allclose(unit.abs(), torch.ones_like(a))
    for seed in range(4):
        step = torch.rand(500, generator=torch.Generator().manual_seed(seed)).double()
        turned = unit * torch.polar(torch.ones_like(a), step)
        assert (factor_cost(a, b, s, t, turned) >= factor_cost(a, b, s, t, unit)).all()
    assert (factor_cost(a, b, s, t, full) <= factor_cost(a, b, s, t, unit) + 1e-12).all()


def noisy(a: Checkpoint, folder: Path, noise: float) -> Checkpoint:
    """A scrambled in its heads, with noise relative to each tensor's spread."""
    g = planted(a)
    generator = torch.Generator().manual_seed(5)

    def moved(name: str) -> Tensor:
        x = act(g, name, a.read)
        return x + noise * x.std() * torch.randn(x.shape, generator=generator)

    save_checkpoint(folder, ((n, moved(n)) for n in a.headers), a)
    return open_checkpoint(folder)


def planted(a: Checkpoint) -> Symmetry:
    from engine.symmetry import sample

    return sample(a.family, a.config, torch.Generator().manual_seed(3), ("heads", "rot", "val"))


def test_the_error_of_angles_scales_with_the_noise(built: Built, tmp_path: Path) -> None:
    a = open_checkpoint(built("llama_gqa"))
    errors = {}
    for noise in (0.01, 0.005, 0.001):
        b = noisy(a, tmp_path / str(noise), noise)
        found = Heads(a.name, str(b.folder), using="weights").answer()
        g = replace(planted(a), source=a.fingerprint, target=b.fingerprint).inverse()
        z = g.elements["layers.0.rot"].numbers()
        assert found.turns is not None
        off = np.angle(np.exp(1j * (found.turns.angle - z["angle"].numpy())))
        size = found.turns.log_modulus - z["log_scale"].numpy()
        errors[noise] = float(np.sqrt(np.mean(off**2 + size**2)))
    assert errors[0.01] < 0.01
    assert errors[0.01] / errors[0.005] == pytest.approx(2, rel=0.1)
    assert errors[0.01] / errors[0.001] == pytest.approx(10, rel=0.2)


def in_layer(a: Checkpoint, b: Checkpoint, layer: int = 0) -> Pair:
    return pair(a, b, Heads(a.name, b.name, layer), silent)


SCOPES = [
    (scope, i, j, every * number)
    for scope, every in (("first-attention", 0), ("all-attention", 1))
    for number, (i, j) in enumerate(itertools.combinations(range(1, 5), 2))
]
"""Two models of one scope and a layer that was drawn anew: every pair, and every layer once."""


@cache
def redrawn(scope: str, i: int, j: int, layer: int) -> tuple[Pair, Pair]:
    """The layer of both as it is, and with B's heads in A's order."""
    a, b = (open_checkpoint(f"demo:scope-{scope}-{number}") for number in (i, j))
    both = pair(a, b, Heads(a.name, b.name, layer, using="weights"), silent)
    found = solve_heads(both.family, both.sizes, both.theirs, both.mine).elements
    return both, both.with_order(found["grp"], found["head"])


def by_group(steps: Steps) -> np.ndarray:
    """Both objectives of every key/value head, [term, step, grp]: its query heads together."""
    both = np.stack([steps.query_key, steps.value_output])
    return both.reshape(2, both.shape[1], 2, -1).sum(-1)


@pytest.mark.parametrize(("scope", "i", "j", "layer"), SCOPES)
def test_each_step_of_stage_2_helps_every_key_value_head(
    scope: str, i: int, j: int, layer: int
) -> None:
    """Full < orthogonal only < none for each: its query heads share one turn and one matrix.

    Without the inverse where a matrix is read, or with turns of the wrong sign, it does not hold.
    """
    both, ordered = redrawn(scope, i, j, layer)
    unit, full = (inner(ordered, kind) for kind in ("orthogonal", "full"))
    steps = Steps.of([both, ordered, ordered.after(unit), ordered.after(full)])
    assert (np.diff(by_group(steps)[:, 1:], axis=1) < 0).all()
    turns, matrix = full["rot"], full["val"]
    assert isinstance(turns, Turned)
    wrong = {"rot": replace(turns, z=-turns.z), "val": matrix.inverse()}
    broken = by_group(Steps.of([both, ordered, ordered.after(unit), ordered.after(wrong)]))
    assert (np.diff(broken[:, 2:], axis=1) > 0).all()


def test_a_single_query_head_may_lose_what_its_group_wins() -> None:
    """6 of 252 heads of all demo pairs do, where turns alone are solved: by up to 3 %."""
    both, ordered = redrawn("all-attention", 1, 4, 5)
    turned = Steps.of([both, ordered, ordered.after(inner(ordered, "orthogonal"))])
    gain = np.diff(turned.query_key[1:], axis=0)[0] / turned.query_key[1]
    assert 0 < gain.max() < 0.03
    assert (np.diff(by_group(turned)[0, 1:], axis=0) < 0).all()


def test_the_chosen_order_leaves_what_stage_2_leaves() -> None:
    both, ordered = redrawn("first-attention", 1, 2, 0)
    found = orders.orders(both)
    assert found is not None
    heads = solve_heads(both.family, both.sizes, both.theirs, both.mine).elements
    left = by_group(Steps.of([both, ordered.after(inner(ordered, "full"))]))[:, 1].sum()
    assert found.cost[found.find(heads["grp"], heads["head"])] == pytest.approx(left, rel=1e-4)


def test_all_orders_are_ranked_by_what_stage_2_leaves() -> None:
    """Each order's parts solved apart give what Stage 2 gives on the whole layer."""
    a, b = open_checkpoint("demo:base"), open_checkpoint("demo:scope-all-attention-2")
    both = in_layer(a, b)
    found = orders.orders(both)
    assert found is not None
    assert len(found.cost) == 72
    for number in (0, 17, 71):
        outer, deep = orders.elements(both, found, number)
        assert found.find(outer["grp"], outer["head"]) == number
        after = both.after(outer).after(deep)
        steps = Steps.of([both, after])
        total = steps.query_key[1].sum() + steps.value_output[1].sum()
        assert found.cost[number] == pytest.approx(total, rel=1e-5)


def gauged(a: Checkpoint, kind: str) -> dict[str, Tensor]:
    """Layer 0 with one head's q and k mixed by a matrix, or their pairs exchanged."""
    tensors = layer_tensors(a, 0)
    width = a.family.sizes(a.config)["rot"]
    element = LINEAR.sample(width, (), torch.Generator().manual_seed(0))
    if kind == "pairs":
        order = torch.arange(width).reshape(2, -1)[:, torch.tensor([1, 0, *range(2, width // 2)])]
        element = Mixed(torch.eye(width, dtype=torch.float64)[order.flatten()])
    for word, move in (("q_proj", element.write), ("k_proj", element.read)):
        name = next(n for n in tensors if n.endswith(f"{word}.weight"))
        x = tensors[name].double().unflatten(0, (-1, width)).mT.contiguous()
        tensors[name] = move(x).mT.flatten(0, 1)
    return tensors


@pytest.mark.parametrize("kind", ["matrix", "pairs"])
def test_the_published_cost_takes_different_rotary_heads_for_equal(kind: str) -> None:
    """M = W_qᵀ W_k stays under GL and under an order of pairs; what a rotated head computes not."""
    a = open_checkpoint("demo:base")
    sizes = a.family.sizes(a.config)
    x, y = layer_tensors(a, 0), gauged(a, kind)
    costs = {}
    for own in (False, True):
        term = head_terms(a.family, sizes, x, y, own=own)[0].flatten(2).flatten(0, 1)
        costs[own] = term.diagonal() / term.mean()
    assert costs[False].abs().max() < 1e-5
    assert costs[True].min() > 0.02


@pytest.mark.parametrize("architecture", ["llama_gqa", "gpt2", "gpt_neox", "vit", "qwen3"])
def test_the_cost_does_not_see_the_gain_of_the_norm(architecture: str, built: Built) -> None:
    """γ c against W / c changes the weights of readers; folded in, it changes no cost."""
    a = open_checkpoint(built(architecture))
    sizes = a.family.sizes(a.config)
    blind = next(x for x in possible(a.family, a.config, a.headers) if x.name == "att")
    generator = torch.Generator().manual_seed(0)
    read = slide(a.family, a.config, blind, a.read, generator, a.headers)
    x = layer_tensors(a, 0)
    y = {n: read(n) for n in x}
    assert any(not torch.equal(x[n].double(), y[n].double()) for n in x)
    same, moved = (
        head_terms(a.family, sizes, x, z, own=True)[0].flatten(2).flatten(0, 1) for z in (x, y)
    )
    assert torch.allclose(same, moved, rtol=1e-4, atol=float(same.mean()) * 1e-4)
    plain = head_terms(a.family, sizes, x, y, own=False)[0].flatten(2).flatten(0, 1)
    assert plain.diagonal().abs().max() > 1e-3 * plain.mean()


def test_exchanged_groups_keep_their_keys(tmp_path: Path) -> None:
    """The report case: 4 query heads, 2 kv heads, groups exchanged; cosine 1 on k_proj and all.

    Moving query heads without their keys, or taking the order for the identity, does not give it.
    """
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    a = open_checkpoint(tiny.build("llama_gqa", tmp_path / "a", **heads))
    swap = Ordered(torch.tensor([1, 0]), torch.ones(2, dtype=torch.float64))
    exchange = Symmetry(a.family, a.config, {f"layers.{n}.grp": swap for n in range(a.layers)})
    save_checkpoint(tmp_path / "b", ((n, act(exchange, n, a.read)) for n in a.headers), a)
    b = open_checkpoint(tmp_path / "b")
    g, _ = align(a, b, start_from_embedding(a, b))
    for layer in range(a.layers):
        order = g.elements[f"layers.{layer}.grp"].numbers()["permutation"]
        assert order.tolist() == [1, 0]
        inside = g.elements[f"layers.{layer}.head"].numbers()["permutation"]
        assert inside.tolist() == [[0, 1], [0, 1]]
    cosine = {n: alike(a.read(n), act(g, n, b.read)) for n in a.headers if "self_attn" in n}
    still = {n: alike(a.read(n), b.read(n)) for n in cosine}
    words = {name.split(".")[-2] for name in cosine}
    assert words == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert cosine == pytest.approx(dict.fromkeys(cosine, 1.0), abs=1e-6)
    assert max(still.values()) < 0.9  # the identity, and keys and values left behind


def alike(x: Tensor, y: Tensor) -> float:
    """Cosine of two tensors."""
    x, y = x.double().flatten(), y.double().flatten()
    return float(x @ y / (x.norm() * y.norm()))


def rows_of(seed: int, noise: float = 0.0, shear: float = 1.0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    w, r = torch.randn(2, 3, 40, 8, generator=generator, dtype=torch.float64)
    m = LINEAR.sample(8, (3,), generator).matrix
    m = m + (shear - 1) * torch.eye(8)
    more = noise * torch.randn(2, 3, 40, 8, generator=generator, dtype=torch.float64)
    return w @ m.mT + more[0], w, r @ torch.linalg.inv(m) + more[1], r


def test_balanced_heads_find_a_planted_matrix_and_rotations_do_not() -> None:
    data = products(*rows_of(0))
    norm = sum(x.diagonal(dim1=-2, dim2=-1).sum(-1) for x in (data.a_w, data.a_r))
    assert ((mixing_cost(data, balanced(data)) + norm) / norm).max() < 1e-10
    assert ((mixing_cost(data, procrustes(data)) + norm) / norm).min() > 0.05


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_refinement_is_no_worse_than_any_start(noise: float) -> None:
    data = products(*rows_of(1, noise))
    full = mixing_cost(data, fit_products(data))
    for start in (procrustes, balanced):
        assert (full <= mixing_cost(data, start(data)) + 1e-9).all()
    rough = fit_products(data, ("orthogonal",), steps=0)
    assert torch.allclose(rough, procrustes(data))


def test_variants_of_stage_2_are_options_of_an_alignment() -> None:
    a, b = open_checkpoint("demo:base"), open_checkpoint("demo:scope-first-attention-2")
    start = start_from_embedding(a, b)
    left, words = {}, {}
    for stage2 in ("none", "orthogonal", "full"):
        steps: list[LayerStage] = []
        g, _ = align(a, b, start, stage2=stage2, told=steps.append)
        words[stage2] = {key.rpartition(".")[2] for key in g.elements}
        mine = {n: act(g, n, b.read) for n in layer_tensors(b, 0)}
        gap = sum(float((mine[n] - x).square().sum()) for n, x in layer_tensors(a, 0).items())
        left[stage2] = gap
        assert {s.layer for s in steps} >= set(range(a.layers))
        here = [s for s in steps if s.layer == 0]
        assert all(s.after <= s.before + 1e-6 for s in here if s.coordinates in UNIT)
    assert words["none"] == {"res", "ffn", "grp", "head"}
    assert words["orthogonal"] == words["full"] == {"res", "ffn", "grp", "head", "rot", "val"}
    assert left["full"] < left["orthogonal"] < left["none"]


def test_an_answer_stored_before_an_option_came_is_still_found() -> None:
    plain = Align("demo:base", "demo:twin")
    assert plain.key == replace(plain, stage2="full").key
    assert plain.key != replace(plain, stage2="none").key


def test_the_objective_is_a_function_of_what_the_record_holds() -> None:
    """‖q_A − z q_B‖² + ‖k_A − k_B / z̄‖², by hand, at any angle and modulus."""
    draw = np.random.default_rng(0)
    q_a, q_b, k_a, k_b = draw.normal(size=(4, 30, 2)) @ np.array([1, 1j])

    def parts(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = (x.conj() * y).sum()
        return np.array([[[found.real, found.imag]]])

    power = [np.array([[(abs(x) ** 2).sum()]]) for x in (q_a, q_b, k_a, k_b)]
    turns = Turns(
        np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1), np.float32), power[1], power[3],
        parts(q_b, q_a), parts(k_b, k_a), power[0] + power[2], False, None, None,
    )  # fmt: skip
    for angle, log in ((0.0, 0.0), (1.0, 0.5), (-2.0, -1.0)):
        z = np.exp(log + 1j * angle)
        by_hand = (abs(q_a - z * q_b) ** 2).sum() + (abs(k_a - k_b / z.conj()) ** 2).sum()
        assert float(turns.objective(0, 0, angle, log)) == pytest.approx(by_hand)
    assert turns.objective(0, 0, np.linspace(-3, 3, 7), 0.1).shape == (7,)


Change = Callable[[dict[str, Tensor]], None]
LAYER = "model.layers.1.self_attn.{}.weight"


def rewritten(folder: Path, target: Path, change: Change) -> Path:
    """A copy of a checkpoint with some tensors changed."""
    shutil.copytree(folder, target)
    held = {name: x.clone() for name, x in tiny.tensors(folder).items()}
    change(held)
    tiny.save_file(held, target / "model.safetensors", {"format": "pt"})
    return target


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of the ids that `said` runs on."""
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    path.write_text(json.dumps(tiny.tokens().tolist()))
    return str(path)


def said(folder: Path, changed: Mapping[str, Tensor]) -> tuple[Tensor, float]:
    """log p of transformers' own model with some tensors changed, and its next-token loss."""
    here = tiny.network(folder)
    parameters = here.parameters({**tiny.tensors(folder), **changed})
    with torch.no_grad():
        found = functional_call(here.model, parameters, (), {"input_ids": tiny.tokens()})
    log_p = found.logits.log_softmax(-1)
    return log_p, float(nll_loss(log_p[:, :-1].flatten(0, 1), tiny.tokens()[:, 1:].flatten()))


def mean_kl(p: Tensor, q: Tensor) -> float:
    """KL(p ‖ q) over positions, by the formula."""
    return float((p.exp() * (p - q)).sum(-1).mean())


def spun(held: dict[str, Tensor], z: complex, group: int, frequency: int) -> dict[str, Tensor]:
    """q → z q and k → k / z̄ on one frequency of one key/value head (halves: f and f + 2)."""
    found = {}
    for word, factor, heads in (
        ("q", z, (2 * group, 2 * group + 1)),
        ("k", 1 / z.conjugate(), (group,)),
    ):
        x = held[LAYER.format(f"{word}_proj")].double()
        for head in heads:
            first, second = 4 * head + frequency, 4 * head + frequency + 2
            turned = factor * (x[first].numpy() + 1j * x[second].numpy())
            x[first], x[second] = torch.from_numpy(turned.real), torch.from_numpy(turned.imag)
        found[LAYER.format(f"{word}_proj")] = x
    return found


@pytest.mark.parametrize("angle", [70.0, -70.0])
def test_an_angle_set_by_hand_turns_b_to_its_side(
    angle: float, built: Built, tmp_path: Path, ids: str
) -> None:
    """B is A with one frequency at 1 / z, z = 1.4 e^{+70° i}: z brings it back, and z̄ does not."""
    folder = built("llama_gqa")
    z, by_hand = (cmath.rect(1.4, math.radians(x)) for x in (70.0, angle))
    b = rewritten(folder, tmp_path / "b", lambda held: held.update(
        {n: x.float() for n, x in spun(held, 1 / z, 1, 1).items()}
    ))  # fmt: skip
    how = {"text": ids, "dtype": "float64"}
    found = Turn(str(folder), str(b), 1, 1, 1, angle=angle, modulus=1.4, **how).answer()
    own, held = tiny.tensors(folder), tiny.tensors(b)
    turned = spun(held, by_hand, 1, 1)
    gap = {n: (own[n].double() - x).square().sum() for n, x in turned.items()}
    middle, loss = said(folder, {n: (own[n].double() + x) / 2 for n, x in turned.items()})
    before, least = said(folder, {})
    assert found.objective == pytest.approx(float(sum(gap.values())), rel=1e-5, abs=1e-6)
    assert found.midpoint == pytest.approx(float((middle - before).abs().max()), rel=1e-4, abs=1e-5)
    assert found.midpoint_loss == pytest.approx(loss, abs=1e-6)
    assert found.midpoint_loss_best == pytest.approx(least, abs=1e-6)
    assert (found.best, found.midpoint_best) == pytest.approx((0, 0), abs=1e-5)
    turns = Heads(str(folder), str(b), 1).answer().turns
    assert turns is not None
    assert turns.angle[1, 1] == pytest.approx(math.radians(70), abs=1e-5)
    assert turns.log_modulus[1, 1] == pytest.approx(math.log(1.4), abs=1e-5)
    assert found.verdict == "exact"
    assert (found.angle, found.log_modulus) == (math.radians(angle), math.log(1.4))
    assert (found.objective < 1e-6) == (found.midpoint < 1e-5) == (angle > 0)
    if angle < 0:
        assert found.objective > 0.5
        assert found.midpoint > 0.05
        assert abs(loss - least) > 1e-3


def test_the_angle_that_is_found_is_the_best_to_set_by_hand(
    built: Built, tmp_path: Path, ids: str
) -> None:
    """In a twin whose residual coordinates moved too; B itself stays at any angle."""
    a, b = str(built("llama_gqa")), tmp_path / "twin"
    scramble(open_checkpoint(a), b, 1, (), silent)
    turns = Heads(a, str(b), 1).answer().turns
    assert turns is not None
    group, frequency = divmod(int(abs(np.sin(turns.angle)).argmax()), 2)
    angle, log = (x[group, frequency] for x in (turns.angle, turns.log_modulus))
    assert abs(np.sin(angle)) > 0.5  # neither sign is the other
    base = Turn(a, str(b), 1, group, frequency, modulus=math.exp(log), text=ids)
    best, other = (replace(base, angle=sign * math.degrees(angle)).answer() for sign in (1, -1))
    assert best.objective == pytest.approx(best.best, abs=1e-5)
    assert (best.midpoint, best.midpoint_best) == pytest.approx((0, 0), abs=1e-4)
    assert best.midpoint_loss == pytest.approx(best.midpoint_loss_best, abs=1e-6)
    assert other.objective > best.best + 0.1
    assert other.midpoint > 0.01
    assert (best.verdict, other.verdict) == ("exact", "exact")


def reordered(held: dict[str, Tensor]) -> None:
    """B's key/value heads are A's 1, 2, 0, and in each the two query heads are exchanged."""
    heads = torch.tensor([3, 2, 5, 4, 1, 0])
    q, k, v, o = (LAYER.format(f"{word}_proj") for word in "qkvo")
    held[q] = held[q].unflatten(0, (6, 4))[heads].flatten(0, 1)
    held[o] = held[o].unflatten(1, (6, 4))[:, heads].flatten(1, 2)
    for name in (k, v):
        held[name] = held[name].unflatten(0, (3, 4))[[1, 2, 0]].flatten(0, 1)


def test_order_and_distances_of_heads_moved_by_hand(built: Built, tmp_path: Path, ids: str) -> None:
    """A cycle of three, so that an order and its inverse differ; every number by its formula."""
    folder = built("llama_gqa")
    b = rewritten(folder, tmp_path / "b", reordered)
    found = Heads(str(folder), str(b), 1, text=ids, dtype="float64").answer()
    assert found.order.tolist() == [5, 4, 1, 0, 3, 2]  # B's head at each of A's
    assert found.group_order.tolist() == [2, 0, 1]
    own, other = (
        {word: x[LAYER.format(f"{word}_proj")].double() for word in "qkvo"}
        for x in (tiny.tensors(folder), tiny.tensors(b))
    )

    def each(x: dict[str, Tensor], y: dict[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """‖·‖² of every query head, keys and values shared out between the two of a group."""
        gap = {n: (x[n] - (0 if y is None else y[n])).square() for n in x}
        q, k, v = (gap[n].unflatten(0, (-1, 4)).sum((1, 2)) for n in "qkv")
        o = gap["o"].unflatten(1, (-1, 4)).sum((0, 2))
        return q + k.repeat_interleave(2) / 2, o + v.repeat_interleave(2) / 2

    for stored, norm, gap, size in zip(
        (found.query_key, found.value_output), (found.query_key_norm, found.value_output_norm),
        each(own, other), each(own), strict=True,
    ):  # fmt: skip
        assert stored[0] == pytest.approx(gap.numpy(), rel=1e-5)
        assert norm == pytest.approx(size.numpy(), rel=1e-5)
        assert np.abs(stored[1:]).max() < 1e-6 * stored[0].min()
    halves = {LAYER.format(f"{n}_proj"): (own[n] + other[n]) / 2 for n in own}
    assert found.rank is not None
    assert (found.rank.orders, found.rank.rank) == (48, 1)
    assert found.rank.midpoint_loss is not None
    chosen, least, stored = found.rank.midpoint_loss
    assert stored == pytest.approx(said(folder, halves)[1], abs=1e-6)
    assert chosen == pytest.approx(said(folder, {})[1], abs=1e-6)
    assert least < stored
    share = 100 * (chosen - least) / (stored - least)
    assert found.rank.midpoint_excess == pytest.approx(share, rel=1e-6)


def test_costs_of_all_pairs_of_heads_are_those_of_their_large_matrices(
    built: Built, tmp_path: Path
) -> None:
    """Rows are A's heads: Σ_f ‖ΔM_f‖² over complex M_f, ‖ΔM̄‖² as published, ‖ΔN‖² beside both."""
    folder = built("llama_gqa")
    draw = torch.Generator().manual_seed(3)

    def moved(held: dict[str, Tensor]) -> None:
        reordered(held)
        for name in (LAYER.format(f"{word}_proj") for word in "qkvo"):
            held[name] += 0.1 * torch.randn(held[name].shape, generator=draw)

    b = rewritten(folder, tmp_path / "b", moved)
    found = Heads(str(folder), str(b), 1, dtype="float64").answer()
    gain = tiny.tensors(folder)["model.layers.1.input_layernorm.weight"].double().numpy()

    def matrices(x: Mapping[str, Tensor], head: int) -> tuple[np.ndarray, ...]:
        """M_f and N with the norm's gain on what reads the stream; M̄ and N without."""
        q, k, v = (x[LAYER.format(f"{n}_proj")].double().numpy() for n in "qkv")
        o = x[LAYER.format("o_proj")].double().numpy()[:, 4 * head :][:, :4]
        q, k, v = q[4 * head :][:4], k[4 * (head // 2) :][:4], v[4 * (head // 2) :][:4]
        turning = [
            np.outer((q[f] + 1j * q[f + 2]) * gain, ((k[f] + 1j * k[f + 2]) * gain).conj())
            for f in (0, 1)
        ]
        m = q.T @ k
        return np.stack(turning), (o @ v) * gain, m - m.mean(1, keepdims=True), o @ v

    own, other = ([matrices(tiny.tensors(x), head) for head in range(6)] for x in (folder, b))
    tables = [[[(abs(x[n] - y[n]) ** 2).sum() for y in other] for x in own] for n in range(4)]
    assert found.own.kind == "rotary"
    for table, wanted in zip(
        (found.own.query_key, found.own.value_output,
         found.published.query_key, found.published.value_output), tables, strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(table, wanted, rtol=1e-5)
    np.testing.assert_allclose(found.own.balance, [np.mean(x) for x in tables[:2]], rtol=1e-5)
    assert found.published.balance == (1, 1)
    best = np.array(tables[0]) / np.mean(tables[0]) + np.array(tables[1]) / np.mean(tables[1])
    np.testing.assert_allclose(found.own.total, best, rtol=1e-5)
    assert found.order.tolist() == best.argmin(1).tolist() == [5, 4, 1, 0, 3, 2]


def test_singular_values_are_of_the_matrix_that_b_is_mixed_by(built: Built, tmp_path: Path) -> None:
    """B's values are M⁻¹ of A's: what takes them back is M and not its inverse, largest first."""
    folder = built("llama_gqa")
    m = (
        np.diag([4.0, 2.0, 1.0, 0.5])
        @ np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]
    )

    def mixed(held: dict[str, Tensor]) -> None:
        v, o = (held[LAYER.format(f"{word}_proj")] for word in "vo")
        v[4:8] = torch.from_numpy(np.linalg.inv(m)).float() @ v[4:8]
        for head in (2, 3):
            here = slice(4 * head, 4 * head + 4)
            o[:, here] = o[:, here] @ torch.from_numpy(m).float()

    found = Heads(str(folder), str(rewritten(folder, tmp_path / "b", mixed)), 1).answer()
    assert found.val_singular[1] == pytest.approx([4, 2, 1, 0.5], rel=1e-3)
    assert found.val_singular[[0, 2]] == pytest.approx(np.ones((2, 4)), rel=1e-3)


def test_the_next_best_partner_and_its_distance_are_read_off_the_table() -> None:
    table = np.array([[5, 1, 3], [2, 9, 6], [7, 4, 2]], np.float32)
    none = np.zeros((3, 3), np.float32)
    second, margin = runners_up(
        HeadCost("product", 2 * table, none, (2, 1)), torch.tensor([1, 0, 2])
    )
    assert second.tolist() == [2, 2, 1]
    assert margin == pytest.approx(np.array([2, 4, 2]) * 9 / 39)


def test_an_order_is_ranked_by_how_many_are_better() -> None:
    """L̂ = 100 (L − L_best) / (L_naive − L_best); equal to 1e-9 of what was there is a tie."""
    costs = np.array([3.0, 1.0, 2.0 + 1e-10, 2.0, 7.0])
    found = [
        orders.ranked(None, place, orders.Orders(None, costs), 5.0, None) for place in range(5)
    ]
    assert [one.rank for one in found] == [4, 1, 2, 2, 5]
    assert [one.excess for one in found] == pytest.approx([50, 0, 25, 25, 150])
    assert {one.orders for one in found} == {5}
    still = orders.ranked(None, 0, orders.Orders(None, np.ones(2)), 1.0, None)
    assert (still.rank, still.excess) == (1, None)


CUTS = {
    "gpt2": ("transformer.h.1.attn.c_proj.weight", 0, 8),
    "llama_gqa": ("model.layers.1.self_attn.o_proj.weight", 1, 4),
}
"""Where transformers reads what the heads say: the tensor, its axis over heads, channels of one."""


@pytest.mark.parametrize("architecture", CUTS)
def test_without_a_head_is_with_zeros_where_it_is_read(
    architecture: str, built: Built, ids: str
) -> None:
    """KL(A ‖ A without the head) of every query head, in its own place."""
    folder = built(architecture)
    found = Heads(str(folder), str(folder), 1, text=ids, dtype="float64").answer()
    name, axis, wide = CUTS[architecture]
    whole, _ = said(folder, {})
    there, back = [], []
    for head in range(found.heads):
        x = tiny.tensors(folder)[name].clone()
        x.narrow(axis, head * wide, wide).zero_()
        cut, _ = said(folder, {name: x})
        there.append(mean_kl(whole, cut))
        back.append(mean_kl(cut, whole))
    assert found.removal == pytest.approx(np.array(there), rel=1e-5)
    assert np.abs(np.array(back) / there - 1).max() > 0.01
    assert np.diff(sorted(there)).min() > 1e-3 * max(there)


def test_one_model_against_itself(built: Built) -> None:
    path = str(built("gpt2"))
    found = Heads(path, path).answer()
    assert found.same_model
    assert found.using == "identity"
    assert found.order.tolist() == [0, 1, 2]
    assert (found.second != found.order).all()
    assert found.removal is not None
    assert (found.removal > 0).all()


REFUSALS = {
    "layer": (
        Heads("demo:base", "demo:twin", layer=6),
        "There is no layer 6: demo:base has 0 to 5.",
    ),
    "cost": (
        Heads("demo:gpt2", "demo:gpt2", cost="rotary"),
        (
            "--cost rotary needs rotary frequencies, and demo:gpt2 (GPT-2) has none: use auto or "
            "published."
        ),
    ),
    "group": (
        Turn("demo:base", "demo:twin", group=2),
        "There is no group 2: layer 0 of demo:base has 0 to 1.",
    ),
    "modulus": (
        Turn("demo:base", "demo:twin", modulus=0.0),
        "--modulus 0: a modulus is a positive number.",
    ),
    "half turns": (
        Turn("demo:qwen3", "demo:qwen3"),
        (
            "demo:qwen3 (Qwen3) has no rotary frequency that may turn freely: see `heads` for what "
            "its heads may do."
        ),
    ),
}


@pytest.mark.parametrize(("asked", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_not_there_is_refused(asked: Heads | Turn, message: str) -> None:
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        asked.answer()


def test_the_command_line_says_what_the_record_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heads", "demo:gpt2", "demo:gpt2", "--layer", "1"]) == 0
    printed = capsys.readouterr().out
    assert "layer 1 of GPT-2: 6 heads in 6 groups, product cost" in printed
    assert "rank 1 of 720 orders by the objective" in printed
    assert "without it KL" in printed
    assert main(["heads", "demo:gpt2", "demo:gpt2", "--stage2", "none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stage2"], found["order"]) == ("none", list(range(6)))
    assert np.array(found["own"]["query_key"]).shape == (6, 6)
    turn = ["turn", "demo:base", "demo:twin", "--frequency", "3", "--angle", "30"]
    assert main([*turn, "--count", "256"]) == 0
    assert "B itself moved by" in capsys.readouterr().out
