"""Laws of gauges: composition under outer permutations, inverse, parts, and their file."""

import itertools
import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
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
from engine.families import FAMILIES
from engine.families.gpt2 import FAMILY as GPT2
from engine.families.llama import FAMILY
from engine.family import Config, Family, named
from engine.symmetry import CONVENTION, Symmetry, load, sample, words
from tests.laws import architectures, opened

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
families = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
Built = Callable[[str], Path]


@dataclass(frozen=True)
class Table:
    """A family with sizes, and a random tensor for every row, layer and named place."""

    family: Family
    config: Config
    tensors: dict[str, Tensor]

    @property
    def keys(self) -> list[str]:
        return [key for key, _, _ in self.family.keys(self.config)]

    def gauge(self, seed: int, only: Collection[str] = ()) -> Symmetry:
        return sample(self.family, self.config, torch.Generator().manual_seed(seed), only)

    def applied(self, g: Symmetry, tensors: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        here = self.tensors if tensors is None else tensors
        return {name: act(g, name, here.__getitem__) for name in here}


def filled(family: Family, config: Config) -> Table:
    generator = torch.Generator().manual_seed(0)
    sizes = family.sizes(config)
    tensors = {}
    for key, (_, row) in zip(family.tensors, family.rows, strict=True):
        name = named(key)[0]
        words = re.findall(r"\{(\w+)\}", name)
        counts = [family.layers(config) if word == "l" else sizes[word] for word in words]
        for numbers in itertools.product(*map(range, counts)):
            shape = axes.shape(row.axes, sizes)
            tensors[name.format(**dict(zip(words, numbers, strict=True)))] = torch.randn(
                shape, generator=generator, dtype=torch.float64
            )
    return Table(family, config, tensors)


LLAMA = filled(FAMILY, CONFIG)
MODEL = LLAMA.tensors
gauge, applied = LLAMA.gauge, LLAMA.applied


def table(family: Family, built: Built) -> Table:
    """A family with the sizes of its tiny model that has the most coordinates."""
    configs = [opened(built(architecture)).config for architecture in architectures(family)]
    return filled(family, max(configs, key=lambda config: len(list(family.keys(config)))))


def carrying(here: Table, *names: str) -> Table:
    """The tensors on whose axes, or in whose names, some of these coordinates are."""
    found = {name: here.family.row(name) for name in here.tensors}
    kept = {
        name: here.tensors[name]
        for name, row in found.items()
        if {*names} & {*(leg.name for leg in axes.legs(row.axes)), *row.places}
    }
    return replace(here, tensors=kept)


def part(g: Symmetry, keys: Collection[str]) -> Symmetry:
    return replace(g, elements={key: g.elements[key] for key in keys})


def agree(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.allclose(a[name], x, rtol=1e-9, atol=1e-9) for name, x in b.items())


def test_a_sample_has_an_element_for_every_key() -> None:
    g = gauge(0)
    assert list(g.elements) == KEYS
    assert g.elements["layers.1.head"].batch == (3,)
    assert g.elements["res"].batch == ()


@families
def test_every_tensor_moves(family: Family, built: Built) -> None:
    here = table(family, built)
    found = here.applied(here.gauge(0))
    still = {n for n, x in here.tensors.items() if torch.allclose(found[n], x, atol=0.1)}
    assert still == {name for name in here.tensors if not family.carried([name])}


@families
@pytest.mark.parametrize("seed", [0, 1])
def test_composition_is_one_after_the_other(family: Family, seed: int, built: Built) -> None:
    here = table(family, built)
    g, h = here.gauge(seed), here.gauge(seed + 2)
    assert agree(here.applied(g.compose(h)), here.applied(g, here.applied(h)))


@families
@pytest.mark.parametrize("seed", [0, 1])
def test_the_inverse_takes_every_family_back(family: Family, seed: int, built: Built) -> None:
    here = table(family, built)
    g = here.gauge(seed)
    assert agree(here.applied(g.inverse(), here.applied(g)), here.tensors)
    assert agree(here.applied(g, here.applied(g.inverse())), here.tensors)
    assert agree(here.applied(g.compose(g.inverse())), here.tensors)


@few
@given(SEEDS, PARTS, PARTS)
def test_composition_of_parts(seed: int, first: set[str], second: set[str]) -> None:
    """A key that is absent is the identity, whichever side has the outer permutation."""
    g, h = part(gauge(seed), first), part(gauge(seed + 1), second)
    both = g.compose(h)
    assert set(both.elements) == first | second
    assert agree(applied(both), applied(g, applied(h)))


INNER = [
    pytest.param(family, outer, inner, id=f"{family.name}-{inner}-in-{outer}")
    for family in FAMILIES
    for inner in family.free
    for outer in family.coordinates[inner].over
]


@pytest.mark.parametrize(("family", "outer", "inner"), INNER)
def test_inner_elements_follow_the_outer_order(
    family: Family, outer: str, inner: str, built: Built
) -> None:
    """With a 3-cycle of groups or experts: a swap would hide the use of π⁻¹ for π."""
    here = carrying(table(family, built), outer, inner)
    size = family.sizes(here.config)[outer]
    cycle = Ordered(torch.tensor([1, 2, 0, *range(3, size)]), torch.ones(size, dtype=torch.float64))

    def drawn(seed: int, names: list[str]) -> Symmetry:
        g = here.gauge(seed, names)
        cycled = {k: cycle if k.endswith(f".{outer}") else e for k, e in g.elements.items()}
        return replace(g, elements=cycled)

    both = [outer, inner]
    for first, second in (([outer], [inner]), ([inner], [outer]), (both, [inner]), (both, both)):
        g, h = drawn(0, first), drawn(1, second)
        moved = here.applied(g, here.applied(h))
        assert agree(here.applied(g.compose(h)), moved)
        assert agree(here.applied(g.inverse(), here.applied(g)), here.tensors)
        assert not agree(moved, here.tensors)


@families
def test_composition_needs_the_outer_order(family: Family, built: Built) -> None:
    """The negative: composed key by key, inner elements belong to the wrong groups."""
    here = table(family, built)
    g, h = here.gauge(0), here.gauge(1)
    by_key = {key: e.compose(h.elements[key]) for key, e in g.elements.items()}
    assert not agree(here.applied(replace(g, elements=by_key)), here.applied(g, here.applied(h)))


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


@families
def test_the_file_gives_the_gauge_back(family: Family, built: Built, tmp_path: Path) -> None:
    here = table(family, built)
    g = replace(here.gauge(0), source="s", target="t", names=("a", "b"))
    g.save(tmp_path / "symmetry.safetensors")
    found = load(tmp_path / "symmetry.safetensors")
    assert found.family is family
    assert found.config == here.config
    assert (found.source, found.target, found.names) == ("s", "t", ("a", "b"))
    assert set(found.elements) == set(g.elements)
    assert agree(here.applied(found), here.applied(g))


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


def test_heads_are_groups_where_a_group_has_one_head() -> None:
    assert "head" not in GPT2.free
    assert words(GPT2, ["heads"]) == {"grp"}
    with pytest.raises(Refused, match="--only names head; the GPT-2 family"):
        words(GPT2, ["head"])


def test_other_words_are_refused() -> None:
    message = (
        "--only names bogus, tok; the Llama family has ffn, grp, head, res, rot, val "
        "(and heads for grp, with head where there is one)."
    )
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        words(FAMILY, ["tok", "res", "bogus"])
