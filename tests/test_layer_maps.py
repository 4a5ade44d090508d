"""Maps of layers: what they hold, band by band; inputs, baselines and intervals."""

import json
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom, bootstrap
from torch import Tensor
from torch.nn.functional import kl_div
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import network
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Cancelled, Refused
from engine.exports.documents import written
from engine.exports.layers import of_maps
from engine.layers import baselines
from engine.layers import maps as layer_maps
from engine.layers import sessions as layer_sessions
from engine.layers.blocks import Blocks
from engine.layers.inputs import Inputs, inputs
from engine.layers.maps import kinds, maps
from engine.layers.sessions import Session
from engine.layers.stacks import identity, stack, without
from engine.questions import Layers
from engine.records import LayerMaps, Measure, Readings
from engine.records.layers import PAIRS, SINGLES, WINDOWS
from tests.reordered import (
    LAYERS,
    alone,
    build,
    costs,
    far,
    readings,
    with_mean,
    with_weights,
    without_layers,
)

Four = Callable[[str], Checkpoint]
ALL = (*PAIRS, *SINGLES)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Four:
    """Tiny checkpoints with four layers, each written once."""
    folder = tmp_path_factory.mktemp("maps")
    return cache(lambda variant: open_checkpoint(build(variant, folder / variant)))


def asked(checkpoint: Checkpoint, **changes: Any) -> Layers:
    """Maps of two windows of eight random tokens."""
    return replace(Layers(checkpoint.name, tokens=16, length=8), **changes)


def known(readings: Readings) -> set[tuple[int, ...]]:
    """The cells that are measured on every window."""
    return {tuple(map(int, cell)) for cell in np.argwhere(~np.isnan(readings.kl).any(-1))}


def values(found: LayerMaps, test: str) -> np.ndarray:
    """KL of each cell, mean over windows."""
    return found.tests[test].measure().value


# What a map holds


def test_a_map_has_every_cell(four: Four) -> None:
    model = four("llama_gqa")
    found = maps(model, asked(model, tests=ALL))
    every = {(i, j) for i in range(LAYERS) for j in range(LAYERS)}
    apart = {(i, j) for i, j in every if i != j}
    for test in ("replace", "swap", "average"):
        assert known(found.tests[test]) == every
        assert np.abs(np.diagonal(values(found, test))).max() < 1e-6
        assert values(found, test)[~np.eye(LAYERS, dtype=bool)].min() > 1e-3
    for test in ("replace-healed", "swap-healed"):
        assert known(found.tests[test]) == apart
    assert known(found.tests["skip"]) == {(i, j) for i, j in every if i < j}
    for test in SINGLES:
        assert known(found.tests[test]) == {(i,) for i in range(LAYERS)}
    for test in ("swap", "average", "swap-healed"):
        assert np.array_equal(values(found, test), values(found, test).T, equal_nan=True)
    assert not np.allclose(values(found, "replace"), values(found, "replace").T, rtol=0.01)
    # To skip one layer is to delete it.
    skipped = np.diagonal(values(found, "skip"), offset=1)
    assert np.allclose(skipped, values(found, "delete")[1:], rtol=1e-6)
    assert found.complete
    assert sum(len(known(one)) for one in found.tests.values()) == 3 * 16 + 2 * 12 + 6 + 2 * 4
    assert found.passes < found.whole
    assert found.run.tokens == 8 * found.run.windows


def test_a_cell_is_the_reading_of_its_stack(four: Four) -> None:
    model = four("gpt2")
    question = asked(model, tests=("replace", "swap", "delete"))
    found = maps(model, question)
    session = Session(network.load(model), model.family, inputs(model, question), None)
    cells = {"replace": (2, 1), "swap": (0, 3), "delete": (2,)}
    read = readings(session, [stack(t, LAYERS, *cell) for t, cell in cells.items()])
    for (test, cell), one in zip(cells.items(), read, strict=True):
        held = found.tests[test]
        assert far(torch.from_numpy(held.kl[cell]).double(), one.kl) <= 1
        assert far(torch.from_numpy(held.loss[cell]).double(), one.loss) <= 1
        assert np.allclose(held.agreement[cell], one.agreement)
    assert far(torch.from_numpy(found.tests["replace"].kl[1, 2]).double(), read[0].kl) > 100
    assert found.base.loss.tolist() == pytest.approx(session.base().loss.tolist(), rel=1e-6)


PLACES = {"gpt2": "transformer.h", "gpt_neox": "gpt_neox.layers", "llama_gqa": "model.layers"}
"""Where transformers keeps the blocks of three architectures."""
TEXT = [[5, 9, 11, 3, 8, 2, 7, 40, 63], [4, 4, 9, 77, 20]]


