"""Layers left out: the written model is the old one with its list of blocks cut by hand."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from engine import pruning, writing
from engine.checkpoint import open_checkpoint, save_checkpoint
from engine.cli import main
from engine.errors import Refused
from engine.families import FAMILIES
from engine.family import family_of
from engine.pruning import (
    configuration,
    kept,
    parse_layers,
    passthrough,
    prune,
    restacked,
    runs,
    spoken,
)
from engine.questions import Drop
from engine.records import CutCost, Readings, Run
from engine.summaries import layers as summaries
from tests import tiny

LAYERS, DROP, STACK = 4, (0, 2), (1, 3)
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
SLIDING, FULL = "sliding_attention", "full_attention"
KINDS = {"layer_types": [SLIDING, FULL, SLIDING, FULL]}
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in tiny.ARCHITECTURES if not name.startswith("modernbert")},
    "gemma3": ("gemma3", KINDS),
    "gemma3_biases": ("gemma3_biases", KINDS),
    "qwen2_window": ("qwen2", WINDOWS),
    "qwen3_window": ("qwen3", WINDOWS),
    "qwen2_moe_window": ("qwen2_moe", WINDOWS | {"max_window_layers": 3}),
}
"""Every tiny architecture with four layers, and those of which a list says the layers' kinds.

