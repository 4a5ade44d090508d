"""ModernBERT: what sets it apart from the other encoders, beside the laws of every table."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn

from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.layers.maps import kinds
from engine.line.scopes import scope
from engine.pruning import prune
from tests import tiny

LAYERS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(
        "modernbert_masked", tmp_path_factory.mktemp("modern") / "four", num_hidden_layers=LAYERS
    )


def test_the_first_layer_alone_has_no_attention_norm(folder: Path) -> None:
    held = tiny.tensors(folder)
    norms = [f"model.layers.{layer}.attn_norm.weight" in held for layer in range(LAYERS)]
    assert norms == [False, True, True, True]
    forms = kinds(open_checkpoint(folder))
    assert forms[0] not in forms[1:]
    assert forms[1] == forms[3] != forms[2]


def test_cut_layers_take_their_attention_along(folder: Path, tmp_path: Path) -> None:
    """Local stays local: compared with the list of blocks cut by hand."""
    pruned = prune(open_checkpoint(folder), (1, 2), tmp_path / "cut").folder
    model = deepcopy(tiny.network(folder).model)
    model.model.layers = nn.ModuleList([model.model.layers[layer] for layer in (0, 3)])
    given = tiny.inputs(folder)
    with torch.no_grad():
        wanted = model(**given).logits
        found = tiny.network(pruned).model(**given).logits
        whole = tiny.network(folder).model(**given).logits
    assert tiny.distance(found, wanted) < 1e-6
    assert tiny.distance(found, whole) > 1e-3


def test_another_first_layer_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"The first layer of ModernBERT has no attention norm.*0\.$"):
        prune(open_checkpoint(folder), (0, 2), tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_norms_with_a_bias_are_refused(tmp_path: Path) -> None:
    tiny.build("modernbert_masked", tmp_path / "biased", norm_bias=True)
    with pytest.raises(Refused, match=r"'norm_bias' is True; the ModernBERT family covers False"):
        _ = open_checkpoint(tmp_path / "biased").family


def test_attention_is_a_scope_without_its_norm(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert scope(checkpoint, "first-attention") == {
        "model.layers.0.attn.Wqkv.weight",
        "model.layers.0.attn.Wo.weight",
    }
    every = scope(checkpoint, "all-attention")
    assert len(every) == 2 * LAYERS
    assert not any("norm" in name for name in every)
