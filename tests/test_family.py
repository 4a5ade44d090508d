"""What a table says about a configuration, and what it refuses, word by word."""

import re
from dataclasses import replace

import pytest

from engine import axes
from engine.errors import Refused
from engine.families import FAMILIES
from engine.families.llama import FAMILY as LLAMA
from engine.families.qwen2 import FAMILY as QWEN2
from engine.family import HARMLESS, Config, Coordinate, family_of, named
from engine.groups import PERMUTATION

CONFIG = {
    "model_type": "llama",
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "num_hidden_layers": 2,
    "vocab_size": 96,
}
tables = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def shapes(config: Config = CONFIG) -> dict[str, tuple[int, ...]]:
    """The required tensors of a Llama as the table declares them."""
    sizes = LLAMA.sizes(config)
    return {
        named(name)[0].format(l=layer): axes.shape(axes.parse(pattern), sizes)
        for name, pattern in LLAMA.tensors.items()
        for layer in range(LLAMA.layers(config))
        if not named(name)[0].endswith("bias")
    }


def without(*names: str) -> dict[str, object]:
    return {name: value for name, value in CONFIG.items() if name not in names}


def refusal(text: str) -> object:
    return pytest.raises(Refused, match=f"^{re.escape(text)}$")


def test_sizes_follow_the_configuration() -> None:
    assert LLAMA.sizes(CONFIG) == {
        "res": 24,
        "ffn": 20,
        "grp": 3,
        "head": 2,
        "rot": 4,
        "val": 4,
        "tok": 96,
    }
    assert LLAMA.layers(CONFIG) == 2


@pytest.mark.parametrize("absent", ["left out", "null"])
def test_attributes_left_out_have_defaults(absent: str) -> None:
    """A null is an attribute left out: as many key/value heads as heads, heads share the width."""
    config = without("num_key_value_heads", "head_dim")
    if absent == "null":
        config |= {"num_key_value_heads": None, "head_dim": None}
    sizes = LLAMA.sizes(config)
    assert (sizes["grp"], sizes["head"], sizes["rot"], sizes["val"]) == (6, 1, 4, 4)


def test_the_head_width_is_read_not_derived() -> None:
    assert LLAMA.sizes({**CONFIG, "head_dim": 10})["rot"] == 10


@pytest.mark.parametrize("value", [None, 0, -3, 2.5, "24", True])
def test_sizes_are_positive_integers(value: object) -> None:
    message = (
        f"Configuration attribute 'hidden_size' must be a positive integer, found {value!r}; "
        "mend config.json."
    )
    with refusal(message):
        LLAMA.sizes({**CONFIG, "hidden_size": value})


@pytest.mark.parametrize("text", ["hidden_size + 1", "f(2)", "hidden_size ** 2", "1.5"])
def test_expressions_multiply_and_divide_only(text: str) -> None:
    family = replace(LLAMA, coordinates={"res": Coordinate("residual", PERMUTATION, text)})
    message = f"size {text!r}: only names, integers, * and / are understood"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        family.sizes(CONFIG)


def test_expressions_read_left_to_right() -> None:
    coordinates = {"x": Coordinate("x", PERMUTATION, "2 * hidden_size / num_attention_heads / 2")}
    assert replace(LLAMA, coordinates=coordinates).sizes(CONFIG) == {"x": 4}


def test_a_tensor_is_found_with_its_layer() -> None:
    row = LLAMA.row("model.layers.11.self_attn.o_proj.weight")
    assert row.layer == 11
    assert row.axes == axes.parse("res (grp head val*)")
    assert LLAMA.row("lm_head.weight").layer is None


def test_coordinates_live_in_a_layer_or_in_the_model() -> None:
    assert LLAMA.per_layer == {"ffn", "grp", "head", "rot", "val"}
    assert LLAMA.free == ("res", "ffn", "grp", "head", "rot", "val")
    assert LLAMA.key("res", 3) == "res"
    assert LLAMA.key("ffn", 3) == "layers.3.ffn"
    keys = [key for key, _, _ in LLAMA.keys(CONFIG)]
    assert keys[:3] == ["res", "layers.0.ffn", "layers.1.ffn"]
    assert len(keys) == len(set(keys)) == 1 + 2 * 5


def test_elements_are_counted_by_what_contains_them() -> None:
    sizes = LLAMA.sizes(CONFIG)
    assert LLAMA.batch("res", sizes) == ()
    assert LLAMA.batch("rot", sizes) == (3,)


@tables
def test_every_row_names_its_containers_before_the_contained(family) -> None:
    """`over` is read from the same axis, outer first: `(grp head rot)`, never `(rot grp)`."""
    for pattern in family.tensors.values():
        names = [leg.name for leg in axes.legs(axes.parse(pattern))]
        for place, name in enumerate(names):
            assert set(family.coordinates[name].over) <= set(names[:place])


@tables
def test_every_row_uses_known_words_and_every_word_is_used(family) -> None:
    used = {leg.name for text in family.tensors.values() for leg in axes.legs(axes.parse(text))}
    assert used == set(family.coordinates)


@tables
def test_no_attribute_is_both_harmless_and_compared(family) -> None:
    assert not set(family.compared) & set(HARMLESS)


@tables
def test_every_free_coordinate_says_why(family) -> None:
    assert all(family.coordinates[name].why.endswith(".") for name in family.free)


