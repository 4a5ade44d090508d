"""The line between two models: ends, mirrors, scopes, stages, merges: laws, then planted truths."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import nll_loss
from transformers import AutoModelForCausalLM, AutoTokenizer, BertForMaskedLM, PreTrainedModel

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Cancelled, Refused, silent
from engine.layers.inputs import inputs
from engine.line import barrier, gauges, interpolate, scopes
from engine.line import exam as exams
from engine.line.ends import ends
from engine.line.exam import Marks, exam, whole
from engine.line.interpolate import ground
from engine.line.sampling import grid, next_point
from engine.line.setting import work
from engine.questions import Barrier, Forecast, Merge, Orders, Slice, Written
from engine.questions.line import ABLATION, MERGING
from engine.records import BarrierReport, Curve, LossSlice
from engine.records.barriers import STAGES
from engine.scramble import scramble
from engine.symmetry import Symmetry, sample
from tests import tiny
from tests.reordered import alone

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


UNEQUAL = [[5, 9, 11, 3, 8, 2, 7, 40, 63, 21, 22, 30], [4, 4, 9, 77], [50, 61, 7, 7, 90, 12, 3]]


@pytest.fixture
def unequal(tmp_path: Path) -> dict[str, str]:
    """What a question is told to read `UNEQUAL`, as exactly as float64 has it."""
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(UNEQUAL))
    return {"text": str(path), "dtype": "float64"}


def stranger(folder: str | Path) -> PreTrainedModel:
    """A decoder as transformers opens it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)


def mixed(a: PreTrainedModel, b: PreTrainedModel, t: float) -> PreTrainedModel:
    """(1 − t) A + t B, parameter by parameter, in a model of its own."""
    made, theirs = deepcopy(a), dict(b.named_parameters())
    made.load_state_dict({n: (1 - t) * x + t * theirs[n] for n, x in a.named_parameters()}, False)
    return made