@dataclass(frozen=True)
class Stranger:
    """A model as transformers opens it, float64, the maps of it, and what it says of `TEXT`."""

    model: PreTrainedModel
    path: str
    found: LayerMaps
    base: list[np.ndarray]

    def costs(self, made: PreTrainedModel) -> np.ndarray:
        """What another model costs on `TEXT`."""
        return costs(TEXT, self.base, alone(made, TEXT))


@pytest.fixture(scope="module")
def stranger(four: Four, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stranger]:
    """Maps of three architectures, made once, and the models themselves."""
    folder = tmp_path_factory.mktemp("text")

    @cache
    def made(variant: str) -> Stranger:
        here = four(variant)
        text = tokens(folder, TEXT)
        tests = ("replace", "swap", "average", "skip", "delete")
        found = maps(here, asked(here, tests=tests, text=text, dtype="float64"))
        model = AutoModelForCausalLM.from_pretrained(here.folder, dtype=torch.float64)
        return Stranger(model, PLACES[variant], found, alone(model, TEXT))

    return made


def held(found: LayerMaps, test: str) -> np.ndarray:
    """KL and agreement of every cell, and its loss in both windows, [4, *cells]."""
    readings = found.tests[test]
    both = [readings.measure(quantity).value for quantity in ("kl", "agreement")]
    return np.stack([*both, readings.loss[..., 0], readings.loss[..., 1]])


def assert_cells(found: LayerMaps, test: str, wanted: dict[tuple[int, ...], np.ndarray]) -> None:
    """Every cell holds its value, and no two of them are alike within a hundred tolerances."""
    for cell, value in wanted.items():
        np.testing.assert_allclose(held(found, test)[(slice(None), *cell)], value, rtol=1e-5)
    divergences = sorted(value[0] for value in wanted.values())
    assert np.diff(divergences).min() > 100 * 1e-5 * divergences[-1]


@pytest.mark.parametrize("variant", PLACES)
def test_at_i_j_depth_i_runs_the_weights_of_layer_j(
    variant: str, stranger: Callable[[str], Stranger]
) -> None:
    """replace[i][j] is the KL to the model whose depth i was given layer j's weights."""
    here = stranger(variant)
    wanted = {
        (i, j): here.costs(with_weights(here.model, here.path, {i: j}))
        for i, j in permutations(range(LAYERS), 2)
    }
    assert_cells(here.found, "replace", wanted)
    table = json.loads(written(of_maps(here.found)))
    assert table["direction"] == "KL(base‖modified)"
    for (i, j), value in wanted.items():
        assert table["replace"][i][j] == pytest.approx(value[0], rel=1e-5)
        assert table["replace"][j][i] != pytest.approx(value[0], rel=0.01)


@pytest.mark.parametrize("variant", PLACES)
def test_layers_that_are_exchanged_averaged_and_left_out_are_those_of_the_cell(
    variant: str, stranger: Callable[[str], Stranger]
) -> None:
    here = stranger(variant)
    model, path, ways = here.model, here.path, list(combinations(range(LAYERS), 2))
    made = {
        "swap": {(i, j): with_weights(model, path, {i: j, j: i}) for i, j in ways},
        "average": {(i, j): with_mean(model, path, i, j) for i, j in ways},
        "skip": {(i, j): without_layers(model, path, range(i + 1, j + 1)) for i, j in ways},
        "delete": {(i,): without_layers(model, path, [i]) for i in range(LAYERS)},
    }
    for test, models in made.items():
        wanted = {cell: here.costs(one) for cell, one in models.items()}
        assert_cells(here.found, test, wanted)
        if test in {"swap", "average"}:
            table = held(here.found, test)
            np.testing.assert_array_equal(table, table.swapaxes(1, 2))
    skipped = held(here.found, "skip")[0]
    assert np.isnan(skipped[np.tril_indices(LAYERS)]).all()


class Refit(torch.nn.Module):
    """A block whose update is scaled and shifted channel by channel: x + a ∘ (block(x) − x) + b."""

    def __init__(self, block: torch.nn.Module, a: np.ndarray, b: np.ndarray) -> None:
        super().__init__()
        self.block, self.a, self.b = block, torch.from_numpy(a), torch.from_numpy(b)

    def forward(self, x: Tensor, *args: Any, **more: Any) -> Tensor:
        return x + self.a * (self.block(x, *args, **more) - x) + self.b


def updates(model: PreTrainedModel, depth: int, ids: Tensor) -> np.ndarray:
    """What the block at a depth adds to the stream of a model, [position, channel]."""
    found: list[Tensor] = []
    block = model.model.layers[depth]
    hook = block.register_forward_hook(lambda _, given, out: found.append(out - given[0]))
    with torch.no_grad():
        model(ids, use_cache=False)
    hook.remove()
    return found[0].flatten(0, 1).numpy()


