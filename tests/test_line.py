"""The line between two models: ends, mirrors, scopes, stages, merges: laws, then planted truths."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Cancelled, Refused
from engine.line import barrier, gauges, interpolate, scopes
from engine.line import exam as exams
from engine.line.ends import ends
from engine.line.exam import exam, whole
from engine.line.interpolate import ground
from engine.line.setting import work
from engine.questions import Barrier, Forecast, Merge, Orders, Slice, Written
from engine.questions.line import ABLATION, MERGING
from engine.records import BarrierReport, Curve
from engine.records.barriers import STAGES
from engine.scramble import scramble
from engine.symmetry import Symmetry, sample
from tests import tiny

Built = Callable[[str], Path]
FEW = {"tokens": 96, "length": 12}
EVEN = {**FEW, "adaptive": False}
EVERY = tuple(stage for stage in STAGES if stage != "refined")
FAMILIES = (
    "bert_classifier", "bert_masked", "gemma2", "gpt2", "gpt_neox", "llama_mqa_tied", "mixtral",
    "qwen3", "vit",
)  # fmt: skip


@pytest.fixture(scope="module")
def twin(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A tiny model of a family under a random gauge."""

    def made(architecture: str) -> str:
        folder = tmp_path_factory.mktemp("twin") / architecture
        scramble(open_checkpoint(built(architecture)), folder, seed=1)
        return str(folder)

    return made


def other(built: Built, folder: Path, architecture: str) -> str:
    """The same architecture, drawn anew."""
    return str(tiny.build(architecture, folder / architecture, seed=5))


def digest(*folders: str | Path) -> list[str]:
    files = (Path(folder) / "model.safetensors" for folder in folders)
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def curve(found: BarrierReport, stage: str) -> Curve:
    one = found.curve(stage)
    assert one is not None
    return one


def own_loss(model: str, asked: Barrier) -> np.ndarray:
    """Mean −log p of every window, from the model as transformers loads it, in float64."""
    checkpoint = open_checkpoint(model)
    given = exam(checkpoint, asked)
    loaded = network.load(checkpoint, dtype=torch.float64)
    said = loaded(**given.named).logits[:, :-1].log_softmax(-1)
    ids = given.named["input_ids"]
    return -said.gather(-1, ids[:, 1:, None])[..., 0].mean(1).numpy()


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_twin_has_no_barrier_once_aligned_and_no_file_changes(
    architecture: str, built: Built, twin: Callable[[str], str]
) -> None:
    a, b = str(built(architecture)), twin(architecture)
    before = digest(a, b)
    found = Barrier(a, b, stages=EVERY, midpoint=True, **EVEN).answer()
    assert [one.stage for one in found.curves] == list(EVERY)
    assert all(one.complete for one in found.curves)
    assert curve(found, "all").distance < 1e-4
    assert curve(found, "none").distance > 0.5
    # Ends are the same function; between aligned ends there is nothing but rounding.
    loss = curve(found, "all").points().value
    np.testing.assert_allclose(loss, loss[0], atol=2e-5)
    assert np.ptp(curve(found, "none").points().value) > 100 * np.ptp(loss)
    assert digest(a, b) == before


@pytest.mark.parametrize(
    ("architecture", "target"),
    [
        ("llama_gqa", "next token"),
        ("bert_masked", "likeliest class"),  # it has no tokenizer, hence no word for a hidden one
        ("vit", "likeliest class"),
    ],
)
def test_no_line_leads_from_a_model_to_itself(architecture: str, target: str, built: Built) -> None:
    a = str(built(architecture))
    stages = ("none", "all")
    found = Barrier(a, a, points=5, stages=stages, **EVEN).answer()
    for stage in stages:
        assert curve(found, stage).barrier().value == pytest.approx(0, abs=1e-6)
        assert curve(found, stage).barrier("accuracy").value == 0
    assert found.target == target
    if target == "likeliest class":
        assert curve(found, "none").points("accuracy").value.min() == 1


