"""Models that are close already: what is proved without a search is what the search finds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.action import act
from engine.alignment import close, proposals, standing
from engine.alignment.candidates import certain
from engine.alignment.close import distances, gap, part, stands
from engine.alignment.standing import Sketch, Standing
from engine.alignment.sweeps import Descent, State, descend, scene, sweep
from engine.axes import Mark
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.families.llama import FAMILY as LLAMA
from engine.groups import MONOMIAL
from engine.questions import Align
from engine.symmetry import Symmetry, load, sample, words

COORDINATES = ("res", "ffn", "grp", "head")
FLIPPED = torch.ones(96).double().index_fill(0, torch.tensor(5), -1)


def demo(name: str) -> Checkpoint:
    return open_checkpoint(f"demo:{name}")


def task_of(a: Checkpoint, b: Checkpoint, **options: object) -> Descent:
    asked = Align(a.name, b.name, **{"sweeps": 2, **options})  # type: ignore[arg-type]
    return Descent(a, b, asked, words(a.family, asked.only) & a.family.carried(b.headers))


def still(size: int) -> Ordered:
    return Ordered(torch.arange(size), torch.ones(size, dtype=torch.float64))


def swapped(size: int, i: int, j: int) -> Ordered:
    order = torch.arange(size)
    order[[i, j]] = order[[j, i]]
    return Ordered(order, torch.ones(size, dtype=torch.float64))


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """No certificate holds: everything is compared with everything."""
    monkeypatch.setattr("engine.alignment.candidates.stands", lambda *_: False)
    monkeypatch.setattr(proposals, "heads_stand", lambda *_: False)
    monkeypatch.setattr(Standing, "certain", lambda *_, **__: False)


@pytest.fixture(scope="module")
def short() -> dict[str, tuple[float, Symmetry]]:
    """Objective and gauge of two fine-tunes, found with all certificates."""
    found = {}
    for name in ("tune-a-step-0020", "tune-a-step-0160"):
        g, rows = descend(task_of(demo("base"), demo(name)), {"identity": None})
        found[name] = (min(row.after for row in rows), g)
    return found


@pytest.mark.parametrize("name", ["tune-a-step-0020", "tune-a-step-0160"])
def test_a_fine_tune_is_solved_as_by_the_whole_search(
    name: str, short: dict, searching: None
) -> None:
    g, rows = descend(task_of(demo("base"), demo(name)), {"identity": None})
    assert short[name][0] <= min(row.after for row in rows) * (1 + close.WORTH)
    for key, element in g.elements.items():
        if key.rpartition(".")[2] in COORDINATES:
            assert torch.equal(short[name][1].elements[key].permutation, element.permutation)


FAMILIES = (
    "bert_masked", "cohere", "gemma2", "gpt2", "gptj", "mixtral", "opt", "phi3", "qwen3", "vit",
)  # fmt: skip


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_is_solved_as_by_the_whole_search(
    architecture: str,
    built: Callable[[str], Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Every number a little changed: the same orders, and as near."""
    a, draw = open_checkpoint(built(architecture)), torch.Generator().manual_seed(1)
    noisy = ((n, a.read(n) + 0.003 * torch.randn(a.headers[n].shape, generator=draw))
             for n in a.headers)  # fmt: skip
    save_checkpoint(tmp_path / "b", noisy, a)
    task = task_of(a, open_checkpoint(tmp_path / "b"))
    g, rows = descend(task, {"identity": None})
    request.getfixturevalue("searching")
    whole, ends = descend(task, {"identity": None})
    assert rows[-1].after < rows[0].before < 0.01
    assert rows[-1].after <= ends[-1].after * (1 + close.WORTH)
    whole.save(tmp_path / "g.safetensors")
    assert load(tmp_path / "g.safetensors").elements.keys() == whole.elements.keys()
    for key, element in whole.elements.items():
        if isinstance(element, Ordered):
            assert torch.equal(g.elements[key].permutation, element.permutation)


def test_no_residual_score_is_computed_of_a_fine_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a score")

    monkeypatch.setattr(standing, "_correlation", never)
    monkeypatch.setattr("engine.alignment.candidates.by_distance", never)
    task = task_of(demo("base"), demo("tune-a-step-0020"))
    assert sweep(task, State(still(96)))[2] is None
    with pytest.raises(AssertionError, match="a score"):
        sweep(task_of(demo("base"), demo("seed-1")), State(still(96)))