def test_a_healed_layer_is_refit_on_other_text_to_what_stood_at_its_depth(
    four: Four, tmp_path: Path
) -> None:
    """a and b by least squares on the second half of the windows, read on the first."""
    here, draw = four("llama_gqa"), torch.Generator().manual_seed(3)
    ids = torch.randint(96, (6, 12), generator=draw)
    text = tokens(tmp_path, ids.tolist())
    healed = ("replace-healed", "delete-healed")
    found = maps(here, asked(here, tests=healed, text=text, dtype="float64"))
    model = AutoModelForCausalLM.from_pretrained(here.folder, dtype=torch.float64)
    read, learnt = ids[:3], ids[3:]

    def log_p(made: PreTrainedModel) -> Tensor:
        with torch.no_grad():
            return made(read, use_cache=False).logits.log_softmax(-1)

    def kl(made: PreTrainedModel) -> float:
        each = kl_div(log_p(made), log_p(model), log_target=True, reduction="none")
        return float(each.sum(-1).mean())

    for i, j in ((0, 2), (2, 0), (1, 3), (3, 1), (2, 1)):
        made = with_weights(model, "model.layers", {i: j})
        u, t = updates(made, i, learnt), updates(model, i, learnt)
        a, b = np.array([np.polyfit(x, y, 1) for x, y in zip(u.T, t.T, strict=True)]).T
        made.model.layers[i] = Refit(made.model.layers[i], a, b)
        assert values(found, "replace-healed")[i, j] == pytest.approx(kl(made), rel=1e-5)
    for i in range(LAYERS):
        made = deepcopy(model)
        mean = updates(model, i, learnt).mean(0)
        made.model.layers[i] = Refit(made.model.layers[i], 0 * mean, mean)
        assert values(found, "delete-healed")[i] == pytest.approx(kl(made), rel=1e-5)
    assert np.diff(np.sort(values(found, "delete-healed"))).min() > 1e-3


def test_passes_are_near_their_bound() -> None:
    model = open_checkpoint("demo:base")
    found = maps(model, asked(model))
    assert found.bound <= found.passes <= 1.05 * found.bound
    assert found.bound < 0.55 * found.whole


def test_a_part_of_the_layers_and_a_reach(four: Four) -> None:
    model = four("llama_gqa")
    found = maps(model, asked(model, tests=("delete", "swap"), layers="1-3", reach=1))
    assert tuple(found.tests) == ("swap", "delete")
    assert (found.first, found.last, found.reach) == (1, 3, 1)
    near = {(1, 2), (2, 1), (2, 3), (3, 2)}
    assert known(found.tests["swap"]) == near | {(i, i) for i in (1, 2, 3)}
    assert known(found.tests["delete"]) == {(1,), (2,), (3,)}
    whole = maps(model, asked(model, tests=("delete", "swap")))
    for cell in near:
        assert values(found, "swap")[cell] == pytest.approx(values(whole, "swap")[cell], rel=1e-5)
    one = maps(model, asked(model, layers="2"))
    assert known(one.tests["delete"]) == {(2,)}
    assert known(one.tests["replace"]) == {(2, 2)}


def test_the_last_position_alone(four: Four) -> None:
    model = four("llama_gqa")
    last = maps(model, asked(model, tests=("delete",), aggregate="last"))
    every = maps(model, asked(model, tests=("delete",)))
    assert last.base.positions.tolist() == [1, 1]
    assert every.base.positions.tolist() == [8, 8]
    assert np.isnan(last.base.loss).all()  # no token follows the last one
    assert not np.isnan(every.base.loss).any()
    assert not np.allclose(values(last, "delete"), values(every, "delete"), rtol=0.01)
    shown = network.load(model)
    ids = inputs(model, asked(model)).named
    with torch.no_grad():
        p = shown(**ids).logits[:, -1].double().log_softmax(-1)
        shown.model.layers = torch.nn.ModuleList([shown.model.layers[n] for n in without(4, [1])])
        shown.config.num_hidden_layers = 3
        q = shown(**ids).logits[:, -1].double().log_softmax(-1)
    kl = (p.exp() * (p - q)).sum(-1)
    assert torch.from_numpy(last.tests["delete"].kl[1]).tolist() == pytest.approx(kl.tolist(), 1e-4)


@pytest.mark.parametrize("variant", ["bert_classifier", "bert_masked", "vit"])
def test_encoders_have_maps(four: Four, variant: str) -> None:
    model = four(variant)
    found = maps(model, asked(model, tests=ALL))
    assert np.isnan(found.base.loss).all()  # no next token is predicted
    assert known(found.tests["delete-healed"]) == {(i,) for i in range(LAYERS)}
    assert found.cka.shape == (LAYERS + 1, LAYERS + 1)


# Kinds