def test_ends_are_the_models_own_losses(built: Built, tmp_path: Path) -> None:
    asked = Barrier(
        str(built("llama_gqa")), other(built, tmp_path, "llama_gqa"), points=3, stages=EVERY, **EVEN
    )
    found = asked.answer()
    for one in found.curves:
        np.testing.assert_allclose(one.loss[0], own_loss(asked.a, asked), atol=1e-6)
        np.testing.assert_allclose(one.loss[-1], own_loss(asked.b, asked), atol=1e-6)
    assert np.abs(own_loss(asked.a, asked) - own_loss(asked.b, asked)).min() > 0.01


def pair(built: Built, folder: Path, architecture: str = "llama_gqa", **more: object):
    a = open_checkpoint(built(architecture))
    b = open_checkpoint(other(built, folder, architecture))
    asked = Barrier(a.name, b.name, **EVEN, **more)
    return a, b, asked


def along(a: Checkpoint, b: Checkpoint, g: Symmetry, asked: Barrier) -> np.ndarray:
    """Losses at t = 0, 0.3, 0.7 and 1."""
    both = ends(a, b, a.headers, device="cpu", dtype="float64")
    line, given = ground(both).line(g), exam(a, asked)
    return np.stack([given.read(whole(line.at(t), given)).loss for t in (0, 0.3, 0.7, 1)])


def test_exchanging_the_models_and_inverting_the_gauge_mirrors_the_curve(
    built: Built, tmp_path: Path
) -> None:
    a, b, asked = pair(built, tmp_path)
    g = sample(a.family, a.config, torch.Generator().manual_seed(2))
    there, back = along(a, b, g, asked), along(b, a, g.inverse(), asked)
    np.testing.assert_allclose(there, back[::-1], atol=1e-9)
    wrong = along(b, a, g, asked)
    assert np.abs(there - wrong[::-1])[1:3].max() > 0.01


def test_end_points_are_exact_and_a_stays_as_it_is(built: Built, tmp_path: Path) -> None:
    a, b, _ = pair(built, tmp_path)
    base = ground(ends(a, b, a.headers, device="cpu", dtype="float32"))
    before = {n: x.clone() for n, x in base.theirs.items()}
    line = base.line(Symmetry(a.family, a.config, {}))
    loaded = {0.0: network.load(a), 1.0: network.load(b)}
    for t in (0.5, 1.0, 0.0):
        model = line.at(t)
        if t in loaded:
            for name, x in loaded[t].named_parameters():
                assert torch.equal(model.get_parameter(name), x), name
    for name, x in base.theirs.items():
        assert torch.equal(before[name], x)
    again = base.line(sample(a.family, a.config, torch.Generator().manual_seed(0)))
    for name, x in base.buffer.named_parameters():
        assert torch.equal(x, before[name]), "a new line starts at A"
    assert again.mine.keys() == line.mine.keys()


def test_vocabularies_of_two_sizes_meet_in_what_they_share(built: Built, tmp_path: Path) -> None:
    a = str(built("llama_gqa"))
    b = str(tiny.build("llama_gqa", tmp_path / "b", seed=5, vocab_size=90))
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(tiny.tokens(90).tolist() * 8))
    found = Barrier(a, b, points=3, stages=("none",), adaptive=False, text=str(ids)).answer()
    given = torch.tensor(json.loads(ids.read_text()))
    for end, model in ((0, a), (-1, b)):
        said = network.load(open_checkpoint(model))(input_ids=given).logits[:, :-1, :90]
        each = -said.double().log_softmax(-1).gather(-1, given[:, 1:, None])[..., 0]
        np.testing.assert_allclose(found.curves[0].loss[end], each.mean(1), atol=1e-6)
    ids.write_text(json.dumps([[95, 1, 2]] * 16))
    with pytest.raises(Refused, match="holds token 95 and others in every window, and the vocab"):
        Barrier(a, b, points=3, stages=("none",), adaptive=False, text=str(ids)).answer()


