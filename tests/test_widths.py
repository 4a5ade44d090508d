"""FFNs of two widths: every neuron that both have is found, and B stays the function that it is."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import network
from engine.action import act
from engine.alignment.comparison import compare
from engine.alignment.one_pass import align, start_from_embedding
from engine.alignment.sweeps import Descent, descend
from engine.alignment.widths import Facing, increasing, own_order, placed
from engine.checkpoint import Checkpoint, open_checkpoint, require_same_group, save_checkpoint
from engine.elements import Ordered
from engine.errors import Refused
from engine.questions import Align
from engine.running import at_random, logits
from engine.symmetry import Symmetry, sample, words
from tests import tiny

ATTRIBUTE = {"gpt2": "n_inner", "opt": "ffn_dim"}
ARCHITECTURES = ("gpt2", "llama_gqa", "opt", "phi3")
MORE = 6


@dataclass(frozen=True)
class Planted:
    """B, and for each of its neurons which of A's it is (−1: of its own) and its factor."""

    b: Checkpoint
    partner: tuple[Tensor, ...]
    factor: tuple[Tensor, ...]


def planted(a: Checkpoint, folder: Path, change: int, *, exchanged: bool = False) -> Planted:
    """A scrambled, neurons of each layer added or left out; `exchanged`: of the other layer."""
    draw = torch.Generator().manual_seed(4)
    g = sample(a.family, a.config, draw)
    sizes = a.family.sizes(a.config)
    width = sizes["ffn"]
    places, partner, factor = [], [], []
    for layer in range(a.layers):
        own = torch.randperm(width, generator=draw)
        one = own[:change] if change < 0 else torch.cat([own, torch.full((change,), -1)])
        one = one[torch.randperm(len(one), generator=draw)]
        element = g.elements[f"layers.{layer}.ffn"]
        assert isinstance(element, Ordered)
        places.append(one)
        partner.append(torch.where(one < 0, -1, element.permutation[one.clamp(min=0)]))
        factor.append(torch.where(one < 0, 1.0, element.scale[one.clamp(min=0)]))

    def tensor(name: str) -> Tensor:
        layer = a.family.row(name).layer
        source = name
        if exchanged and layer is not None and "ffn" in str(a.family.row(name).axes):
            start, stop = a.family.span(name, "l")
            source = f"{name[:start]}{1 - layer}{name[stop:]}"
        x = act(g, source, a.read)
        if layer is None:
            return x
        empty = placed(a.family, sizes, name, torch.ones_like(x), places[layer]) == 0
        noise = 0.3 * torch.randn(empty.shape, generator=draw)
        return torch.where(empty, noise, placed(a.family, sizes, name, x, places[layer]))

    size = ATTRIBUTE.get(str(a.config["model_type"]), "intermediate_size")
    config = {**a.config, size: width + change}
    save_checkpoint(folder, ((n, tensor(n)) for n in a.headers), a, config=config)
    return Planted(open_checkpoint(folder), tuple(partner), tuple(factor))


def swept(a: Checkpoint, b: Checkpoint, **options: object) -> tuple[Symmetry, float]:
    asked = Align(a.name, b.name, **{"sweeps": 3, **options})  # type: ignore[arg-type]
    chosen = words(a.family, asked.only) & a.family.carried(b.headers)
    g, rows = descend(Descent(a, b, asked, chosen), {"embedding": start_from_embedding(a, b)})
    return g, rows[-1].after


def once(a: Checkpoint, b: Checkpoint) -> tuple[Symmetry, float]:
    return align(a, b, start_from_embedding(a, b))[0], 0.0


def right(a: Checkpoint, truth: Planted, g: Symmetry) -> float:
    """Share of the neurons that both have whose partner, sign and factor were found."""
    facing, found = Facing(a, truth.b, g), []
    for layer in range(a.layers):
        element = g.elements[f"layers.{layer}.ffn"]
        assert isinstance(element, Ordered)
        partner = truth.partner[layer][element.permutation]
        factor = truth.factor[layer][element.permutation]
        fewer = len(partner) < facing.both[0]
        beside = facing.partners(layer) if fewer else torch.arange(len(partner))
        both = partner >= 0
        near = (element.scale * factor - 1).abs() < 1e-3
        found.append(((partner == beside) & near)[both].double())
    return float(torch.cat(found).mean())


