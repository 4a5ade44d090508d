"""Choosing and measuring cuts, the gap between the tests, continuations: planted truths first."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.layers import cutting, gap, maps
from engine.layers.continuing import in_words
from engine.questions import Continue, Cut, Drop, Gap, Layers
from engine.records import CutReport, Measure
from engine.store import results
from tests import tiny
from tests.reordered import alone, costs, with_weights, without_layers

FEW = {"tokens": 256, "length": 8}
LAYERS = 5
NOTHING, TWINS = 3, (1, 2)


def changed(folder: Path, *, idle: bool = False, twins: bool = False) -> str:
    """A tiny Llama: one layer that adds nothing to the stream, or two equal layers."""
    tiny.build("llama_gqa", folder, num_hidden_layers=LAYERS)
    held = tiny.tensors(folder)
    layer = "model.layers.{}."
    for name in list(held):
        if (
            idle
            and name.startswith(layer.format(NOTHING))
            and name.endswith(("o_proj.weight", "down_proj.weight"))
        ):
            held[name] = torch.zeros_like(held[name])
        if twins and name.startswith(layer.format(TWINS[0])):
            held[name.replace(layer.format(TWINS[0]), layer.format(TWINS[1]))] = held[name].clone()
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> str:
    return changed(tmp_path_factory.mktemp("idle"), idle=True)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> str:
    return changed(tmp_path_factory.mktemp("twins"), twins=True)


@pytest.fixture(scope="module")
def report(idle: str) -> CutReport:
    return Cut(idle, budget=3, **FEW).answer()


def candidate(report: CutReport, by: str):
    return next(one for one in report.candidates if one.by == by)


@pytest.mark.parametrize("by", ["influence", "angular"])
def test_a_layer_that_adds_nothing_goes_first_and_costs_nothing(report: CutReport, by: str):
    one = candidate(report, by)
    assert one.sets[:2] == ((), (NOTHING,))
    kl = one.readings.measure("kl").value
    assert kl[1] < 1e-6
    assert kl[2] > 1e-3
    loss = report.single.measure("loss").value
    others = [n for n in range(LAYERS) if n != NOTHING]
    base = one.readings.measure("loss").value[0]
    assert abs(loss[NOTHING] - base) < 1e-6
    assert np.abs(loss[others] - base).min() > 1e-4


@pytest.mark.parametrize("by", ["swap", "replace"])
def test_equal_layers_stand_in_for_each_other_and_go_first(twins: str, by: str):
    found = Cut(twins, budget=2, by=(by,), **FEW).answer()
    one = candidate(found, by)
    scores = found.scores[by]
    assert one.sets[1] == (TWINS[0],)
    assert scores[list(TWINS)].max() < 1e-6
    assert np.delete(scores, TWINS).min() > 1e-4
    # The rule takes no neighbour of a layer that goes, however alike they are.
    assert TWINS[1] not in one.sets[2]
    # A stand-in is no licence to cut: without the layer the output changes.
    assert one.readings.measure("kl").value[1] > 1e-3


def test_every_measured_set_is_what_a_cut_by_hand_measures(report: CutReport, idle: str):
    one = candidate(report, "greedy")
    for n, dropped in enumerate(one.sets[1:], start=1):
        by_hand = Drop(idle, dropped, **FEW).answer()
        np.testing.assert_allclose(one.readings.kl[n], by_hand.readings.kl, atol=1e-6)
        np.testing.assert_allclose(one.readings.loss[n], by_hand.readings.loss, atol=1e-6)
        np.testing.assert_allclose(one.readings.loss[0], by_hand.base.loss, atol=1e-6)


def test_greedy_takes_the_best_of_all_single_layers(idle: str):
    checkpoint = open_checkpoint(idle)
    single = maps.maps(checkpoint, Layers(idle, ("delete",), **FEW)).tests["delete"]
    best = int(single.measure("loss").value.argmin())
    found = Cut(idle, budget=1, by=("greedy",), **FEW).answer()
    assert candidate(found, "greedy").sets[1] == (best,)
    np.testing.assert_allclose(found.scores["greedy"], single.measure("loss").value, atol=1e-6)
    assert candidate(found, "greedy").forwards == LAYERS


def test_what_is_chosen_on_one_text_is_measured_on_another(report: CutReport, idle: str):
    chosen_on = maps.maps(open_checkpoint(idle), Layers(idle, ("delete",), **FEW)).base.loss
    measured_on = report.candidates[0].readings.loss[0]
    assert chosen_on.shape == measured_on.shape
    assert np.abs(chosen_on - measured_on).min() > 0


def test_scores_are_read_off_the_maps_and_the_lowest_go_first(report: CutReport, idle: str):
    """s(i) = min over j of the larger direction; of the streams the layer's own turn."""
    held = Layers(idle, ("replace", "swap"), **FEW).answer()
    replaced, swapped = (held.tests[test].measure().value for test in ("replace", "swap"))
    every = range(LAYERS)
    wanted = {
        "replace": [
            min(max(replaced[i, j], replaced[j, i]) for j in every if j != i) for i in every
        ],
        "swap": [min(swapped[i, j] for j in every if j != i) for i in every],
        "influence": held.influence,
        "angular": [held.angular[i, i + 1] for i in every],
    }
    for by, scores in wanted.items():
        np.testing.assert_allclose(report.scores[by], scores, rtol=1e-5, atol=1e-7)
    for by in ("replace", "swap"):
        gone: list[int] = []
        for i in sorted(every, key=wanted[by].__getitem__):
            if all(abs(i - k) > 1 for k in gone):
                gone.append(i)
        assert candidate(report, by).sets == tuple(tuple(gone[:n]) for n in range(len(gone) + 1))
    order = np.argsort(held.influence)
    assert candidate(report, "influence").sets[3] == tuple(order[:3])
    model = stranger(idle)
    inside = sum(p.numel() for p in model.get_submodule(BLOCKS).parameters())
    assert report.parameters == (inside // LAYERS, sum(p.numel() for p in model.parameters()))


def test_every_way_is_counted_and_the_spaced_ones_say_when_they_end(report: CutReport):
    forwards = {one.by: one.forwards for one in report.candidates}
    pairs = LAYERS * (LAYERS - 1)
    assert forwards == {
        "swap": pairs // 2,
        "replace": pairs,
        "healed": pairs // 2,
        "influence": 1,
        "angular": 1,
        "greedy": 5 + 4 + 3,
    }
    for one in report.candidates:
        assert bool(one.stopped) == (len(one.sets) < 4)
        apart = np.diff(sorted(one.sets[-1])).min(initial=9)
        assert apart > 1 or one.by in {"influence", "angular", "greedy"}
    assert report.complete


def test_maps_that_were_made_are_not_made_again(
    report: CutReport, idle: str, monkeypatch: pytest.MonkeyPatch
):
    def forbidden(*_: object, **__: object):
        raise AssertionError("the maps were made again")

    monkeypatch.setattr(cutting, "maps", forbidden)
    assert results().get(Layers(idle, **FEW).key) is not None
    again = Cut(idle, budget=3, **FEW).answer()
    np.testing.assert_array_equal(again.scores["swap"], report.scores["swap"])
    with pytest.raises(AssertionError, match="made again"):
        Cut(idle, budget=3, reach=1, **FEW).answer()


def test_a_partial_report_holds_the_candidates_so_far(idle: str):
    seen: list[CutReport] = []

    def progress(share: float, step: str, partial: object = None) -> None:
        if isinstance(partial, CutReport):
            seen.append(partial)

    final = Cut(idle, budget=2, **FEW).answer(progress)
    assert [len(one.candidates) for one in seen] == list(range(6))
    assert not any(one.complete for one in seen)
    assert seen[-1].candidates[0].sets == final.candidates[0].sets


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Cut("x", by=("luck",)), "no way 'luck' to choose"),
        (Cut("x", by=()), "no way ''"),
        (Drop("x", (9,)), "no layer 9"),
        (Drop("x", ()), "No layer to leave out"),
        (Drop("x", (0, 1, 2, 3, 4)), "All 5 layers"),
    ],
)
def test_what_cannot_be_cut_is_refused_in_one_line(idle: str, asked: Cut | Drop, told: str):
    with pytest.raises(Refused, match=told) as refusal:
        replace(asked, model=idle, **FEW).answer()
    assert "\n" not in str(refusal.value)


