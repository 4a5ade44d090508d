"""Models from checkpoints and from tensors: complete, frozen, silent, within memory."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
)

from engine import network, running
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Refused, Short
from tests import tiny

CPU = torch.device("cpu")
NORM = "model.norm.weight"
SMALL = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "vocab_size": 96,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny.build("llama_gqa", tmp_path_factory.mktemp("network") / "llama_gqa")
    vocabulary = {word: k for k, word in enumerate(["anna", "is", "in", "the", "garden"])}
    words = Tokenizer(WordLevel(vocabulary, "in"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return open_checkpoint(folder)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Tensor:
    """Logits of the same folder loaded by transformers itself."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(tiny.tokens()).logits


def tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {name: checkpoint.read(name) for name in checkpoint.headers}


def run(model: PreTrainedModel) -> Tensor:
    return torch.cat([part["logits"] for part in running.outputs(model, tiny.tokens())])


def opened(folder: Path, model: PreTrainedModel, name: str = "other") -> Checkpoint:
    """A checkpoint of a family that need not have a table, as if its table had passed it."""
    model.save_pretrained(folder)
    made = open_checkpoint(folder)
    vars(made)["family"] = name
    return made


# Loading and building


def test_a_loaded_model_computes_what_transformers_does(
    checkpoint: Checkpoint, expected: Tensor
) -> None:
    assert torch.equal(run(network.load(checkpoint)), expected)


def test_a_built_model_is_the_loaded_one(checkpoint: Checkpoint, expected: Tensor) -> None:
    assert torch.equal(run(network.build(checkpoint, tensors(checkpoint))), expected)


def test_a_model_is_frozen_and_has_no_cache(checkpoint: Checkpoint) -> None:
    model = network.load(checkpoint)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert model(tiny.tokens()).past_key_values is None


def test_a_built_model_shares_nothing(checkpoint: Checkpoint) -> None:
    given = tensors(checkpoint)
    model = network.build(checkpoint, given)
    before = run(model)
    for tensor in given.values():
        tensor.zero_()
    assert torch.equal(run(model), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_dtype_is_kept(dtype: torch.dtype, checkpoint: Checkpoint, expected: Tensor) -> None:
    for model in (
        network.load(checkpoint, CPU, dtype),
        network.build(checkpoint, tensors(checkpoint), CPU, dtype),
    ):
        assert {p.dtype for p in model.parameters()} == {dtype}
        tolerance = 1e-5 if dtype == torch.float64 else 0.2
        assert tiny.distance(run(model), expected) < tolerance


def test_a_tied_model_has_one_embedding(tmp_path: Path) -> None:
    tied = open_checkpoint(tiny.build("llama_mqa_tied", tmp_path / "tied"))
    for model in (network.load(tied), network.build(tied, tensors(tied))):
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_shorter_model_is_built_with_its_own_configuration(checkpoint: Checkpoint) -> None:
    kept = {n: t for n, t in tensors(checkpoint).items() if "layers.1" not in n}
    short = network.build(checkpoint, kept, config={**checkpoint.config, "num_hidden_layers": 1})
    assert len(short.get_submodule("model.layers")) == 1
    with pytest.raises(Refused, match=r"lacks model\.layers\.1\.\S+, \S+, \S+ and 6 more, which"):
        network.build(checkpoint, kept)


def neox() -> PreTrainedModel:
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL))


def mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(
        MixtralConfig(**SMALL, num_key_value_heads=3, num_local_experts=3, num_experts_per_tok=2)
    )


@pytest.mark.parametrize(
    ("make", "name"),
    [(neox, "embed_out.weight"), (mixtral, "model.layers.1.block_sparse_moe.experts.2.w2.weight")],
)
def test_names_are_those_on_disk(
    make: Callable[[], PreTrainedModel], name: str, tmp_path: Path
) -> None:
    original = tiny.moved(make().eval(), 1)
    renamed = opened(tmp_path / "renamed", original)
    given = tensors(renamed)
    assert name in given
    model = network.build(renamed, given)
    assert torch.equal(run(model), run(original))
    given[name] = given[name] * 2
    assert not torch.equal(run(network.build(renamed, given)), run(original))
    with pytest.raises(Refused, match=r"(which the model needs|is not loaded by transformers)"):
        network.build(renamed, {n: t for n, t in given.items() if n != name})


