"""What layers hear and what their heads do: planted gauges, and directions that are never heard."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine import network
from engine.activations import residual_stream, stack
from engine.alignment import sensing
from engine.alignment.heads import match_heads
from engine.alignment.one_pass import layer_tensors
from engine.alignment.sensing import sense
from engine.alignment.solving import solve
from engine.alignment.stages import head_cost
from engine.alignment.weighing import SILENT, Sensed, weighed
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.errors import Refused
from engine.questions import Align
from engine.scramble import scramble
from engine.symmetry import Symmetry, load
from tests import laws, tiny

Built = Callable[[str], Path]
architectures = pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Align]:
    """An alignment of what is inside the layers, on ids or images of an architecture."""
    folder = tmp_path_factory.mktemp("given")
    draw = np.random.default_rng(0)
    np.savez(folder / "ids.npz", input_ids=draw.integers(3, tiny.SIZES["vocab_size"], (16, 12)))
    np.savez(folder / "images.npz", pixel_values=draw.normal(size=(16, 3, 12, 12)).astype("f4"))

    def question(architecture: str) -> Align:
        kind = "images" if architecture.startswith("vit") else "ids"
        family = laws.family_of(architecture)
        inner = tuple(sorted(family.per_layer & set(family.free)))
        text = str(folder / f"{kind}.npz")
        return Align("a", "b", using="activations", only=inner, tokens=192, text=text, device="cpu")

    return question


def planted(a: Checkpoint, folder: Path, only: tuple[str, ...]) -> tuple[Checkpoint, Symmetry]:
    """A under a random gauge of what is inside its layers, and what leads back."""
    scramble(a, folder, 1, only=only)
    return open_checkpoint(folder), load(folder / "symmetry.safetensors").inverse()


def right(g: Symmetry, layer: int, sensed: Sensed) -> int:
    """How many heads the costs of a layer put elsewhere; each must be where the gauge put it."""
    assert sensed.heads is not None
    match, moved = match_heads(sensed.heads), 0
    for word, order in (("grp", match.grp), ("head", match.head)):
        truth = g.elements.get(f"layers.{layer}.{word}")
        if isinstance(truth, Ordered):
            assert torch.equal(order.permutation, truth.permutation)
            still = torch.arange(truth.permutation.shape[-1])
            moved += int((truth.permutation != still).sum())
    each = sensed.heads.flatten(2).flatten(0, 1).sort(-1).values
    assert float(each[:, 0].max()) < 1e-5
    assert float(each[:, 1:].min()) > 0.5
    return moved


@architectures
def test_a_gauge_inside_the_layers_is_found_from_what_they_do(
    architecture: str, built: Built, asked: Callable[[str], Align], tmp_path: Path
) -> None:
    a, question = open_checkpoint(built(architecture)), asked(architecture)
    b, g = planted(a, tmp_path / "b", question.only)
    found = solve(a, b, question)
    assert set(found.layers) == set(range(a.layers))
    assert sum(right(g, n, found.layers[n]) for n in range(a.layers))
    before, after = (
        max(
            tiny.distance(laws.act(one, name, b.read).double(), a.read(name).double())
            for name in a.headers
        )
        for one in (replace(found.g, elements={}), found.g)
    )
    assert before > 0.1
    assert after < 1e-3


@pytest.mark.parametrize("architecture", ["llama_gqa", "gpt2"])
def test_a_weighed_distance_is_that_of_what_matrices_say(
    architecture: str, built: Built, asked: Callable[[str], Align], tmp_path: Path
) -> None:
    a, question = open_checkpoint(built(architecture)), asked(architecture)
    b = open_checkpoint(tiny.build(architecture, tmp_path / "b", seed=5))
    root = sense(a, b, question)[1].root
    assert root is not None
    ids = torch.from_numpy(np.load(question.text)["input_ids"])
    family, sizes = a.family, a.family.sizes(a.config)
    x = residual_stream(network.load(a), family, ids)[1].double()
    x /= x.square().mean(-1, keepdim=True).sqrt()
    plain = torch.eye(x.shape[-1], dtype=torch.float64)
    theirs, mine = (layer_tensors(c, 1) for c in (a, b))

    def apart(by: Tensor, name: str) -> Tensor:
        one, other = (weighed(family, sizes, z, by)[name].double() for z in (theirs, mine))
        return one - other

    readers = ("q_proj.weight", "up_proj.weight", "c_attn.weight", "c_fc.weight")
    names = [name for name in theirs if name.endswith(readers)]
    assert len(names) == 2
    for name in names:
        bare = apart(plain, name)
        wide = bare.mT if architecture == "gpt2" else bare
        said = (x @ wide.mT).square().sum(-1).mean()
        torch.testing.assert_close(apart(root, name).square().sum(), said, rtol=1e-4, atol=0)
        assert not np.isclose(float(said), float(bare.square().sum()), rtol=0.02)


def deaf(a: Checkpoint, folder: Path) -> tuple[Checkpoint, Checkpoint]:
    """A whose embedding leaves half of the coordinates empty, and B with other heads in place.

    Two groups of B are exchanged; what they read on the empty coordinates is exchanged back, and
    large: the weights alone say that nothing was moved.
    """
    half = a.config["hidden_size"] // 2
    tensors = {name: a.read(name).clone() for name in a.headers}
    tensors["model.embed_tokens.weight"][:, half:] = 0
    sizes = a.family.sizes(a.config)
    grp = torch.arange(sizes["grp"]).roll(1)
    g = Symmetry(a.family, a.config, {"layers.0.grp": Ordered(grp, torch.ones(len(grp)).double())})
    names = [f"model.layers.0.self_attn.{one}_proj.weight" for one in "qkv"]
    noise = torch.Generator().manual_seed(3)
    for name in names:
        x = tensors[name]
        x[:, half:] = 3 * torch.randn(x[:, half:].shape, generator=noise)
    other = {name: laws.act(g, name, tensors.__getitem__) for name in tensors}
    for name in names:
        other[name][:, half:] = tensors[name][:, half:]
    made = []
    for place, held in (("a", tensors), ("b", other)):
        (folder / place).mkdir()
        save_checkpoint(folder / place, held.items(), like=a)
        made.append(open_checkpoint(folder / place))
    return made[0], made[1]


def test_heads_are_not_fooled_by_what_no_head_ever_hears(
    built: Built, asked: Callable[[str], Align], tmp_path: Path
) -> None:
    a, b = deaf(open_checkpoint(built("llama_gqa")), tmp_path)
    question = asked("llama_gqa")
    truth = torch.arange(3).roll(-1)
    sensed = sense(a, b, question)
    assert list(sensed) == [0]  # no later layer differs
    family, sizes = a.family, a.family.sizes(a.config)
    theirs, mine = (layer_tensors(c, 0) for c in (a, b))

    def order(pair: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]) -> Tensor:
        return match_heads(head_cost(family, sizes, *pair)).grp.permutation

    assert sensed[0].heads is not None
    assert torch.equal(match_heads(sensed[0].heads).grp.permutation, truth)
    assert torch.equal(order(sensed[0].seen(family, sizes, theirs, mine)), truth)
    assert torch.equal(order(SILENT.seen(family, sizes, theirs, mine)), torch.arange(3))
    for using, expected in (("activations", truth), ("weights", torch.arange(3))):
        found = solve(a, b, replace(question, using=using)).g.elements["layers.0.grp"]
        assert isinstance(found, Ordered)
        assert torch.equal(found.permutation, expected)


def test_equal_models_are_not_run(
    built: Built, asked: Callable[[str], Align], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = open_checkpoint(built("llama_gqa"))

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(network, "load", never)
    assert sense(a, a, asked("llama_gqa")) == {}


def test_no_deeper_layer_than_the_last_that_differs_is_run(
    built: Built, asked: Callable[[str], Align], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = deaf(open_checkpoint(built("llama_gqa")), tmp_path)
    b = open_checkpoint(tmp_path / "b")
    kept: list[int] = []
    load = network.load

    def noted(checkpoint: Checkpoint, where: torch.device, kind: torch.dtype) -> PreTrainedModel:
        model = load(checkpoint, where, kind)
        above, name = stack(model, a.family)
        blocks = [*above.get_submodule(name).children()]
        blocks[1].register_forward_pre_hook(lambda *_: kept.append(1))
        blocks[0].register_forward_pre_hook(lambda *_: kept.append(0))
        return model

    monkeypatch.setattr(network, "load", noted)
    sense(a, b, asked("llama_gqa"))
    assert set(kept) == {0}


def test_images_must_be_given(built: Built, asked: Callable[[str], Align], tmp_path: Path) -> None:
    a, question = open_checkpoint(built("vit")), asked("vit")
    b, _ = planted(a, tmp_path / "b", question.only)
    with pytest.raises(Refused, match=r"reads images.*--using weights.*--inputs FILE"):
        solve(a, b, replace(question, text="default"))


def test_patterns_that_are_held_at_once_fit_in_the_room_for_them(
    built: Built, asked: Callable[[str], Align], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer of 6 heads on windows of 12 tokens: 6 · 12² numbers each, room for 5 and a bit."""
    a, b = deaf(open_checkpoint(built("llama_gqa")), tmp_path)
    whole = sense(a, b, asked("llama_gqa"))[0]
    run: list[int] = []
    load = network.load

    def noted(checkpoint: Checkpoint, where: torch.device, kind: torch.dtype) -> PreTrainedModel:
        model = load(checkpoint, where, kind)
        above, name = stack(model, a.family)
        block = above.get_submodule(name)[0]  # type: ignore[index]
        block.register_forward_pre_hook(lambda _, given: run.append(len(given[0])))
        return model

    monkeypatch.setattr(network, "load", noted)
    monkeypatch.setattr(sensing, "HELD", 5 * 6 * 12**2 + 100)
    parts = sense(a, b, asked("llama_gqa"))[0]
    assert run == [5, 5, 5, 5, 5, 5, 1, 1]  # A and B, 16 windows
    torch.testing.assert_close(parts.heads, whole.heads, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(parts.root, whole.root, rtol=1e-4, atol=1e-6)
