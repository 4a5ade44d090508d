"""The lab's presets and the tables that they claim, written out by hand."""

import numpy as np
import pytest
import torch

from engine.families.gpt2 import FAMILY as GPT2
from engine.families.llama import FAMILY as LLAMA
from engine.families.mixtral import FAMILY as MIXTRAL
from engine.families.qwen3 import FAMILY as QWEN3
from engine.family import Family
from engine.lab.claims import CLAIMS, WIDER, carrying, text_of
from engine.lab.draws import GROUPS, Dial, count, draw, in_words, plane, ways
from engine.lab.offers import Preset
from engine.lab.presets import PRESETS, blind_preset
from engine.lab.typed import typed
from engine.lab.views import weight_view
from tests import fakes

ORDER, SIGN, TURNS, MATRIX = (
    "random transposition",
    "random sign",
    "angle frequency",
    "matrix angle",
)
FACTORS, PLANES, MATRIX = "random factor sign", "rotation angle", "matrix angle"
ROWS = f"""
ffn-order | ffn | ffn sffn | order | {ORDER} | | holds
ffn-bias | ffn, ffn bias | ffn sffn | order | {ORDER} | | holds
ffn-bias-left | ffn, ffn bias | ffn sffn | order | {ORDER} | bias left | breaks
ffn-gate | ffn, gated | ffn sffn | order | {ORDER} | | holds
ffn-gate-left | ffn, gated | ffn sffn | order | {ORDER} | gate left | breaks
ffn-one-sided | ffn | ffn sffn | order | {ORDER} | one-sided | breaks
ffn-factors | ffn, gated | ffn sffn | factors | {FACTORS} | | holds
ffn-factors-curved | ffn, !gated, !relu | ffn sffn | factors | {FACTORS} | allow | breaks
ffn-signs-relu | ffn, !gated, relu | ffn sffn | signs | {SIGN} | allow | breaks
ffn-positive | ffn, !gated, relu | ffn sffn | positive | random factor | allow | holds
head-order | grp | grp | order | {ORDER} | | holds
query-order | head | head | order | {ORDER} | | holds
query-across | head, grp | every | order | {ORDER} | across | breaks
value-order | val | val | order | {ORDER} | | holds
value-matrix | val | val | linear | {MATRIX} | | holds
key-matrix | qk | qk | linear | {MATRIX} | | holds
rotary | rotary | rot | | random {TURNS} | | holds
rotary-order | rot | rot | order | {ORDER} | allow | breaks
rotary-matrix | rotary | rot | linear | {MATRIX} | allow | breaks
half-turns | half turns | rot | signs | {SIGN} | | holds
other-turns | half turns | turn | | {TURNS} | pairs | breaks
gain-pairs | gain | gain | | {FACTORS} | | holds
residual-order | res | res | order | {ORDER} | | holds
residual-reader-left | res | res | order | {ORDER} | reader left | breaks
residual-signs | res, !common | res | signs | {SIGN} | | holds
residual-signs-mean | res, common | res | signs | {SIGN} | allow | breaks
residual-sign | res, common | res | sign | random | | holds
gain-signs-alone | res, gain row | gain row | signs | {SIGN} | gain alone | breaks
gain-signs | res, gain row | gain row | signs | {SIGN} | gain | holds
rotation | res | res | rotations | {PLANES} | gains left | breaks
rotation-folded | res, foldable | res | rotations | {PLANES} | folded | holds
experts | exp | exp | order | {ORDER} | | holds
experts-router-left | exp | exp | order | {ORDER} | router left | breaks
tokens | tok | tok | order | {ORDER} | allow | breaks
positions | tok | position | order | {ORDER} | text | breaks
position-rows | position rows | pos | order | {ORDER} | allow | breaks
layers | layers | depth | order | {ORDER} | depth | breaks
prune | ffn | ffn sffn | cut | cut | way out | none
average | ffn | ffn sffn | mean | mean | written | none
experts-average | exp | exp | mean | mean | router left | none
own | | | | | | holds
"""
"""Key | what a model needs | coordinates | group | draws | claim | what the theory says."""


def row(preset: Preset) -> str:
    """A preset as a row of the table."""
    theory = "holds" if preset.holds else "breaks" if preset.symmetry else "none"
    parts = (preset.key, ", ".join(preset.needs), " ".join(preset.coordinates), preset.group,
             " ".join(preset.draws), preset.claim, theory)  # fmt: skip
    return " | ".join(parts).replace("  ", " ")


