"""Sweeps: what they promise of the objective, planted truths, and the costs they beat."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import network
from engine.action import act
from engine.alignment.candidates import by_distance, with_factors
from engine.alignment.comparison import compare
from engine.alignment.descent import Listened
from engine.alignment.listening import correlate_neurons, places
from engine.alignment.one_pass import start_from_embedding
from engine.alignment.proposals import Scene, solve_layer
from engine.alignment.solving import explained, occurring, solve
from engine.alignment.starting import Fate, sentences
from engine.alignment.sweeps import Descent, State, descend, lowest, scene, sweep
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.families.llama import FAMILY as LLAMA
from engine.groups import COMMON_SIGN, MONOMIAL
from engine.questions import Align
from engine.scramble import scramble
from engine.slide import possible, slide
from engine.summaries.pairs import of_alignment
from engine.symmetry import Symmetry, sample, words
from tests import tiny

SEEDS = ("seed-1", "seed-2", "seed-3")
TUNES = ("base-step-1100", "tune-a-step-0020", "tune-a-step-0160", "tune-b-step-0160")
seeds = pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:])]
)


def task_of(a: Checkpoint, b: Checkpoint, **options: object) -> Descent:
    asked = Align(a.name, b.name, **{"sweeps": 6, **options})  # type: ignore[arg-type]
    return Descent(a, b, asked, words(a.family, asked.only) & a.family.carried(b.headers))


def demo(name: str) -> Checkpoint:
    return open_checkpoint(f"demo:{name}")


@cache
def objective(seed: str, **options: object) -> tuple[float, float, Symmetry]:
    """J at the identity as the files stand, the lowest J found, and where."""
    a, b = demo("base"), demo(seed)
    task = task_of(a, b, sweeps=2, **options)
    g, rows = descend(task, {"identity": None, "embedding": start_from_embedding(a, b)})
    return rows[0].before, min(row.after for row in rows), g


def element(g: Symmetry, key: str) -> Ordered:
    found = g.elements[key]
    assert isinstance(found, Ordered)
    return found


def same(found: Ordered, truth: Ordered) -> float:
    right = (found.permutation == truth.permutation) & (found.scale.sign() == truth.scale.sign())
    return float(right.double().mean())


def identity(size: int) -> Ordered:
    return Ordered(torch.arange(size), torch.ones(size, dtype=torch.float64))


@seeds
def test_independent_seeds_come_nearer_than_by_any_lesser_search(seed: str) -> None:
    start, found, _ = objective(seed)
    assert found < 0.9 * start
    assert found < objective(seed, signs=False)[1]
    assert found < objective(seed, neurons="published")[1] - 0.01


@seeds
def test_signs_of_independent_seeds_are_coin_flips(seed: str) -> None:
    g = objective(seed)[2]
    assert 0.35 < float((element(g, "res").scale < 0).double().mean()) < 0.65
    ffn = torch.stack([element(g, f"layers.{layer}.ffn").scale for layer in range(6)])
    assert 0.35 < float((ffn < 0).double().mean()) < 0.65


@pytest.mark.parametrize("name", TUNES)
def test_fine_tunes_of_one_base_keep_their_coordinates(name: str) -> None:
    a, b = demo("base"), demo(name)
    g, rows = descend(task_of(a, b), {"identity": None, "embedding": start_from_embedding(a, b)})
    assert rows[0].before < 0.2
    assert same(element(g, "res"), identity(96)) >= 0.99
    for layer in range(6):
        assert same(element(g, f"layers.{layer}.ffn"), identity(256)) >= 0.99
        assert element(g, f"layers.{layer}.grp").permutation.tolist() == [0, 1]


@pytest.mark.parametrize(
    "name", ["tune-a-step-0160", pytest.param("tune-b-step-0160", marks=pytest.mark.long)]
)
def test_a_scrambled_fine_tune_is_put_back(name: str, tmp_path: Path) -> None:
    scramble(demo(name), tmp_path / "b", seed=7)
    report, g = compare(
        demo("base"), b := open_checkpoint(tmp_path / "b"), Align("", "", sweeps=6), tmp_path / "c"
    )
    planted = sample(LLAMA, b.config, torch.Generator().manual_seed(7))
    both = g.compose(planted)
    assert same(element(both, "res"), identity(96)) >= 0.95
    neurons = [same(element(both, f"layers.{layer}.ffn"), identity(256)) for layer in range(6)]
    assert np.mean(neurons) >= 0.95
    assert report.kept == "exact"
    assert network.load(open_checkpoint(tmp_path / "c")).config.num_hidden_layers == 6


def test_without_the_embedding_a_scrambled_fine_tune_is_not_put_back(tmp_path: Path) -> None:
    """The start matters: from the identity alone the descent ends where it must not."""
    scramble(demo("tune-a-step-0020"), tmp_path / "b", seed=7)
    a, b = demo("base"), open_checkpoint(tmp_path / "b")
    _, rows = descend(task_of(a, b), {"identity": None, "embedding": start_from_embedding(a, b)})
    ends = {row.start: row.after for row in rows}
    assert ends["identity"] > 1
    assert ends["embedding"] < 0.2


@pytest.mark.parametrize("options", [{}, {"signs": False}, {"neurons": "published"}], ids=str)
def test_the_objective_never_rises_and_the_lowest_is_returned(options: dict) -> None:
    a, b = demo("base"), demo("seed-1")
    rng = np.random.default_rng(0)
    task = task_of(a, b, **options)
    g, rows = descend(task, {"identity": None, "random": rng.normal(size=(96, 96))})
    for row in rows:
        assert row.after <= row.before * (1 + 1e-6)
    for one, after in pairwise(rows):
        if one.start == after.start:
            assert after.before <= one.after * (1 + 1e-6)
    assert value(task, g) == pytest.approx(min(row.after for row in rows), rel=1e-5)


def value(task: Descent, g: Symmetry) -> float:
    """D(g) by its definition, tensor by tensor."""
    gap = own = 0.0
    for layer in task.layers():
        theirs, mine = task.pair(layer)
        for name, x in theirs.items():
            gap += float((x - act(g, name, mine.__getitem__)).square().sum())
            own += float(x.square().sum())
    return gap / own


@pytest.mark.parametrize(
    "options",
    [{}, {"signs": False}, {"neurons": "published"}, {"stage2": "orthogonal"}],
    ids=lambda options: next(iter(options), "plain"),
)
@pytest.mark.parametrize("architecture", ["gpt2", "llama_gqa", "mixtral", "opt", "qwen3"])
def test_strangers_never_end_farther_apart_than_they_began(
    architecture: str, options: dict, built: Callable[[str], Path], tmp_path: Path
) -> None:
    """The law: what is returned leaves no more than the identity, and no sweep more than before."""
    a = open_checkpoint(built(architecture))
    b = open_checkpoint(tiny.build(architecture, tmp_path / "b", seed=5))
    task = task_of(a, b, sweeps=2, **options)
    g, rows = descend(task, {"identity": None, "embedding": start_from_embedding(a, b)})
    start = value(task, Symmetry(a.family, a.config, {}))
    assert rows[0].before == pytest.approx(start, rel=1e-5)
    ended = value(task, g)
    assert ended <= start * (1 + 1e-6)
    assert ended == pytest.approx(min(row.after for row in rows), rel=1e-4)
    assert all(row.after <= row.before * (1 + 1e-6) for row in rows)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_twins_of_every_kind_meet(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built(architecture))
    scramble(a, tmp_path / "b", seed=3)
    b = open_checkpoint(tmp_path / "b").spelled_like(a)
    g, rows = descend(task_of(a, b, sweeps=1), {"embedding": start_from_embedding(a, b)})
    assert rows[0].before > 0.1
    assert rows[-1].after < 1e-6
    worst = max(tiny.distance(act(g, n, b.read), a.read(n)) for n in a.headers)
    assert worst < 1e-3


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "llama_gqa", "mixtral", "vit"])
def test_blind_directions_of_a_block_do_not_enter(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built(architecture))
    read, count = a.read, 0
    for blind in possible(a.family, a.config, a.headers):
        exact = not blind.approximate and blind.name not in {"last", "logit"}
        if exact and blind.name != "embedding":
            draw = torch.Generator().manual_seed(2)
            read = slide(a.family, a.config, blind, read, draw, list(a.headers))
            count += 1
    folder = tmp_path / "b"
    save_checkpoint(folder, ((n, read(n).float()) for n in a.headers), a)
    b = open_checkpoint(folder)
    plain = [tiny.distance(b.read(n), a.read(n)) for n in a.headers]
    layers = [task_of(a, b).pair(layer) for layer in range(a.layers)]
    folded = [tiny.distance(y[n], x[n]) for x, y in layers for n in x if float(x[n].norm()) > 1e-6]
    assert count > 1
    assert max(plain) > 0.05
    assert max(folded) < 1e-4


def test_the_residual_step_takes_the_best_assignment() -> None:
    """J falls by exactly what the score promises."""
    a, b = demo("base"), demo("seed-2")
    task = task_of(a, b)
    state, _, score = sweep(task, State(identity(96)))
    generator = torch.Generator().manual_seed(0)
    one, other = (a.family.coordinates["res"].group.sample(96, (), generator) for _ in range(2))
    values, worths = [], []
    for res in (one, other):
        assert isinstance(res, Ordered)
        g = Symmetry(a.family, a.config, {**state.inner, "res": res})
        values.append(value(task, g))
        worths.append((score[np.arange(96), res.permutation] * res.scale.numpy()).sum())
    assert values[0] - values[1] == pytest.approx(worths[1] - worths[0], rel=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_descent_ends_where_a_sweep_takes_off_less_than_a_ten_millionth(
    scale: float, built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the objective, whatever its size; the sweep that took so little is the last."""
    falls = [0.2, 1e-3, 1.2e-7, 1.2e-7, 0.8e-7, 0.5]
    values = scale * np.cumprod([1.0, *(1 - np.array(falls))])
    a = open_checkpoint(built("llama_gqa"))
    told: list[int] = []

    def swept(_: Descent, state: State, __: object) -> tuple[State, float, np.ndarray]:
        k = len(told)
        told.append(k)
        elsewhere = np.roll(np.eye(24), k + 1, axis=1)  # the residual never stands still
        return replace(state, objective=values[k], distance=1.0), values[k], elsewhere

    monkeypatch.setattr("engine.alignment.sweeps.sweep", swept)
    fates: list[Fate] = []
    end, rows = lowest(task_of(a, a, sweeps=9), {"x": None}, noted=fates.append)
    assert [row.after for row in rows] == values[:6].tolist()
    assert fates == [Fate("x", "flat", 6)]
    assert end.objective == values[5]


