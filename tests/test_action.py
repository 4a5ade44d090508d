"""What a table says is true: every gauge moves the tensors of real models, never their logits."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import axes
from engine.action import act, blocks, correlate, legs
from engine.checkpoint import open_checkpoint
from engine.elements import Ordered, Turned
from engine.families import FAMILIES
from engine.families.llama import FAMILY
from engine.family import named
from engine.groups import Trivial
from engine.symmetry import Symmetry, sample
from tests import tiny

CAST = 2e-6
"""Relative error that Hugging Face's RMSNorm leaves in float64: it computes in float32."""
MOVED = 0.1
architectures = pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
Built = Callable[[str], Path]


def gauge(folder: Path, *only: str, seed: int = 0) -> Symmetry:
    checkpoint = open_checkpoint(folder)
    generator = torch.Generator().manual_seed(seed)
    return sample(checkpoint.family, checkpoint.config, generator, only)


def applied(g: Symmetry, tensors: tiny.Tensors) -> dict[str, Tensor]:
    return {name: act(g, name, x) for name, x in tensors.items()}


def doubles(folder: Path) -> dict[str, Tensor]:
    return {name: x.double() for name, x in tiny.tensors(folder).items()}


def moves(g: Symmetry, name: str) -> bool:
    """Whether the gauge has more than an identity for a tensor."""
    row, sizes = g.family.row(name), g.family.sizes(g.config)
    here = {g.family.key(leg.name, row.layer): sizes[leg.name] for leg in axes.legs(row.axes)}
    for key in here.keys() & g.elements.keys():
        element = g.elements[key]
        eye = torch.eye(here[key], dtype=torch.float64).expand(*element.batch, -1, -1)
        if not torch.equal(element.write(eye), eye):
            return True
    return False


@architectures
def test_the_table_names_the_tensors_on_disk(architecture: str, built: Built) -> None:
    folder = built(architecture)
    checkpoint = open_checkpoint(folder)
    assert set(checkpoint.headers) == set(tiny.tensors(folder))
    sizes = checkpoint.family.sizes(checkpoint.config)
    for name, x in tiny.tensors(folder).items():
        assert tuple(x.shape) == axes.shape(checkpoint.family.row(name).axes, sizes)


def test_every_row_is_executed(built: Built) -> None:
    """Data that nobody executes rots: each row meets a tensor of some tiny model."""
    met: dict[str, set[str]] = {family.name: set() for family in FAMILIES}
    for architecture in tiny.ARCHITECTURES:
        checkpoint = open_checkpoint(built(architecture))
        met[checkpoint.family.name] |= {
            row
            for row, (name, _) in zip(
                checkpoint.family.tensors, checkpoint.family.rows, strict=True
            )
            if any(name.fullmatch(tensor) for tensor in checkpoint.headers)
        }
    assert met == {family.name: set(family.tensors) for family in FAMILIES}


@architectures
def test_a_whole_gauge_leaves_the_logits(architecture: str, built: Built) -> None:
    folder = built(architecture)
    before = doubles(folder)
    after = applied(gauge(folder), before)
    assert tiny.distance(tiny.logits(folder, after), tiny.logits(folder)) < CAST
    assert min(tiny.distance(after[name], x) for name, x in before.items()) > MOVED


@architectures
@pytest.mark.parametrize("coordinate", FAMILY.free)
def test_one_coordinate_leaves_the_logits(architecture: str, coordinate: str, built: Built) -> None:
    folder = built(architecture)
    before = doubles(folder)
    g = gauge(folder, coordinate, seed=4)
    after = applied(g, before)
    assert tiny.distance(tiny.logits(folder, after), tiny.logits(folder)) < CAST
    for name, x in before.items():
        assert (tiny.distance(after[name], x) > MOVED / 10) == moves(g, name)


def test_signed_permutations_are_exact_in_every_dtype(built: Built) -> None:
    folder = built("llama_gqa")
    g = gauge(folder, "res", "heads")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for name, x in tiny.tensors(folder).items():
            there = act(g, name, x.to(dtype))
            assert there.dtype == dtype
            assert torch.equal(act(g.inverse(), name, there), x.to(dtype))