def test_presets_are_these_rows() -> None:
    assert [row(preset) for preset in PRESETS] == ROWS.strip().split("\n")
    assert not any(preset.approximate for preset in PRESETS)


TITLES = """
ffn-order | FFN: order of the neurons
ffn-bias | FFN: order, the bias moves along
ffn-bias-left | FFN: order, the bias left behind
ffn-gate | FFN: order, the gate moves along
ffn-gate-left | FFN: order, the gate left behind
ffn-one-sided | FFN: order of the way up alone
ffn-factors | FFN: sign and scale of a neuron
ffn-factors-curved | FFN: sign and scale through the activation
ffn-signs-relu | FFN: sign through ReLU
ffn-positive | FFN: positive scale through ReLU
head-order | Attention: order of the heads
query-order | Attention: query heads inside their group
query-across | Attention: query heads across groups
value-order | Attention: order of the value channels
value-matrix | Attention: any matrix on the value channels
key-matrix | Attention: any matrix on queries and keys without rotation
rotary | Attention: turn and scale of a rotary frequency
rotary-order | Attention: order of the rotary channels
rotary-matrix | Attention: any matrix on the rotary channels
half-turns | Attention: half turns under a norm of queries and keys
other-turns | Attention: other turns under a norm of queries and keys
gain-pairs | Attention: gains of queries against gains of keys
residual-order | Residual stream: order
residual-reader-left | Residual stream: order, one reader left behind
residual-signs | Residual stream: signs under RMSNorm
residual-signs-mean | Residual stream: single signs under LayerNorm
residual-sign | Residual stream: one sign for all coordinates
gain-signs-alone | Norm: signs of the gains alone
gain-signs | Norm: signs of the gains and of their readers
rotation | Residual stream: rotated as it is
rotation-folded | Residual stream: rotated, the gains folded away before
experts | Experts: order
experts-router-left | Experts: order, the router left behind
tokens | Tokens: order of the dictionary
positions | Positions: order of the text
position-rows | Positions: order of the learned rows
layers | Layers: order
prune | No symmetry: a neuron is cut off
average | No symmetry: two neurons are averaged
experts-average | No symmetry: two experts are averaged
own | Any coordinate, by its own group
"""


def test_presets_stand_under_these_titles() -> None:
    assert [f"{preset.key} | {preset.title}" for preset in PRESETS] == TITLES.strip().split("\n")


def test_a_blind_direction_is_a_preset_with_its_reason() -> None:
    gains, scale = (blind_preset(blind) for blind in fakes.blind())
    assert (gains.key, gains.claim, gains.draws) == ("blind-att", "blind", ("random",))
    assert gains.title == "Blind direction: gain of the attention norm against its readers"
    assert gains.says[0] == "A random step along this direction, in 4 kinds of tensor."
    assert gains.says[1] == "The readers undo it."
    assert scale.does == "A random step along this direction, in 1 kind of tensor."
    assert (gains.coordinates, gains.approximate, scale.approximate) == (("att",), False, True)
    assert gains.holds and gains.symmetry