@pytest.mark.parametrize(
    "planted",
    [
        {"res": swapped(96, 3, 60)},
        {"res": Ordered(torch.arange(96), FLIPPED)},
        {"layers.2.ffn": swapped(256, 17, 200)},
        {"layers.4.grp": swapped(2, 0, 1)},
    ],
    ids=lambda planted: next(iter(planted)),
)
def test_a_single_exchange_hides_behind_no_certificate(planted: dict, tmp_path: Path) -> None:
    """The negative twin: a fine-tune in which one thing stands elsewhere."""
    b = demo("tune-a-step-0020")
    g = Symmetry(LLAMA, b.config, planted)
    save_checkpoint(tmp_path / "b", ((n, act(g, n, b.read)) for n in b.headers), b)
    found, _ = descend(task_of(demo("base"), open_checkpoint(tmp_path / "b")), {"identity": None})
    for key, element in planted.items():
        back = element.inverse()
        assert torch.equal(found.elements[key].permutation, back.permutation)
        assert torch.equal(found.elements[key].scale.sign(), back.scale.sign())


def test_distances_are_those_of_all_pairs(generator: torch.Generator) -> None:
    x, y = torch.randn(2, 7, 5, generator=generator)
    table = (x[:, :, None] - y[:, None, :]).square().sum(0)
    torch.testing.assert_close(distances(x, y), table, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_certain_is_the_best(seed: int) -> None:
    """Every certificate is checked against the best of all pairs, and some must fail."""
    draw = torch.Generator().manual_seed(seed)
    x = {m: torch.randn(8, 10, generator=draw) for m in Mark}
    near = {m: rows + 0.02 * torch.randn(8, 10, generator=draw) for m, rows in x.items()}
    far = {m: torch.randn(8, 10, generator=draw) for m in Mark}
    order = torch.randperm(10, generator=draw)
    moved = {m: rows[:, order] for m, rows in near.items()}
    found = certain(MONOMIAL, x, moved, None)
    assert found is not None
    assert torch.equal(found.permutation, order.argsort())
    assert certain(MONOMIAL, x, far, None) is None
    left = (x[Mark.WRITE] - near[Mark.WRITE]).square().sum(0)
    assert stands(x[Mark.WRITE][:4], near[Mark.WRITE][:4], left)
    exchanged = near[Mark.WRITE][:, [1, 0, *range(2, 10)]]
    apart = (x[Mark.WRITE] - exchanged).square().sum(0)
    assert not stands(x[Mark.WRITE][:4], exchanged[:4], apart)


@pytest.mark.parametrize(("flip", "holds"), [(False, True), (True, False)])
def test_a_sketch_notices_a_sign(flip: bool, holds: bool, generator: torch.Generator) -> None:
    x = torch.randn(40, 6, generator=generator)
    y = x + 0.01 * torch.randn(40, 6, generator=generator)
    y[:, 2] *= -1 if flip else 1
    left = (x - y).square().sum(0).double()
    some = part(x), part(y)
    own = torch.stack([z.square().sum(0).double() for z in some])
    found = Sketch(left, (some[0].mT @ some[1]).double(), own)
    assert found.stands(signs=True) is holds
    assert found.stands(signs=False) is True or flip


def test_gaps_by_residual_coordinate_add_up(built: Callable[[str], Path]) -> None:
    a = open_checkpoint(built("llama_biases"))
    for name in a.headers:
        x = a.read(name)
        y = x + 0.1
        found = gap(a.family, name, x, y)
        assert float(found.sum()) == pytest.approx(0.01 * x.numel(), rel=1e-4)
        assert len(found) in {1, 24}


def test_what_neurons_leave_is_their_part_of_every_matrix() -> None:
    a, b = demo("base"), demo("tune-a-step-0020")
    here = scene(task_of(a, b), 1, still(96))
    found = here.neurons_left()
    gate, up, down = (
        (
            here.a[f"model.layers.1.mlp.{n}_proj.weight"]
            - here.b[f"model.layers.1.mlp.{n}_proj.weight"]
        )
        .double()
        .square()
        for n in ("gate", "up", "down")
    )
    torch.testing.assert_close(found, gate.sum(1) + up.sum(1) + down.sum(0), rtol=1e-5, atol=0)
    assert not torch.allclose(found, gate.sum(1) + up.sum(1) + down.sum(1).mean(), rtol=1e-3)
    moved = here.after({"ffn": swapped(len(found), 0, 1)}).neurons_left()
    assert moved is not None and float(moved[0]) > 2 * float(found[0])


def test_what_neurons_leave_is_unknown_where_one_tensor_holds_two_of_each(
    built: Callable[[str], Path],
) -> None:
    a = open_checkpoint(built("phi3"))
    assert scene(task_of(a, a), 0, still(a.family.sizes(a.config)["res"])).neurons_left() is None


def test_heads_in_their_places_stand_and_exchanged_ones_do_not() -> None:
    a, b = demo("base"), demo("tune-a-step-0020")
    sizes = a.family.sizes(a.config)
    x, y = task_of(a, b).pair(1)
    assert close.heads_stand(a.family, sizes, x, y)
    g = sample(a.family, a.config, torch.Generator().manual_seed(0), ("heads",))
    g = Symmetry(a.family, a.config, {"layers.1.grp": swapped(2, 0, 1), **g.only(()).elements})
    moved = {n: act(g, n, y.__getitem__) for n in y}
    assert not close.heads_stand(a.family, sizes, x, moved)
