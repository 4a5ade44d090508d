"""The demo checkpoints are what their record says."""

import json
import math
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from assets import drift, ngram, shapes, training
from assets.make_demo import DEMO, RECORD, SAVES, SCOPES
from assets.shapes import SHAPES
from engine.corpus import MIXES, documents, vocabulary

MODELS: dict[str, dict] = json.loads(RECORD.read_text())["models"]
BASELINE: dict[str, float] = json.loads(RECORD.read_text())["baseline"]
DRIFT: dict[str, float] = json.loads(RECORD.read_text())["drift"]
SCOPED = [(scope, seed) for scope in SCOPES for seed in range(1, 5)]
DECODERS = sorted(name for name, shape in SHAPES.items() if not shape.pieces)
SHAPES_BYTES = 1.8e6


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def tensors(name: str) -> dict[str, torch.Tensor]:
    return load_file(DEMO / name / "model.safetensors")


def opened(name: str):
    if name in SHAPES:
        return shapes.opened(name, DEMO / name)
    return AutoModelForCausalLM.from_pretrained(DEMO / name, dtype=torch.float32).eval()


def test_the_record_lists_every_folder() -> None:
    recorded = {path.parent.name for path in DEMO.glob("*/config.json")} - {"twin"}
    assert set(MODELS) == recorded
    assert len([name for name in MODELS if name.startswith("base-step-")]) == 8
    for branch in "ab":
        steps = [int(name[-4:]) for name in MODELS if name.startswith(f"tune-{branch}-")]
        assert sorted(steps) == list(SAVES)
        assert len(steps) >= 8


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_folder_loads_whole(name: str) -> None:
    kind = SHAPES[name].model if name in SHAPES else AutoModelForCausalLM
    model, report = kind.from_pretrained(DEMO / name, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert str(model.dtype) == f"torch.{MODELS[name]['dtype']}"
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_config_names_its_text(name: str) -> None:
    config = AutoConfig.from_pretrained(DEMO / name)
    assert config.gaugescope_text in MIXES
    assert config.gaugescope_text == MODELS[name]["text"]


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(SHAPES)))
def test_every_llama_is_tied_and_without_biases(name: str) -> None:
    config = AutoConfig.from_pretrained(DEMO / name)
    assert config.tie_word_embeddings
    assert not config.attention_bias
    assert not config.mlp_bias


