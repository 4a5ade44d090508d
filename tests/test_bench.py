"""The benchmarks still run: on tiny models, without a word on speed."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from engine.checkpoint import open_checkpoint

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
