"""Lines whose checkpoints stay on disk: what they say is what lines in memory say."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Cancelled, Refused, Short, silent
from engine.layers.blocks import Blocks
from engine.line import sections, streamed
from engine.line.ends import Ends, ends
from engine.line.exam import Exam, Marks, exam, joined, label
from engine.line.interpolate import Ground, Line, ground
from engine.line.sampling import EXTRA, grid, next_point, next_points
from engine.line.scopes import scope
from engine.line.streamed import Disk
from engine.questions import Barrier, Forecast, Merge, Slice
from engine.records import BarrierReport
from engine.symmetry import Symmetry, sample
from tests import tiny

FEW = {"tokens": 96, "length": 12}
AT = (0.0, 0.3, 0.7, 1.0)
PLAIN: dict[str, object] = {}
FAMILIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("bert_classifier", PLAIN),
    ("bert_masked", PLAIN),
    ("gemma2", {"num_hidden_layers": 3}),
    ("gemma3", PLAIN),
    ("gpt2", {"n_layer": 3, "scale_attn_by_inverse_layer_idx": True}),
    ("gpt2_old", PLAIN),
    ("gpt_neox", PLAIN),
    ("llama_gqa", PLAIN),
    ("llama_mqa_tied", PLAIN),
    ("mixtral", PLAIN),
    ("modernbert_masked", {"num_hidden_layers": 3}),
    ("opt", PLAIN),
    ("qwen3", PLAIN),
    ("vit", PLAIN),
)
"""Tied and untied heads, joined experts, layers of two kinds, layers that know their number."""
Made = Callable[..., tuple[Checkpoint, Checkpoint]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two models of an architecture, drawn apart."""
    folder = tmp_path_factory.mktemp("streamed")

    @cache
    def pair(architecture: str, **changes: object) -> tuple[Checkpoint, Checkpoint]:
        a, b = (
            tiny.build(architecture, folder / f"{architecture} {changes} {seed}", seed, **changes)
            for seed in (0, 5)
        )
        return open_checkpoint(a), open_checkpoint(b)

    return pair


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that holds no three models."""
    need = network.require_memory

    def short(*how: object, models: int = 1, **more: object) -> None:
        if models == 3:
            raise Short("short")
        need(*how, models=models, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(network, "require_memory", short)


def between(a: Checkpoint, b: Checkpoint, word: str = "whole") -> tuple[Ends, Symmetry, Exam]:
    """Both ends, a random gauge, and what is asked."""
    both = ends(a, b, scope(a, word), device="cpu", dtype="float32")
    g = sample(a.family, a.config, torch.Generator().manual_seed(2))
    given = exam(a, Barrier(a.name, b.name, **FEW))
    ((_, at),) = Disk(both).line(g).over(given)((0.0, 1.0), silent)
    return both, g, label(given, at)


def answers(line: Line, given: Exam, at: tuple[float, ...] = AT) -> list[Marks]:
    """Every point on all windows."""
    parts: dict[float, list[Marks]] = {t: [] for t in at}
    for piece, say in line.over(given)(at, silent):
        for t in at:
            parts[t].append(piece.read(say(t)))
    return [joined(parts[t]) for t in at]


def losses(found: list[Marks]) -> np.ndarray:
    return np.stack([one.loss for one in found])


@pytest.mark.parametrize(("architecture", "changes"), FAMILIES)
def test_a_line_from_disk_says_what_a_line_in_memory_says(
    architecture: str, changes: dict[str, object], made: Made
) -> None:
    both, g, given = between(*made(architecture, **changes))
    base = ground(both)
    assert isinstance(base, Ground)
    held, far = base.line(g), Disk(both).line(g)
    mine, theirs = answers(far, given), answers(held, given)
    np.testing.assert_allclose(losses(mine), losses(theirs), atol=1e-6)
    for one, two in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(one.accuracy, two.accuracy)
    assert far.distance == pytest.approx(held.distance, rel=1e-6)
    # A gauge that is not applied leads to another line.
    other = Disk(both).line(Symmetry(both.a.family, both.a.config, {}))
    wrong = losses(answers(other, given))
    assert np.abs(wrong - losses(theirs))[1:3].max() > 1e-3


@pytest.mark.parametrize("word", ["1", "all-attention", "first-attention", "first-layer"])
def test_scopes_move_the_same_from_disk(word: str, made: Made) -> None:
    both, g, given = between(*made("qwen3"), word)
    base = ground(both)
    far, held = Disk(both).line(g), base.line(g)
    found = losses(answers(far, given))
    np.testing.assert_allclose(found, losses(answers(held, given)), atol=1e-6)
    assert far.distance == pytest.approx(held.distance, rel=1e-6)
    everything = Disk(replace(both, inside=frozenset(both.a.headers))).line(g)
    assert np.abs(found - losses(answers(everything, given)))[1:].max() > 1e-3


def test_layers_in_another_order_are_another_model(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, g, given = between(*made("llama_gqa"))
    right = losses(answers(Disk(both).line(g), given))

    def turned(some: Ends) -> Iterator[sections.Section]:
        first, *layers, last = sections.sections(some)
        yield from (first, *reversed(layers), last)

    monkeypatch.setattr(streamed, "sections", turned)
    wrong = losses(answers(Disk(both).line(g), given))
    assert np.abs(wrong - right).max() > 1e-3


@pytest.mark.parametrize("architecture", ["bert_masked", "llama_gqa"])
def test_windows_that_are_filled_up_keep_their_masks(architecture: str, made: Made) -> None:
    both, g, given = between(*made(architecture))
    kept = torch.arange(12).expand(given.windows, 12) < 5 + torch.arange(given.windows)[:, None]
    padded = replace(given, named={**given.named, "attention_mask": kept.long()})
    mine, theirs = (losses(answers(one.line(g), padded)) for one in (Disk(both), ground(both)))
    np.testing.assert_allclose(mine, theirs, atol=1e-6)
    bare = losses(answers(Disk(both).line(g), given))
    assert np.abs(bare - mine).max() > 1e-3


@pytest.mark.parametrize("architecture", ["llama_gqa", "llama_mqa_tied", "mixtral"])
def test_a_walk_reads_each_tensor_once_and_takes_a_long_text_in_pieces(
    architecture: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, g, given = between(*made(architecture))
    read: Counter[tuple[str, str]] = Counter()
    own = Checkpoint.read

    def counted(self: Checkpoint, name: str) -> torch.Tensor:
        read[self.name, name] += 1
        return own(self, name)

    monkeypatch.setattr(Checkpoint, "read", counted)
    whole = losses(answers(Disk(both).line(g), given))
    assert len(read) == 2 * len(both.a.headers)
    twice = {name for (_, name), times in read.items() if times > 1}
    assert twice == ({"model.embed_tokens.weight"} if both.a.tied else set())
    before = read.total()
    # Each walk has room for the streams of three windows at four points, before and after a layer.
    monkeypatch.setattr(streamed, "STREAMS", 2 * 3 * len(AT) * 12 * 24 * 4)
    parts = losses(answers(Disk(both).line(g), given))
    assert given.windows == 8
    assert read.total() == (1 + 3) * before
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_layers_before_the_first_that_moves_run_once_for_all_points(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, g, given = between(*made("llama_gqa"), "1")
    runs: list[int] = []
    own = Blocks.run

    def counted(self: Blocks, block: int, states: list[torch.Tensor]) -> list[torch.Tensor]:
        runs.append(len(states))
        return own(self, block, states)

    monkeypatch.setattr(Blocks, "run", counted)
    answers(Disk(both).line(g), given)
    parts = len(list(given.parts()))
    assert len(runs) == parts * (1 + len(AT))


@pytest.mark.parametrize("architecture", ["gemma2", "gpt2", "llama_gqa", "mixtral"])
def test_what_is_not_read_takes_no_memory(architecture: str, made: Made) -> None:
    both, g, _ = between(*made(architecture, **dict(FAMILIES)[architecture]))
    total = 0
    for section in sections.sections(both):
        span = section.line(g)
        held = {x.untyped_storage().data_ptr(): x for x in span.model.parameters()}
        took = sum(x.untyped_storage().nbytes() for x in held.values())
        read = sum(x.numel() for n, x in span.model.named_parameters() if n in span.mine)
        spare = 4 * len(held)  # one number for each tensor that is not read
        if architecture == "mixtral" and section.layer is None:
            # Experts are joined in loading, blank ones too: those of one layer.
            spare += 4 * sections.layer(both, 0).parameters
        assert 0 < 4 * read <= took <= 4 * section.parameters + spare
        total += section.parameters
    again = sections.front(both).parameters if both.a.tied else 0
    assert total == both.a.parameters + again


def both_ways(asked: Barrier, monkeypatch: pytest.MonkeyPatch) -> tuple[BarrierReport, list[int]]:
    """A whole question from disk, and the points of every walk."""
    walks: list[int] = []
    own = streamed.walk

    def counted(line: object, given: object, points: list[float], *how: object, **more: object):
        walks.append(len(points))
        return own(line, given, points, *how, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(streamed, "walk", counted)
    return asked.answer(), walks


@pytest.mark.parametrize("word", ["first-layer", "whole"])
def test_a_question_is_answered_the_same(
    word: str, made: Made, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = made("llama_gqa")
    asked = Barrier(a.name, b.name, points=5, stages=("none", "all"), scope=word, **FEW)
    found, walks = both_ways(asked, monkeypatch)
    monkeypatch.undo()
    held = asked.answer()
    assert found.shared is held.shared is (word == "whole")
    # Both ends, then each curve: grid (and the end that is not B), and at most two more walks.
    assert walks[:2] == [2, 3 if word == "whole" else 4]
    assert sum(walks) == found.models
    for one, two in zip(found.curves, held.curves, strict=True):
        mine, theirs = (dict(zip(c.t.tolist(), c.loss, strict=True)) for c in (one, two))
        common = sorted(mine.keys() & theirs.keys())
        assert set(grid(5).tolist()) <= set(common)
        np.testing.assert_allclose(
            [mine[t] for t in common], [theirs[t] for t in common], atol=1e-6
        )
        assert one.distance == pytest.approx(two.distance, rel=1e-6)
        assert one.complete


def test_classes_that_both_models_hold_for_the_likeliest_are_found_in_pieces(
    made: Made, small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of log p_A + log p_B, by transformers: a loss and hits that neither model's own class has."""
    a, b = made("bert_classifier")
    ids = torch.randint(96, (8, 12), generator=torch.Generator().manual_seed(1))
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(ids.tolist()))
    asked = Barrier(a.name, b.name, points=3, stages=("none",), adaptive=False, text=str(path))
    monkeypatch.setattr(streamed, "STREAMS", 2 * 3 * 2 * 12 * 24 * 4)
    found, walks = both_ways(asked, monkeypatch)
    assert len(walks) > 2
    assert found.target == "likeliest class"
    first, last = (BertForSequenceClassification.from_pretrained(x.folder) for x in (a, b))
    middle = deepcopy(first)
    middle.load_state_dict(
        {n: (x + last.state_dict()[n]) / 2 for n, x in middle.state_dict().items()}
    )
    p, half, q = (one.eval()(ids).logits.double().log_softmax(-1) for one in (first, middle, last))
    classes = (p + q).argmax(-1)
    assert not torch.equal(classes, p.argmax(-1))
    assert not torch.equal(classes, q.argmax(-1))
    one = found.curves[0]
    for k, said in enumerate((p, half, q)):
        wanted = -said.gather(1, classes[:, None])[:, 0].detach().numpy()
        np.testing.assert_allclose(one.loss[k], wanted, atol=1e-5)
        np.testing.assert_array_equal(one.accuracy[k], (said.argmax(-1) == classes).numpy())