def test_an_encoder_is_cut_by_its_divergence(tmp_path: Path):
    tiny.build("bert_masked", tmp_path, num_hidden_layers=3)
    found = Cut(str(tmp_path), budget=9, by=("greedy", "influence"), **FEW).answer()
    assert np.isnan(found.single.loss).all()
    one = candidate(found, "greedy")
    assert len(one.sets) == 3  # budget 9 of 3 layers: one stays
    assert one.readings.measure("kl").value[1] > 0


def test_the_gap_of_one_model_twice_is_the_same_and_equal_layers_have_none(twins: str):
    found = Gap((twins, twins), **FEW).answer()
    first, second = found.steps
    np.testing.assert_array_equal(first.swap.value, second.swap.value)
    assert [first.step, second.step] == [0, 1]
    pair = TWINS[0]
    assert first.replace.value[pair] < 1e-6
    assert first.swap.value[pair] < 1e-6
    assert np.delete(first.swap.value, pair).min() > 1e-5
    assert first.skip.value[pair] > 1e-3
    whole = maps.maps(open_checkpoint(twins), Layers(twins, reach=1, **FEW))
    value = whole.tests["replace"].measure().value
    np.testing.assert_allclose(
        first.replace.value,
        np.fmax(np.diagonal(value, 1), np.diagonal(value, -1)),
        atol=1e-6,
    )