def test_activations_weigh_in_by_the_objectives_definition(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    """(1 − μ) D + μ (1 − K): half of K is of the stream, half of the neurons of all layers."""
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=5))
    rng = np.random.default_rng(0)
    stream = rng.uniform(-1, 1, (24, 24))
    neurons = torch.from_numpy(rng.uniform(0, 1, (2, 20, 20)).astype(np.float32))
    task = replace(task_of(a, b, mix=0.3), listened=Listened(stream, tuple(neurons)))
    order, plus = torch.from_numpy(rng.permutation(24)), torch.ones(24, dtype=torch.float64)
    state, _, score = sweep(task, State(Ordered(order, plus)))
    assert score is not None

    def definition(res: Ordered) -> float:
        g = Symmetry(a.family, a.config, {**state.inner, "res": res})
        rows = np.arange(24)
        alike = (stream[rows, res.permutation] * res.scale.numpy()).mean()
        fired = [
            neurons[layer][range(20), element(g, f"layers.{layer}.ffn").permutation].mean()
            for layer in range(2)
        ]
        return 0.7 * value(task, g) + 0.3 * (1 - 0.5 * alike - 0.5 * float(np.mean(fired)))

    assert state.objective == pytest.approx(definition(state.res), rel=1e-5)
    flipped = Ordered(order.roll(5), plus * (1 - 2 * (torch.arange(24) % 3 == 0)))
    worth = [
        float((score[np.arange(24), res.permutation] * res.scale.numpy()).sum())
        for res in (state.res, flipped)
    ]
    fallen = definition(state.res) - definition(flipped)
    assert fallen == pytest.approx(worth[1] - worth[0], rel=1e-4)