@pytest.mark.parametrize("variant", ["gemma2", "gemma3"])
def test_layers_of_two_kinds_are_not_exchanged(four: Four, variant: str) -> None:
    model = four(variant)
    assert kinds(model) == ("sliding attention", "full attention") * 2
    found = maps(model, asked(model, tests=ALL))
    alike = {(0, 2), (2, 0), (1, 3), (3, 1)}
    for test in ("replace-healed", "swap-healed"):
        assert known(found.tests[test]) == alike
    for test in ("replace", "swap", "average"):
        assert known(found.tests[test]) == alike | {(i, i) for i in range(LAYERS)}
    assert len(known(found.tests["skip"])) == 6
    assert len(known(found.tests["delete"])) == LAYERS
    assert found.kinds == kinds(model)


def test_layers_of_one_kind_have_one_name(four: Four) -> None:
    assert kinds(four("llama_gqa")) == ("layer",) * LAYERS
    assert len(set(kinds(four("qwen2_window")))) == 2


# On the way


@pytest.fixture
def watched(four: Four) -> tuple[LayerMaps, list[tuple[float, LayerMaps]]]:
    """The maps of a model, and what was handed over on the way."""
    parts: list[tuple[float, LayerMaps]] = []

    def progress(share: float, step: str, partial: Any = None, /) -> None:
        assert 0 <= share <= 1
        assert step
        if partial is not None:
            parts.append((share, partial))

    model = four("llama_gqa")
    return maps(model, asked(model), progress), parts


def test_partial_maps_grow_from_the_diagonal(
    watched: tuple[LayerMaps, list[tuple[float, LayerMaps]]],
) -> None:
    final, parts = watched
    assert [len(known(part.tests["delete"])) for _, part in parts] == [LAYERS] * LAYERS
    shares = [share for share, _ in parts]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    for gap, (_, part) in enumerate(parts):
        assert not part.complete
        cells = {(i, j) for i in range(LAYERS) for j in range(LAYERS) if abs(i - j) <= gap}
        assert known(part.tests["replace"]) == known(part.tests["swap"]) == cells
        for test, held in part.tests.items():
            there = ~np.isnan(held.kl)
            assert np.array_equal(held.kl[there], final.tests[test].kl[there])
    assert final.complete


def test_a_partial_map_does_not_change_later(
    watched: tuple[LayerMaps, list[tuple[float, LayerMaps]]],
) -> None:
    _, parts = watched
    assert known(parts[0][1].tests["swap"]) < known(parts[1][1].tests["swap"])


@pytest.mark.parametrize("patience", [2, 11, 16])
def test_a_cancelled_map_leaves_what_it_had(
    four: Four, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, parts, loaded = [0], [], []
    load = network.load

    def kept(*args: Any) -> Any:
        loaded.append(load(*args))
        return loaded[-1]

    def progress(share: float, step: str, partial: Any = None, /) -> None:
        calls[0] += 1
        if partial is not None:
            parts.append(partial)
        if calls[0] > patience:
            raise Cancelled

    monkeypatch.setattr(layer_maps.network, "load", kept)
    model = four("llama_gqa")
    with pytest.raises(Cancelled):
        maps(model, asked(model), progress)
    assert calls[0] == patience + 1
    assert len(parts) == {2: 0, 11: 1, 16: 2}[patience]
    assert all(not part.complete and any(map(known, part.tests.values())) for part in parts)
    untouched = dict(load(model).named_parameters())
    for one in loaded:
        assert all(torch.equal(x, untouched[name]) for name, x in one.named_parameters())
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in one.modules())