ModernBERT must keep its first layer, which these tests drop: see test_modernbert.py.
"""
LISTED = ("gemma2", "gemma3", "qwen2_moe_window", "qwen2_window", "qwen3_window")
ENCODERS = ("bert", "vit")
DECODERS = tuple(name for name in sorted(VARIANTS) if not name.startswith(ENCODERS))


each_variant = pytest.mark.parametrize("variant", sorted(VARIANTS))
each_listed = pytest.mark.parametrize("variant", LISTED)
Four = Callable[[str], Path]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Four:
    """Folders of the variants with four layers, each written once."""
    folder = tmp_path_factory.mktemp("four")

    def build(variant: str) -> Path:
        architecture, changes = VARIANTS[variant]
        return tiny.build(architecture, folder / variant, num_hidden_layers=LAYERS, **changes)

    return cache(build)


@pytest.fixture(scope="module")
def cut(four: Four, tmp_path_factory: pytest.TempPathFactory) -> Four:
    """The same without the layers `DROP`."""
    folder = tmp_path_factory.mktemp("cut")

    def write(variant: str) -> Path:
        return prune(open_checkpoint(four(variant)), DROP, folder / variant).folder

    return cache(write)


def by_hand(folder: Path, stack: Sequence[int], *, kinds: bool = True) -> PreTrainedModel:
    """The old model in float64 with its list of blocks, and the list of their kinds, cut."""
    model = deepcopy(tiny.network(folder).model)
    path = open_checkpoint(folder).family.blocks
    bare = path.partition(".")[2]  # a model without a head has no prefix
    parent, _, last = (path if path in dict(model.named_modules()) else bare).rpartition(".")
    holder = model.get_submodule(parent)
    blocks = getattr(holder, last)
    setattr(holder, last, nn.ModuleList([blocks[layer] for layer in stack]))
    model.config.num_hidden_layers = len(stack)
    if kinds and getattr(model.config, "layer_types", None):
        model.config.layer_types = [model.config.layer_types[layer] for layer in stack]
    return model


@torch.no_grad()
def said(model: PreTrainedModel, given: Mapping[str, Tensor]) -> Tensor:
    """All outputs in one row."""
    cached = {"use_cache": False} if model.main_input_name == "input_ids" else {}
    found = model(**given, **cached)
    return torch.cat([x.flatten() for x in found.values() if isinstance(x, Tensor)])


def apart(folder: Path, pruned: Path, stack: Sequence[int] = STACK, *, kinds: bool = True) -> float:
    """‖written − by hand‖ / ‖by hand‖ of all outputs."""
    given = tiny.inputs(folder)
    written = said(tiny.network(pruned).model, given)
    return tiny.distance(written, said(by_hand(folder, stack, kinds=kinds), given))


def loaded(folder: Path) -> PreTrainedModel:
    """What `from_pretrained` makes of a folder, in float32; nothing may be missing or left over."""
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    model, found = kind.from_pretrained(folder, output_loading_info=True)
    masks = {name for name in found["unexpected_keys"] if name.endswith("masked_bias")}
    found["unexpected_keys"] = set(found["unexpected_keys"]) - masks  # of old programs, unused
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def rewritten(folder: Path, target: Path, **changes: object) -> Path:
    """A copy of a folder with other attributes; None removes one."""
    shutil.copytree(folder, target)
    path = target / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return target


@each_variant
def test_the_written_model_is_the_old_one_cut_by_hand(variant: str, four: Four, cut: Four) -> None:
    assert apart(four(variant), cut(variant)) < 1e-6
    assert apart(four(variant), four(variant)) > 1e-3  # it is not the old one whole


@each_variant
def test_nothing_is_missing_or_left_over_and_every_bit_stays(
    variant: str, four: Four, cut: Four
) -> None:
    loaded(cut(variant))
    old, new = open_checkpoint(four(variant)), open_checkpoint(cut(variant))
    assert new.layers == len(STACK)  # and the family's table finds nothing wrong
    renamed = {}
    for name in old.headers:
        layer = old.family.row(name).layer
        if layer is None or layer in STACK:
            depth = "" if layer is None else f".{STACK.index(layer)}."
            renamed[re.sub(r"\.\d+\.", depth, name, count=1) if depth else name] = name
    assert sorted(renamed) == sorted(new.headers)
    for now, before in renamed.items():
        assert new.headers[now].dtype == old.headers[before].dtype
        same = new.values(new.headers[now]) == old.values(old.headers[before])
        assert same.all()


@pytest.mark.parametrize("variant", DECODERS)
def test_the_written_decoder_generates_with_its_cache(variant: str, cut: Four) -> None:
    model = loaded(cut(variant))
    ids = tiny.tokens(model.config.vocab_size, 8)
    how = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    how["attention_mask"] = torch.ones_like(ids)
    with_cache = model.generate(ids, **how)
    assert with_cache.shape == (2, 14)
    assert torch.equal(with_cache, model.generate(ids, use_cache=False, **how))


@pytest.mark.parametrize("variant", ["gemma2", "gpt2", "llama_gqa"])
def test_a_list_of_blocks_cut_in_memory_keeps_old_numbers_and_cannot_fill_a_cache(
    variant: str, four: Four
) -> None:
    model = by_hand(four(variant), STACK).float()
    ids = tiny.tokens(model.config.vocab_size, 8)
    how = {"max_new_tokens": 3, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    model.generate(ids, use_cache=False, **how)
    with pytest.raises(IndexError):
        model.generate(ids, **how)


@each_listed
def test_kinds_that_are_not_cut_along_are_another_model(
    variant: str, four: Four, cut: Four, tmp_path: Path
) -> None:
    kinds = json.loads((four(variant) / "config.json").read_text())["layer_types"]
    assert json.loads((cut(variant) / "config.json").read_text())["layer_types"] == [
        kinds[layer] for layer in STACK
    ]
    wrong = rewritten(cut(variant), tmp_path / "wrong", layer_types=kinds[: len(STACK)])
    assert apart(four(variant), wrong) > 1e-3
    assert apart(four(variant), wrong, kinds=False) < 1e-6


@each_listed
def test_kinds_that_a_configuration_leaves_out_are_spelled_out(
    variant: str, four: Four, tmp_path: Path
) -> None:
    pattern = {"sliding_window_pattern": 2} if variant == "gemma3" else {}
    silent = rewritten(four(variant), tmp_path / "silent", layer_types=None, **pattern)
    assert apart(silent, four(variant), range(LAYERS)) < 1e-6
    pruned = prune(open_checkpoint(silent), DROP, tmp_path / "cut")
    assert apart(four(variant), pruned.folder) < 1e-6
    assert not [name for name in pruned.config if "sliding_window_pattern" in name]
    left_out = rewritten(pruned.folder, tmp_path / "wrong", layer_types=None)
    if "window" not in variant or variant == "qwen2_moe_window":  # what no number of layers says
        assert apart(four(variant), left_out) > 1e-3
    else:
        assert pruned.config["max_window_layers"] == 1
        assert apart(four(variant), left_out) < 1e-6


@pytest.mark.parametrize(
    ("first", "drop", "left"),
    [
        (2, (1,), 1),
        (2, (2,), 2),  # the first layer that is not counted
        (2, (0, 1), 0),
        (2, (2, 3), 2),
        (0, (0,), 0),
        (7, (0, 3), 2),  # more than there are layers: those that stay
    ],
)
def test_the_first_layers_are_counted_again(
    first: int, drop: tuple[int, ...], left: int, tmp_path: Path
) -> None:
    """`max_window_layers` layers have full attention, those from that number on the window."""
    changes = {**WINDOWS, "max_window_layers": first, "num_hidden_layers": LAYERS}
    old = tiny.build("qwen2", tmp_path / "old", **changes)
    prune(open_checkpoint(old), drop, tmp_path / "cut")
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    assert config["max_window_layers"] == left
    stay = [layer for layer in range(LAYERS) if layer not in drop]
    assert config["layer_types"] == [FULL if layer < first else SLIDING for layer in stay]


@pytest.mark.parametrize("drop", [(0, 2), (1, 3), (1,), (3, 0)])
@pytest.mark.parametrize("variant", ["gemma2", "gemma3"])
def test_a_model_may_be_left_with_layers_of_one_kind(
    variant: str, drop: tuple[int, ...], four: Four, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(four(variant))
    pruned = prune(checkpoint, drop, tmp_path / "cut")
    stack = [layer for layer in range(LAYERS) if layer not in drop]
    assert apart(four(variant), pruned.folder, stack) < 1e-6
    assert loaded(pruned.folder).generate(tiny.tokens(96, 6), max_new_tokens=3).shape[1] > 6


def test_layers_that_keep_their_numbers_are_refused(four: Four, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(four("llama_gqa"))
    config = configuration(checkpoint.family, checkpoint.config, STACK)
    layers = {name: checkpoint.family.row(name).layer for name in checkpoint.headers}
    same = ((n, checkpoint.read(n)) for n, layer in layers.items() if layer in (None, *STACK))
    with pytest.raises(Refused, match="is of layer 3, but the configuration declares 2 layers"):
        save_checkpoint(tmp_path / "out", same, checkpoint, config=config)
    assert list(tmp_path.iterdir()) == []


def test_layers_in_another_order_are_another_model(four: Four, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(four("gemma2"))
    for stack in ((3, 1), (1, 1, 2, 0, 0)):
        folder = tmp_path / f"{len(stack)}"
        config = configuration(checkpoint.family, checkpoint.config, stack)
        save_checkpoint(folder, restacked(checkpoint, stack), checkpoint, config=config)
        assert apart(four("gemma2"), folder, stack) < 1e-6
        assert apart(four("gemma2"), folder, STACK) > 1e-3


def test_a_scale_by_the_number_of_a_layer_is_refused_unless_it_stays(
    four: Four, tmp_path: Path
) -> None:
    scaled = rewritten(four("gpt2"), tmp_path / "a", scale_attn_by_inverse_layer_idx=True)
    checkpoint = open_checkpoint(scaled)
    with pytest.raises(Refused, match="scale_attn_by_inverse_layer_idx scales each layer"):
        prune(checkpoint, DROP, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    pruned = prune(checkpoint, (2, 3), tmp_path / "b")
    assert apart(scaled, pruned.folder, (0, 1)) < 1e-6
    # What the refusal prevents: layer 3 would be scaled as layer 1.
    config = {**checkpoint.config, "n_layer": 2}
    save_checkpoint(tmp_path / "c", restacked(checkpoint, STACK), checkpoint, config=config)
    assert apart(scaled, tmp_path / "c") > 1e-3


def test_kinds_of_another_number_of_layers_are_refused(four: Four, tmp_path: Path) -> None:
    wrong = rewritten(four("gemma2"), tmp_path / "a", layer_types=[SLIDING, FULL])
    with pytest.raises(Refused, match="does not accept this configuration"):
        prune(open_checkpoint(wrong), DROP, tmp_path / "b")


def test_dtype_shards_companions_and_history_go_along(
    four: Four, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a"
    loaded(four("llama_gqa")).bfloat16().save_pretrained(source)
    (source / "tokenizer.json").write_text("{}")
    steps: list[float] = []
    checkpoint = open_checkpoint(source)
    with monkeypatch.context() as small:
        small.setattr(writing, "SHARD", 6000)
        once = prune(checkpoint, (1,), tmp_path / "b", lambda share, *_: steps.append(share))
    assert steps == sorted(steps)
    assert 0 <= steps[0] < steps[-1] <= 1
    assert (once.folder / "model.safetensors.index.json").is_file()
    assert (once.folder / "tokenizer.json").read_text() == "{}"
    generation = "generation_config.json"
    assert (once.folder / generation).read_text() == (source / generation).read_text()
    assert once.dtype == "bfloat16"
    assert loaded(once.folder).config.dtype is torch.bfloat16
    twice = prune(once, (0, 1), tmp_path / "c")
    assert twice.config["gaugescope_cut"] == [
        {"source": checkpoint.fingerprint, "layers": 4, "dropped": [1]},
        {"source": once.fingerprint, "layers": 3, "dropped": [0, 1]},
    ]
    assert apart(source, twice.folder, (3,)) < 1e-6
    assert yaml.safe_load((twice.folder / "mergekit.yaml").read_text())["slices"] == [
        {"sources": [{"model": str(once.folder.resolve()), "layer_range": [2, 3]}]}
    ]


@pytest.mark.parametrize(
    ("drop", "words"),
    [
        ((4,), "has no layer 4: its 4 layers are numbered from 0 to 3"),
        ((-1,), "has no layer -1"),
        ((1, 1), "Layer 1 is named twice"),
        ((0, 1, 2, 3), "All 4 layers"),
        ((), "No layer to leave out"),
    ],
)
def test_what_cannot_be_left_out_is_refused(
    drop: tuple[int, ...], words: str, four: Four, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=words):
        prune(open_checkpoint(four("llama_gqa")), drop, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(four: Four, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Refused, match="exists and is not empty"):
        prune(open_checkpoint(four("llama_gqa")), (1,), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("text", "layers"),
    [("5", (5,)), ("5,7,9-11", (5, 7, 9, 10, 11)), (" 3 , 0 - 1 ", (3, 0, 1)), ("2-2", (2,))],
)
def test_layers_are_read_with_both_ends(text: str, layers: tuple[int, ...]) -> None:
    assert parse_layers(text) == layers


@pytest.mark.parametrize(
    "text", ["", ",", "5,", "a", "-1", "5-", "7-5", "1.5", "0-99999999999", "1-2-3", "٣", "0x1"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="names no layers at"):
        parse_layers(text)


@pytest.mark.parametrize("text", ["5,5", "1-3,2", "0-99999,7"])
def test_a_layer_named_twice_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is named twice"):
        parse_layers(text)


cuts = st.integers(2, 130).flatmap(
    lambda layers: st.tuples(
        st.just(layers),
        st.lists(st.integers(0, layers - 1), min_size=1, max_size=layers - 1, unique=True),
    )
)


@given(cuts)
def test_the_ranges_are_the_layers_that_stay(drawn: tuple[int, list[int]]) -> None:
    layers, drop = drawn
    found = yaml.safe_load(passthrough('a/"b": #c', layers, drop))
    assert found["merge_method"] == "passthrough"
    ranges = [one["layer_range"] for slice_ in found["slices"] for one in slice_["sources"]]
    held = [layer for start, stop in ranges for layer in range(start, stop)]
    assert held == [layer for layer in range(layers) if layer not in drop]
    assert all(a[1] < b[0] for a, b in pairwise(ranges))  # none could be joined
    inclusive = [layer for start, stop in ranges for layer in range(start, stop + 1)]
    assert inclusive != held  # the other reading of the ends is another cut
    names = {one["model"] for slice_ in found["slices"] for one in slice_["sources"]}
    assert names == {'a/"b": #c'}


@given(cuts)
def test_layers_in_words_leave_no_end_open(drawn: tuple[int, list[int]]) -> None:
    _, drop = drawn
    text = spoken(drop)
    plain = text.removesuffix(", both ends included").partition(" ")[2]
    words = plain.replace(" and ", ",").replace(" to ", "-").replace(" ", "")
    assert parse_layers(words) == tuple(sorted(drop))
    assert (" to " in text) == text.endswith("both ends included")


def test_the_comment_says_what_is_left_out() -> None:
    lines = passthrough("a/b", 12, (7, 5), ("layer_types",)).splitlines()[:3]
    assert lines[0] == "# Without layers 5 and 7. The 12 layers are numbered from 0 to 11."
    assert lines[1] == "# A layer_range [a, b] ends before b: [0, 5] holds layers 0 to 4."
    assert "take layer_types from the config.json" in lines[2]
    assert "[2, 3] holds layer 2 only." in passthrough("a/b", 4, (0, 1, 3))
    assert runs([0, 1, 2, 4]) == [(0, 3), (4, 5)]
    assert runs([]) == []
    assert spoken(()) == "no layer"
    assert kept("a/b", 4, (2, 0)) == (1, 3)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_the_tables_name_every_list_with_an_entry_for_each_layer(family: Any) -> None:
    parts = family.by_layer
    assert {*parts.listed, *parts.counted, *parts.periodic, *parts.indexed} <= family.known
    for kind in family.model_types:
        config = CONFIG_MAPPING[kind](**{family.depth: 7}).to_dict()
        lists = {n for n, value in config.items() if isinstance(value, list) and len(value) == 7}
        assert lists == set(parts.listed)
        assert family_of(config) is family
        assert set(parts.counted) <= config.keys()


def answer(question: Drop, windows: int = 20, *, encoder: bool = False) -> CutCost:
    """A cost that nobody measured: loss 2 nats, and 0.1 more without the layers."""
    rng = np.random.default_rng(0)
    loss = np.full(windows, np.nan) if encoder else 2 + rng.normal(0, 0.1, windows)

    def readings(more: float) -> Readings:
        some = np.full(windows, more)
        return Readings(some, loss + more, 1 - some, np.full(windows, 31))

    run = Run("a text", 640, windows, "mean", "cpu", "float32", 1.5)
    base, found = readings(0.0), readings(0.1)
    return CutCost(question.model, "f" * 16, question.drop, base, found, run)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Drop]:
    """The questions that were asked; their answers are made up."""
    asked: list[Drop] = []

    def stand_in(question: Drop, *_: object) -> CutCost:
        asked.append(question)
        return answer(question)

    monkeypatch.setattr(Drop, "answer", stand_in)
    return asked


def test_the_command_writes_and_says_what_it_costs(
    four: Four, tmp_path: Path, measured: list[Drop], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["prune", str(four("llama_gqa")), "--drop", "2,0-1", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert measured == [Drop(str(four("llama_gqa")), (0, 1, 2))]
    before, after = open_checkpoint(four("llama_gqa")), open_checkpoint(out)
    assert "without layers 0 to 2, both ends included: 4 → 1 layers" in lines[0]
    assert f"{before.parameters:,} → {after.parameters:,} parameters (-" in lines[0]
    assert lines[1].startswith("KL(before ‖ after) 0.1 (0.1 to 0.1) nats")
    assert lines[2].startswith("loss 1.982 (1.944 to 2.018) → 2.082 (")
    assert lines[2].endswith("perplexity +10.5 (+10.5 to +10.5) %")  # e^0.1 − 1, window by window
    assert lines[3].startswith("on 640 tokens in 20 windows of a text")
    assert "mergekit.yaml" in lines[4]
    assert json.loads((out / "report.json").read_text())["dropped"] == [0, 1, 2]
    assert json.loads((out / "report.json").read_text())["question"]["drop"] == [0, 1, 2]
    assert apart(four("llama_gqa"), out, (3,)) < 1e-6


def test_the_command_as_json_and_without_measuring(
    four: Four, tmp_path: Path, measured: list[Drop], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prune", str(four("llama_gqa")), "--drop", "1", "--json", "--out"]
    assert main([*arguments, str(tmp_path / "a")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["layers"] == [4, 3]
    assert found["cost"]["dropped"] == [1]
    assert main([*arguments, str(tmp_path / "b"), "--cost", "off"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"] is None
    assert len(measured) == 1


def test_the_command_refuses_before_it_measures(
    four: Four, tmp_path: Path, measured: list[Drop], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for drop, out, word in [
        ("7", "out", "has no layer 7"),
        ("0-3", "out", "All 4 layers"),
        ("x", "out", "names no layers"),
        ("1", "full", "is not empty"),
    ]:
        arguments = ["prune", str(four("llama_gqa")), "--drop", drop, "--out"]
        assert main([*arguments, str(tmp_path / out)]) == 1
        assert word in capsys.readouterr().err
    assert measured == []
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_the_printed_command_asks_the_same_question(
    four: Four, measured: list[Drop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    question = Drop(str(four("llama_gqa")), (1, 3), tokens=300, length=16, dtype="float64")
    assert main(shlex.split(question.command)[3:]) == 0
    assert measured == [question]
    assert open_checkpoint(tmp_path / "pruned").layers == 2


@pytest.mark.parametrize("variant", ["gemma2", "gpt2", "llama_gqa", "qwen2_window"])
def test_the_cost_that_is_measured_is_that_of_the_model_that_is_written(
    variant: str, four: Four, cut: Four, tmp_path: Path
) -> None:
    ids = tmp_path / "ids.json"
    draw = torch.randint(96, (64, 12), generator=torch.Generator().manual_seed(0))
    ids.write_text(json.dumps(draw.tolist()))
    how: dict[str, Any] = {"tokens": 384, "length": 12, "text": str(ids), "dtype": "float64"}
    promised = Drop(str(four(variant)), DROP, **how).answer()
    written = Drop(str(cut(variant)), (0,), **how).answer().base
    assert np.isfinite(written.loss).all()
    np.testing.assert_allclose(promised.readings.loss, written.loss, rtol=1e-5)
    assert np.abs(promised.base.loss - written.loss).min() > 1e-4


def test_few_windows_have_no_interval_and_an_encoder_no_loss() -> None:
    few = list(summaries.of_cost(answer(Drop("m", (1,)), 8)))
    assert few[0] == "KL(before ‖ after) 0.1 nats a position"
    assert few[1].endswith("perplexity +10.5 %")
    encoder = list(summaries.of_cost(answer(Drop("m", (1,)), encoder=True)))
    assert "(0.1 to 0.1)" in encoder[0]
    assert encoder[1].startswith("no next-token loss")


def test_a_demo_model_keeps_its_own_text(tmp_path: Path) -> None:
    base = open_checkpoint("demo:base")
    pruned = prune(base, (1,), tmp_path / "out")
    assert pruned.config["gaugescope_text"] == base.config["gaugescope_text"]
    assert pruning.source(base) == str(base.folder.resolve())