def layer_of_equal_neurons(a: Checkpoint, first: int, second: int) -> Scene:
    """Layer 0 of a model beside itself, two of its neurons the same."""
    found = scene(task_of(a, a), 0, identity(24))
    both = {n: x.clone() for n, x in found.a.items()}
    for name, x in both.items():
        if "mlp" in name:
            rows = x.mT if "down" in name else x
            rows[second] = rows[first]
    return replace(found, a=both, b=both)


def test_of_equals_the_present_one_stays(
    built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tie moves nothing; an element that is not there yet is taken, though it changes nothing."""
    a = open_checkpoint(built("llama_gqa"))
    here = layer_of_equal_neurons(a, 3, 7)
    order = torch.arange(20)
    order[[3, 7]] = order[[7, 3]]
    still, swapped = identity(20), Ordered(order, identity(20).scale)

    def offered(scene: Scene, *_: object) -> Iterator[tuple[dict, Scene]]:
        yield from (({"ffn": one}, scene.after({"ffn": one})) for one in (still, swapped, still))

    monkeypatch.setattr("engine.alignment.proposals.proposals", offered)
    for present in (still, swapped):
        assert solve_layer(here, {"ffn": present}).elements["ffn"] is present
    assert solve_layer(here, {}).elements["ffn"] is still
    monkeypatch.undo()
    every = solve_layer(scene(task_of(a, a), 0, identity(24)), {})
    assert every.elements.keys() == {"ffn", "grp", "head", "rot", "val"}
    assert every.gaps == (0, 0)


def rows_of(seed: int) -> dict:
    from engine.axes import Mark

    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(3, 12, 9, generator=generator, dtype=torch.float64)
    return dict(zip((Mark.RELABEL, Mark.WRITE, Mark.READ), draw, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_the_score_of_neurons_is_the_distance_in_one_balance(seed: int) -> None:
    """For factors ±c that give B's neurons the balance of A's, half of it is the whole distance."""
    from engine.axes import Mark

    x, y = rows_of(seed), rows_of(seed + 100)
    inner = {m: x[m].mT @ y[m] for m in x}
    score = by_distance(MONOMIAL, x, y, inner)
    for i, j in ((0, 1), (4, 2), (7, 7)):
        up, down = ((z[m][:, k]) for m in (Mark.WRITE, Mark.READ) for z, k in ((y, j),))
        own_up, own_down = x[Mark.WRITE][:, i], x[Mark.READ][:, i]
        c = ((own_up.norm() / own_down.norm()) / (up.norm() / down.norm())).sqrt()
        gate = (x[Mark.RELABEL][:, i] - y[Mark.RELABEL][:, j]).square().sum()
        both = [
            gate + (own_up - s * c * up).square().sum() + (own_down - down / (s * c)).square().sum()
            for s in (1, -1)
        ]
        own = sum(z[m][:, k].square().sum() for m, z, k in
                  ((Mark.RELABEL, x, i), (Mark.WRITE, x, i), (Mark.READ, x, i),
                   (Mark.RELABEL, y, j)))  # fmt: skip
        assert float(own - 2 * score[i, j]) == pytest.approx(float(min(both)))


def test_the_distance_left_is_the_one_of_the_tensors() -> None:
    from engine.axes import Mark

    x, y = rows_of(1), rows_of(2)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    found, left = with_factors(MONOMIAL, x, y, order, fit=True)
    moved = {
        Mark.RELABEL: found.relabel(y[Mark.RELABEL]),
        Mark.WRITE: found.write(y[Mark.WRITE]),
        Mark.READ: found.read(y[Mark.READ]),
    }
    assert left == pytest.approx(sum(float((x[m] - moved[m]).square().sum()) for m in x))
    _, plain = with_factors(MONOMIAL, x, y, order, fit=False)
    assert left < plain


@pytest.mark.parametrize("architecture", ["gpt2", "llama_gqa", "opt", "vit"])
def test_neurons_of_a_twin_fire_alike(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built(architecture))
    if a.family.inputs == "pixels":
        assert places(a.family, 2)
        return
    scramble(a, tmp_path / "b", seed=6)
    b = open_checkpoint(tmp_path / "b")
    g = sample(a.family, a.config, torch.Generator().manual_seed(6)).inverse()
    ids = torch.randint(96, (8, 16), generator=torch.Generator().manual_seed(0))
    found = correlate_neurons([network.load(c) for c in (a, b)], a.family, ids)
    assert len(found) == a.layers
    for layer, c in enumerate(found):
        truth = element(g, f"layers.{layer}.ffn")
        chosen = c.gather(1, truth.permutation[:, None])[:, 0].double()
        fires = chosen != 0  # some neurons behind a ReLU never do
        assert fires.double().mean() > 0.5
        torch.testing.assert_close(chosen[fires], truth.scale.sign()[fires], atol=1e-3, rtol=0)


def test_experts_are_not_listened_to(built: Callable[[str], Path]) -> None:
    assert places(open_checkpoint(built("mixtral")).family, 2) == ()


def test_listening_in_parts_hears_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [network.load(demo(name)) for name in ("base", "seed-1")]
    ids = torch.randint(200, (4, 16), generator=torch.Generator().manual_seed(0))
    whole = correlate_neurons(models, LLAMA, ids, (1,))
    monkeypatch.setattr("engine.alignment.listening.HELD", 1)
    parts = correlate_neurons(models, LLAMA, ids, (1,))
    torch.testing.assert_close(torch.stack(whole), torch.stack(parts))


def test_activations_weigh_in_and_their_objective_falls_too() -> None:
    report = Align("demo:base", "demo:seed-1", sweeps=2, mix=0.5, tokens=1024).answer()
    assert {row.start for row in report.sweeps} >= {"identity", "embedding"}
    assert all(row.after < row.before * (1 + 1e-6) for row in report.sweeps)
    assert min(row.distance for row in report.sweeps) > objective("seed-1")[1]
    assert report.kept == "exact"


def test_what_each_coordinate_takes_off_adds_up_to_all(tmp_path: Path) -> None:
    a, b = demo("base"), demo("twin")
    found = solve(a, b, Align("", "", sweeps=1))
    steps = explained(a, b, found.g)
    assert tuple(steps) == tuple(replace(step, margin=None) for step in found.steps)
    assert {step.layer for step in steps} == {0, 1, 2, 3, 4, 5, None}
    assert [s.coordinates for s in steps if s.layer == 0] == [
        "res",
        "ffn",
        "grp head",
        "rot",
        "val",
    ]
    assert [s.after for s in steps if s.coordinates in {"ffn", "val"}] == pytest.approx(
        [0] * 12, abs=1e-5
    )


def test_restarts_are_starts_of_their_own() -> None:
    asked = Align("demo:base", "demo:seed-1", sweeps=1, restarts=2)
    rows = solve(demo("base"), demo("seed-1"), asked).sweeps
    assert [row.start for row in rows] == ["identity", "embedding", "perturbed 1", "perturbed 2"]


def test_starts_that_are_left_out_and_ends_before_the_limit_are_told() -> None:
    """What is said of every start, by each reason; one that goes on to the limit has none."""
    fates: list[Fate] = []
    a, b = open_checkpoint("demo:base"), open_checkpoint("demo:seed-1")
    first = start_from_embedding(a, b)
    begun = {"embedding": first, "again": first.copy}
    _, rows = lowest(task_of(a, b, sweeps=1), begun, noted=fates.append)
    assert fates == [Fate("again", "known", other="embedding")]
    assert {row.start for row in rows} == {"embedding"}
    fates.clear()
    _, rows = lowest(task_of(a, a), {"identity": None, **begun}, noted=fates.append)
    still = Fate("identity", "still", len(rows))
    assert fates == [still, Fate("embedding", "near"), Fate("again", "near")]
    said = list(sentences([*fates, Fate("x", "known", other="y"), Fate("z", "flat", 2)], 12))
    assert said == [
        "Not tried, since a descent before them had ended near A: embedding, again.",
        "Left out, since another descent went through their residual coordinates: x (that from y).",
        f"Ended before 12 sweeps, since the residual coordinates stood still: {still.told}.",
        "Ended before 12 sweeps, since the objective fell no further: z after 2.",
    ]


def test_the_report_says_what_became_of_every_start_and_counts_every_element() -> None:
    """Of a model with itself sweeps keep no identity, and all six layers are solved and right."""
    report = Align("demo:base", "demo:base", sweeps=3).answer()
    assert any(note.startswith("Not tried") for note in report.notes)
    assert set(report.notes) <= set(of_alignment(report))
    layers = open_checkpoint("demo:base").layers
    assert {s.coordinate: s.solved for s in report.stages} == {
        s.coordinate: 1 if s.coordinate == "res" else layers for s in report.stages
    }
    assert not Align("demo:base", "demo:base").answer().notes


def test_tokens_that_never_occur_say_nothing(tmp_path: Path, built: Callable[[str], Path]) -> None:
    seen = occurring(demo("base"), Align("", ""))
    assert seen is not None
    assert 150 < len(seen) < 249
    a, b = demo("base"), demo("tune-a-step-0020")
    name = "model.embed_tokens.weight"
    task = replace(task_of(a, b), kept=seen)
    theirs, mine = task.pair(None)
    assert theirs[name].shape == mine[name].shape == (len(seen), 96)
    assert occurring(open_checkpoint(built("llama_gqa")), Align("", "")) is None


def test_vocabularies_of_two_sizes_are_compared_on_what_both_have(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    g = sample(a.family, a.config, torch.Generator().manual_seed(3))

    def longer(name: str) -> torch.Tensor:
        x = act(g, name, a.read)
        return torch.cat([x, torch.ones(4, 24)]) if len(x) == 96 else x

    config = {**a.config, "vocab_size": 100}
    save_checkpoint(tmp_path / "b", ((n, longer(n)) for n in a.headers), a, config=config)
    b = open_checkpoint(tmp_path / "b")
    for one, other in ((a, b), (b, a)):
        _, rows = descend(task_of(one, other), {"embedding": start_from_embedding(one, other)})
        assert rows[-1].after < 1e-6


def test_only_what_was_named_moves() -> None:
    a, b = demo("base"), demo("twin")
    g, _ = descend(task_of(a, b, only=("ffn",)), {"identity": None})
    assert {key.rpartition(".")[2] for key in g.elements} == {"ffn"}


def test_layer_norm_takes_one_sign(built: Callable[[str], Path], tmp_path: Path) -> None:
    a = open_checkpoint(built("gpt2"))
    assert a.family.coordinates["res"].group == COMMON_SIGN
    scramble(a, tmp_path / "b", seed=2)
    g = solve(a, open_checkpoint(tmp_path / "b"), Align("", "", sweeps=2)).g
    assert len(set(element(g, "res").scale.tolist())) == 1


def test_the_command_sweeps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from engine.cli import main

    out = tmp_path / "out"
    words_of = ["align", "demo:base", "demo:twin", "--out", str(out), "--sweeps", "2"]
    assert main(words_of) == 0
    assert "from embedding: objective 2." in capsys.readouterr().out
    question = Align("demo:base", "demo:twin", sweeps=2, mix=0.5, neurons="published", refine=3)
    assert question.command.endswith(
        "--sweeps 2 --mix 0.5 --neurons published --refine 3 --out aligned"
    )


def test_neurons_are_solved_in_the_present_order_of_experts_too(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    """A router that says another order than the experts themselves: only its rows stay apart."""
    a, shift = open_checkpoint(built("mixtral")), torch.arange(4).roll(1)
    sizes = a.family.sizes(a.config)
    rows = torch.arange(sizes["ffn"]).roll(3).repeat(4, 1)
    neurons = Ordered(rows, torch.ones(rows.shape).double())
    g = Symmetry(a.family, a.config, {"layers.0.ffn": neurons})
    gate = "model.layers.0.block_sparse_moe.gate.weight"

    def changed(name: str) -> torch.Tensor:
        return a.read(name)[shift] if name == gate else act(g, name, a.read)

    save_checkpoint(tmp_path / "b", ((n, changed(n).contiguous()) for n in a.headers), a)
    here = scene(task_of(a, open_checkpoint(tmp_path / "b")), 0, identity(sizes["res"]))
    found = solve_layer(here, {"exp": identity(4)})
    router = next(n for n in here.a if n.endswith("gate.weight"))
    left = float((here.a[router] - here.b[router]).square().sum())
    assert found.gaps[0] > 2 * left > 0
    assert found.gaps[1] == pytest.approx(left, rel=1e-4)
    assert torch.equal(found.elements["exp"].permutation, torch.arange(4))  # type: ignore[union-attr]
    assert torch.equal(found.elements["ffn"].permutation, rows.argsort(-1))  # type: ignore[union-attr]