def test_short_memory_gives_the_same_map(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    model, call = four("llama_gqa"), Blocks._call
    wanted = maps(model, asked(model))

    def short(self: Blocks, module: torch.nn.Module, depth: int, state: Tensor) -> Tensor:
        if len(state) > len(self.streams[0]):
            raise torch.OutOfMemoryError("out of memory")
        return call(self, module, depth, state)

    monkeypatch.setattr(Blocks, "_call", short)
    found = maps(model, asked(model))
    assert found.passes == wanted.passes
    for test, held in found.tests.items():
        assert np.allclose(held.kl, wanted.tests[test].kl, rtol=1e-5, atol=1e-6)


def test_windows_in_parts_give_the_same_map(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    model = four("llama_gqa")
    question = asked(model, tokens=40)
    parts: list[LayerMaps] = []
    wanted = maps(model, question)
    monkeypatch.setattr(layer_sessions, "HELD", 2 * (LAYERS + 1) * 8 * 24 * 4)  # two windows
    found = maps(model, question, lambda share, step, part=None: parts.append(part))
    for test, held in found.tests.items():
        assert np.allclose(held.kl, wanted.tests[test].kl, rtol=1e-5, atol=1e-6)
        assert np.allclose(held.loss, wanted.tests[test].loss, rtol=1e-5)
    assert (found.passes, found.bound) == (wanted.passes, wanted.bound)
    assert np.allclose(found.influence, wanted.influence)
    assert np.allclose(found.angular, wanted.angular)
    begun = next(part for part in parts if part is not None)
    assert np.isnan(begun.tests["swap"].kl[0, 0]).tolist() == [False] * 2 + [True] * 3


def test_images_count_by_their_patches(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    model = four("vit")
    given = inputs(model, asked(model, tokens=64))  # eight images of 3 × 3 patches and a token
    loaded = network.load(model)
    session = Session(loaded, model.family, given, given)
    assert session.blocks.streams[0].shape == (8, 10, 24)
    assert session.width(session.blocks) == 2048 // 80
    assert session.width(session._with_others) == 2048 // 160
    monkeypatch.setattr(layer_sessions, "HELD", 3 * (LAYERS + 1) * 10 * 24 * 4)  # three images
    parts = layer_sessions.sessions(loaded, model.family, LAYERS, given, None)
    assert [windows.stop - windows.start for windows, _ in parts] == [3, 3, 2]


# What is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"tests": ("swap", "shuffle")},
            r"no test 'shuffle' of layers: choose among replace, swap",
        ),
        ({"tests": ()}, r"no test '' of layers"),
        ({"layers": "2-4"}, r"no layer 4: the model has 0 to 3"),
        ({"layers": "0,2"}, r"must be one range"),
        ({"layers": "3-1"}, r"names no layers at '3-1'"),
        ({"layers": "x"}, r"names no layers at 'x'"),
        ({"tests": ("delete-healed",), "tokens": 8, "text": "one"}, r"give two or more"),
    ],
)
def test_what_cannot_be_asked(
    four: Four, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    model = four("llama_gqa")
    if changes.get("text"):
        changes = changes | {"text": tokens(tmp_path, [[1, 2, 3]])}
    with pytest.raises(Refused, match=words) as refused:
        maps(model, asked(model, **changes))
    assert "\n" not in str(refused.value)


# Inputs


def tokens(folder: Path, rows: Sequence[Sequence[int]], name: str = "rows.json") -> str:
    """A file of token ids."""
    path = folder / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


UNEQUAL = [[5, 9, 11, 3, 8, 2, 7], [4, 4, 9], [12, 1, 30, 31], [17]]


@pytest.mark.parametrize(
    "variant", ["bert_masked", "gemma2", "gpt2", "llama_gqa", "mistral_window", "opt", "qwen2_moe"]
)
def test_padding_changes_nothing(four: Four, variant: str, tmp_path: Path) -> None:
    model = four(variant)
    both = maps(model, asked(model, text=tokens(tmp_path, UNEQUAL)))
    assert both.base.positions.tolist() == [7, 3, 4, 1]
    assert both.run.tokens == 15
    for number, row in enumerate(UNEQUAL):
        single = maps(model, asked(model, text=tokens(tmp_path, [row], "alone.json")))
        for test, held in single.tests.items():
            found = both.tests[test]
            for quantity in ("kl", "loss", "agreement"):
                x, y = (getattr(one, quantity) for one in (found, held))
                assert np.allclose(x[..., number], y[..., 0], 2e-5, 1e-6, equal_nan=True)
    cut = [row[:2] for row in UNEQUAL]
    other = maps(model, asked(model, text=tokens(tmp_path, cut)))
    assert not np.allclose(other.tests["swap"].kl, both.tests["swap"].kl, rtol=0.01)


def test_what_stands_in_the_padding_does_not_matter(four: Four, tmp_path: Path) -> None:
    model = four("llama_gqa")
    given = inputs(model, asked(model, text=tokens(tmp_path, UNEQUAL)))
    assert given.ids is not None
    assert given.kept.sum(1).tolist() == [7, 3, 4, 1]
    other = torch.where(given.kept, given.ids, 77)
    assert not torch.equal(other, given.ids)
    filled = replace(given, named={**given.named, "input_ids": other})
    loaded, stacks = network.load(model), [stack("swap", LAYERS, 0, 2), without(LAYERS, [1])]
    one, two = (readings(Session(loaded, model.family, x, None), stacks) for x in (given, filled))
    for x, y in zip(one, two, strict=True):
        assert torch.equal(x.kl, y.kl)
        assert torch.equal(x.agreement, y.agreement)
        assert torch.equal(x.loss.nan_to_num(-1), y.loss.nan_to_num(-1))


def test_one_token_has_a_divergence_and_no_loss(four: Four, tmp_path: Path) -> None:
    model = four("llama_gqa")
    found = maps(model, asked(model, text=tokens(tmp_path, [[5]])))
    assert np.isnan(found.base.loss).all()
    assert known(found.tests["delete"]) == {(i,) for i in range(LAYERS)}
    assert values(found, "delete").min() > 1e-4
    assert np.isnan(found.tests["delete"].measure("loss").value).all()
    assert found.tests["delete"].measure("agreement").value.shape == (LAYERS,)


def test_a_long_text_is_cut_into_windows(tmp_path: Path) -> None:
    model = open_checkpoint("demo:base")
    longest = int(model.config["max_position_embeddings"])
    path = tmp_path / "long.txt"
    path.write_text("the crows sing . nora finds a shirt . " * 400, encoding="utf-8")
    given = inputs(model, Layers("demo:base", text=str(path), tokens=3 * longest, length=longest))
    assert given.kept.shape == (3, longest)
    assert given.what == "long.txt"
    assert given.causal


def test_a_short_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("The cat.", encoding="utf-8")
    with pytest.raises(Refused, match=r"has fewer than the 512 tokens asked for") as refused:
        inputs(open_checkpoint("demo:base"), Layers("demo:base", text=str(path)))
    assert "\n" not in str(refused.value)


def test_without_a_tokenizer_ids_are_random_unless_a_text_is_named(
    four: Four, tmp_path: Path
) -> None:
    model = four("llama_gqa")
    given = inputs(model, asked(model))
    assert given.what == "random token ids"
    assert given.named.keys() == {"input_ids"}
    assert given.kept.all()
    path = tmp_path / "text.txt"
    path.write_text("Some text.", encoding="utf-8")
    with pytest.raises(Refused, match=r"no tokenizer that opens: give token ids"):
        inputs(model, asked(model, text=str(path)))
    assert "random" not in inputs(open_checkpoint("demo:base"), Layers("demo:base")).what


def test_too_little_text_is_not_replaced_by_random_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object) -> None:
        raise Refused("The text has fewer tokens than asked for.")

    monkeypatch.setattr("engine.texts.padded", short)
    with pytest.raises(Refused, match="fewer tokens"):
        inputs(open_checkpoint("demo:base"), Layers("demo:base"))


