"""Laws of the margins where an alignment ended: planted pairs lead, equal ones tie."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.alignment.comparison import compare
from engine.alignment.heads import lead
from engine.alignment.margins import margins
from engine.alignment.sweeps import Descent, State
from engine.assignment import margins as leads
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.groups import SIGNED
from engine.questions import Align
from engine.scramble import scramble
from engine.symmetry import Symmetry, sample, words
from tests.test_widths import planted

CLEAR = 0.01
"""A margin of one of these small models that is none of rounding."""
ARCHITECTURES = ("gpt2", "llama_gqa", "mixtral", "opt", "qwen2_moe", "qwen3")
UNORDERED = ("rot", "qk", "val", "gain", "pool")


def task_of(a: Checkpoint, b: Checkpoint, **options: object) -> Descent:
    asked = Align(a.name, b.name, **{"sweeps": 2, **options})  # type: ignore[arg-type]
    return Descent(a, b, asked, words(a.family, ()) & a.family.carried(b.headers))


def at(g: Symmetry) -> State:
    """The end that a gauge is."""
    inner = dict(g.elements)
    res = inner.pop("res")
    assert isinstance(res, Ordered)
    return State(res, inner)


def still(a: Checkpoint, **changed: Ordered) -> State:
    """The end at which everything stays, but for some elements."""
    size = a.family.sizes(a.config)["res"]
    here = Ordered(torch.arange(size), torch.ones(size, dtype=torch.float64))
    found = {key.replace("_", "."): e for key, e in changed.items()}
    return State(found.pop("res", here), found)


def exchanged(size: int, first: int, second: int) -> Ordered:
    order = torch.arange(size)
    order[[first, second]] = order[[second, first]]
    return Ordered(order, torch.ones(size, dtype=torch.float64))


def with_equal_neurons(a: Checkpoint, folder: Path) -> Checkpoint:
    """Neurons 3 and 7 of layer 1 made the same, in everything that they read and write."""

    def tensor(name: str) -> Tensor:
        x, axes = a.read(name).clone(), str(a.family.row(name).axes)
        if a.family.row(name).layer == 1 and "ffn" in axes:
            x = x.movedim(-1, 0) if x.shape[0] != a.family.sizes(a.config)["ffn"] else x
            x[7] = x[3]
            x = x if x.shape == a.read(name).shape else x.movedim(0, -1)
        return x.contiguous()

    save_checkpoint(folder, ((n, tensor(n)) for n in a.headers), a)
    return open_checkpoint(folder)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_twin_put_back_leads_like_the_model_itself(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    """No change of coordinates moves a margin, and every planted pair has one."""
    a = open_checkpoint(built(architecture))
    scramble(a, tmp_path / "b", seed=3)
    b = open_checkpoint(tmp_path / "b").spelled_like(a)
    back = sample(a.family, a.config, torch.Generator().manual_seed(3)).inverse()
    own, found = margins(task_of(a, a), still(a)), margins(task_of(a, b), at(back))
    every = {key for key, name, _ in a.family.keys(a.config) if name not in UNORDERED}
    assert own.keys() == every & own.keys() == found.keys()
    assert {k.rpartition(".")[2] for k in own} >= {"res", "ffn", "grp"}
    assert ("exp" in a.family.free) == any(k.endswith("exp") for k in own)
    assert min(own.values()) > CLEAR
    assert [found[k] for k in own] == pytest.approx([*own.values()], rel=1e-3, abs=1e-5)


def test_a_twin_left_as_it_is_does_not_lead(built: Callable[[str], Path], tmp_path: Path) -> None:
    a = open_checkpoint(built("llama_gqa"))
    scramble(a, tmp_path / "b", seed=3)
    found = margins(task_of(a, open_checkpoint(tmp_path / "b")), still(a))
    assert max(found[key] for key in ("res", "layers.0.ffn", "layers.1.ffn")) < 0


@pytest.mark.parametrize("architecture", ["gpt2", "llama_gqa"])
def test_equal_neurons_tie_and_no_others(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    plain = open_checkpoint(built(architecture))
    a = with_equal_neurons(plain, tmp_path / "a")
    found, before = (margins(task_of(z, z), still(z)) for z in (a, plain))
    assert found["layers.1.ffn"] == pytest.approx(0, abs=1e-5)
    assert before["layers.1.ffn"] > CLEAR
    assert found["layers.0.ffn"] == pytest.approx(before["layers.0.ffn"])


def test_pairs_that_changed_places_trail(built: Callable[[str], Path]) -> None:
    """Where another is nearer than the chosen one, the margin says by how much: it is below 0."""
    a = open_checkpoint(built("llama_gqa"))
    size = a.family.sizes(a.config)
    wrong = margins(task_of(a, a), still(a, layers_0_ffn=exchanged(size["ffn"], 2, 5)))
    right = margins(task_of(a, a), still(a))
    assert wrong["layers.0.ffn"] < -CLEAR
    assert wrong["layers.1.ffn"] == pytest.approx(right["layers.1.ffn"])
    assert margins(task_of(a, a), still(a, res=exchanged(size["res"], 0, 1)))["res"] < -CLEAR


def test_a_sign_that_is_not_allowed_costs_the_margin(built: Callable[[str], Path]) -> None:
    a = open_checkpoint(built("llama_gqa"))
    assert a.family.coordinates["res"].group == SIGNED
    size = a.family.sizes(a.config)["res"]
    sign = torch.where(torch.arange(size) == 4, -1.0, 1.0).double()
    turned = still(a, res=Ordered(torch.arange(size), sign))
    assert margins(task_of(a, a), turned)["res"] > CLEAR
    assert margins(task_of(a, a, signs=False), turned)["res"] < -CLEAR


def test_the_margin_of_residual_coordinates_by_its_definition(built: Callable[[str], Path]) -> None:
    """|cosines| of all that a coordinate is written and read by, layer after layer."""
    a = open_checkpoint(built("llama_gqa"))
    task = task_of(a, a)
    rows = []
    for layer in task.layers():
        for name, x in task.pair(layer)[0].items():
            axes = [str(axis) for axis in a.family.row(name).axes]
            rows += [
                x.movedim(k, 0).flatten(1).double() for k, axis in enumerate(axes) if "res" in axis
            ]
    whole = torch.cat(rows, 1)
    unit = whole / whole.norm(dim=1, keepdim=True)
    cosines = (unit @ unit.mT).abs().numpy()
    assert margins(task, still(a))["res"] == pytest.approx(
        leads(cosines, np.arange(len(unit))).min(), rel=1e-4
    )


def test_the_margin_of_neurons_by_its_definition(built: Callable[[str], Path]) -> None:
    """Of ‖Δ gate‖² / mean + ‖Δ (up ⊗ down)‖² / mean, gains folded in, each product formed."""
    a = open_checkpoint(built("llama_gqa"))
    found = margins(task_of(a, a), still(a))
    for layer in range(2):
        name = f"model.layers.{layer}."
        gain = a.read(f"{name}post_attention_layernorm.weight").double()
        gate, up, down = (
            a.read(f"{name}mlp.{n}_proj.weight").double() for n in ("gate", "up", "down")
        )
        gate, product = gate * gain, (up * gain)[:, :, None] * down.T[:, None]
        gaps = [(x[:, None] - x).square().flatten(2).sum(-1) for x in (gate, product.flatten(1))]
        table = torch.stack([gap / gap.mean() for gap in gaps]).sum(0)
        least = table.fill_diagonal_(torch.inf).min()
        assert found[f"layers.{layer}.ffn"] == pytest.approx(float(least), rel=1e-4)


def test_the_margin_of_heads_is_the_gap_to_any_other_head_over_the_mean_cost() -> None:
    """Rows of the table are heads of A; the chosen ones may cost more than another: below 0."""
    rng = np.random.default_rng(0)
    for order, inner in (([1, 2, 0], [[1, 0], [0, 1], [1, 0]]), ([2, 1, 0], [[0, 1]] * 3)):
        table = rng.uniform(1, 2, (3, 2, 3, 2))
        gaps = []
        for g in range(3):
            for h in range(2):
                chosen = order[g], inner[g][h]
                others = [table[g, h, x, y] for x in range(3) for y in range(2) if (x, y) != chosen]
                gaps.append(min(others) - table[g, h][chosen])
        found = lead(table, np.array(order), np.array(inner))
        assert found == pytest.approx(min(gaps) / table.mean())
        assert found < 0
    table[range(3), :, [2, 1, 0]] -= 1 - np.eye(2)[None] * 1.0
    assert lead(table, np.array([2, 1, 0]), np.array([[1, 0]] * 3)) > 0


@pytest.mark.parametrize("change", [-6, 6])
def test_neurons_that_only_one_model_has_are_no_pairs(
    change: int, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    b = planted(a, tmp_path / "b", change).b
    report, _ = compare(a, b, Align(a.name, b.name, sweeps=1))
    found = {s.coordinate: s.margin for s in report.stages}
    assert found["ffn"] > CLEAR
    assert np.isfinite(found["ffn"])


def test_a_report_has_the_margins_of_its_end(built: Callable[[str], Path], tmp_path: Path) -> None:
    a = open_checkpoint(built("llama_gqa"))
    scramble(a, tmp_path / "b", seed=5)
    report, _ = compare(a, open_checkpoint(tmp_path / "b"), Align("", "", sweeps=1))
    for stage in report.stages:
        steps = [s.margin for s in report.steps if stage.coordinate in s.coordinates.split()]
        if stage.coordinate in UNORDERED:
            assert stage.margin is None
            assert set(steps) == {None}
        else:
            assert stage.margin > CLEAR
            assert min(steps) == stage.margin