def test_continuous_gauges_answer_in_float32_or_finer(built: Built) -> None:
    folder = built("llama_gqa")
    g = gauge(folder, "rot")
    name = "model.layers.0.self_attn.q_proj.weight"
    x = tiny.tensors(folder)[name]
    assert act(g, name, x.bfloat16()).dtype == torch.float32
    assert act(g, name, x.double()).dtype == torch.float64
    untouched = "model.layers.0.mlp.up_proj.weight"
    assert act(g, untouched, x.bfloat16()).dtype == torch.bfloat16


def test_nothing_is_edited_in_place(built: Built) -> None:
    folder = built("llama_biases")
    before = doubles(folder)
    kept = {name: x.clone() for name, x in before.items()}
    applied(gauge(folder), before)
    assert all(torch.equal(x, kept[name]) for name, x in before.items())


def test_grouped_heads_against_a_rewriting_by_hand(built: Built) -> None:
    """Query head i belongs to key/value head i // 2, before and after."""
    folder = built("llama_gqa")
    before, g = doubles(folder), gauge(folder, "heads", "rot", "val", seed=1)
    groups, heads, width = 3, 2, 4
    prefix = "model.layers.1.self_attn."
    q, k, v, o = (before[f"{prefix}{word}_proj.weight"] for word in "qkvo")
    grp, head, rot, val = (g.elements[f"layers.1.{word}"] for word in ("grp", "head", "rot", "val"))
    assert isinstance(grp, Ordered)
    assert isinstance(head, Ordered)
    assert isinstance(rot, Turned)

    def turn(rows: Tensor, z: Tensor) -> Tensor:
        y = z[:, None] * torch.complex(rows[: width // 2], rows[width // 2 :])
        return torch.cat([y.real, y.imag])

    expected = {word: torch.zeros_like(x) for word, x in zip("qkvo", (q, k, v, o), strict=True)}
    for new in range(groups):
        old = int(grp.permutation[new])
        there = slice(new * width, (new + 1) * width)
        here = slice(old * width, (old + 1) * width)
        expected["k"][there] = turn(k[here], 1 / rot.z[new].conj())
        expected["v"][there] = val.numbers()["matrix"][new] @ v[here]
        for i in range(heads):
            source = old * heads + int(head.permutation[new, i])
            there = slice((new * heads + i) * width, (new * heads + i + 1) * width)
            here = slice(source * width, (source + 1) * width)
            assert source // heads == old
            expected["q"][there] = turn(q[here], rot.z[new])
            expected["o"][:, there] = o[:, here] @ val.numbers()["matrix"][new].inverse()
    for word, x in expected.items():
        name = f"{prefix}{word}_proj.weight"
        assert torch.allclose(act(g, name, before[name]), x)
    assert grp.permutation.tolist() in ([1, 2, 0], [2, 0, 1])  # no swap, which hides π⁻¹


def test_residual_and_neurons_against_a_rewriting_by_hand(built: Built) -> None:
    folder = built("llama_biases")
    before, g = doubles(folder), gauge(folder, "res", "ffn", seed=1)
    res, ffn = g.elements["res"], g.elements["layers.0.ffn"]
    assert isinstance(res, Ordered)
    assert isinstance(ffn, Ordered)
    p, s, n, c = res.permutation, res.scale, ffn.permutation, ffn.scale
    x = {word: before[f"model.layers.0.mlp.{word}_proj.weight"] for word in ("gate", "up", "down")}
    expected = {
        "model.embed_tokens.weight": before["model.embed_tokens.weight"][:, p] * s,
        "lm_head.weight": before["lm_head.weight"][:, p] * s,
        "model.norm.weight": before["model.norm.weight"][p],
        "model.layers.0.mlp.gate_proj.weight": x["gate"][n][:, p] * s,
        "model.layers.0.mlp.up_proj.weight": x["up"][n][:, p] * s * c[:, None],
        "model.layers.0.mlp.down_proj.weight": x["down"][p][:, n] * s[:, None] / c,
        "model.layers.0.mlp.gate_proj.bias": before["model.layers.0.mlp.gate_proj.bias"][n],
        "model.layers.0.mlp.up_proj.bias": before["model.layers.0.mlp.up_proj.bias"][n] * c,
        "model.layers.0.mlp.down_proj.bias": before["model.layers.0.mlp.down_proj.bias"][p] * s,
    }
    for name, there in expected.items():
        assert torch.allclose(act(g, name, before[name]), there)


def test_legs_list_the_carriers() -> None:
    assert legs(FAMILY, "ffn") == {
        "model.layers.{l}.mlp.gate_proj.weight": "|ffn| res*",
        "model.layers.{l}.mlp.gate_proj.bias": "|ffn|",
        "model.layers.{l}.mlp.up_proj.weight": "ffn res*",
        "model.layers.{l}.mlp.up_proj.bias": "ffn",
        "model.layers.{l}.mlp.down_proj.weight": "res ffn*",
    }
    assert set(legs(FAMILY, "res")) == {
        named(name)[0] for name, text in FAMILY.tensors.items() if "res" in text
    }
    assert all(legs(FAMILY, name) for name in FAMILY.coordinates)


def test_blocks_put_the_coordinate_last_and_its_containers_first(built: Built) -> None:
    folder = built("llama_gqa")
    sizes = FAMILY.sizes(open_checkpoint(folder).config)
    found, x = {}, {}
    for word, *lead in (("q", "grp", "head"), ("k", "grp", "head"), ("o", "grp")):
        name = f"model.layers.0.self_attn.{word}_proj.weight"
        x[word] = doubles(folder)[name]
        coordinate = "val" if word == "o" else "rot"
        ((mark, found[word]),) = blocks(FAMILY, sizes, name, x[word], coordinate, lead)
        assert mark is (axes.Mark.WRITE if word == "q" else axes.Mark.READ)
    assert torch.equal(found["q"][2, 1], x["q"][20:24].T)
    assert torch.equal(found["k"][2, 0], x["k"][8:12].T)
    assert torch.equal(found["o"][1], x["o"][:, 8:16].reshape(48, 4))


@pytest.mark.parametrize(
    ("name", "coordinate"),
    [
        ("model.embed_tokens.weight", "res"),
        ("model.layers.0.mlp.up_proj.weight", "ffn"),
        ("model.layers.0.mlp.down_proj.weight", "ffn"),
        ("model.layers.0.self_attn.q_proj.weight", "rot"),
        ("model.layers.0.self_attn.o_proj.weight", "val"),
    ],
)
def test_correlation_projects_to_the_planted_element(
    name: str, coordinate: str, built: Built
) -> None:
    """C = Σ a bᵀ with a = g b: the group's projection finds g (its part of modulus 1)."""
    folder = built("llama_gqa")
    b = doubles(folder)[name]
    drawn = gauge(folder, coordinate)
    key = FAMILY.key(coordinate, 0)
    group, sizes = FAMILY.coordinates[coordinate].group, FAMILY.sizes(drawn.config)
    unit = group.project(drawn.elements[key].write(torch.eye(sizes[coordinate]).double()).mT)
    g = Symmetry(FAMILY, drawn.config, {key: unit})
    found = correlate(FAMILY, sizes, name, act(g, name, b), b, coordinate)
    assert found is not None
    assert found.shape[:-2] == FAMILY.batch(coordinate, sizes)
    again = group.project(found)
    for word, expected in unit.numbers().items():
        assert torch.allclose(again.numbers()[word].double(), expected.double(), atol=1e-8)


def test_gains_have_no_signed_correlation(built: Built) -> None:
    folder = built("llama_gqa")
    sizes, gain = FAMILY.sizes(open_checkpoint(folder).config), doubles(folder)["model.norm.weight"]
    assert correlate(FAMILY, sizes, "model.norm.weight", gain, gain, "res") is None


def test_fixed_coordinates_have_no_element() -> None:
    assert isinstance(FAMILY.coordinates["tok"].group, Trivial)
    assert "tok" not in FAMILY.free
