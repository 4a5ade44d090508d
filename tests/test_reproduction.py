"""Barriers measured beside published ones: the file, the script that makes it, its small models."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assets import images, lmc_models, make_lmc
from assets.lmc_book import place, ways
from assets.lmc_lines import barriers, described, kept, labelled, ordered
from assets.lmc_models import KINDS
from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.line.exam import Exam
from engine.line.head_orders import every
from engine.questions import Barrier, Orders
from engine.questions.line import ABLATION
from engine.records import SCOPES, VARIANTS
from engine.reproduction import (
    MEASURED,
    connectivity,
    coordinates,
    demo_shares,
    measured,
    shipped_cut,
    shipped_maps,
)
from engine.scramble import scramble
from tests import tiny

HELD: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
DIGITS = 2e-4
"""Of numbers that are kept to five digits."""


# The file


def wrong(pair: dict[str, Any]) -> list[str]:
    """What in a pair's entry does not follow from its own curves."""
    found = []
    t = np.arange(HELD["settings"]["points"]) / (HELD["settings"]["points"] - 1)
    for word, curve in pair["loss"].items():
        loss = np.array(curve)
        height = float((loss - (1 - t) * loss[0] - t * loss[-1]).max())
        if abs(height - pair["barrier"][word][0]) > DIGITS * loss.max():
            found.append(f"barrier of {word}")
    naive = pair["barrier"]["naive"][0]
    for word, (ratio, low, high) in pair["relative"].items():
        if abs(ratio - pair["barrier"][word][0] / naive) > DIGITS + DIGITS / naive:
            found.append(f"ratio of {word}")
        if not low <= ratio <= high:
            found.append(f"interval of {word}")
    if pair["relative"] and not pair["barrier"]["naive"][1] > 0:
        found.append("a ratio over a barrier that may be 0")
    return found


def test_every_number_follows_from_the_curves() -> None:
    assert HELD["pairs"]
    assert [(one["a"], one["b"], wrong(one)) for one in HELD["pairs"] if wrong(one)] == []


def test_a_changed_number_shows() -> None:
    one = HELD["pairs"][0]
    taller = {**one["barrier"], "full": [2 * x for x in one["barrier"]["full"]]}
    assert wrong({**one, "barrier": taller}) == ["barrier of full", "ratio of full"]
    ratios = {**one["relative"], "none": [0.5, 0.1, 0.2]}
    assert wrong({**one, "relative": ratios}) == ["ratio of none", "interval of none"]


def test_both_ends_are_the_models_own() -> None:
    """Without alignment and with it the line begins at A and ends at B's function."""
    for one in HELD["pairs"]:
        for end in (0, -1):
            values = [curve[end] for curve in one["loss"].values()]
            assert np.ptp(values) <= 1e-3 * max(values), (one["a"], one["b"])


def test_three_pairs_a_scope_or_the_file_says_what_is_missing() -> None:
    found = [place(one["architecture"], one["scope"], one["using"]) for one in HELD["pairs"]]
    planned = list(make_lmc.planned(("llama", *KINDS)))
    assert len(planned) == 5 * (4 + 3)  # whole models by weights alone
    said = [line.rpartition(": ")[0] for line in HELD["missing"]]
    for one in planned:
        assert found.count(one) >= 3 or one in said, one
    assert {found.count(place("llama", s, u)) for s in SCOPES[:3] for u in ways(s)} == {6}
    assert any("rotary" in line for line in HELD["left out"])


@pytest.mark.parametrize("name", sorted({"bert", "gpt2", "modernbert"}))
def test_whole_models_learned_far_more_than_how_often_words_are(name: str) -> None:
    record = Path(__file__).parents[1] / "assets" / "demo" / "record.json"
    counting = find(json.loads(record.read_text(encoding="utf-8")), "unigram_loss")
    own = HELD["architectures"][name]["models"]
    losses = [own[f"{name}-{seed}"]["train_loss"] for seed in make_lmc.SEEDS]
    assert len(losses) == 3 and max(losses) < 0.4 * min(counting)


def find(held: Any, name: str) -> list[float]:
    """Every number of one name, however deep."""
    if not isinstance(held, dict):
        return []
    inside = [x for value in held.values() for x in find(value, name)]
    return [*inside, *([held[name]] if name in held else [])]