def test_properties_of_adjacent_layers_are_what_they_say(twins: str, idle: str):
    def properties(model: str) -> dict[str, float]:
        return dict(Gap((model,), **FEW).answer().steps[0].properties)

    ours = properties(twins)
    plain = properties(idle)
    assert 0 < ours["weights"] < plain["weights"]
    assert -1 <= ours["turn"] <= 1
    assert 0 < ours["cka"] <= 1
    assert ours["update"] > 0
    assert set(ours) == {"loss", "influence", "update", "turn", "cka", "weights"}


def test_the_larger_of_two_measures_brings_its_own_interval():
    a, b = (
        Measure(np.array(v), np.array(v) - 0.1, np.array(v) + 0.2) for v in ([1.0, 5], [2.0, 3])
    )
    found = gap.larger(a, b)
    assert found.value.tolist() == [2, 5]
    assert found.low is not None
    assert found.low.tolist() == [1.9, 4.9]
    assert gap.larger(a, Measure(b.value)).low is None


TEXT = [[5, 9, 11, 3, 8, 2, 7], [4, 61, 9, 77, 20, 35, 1], [90, 2, 2, 8, 50, 13, 44]]
BLOCKS = "model.layers"


@pytest.fixture
def text(tmp_path: Path) -> dict[str, str]:
    """What a question is told to read `TEXT` exactly."""
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(TEXT))
    return {"text": str(path), "dtype": "float64"}