@pytest.mark.parametrize("change", [-MORE, MORE])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("solve", [once, swept])
def test_every_neuron_that_both_have_is_found(
    solve: Callable, architecture: str, change: int, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built(architecture))
    truth = planted(a, tmp_path / "b", change)
    g, left = solve(a, truth.b)
    assert right(a, truth, g) == 1
    assert left < 1e-6
    for layer in range(a.layers):
        order = g.elements[f"layers.{layer}.ffn"].permutation
        assert sorted(order.tolist()) == list(range(len(truth.partner[layer])))
        if change > 0:
            assert order[-change:].tolist() == sorted(order[-change:].tolist())


@pytest.mark.parametrize("solve", [once, swept])
def test_neurons_of_another_layer_are_no_partners(
    solve: Callable, built: Callable[[str], Path], tmp_path: Path
) -> None:
    """The negative twin: what is left is as much as between strangers."""
    a = open_checkpoint(built("llama_gqa"))
    truth = planted(a, tmp_path / "b", -MORE, exchanged=True)
    g, left = solve(a, truth.b)
    assert right(a, truth, g) < 0.5
    facing = Facing(a, truth.b, g)
    names = [n for n in a.headers if "mlp" in n]
    assert min(tiny.distance(act(g, n, truth.b.read), facing.read(n)) for n in names) > 0.3
    if solve is swept:
        assert left > 0.05


@pytest.mark.parametrize("sweeps", [0, 2])
@pytest.mark.parametrize("change", [-MORE, MORE])
def test_a_report_and_a_checkpoint_that_loads(
    change: int, sweeps: int, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    b = planted(a, tmp_path / "b", change).b
    report, _ = compare(a, b, Align("", "", sweeps=sweeps), tmp_path / "c")
    aligned = open_checkpoint(tmp_path / "c")
    given = at_random(b, 2, 16).inputs
    first, last = (logits(network.load(c), given) for c in (b, aligned))
    torch.testing.assert_close(last, first, atol=1e-3, rtol=1e-3)
    assert report.kept == "exact"
    assert max(report.after) < 1e-3
    assert max(report.before) > 0.5


def test_only_widths_may_differ(built: Callable[[str], Path], tmp_path: Path) -> None:
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", intermediate_size=26))
    with pytest.raises(Refused, match=r"intermediate_size \(FFN neuron\) is 20"):
        require_same_group(a, b)
    require_same_group(a, b, but=("ffn",))
    c = open_checkpoint(tiny.build("llama_gqa", tmp_path / "c", intermediate_size=26, head_dim=6))
    with pytest.raises(Refused, match="head_dim"):
        require_same_group(a, c, but=("ffn",))
    experts = open_checkpoint(built("mixtral"))
    d = open_checkpoint(tiny.build("mixtral", tmp_path / "d", intermediate_size=26))
    with pytest.raises(Refused, match=r"intermediate_size \(FFN neuron of an expert\)"):
        require_same_group(experts, d, but=("ffn",))


@pytest.mark.parametrize("options", [{}, {"signs": False}, {"neurons": "published"}], ids=str)
@pytest.mark.parametrize("wide", [14, 26])
def test_no_sweep_ends_above_its_start(
    wide: int, options: dict, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", 5, intermediate_size=wide))
    asked = Align("", "", sweeps=3, **options)
    task = Descent(a, b, asked, words(a.family, ()))
    _, rows = descend(task, {"identity": None, "embedding": start_from_embedding(a, b)})
    assert all(row.after <= row.before * (1 + 1e-6) for row in rows)
    assert rows[0].after < rows[0].before


@pytest.mark.parametrize("seed", range(5))
def test_increasing_rows_are_the_cheapest(seed: int) -> None:
    cost = np.random.default_rng(seed).random((7, 4))
    found = increasing(cost)
    best = min(combinations(range(7), 4), key=lambda rows: cost[list(rows), range(4)].sum())
    assert found.tolist() == list(best)


def test_an_element_of_padded_layers_keeps_only_real_neurons() -> None:
    element = Ordered(torch.tensor([4, 0, 3, 1, 2]), torch.tensor([2.0, 3, 4, 5, 6]).double())
    narrow = own_order(element, (5, 3))
    assert narrow.permutation.tolist() == [0, 1, 2]
    assert narrow.scale.tolist() == [3, 5, 6]
    wide = own_order(element, (3, 5))
    assert wide.permutation.tolist() == [4, 0, 3, 1, 2]
    assert wide.scale.tolist() == [2, 3, 4, 1, 1]
