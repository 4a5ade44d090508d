"""Two configurations of one function agree whatever their spelling; others do not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.agreement import differences
from engine.alignment.one_pass import align, aligned, start_from_embedding
from engine.checkpoint import Checkpoint, open_checkpoint, require_same_group
from engine.errors import Refused
from engine.headers import read_headers
from engine.scramble import scramble
from tests import tiny

Built = Callable[[str], Path]


def pair(built: Built, architecture: str, folder: Path, **changes: object) -> list[str]:
    """What differs between a model and itself with other attributes (None: left out)."""
    a = open_checkpoint(built(architecture))
    config = {k: v for k, v in {**a.config, **changes}.items() if v is not None}
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    b = Checkpoint("b", folder, json.loads(path.read_text()), a.headers, "b")
    return [name for name, _, _ in differences(a.family, a.config, b.family, b.config)]


SAME = [
    ("llama_gqa", {"rope_parameters": None, "rope_theta": 10000.0}),
    ("llama_gqa", {"rope_parameters": None, "rope_theta": 10000, "rope_scaling": None}),
    ("gpt_neox", {"rope_parameters": None, "rotary_pct": 0.5, "rotary_emb_base": 10000}),
    ("gemma2", {"layer_types": None}),
    ("gpt2", {"tie_word_embeddings": None, "activation_function": "gelu_new"}),
    ("cohere", {"tie_word_embeddings": None}),
    ("qwen3", {"max_window_layers": 7}),
]
OTHER = [
    ("llama_gqa", {"rope_parameters": None, "rope_theta": 20000.0}, "rope_parameters"),
    ("llama3_scaling", {"rope_parameters": None, "rope_theta": 10000.0}, "rope_parameters"),
    ("gemma2", {"attn_logit_softcapping": None}, "attn_logit_softcapping"),
    ("gemma2", {"sliding_window": 5}, "sliding_window"),
    ("gpt_neox", {"use_parallel_residual": False}, "use_parallel_residual"),
    ("mixtral", {"num_experts_per_tok": 1}, "num_experts_per_tok"),
    ("cohere", {"logit_scale": 1.0}, "logit_scale"),
    ("bert_masked", {"hidden_act": "relu"}, "hidden_act"),
]


@pytest.mark.parametrize(("architecture", "changes"), SAME)
def test_spellings_of_one_function_agree(
    architecture: str, changes: dict, built: Built, tmp_path: Path
) -> None:
    assert pair(built, architecture, tmp_path, **changes) == []


@pytest.mark.parametrize(("architecture", "changes", "name"), OTHER)
def test_another_function_is_told_by_name(
    architecture: str, changes: dict, name: str, built: Built, tmp_path: Path
) -> None:
    assert name in pair(built, architecture, tmp_path, **changes)


def test_a_value_that_transformers_refuses_is_one_line(built: Built, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"transformers does not accept this configuration"):
        pair(built, "llama_gqa", tmp_path, rms_norm_eps="x")


def test_an_old_spelling_of_names_aligns_with_the_new(built: Built, tmp_path: Path) -> None:
    """A file without the prefix against its twin saved with it: every tensor comes back."""
    old = open_checkpoint(built("gpt2_old"))
    scramble(old, tmp_path / "twin", seed=3)
    held = tiny.tensors(tmp_path / "twin")
    buffers = (".attn.bias", "masked_bias")
    named = {f"transformer.{n}": x for n, x in held.items() if not n.endswith(buffers)}
    tiny.save_file(named, tmp_path / "twin" / "model.safetensors", {"format": "pt"})
    new = open_checkpoint(tmp_path / "twin")
    require_same_group(old, new)
    respelled = new.spelled_like(old)
    assert set(respelled.headers) < set(old.headers)
    g, _ = align(old, respelled, start_from_embedding(old, respelled))
    for name, x in aligned(g, respelled):
        assert tiny.distance(x, old.read(name)) < 1e-4


@pytest.mark.parametrize(
    ("architecture", "prefix"),
    [("gpt_neox", "gpt_neox."), ("llama_gqa", "model."), ("opt", "model.")],
)
def test_a_bare_model_leaves_its_prefix_out(
    architecture: str, prefix: str, built: Built, tmp_path: Path
) -> None:
    """Saved without its head, every name lacks the prefix: the same rows are found."""
    whole = open_checkpoint(built(architecture))
    held = {n: x for n, x in tiny.tensors(built(architecture)).items() if n.startswith(prefix)}
    tiny.save_file(
        {n.removeprefix(prefix): x for n, x in held.items()},
        tmp_path / "model.safetensors", {"format": "pt"},
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(dict(whole.config)), encoding="utf-8")
    bare = Checkpoint("bare", tmp_path, whole.config, read_headers(tmp_path), "bare")
    for name in bare.headers:
        assert whole.family.row(name) == whole.family.row(prefix + name)


KINDS = {
    "default": {}, "linear": {"factor": 2.0}, "dynamic": {"factor": 2.0}, "yarn": {"factor": 2.0},
    "llama3": {
        "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
    "longrope": {
        "factor": 2.0, "short_factor": [1.0, 1.0], "long_factor": [2.0, 2.0],
        "original_max_position_embeddings": 8,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_length_counts_where_the_rotation_depends_on_it(
    kind: str, built: Built, tmp_path: Path
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    rotary = {"rope_theta": 10000.0, "rope_type": kind, **KINDS[kind]}
    short, long = (
        {**a.config, "rope_parameters": rotary, "max_position_embeddings": length}
        for length in (16, 32)
    )
    found = list(differences(a.family, short, a.family, long))
    told = [("max_position_embeddings", 16, 32)] * (kind in {"dynamic", "yarn", "longrope"})
    assert found == told
