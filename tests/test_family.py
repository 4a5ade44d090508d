"""What a table says about a configuration, and what it refuses, word by word."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import axes
from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.families import FAMILIES
from engine.families.llama import FAMILY as LLAMA
from engine.families.qwen2 import FAMILY as QWEN2
from engine.family import HARMLESS, Config, Coordinate, Family, family_of, named
from engine.groups import PERMUTATION
from tests import laws, tiny
from tests.laws import blocks, opened

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
LISTED = {"architectures"}
"""Harmless in general; a family may admit some of its values only."""
tables = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)

Built = Callable[[str], Path]


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


@pytest.mark.parametrize("text", ["f(2)", "hidden_size ** 2", "len(a, b)", "'two'", "-2"])
def test_expressions_calculate_only(text: str) -> None:
    family = replace(LLAMA, coordinates={"res": Coordinate("residual", PERMUTATION, text)})
    message = f"size {text!r}: only names, numbers, len, * / + - are understood"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        family.sizes(CONFIG)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("hidden_size - 2 * num_attention_heads + 1", 13),
        ("(hidden_size - 6) / num_attention_heads", 3),
        ("head_dim - head_dim", 0),
        ("rope_parameters.partial_rotary_factor * head_dim", 2),
        ("0.3 * 10 * head_dim", 12),  # 0.3 · 10 is a little less than 3
        ("len(id2label)", 3),
        ("len(architectures) + 1", 2),
        ("n_inner", 96),
        ("len(classes)", 2),
        ("len(nothing)", 0),
    ],
)
def test_sizes_are_expressions(text: str, size: int) -> None:
    config = {
        **CONFIG,
        "architectures": ["X"],
        "id2label": {"0": "a", "1": "b", "2": "c"},
        "n_inner": None,
        "rope_parameters": {"partial_rotary_factor": 0.5},
    }
    family = replace(
        LLAMA,
        coordinates={"x": Coordinate("x", PERMUTATION, text)},
        defaults={"n_inner": "4 * hidden_size", "classes": "2"},
    )
    assert family.sizes(config) == {"x": size}


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    family = replace(
        LLAMA,
        coordinates={"x": Coordinate("x", PERMUTATION, "(hidden_size - 4) / num_attention_heads")},
    )
    with pytest.raises(Refused, match=r"= 20 / 6, which is no whole number; mend config.json"):
        family.sizes(CONFIG)


def test_a_coordinate_of_size_zero_has_no_element() -> None:
    family = replace(
        LLAMA,
        coordinates={**LLAMA.coordinates, "ffn": Coordinate("x", PERMUTATION, "head_dim - 4")},
    )
    assert [key for key, _, _ in family.keys(CONFIG) if "ffn" in key] == []
    assert "ffn" in family.free


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
def test_every_row_names_its_containers_before_the_contained(family: Family) -> None:
    """`over` is read from the name or the same axis, outer first: `(grp head rot)`."""
    for name, row in family.rows:
        places = set(name.groupindex)
        for block in blocks(row.axes):
            names = [leg.name for leg in block]
            for place, word in enumerate(names):
                assert set(family.coordinates[word].over) - places <= {*names[:place]}


@tables
def test_every_row_uses_known_words_and_every_word_is_used(family: Family) -> None:
    patterns = [row.axes for _, row in family.rows]
    shifts = [axes.parse(blind.shift) for blind in family.blind if blind.shift]
    used = {leg.name for pattern in [*patterns, *shifts] for leg in axes.legs(pattern)}
    assert used == set(family.coordinates)
    for name, _ in family.rows:
        assert set(name.groupindex) <= {"l", *family.free}


@tables
def test_hidden_rows_use_known_words(family: Family) -> None:
    assert family.hidden
    for place, text in family.hidden.items():
        assert place.partition(" ")[0] in {"in", "out"}
        assert {leg.name for leg in axes.legs(axes.parse(text))} <= set(family.coordinates)
    assert f"in {family.blocks}.{{l}}" in family.hidden


@tables
def test_no_attribute_is_both_harmless_and_compared(family: Family) -> None:
    assert not set(family.compared) & {*HARMLESS, *family.harmless}
    assert not set(family.constants) & {*HARMLESS, *family.harmless} - LISTED
    assert all(family.harmless.values())


@tables
def test_every_free_coordinate_says_why(family: Family) -> None:
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


def held(folder: Path) -> dict[str, tuple[int, ...]]:
    return {name: header.shape for name, header in opened(folder).headers.items()}


def objection(family: Family, config: Config, shapes: dict[str, tuple[int, ...]]) -> str:
    """Why a checkpoint is refused; nothing for one that passes."""
    try:
        family.check(config, shapes)
    except Refused as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_every_demanded_tensor_is_missed(architecture: str, built: Built) -> None:
    """Each tensor is either demanded, or optional in the table."""
    checkpoint, found = opened(built(architecture)), held(built(architecture))
    family = checkpoint.family
    family.check(checkpoint.config, found)
    optional = [
        name
        for key, (name, _) in zip(family.tensors, family.rows, strict=True)
        if named(key)[1] is not None
    ]
    for tensor in found:
        row = family.row(tensor).name
        rest = {name: shape for name, shape in found.items() if name != tensor}
        message = objection(family, checkpoint.config, rest)
        assert message.startswith(f"Missing tensors: {row}; ") or (
            message == "" and any(name.fullmatch(row) for name in optional)
        )


@tables
def test_an_unknown_attribute_is_refused_by_every_family(family: Family, built: Built) -> None:
    folder = built(laws.architectures(family)[0])
    with pytest.raises(Refused, match=r"^Unknown configuration attribute 'parallel_norm' = True"):
        family.check({**opened(folder).config, "parallel_norm": True}, held(folder))


@pytest.mark.parametrize(
    ("architecture", "attribute", "value"),
    [
        ("qwen2_moe", "mlp_only_layers", [0]),
        ("qwen2_moe", "decoder_sparse_step", 2),
        ("qwen3_moe", "mlp_only_layers", [1]),
        ("bert_masked", "is_decoder", True),
        ("bert_masked", "position_embedding_type", "relative_key"),
        ("bert_classifier", "architectures", ["BertForTokenClassification"]),
        ("vit_bare", "pooler_act", "gelu"),
    ],
)
def test_what_a_table_does_not_cover_is_refused(
    architecture: str, attribute: str, value: object, built: Built
) -> None:
    folder = built(architecture)
    config = {**opened(folder).config, attribute: value}
    found = re.escape(f"Configuration attribute {attribute!r} is {value!r}; the ")
    with pytest.raises(Refused, match=f"^{found}.* family covers .* only"):
        opened(folder).family.check(config, held(folder))


def test_an_expert_too_many_is_refused(built: Built) -> None:
    folder = built("mixtral")
    name = "model.layers.0.block_sparse_moe.experts.4.w1.weight"
    message = (
        f"Tensor {name!r} is of expert 4, but the configuration declares 4 experts (0 to 3); "
        "config.json and weights do not belong together."
    )
    with refusal(message):
        opened(folder).family.check(opened(folder).config, {**held(folder), name: (20, 24)})


def test_an_expert_too_few_is_missed(built: Built) -> None:
    folder = built("mixtral")
    config = {**opened(folder).config, "num_local_experts": 5}
    found = {**held(folder)}
    for layer in range(2):
        found[f"model.layers.{layer}.block_sparse_moe.gate.weight"] = (5, 24)
    message = (
        "Missing tensors: model.layers.0.block_sparse_moe.experts.4.w1.weight, "
        "model.layers.1.block_sparse_moe.experts.4.w1.weight, "
        "model.layers.0.block_sparse_moe.experts.4.w3.weight and 3 more; "
        "the checkpoint is incomplete, download or save it again."
    )
    with refusal(message):
        opened(folder).family.check(config, found)


def test_experts_are_counted_under_either_name(built: Built) -> None:
    """Files on the hub say `num_experts`, transformers 5 writes `num_local_experts`."""
    folder = built("qwen3_moe")
    config = dict(opened(folder).config)
    config["num_experts"] = config.pop("num_local_experts")
    opened(folder).family.check(config, held(folder))


def test_names_are_found_with_their_places_and_spellings() -> None:
    mixtral, bert = family_of({"model_type": "mixtral"}), family_of({"model_type": "bert"})
    row = mixtral.row("model.layers.3.block_sparse_moe.experts.11.w2.weight")
    assert (row.layer, row.places) == (3, {"exp": 11})
    name = "model.layers.3.block_sparse_moe.experts.11.w2.weight"
    start, stop = mixtral.span(name, "exp")
    assert name[start:stop] == "11"
    there = "bert.encoder.layer.1.output.LayerNorm.weight"
    assert bert.row(there).name == there
    assert bert.row("encoder.layer.1.output.LayerNorm.gamma").name == there
    assert bert.find("encoder.layer.1.output.LayerNorm.delta") is None
    with pytest.raises(KeyError):
        mixtral.span("experts.0.w2.weight", "exp")


def test_the_prefix_may_be_left_out_and_the_head_has_none() -> None:
    bert = family_of({"model_type": "bert"})
    assert bert.row("embeddings.LayerNorm.bias").axes == axes.parse("res")
    assert bert.row("cls.predictions.bias").axes == axes.parse("tok")


def test_a_layer_has_experts_of_its_own() -> None:
    mixtral = family_of({"model_type": "mixtral"})
    config = {**CONFIG, "model_type": "mixtral", "num_local_experts": 4}
    keys = {key for key, _, _ in mixtral.keys(config)}
    assert {"layers.0.exp", "layers.1.exp", "layers.0.ffn"} <= keys
    assert mixtral.batch("ffn", mixtral.sizes(config)) == (4,)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("llama_gqa", {"head_dim": 3}, "3 rotary channels: they turn in pairs"),
        ("mixtral", {"num_experts_per_tok": 5}, "is 5, and must be from 1 to 4"),
        ("mixtral", {"num_experts_per_tok": 0}, "is 0, and must be from 1 to 4"),
        ("llama_gqa", {"num_hidden_layers": 10**9}, "and 997 more"),
    ],
)
def test_sizes_that_cannot_be_are_refused_at_once(
    architecture: str, changes: dict, message: str, built: Built
) -> None:
    model = open_checkpoint(built(architecture))
    shapes = {name: header.shape for name, header in model.headers.items()}
    with pytest.raises(Refused, match=re.escape(message)):
        model.family.check({**model.config, **changes}, shapes)