def stranger(folder: str) -> PreTrainedModel:
    """The model as transformers opens it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)


def test_the_gap_holds_the_dearer_direction_of_each_pair(idle: str, text: dict[str, str]):
    """KL to models that were really changed: of (i ← i + 1) and (i + 1 ← i) the larger one."""
    found = Gap((idle,), **text).answer().steps[0]
    model = stranger(idle)
    base = alone(model, TEXT)

    def kl(made: PreTrainedModel) -> float:
        return float(costs(TEXT, base, alone(made, TEXT))[0])

    there, back, swap, skip = np.array(
        [
            [
                kl(with_weights(model, BLOCKS, {i: i + 1})),
                kl(with_weights(model, BLOCKS, {i + 1: i})),
                kl(with_weights(model, BLOCKS, {i: i + 1, i + 1: i})),
                kl(without_layers(model, BLOCKS, [i + 1])),
            ]
            for i in range(LAYERS - 1)
        ]
    ).T
    assert 0 < (there > back).sum() < LAYERS - 1  # either direction is the dearer one somewhere
    assert np.abs(there / back - 1).min() > 0.01
    np.testing.assert_allclose(found.replace.value, np.maximum(there, back), rtol=1e-5)
    np.testing.assert_allclose(found.swap.value, swap, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.skip.value, skip, rtol=1e-5, atol=1e-7)
    assert found.loss == pytest.approx(costs(TEXT, base, base)[2:].mean(), rel=1e-6)


def test_properties_of_adjacent_layers_are_their_formulas(idle: str, text: dict[str, str]):
    """Each written out in numpy on the streams and weights of transformers' own model."""
    found = Gap((idle,), **text).answer().steps[0].properties
    model = stranger(idle)
    held: list[torch.Tensor] = []
    hooks = [
        block.register_forward_hook(lambda _, given, out: held.extend([given[0], out]))
        for block in model.model.layers
    ]
    with torch.no_grad():
        model(torch.tensor(TEXT), use_cache=False)
    for hook in hooks:
        hook.remove()
    x = np.stack([one.flatten(0, 1).numpy() for one in (*held[::2], held[-1])])
    step = np.diff(x, axis=0)

    def norm(y: np.ndarray) -> np.ndarray:
        return np.sqrt((y**2).sum(-1))

    def cosine(y: np.ndarray, z: np.ndarray) -> np.ndarray:
        size = norm(y) * norm(z)
        return (y * z).sum(-1) / np.where(size > 0, size, 1)  # a layer that adds nothing: 0

    gram = [y @ y.T for y in x - x.mean(1, keepdims=True)]
    weights = [
        np.concatenate([p.detach().numpy().ravel() for p in block.parameters()])
        for block in model.model.layers
    ]
    pairs = list(pairwise(weights))
    wanted = {
        "influence": 1 - cosine(x[:-1], x[1:]).mean(),
        "update": (norm(step) / norm(x[:-1])).mean(),
        "turn": cosine(step[:-1], step[1:]).mean(),
        "cka": np.mean([(a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
                        for a, b in pairwise(gram)]),
        "weights": np.mean([norm(v - w) / np.sqrt((v @ v + w @ w) / 2) for v, w in pairs]),
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
    assert found["loss"] == pytest.approx(costs(TEXT, *2 * [alone(model, TEXT)])[2:].mean())


def test_a_cut_costs_what_the_model_without_its_layers_costs(idle: str, text: dict[str, str]):
    """On the second half of the windows; the first one is what a choice is made on."""
    doubled = Path(text["text"])
    doubled.write_text(json.dumps([*TEXT[::-1], *TEXT]))
    model = stranger(idle)
    base = alone(model, TEXT)
    found = Drop(idle, (1, 4), **text).answer()
    assert found.base.loss == pytest.approx(costs(TEXT, base, base)[2:], rel=1e-6)
    report = Cut(idle, budget=2, by=("angular",), **text).answer()
    for way in report.candidates:
        for n, dropped in enumerate(way.sets):
            said = alone(without_layers(model, BLOCKS, dropped), TEXT)
            kl, _, *loss = costs(TEXT, base, said)
            assert way.readings.measure("kl").value[n] == pytest.approx(kl, rel=1e-5, abs=1e-7)
            assert way.readings.loss[n] == pytest.approx(loss, rel=1e-5)
            assert way.readings.measure("loss").value[n] == pytest.approx(np.mean(loss), rel=1e-5)
    kl, _, *loss = costs(TEXT, base, alone(without_layers(model, BLOCKS, (1, 4)), TEXT))
    assert found.readings.measure().value == pytest.approx(kl, rel=1e-5)
    assert found.readings.loss == pytest.approx(loss, rel=1e-5)
    assert found.dropped == (1, 4)


def test_greedy_cuts_one_layer_after_the_other_at_the_least_loss(idle: str, text: dict[str, str]):
    """SLEB on transformers' own model: after each cut all that are left are tried again."""
    doubled = Path(text["text"])
    doubled.write_text(json.dumps([*TEXT, *TEXT[::-1]]))
    model = stranger(idle)
    gone: list[int] = []
    first: list[float] = []
    for _ in range(3):
        tried = {
            layer: alone(without_layers(model, BLOCKS, [*gone, layer]), TEXT)
            for layer in range(LAYERS)
            if layer not in gone
        }
        loss = {layer: costs(TEXT, said, said)[2:].mean() for layer, said in tried.items()}
        first = first or list(loss.values())
        gone.append(min(loss, key=loss.__getitem__))
    found = Cut(idle, budget=3, by=("greedy",), **text).answer()
    assert candidate(found, "greedy").sets == tuple(tuple(gone[:n]) for n in range(4))
    assert found.scores["greedy"] == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("demo:base-step-0500", 500),
        ("runs/checkpoint-1200", 1200),
        ("hf:owner/step143000", 143000),
        ("demo:seed-3", 7),
        ("models/llama-7b", 7),
    ],
)
def test_the_step_is_read_from_a_name_or_is_the_place(name: str, step: int):
    assert gap.step_in(name, 7) == step