def test_images_are_drawn(four: Four) -> None:
    given = inputs(four("vit"), asked(four("vit")))
    assert given.what == "random images"
    assert given.ids is None
    assert not given.causal
    assert given.kept.shape == (2, 1)
    assert torch.equal(
        given.named["pixel_values"], inputs(four("vit"), asked(four("vit"))).named["pixel_values"]
    )


def test_parts_of_inputs_join_again(four: Four, tmp_path: Path) -> None:
    model = four("llama_gqa")
    given = inputs(model, asked(model, text=tokens(tmp_path, UNEQUAL)))
    again = given.part(0, 1).joined(given.part(1, 4))
    assert torch.equal(again.kept, given.kept)
    assert all(torch.equal(again.named[name], x) for name, x in given.named.items())
    first, second = layer_maps.halves(given)
    assert (first.windows, second.windows) == (2, 2)
    assert isinstance(second, Inputs)


# Baselines


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_influence_is_one_less_the_cosine() -> None:
    x = rows(50, 6)
    turned = torch.stack([-x[:, 1], x[:, 0], -x[:, 3], x[:, 2], -x[:, 5], x[:, 4]], 1)
    found = baselines.influence([x, 2 * x, 2 * turned, -3 * turned])
    assert found.tolist() == pytest.approx([0, 1, 2], abs=1e-6)


def test_angular_distance_is_the_angle_over_pi() -> None:
    x = rows(50, 2)
    turned = torch.stack([-x[:, 1], x[:, 0]], 1)
    found = baselines.angular([x, turned, -x, 5 * x])
    wanted = [[0, 0.5, 1, 0], [0.5, 0, 0.5, 0.5], [1, 0.5, 0, 1], [0, 0.5, 1, 0]]
    assert np.allclose(found.numpy(), wanted, atol=1e-3)
    assert torch.equal(found, found.mT)
    between = baselines.angular([x, x + turned])[0, 1]
    assert float(between) == pytest.approx(0.25, abs=1e-6)


def test_cka_knows_no_rotation_and_no_scale() -> None:
    x = rows(200, 5)
    q, _ = torch.linalg.qr(rows(5, 5, seed=1))
    noisy = x + rows(200, 5, seed=2)
    found = baselines.cka([x, 3 * x @ q + 7, noisy, rows(200, 5, seed=3)])
    assert np.allclose(found.diagonal(), 1, atol=1e-5)
    assert float(found[0, 1]) == pytest.approx(1, abs=1e-5)
    assert 0.2 < float(found[0, 2]) < 0.9
    assert float(found[0, 3]) < 0.1
    stretched = x * torch.tensor([1.0, 1, 1, 1, 30])
    assert float(baselines.cka([x, stretched])[0, 1]) < 0.9  # a stretch is no rotation


