"""The benchmarks still run: on tiny models, without a word on speed."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from engine.action import act
from engine.checkpoint import open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.questions import Barrier
from engine.symmetry import sample

BENCH = Path(__file__).parent / "bench"
Built = Callable[[str], Path]


def script(name: str) -> ModuleType:
    """A benchmark as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py")))
def test_every_benchmark_can_be_read(name: str) -> None:
    assert callable(script(name).main)


def test_act_and_align_are_measured(built: Built, tmp_path: Path) -> None:
    bench = script("bench_engine")
    model = open_checkpoint(built("llama_gqa"))
    found = bench.bench_act(model, tmp_path)
    assert found["ratio"] == pytest.approx(found["act_s"] / found["read_and_write_s"])
    assert bench.bench_assignment()["scipy_s"] > 0


def test_heads_are_measured(built: Built) -> None:
    bench = script("bench_heads")
    a, b, s, t = (torch.as_tensor(x) for x in bench.statistics_of(str(built("llama_gqa"))))
    assert a.shape == b.shape == s.shape == t.shape
    assert a.numel() == 2 * 3 * 2  # layers, groups, frequencies


def test_maps_of_layers_are_measured(built: Built) -> None:
    bench = script("bench_layers")
    made = bench.prepared(str(built("llama_gqa")), 2, 8)
    every, last = bench.bench_positions(made, 3), bench.bench_last(made, 3)
    for found in (every, last):
        mine = found["ours"]
        assert mine["bound"] <= mine["layers_run"] < mine["whole_forwards"]
        assert found["sampled"] == 3
    for other in (every["whole"], every["whole_with_our_identity"], last["published"]):
        assert other["farthest_nats"] < 1e-5
        assert other["times_faster"] > 0
    assert bench.prepared(str(built("llama_gqa")), 2, 8, "0-1", 1).stacks == made.stacks


def test_alignment_is_measured_against_git_rebasin(built: Built, tmp_path: Path) -> None:
    bench = script("bench_align")
    a = open_checkpoint("demo:base")
    found = bench.bench(a, bench.tuned(a, tmp_path / "b", 1))
    assert found["ours"]["in_place"] == found["rebasin"]["in_place"] == 1
    assert found["ours"]["distance"] <= found["unaligned"]["distance"]
    assert found["ratio"]["times_faster"] > 0


def test_the_port_of_git_rebasin_finds_orders_but_no_signs(tmp_path: Path) -> None:
    bench = script("bench_align")
    a = open_checkpoint("demo:base")
    g = sample(a.family, a.config, torch.Generator().manual_seed(0), ("res",))
    order = replace(g, elements={"res": Ordered(g.elements["res"].permutation, torch.ones(96))})
    for name, gauge in (("ordered", order), ("signed", g)):
        tensors = ((n, act(gauge, n, a.read)) for n in a.headers)
        save_checkpoint(tmp_path / name, tensors, like=a)
    far, near = (
        bench.distance(a, b, bench.rebasin(a, b))
        for b in (open_checkpoint(tmp_path / name) for name in ("signed", "ordered"))
    )
    assert near < 1e-6
    assert far > 0.1


def test_lines_between_two_models_are_measured(built: Built) -> None:
    bench = script("bench_barrier")
    a = str(built("llama_gqa"))
    asked = Barrier(
        a, a, points=3, stages=bench.STAGES, adaptive=False, scrambled=True, tokens=48, length=12
    )
    found = bench.bench(a, a, asked, 1)
    run = found["five_stages"]
    assert run["planned_models"] == 15
    assert run["ours"]["models"] == 2 + 5
    assert run["over_planned_passes"] > 0
    for scope in bench.SCOPES:
        for other in ("rebuilt", "rebuilt_read_as_here", "written_and_loaded"):
            assert found[scope][other]["times_ours"] > 0
    for way in bench.WAYS:
        assert bench.one_way(way, asked)["seconds"] > 0
