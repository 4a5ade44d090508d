"""Laws of gauges: composition under outer permutations, inverse, parts, and their file."""

import json
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine import axes
from engine.action import act
from engine.elements import Ordered
from engine.errors import Refused
from engine.families.llama import FAMILY
from engine.family import named
from engine.symmetry import CONVENTION, Symmetry, load, sample, words

CONFIG = {
    "model_type": "llama",
    "hidden_size": 6,
    "intermediate_size": 5,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "num_hidden_layers": 2,
    "vocab_size": 7,
}
KEYS = [key for key, _, _ in FAMILY.keys(CONFIG)]
SEEDS = st.integers(0, 2**31)
PARTS = st.sets(st.sampled_from(KEYS))
few = settings(max_examples=8)  # an example rewrites whole models


def gauge(seed: int, only: Collection[str] = ()) -> Symmetry:
    return sample(FAMILY, CONFIG, torch.Generator().manual_seed(seed), only)


def part(g: Symmetry, keys: Collection[str]) -> Symmetry:
    return replace(g, elements={key: g.elements[key] for key in keys})


def model(seed: int = 0) -> dict[str, Tensor]:
    """A random tensor for every row of the table and every layer."""
    generator = torch.Generator().manual_seed(seed)
    sizes = FAMILY.sizes(CONFIG)
    return {
        named(name)[0].format(l=layer): torch.randn(
            axes.shape(axes.parse(pattern), sizes), generator=generator, dtype=torch.float64
        )
        for name, pattern in FAMILY.tensors.items()
        for layer in (range(2) if "{l}" in name else [0])
    }


MODEL = model()


def applied(g: Symmetry, tensors: dict[str, Tensor] = MODEL) -> dict[str, Tensor]:
    return {name: act(g, name, x) for name, x in tensors.items()}


def agree(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.allclose(a[name], b[name], rtol=1e-9, atol=1e-9) for name in MODEL)


def test_a_sample_has_an_element_for_every_key() -> None:
    g = gauge(0)
    assert list(g.elements) == KEYS
    assert g.elements["layers.1.head"].batch == (3,)
    assert g.elements["res"].batch == ()


def test_every_tensor_moves() -> None:
    moved = applied(gauge(0))
    assert all(not torch.allclose(moved[name], x, atol=0.1) for name, x in MODEL.items())


@few
@given(SEEDS)
def test_composition_is_one_after_the_other(seed: int) -> None:
    g, h = gauge(seed), gauge(seed + 1)
    assert agree(applied(g.compose(h)), applied(g, applied(h)))


@few
@given(SEEDS, PARTS, PARTS)
def test_composition_of_parts(seed: int, first: set[str], second: set[str]) -> None:
    """A key that is absent is the identity, whichever side has the outer permutation."""
    g, h = part(gauge(seed), first), part(gauge(seed + 1), second)
    both = g.compose(h)
    assert set(both.elements) == first | second
    assert agree(applied(both), applied(g, applied(h)))


@pytest.mark.parametrize(
    ("first", "second"),
    [(["grp"], ["rot"]), (["rot"], ["grp"]), (["grp", "rot"], ["rot"]), (["rot"], ["grp", "rot"])],
)
def test_inner_elements_follow_the_outer_order(first: list[str], second: list[str]) -> None:
    """With a 3-cycle of groups: a swap would hide the use of π⁻¹ for π."""
    cycle = Ordered(torch.tensor([1, 2, 0]), torch.ones(3).double())
    g, h = (
        replace(
            (drawn := gauge(seed, names)),
            elements={k: cycle if k.endswith("grp") else e for k, e in drawn.elements.items()},
        )
        for seed, names in ((0, first), (1, second))
    )
    assert agree(applied(g.compose(h)), applied(g, applied(h)))
    assert agree(applied(g.inverse(), applied(g)), MODEL)


def test_composition_needs_the_outer_order() -> None:
    """The negative: composed key by key, inner elements belong to the wrong groups."""
    g, h = gauge(0), gauge(1)
    by_key = {key: e.compose(h.elements[key]) for key, e in g.elements.items()}
    assert not agree(applied(replace(g, elements=by_key)), applied(g, applied(h)))


@few
@given(SEEDS, SEEDS, SEEDS)
def test_composition_is_associative(a: int, b: int, c: int) -> None:
    g, h, k = gauge(a), gauge(b), gauge(c)
    assert agree(applied(g.compose(h).compose(k)), applied(g.compose(h.compose(k))))


@few
@given(SEEDS, PARTS)
def test_the_inverse_takes_back(seed: int, keys: set[str]) -> None:
    g = part(gauge(seed), keys)
    assert agree(applied(g.inverse(), applied(g)), MODEL)
    assert agree(applied(g, applied(g.inverse())), MODEL)
    assert agree(applied(g.inverse().compose(g)), MODEL)
    assert agree(applied(g.inverse().inverse()), applied(g))


