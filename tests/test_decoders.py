"""Configurations of published decoders, old spellings included, and quarter turns."""

import math
import re
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from engine.elements import Ordered
from engine.errors import Refused
from engine.families._quarters import QUARTERS
from engine.family import Config, family_of
from engine.groups import SIGNED

SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
}
SHARED = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0",
    "use_cache": True,
}
GEMMA = {
    **SHARED,
    "attn_logit_softcapping": None,
    "cache_implementation": "hybrid",
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "vocab_size": 262144,
}
PHI = {
    **SHARED,
    "embd_pdrop": 0.0,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "model_type": "phi3",
    "num_attention_heads": 24,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096,
    "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-5,
    "sliding_window": 262144,
    "vocab_size": 200064,
}
PYTHIA = {
    "classifier_dropout": 0.1,
    "hidden_act": "gelu",
    "hidden_size": 512,
    "intermediate_size": 2048,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "model_type": "gpt_neox",
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
    "vocab_size": 50304,
}
GPTJ = {
    **SUMMARY,
    "activation_function": "gelu_new",
    "gradient_checkpointing": False,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gptj",
    "n_embd": 4096,
    "n_head": 16,
    "n_inner": None,
    "n_layer": 28,
    "n_positions": 2048,
    "rotary": True,
    "rotary_dim": 64,
    "scale_attn_weights": True,
    "tie_word_embeddings": False,
    "vocab_size": 50400,
}
COHERE = {
    **SHARED,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
    "max_position_embeddings": 8192,
    "model_max_length": 131072,
    "model_type": "cohere",
    "num_attention_heads": 64,
    "num_hidden_layers": 40,
    "num_key_value_heads": 64,
    "rope_theta": 8000000.0,
    "use_qk_norm": False,
    "vocab_size": 256000,
}
GPT2 = {
    **SUMMARY,
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "task_specific_params": {"text-generation": {"max_length": 50}},
    "vocab_size": 50257,
}