Q, K, V, OUT = (f"self_attn.{word}_proj.weight" for word in "qkvo")
NORMS = {"input_layernorm.weight": "|left|", "post_attention_layernorm.weight": "|left|"}
CHANGES: list[tuple[str, Family, str, str, dict[str, str]]] = [
    ("bias left", GPT2, "ffn", "ffn", {"mlp.c_fc.bias": "left"}),
    ("gate left", LLAMA, "ffn", "ffn",
     {"mlp.gate_proj.weight": "|left| res*", "mlp.gate_proj.bias": "|left|"}),
    ("one-sided", LLAMA, "ffn", "ffn", {
        "mlp.gate_proj.weight": "|left| res*", "mlp.gate_proj.bias": "|left|",
        "mlp.up_proj.bias": "left", "mlp.down_proj.weight": "res left*",
    }),
    ("way out", LLAMA, "ffn", "ffn", {
        "mlp.gate_proj.weight": "|left| res*", "mlp.gate_proj.bias": "|left|",
        "mlp.up_proj.weight": "left res*", "mlp.up_proj.bias": "left",
        "mlp.down_proj.weight": "res ffn",
    }),
    ("written", LLAMA, "ffn", "ffn", {
        "mlp.gate_proj.weight": "ffn res*", "mlp.gate_proj.bias": "ffn",
        "mlp.down_proj.weight": "res ffn",
    }),
    ("reader left", LLAMA, "res", "res", {Q: "(grp head rot) left*"}),
    ("router left", MIXTRAL, "exp", "exp", {"block_sparse_moe.gate.weight": "left res*"}),
    ("across", LLAMA, "head", "every", {
        Q: "(every rot) res*", "self_attn.q_proj.bias": "(every rot)", OUT: "res (every val*)",
    }),
    ("pairs", QWEN3, "rot", "turn", {
        Q: "(grp head turn) res*", "self_attn.q_proj.bias": "(grp head turn)",
        K: "(grp turn*) res*", "self_attn.k_proj.bias": "(grp turn*)",
    }),
    ("folded", LLAMA, "res", "res", {**NORMS, "model.norm.weight": "|left|"}),
    ("gains left", LLAMA, "res", "res", {**NORMS, "model.norm.weight": "|left|"}),
    ("gain", LLAMA, "att", "att", {
        "input_layernorm.weight": "att", Q: "(grp head rot) att*", K: "(grp rot*) att*",
        V: "(grp val) att*",
    }),
    ("gain alone", LLAMA, "att", "att", {
        "input_layernorm.weight": "att", Q: "(grp head rot) left*", K: "(grp rot*) left*",
        V: "(grp val) left*",
    }),
    ("", LLAMA, "ffn", "ffn", {}), ("allow", LLAMA, "ffn", "ffn", {}),
    ("text", LLAMA, "ffn", "ffn", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "family", "word", "acts", "changes"), CHANGES, ids=[one[0] for one in CHANGES]
)
def test_a_claim_changes_these_rows(
    claim: str, family: Family, word: str, acts: str, changes: dict[str, str]
) -> None:
    table, found = CLAIMS[claim](family, word)
    assert found == acts
    changed = {
        name.partition("?")[0].rpartition("{l}.")[2]: text
        for name, text in table.tensors.items()
        if family.tensors.get(name) != text
    }
    assert changed == changes
    if acts == word and claim not in {"gain", "gain alone"}:
        assert table.tensors.keys() == family.tensors.keys()


def test_a_claim_of_a_new_coordinate_says_what_it_is() -> None:
    every = CLAIMS["across"](LLAMA, "head")[0].coordinates["every"]
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 3, "num_hidden_layers": 2}
    table = CLAIMS["across"](LLAMA, "head")[0]
    given = {**sizes, "hidden_size": 24, "intermediate_size": 20, "vocab_size": 96}
    assert (every.title, every.over, table.sizes(given)["every"]) == ("query head", (), 6)
    turn = CLAIMS["pairs"](QWEN3, "rot")[0].coordinates["turn"]
    assert (turn.title, turn.size) == ("rotary channel", "2 * (head_dim / 2)")
    deep, word = CLAIMS["depth"](LLAMA, "")
    assert (word, deep.coordinates["depth"].title) == ("depth", "layer")
    assert deep.sizes(given)["depth"] == 2
    assert all("{l}" not in name for name in deep.tensors)
    assert sum("{depth}" in name for name in deep.tensors) == 16
    assert CLAIMS["blind"](LLAMA, "scale")[1] == "scale"


def test_claims_put_the_presets_group_on_their_coordinate() -> None:
    assert {"allow", "across", "depth", "folded", "gains left", "written", "way out",
                     "router left", "text"} == WIDER  # fmt: skip
    assert {preset.claim for preset in PRESETS} == CLAIMS.keys() - {"blind"}


def test_a_tensor_is_told_by_its_row() -> None:
    assert text_of(LLAMA, "model.layers.1.mlp.up_proj.weight") == "ffn res*"
    assert text_of(LLAMA, "model.nothing") == ""
    assert carrying(LLAMA, "val") == tuple(
        f"model.layers.{{l}}.self_attn.{name}"
        for name in ("v_proj.weight", "v_proj.bias", "o_proj.weight")
    )
    assert any("{exp}" in name for name in carrying(MIXTRAL, "exp"))


def test_elements_are_drawn_from_these_groups_in_these_ways() -> None:
    usual = {
        "order": "random transposition", "signs": "random sign", "sign": "random",
        "factors": "random sign factor", "positive": "random factor", "linear": "matrix angle",
        "rotations": "rotation angle", "cut": "random factor", "mean": "matrix angle",
    }  # fmt: skip
    assert {name: " ".join(ways(group)) for name, group in GROUPS.items()} == usual
    assert {name: GROUPS[name].notation for name in ("order", "signs", "factors", "linear")} == {
        "order": "S_n", "signs": "{±1}ⁿ", "factors": "(R∖{0})ⁿ", "linear": "GL(d_h)"}  # fmt: skip


