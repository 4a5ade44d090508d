"""What a table says is true: every gauge moves the tensors of real models, never what they say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jaxtyping
import pytest
import torch
from torch import Tensor

from engine import axes
from engine.action import _along, act, blocks, correlate, legs
from engine.checkpoint import open_checkpoint
from engine.elements import Ordered, Turned
from engine.families import FAMILIES
from engine.families.llama import FAMILY
from engine.family import Coordinate, named
from engine.groups import Trivial
from engine.scramble import scramble
from engine.symmetry import Symmetry, sample
from tests import laws, tiny
from tests.laws import applied, doubles

MOVED = 0.05
MASKS = {"gpt2_old"}
"""Architectures whose old files hold buffers that transformers remarks upon."""
SAVED = 1e-4
"""Relative error of a gauge that was written in float32."""
architectures = pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
families = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
COORDINATES = [
    pytest.param(architecture, name, id=f"{architecture}-{name}")
    for architecture in tiny.ARCHITECTURES
    for name in laws.family_of(architecture).free
]
Built = Callable[[str], Path]


def gauge(folder: Path, *only: str, seed: int = 0) -> Symmetry:
    checkpoint = open_checkpoint(folder)
    generator = torch.Generator().manual_seed(seed)
    return sample(checkpoint.family, checkpoint.config, generator, only)


def given(x: Tensor) -> Callable[[str], Tensor]:
    """One tensor, whatever its name."""
    return lambda _: x


@architectures
def test_the_table_names_the_tensors_on_disk(architecture: str, built: Built) -> None:
    folder = built(architecture)
    checkpoint = open_checkpoint(folder)
    assert set(checkpoint.headers) == set(tiny.tensors(folder))
    sizes = checkpoint.family.sizes(checkpoint.config)
    for name, x in tiny.tensors(folder).items():
        assert tuple(x.shape) == axes.shape(checkpoint.family.row(name).axes, sizes)


@families
def test_every_row_is_executed(family, built: Built) -> None:
    """Data that nobody executes rots: each row meets a tensor of some tiny model."""
    met = {
        key
        for architecture in laws.architectures(family)
        for tensor in open_checkpoint(built(architecture)).headers
        for key, (name, _) in zip(family.tensors, family.rows, strict=True)
        if name.fullmatch(family.row(tensor).name)
    }
    assert met == set(family.tensors)


@architectures
def test_a_whole_gauge_leaves_what_the_model_says(architecture: str, built: Built) -> None:
    folder = built(architecture)
    g, before = laws.gauge(folder), doubles(folder)
    after = applied(g, before)
    assert laws.error(folder, after) < laws.tolerance(g.family)
    still = {name for name, x in before.items() if tiny.distance(after[name], x) <= MOVED}
    assert still == {name for name in before if not g.family.carried([name])}


@pytest.mark.parametrize(("architecture", "coordinate"), COORDINATES)
def test_one_coordinate_leaves_what_the_model_says(
    architecture: str, coordinate: str, built: Built
) -> None:
    folder = built(architecture)
    g, before = laws.gauge(folder, coordinate), doubles(folder)
    after = applied(g, before)
    assert laws.error(folder, after) < laws.tolerance(g.family)
    for name, x in before.items():
        assert (tiny.distance(after[name], x) > MOVED / 10) == laws.moves(g, name)


@families
def test_every_coordinate_moves_some_model(family, built: Built) -> None:
    for name in family.free:
        gauges = [(built(a), laws.gauge(built(a), name)) for a in laws.architectures(family)]
        assert any(laws.moves(g, n) for folder, g in gauges for n in doubles(folder)), name


@architectures
def test_hidden_activations_follow_the_gauge(architecture: str, built: Built) -> None:
    """Under g the hidden activations are g · hidden, by the axes that the table gives them."""
    folder = built(architecture)
    g = laws.gauge(folder)
    rows = {
        place: (row, layer)
        for row in g.family.hidden
        for layer in range(g.family.layers(g.config))
        for place in [row.format(l=layer)]
    }
    paths = {place: _path(folder, g, place) for place in rows}
    before = tiny.hidden(folder, paths)
    after = tiny.hidden(folder, paths, applied(g, doubles(folder)))
    assert after.keys() == before.keys()
    assert len(before) >= len(g.family.hidden)
    for place, x in before.items():
        row, layer = rows[place]
        expected = _followed(g, g.family.hidden[row], layer, x)
        assert tiny.distance(after[place], expected) < laws.tolerance(g.family), place
        assert tiny.distance(after[place], x) > MOVED, place


@families
def test_every_hidden_row_is_heard(family, built: Built) -> None:
    heard = set()
    for architecture in laws.architectures(family):
        folder = built(architecture)
        g = laws.gauge(folder)
        paths = {row: _path(folder, g, row.format(l=0)) for row in family.hidden}
        heard |= tiny.hidden(folder, paths).keys()
    assert heard == set(family.hidden)


def _path(folder: Path, g: Symmetry, place: str) -> str:
    """The module path of a place; the family's prefix is left out where the model has none."""
    path = place.partition(" ")[2]
    modules = dict(tiny.network(folder).model.named_modules())
    return path if path in modules else path.removeprefix(g.family.prefix)