def graded(model: PreTrainedModel, windows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean −log p of each next token, and how often it is the likeliest, window by window."""
    loss, right = [], []
    for ids, said in zip(windows, alone(model, windows), strict=True):
        loss.append(-said[np.arange(len(ids) - 1), ids[1:]].mean())
        right.append((said[:-1].argmax(-1) == ids[1:]).mean())
    return np.array(loss), np.array(right)


@pytest.mark.parametrize("architecture", ["gpt2", "llama_mqa_tied"])
def test_a_curve_is_what_models_between_the_two_say(
    architecture: str, built: Built, tmp_path: Path, unequal: dict[str, str]
) -> None:
    """(1 − t) A + t B by transformers: t = 0 is A, long windows count more, the top is the sup."""
    folder = built(architecture)
    b = other(built, tmp_path, architecture)
    asked = Barrier(str(folder), b, points=5, stages=("none",), adaptive=False, **unequal)
    found = curve(asked.answer(), "none")
    first, last = stranger(folder), stranger(b)
    at = (0.0, 0.25, 0.5, 0.75, 1.0)
    loss, right = np.array([graded(mixed(first, last, t), UNEQUAL) for t in at]).swapaxes(0, 1)
    assert found.t.tolist() == list(at)
    assert found.positions.tolist() == [11, 3, 6]
    np.testing.assert_allclose(found.loss, loss, rtol=1e-6)
    np.testing.assert_allclose(found.accuracy, right, atol=1e-12)
    mean, hits = ((x * [11, 3, 6]).sum(1) / 20 for x in (loss, right))
    above = [mean[k] - (1 - t) * mean[0] - t * mean[4] for k, t in enumerate(at)]
    below = [(1 - t) * hits[0] + t * hits[4] - hits[k] for k, t in enumerate(at)]
    assert found.points().value == pytest.approx(mean, rel=1e-6)
    assert found.excess().value == pytest.approx(above, abs=1e-6)
    assert found.barrier().value == pytest.approx(max(above), abs=1e-6)
    assert found.peak() == at[int(np.argmax(above))]
    assert found.barrier("accuracy").value == pytest.approx(max(below), abs=1e-12)
    assert np.abs(mean - mean[::-1])[[0, 1]].min() > 0.01  # the other way round is another curve
    x, y = (torch.cat([p.flatten() for p in one.parameters()]) for one in (first, last))
    assert found.distance == pytest.approx(float(((x - y).norm() / x.norm()).detach()), rel=1e-6)


def test_where_nothing_labels_the_text_both_models_say_what_is_asked(
    built: Built, tmp_path: Path, unequal: dict[str, str]
) -> None:
    """The class with the largest log p_A + log p_B at every place, not either model's own."""
    folder, b = built("bert_masked"), other(built, tmp_path, "bert_masked")
    asked = Barrier(str(folder), b, points=3, stages=("none",), adaptive=False, **unequal)
    report = asked.answer()
    first, last = (BertForMaskedLM.from_pretrained(x, dtype=torch.float64) for x in (folder, b))
    at = (0.0, 0.5, 1.0)
    with torch.no_grad():
        p, middle, q = (
            [model(torch.tensor([ids])).logits[0].log_softmax(-1) for ids in UNEQUAL]
            for model in (first, mixed(first, last, 0.5), last)
        )
    wanted = [(x + y).argmax(-1) for x, y in zip(p, q, strict=True)]
    for one in (p, q):  # labels by one model alone would be others
        assert any((x.argmax(-1) != y).any() for x, y in zip(one, wanted, strict=True))
    found = curve(report, "none")
    assert (report.target, found.t.tolist()) == ("likeliest class", list(at))
    assert found.positions.tolist() == [12, 4, 7]
    for k, one in enumerate((p, middle, q)):
        for window, (said, label) in enumerate(zip(one, wanted, strict=True)):
            loss = nll_loss(said, label)
            hits = (said.argmax(-1) == label).double().mean()
            assert found.loss[k, window] == pytest.approx(float(loss), rel=1e-6)
            assert found.accuracy[k, window] == pytest.approx(float(hits))


def test_the_beginning_of_a_window_is_not_hidden() -> None:
    """Some 15 in 100 of the other tokens are, at least one in each window, and asked for."""
    asked = Barrier("demo:bert", "demo:bert", tokens=1024, length=8, stages=("none",), points=3)
    bert = open_checkpoint("demo:bert")
    given, whole_text = exam(bert, asked), inputs(bert, asked)
    hidden = given.targets >= 0
    mask = AutoTokenizer.from_pretrained(bert.folder).mask_token_id
    assert hidden.shape == (128, 8)
    assert not hidden[:, 0].any()
    assert hidden.any(1).all()
    assert 0.15 * 7 * 128 < int(hidden.sum()) < 0.25 * 7 * 128
    assert whole_text.ids is not None
    assert torch.equal(given.targets[hidden], whole_text.ids[hidden])
    read = given.named["input_ids"]
    assert bool((read[hidden] == mask).all())
    assert torch.equal(read[~hidden], whole_text.ids[~hidden])
    model = BertForMaskedLM.from_pretrained(bert.folder, dtype=torch.float32)
    with torch.no_grad():
        wanted = model(input_ids=read, labels=torch.where(hidden, given.targets, -100)).loss
    found = Barrier.answer(asked).curves[0]
    assert found.points().value == pytest.approx(np.full(3, float(wanted)), abs=1e-5)


def test_points_are_added_where_the_mean_over_all_places_bends() -> None:
    """One place of a window in which much happens at t = ¼ against 99 where little does at ¾."""
    t = grid(5)
    steep, slight = np.array([0, 8.0, 0, 0, 0]), np.array([0, 0, 0, 1.0, 0])
    growing = barrier.Growing("none", None, 0.0, {
        x: Marks(np.array([y, z]), np.zeros(2)) for x, y, z in zip(t, steep, slight, strict=True)
    })  # fmt: skip
    means = growing.means(np.array([1, 99]))
    assert list(means.values()) == pytest.approx([0, 0.08, 0, 0.99, 0])
    here = SimpleNamespace(exam=SimpleNamespace(positions=np.array([1, 99])))
    filling = barrier.Filling(None, None, here, t, 0.0, 0.0)
    assert filling.bent(growing, 2) in ([0.625, 0.875], [0.875, 0.625])


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


def test_a_merge_at_t_is_so_much_of_b(
    built: Built, tmp_path: Path, unequal: dict[str, str]
) -> None:
    """0.7 A + 0.3 B on disk at t = 0.3, and what it says above the chord between the two."""
    folder, b = built("llama_gqa"), other(built, tmp_path, "llama_gqa")
    out = tmp_path / "merged"
    found = Merge(str(folder), b, t=0.3, stage="none", **unequal).answer(out=out)
    own, theirs, made = (tiny.tensors(x) for x in (folder, Path(b), out))
    for name, x in own.items():
        wanted = 0.7 * x.double() + 0.3 * theirs[name].double()
        torch.testing.assert_close(made[name].double(), wanted, rtol=1e-6, atol=1e-6)
    first, last = stranger(folder), stranger(b)
    loss, right = np.array([graded(mixed(first, last, t), UNEQUAL) for t in (0, 0.3, 1)]).swapaxes(
        0, 1
    )
    mean = loss @ [11, 3, 6] / 20
    assert found.curve.loss == pytest.approx(loss, rel=1e-6)
    assert (found.loss, found.accuracy) == pytest.approx((mean[1], right[1] @ [11, 3, 6] / 20))
    assert found.above == pytest.approx(mean[1] - 0.7 * mean[0] - 0.3 * mean[2], abs=1e-6)
    assert abs(found.above - (mean[1] - 0.3 * mean[0] - 0.7 * mean[2])) > 0.01
    assert found.apart == pytest.approx(
        [(abs(loss[1] - loss[end]) / loss[end]).max() for end in (0, 2)], rel=1e-5
    )


def test_what_a_line_writes_is_what_models_between_the_two_generate() -> None:
    """From A's own words at t = 0 to B's at t = 1."""
    found = Written("demo:base", "demo:seed-1", at=(0, 0.1, 1), stage="none", count=10).answer()
    a, b = (open_checkpoint(name).folder for name in ("demo:base", "demo:seed-1"))
    words = AutoTokenizer.from_pretrained(a)
    first, last = (AutoModelForCausalLM.from_pretrained(x, dtype=torch.float32) for x in (a, b))
    start = [words.bos_token_id] if words.bos_token_id is not None else []
    ids = torch.tensor([start + words.encode(found.prompt, add_special_tokens=False)])
    how = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0}
    tokens = [
        mixed(first, last, t).generate(ids, **how)[0, ids.shape[1] :].tolist() for t in found.at
    ]
    assert found.texts == tuple(words.decode(one, skip_special_tokens=True) for one in tokens)
    assert tokens[0] != tokens[2]
    parting = [next((n for n in range(10) if one[n] != tokens[0][n]), 10) for one in tokens]
    assert found.same == tuple(parting)


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