def test_every_order_is_there_and_ranked() -> None:
    for one in HELD["orders"]:
        assert sorted(map(tuple, one["orders"])) == sorted({tuple(x) for x in one["orders"]})
        every = 72 if one["architecture"] == "llama" else 24  # three heads in each of two groups
        assert len(one["orders"]) == len(one["barrier"]) == len(one["objective"]) == every
        lower = sum(x < one["barrier"][one["chosen"]] for x in one["barrier"])
        assert one["rank by barrier"] == 1 + lower


def test_the_file_is_small_and_complete_in_what_it_says_of_itself() -> None:
    assert MEASURED.stat().st_size < 400_000
    assert HELD["settings"]["points"] == 25
    assert HELD["seconds"] > 0
    for one in HELD["architectures"].values():
        for note in one.get("models", {}).values():
            assert note.keys() == {"seed", "train_loss", "seconds"}


def test_the_readme_holds_the_measured_table() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Barriers, measured\n")[2].partition("\n## ")[0]
    assert make_lmc.table() in section
    settings = {(one["architecture"], one["scope"], one["using"]) for one in HELD["pairs"]}
    assert make_lmc.table().count("\n| ") == len(settings)


# The records


def test_the_record_is_what_the_file_says() -> None:
    record = measured()
    assert sum(len(one.pairs) for one in record.scopes) == len(HELD["pairs"])
    first = record.scopes[0]
    assert (first.architecture, first.scope) == ("llama", SCOPES[0])
    own = [one for one in HELD["pairs"] if (one["architecture"], one["scope"], one["using"]) ==
           ("llama", SCOPES[0], "weights")]  # fmt: skip
    assert first.using == "weights" and len(own) == len(first.pairs) == 6
    for number, variant in enumerate(VARIANTS):
        told = [one["relative"][variant] for one in own]
        assert first.relative[number].tolist() == told
        assert first.mean(variant) == pytest.approx(np.mean([value for value, _, _ in told]))


def test_a_pair_without_a_ratio_is_left_out_of_the_mean() -> None:
    one = measured().scopes[0]
    gone = one.relative.copy()
    gone[:, 0] = np.nan
    less = replace(one, relative=gone)
    assert len(less.of("full")) == len(one.pairs) - 1
    assert less.mean("full") != one.mean("full")
    assert np.isnan(replace(one, relative=np.full_like(gone, np.nan)).mean("full"))


def test_without_a_file_the_page_learns_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no lmc\.json: run python -m assets\.make_lmc"):
        measured(tmp_path / "lmc.json")


def test_published_numbers_are_those_of_the_papers() -> None:
    told = connectivity()
    assert told.relative == {"none": (0.62, 0.91), "orthogonal": (0.1, 0.16), "full": (0.07, 0.12)}
    assert "2606.17830" in told.source and set(told.found) == set(SCOPES)
    moved = coordinates()
    assert moved.shares == {"composed": 91.1, "endpoint": 60.3, "through the base": 11.4}
    assert "2606.31963" in moved.source
    assert demo_shares()["composed"] > demo_shares()["endpoint"]


def test_layer_results_ship_for_a_model_that_need_not_be_there() -> None:
    maps, cut = shipped_maps("smollm2"), shipped_cut("smollm2")
    assert maps is not None and {"replace", "swap"} <= maps.tests.keys() and maps.layers == 30
    assert cut is not None and cut.single.kl.shape[0] == 30
    assert shipped_maps("another") is None and shipped_cut("another") is None


# The script


@pytest.fixture(scope="module")
def small() -> lmc_models.Kind:
    """A ViT of three heads, to be trained in a moment."""
    kind = KINDS["vit"]
    sizes = {
        **kind.shape.attributes, "hidden_size": 24, "intermediate_size": 20,
        "num_attention_heads": 3, "num_hidden_layers": 2,
    }  # fmt: skip
    return replace(kind, shape=replace(kind.shape, attributes=sizes), rows=16)