PUBLISHED: Mapping[str, tuple[Config, Mapping[str, int]]] = {
    "GPT-2": (GPT2, {"res": 768, "ffn": 3072, "grp": 12, "qk": 64, "pos": 1024}),
    "Pythia, old": (
        {**PYTHIA, "rotary_emb_base": 10000, "rotary_pct": 0.25},
        {"grp": 8, "rot": 16, "qk": 48, "val": 64, "freq": 8},
    ),
    "Pythia, older": (PYTHIA, {"rot": 16, "qk": 48}),
    "Pythia, new": (
        {**PYTHIA, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        {"rot": 32, "qk": 32, "freq": 16},
    ),
    "GPT-J": (GPTJ, {"res": 4096, "ffn": 16384, "rot": 64, "qk": 192, "val": 256}),
    "Gemma 2": (
        {
            **GEMMA,
            "hidden_act": "gelu_pytorch_tanh",
            "model_type": "gemma2",
            "sliding_window_size": 4096,
        },
        {"grp": 1, "head": 4, "rot": 256},
    ),
    "Gemma 3": (
        {
            **GEMMA,
            "model_type": "gemma3_text",
            "rope_local_base_freq": 10000,
            "rope_scaling": None,
            "sliding_window_pattern": 6,
        },
        {"grp": 1, "head": 4, "rot": 128, "gain": 128, "half": 2},
    ),
    "Phi-3": (
        {**PHI, "rope_scaling": None, "rope_theta": 10000.0},
        {"head": 3, "rot": 128, "qk": 0},
    ),
    "Phi-4-mini": (
        {
            **PHI,
            "full_attn_mod": 1,
            "interpolate_factor": 1,
            "lm_head_bias": False,
            "mlp_bias": False,
            "partial_rotary_factor": 0.75,
            "rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]},
            "rope_theta": 10000.0,
        },
        {"rot": 96, "qk": 32, "val": 128},
    ),
    "Command R": (COHERE, {"grp": 64, "head": 1, "rot": 128}),
}
"""As on the hub: configuration, and sizes that it must give."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_understood(name: str) -> None:
    config, sizes = PUBLISHED[name]
    family = family_of(config)
    assert sorted(set(config) - family.known) == []
    with pytest.raises(Refused, match=r"^Missing tensors"):
        family.check(config, {})  # past the attributes
    assert {word: family.sizes(config)[word] for word in sizes} == sizes


@pytest.mark.parametrize(
    ("config", "attribute", "value", "covers"),
    [
        (GPT2, "add_cross_attention", True, "False"),
        (GPTJ, "rotary", False, "True"),
        (GEMMA | {"model_type": "gemma2"}, "use_bidirectional_attention", True, "None or False"),
        (GEMMA | {"model_type": "gemma3_text"}, "attn_logit_softcapping", 50.0, "None"),
        (PHI, "attention_bias", True, "False"),
        (COHERE, "use_qk_norm", True, "None or False"),
    ],
)
def test_what_a_table_does_not_cover_is_refused(
    config: Config, attribute: str, value: object, covers: str
) -> None:
    message = (
        f"Configuration attribute {attribute!r} is {value!r}; the {family_of(config).name} family "
        f"covers {covers} only."
    )
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        family_of(config).check({**config, attribute: value}, {})


def test_heads_are_tied_where_nothing_is_said() -> None:
    """GPT-2, Gemma and Cohere tie by default, the others do not."""
    tied = {name: family_of(c).sets(c, "tie_word_embeddings") for name, (c, _) in PUBLISHED.items()}
    assert {name for name, on in tied.items() if on} == {
        "GPT-2", "Gemma 2", "Gemma 3", "Command R",
    }  # fmt: skip


def matrix(element: Ordered) -> Tensor:
    """M with M x = g x."""
    *batch, n = element.permutation.shape
    return element.write(torch.eye(n, dtype=torch.float64).expand(*batch, n, n)).mT


def rotation(angles: Tensor) -> Tensor:
    """The rotary matrix of pairs (i, i + n/2)."""
    n = len(angles)
    turn = torch.zeros(2 * n, 2 * n, dtype=torch.float64)
    f = torch.arange(n)
    turn[f, f], turn[f, f + n] = angles.cos(), -angles.sin()
    turn[f + n, f], turn[f + n, f + n] = angles.sin(), angles.cos()
    return turn


ANGLES = torch.tensor([0.7, 1.9, 2.6], dtype=torch.float64)


def test_quarter_turns_are_the_powers_of_one_quarter(generator: torch.Generator) -> None:
    drawn = QUARTERS.sample(6, (64,), generator)
    seen: set[int] = set()
    for x in matrix(drawn):
        z = torch.complex(x[:3, :3].diagonal(), x[3:, :3].diagonal())
        assert torch.allclose(x, rotation(z.angle()), atol=1e-12)
        quarters = z.angle() / (math.pi / 2)
        assert torch.equal(quarters, quarters.round())
        seen |= set((quarters.long() % 4).tolist())
    assert seen == {0, 1, 2, 3}


def test_quarter_turns_commute_with_rotations(generator: torch.Generator) -> None:
    turn = rotation(ANGLES)
    for x in matrix(QUARTERS.sample(6, (32,), generator)):
        assert torch.allclose(x @ turn, turn @ x)
    exchange = Ordered(torch.tensor([3, 1, 2, 0, 4, 5]), torch.ones(6, dtype=torch.float64))
    assert not torch.allclose(matrix(exchange) @ turn, turn @ matrix(exchange))


def test_quarter_turns_are_closed_and_read_as_they_write(generator: torch.Generator) -> None:
    first, second = (QUARTERS.sample(6, (5,), generator) for _ in range(2))
    assert torch.allclose(matrix(first.compose(second)), matrix(first) @ matrix(second))
    x = torch.randn(5, 4, 6, generator=generator, dtype=torch.float64)
    assert torch.equal(first.write(x), first.read(x))
    assert torch.equal(first.relabel(x.abs()), first.write(x.abs()).abs())
    assert first.exact


def test_a_quarter_turn_is_found_again(generator: torch.Generator) -> None:
    drawn = QUARTERS.sample(6, (7,), generator)
    rows = torch.randn(7, 40, 6, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(7, 40, 6, generator=generator, dtype=torch.float64)
    found = QUARTERS.project((drawn.write(rows) + noise).mT @ rows)
    assert torch.equal(matrix(found), matrix(drawn))
    again = QUARTERS.restore(drawn.numbers())
    assert torch.equal(matrix(again), matrix(drawn))


def test_quarter_turns_are_counted() -> None:
    assert QUARTERS.log10(6) == pytest.approx(math.log10(4**3))
    assert QUARTERS.log10(6) < SIGNED.log10(6)
    assert QUARTERS.dimension(6) == 0
    identity = QUARTERS.identity(6, (2,))
    assert torch.equal(matrix(identity), torch.eye(6).double().expand(2, 6, 6))