def neurons_moved(held: dict[str, torch.Tensor], by: int) -> dict[str, torch.Tensor]:
    """Every feed-forward neuron in another's place: the same function."""
    found = dict(held)
    for name, x in held.items():
        if "mlp" in name:
            found[name] = x.roll(by, 1 if "down" in name else 0)
    return found


def test_a_cycle_of_heads_is_undone_by_its_inverse(
    built: Built, tmp_path: Path, unequal: dict[str, str]
) -> None:
    """B's heads are A's 1, 2, 0: at A's places stand B's 2, 0, 1, and only this line is level."""
    folder = built("llama_mqa_tied")
    b = shutil.copytree(folder, tmp_path / "b")
    held = tiny.tensors(folder)
    q, o = (f"model.layers.0.self_attn.{word}_proj.weight" for word in "qo")
    moved = {
        q: held[q].unflatten(0, (3, 8))[[1, 2, 0]].flatten(0, 1),
        o: held[o].unflatten(1, (3, 8))[:, [1, 2, 0]].flatten(1, 2),
    }
    tiny.save_file({**held, **moved}, b / "model.safetensors", {"format": "pt"})
    found = Orders(str(folder), str(b), points=3, **unequal).answer()
    assert found.orders == tuple(permutations(range(3)))
    assert found.orders[found.chosen] == (2, 0, 1)
    assert [one.stage for one in found.curves] == [" ".join(map(str, x)) for x in found.orders]
    moved_by = np.array([np.ptp(one.loss, axis=0).max() for one in found.curves])
    assert np.flatnonzero(moved_by < 1e-5).tolist() == [found.chosen]
    assert np.flatnonzero(found.objective < 1e-6).tolist() == [found.chosen]
    assert found.ranks[0] == 1
    loss, _ = graded(mixed(stranger(folder), stranger(b), 0.5), UNEQUAL)
    assert found.naive.loss[1] == pytest.approx(loss, rel=1e-6)