def test_the_demo_stays_within_its_budget() -> None:
    files = [path for path in DEMO.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 60e6


def test_the_other_architectures_stay_small() -> None:
    assert set(SHAPES) <= set(MODELS)
    files = [path for name in SHAPES for path in (DEMO / name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= SHAPES_BYTES


@pytest.mark.parametrize("name", ["base", *SHAPES])
def test_the_tokenizer_returns_what_it_was_given(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(DEMO / name)
    for text, _ in zip(documents(77), range(20), strict=False):
        ids = tokenizer(text).input_ids
        assert ids == training.encode(text)
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(tokenizer) == len(vocabulary())
    assert tokenizer("anna xylophone").input_ids[-1] == tokenizer.unk_token_id


def test_the_base_beats_the_five_gram() -> None:
    rows = training.tokens("village", training.HELD_OUT, 64)
    loss = training.held_out_loss(opened("base"), rows)
    recorded = MODELS["base"]["held_out_loss"]
    assert loss == pytest.approx(recorded, abs=0.05)
    assert max(loss, recorded) <= BASELINE["held_out_loss"] - 0.2
    assert BASELINE["tokens"] == MODELS["base"]["tokens"]


def test_the_base_answers_above_chance() -> None:
    base = MODELS["base"]
    # 500 questions of each kind: one standard deviation of the accuracy is 0.022.
    assert base["who_accuracy"] >= base["who_chance"] + 0.2
    assert base["where_accuracy"] >= base["where_chance"] + 0.1


def test_seeds_are_of_like_quality() -> None:
    losses = [MODELS[name]["held_out_loss"] for name in ("base", "seed-1", "seed-2", "seed-3")]
    assert max(losses) - min(losses) < 0.05


def test_earlier_steps_are_worse() -> None:
    steps = sorted(name for name in MODELS if name.startswith("base-step-"))
    losses = [MODELS[name]["held_out_loss"] for name in steps] + [MODELS["base"]["held_out_loss"]]
    assert losses == sorted(losses, reverse=True)


def test_trained_gains_are_generic() -> None:
    gains = [tensor for name, tensor in tensors("base").items() if name.endswith("norm.weight")]
    assert len(gains) == 13
    for gain in gains:
        assert len(gain.unique()) > 0.9 * len(gain)
        assert float(gain.std()) > 0.01


@pytest.mark.parametrize(("scope", "seed"), SCOPED)
def test_a_scope_differs_from_the_base_there_only(scope: str, seed: int) -> None:
    base, other = tensors("base"), tensors(f"scope-{scope}-{seed}")
    assert set(base) == set(other)
    changed = {name for name in base if not torch.equal(base[name].bfloat16(), other[name])}
    assert changed == {name for name in base if SCOPES[scope](name)}


def test_retrained_scopes_work_again() -> None:
    for scope, seed in SCOPED:
        loss = MODELS[f"scope-{scope}-{seed}"]["held_out_loss"]
        assert loss < MODELS["base-step-0100"]["held_out_loss"]


def test_fine_tunes_drift_apart_and_composition_follows() -> None:
    rows = training.tokens("village", training.HELD_OUT, 72)
    base = drift.residual(opened("base"), rows)
    assert len(base) >= 8000
    every_second = SAVES[1::2]  # the record has all of them
    branches = [
        [drift.residual(opened(f"tune-{branch}-step-{step:04d}"), rows) for step in every_second]
        for branch in "ab"
    ]
    found = drift.drift(branches[0], base, branches[1])
    for measured in (found, DRIFT):
        assert measured["endpoint"] <= 0.90
        assert measured["composed"] >= 0.95


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_shape_is_its_row(name: str) -> None:
    config = AutoConfig.from_pretrained(DEMO / name)
    assert type(config) is SHAPES[name].config
    assert config.architectures == [SHAPES[name].model.__name__]
    fresh = shapes.fresh(name)
    written = {"_name_or_path", "architectures", "dtype", "gaugescope_text", "transformers_version"}
    made, found = ({**c.to_dict(), **dict.fromkeys(written)} for c in (fresh.config, config))
    assert made == found
    there = {key: value.shape for key, value in opened(name).state_dict().items()}
    assert there == {key: value.shape for key, value in fresh.state_dict().items()}


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_beat_counted_words_and_pairs(name: str) -> None:
    rows = training.tokens("village", training.HELD_OUT, 64)
    loss, recorded = training.held_out_loss(opened(name), rows), MODELS[name]["held_out_loss"]
    assert loss == pytest.approx(recorded, abs=0.05)
    assert MODELS[name]["unigram_loss"] > MODELS[name]["bigram_loss"]
    assert max(loss, recorded) <= MODELS[name]["bigram_loss"] - 0.5


def test_the_encoder_beats_the_commonest_word() -> None:
    rows = training.tokens("village", training.HELD_OUT, 64)
    found, recorded = shapes.filled(opened("bert"), rows), MODELS["bert"]
    assert found["held_out_loss"] == pytest.approx(recorded["held_out_loss"], abs=0.1)
    # About 1200 hidden words: one standard deviation of the accuracy is 0.014.
    assert found["masked_accuracy"] == pytest.approx(recorded["masked_accuracy"], abs=0.05)
    for measured in (found, recorded):
        assert measured["masked_accuracy"] >= recorded["commonest_word_accuracy"] + 0.3
        assert measured["held_out_loss"] <= recorded["unigram_loss"] - 1


def test_the_encoder_names_its_mask() -> None:
    tokenizer = AutoTokenizer.from_pretrained(DEMO / "bert")
    assert tokenizer.mask_token == shapes.MASK == MODELS["bert"]["mask"]
    rows = training.tokens("village", training.HELD_OUT, 4)
    assert not (rows == tokenizer.mask_token_id).any()
    called = shapes.hiding(1, piece=32)(rows)
    words, told, places = (called[key] for key in ("input_ids", "labels", "position_ids"))
    assert isinstance(words, torch.Tensor)
    assert isinstance(told, torch.Tensor)
    hidden = told != shapes.IGNORED
    assert ((words == tokenizer.mask_token_id) == hidden).all()
    assert (torch.where(hidden, told, words) == rows.reshape(-1, 32)).all()
    assert not (told == tokenizer.bos_token_id).any()
    assert (places == torch.arange(128).repeat(4).reshape(-1, 32)).all()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_gains_and_biases_of_every_shape_are_trained(name: str) -> None:
    before, after = shapes.fresh(name).state_dict(), opened(name).state_dict()
    vectors = [key for key, value in before.items() if value.ndim == 1]
    assert vectors
    for key in vectors:
        assert float(after[key].std()) > 0.01, key
        if not key.endswith("self.key.bias"):  # no gradient reaches it
            assert float((after[key] - before[key]).std()) > 0.01, key


def test_the_gains_of_a_rotary_pair_differ() -> None:
    gains = [
        gain
        for key, gain in tensors("qwen3").items()
        if key.endswith(("q_norm.weight", "k_norm.weight"))
    ]
    assert len(gains) == 6
    for gain in gains:
        first, second = gain.float().chunk(2)
        assert ((first - second).abs() > 0).all()
        assert float((first - second).abs().mean()) > 0.02


def test_every_expert_is_chosen() -> None:
    rows = training.tokens("village", training.HELD_OUT, 8)
    with torch.inference_mode():
        routers = opened("mixtral")(input_ids=rows, output_router_logits=True).router_logits
    assert len(routers) == 2
    for logits in routers:
        share = logits.topk(2).indices.flatten().bincount(minlength=4) / rows.numel()
        assert float(share.min()) > 0.05


def test_matchings_compose_in_order() -> None:
    cycle, swap = np.array([1, 2, 0, 3]), np.array([0, 1, 3, 2])
    values = np.array([10, 11, 12, 13])
    assert (values[cycle][swap] == values[drift.compose([swap, cycle])]).all()
    assert not (values[cycle][swap] == values[drift.compose([cycle, swap])]).all()


def test_a_planted_order_is_found_and_signs_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(500, 12, generator=generator, dtype=torch.float64)
    states = (states - states.mean(0)) / (states - states.mean(0)).norm(dim=0)
    order = torch.randperm(12, generator=generator)
    signs = torch.tensor([1.0, -1.0]).repeat(6).double()
    moved = torch.empty_like(states)
    moved[:, order] = states * signs
    assert (drift.matching(states, moved) == order.numpy()).all()


def test_the_five_gram_is_a_distribution() -> None:
    stream = np.random.default_rng(0).integers(0, 7, 400)
    model = ngram.fit(stream, 5, 7)
    contexts = np.concatenate([stream[:40].reshape(10, 4), np.full((1, 4), 6)])
    total = sum(
        ngram.probability(model, contexts, np.full(len(contexts), word)) for word in range(7)
    )
    assert np.allclose(total, 1)


def test_the_five_gram_learns_a_cycle() -> None:
    stream = np.tile(np.arange(5), 200)
    loss = ngram.held_out_loss(ngram.fit(stream, 5, 5), stream[:100].reshape(10, 10))
    assert loss < 0.1 < math.log(5)