def test_a_soft_cap_is_computed(tmp_path: Path) -> None:
    """A fused kernel would leave the cap out without a word."""
    config = Gemma2Config(**SMALL, num_key_value_heads=3, head_dim=8, attn_logit_softcapping=0.5)
    checkpoint = opened(tmp_path / "gemma", tiny.moved(Gemma2ForCausalLM(config), 1))
    free = {**checkpoint.config, "attn_logit_softcapping": 1e6}
    capped = network.load(checkpoint)
    uncapped = network.build(checkpoint, tensors(checkpoint), config=free)
    assert capped.config._attn_implementation == "eager"
    assert tiny.distance(run(capped), run(uncapped)) > 1e-3


@pytest.mark.parametrize(
    "names", [None, [], ["PreTrainedModel"], ["AutoModel"], ["logging"], ["GPT2LMHeadModel"], [3]]
)
def test_only_a_model_class_of_its_own_type_is_taken(names: object, checkpoint: Checkpoint) -> None:
    found = network.network_class({**checkpoint.config, "architectures": names})
    assert found is LlamaForCausalLM


def test_the_class_that_the_configuration_names() -> None:
    found = network.network_class({"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    assert found is transformers.BertForMaskedLM


# Refusals


def test_a_family_that_does_not_fit_is_refused_first(checkpoint: Checkpoint) -> None:
    strange = replace(checkpoint, config={**checkpoint.config, "twist": 1})
    with pytest.raises(Refused, match="Unknown configuration attribute 'twist'"):
        network.load(strange)


def test_a_tensor_that_is_not_there_is_not_invented(folder: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    state = load_file(broken / "model.safetensors")
    del state[NORM]
    save_file(state, broken / "model.safetensors")
    checkpoint = open_checkpoint(broken)
    vars(checkpoint)["family"] = "passed"
    with pytest.raises(Refused, match=f"lacks {re.escape(NORM)}, which the model needs"):
        network.load(checkpoint)


def test_a_configuration_that_transformers_does_not_know(checkpoint: Checkpoint) -> None:
    strange = {**checkpoint.config, "hidden_act": "nonsense"}
    with pytest.raises(Refused, match=r"is not loaded by transformers \(.*nonsense"):
        network.build(checkpoint, tensors(checkpoint), config=strange)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite(value: float, checkpoint: Checkpoint) -> None:
    given = tensors(checkpoint)
    given[NORM][2] = value
    with pytest.raises(Refused, match=f"{re.escape(NORM)} holds 1 values of 24 that are not fin"):
        network.build(checkpoint, given)


def test_an_overflow_in_a_narrow_dtype_is_refused(checkpoint: Checkpoint) -> None:
    given = tensors(checkpoint)
    given[NORM][2] = 1e6
    network.build(checkpoint, given)
    with pytest.raises(Refused, match="or a wider dtype"):
        network.build(checkpoint, given, CPU, torch.float16)


# Silence


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, with bars on, all warnings errors and no way out to a network."""
    script = (
        "import socket, sys\n"
        "sys.path.insert(0, '.')\n"
        "def refuse(*_): raise AssertionError('a folder was opened over the network')\n"
        "socket.socket.connect = refuse\n"
        "from engine import network\n"
        "from engine.checkpoint import open_checkpoint\n"
        f"opened = open_checkpoint({str(folder)!r})\n"
        "network.load(opened)\n"
        "network.build(opened, {n: opened.read(n) for n in opened.headers})\n"
        "network.tokenizer(opened)\n"
    )
    hidden = {"HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    root = Path(network.__file__).parent.parent
    command = [sys.executable, "-W", "error", "-c", script]
    subprocess.run(command, cwd=root, env=environment, check=True)
    assert capfd.readouterr() == ("", "")


# Tokenizers


def test_a_tokenizer(checkpoint: Checkpoint) -> None:
    assert network.tokenizer(checkpoint)("anna is in the garden")["input_ids"] == [0, 1, 2, 3, 4]


def test_no_tokenizer(tmp_path: Path) -> None:
    bare = open_checkpoint(tiny.build("llama_gqa", tmp_path / "bare"))
    with pytest.raises(Refused, match="has no tokenizer that opens: give token ids instead"):
        network.tokenizer(bare)


def test_a_tokenizer_with_code_of_its_own(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    text = json.dumps({"auto_map": {"AutoTokenizer": ["evil.Evil", None]}})
    (copy / "tokenizer_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match=r"declares custom code \(auto_map\), which is never run"):
        network.tokenizer(open_checkpoint(copy))


# Logits


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_batches_change_nothing(batch: int, checkpoint: Checkpoint) -> None:
    model = network.load(checkpoint)
    tokens = torch.randint(96, (5, 7), generator=torch.Generator().manual_seed(0))
    parts = [part["logits"] for part in running.outputs(model, tokens, batch)]
    assert [len(p) for p in parts] == [min(batch, 5 - k) for k in range(0, 5, batch)]
    whole = model(tokens).logits
    assert torch.allclose(torch.cat(parts), whole, atol=1e-5)
    assert not any(p.requires_grad for p in parts)


def test_inputs_of_an_encoder() -> None:
    sizes = {k: v for k, v in SMALL.items() if k not in {"vocab_size", "pad_token_id"}}
    model = ViTForImageClassification(ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=5))
    pixels = torch.randn(3, 3, 8, 8)
    model.eval()
    by_name, alone = (
        torch.cat([part["logits"] for part in running.outputs(model, inputs, 2)])
        for inputs in ({"pixel_values": pixels}, pixels)
    )
    assert by_name.shape == (3, 5)
    assert torch.equal(by_name, alone)


# Devices, dtypes, memory, threads


def test_devices_that_are_here() -> None:
    assert network.device("cpu") == CPU
    assert network.device("auto").type == network.available()[-1]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:1", "mps:0", "", "cuda:-1", "meta"])
def test_a_device_that_does_not_exist(name: str) -> None:
    text = f"There is no device {name!r}: write auto, cpu, cuda, cuda:0 or mps."
    with pytest.raises(Refused, match=re.escape(text)):
        network.device(name)


def test_a_device_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "cuda:0", "mps"):
        text = f"The device {name} is not available: this machine has cpu."
        with pytest.raises(Refused, match=re.escape(text)):
            network.device(name)
    assert network.device() == CPU


def test_the_number_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert network.device() == torch.device("cuda")
    assert network.device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(Refused, match="The device cuda:2 is not available"):
        network.device("cuda:2")


def test_dtypes() -> None:
    assert [network.dtype(n) for n in network.DTYPES] == [
        torch.float32, torch.bfloat16, torch.float16, torch.float64,
    ]  # fmt: skip
    text = "There is no dtype 'int8': write float32, bfloat16, float16, float64."
    with pytest.raises(Refused, match=text):
        network.dtype("int8")


def test_memory_is_checked_before_loading(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "free_memory", lambda _: network.ALLOWANCE + 1)
    for make in (network.load, lambda c: network.build(c, tensors(c))):
        with pytest.raises(Refused, match="choose a smaller model, or a smaller dtype"):
            make(checkpoint)


def test_memory_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "free_memory", lambda _: 32 * 2**30)
    network.require_memory(7 * 10**9, torch.bfloat16, CPU, models=2)
    with pytest.raises(Short) as caught:
        network.require_memory(7 * 10**9, torch.float32, CPU, models=2)
    assert str(caught.value) == (
        "2 models of 7,000 M parameters in float32 and 0.5 GiB for the work need 52.7 GiB, cpu has "
        "32.0 GiB free: choose a smaller model, or a smaller dtype such as bfloat16."
    )
    with pytest.raises(Refused, match=r"choose a smaller model\.$"):
        network.require_memory(2**34, torch.bfloat16, CPU, allowance=1)
    network.require_memory(2**34, torch.bfloat16, CPU, allowance=0)


def test_free_memory_is_measured() -> None:
    assert 0 < network.free_memory(CPU) < 2**50


def test_threads_are_set_for_a_job_and_given_back() -> None:
    before = torch.get_num_threads()

    def stop() -> None:
        with network.threads(2):
            assert torch.get_num_threads() in {1, 2}
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stop()
    assert torch.get_num_threads() == before
    with network.threads(10**6):
        assert 1 <= torch.get_num_threads() <= 4096