@pytest.mark.parametrize(
    ("severity", "size", "least", "taking"),
    [
        (0.0, 8, 2, 0), (0.01, 8, 1, 1), (0.01, 8, 2, 2), (0.5, 8, 2, 4), (0.3, 8, 2, 2),
        (0.44, 8, 1, 4), (1.0, 8, 2, 8), (1.0, 1, 2, 1),
    ],
)  # fmt: skip
def test_a_severity_counts_what_takes_part(
    severity: float, size: int, least: int, taking: int
) -> None:
    assert count(severity, size, least) == taking


def test_a_plane_turns_from_one_coordinate_towards_the_other() -> None:
    turned = plane(3, 0, 2, 30.0) @ torch.tensor([1.0, 0.0, 0.0]).double()
    assert turned.tolist() == pytest.approx([np.sqrt(3) / 2, 0, 0.5])


def test_random_rotations_turn_every_plane_by_60_to_120_degrees() -> None:
    generator = torch.Generator().manual_seed(0)
    found = draw(GROUPS["rotations"], 8, (50,), Dial("rotation"), generator)
    angles = torch.linalg.eigvals(found.matrix).angle().abs().rad2deg()
    assert angles.min() > 60 and angles.max() < 120
    assert angles.min() < 63 and angles.max() > 117


def test_random_factors_lie_between_a_half_and_two() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = draw(GROUPS["factors"], 50, (40,), Dial(), generator).scale
    assert 0.5 < scale.abs().min() < 0.51 and 1.96 < scale.abs().max() < 2
    assert 0.45 < float((scale < 0).double().mean()) < 0.55
    part = draw(GROUPS["positive"], 50, (40,), Dial(severity=0.5), generator).scale
    assert 0.707 < part.min() < 0.72 and 1.39 < part.max() < 1.4143
    assert float((part == 1).double().mean()) == 0.5


def test_one_factor_or_sign_or_pair_is_drawn_where_one_is_asked_for() -> None:
    def scale(name: str, how: str, severity: float = 1.0) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        return sorted(draw(GROUPS[name], 4, (), Dial(how, severity), generator).scale.tolist())

    assert scale("factors", "factor") == [1, 1, 1, 2]
    assert scale("factors", "factor", 0.5) == pytest.approx([1, 1, 1, np.sqrt(2)])
    assert scale("factors", "sign") == [-1, 1, 1, 1]
    dial = Dial("transposition", first=(1, 0, 2, 3, 4, 5, 6, 7))
    found = draw(GROUPS["order"], 8, (), dial, torch.Generator())
    assert found.permutation.tolist() == [0, 5, 2, 3, 4, 1, 6, 7]


@pytest.mark.parametrize(
    ("numbers", "rest"), [(7, ""), (8, ""), (9, " and 1 more"), (12, " and 4 more")]
)
def test_an_element_is_told_in_eight_parts_and_a_rest(numbers: int, rest: str) -> None:
    text = " ".join(f"-{i}" for i in range(numbers))
    wanted = "; ".join(f"sign of {i}" for i in range(min(numbers, 8))) + rest
    assert in_words(typed(text, GROUPS["signs"], 12, ())) == wanted
    assert in_words(typed(text, GROUPS["signs"], 12, (2, 3))) == (
        f"{wanted} (the first of 6 copies)"
    )


def test_a_weight_is_shown_around_its_first_change() -> None:
    before = torch.arange(200.0)[:, None] + torch.zeros(200, 300)
    after = before.clone()
    after[100, 150] = after[120, 170] = -1
    found = weight_view("up: ffn res*", before, after)
    assert found.name == "up: ffn res*, rows 92 to 155, columns 142 to 237"
    assert found.before.shape == found.after.shape == (64, 96)
    assert found.before[:3, 0].tolist() == [92, 93, 94]
    assert (found.after[8, 8], found.after[28, 28], found.after[8, 9]) == (-1, -1, 100)
    late = before.clone()
    late[199, 2] = -1
    assert weight_view("w", before, late).name == "w, rows 136 to 199, columns 0 to 95"
    small = weight_view("b", torch.arange(5.0), torch.tensor([0.0, 1, 9e9, 3, 4]))
    assert (small.name, small.before.shape) == ("b", (1, 5))
    assert small.after.tolist() == [[0, 1, 6e4, 3, 4]]