def test_models_that_differ_are_not_put_into_one_series(twins: str, tmp_path: Path):
    tiny.build("llama_gqa", tmp_path / "short", num_hidden_layers=3)
    tiny.build("qwen2", tmp_path / "other", num_hidden_layers=LAYERS)
    with pytest.raises(Refused, match=r"differ in number of layers \(5 and 3\)"):
        Gap((twins, str(tmp_path / "short")), **FEW).answer()
    with pytest.raises(Refused, match=r"differ in family"):
        Gap((twins, str(tmp_path / "other")), **FEW).answer()
    with pytest.raises(Refused, match="No model"):
        gap.gap((), Gap((), **FEW))


def test_what_a_model_writes_is_what_transformers_generates():
    checkpoint = open_checkpoint("demo:base")
    found = Continue("demo:base", "delete", i=4, count=12).answer()
    words = AutoTokenizer.from_pretrained(checkpoint.folder)
    model = AutoModelForCausalLM.from_pretrained(checkpoint.folder)
    start = [words.bos_token_id] if words.bos_token_id is not None else []
    ids = torch.tensor([start + words.encode(found.prompt, add_special_tokens=False)])
    made = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert words.decode(made[0, ids.shape[1] :], skip_special_tokens=True) == found.before
    assert found.after != found.before


@pytest.mark.parametrize(("test", "i", "j"), [("replace", 1, 3), ("skip", 1, 3)])
def test_what_a_changed_model_writes_is_what_transformers_generates(test: str, i: int, j: int):
    """At replace(i, j) depth i runs layer j; at skip(i, j) layers i + 1 to j are left out."""
    found = Continue("demo:base", test, i=i, j=j, count=12).answer()
    checkpoint = open_checkpoint("demo:base")
    words = AutoTokenizer.from_pretrained(checkpoint.folder)
    model = AutoModelForCausalLM.from_pretrained(checkpoint.folder)
    start = [words.bos_token_id] if words.bos_token_id is not None else []
    ids = torch.tensor([start + words.encode(found.prompt, add_special_tokens=False)])
    made = {
        "replace": lambda: with_weights(model, BLOCKS, {i: j}),
        "skip": lambda: without_layers(model, BLOCKS, range(i + 1, j + 1)),
    }[test]()
    how = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "use_cache": False}
    before, after = (one.generate(ids, **how)[0, ids.shape[1] :].tolist() for one in (model, made))
    assert found.before == words.decode(before, skip_special_tokens=True)
    assert found.after == words.decode(after, skip_special_tokens=True)
    assert found.same == next(n for n in range(12) if before[n] != after[n])


def test_two_texts_part_where_they_differ(tmp_path: Path):
    same = Continue("demo:base", "swap", i=2, j=2, count=6).answer()
    assert same.before == same.after
    assert same.same == 6
    other = Continue("demo:base", "delete", i=0, count=6).answer()
    assert other.before == same.before
    assert other.same < 6
    assert other.before.split()[: other.same] == other.after.split()[: other.same]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Continue("demo:base", "swap-healed"), "no test 'swap-healed' to write with"),
        (Continue("demo:base", "swap", i=0, j=6), "demo:base has 0 to 5"),
        (Continue("demo:base", "skip", i=3, j=2), "lies between two layers in order"),
        (Continue("demo:base", prompt="the crows " * 400), "takes 1 to"),
        (Continue("demo:bert"), "predicts no next token"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(asked: Continue, told: str):
    with pytest.raises(Refused, match=told) as refusal:
        asked.answer()
    assert "\n" not in str(refusal.value)


def test_a_test_is_said_in_words_that_leave_no_end_open():
    assert in_words("skip", 3, 7) == "without layers 4 to 7, both ends included"
    assert in_words("replace", 3, 7) == "depth 3 runs layer 7"


def test_a_report_survives_the_store(report: CutReport, tmp_path: Path):
    from engine.store import Store

    store = Store(tmp_path)
    store.put("cut", report)
    back = store.get("cut")
    np.testing.assert_array_equal(back.candidates[0].readings.kl, report.candidates[0].readings.kl)
    assert json.dumps(back.candidates[0].sets) == json.dumps(report.candidates[0].sets)