def test_cka_is_the_published_formula() -> None:
    x, y = rows(60, 4), rows(60, 3, seed=1) + rows(60, 4)[:, :3]
    a, b = ((z - z.mean(0)).double() for z in (x, y))
    wanted = (a.mT @ b).square().sum() / ((a.mT @ a).norm() * (b.mT @ b).norm())
    assert float(baselines.cka([x, y])[0, 1]) == pytest.approx(float(wanted), rel=1e-5)


def test_baselines_of_a_model_are_of_its_own_streams(four: Four) -> None:
    model = four("llama_gqa")
    question = asked(model, tests=("delete",))
    found = maps(model, question)
    shown = network.load(model)
    held: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, out: held.append(out))
        for layer in shown.model.layers
    ]
    with torch.no_grad():
        first = shown.model.embed_tokens(inputs(model, question).named["input_ids"])
        shown(**inputs(model, question).named)
    for hook in hooks:
        hook.remove()
    streams = [x.flatten(0, 1) for x in (first, *held)]
    cosine = torch.nn.functional.cosine_similarity
    wanted = [1 - float(cosine(a, b).mean()) for a, b in pairwise(streams)]
    assert found.influence.tolist() == pytest.approx(wanted, abs=1e-5)
    angle = float(cosine(streams[1], streams[3]).clamp(-1, 1).arccos().mean()) / math.pi
    assert found.angular[1, 3] == pytest.approx(angle, abs=1e-4)


def streams_of(model: PreTrainedModel, path: str) -> list[np.ndarray]:
    """What every block of a model is given, and what the last one gives, [position, channel]."""
    found: list[list[Tensor]] = [[] for _ in range(LAYERS + 1)]
    blocks = model.get_submodule(path)

    def after(_: torch.nn.Module, __: Any, out: Any) -> None:
        found[LAYERS].append((out if isinstance(out, Tensor) else out[0])[0])

    hooks = [blocks[-1].register_forward_hook(after)]
    for depth, block in enumerate(blocks):
        keep = found[depth].append
        hooks.append(block.register_forward_pre_hook(lambda _, x, keep=keep: keep(x[0][0])))
    alone(model, TEXT)
    for hook in hooks:
        hook.remove()
    return [torch.cat(one).numpy() for one in found]


@pytest.mark.parametrize("variant", PLACES)
def test_what_streams_say_counts_every_position_once_and_no_padding(
    variant: str, stranger: Callable[[str], Stranger]
) -> None:
    """1 − E cos(in, out), E arccos(cos) / π and linear CKA, written out, windows unequal."""
    here = stranger(variant)
    streams = streams_of(here.model, here.path)
    assert {len(x) for x in streams} == {9 + 5}
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in streams]
    centred = [x - x.mean(0) for x in streams]
    cosine = np.array([[(x * y).sum(1) for y in unit] for x in unit])
    depths = np.arange(LAYERS + 1)
    wanted = 1 - cosine[depths[:-1], depths[1:]].mean(-1)
    np.testing.assert_allclose(here.found.influence, wanted, atol=1e-7)
    assert np.ptp(wanted) > 0.01
    angles = np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean(-1) / 180
    np.testing.assert_allclose(here.found.angular, angles, atol=1e-7)
    cross = np.array([[(x.T @ y).ravel() @ (x.T @ y).ravel() for y in centred] for x in centred])
    own = np.sqrt(np.diagonal(cross))
    np.testing.assert_allclose(here.found.cka, cross / np.outer(own, own), atol=1e-6)


# Intervals


def drawn(windows: int, seed: int = 0, cells: int = 1, **changes: Any) -> Readings:
    """Exponential values with mean 1 on windows of equal length."""
    kl = np.random.default_rng(seed).exponential(size=(cells, windows)).astype(np.float32)
    made = Readings(kl, kl + 1, np.minimum(kl, 1), np.full(windows, 8))
    return replace(made, **changes)


def test_few_windows_have_no_interval() -> None:
    few, enough = drawn(WINDOWS - 1).measure(), drawn(WINDOWS).measure()
    assert few.low is None and few.high is None
    assert enough.low is not None and enough.high is not None


@pytest.mark.parametrize("quantity", ["kl", "loss", "agreement"])
def test_an_interval_holds_its_mean(quantity: Any) -> None:
    readings = drawn(32, cells=50)
    found = readings.measure(quantity)
    mean = getattr(readings, quantity).astype(np.float64).mean(-1)
    assert np.allclose(found.value, mean, rtol=1e-12)
    assert (found.low <= found.value).all() and (found.value <= found.high).all()
    assert (found.low < found.high).all()
    assert np.array_equal(found.low, readings.measure(quantity).low)  # the same at every look


def widths(found: Measure) -> float:
    assert found.low is not None and found.high is not None
    return float((found.high - found.low).mean())