def test_a_run_can_be_stopped_between_layers_and_tells_how_far_it_is(
    made: Made, small: None
) -> None:
    a, b = made("llama_gqa")
    asked = Barrier(a.name, b.name, points=3, stages=("none", "random"), adaptive=False, **FEW)
    told: list[tuple[float, str, object]] = []
    asked.answer(lambda share, step, found=None, /: told.append((share, step, found)))
    steps = [step for _, step, _ in told]
    for step in ("embedding", "layer 0", "layer 1", "head"):
        assert steps.count(f"{step}, 2 models at once") == 1
        assert steps.count(f"{step}, one model") == 2
    shares = [share for share, _, _ in told]
    assert shares == sorted(shares)
    partial = [found for _, _, found in told if found is not None]
    assert all(isinstance(found, BarrierReport) and not found.complete for found in partial)

    def stop(_: float, step: str, __: object = None, /) -> None:
        if step == "layer 1, one model":
            raise Cancelled

    with pytest.raises(Cancelled):
        asked.answer(stop)


def test_what_needs_more_than_one_layer_is_built_or_refused(
    made: Made, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = made("llama_gqa")
    both, g, _ = between(a, b)
    assert isinstance(ground(both), Disk)
    whole = Disk(both).line(g).at(0.5)
    for name, x in whole.named_parameters():
        assert torch.equal(x, both.between(g, name, 0.5))
    ends_only = Merge(a.name, b.name, t=0.0, **FEW).answer().curve
    assert ends_only.distance > 0
    assert np.array_equal(ends_only.loss[0], ends_only.loss[1])
    with pytest.raises(Refused, match="does not hold the four models of a slice"):
        Slice(a.name, b.name, points=2, **FEW).answer()
    monkeypatch.setattr(network, "free_memory", lambda _: 2**30)
    with pytest.raises(Short, match=r"even layer by layer: 4 times its largest part \(0 M param"):
        ground(both)


def test_a_forecast_reads_a_large_model_from_disk(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = made("llama_gqa")
    asked = Forecast(a.name, b.name, points=4, **FEW)
    held = asked.answer()

    def short(*_: object, **__: object) -> None:
        raise Short("short")

    monkeypatch.setattr(network, "require_memory", short)
    far = asked.answer()
    assert (far.models, far.tokens) == (held.models, held.tokens)
    assert far.seconds > 0


def test_points_that_are_wanted_at_once_begin_with_the_one_that_is_wanted_most() -> None:
    def tent(t: float) -> float:
        return 1 - abs(t - 0.3)

    measured = {float(t): tent(float(t)) for t in grid(5)}
    found = next_points(measured, 0.25, 1e-3, EXTRA)
    assert found[0] == next_point(measured, 0.25, 1e-3)
    assert 1 < len(found) <= EXTRA
    assert len({*found, *measured}) == len(found) + len(measured)
    assert next_points(measured, 0.25, 1e-3, 1) == found[:1]
    # They gather at the bend, and a straight line wants none.
    assert min(abs(t - 0.3) for t in found) < 0.25 / 4
    assert next_points({t: 1 + t for t in measured}, 0.25, 1e-3, EXTRA) == []


@pytest.mark.parametrize("middle", [0.3, 0.52, 0.617])
def test_two_walks_find_a_narrow_hill_that_the_grid_misses(middle: float) -> None:
    half = 1.5 / 24 / 2

    def hill(t: float) -> float:
        return max(0.0, 1 - abs(t - middle) / half)

    found = {float(t): hill(float(t)) for t in grid(25)}
    coarse = max(found.values())
    for _ in range(2):
        found |= {t: hill(t) for t in next_points(found, 1 / 24, 1e-3, EXTRA // 2)}
    assert len(found) <= 25 + EXTRA
    assert max(found.values()) > max(0.9, coarse)