def test_no_model_type_has_two_tables() -> None:
    kinds = [kind for family in FAMILIES for kind in family.model_types]
    assert len(kinds) == len(set(kinds))


def test_a_whole_checkpoint_passes() -> None:
    LLAMA.check(CONFIG, shapes())
    biases = {
        "model.layers.0.mlp.up_proj.bias": (20,),
        "model.layers.1.self_attn.q_proj.bias": (24,),
    }
    LLAMA.check(CONFIG, shapes() | biases)


def test_an_unknown_tensor_is_refused() -> None:
    message = (
        "Unknown tensor 'model.layers.0.self_attn.q_norm.weight': the Llama family has no row for "
        "it; a model with extra parts cannot be checked and is not opened."
    )
    with refusal(message):
        LLAMA.check(CONFIG, shapes() | {"model.layers.0.self_attn.q_norm.weight": (4,)})


@pytest.mark.parametrize("name", ["xmodel.norm.weight", "model.norm.weights", "modelxnorm.weight"])
def test_names_match_as_a_whole(name: str) -> None:
    with pytest.raises(Refused, match=r"^Unknown tensor"):
        LLAMA.row(name)


def test_a_layer_too_many_is_refused() -> None:
    name = "model.layers.2.mlp.up_proj.weight"
    message = (
        f"Tensor {name!r} is of layer 2, but the configuration declares 2 layers (0 to 1); "
        "config.json and weights do not belong together."
    )
    with refusal(message):
        LLAMA.check(CONFIG, shapes() | {name: (20, 24)})


def test_another_shape_is_refused() -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    message = (
        f"Tensor {name!r}: its configuration declares shape [12, 24], the file holds [24, 24]; "
        "config.json and weights do not belong together."
    )
    with refusal(message):
        LLAMA.check(CONFIG, shapes() | {name: (24, 24)})


def test_missing_tensors_are_named() -> None:
    held = shapes()
    del held["model.norm.weight"]
    message = (
        "Missing tensors: model.norm.weight; the checkpoint is incomplete, "
        "download or save it again."
    )
    with refusal(message):
        LLAMA.check(CONFIG, held)


def test_many_missing_tensors_are_counted() -> None:
    held = {name: shape for name, shape in shapes().items() if ".1." not in name}
    message = (
        "Missing tensors: model.layers.1.input_layernorm.weight, "
        "model.layers.1.self_attn.q_proj.weight, model.layers.1.self_attn.k_proj.weight "
        "and 6 more; the checkpoint is incomplete, download or save it again."
    )
    with refusal(message):
        LLAMA.check(CONFIG, held)


def test_only_a_tied_model_may_lack_the_unembedding() -> None:
    held = shapes()
    del held["lm_head.weight"]
    LLAMA.check({**CONFIG, "tie_word_embeddings": True}, held)
    with pytest.raises(Refused, match=r"^Missing tensors: lm_head\.weight;"):
        LLAMA.check(CONFIG, held)


def test_a_declared_bias_is_demanded() -> None:
    LLAMA.check({**CONFIG, "attention_bias": False, "mlp_bias": False}, shapes())
    with pytest.raises(
        Refused, match=r"^Missing tensors: model\.layers\.0\.self_attn\.q_proj\.bias"
    ):
        LLAMA.check({**CONFIG, "attention_bias": True}, shapes())
    with pytest.raises(Refused, match=r"^Missing tensors: model\.layers\.0\.mlp\.gate_proj\.bias"):
        LLAMA.check({**CONFIG, "mlp_bias": True}, shapes())


def test_qwen2_always_has_its_biases() -> None:
    with pytest.raises(
        Refused, match=r"^Missing tensors: model\.layers\.0\.self_attn\.q_proj\.bias"
    ):
        QWEN2.check({**CONFIG, "model_type": "qwen2"}, shapes())


def test_an_unknown_attribute_is_refused() -> None:
    message = (
        "Unknown configuration attribute 'residual_multiplier' = 0.22: it may change the "
        "computation, and the Llama family does not say how; not opened."
    )
    with refusal(message):
        LLAMA.check({**CONFIG, "residual_multiplier": 0.22}, shapes())


def test_an_admitted_attribute_has_admitted_values() -> None:
    message = "Configuration attribute 'pretraining_tp' is 2; the Llama family covers 1 only."
    LLAMA.check({**CONFIG, "pretraining_tp": 1}, shapes())
    with refusal(message):
        LLAMA.check({**CONFIG, "pretraining_tp": 2}, shapes())


@pytest.mark.parametrize(
    ("kind", "family"), [("llama", LLAMA), ("mistral", LLAMA), ("qwen2", QWEN2)]
)
def test_the_model_type_selects_the_table(kind: str, family) -> None:
    assert family_of({"model_type": kind}) is family


@pytest.mark.parametrize("kind", ["bloom", None])
def test_an_architecture_without_a_table_is_refused(kind: str | None) -> None:
    known = ", ".join(sorted(kind for family in FAMILIES for kind in family.model_types))
    message = (
        f"Unsupported architecture: model_type {kind!r}; there are tables for {known}. "
        "A family needs one table that names the coordinate on every axis of every tensor."
    )
    with refusal(message):
        family_of({} if kind is None else {"model_type": kind})