def test_composition_and_inverse_keep_the_ends() -> None:
    g = replace(gauge(0), source="2", target="3", names=("two", "three"))
    h = replace(gauge(1), source="1", target="2", names=("one", "two"))
    both = g.compose(h)
    assert (both.source, both.target, both.names) == ("1", "3", ("one", "three"))
    back = both.inverse()
    assert (back.source, back.target, back.names) == ("3", "1", ("three", "one"))


def test_only_keeps_the_named_coordinates() -> None:
    g = gauge(0)
    kept = g.only({"res", "rot"})
    assert list(kept.elements) == ["res", "layers.0.rot", "layers.1.rot"]
    assert g.only({"ro"}).elements == {}
    assert set(kept.elements) == set(gauge(0, ["res", "rot"]).elements)
    assert agree(applied(g.only(FAMILY.free)), applied(g))


def test_samples_repeat_by_seed_only() -> None:
    assert agree(applied(gauge(0)), applied(gauge(0)))
    assert not agree(applied(gauge(0)), applied(gauge(1)))


def test_samples_of_some_layers() -> None:
    g = sample(FAMILY, CONFIG, torch.Generator().manual_seed(0), ["ffn", "res"], layers=[1])
    assert list(g.elements) == ["res", "layers.1.ffn"]


def test_signed_permutations_are_not_continuous() -> None:
    assert not gauge(0, ["res", "heads"]).continuous
    assert gauge(0, ["res", "ffn"]).continuous
    assert gauge(0, ["rot"]).continuous


def test_the_file_gives_the_gauge_back(tmp_path: Path) -> None:
    g = replace(gauge(0), source="s", target="t", names=("a", "b"))
    g.save(tmp_path / "symmetry.safetensors")
    found = load(tmp_path / "symmetry.safetensors")
    assert found.family is FAMILY
    assert found.config == CONFIG
    assert (found.source, found.target, found.names) == ("s", "t", ("a", "b"))
    assert set(found.elements) == set(g.elements)
    assert agree(applied(found), applied(g))


def test_the_file_has_documented_keys(tmp_path: Path) -> None:
    g = replace(gauge(0), source="s", target="t")
    g.save(tmp_path / "symmetry.safetensors")
    with safe_open(tmp_path / "symmetry.safetensors", "pt") as file:
        shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
        angle = file.get_tensor("layers.1.rot.angle")
        log_scale = file.get_tensor("layers.1.rot.log_scale")
        sign = file.get_tensor("res.sign")
    layer = {
        "ffn.permutation": (5,),
        "ffn.scale": (5,),
        "grp.permutation": (3,),
        "head.permutation": (3, 3),
        "rot.angle": (3, 2),
        "rot.log_scale": (3, 2),
        "val.matrix": (3, 4, 4),
    }
    model_wide = {"res.permutation": (6,), "res.sign": (6,)}
    assert shapes == model_wide | {f"layers.{n}.{k}": v for n in range(2) for k, v in layer.items()}
    assert {"family": "Llama", "source": "s", "target": "t"}.items() <= metadata.items()
    assert metadata["convention"] == CONVENTION
    assert json.loads(metadata["config"]) == CONFIG
    assert sign.dtype == torch.int8
    z = torch.polar(log_scale.exp(), angle)
    name = "model.layers.1.self_attn.{}_proj.bias"
    turned = applied(g.only({"rot"}))
    q, k = (
        [
            torch.complex(*x[name.format(word)].reshape(3, -1, 2, 2).unbind(-2))
            for x in (MODEL, turned)
        ]
        for word in "qk"
    )
    assert torch.allclose(q[1], q[0] * z[:, None])
    assert torch.allclose(k[1], k[0] / z[:, None].conj())


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    message = (
        f"{path}: declared format None, expected 'gaugescope symmetry 1'; "
        "write it with `scramble` or `align`."
    )
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        load(path)


@pytest.mark.parametrize("content", [None, b"", b"text, not tensors"])
def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "symmetry.safetensors"
    if content is not None:
        path.write_bytes(content)
    message = f"{path} is not a readable safetensors file ("
    with pytest.raises(Refused, match=f"^{re.escape(message)}"):
        load(path)


@pytest.mark.parametrize(
    "key", ["layers.0.gain.permutation", "rubbish", "layers.9.ffn.permutation"]
)
def test_a_gauge_with_unknown_parts_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "symmetry.safetensors"
    metadata = {
        "format": "gaugescope symmetry 1",
        "config": json.dumps(CONFIG),
        "names": '["", ""]',
        "source": "",
        "target": "",
    }
    save_file({key: torch.arange(5)}, path, metadata)
    message = f"{path}: the Llama family has no element {key.rpartition('.')[0]!r}; "
    with pytest.raises(Refused, match=f"^{re.escape(message)}"):
        load(path)


def test_words_name_coordinates() -> None:
    assert words(FAMILY, []) == {"res", "ffn", "grp", "head", "rot", "val"}
    assert words(FAMILY, ["heads", "res"]) == {"grp", "head", "res"}


def test_other_words_are_refused() -> None:
    message = (
        "--only names bogus, tok; the Llama family has ffn, grp, head, res, rot, val "
        "(and heads for grp with head)."
    )
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        words(FAMILY, ["tok", "res", "bogus"])