@pytest.mark.parametrize("hits", [12, 120, 388])
def test_an_interval_holds_the_middle_95_in_100_of_the_resamples(hits: int) -> None:
    """Of 0 and 1 a resample's sum is binomial: its ends are known, low first, without drawing."""
    windows = 400
    kl = (np.arange(windows) < hits).astype(np.float32)
    found = Readings(kl, kl, kl, np.full(windows, 8)).measure()
    assert found.value == pytest.approx(hits / windows)
    ends = binom.ppf((0.025, 0.975), windows, hits / windows) / windows
    spread = math.sqrt(hits / windows * (1 - hits / windows) / windows)
    np.testing.assert_allclose((found.low, found.high), ends, atol=0.2 * spread)
    assert float(found.low) < hits / windows < float(found.high)
    narrower = binom.ppf((0.05, 0.95), windows, hits / windows) / windows
    assert (np.abs(narrower - (found.low, found.high)) > 0.1 * spread).all()


def test_a_resample_takes_the_positions_of_its_windows_along() -> None:
    """The same ends as scipy's bootstrap of Σ n x / Σ n, windows drawn with their n."""
    draw = np.random.default_rng(7)
    positions = draw.integers(1, 60, 64)
    kl = (draw.exponential(size=64) + 40 / positions).astype(np.float32)
    found = Readings(kl, kl, kl, positions).measure()

    def weighed(x: np.ndarray, n: np.ndarray, axis: int = -1) -> np.ndarray:
        return (x * n).sum(axis) / n.sum(axis)

    again = bootstrap(
        (kl.astype(np.float64), positions), weighed, paired=True, method="percentile",
        n_resamples=4000, confidence_level=0.95, rng=np.random.default_rng(8),
    )  # fmt: skip
    assert found.value == pytest.approx(weighed(kl.astype(np.float64), positions))
    width = again.confidence_interval.high - again.confidence_interval.low
    assert float(found.low) == pytest.approx(again.confidence_interval.low, abs=0.08 * width)
    assert float(found.high) == pytest.approx(again.confidence_interval.high, abs=0.08 * width)
    assert found.value < kl.mean() - width  # the plain mean is another value


def test_intervals_shrink_as_windows_are_added() -> None:
    some = [widths(drawn(n, cells=40).measure()) for n in (16, 64, 256)]
    assert some[0] > 1.5 * some[1] > 2.25 * some[2]
    assert some[0] / some[2] == pytest.approx(4, rel=0.25)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    windows, truth = 64, 1.0
    found = drawn(windows, seed=5, cells=800).measure()
    assert found.low is not None and found.high is not None
    held = float(((found.low <= truth) & (truth <= found.high)).mean())
    assert 0.90 <= held <= 0.97
    centre = (found.low + found.high) / 2
    half = (found.high - found.low) / 4
    held = float(((centre - half <= truth) & (truth <= centre + half)).mean())
    assert held < 0.8  # half as wide is too narrow


def test_long_windows_count_more() -> None:
    kl = np.array([[1.0, 3.0]], np.float32)
    found = Readings(kl, kl, kl, np.array([30, 10])).measure().value
    assert found.tolist() == [1.5]
    even = Readings(kl, kl, kl, np.array([7, 7])).measure().value
    assert even.tolist() == [2.0]


def test_windows_without_a_value_are_left_out() -> None:
    readings = drawn(20, cells=2)
    holes = readings.loss.copy()
    holes[0, :4] = np.nan
    holes[1] = np.nan
    found = replace(readings, loss=holes).measure("loss")
    assert found.value[0] == pytest.approx(float(holes[0, 4:].astype(np.float64).mean()))
    assert found.low is not None and found.high is not None
    assert found.low[0] < found.value[0] < found.high[0]
    assert np.isnan([found.value[1], found.low[1], found.high[1]]).all()


def test_an_infinite_window_makes_the_mean_infinite() -> None:
    readings = drawn(20, cells=3)
    kl = readings.kl.copy()
    kl[0, 3] = np.inf
    kl[1] = np.inf
    found, before = replace(readings, kl=kl).measure(), readings.measure()
    assert np.isposinf(found.value).tolist() == [True, True, False]
    assert found.low is not None and found.high is not None
    assert before.low is not None
    assert np.isposinf(found.high).tolist() == [True, True, False]
    assert np.isposinf(found.low).tolist() == [False, True, False]  # some draws lack that window
    assert found.low[2] == before.low[2]


def test_the_stack_of_nothing_is_the_embedding(four: Four) -> None:
    model = four("llama_gqa")
    session = Session(network.load(model), model.family, inputs(model, asked(model)), None)
    empty, own = readings(session, [(), identity(LAYERS)])
    assert float(empty.kl.min()) > 0.1
    assert float(own.kl.abs().max()) < 1e-6
