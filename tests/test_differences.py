"""What differs between two files is aligned on what both have, and said; the result loads."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.alignment.comparison import compare
from engine.alignment.differences import notes, on_common_ground, untied
from engine.checkpoint import Checkpoint, open_checkpoint, require_same_group
from engine.elements import Ordered
from engine.errors import Refused
from engine.questions import Align, Heads, Match
from engine.records import AlignmentReport, plain
from engine.scramble import scramble
from engine.summaries import pairs as summaries
from engine.symmetry import Symmetry, load, sample
from tests import tiny

Built = Callable[[str], Path]
EXACT = 1e-4
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def aligned(a: Path, b: Path, out: Path) -> tuple[AlignmentReport, Symmetry]:
    one, other = open_checkpoint(a), open_checkpoint(b)
    return compare(one, other, Align(str(a), str(b), device="cpu"), out)


def planted(a: Path, seed: int) -> Symmetry:
    """The gauge that `scramble` applies with a seed."""
    opened = open_checkpoint(a)
    return sample(opened.family, opened.config, torch.Generator().manual_seed(seed))


def recovers(g: Symmetry, hidden: Symmetry) -> None:
    """g undoes a gauge: every order and sign of g ∘ hidden is the identity."""
    for key, element in g.compose(hidden).elements.items():
        if isinstance(element, Ordered):
            still = torch.arange(element.permutation.shape[-1]).expand(*element.batch, -1)
            assert torch.equal(element.permutation, still), key
            assert (element.scale > 0).all(), key


def reproduces(out: Path, b: Path, tolerance: float = EXACT) -> None:
    """transformers loads a folder without missing or unexpected keys; it computes as b does."""
    said = []
    for folder in (out, b):
        kind = getattr(transformers, json.loads((folder / "config.json").read_text())[
            "architectures"][0])  # fmt: skip
        model, found = kind.from_pretrained(folder, output_loading_info=True)
        lacking = {name: found[name] for name in ("missing_keys", "unexpected_keys")}
        assert not any(lacking.values()), lacking
        assert not found["mismatched_keys"]
        with torch.no_grad():
            said.append(model.float().eval()(tiny.tokens()).logits.log_softmax(-1))
    assert tiny.distance(*said) < tolerance


def scrambled(source: Path, out: Path, seed: int = 4) -> Path:
    scramble(open_checkpoint(source), out, seed)
    return out


def with_own_head(source: Path, out: Path, scale: float = 0.0) -> Path:
    """A tied model written as an untied one; its head moved off the embedding by noise."""
    out.mkdir()
    held = load_file(source / "model.safetensors")
    head = held[EMBEDDING].clone()
    noise = torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
    held[HEAD] = head + scale * head.std() * noise
    save_file(held, out / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return out


@pytest.fixture(scope="module")
def tied(built: Built) -> Path:
    return built("llama_mqa_tied")


@pytest.mark.parametrize("scale", [0.0, 0.1], ids=["one function", "another head"])
def test_an_untied_b_comes_to_a_tied_a(tied: Path, tmp_path: Path, scale: float) -> None:
    b = scrambled(with_own_head(tied, tmp_path / "own", scale), tmp_path / "b")
    report, g = aligned(tied, b, tmp_path / "out")
    recovers(g, planted(b, 4))
    reproduces(tmp_path / "out", b)
    held = load_file(tmp_path / "out" / "model.safetensors")
    a = load_file(tied / "model.safetensors")
    assert tiny.distance(held[EMBEDDING], a[EMBEDDING]) < EXACT
    assert (tiny.distance(held[HEAD], a[EMBEDDING]) < EXACT) == (scale == 0)
    assert report.kept == "exact"
    assert (report.same_function == "exact") == (scale == 0)
    assert {EMBEDDING, HEAD} <= set(report.tensors)
    (said,) = report.notes
    assert said.startswith("A reads out by its embedding (tied), B has a head of its own")
    assert "Aligned B is untied, as B is." in said


def test_a_tied_b_comes_to_an_untied_a_and_stays_tied(tied: Path, tmp_path: Path) -> None:
    a = with_own_head(tied, tmp_path / "a", 0.1)
    b = scrambled(tied, tmp_path / "b")
    report, g = aligned(a, b, tmp_path / "out")
    recovers(g, planted(b, 4))
    reproduces(tmp_path / "out", b)
    assert HEAD not in load_file(tmp_path / "out" / "model.safetensors")
    assert report.kept == "exact"
    (said,) = report.notes
    assert said.startswith("B reads out by its embedding (tied), A has a head of its own")
    assert said.endswith("Aligned B is tied, as B is.")


def test_streams_and_heads_are_matched_too(tied: Path, tmp_path: Path) -> None:
    own = with_own_head(tied, tmp_path / "own", 0.1)
    b = scrambled(tied, tmp_path / "b", 4)
    found = Match(str(own), str(b), using="weights", truth="none", device="cpu").answer()
    hidden = planted(tied, 4).inverse().elements["res"]
    assert isinstance(hidden, Ordered)
    for best in found.absolute:
        assert best.permutation.tolist() == hidden.permutation.tolist()
        assert best.sign.tolist() == hidden.scale.tolist()
    heads = Heads(str(own), str(b), device="cpu").answer()
    assert heads.same_weights == "exact"


def test_without_common_ground_the_two_are_refused(tied: Path, tmp_path: Path) -> None:
    """The negative: tied and untied are two groups until the tied one is read as untied."""
    pair = open_checkpoint(tied), open_checkpoint(with_own_head(tied, tmp_path / "own"))
    with pytest.raises(Refused, match=r"tie_word_embeddings is True in .* and False in"):
        require_same_group(*pair)
    require_same_group(*on_common_ground(*pair))


def test_a_gain_folded_into_a_tied_table_would_change_the_function(tied: Path) -> None:
    """Why the last gain is left alone: the table is read and written by it."""
    held = tiny.tensors(tied)
    gain = held["model.norm.weight"]
    folded = {**held, EMBEDDING: held[EMBEDDING] * gain, "model.norm.weight": torch.ones_like(gain)}
    assert tiny.distance(tiny.logits(tied, folded), tiny.logits(tied)) > 0.1


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox_tied", "gemma2", "opt", "qwen3_tied"])
def test_an_untied_view_is_the_same_function(architecture: str, built: Built) -> None:
    from engine import network
    from engine.running import log_probabilities

    one = open_checkpoint(built(architecture))
    other = untied(one)
    assert one.tied and not other.tied
    assert set(one.headers) < set(other.headers)
    said = [log_probabilities(network.load(c), tiny.tokens())["logits"] for c in (one, other)]
    assert tiny.distance(*said) < 1e-6
    assert untied(other) is other


def as_bfloat16(source: Path, out: Path) -> Path:
    out.mkdir()
    held = {n: x.bfloat16() for n, x in load_file(source / "model.safetensors").items()}
    save_file(held, out / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    return out


@pytest.mark.parametrize("narrow", ["A", "B"])
def test_bfloat16_meets_float32(built: Built, tmp_path: Path, narrow: str) -> None:
    source = built("llama_gqa")
    rounded = as_bfloat16(source, tmp_path / "narrow")
    a, b = (rounded, source) if narrow == "A" else (source, rounded)
    hidden = planted(b, 4).only(["res"])  # keeps bfloat16: signed permutations are exact in it
    scramble(open_checkpoint(b), tmp_path / "b", 4, only=("res",))
    report, g = aligned(a, tmp_path / "b", tmp_path / "out")
    recovers(g.only(["res"]), hidden)
    recovers(g.only(["ffn", "grp", "head"]), replace(hidden, elements={}))
    reproduces(tmp_path / "out", tmp_path / "b")
    kinds = {x.dtype for x in load_file(tmp_path / "out" / "model.safetensors").values()}
    assert kinds == {torch.float32}
    assert float(report.after.max()) < 0.01
    (said,) = report.notes
    first, second = ("bfloat16", "float32") if narrow == "A" else ("float32", "bfloat16")
    assert said.startswith(f"A is stored as {first}, B as {second}: both were compared in float32")
    assert ("since the gauge multiplies by more than signs" in said) == (narrow == "B")


def test_orders_and_signs_alone_keep_bfloat16(built: Built, tmp_path: Path) -> None:
    source = built("llama_gqa")
    b = as_bfloat16(source, tmp_path / "b")
    one, other = open_checkpoint(source), open_checkpoint(b)
    asked = Align(str(source), str(b), only=("res",), device="cpu")
    report, _ = compare(one, other, asked, tmp_path / "out")
    kinds = {x.dtype for x in load_file(tmp_path / "out" / "model.safetensors").values()}
    assert kinds == {torch.bfloat16}
    assert report.notes[0].endswith("aligned B is written as bfloat16.")
    reproduces(tmp_path / "out", b)


def in_three_files(source: Path, out: Path) -> Path:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source)
    size = sum(x.nbytes for x in model.state_dict().values())
    model.save_pretrained(out, max_shard_size=size // 2)
    assert len(list(out.glob("*.safetensors"))) == 3
    return out


@pytest.mark.parametrize("sharded", ["A", "B"])
def test_three_files_meet_one(built: Built, tmp_path: Path, sharded: str) -> None:
    source = built("llama_gqa")
    moved = scrambled(source, tmp_path / "moved")
    if sharded == "A":
        a, b = in_three_files(source, tmp_path / "a"), moved
    else:
        a, b = source, in_three_files(moved, tmp_path / "b")
    report, g = aligned(a, b, tmp_path / "out")
    recovers(g, planted(source, 4))
    reproduces(tmp_path / "out", b)
    assert float(report.after.max()) < EXACT
    counts = ("3 files", "1 file") if sharded == "A" else ("1 file", "3 files")
    assert report.notes == (
        "A is stored in {}, B in {}: tensors were compared by name, and aligned B is written in "
        "files of at most 1 GB.".format(*counts),
    )


def longer(source: Path, out: Path, more: int) -> Path:
    """A model with further tokens, whose rows are large: whoever reads them goes wrong."""
    out.mkdir()
    held = load_file(source / "model.safetensors")
    wide = {n: torch.cat([x, torch.full((more, x.shape[1]), 9.0)]) for n, x in held.items()
            if n in {HEAD, EMBEDDING}}  # fmt: skip
    save_file({**held, **wide}, out / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["vocab_size"] += more
    (out / "config.json").write_text(json.dumps(config))
    return out


@pytest.mark.parametrize("which", ["A", "B"])
def test_vocabularies_of_two_sizes(built: Built, tmp_path: Path, which: str) -> None:
    source = built("llama_gqa")
    moved = scrambled(source, tmp_path / "moved")
    if which == "A":
        a, b = longer(source, tmp_path / "a", 128), moved
    else:
        a, b = source, longer(moved, tmp_path / "b", 1)
    report, g = aligned(a, b, tmp_path / "out")
    recovers(g, planted(source, 4))
    reproduces(tmp_path / "out", b)
    assert float(report.after.max()) < EXACT
    assert report.kept == report.same_function == "exact"
    said = {
        "A": "A has 224 token rows, B 96: the last 128 rows of A were left out of every "
        "comparison.",
        "B": "A has 96 token rows, B 97: the last 1 row of B were left out of every comparison; "
        "aligned B keeps them.",
    }
    assert report.notes == (said[which],)


def test_all_at_once_is_said_in_words_and_as_json(tied: Path, tmp_path: Path) -> None:
    own = with_own_head(longer(tied, tmp_path / "long", 8), tmp_path / "own")
    b = in_three_files(as_bfloat16(own, tmp_path / "narrow"), tmp_path / "b")
    report, _ = aligned(tied, b, tmp_path / "out")
    assert len(report.notes) == 4
    assert set(report.notes) <= set(summaries.of_alignment(report))
    assert json.loads(json.dumps(plain(report)))["notes"] == list(report.notes)
    reproduces(tmp_path / "out", b)
    assert load(tmp_path / "out" / "symmetry.safetensors").elements


def test_equal_files_have_nothing_to_say(built: Built) -> None:
    a = open_checkpoint(built("llama_gqa"))
    assert notes(a, a, continuous=True) == ()


@pytest.mark.parametrize("wider", ["A", "B"])
def test_two_widths_are_said(built: Built, tmp_path: Path, wider: str) -> None:
    few, many = (
        open_checkpoint(p)
        for p in (built("llama_gqa"), tiny.build("llama_gqa", tmp_path / "w", intermediate_size=23))
    )
    pair = (many, few) if wider == "A" else (few, many)
    (told,) = notes(*pair, continuous=True)
    start = (
        "A has {} neurons in the feed-forward network of a layer, B {}: each of {}'s was matched"
    )
    assert told.startswith(start.format(*((23, 20, "B") if wider == "A" else (20, 23, "A"))))
    assert f"; the 3 left over of {wider} " in told


def test_other_families_are_left_as_they_are(built: Built) -> None:
    a, b = (open_checkpoint(built(name)) for name in ("llama_mqa_tied", "vit"))
    assert on_common_ground(a, b) == (a, b)


def unread(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {n: checkpoint.read(n) for n in checkpoint.headers}


def test_the_view_reads_the_embedding_twice(tied: Path) -> None:
    held = unread(untied(open_checkpoint(tied)))
    assert torch.equal(held[HEAD], held[EMBEDDING])