@pytest.fixture(scope="module")
def pair(small: lmc_models.Kind, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and the same with its attention in other coordinates inside every head."""
    folder = tmp_path_factory.mktemp("lines")
    tiny.moved(start := lmc_models.shapes.drawn(small.shape, 1), 0)
    lmc_models.save(start, small, folder / "a")
    only = ("grp", "qk", "val")
    scramble(open_checkpoint(folder / "a"), folder / "b", 1, only)
    return str(folder / "a"), str(folder / "b")


def asked(pair: tuple[str, str]) -> Barrier:
    return Barrier(
        *pair, points=5, stages=ABLATION, scope="all-attention", adaptive=False, device="cpu"
    )


@pytest.fixture(scope="module")
def exam() -> Exam:
    return labelled(count=48)


def test_a_planted_change_of_heads_is_found_by_a_full_stage_2_alone(
    pair: tuple[str, str], exam: Exam
) -> None:
    a, b = map(open_checkpoint, pair)
    row = described(barriers(a, b, asked(pair), exam))
    naive, none = (row["barrier"][word][0] for word in ("naive", "none"))
    assert naive > 0.1
    assert row["barrier"]["full"][0] <= 1e-4 * naive
    assert none > 0.1 * naive  # the order of the heads alone does not do it
    if row["relative"]:
        assert row["relative"]["none"][0] == pytest.approx(none / naive, rel=1e-3)


def test_every_order_of_the_heads_gets_its_line(pair: tuple[str, str], exam: Exam) -> None:
    a, b = map(open_checkpoint, pair)
    row = ordered(every(a, b, Orders(*pair, 0, 3, device="cpu"), given=exam))
    assert len(row["orders"]) == len(row["barrier"]) == 6
    assert row["rank by objective"] == 1
    right = row["barrier"][row["chosen"]]
    assert right <= 1e-3 and max(row["barrier"]) > 0.01


def test_images_tell_what_heads_do(pair: tuple[str, str], exam: Exam, tmp_path: Path) -> None:
    a, b = map(open_checkpoint, pair)
    heard = replace(asked(pair), using="activations", text=kept(tmp_path))
    row = described(barriers(a, b, heard, exam))
    assert row["barrier"]["full"][0] <= 1e-4 * row["barrier"]["naive"][0]
    tried = Orders(*pair, 0, 3, using="activations", text=heard.text, device="cpu")
    # A layer of which only the attention moves, but the other layer differs: by weights again.
    assert ordered(every(a, b, tried, given=exam))["rank by objective"] == 1


def test_only_what_is_asked_for_is_trained(small: lmc_models.Kind) -> None:
    start = lmc_models.shapes.drawn(small.shape, 2)
    names = [n for n, _ in start.named_parameters() if small.holds("first-attention", n)]
    fresh = lmc_models.redrawn(small, start, names, 3)
    model, loss = lmc_models.train(fresh, small, 4, 3, names)
    again, same = lmc_models.train(fresh, small, 4, 3, names)
    assert loss == same and names
    for name, x in start.named_parameters():
        after = model.get_parameter(name)
        assert torch.equal(after, x) == (name not in names), name
        assert torch.equal(after, again.get_parameter(name))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_scope_is_the_lines_own(name: str, tmp_path: Path) -> None:
    """What is drawn anew in memory is what the line moves on disk."""
    from engine.line.scopes import scope

    kind = KINDS[name]
    model = lmc_models.shapes.drawn(kind.shape, 1)
    lmc_models.save(model, kind, tmp_path / "a")
    checkpoint = open_checkpoint(tmp_path / "a")
    for word in SCOPES:
        numbers = sum(p.numel() for n, p in model.named_parameters() if kind.holds(word, n))
        moved = sum(checkpoint.headers[n].parameters for n in scope(checkpoint, word))
        assert numbers == moved, word


def test_batches_come_from_seeds() -> None:
    for kind in KINDS.values():
        first, again, other = (next(kind.batches(seed, 4)) for seed in (1, 1, 2))
        for word, x in first.items():
            if isinstance(x, torch.Tensor):
                assert torch.equal(x, again[word])  # type: ignore[arg-type]
        assert any(
            isinstance(x, torch.Tensor) and not torch.equal(x, other[word])  # type: ignore[arg-type]
            for word, x in first.items()
        )


def test_pieces_grow_and_words_keep_their_places() -> None:
    """The same words and the same hidden ones, a piece of 32 cut into shorter ones at first."""
    found = list(lmc_models.growing(5, 4, ((8, 2), (16, 1), (lmc_models.PIECE, 1))))
    whole = [batch for _, batch in zip(found, lmc_models.hidden(5, 4), strict=False)]
    assert [len(one["input_ids"][0]) for one in found] == [8, 8, 16, 32]  # type: ignore[index]
    for one, batch in zip(found, whole, strict=True):
        for word in ("input_ids", "labels"):
            assert torch.equal(one[word].reshape(4, 32), batch[word])  # type: ignore[attr-defined]
        places = one["position_ids"].reshape(4, 32)  # type: ignore[attr-defined]
        assert torch.equal(places, torch.arange(32).expand(4, 32))


def test_a_course_trains_whole_models_and_no_scope() -> None:
    kind = KINDS["bert"]
    assert kind.course is not None and kind.steps == kind.course.steps == 800
    short = replace(kind, course=lmc_models.Course(1e-2, ((8, 2),)), rows=4)
    start = lmc_models.shapes.drawn(kind.shape, 1)
    names = [n for n, _ in start.named_parameters()]
    by_course, _ = lmc_models.train(start, short, 4, 2)
    without, _ = lmc_models.train(start, replace(short, course=None), 4, 2)
    parts = [lmc_models.train(start, one, 4, 2, names)[0] for one in (short, without_course(short))]
    assert not same(by_course, without)
    assert same(*parts) and same(without, parts[0])


def without_course(kind: lmc_models.Kind) -> lmc_models.Kind:
    return replace(kind, course=None)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_shapes_differ_and_stay_inside() -> None:
    line = torch.arange(images.SIDE, dtype=torch.float32)
    centre, radius = 7.5, torch.full((1, 1, 1), 4.0)
    across = (line[None, None] - centre).abs().expand(1, images.SIDE, -1)
    found = images.masks(across, across.mT, radius)[:, 0]
    assert len(found) == len(images.SHAPES)
    for one, other in combinations(found, 2):
        assert not torch.equal(one, other)
    assert all(mask.any() and not mask[0].any() and not mask[:, -1].any() for mask in found)
    pixels, labels = images.images(3, 64)
    assert torch.equal(pixels, images.images(3, 64)[0])
    assert set(labels.tolist()) == set(range(len(images.SHAPES)))


def test_a_file_that_was_stopped_lists_what_is_missing(tmp_path: Path) -> None:
    planned = (place("llama", "whole", "weights"), place("vit", "whole", "weights"))
    book = make_lmc.Book(tmp_path / "lmc.json", planned)
    book.pairs += [one for one in HELD["pairs"] if one["scope"] == "whole"][:2]
    book.write()
    held = json.loads((tmp_path / "lmc.json").read_text(encoding="utf-8"))
    assert held["pairs"] == book.pairs
    assert held["missing"] == [f"{planned[0]}: 1 of 3 pairs", f"{planned[1]}: 3 of 3 pairs"]
    assert not list(tmp_path.glob("*.part"))


def test_a_run_that_goes_on_measures_what_is_missing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "lmc.json", list[tuple[str, str]]()
    held = {**HELD, "pairs": HELD["pairs"][1:]}
    out.write_text(json.dumps(held), encoding="utf-8")

    def barriers(a: Any, b: Any, *_: Any) -> tuple[str, str]:
        calls.append((a.name, b.name))
        return a.name, b.name

    gone = {word: x for word, x in HELD["pairs"][0].items()
            if word not in {"architecture", "scope", "using", "a", "b"}}  # fmt: skip
    monkeypatch.setattr(make_lmc, "barriers", barriers)
    monkeypatch.setattr(make_lmc, "every", lambda *_, given: given)
    monkeypatch.setattr(make_lmc, "ordered", lambda _: HELD["orders"][0])
    monkeypatch.setattr(make_lmc, "described", lambda _: gone)
    make_lmc.main(["--resume", "--out", str(out)])
    found = json.loads(out.read_text(encoding="utf-8"))
    first = HELD["pairs"][0]
    assert calls == [tuple(f"demo:{first[end]}" for end in "ab")]
    assert found["pairs"] == [*HELD["pairs"][1:], first] and found["missing"] == []
    assert found["architectures"].keys() == HELD["architectures"].keys()
    assert found["architectures"]["bert"] == HELD["architectures"]["bert"]
    assert found["seconds"] >= HELD["seconds"]
    calls.clear()
    make_lmc.main(["--resume", "--out", str(out)])
    assert calls == []


def test_a_file_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "lmc.json"
    out.write_text(json.dumps({**HELD, "settings": {**HELD["settings"], "points": 9}}))
    with pytest.raises(Refused, match="other settings: leave out --resume"):
        make_lmc.main(["--resume", "--out", str(out)])
    assert json.loads(out.read_text())["settings"]["points"] == 9