def test_a_slice_is_the_plane_through_all_three_models(
    built: Built, tmp_path: Path, unequal: dict[str, str]
) -> None:
    """A + x u + y w by hand at every place, x along a row; aligned B is known: B is it, moved."""
    folder = built("llama_gqa")
    own = tiny.tensors(folder)
    draw = torch.Generator().manual_seed(4)
    near = {n: x + 0.4 * x.std() * torch.randn(x.shape, generator=draw) for n, x in own.items()}
    b = shutil.copytree(folder, tmp_path / "b")
    tiny.save_file(neurons_moved(near, 3), b / "model.safetensors", {"format": "pt"})
    parts: list[LossSlice] = []
    asked = Slice(str(folder), str(b), points=2, margin=0.1, stage="orders", **unequal)
    found = asked.answer(lambda _, __, part=None, /: parts.append(part))
    first = stranger(folder)

    def flat(held: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([held[n].detach().double().flatten() for n, _ in first.named_parameters()])

    base = flat(own)
    u, v = flat(neurons_moved(near, 3)) - base, flat(near) - base
    along = float(u @ v / (u @ u))
    across = float((v - along * u).norm() / u.norm())
    w = (v - along * u) / across
    assert found.places == pytest.approx(np.array([[0, 0], [1, 0], [along, across]]), abs=1e-6)
    assert abs(along - across) > 0.1  # so that it shows which is which
    assert found.length == pytest.approx(float(u.norm()), rel=1e-6)
    room = 0.1 * max(1, along, across)
    assert found.x == pytest.approx(np.linspace(-room, max(1, along) + room, 2), abs=1e-6)
    assert found.y == pytest.approx(np.linspace(-room, across + room, 2), abs=1e-6)

    def measured(x: float, y: float) -> tuple[float, float]:
        made = deepcopy(first)
        torch.nn.utils.vector_to_parameters(base + x * u + y * w, made.parameters())
        loss, right = graded(made, UNEQUAL)
        return np.average(loss, weights=[11, 3, 6]), np.average(right, weights=[11, 3, 6])

    for row, y in enumerate(found.y):
        for column, x in enumerate(found.x):
            here = found.loss[row, column], found.accuracy[row, column]
            assert here == pytest.approx(measured(x, y), rel=1e-5)
    losses = [np.average(graded(stranger(x), UNEQUAL)[0], weights=[11, 3, 6]) for x in (folder, b)]
    assert found.models == pytest.approx([*losses, losses[1]], rel=1e-6)
    assert measured(along, across)[0] == pytest.approx(losses[1], rel=1e-6)
    assert abs(measured(across, along)[0] / losses[1] - 1) > 0.001
    assert any(part is not None and not part.complete for part in parts)
    with pytest.raises(Refused, match="stand on one line"):
        Slice(str(folder), str(folder), points=2, **FEW).answer()


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


def test_in_memory_every_added_point_is_chosen_from_all_before_it() -> None:
    """A steep step at 0.3: what was measured last decides where to look next, one at a time."""
    spacing, asked = 1 / 8, list[list[float]]()

    def mark(t: float) -> Marks:
        return Marks(np.array([1 / (1 + np.exp(-400 * (t - 0.3)))]), np.zeros(1))

    def read(_: object, wanted: list[float], __: object) -> Iterator[tuple[float, Marks]]:
        asked.append(list(wanted))
        yield from ((t, mark(t)) for t in wanted)

    here = SimpleNamespace(
        exam=SimpleNamespace(positions=np.ones(1)), read=read, distance=lambda _: 0.0
    )
    line = SimpleNamespace(over=lambda _: None, together=interpolate.Held(None, {}).together)
    filling = barrier.Filling(None, Barrier("a", "b"), here, grid(9), 0.0, 0.0, handed=np.inf)
    growing = barrier.Growing("none", None, 0.0, {t: mark(t) for t in (0.0, 1.0)})
    filling.measure(growing, line, silent)
    known = {float(t): float(mark(t).loss[0]) for t in grid(9)}
    assert sorted([0.0, *asked[0], 1.0]) == sorted(known)
    for wanted in asked[1:]:
        assert wanted == [next_point(known, spacing, 1e-3)]
        known[wanted[0]] = float(mark(wanted[0]).loss[0])
    assert len(asked) == 9  # the step is then as fine as points may be
    assert next_point(known, spacing, 1e-3) is None