def _followed(g: Symmetry, pattern: str, layer: int, x: Tensor) -> Tensor:
    """g · hidden for activations [..., axes], as if they were a tensor with one more axis."""
    rows = x.flatten(0, -2)
    local = any(leg.name in g.family.per_layer for leg in axes.legs(axes.parse(pattern)))
    name = "hidden.{l}" if local else "hidden"
    family = replace(
        g.family,
        coordinates={
            **g.family.coordinates,
            "row": Coordinate("row", Trivial("a position"), str(len(rows))),
        },
        tensors={**g.family.tensors, name: f"row {pattern}"},
    )
    seen = replace(g, family=family)
    return act(seen, name.format(l=layer), given(rows)).reshape(x.shape)


@architectures
def test_a_scrambled_checkpoint_loads_and_says_the_same(
    architecture: str, built: Built, tmp_path: Path
) -> None:
    """transformers finds every tensor under its name, and no other than in the source."""
    folder, out = built(architecture), tmp_path / architecture
    scramble(open_checkpoint(folder), out, seed=3)
    kind = cast(Any, type(tiny.network(folder).model))
    _, found = kind.from_pretrained(out, output_loading_info=True)
    _, of_source = kind.from_pretrained(folder, output_loading_info=True)
    assert found == of_source
    assert not found["missing_keys"]
    assert bool(found["unexpected_keys"]) == (architecture in MASKS)
    assert tiny.distance(tiny.predictions(out), laws.before(folder)) < SAVED
    assert set(tiny.tensors(out)) == set(tiny.tensors(folder))
    assert any(not torch.equal(x, tiny.tensors(out)[n]) for n, x in tiny.tensors(folder).items())


def test_signed_permutations_are_exact_in_every_dtype(built: Built) -> None:
    folder = built("llama_gqa")
    g = gauge(folder, "res", "heads")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for name, x in tiny.tensors(folder).items():
            there = act(g, name, given(x.to(dtype)))
            assert there.dtype == dtype
            assert torch.equal(act(g.inverse(), name, given(there)), x.to(dtype))


def test_continuous_gauges_answer_in_float32_or_finer(built: Built) -> None:
    folder = built("llama_gqa")
    g = gauge(folder, "rot")
    name = "model.layers.0.self_attn.q_proj.weight"
    x = tiny.tensors(folder)[name]
    assert act(g, name, given(x.bfloat16())).dtype == torch.float32
    assert act(g, name, given(x.double())).dtype == torch.float64
    untouched = "model.layers.0.mlp.up_proj.weight"
    assert act(g, untouched, given(x.bfloat16())).dtype == torch.bfloat16


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
        assert torch.allclose(act(g, name, before.__getitem__), x)
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
        assert torch.allclose(act(g, name, before.__getitem__), there)


def test_experts_against_a_rewriting_by_hand(built: Built) -> None:
    """New expert i is old expert π(i), with the neurons that its new place asks for."""
    folder = built("mixtral")
    before, g = doubles(folder), laws.gauge(folder, "exp", "ffn")
    exp, ffn = g.elements["layers.1.exp"], g.elements["layers.1.ffn"]
    assert isinstance(exp, Ordered)
    assert isinstance(ffn, Ordered)
    prefix = "model.layers.1.block_sparse_moe."
    router = before[f"{prefix}gate.weight"][exp.permutation]
    assert torch.equal(act(g, f"{prefix}gate.weight", before.__getitem__), router)
    for new in range(4):
        n, c = ffn.permutation[new], ffn.scale[new]
        here = f"{prefix}experts.{int(exp.permutation[new])}."
        expected = {
            "w1": before[f"{here}w1.weight"][n],
            "w3": before[f"{here}w3.weight"][n] * c[:, None],
            "w2": before[f"{here}w2.weight"][:, n] / c,
        }
        for word, x in expected.items():
            there = f"{prefix}experts.{new}.{word}.weight"
            assert torch.allclose(act(g, there, before.__getitem__), x)


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
    found = correlate(FAMILY, sizes, name, act(g, name, given(b)), b, coordinate)
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


class Half:
    """Some of an element."""

    batch = ()
    exact = True

    def write(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("wrong", [3, torch.ones(4), Half()], ids=["number", "tensor", "half"])
def test_what_is_no_element_is_told_at_every_call(wrong: Any) -> None:
    """The tests ask a class once whether it is one; the answer must hold, either way."""
    (leg,) = axes.legs(axes.parse("res"))
    x = torch.rand(4)
    right = Ordered(torch.tensor([1, 2, 3, 0]), torch.ones(4, dtype=torch.float64))
    for _ in range(2):
        assert torch.equal(_along(FAMILY, (leg,), leg, x, right), x[[1, 2, 3, 0]])
        with pytest.raises(jaxtyping.TypeCheckError, match="element"):
            _along(FAMILY, (leg,), leg, x, wrong)