@pytest.mark.parametrize(
    ("architecture", "word", "parts"),
    [
        ("llama_gqa", "first-attention", ("layers.0.self_attn.",)),
        ("llama_gqa", "all-attention", (".self_attn.",)),
        ("llama_gqa", "first-layer", ("layers.0.",)),
        ("llama_gqa", "1", ("layers.1.",)),
        ("llama_gqa", "0-1", ("layers.",)),
        ("gpt2", "first-attention", ("h.0.attn.",)),
        ("qwen3", "first-attention", ("layers.0.self_attn.",)),
        ("bert_masked", "all-attention", (".attention.self.", ".attention.output.dense")),
    ],
)
def test_a_scope_holds_the_tensors_that_its_word_says(
    architecture: str, word: str, parts: tuple[str, ...], built: Built
) -> None:
    a = open_checkpoint(built(architecture))
    expected = {n for n in a.headers if any(part in n for part in parts)}
    assert scopes.scope(a, word) == expected
    assert 0 < len(expected) < len(a.headers)
    assert scopes.scope(a, "whole") == frozenset(a.headers)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"scope": "last-layer"}, "no scope 'last-layer': choose among first-attention"),
        ({"scope": "1-2"}, "--scope 1-2: .* has layers 0 to 1"),
        ({"scope": "0", "scrambled": True}, "--scrambled moves every tensor"),
        ({"scope": "0", "refine": 3}, "--refine moves all tensors"),
        ({"stages": ("naive",)}, "no stage 'naive': choose among none, orders"),
        ({"stages": ()}, "no stage ''"),
        ({"stages": ("refined",)}, "needs steps: give --refine"),
        ({"points": 2}, "--points 2: give 3 to 1,001"),
        ({"dtype": "bfloat16"}, "interpolated in float32 or float64"),
        ({"seed": -1}, "--seed -1: give 0 to"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(more: dict, told: str, built: Built) -> None:
    a = str(built("llama_gqa"))
    with pytest.raises(Refused, match=told) as error:
        Barrier(a, a, **{"points": 3, **EVEN, **more}).answer()
    assert "\n" not in str(error.value)


def test_models_of_two_groups_and_without_a_head_are_refused(built: Built) -> None:
    with pytest.raises(Refused, match="No symmetry takes"):
        Barrier(str(built("llama_gqa")), str(built("gpt2")), **FEW).answer()
    with pytest.raises(Refused, match="no output over tokens or classes"):
        Barrier(str(built("vit_bare")), str(built("vit_bare")), **FEW).answer()
    with pytest.raises(Refused, match="predicts no next token"):
        Written(str(built("vit")), str(built("vit"))).answer()


def one_layer_drawn_anew(built: Built, folder: Path, layer: int) -> tuple[str, str]:
    """Two models that share all but one layer."""
    a, b = built("llama_gqa"), Path(other(built, folder, "llama_gqa"))
    mixed = tiny.tensors(a) | {n: x for n, x in tiny.tensors(b).items() if f"layers.{layer}." in n}
    tiny.save_file(mixed, b / "model.safetensors", {"format": "pt"})
    return str(a), str(b)


def test_layers_before_the_scope_run_once(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = one_layer_drawn_anew(built, tmp_path, 1)
    asked = Barrier(a, b, points=4, stages=("none", "all"), scope="1", **EVEN)
    whole_passes: list[int] = []

    def counted(model: torch.nn.Module, named: dict[str, torch.Tensor]) -> torch.Tensor:
        whole_passes.append(named["input_ids"].shape[1] > exams.PROBED)
        return logits(model, named)

    logits = exams.logits
    monkeypatch.setattr(exams, "logits", counted)
    short = asked.answer()
    assert sum(whole_passes) == 0
    monkeypatch.setattr(interpolate.Held, "first", 0)
    long = asked.answer()
    assert sum(whole_passes) == long.models == short.models == 6
    for one, two in zip(short.curves, long.curves, strict=True):
        np.testing.assert_allclose(one.loss, two.loss, atol=1e-6)
    assert short.shared


def test_shared_tensors_pin_the_residual_coordinates(built: Built, tmp_path: Path) -> None:
    a, b = one_layer_drawn_anew(built, tmp_path, 0)
    asked = Barrier(a, b, scope="first-attention", points=3, stages=EVERY, **EVEN)
    with work(open_checkpoint(a), open_checkpoint(b), asked) as both:
        # The feed-forward network differs too, outside this scope: nothing is shared.
        assert not both.shared
        assert "res" in both.chosen
    asked = replace(asked, scope="first-layer")
    with work(open_checkpoint(a), open_checkpoint(b), asked) as both:
        assert both.shared
        assert both.chosen == {"ffn", "grp", "head", "rot", "val"}
    found = asked.answer()
    none, res = curve(found, "none"), curve(found, "res")
    assert np.array_equal(none.loss, res.loss)
    for one in found.curves:
        np.testing.assert_allclose(one.loss[-1], own_loss(b, asked), atol=1e-6)
    # none, orders, ffn, heads, orthogonal, all, random: those that do the same are not run again.
    assert found.models <= 2 + 7


def test_sweeps_inside_layers_are_not_taken_for_what_layers_do(
    built: Built, tmp_path: Path
) -> None:
    a, b = one_layer_drawn_anew(built, tmp_path, 0)
    asked = Barrier(
        a, b, scope="first-layer", points=3, stages=("all",), using="activations", sweeps=1, **EVEN
    )
    with pytest.raises(Refused, match="--sweeps 1 would match layers by their weights"):
        asked.answer()
    assert replace(asked, using="weights").answer().complete


def test_another_end_has_a_chord_of_its_own(built: Built, tmp_path: Path) -> None:
    a, b, asked = pair(built, tmp_path, scope="first-layer", points=3, stages=("none", "all"))
    found = barrier.barrier(a, b, asked)
    assert not found.shared
    last = [one.loss[-1] for one in found.curves]
    assert np.abs(last[0] - last[1]).max() > 1e-3
    assert found.moved[0] < found.moved[1] == a.parameters


def test_stages_are_cut_from_one_alignment(built: Built, tmp_path: Path) -> None:
    a, b, asked = pair(built, tmp_path, stages=EVERY)
    with work(a, b, asked) as both:
        found = gauges.gauges(both, EVERY, lambda *_: None)
    words = {name: {key.rpartition(".")[2] for key in g.elements} for name, g in found.items()}
    assert words["none"] == set()
    assert words["res"] == words["res-unsigned"] == {"res"}
    assert words["ffn"] == {"res", "ffn"}
    assert words["heads"] == words["orders"] == {"res", "ffn", "grp", "head"}
    assert words["orthogonal"] == words["all"] == words["random"]
    for key, element in found["ffn"].elements.items():
        assert found["all"].elements[key] is element
    assert bool((found["res-unsigned"].elements["res"].scale == 1).all())
    assert bool((found["res"].elements["res"].scale < 0).any())
    for element in found["orders"].elements.values():
        assert bool((element.scale == 1).all())
    turns = found["orthogonal"].elements["layers.0.rot"].z
    torch.testing.assert_close(turns.abs(), torch.ones_like(turns.abs()))
    free = found["all"].elements["layers.0.rot"].z
    assert float((free.abs() - 1).abs().max()) > 0.01
    m = found["orthogonal"].elements["layers.0.val"].matrix
    torch.testing.assert_close(m @ m.mT, torch.eye(m.shape[-1], dtype=m.dtype).expand_as(m))


def test_a_stopped_run_leaves_a_part_that_says_so(built: Built, tmp_path: Path) -> None:
    a, b, asked = pair(built, tmp_path, points=9)
    before = digest(a.folder, b.folder)
    parts: list[BarrierReport] = []

    def stop(share: float, step: str, found: object = None, /) -> None:
        assert 0 <= share <= 1
        if found is not None:
            parts.append(found)  # type: ignore[arg-type]
        if step.startswith("res, t"):
            raise Cancelled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(barrier, "EVERY", 0.0)
        with pytest.raises(Cancelled):
            barrier.barrier(a, b, asked, stop)
    last = parts[-1]
    assert not last.complete
    assert [one.complete for one in last.curves] == [True, True, False]
    assert curve(last, "res").t.tolist() == [0, 0.5, 1]
    assert curve(last, "res").barrier().value >= 0
    assert len(curve(parts[0], "none").t) == 3
    assert digest(a.folder, b.folder) == before


def test_a_merge_loads_and_has_the_loss_that_was_measured(built: Built, tmp_path: Path) -> None:
    a = str(built("mixtral"))
    b = other(built, tmp_path, "mixtral")
    out = tmp_path / "merged"
    asked = Merge(a, b, t=0.3, **FEW)
    found = asked.answer(out=out)
    model, told = AutoModelForCausalLM.from_pretrained(
        out, output_loading_info=True, experts_implementation="eager"
    )
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert sum(x.numel() for x in model.state_dict().values()) == found.parameters
    again = Barrier(str(out), str(out), points=3, stages=("none",), **EVEN).answer()
    np.testing.assert_allclose(again.curves[0].loss[0], found.curve.loss[1], atol=1e-6)
    assert found.curve.t.tolist() == [0, 0.3, 1]
    assert found.above == pytest.approx(float(found.curve.excess().value[1]))
    assert open_checkpoint(out).fingerprint not in found.fingerprints
    with pytest.raises(Refused, match=r"--t 1.5: a merge stands between"):
        replace(asked, t=1.5).answer()


WORDS = ("llama_gqa", "mixtral", "gpt2", "opt", "gemma2", "gpt_neox")


@pytest.mark.parametrize("architecture", WORDS)
def test_greedy_words_are_those_of_whole_passes(architecture: str, built: Built) -> None:
    from engine.line.writing import greedy

    a = open_checkpoint(built(architecture))
    model = network.load(a, dtype=torch.float64 if architecture != "gemma2" else torch.float32)
    ids = tiny.tokens()[:1, :6]
    config = replace(a, config={**a.config, "eos_token_id": None})
    found = list(greedy(model, config, ids, 6))
    for token in found:
        assert int(model(input_ids=ids).logits[0, -1].argmax()) == token
        ids = torch.cat([ids, torch.tensor([[token]])], 1)


def test_a_forecast_counts_what_is_run(built: Built, tmp_path: Path) -> None:
    a, b = str(built("llama_gqa")), other(built, tmp_path, "llama_gqa")
    asked = Barrier(a, b, points=4, **EVEN)
    told, found = asked.forecast.answer(), asked.answer()
    assert isinstance(asked.forecast, Forecast)
    assert (told.tokens, told.windows) == (found.run.tokens, found.run.windows) == (96, 8)
    assert told.models == found.models
    assert told.seconds > 0


def test_every_order_of_the_heads_has_its_barrier(built: Built, tmp_path: Path) -> None:
    a = str(built("llama_mqa_tied"))
    found = Orders(a, other(built, tmp_path, "llama_mqa_tied"), points=3, **FEW).answer()
    assert len(found.orders) == len(set(found.orders)) == len(found.curves) == 6
    assert found.objective[found.chosen] >= found.objective.min()
    first, second = found.ranks
    assert 1 <= first <= 6 and 1 <= second <= 6
    assert found.curves[0].stage == "0 1 2"
    last = np.stack([one.loss[-1] for one in found.curves])
    np.testing.assert_allclose(last, last[:1].repeat(6, 0), atol=1e-5)
    with pytest.raises(Refused, match="There is no layer 7"):
        Orders(a, a, layer=7, **FEW).answer()


def test_a_slice_goes_through_all_three_models(built: Built, tmp_path: Path) -> None:
    a, b = str(built("llama_gqa")), other(built, tmp_path, "llama_gqa")
    parts = []
    found = Slice(a, b, points=2, margin=0.0, **FEW).answer(
        lambda _, __, part=None, /: parts.append(part)
    )
    assert found.loss.shape == (2, 2) and np.isfinite(found.loss).all()
    whole_one = Barrier(a, b, points=3, stages=("none",), **EVEN).answer()
    # Without a margin the lower corners are A and, if aligned B stands between, B.
    x = found.x.tolist()
    assert x[0] <= 0 and x[-1] >= 1
    corners = {x.index(place): end for place, end in ((0.0, 0), (1.0, -1)) if place in x}
    assert corners
    for column, end in corners.items():
        own = float(np.average(whole_one.curves[0].loss[end]))
        assert found.loss[0, column] == pytest.approx(own, abs=1e-5)
    assert any(part is not None and not part.complete for part in parts)
    with pytest.raises(Refused, match="stand on one line"):
        Slice(a, a, points=2, **FEW).answer()


# The demo's models: planted barriers.


@pytest.fixture(scope="module")
def demo() -> BarrierReport:
    return Barrier("demo:base", "demo:twin", midpoint=True, stages=EVERY, tokens=1024).answer()


def test_the_demo_twin_has_a_barrier_that_only_the_whole_group_takes_away(
    demo: BarrierReport,
) -> None:
    naive = curve(demo, "none").barrier().value
    assert naive > 3
    assert curve(demo, "all").barrier().value <= 1e-4 * naive
    assert curve(demo, "orders").barrier().value > 0.5 * naive
    assert curve(demo, "random").barrier().value > 0.9 * naive
    assert curve(demo, "orthogonal").distance > 0.1
    assert curve(demo, "all").distance < 1e-4
    assert curve(demo, "none").barrier("accuracy").value > 0.5
    assert curve(demo, "all").barrier("accuracy").value < 1e-3
    heights = [curve(demo, s).barrier().value for s in ("none", "res-unsigned", "res", "ffn")]
    assert heights == sorted(heights, reverse=True)


def test_a_scrambled_model_is_found_by_signs_and_not_by_permutations() -> None:
    asked = Barrier("demo:base", "demo:tune-a-step-0160", midpoint=True, stages=("none", *MERGING))
    plain, hidden = asked.answer(), replace(asked, scrambled=True).answer()
    for found in (plain, hidden):
        assert curve(found, "all").barrier().value < 0.1
    # A fine-tune needs no gauge; the same one in other coordinates does.
    assert curve(plain, "none").barrier().value < 0.1
    assert curve(hidden, "none").barrier().value > 2
    assert curve(hidden, "orders").barrier().value > 1
    assert hidden.fingerprints == plain.fingerprints


def test_bert_is_asked_for_hidden_tokens() -> None:
    found = Barrier("demo:bert", "demo:bert", points=3, stages=("none",), tokens=512).answer()
    assert found.target == "hidden token"
    assert 0.1 < curve(found, "none").positions.sum() / found.run.tokens < 0.2
    assert curve(found, "none").points("accuracy").value[0] > 0.4


def relative(scope: str, pair: tuple[int, int], points: int) -> tuple[BarrierReport, list[float]]:
    a, b = (f"demo:scope-{scope}-{number}" for number in pair)
    found = Barrier(
        a, b, points=points, stages=ABLATION, scope=scope, adaptive=False, using="activations"
    ).answer()
    ratios = (found.relative(stage) for stage in ABLATION[1:])
    return found, [float(ratio.value) for ratio in ratios if ratio is not None]


@pytest.mark.parametrize(
    "scope", ["first-layer", pytest.param("all-attention", marks=pytest.mark.long)]
)
def test_stage_two_takes_off_what_order_alone_does_not(scope: str) -> None:
    found, (heads, orthogonal, full) = relative(scope, (1, 2), 3)
    assert found.shared
    assert max(orthogonal, full) <= 0.6
    assert max(orthogonal, full) < heads
    assert found.difference("all", "orthogonal").low is not None


@pytest.mark.parametrize(
    ("scope", "points"),
    [
        ("first-attention", 9),
        pytest.param("first-attention", 25, marks=pytest.mark.long),
        pytest.param("all-attention", 25, marks=pytest.mark.long),
        pytest.param("first-layer", 25, marks=pytest.mark.long),
    ],
)
def test_on_the_mean_over_all_seed_pairs_stage_two_leaves_at_most_three_fifths(
    scope: str, points: int
) -> None:
    ratios = np.array([relative(scope, pair, points)[1] for pair in combinations((1, 2, 3, 4), 2)])
    _, orthogonal, full = ratios.mean(0)
    assert orthogonal <= 0.6
    assert full <= 0.6


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("dequantised")
def test_smollm2_scrambled_has_no_barrier_once_aligned() -> None:
    asked = Barrier(
        "smollm2", "smollm2", midpoint=True, stages=("none", *MERGING), scrambled=True, tokens=512
    )
    found = asked.answer()
    naive = curve(found, "none").barrier().value
    assert curve(found, "all").barrier().value <= 1e-4 * naive
    assert curve(found, "orders").barrier().value > 0.1 * naive
