"""Stacks of layers: each is read as a whole forward of the reordered model would be."""

import hashlib
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, Self

import pytest
import torch
from torch import Tensor, nn

from engine.layers import reading, sessions
from engine.layers.blocks import Blocks, averaged, cut_up, grafted
from engine.layers.inputs import inputs
from engine.layers.sessions import Session
from engine.layers.stacks import (
    Averaged,
    Block,
    Healed,
    Stack,
    bound,
    cells,
    identity,
    stack,
    whole,
    without,
)
from engine.layers.trie import finals
from engine.questions import Layers
from engine.records.layers import PAIRS, SINGLES
from engine.running import Headless
from tests.reordered import (
    HEADLESS,
    LAYERS,
    WITH_OUTPUT,
    Opened,
    build,
    by_hand,
    compared,
    exact,
    far,
    log_probabilities,
    opened,
    readings,
)

Open = Callable[[str], Opened]
ENCODERS = ("bert", "modernbert", "vit")
CAUSAL = tuple(name for name in WITH_OUTPUT if not name.startswith(ENCODERS))
PLAIN_HEADS = ("cohere", "gpt2", "gptj", "llama_gqa", "opt", "phi3")
"""With a scale of the logits, with a bias, tied and untied."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Open:
    """The variants, each written and opened once."""
    folder = tmp_path_factory.mktemp("stacks")
    return cache(lambda variant: opened(build(variant, folder / variant)))


def sample(variant: str) -> list[Stack]:
    """One stack of each test, and some of any length with repeats."""
    draw = random.Random(variant)
    free = [tuple(draw.randrange(LAYERS) for _ in range(length)) for length in range(1, 7)]
    return [
        stack("replace", LAYERS, 1, 2),
        stack("swap", LAYERS, 0, 2),
        stack("average", LAYERS, 1, 3),
        stack("delete", LAYERS, 1),
        stack("skip", LAYERS, 0, 2),
        (0, 0, 1, 1, 2, 3),
        *free,
    ]


def full(layers: int = LAYERS, *tests: Any) -> list[Stack]:
    """The stacks of the full maps of some tests."""
    bands = cells(tests or ("replace", "swap", "delete"), range(layers), layers, ["layer"] * layers)
    return list(dict.fromkeys(one for band in bands for _, _, one in band))


# What a stack gives


@pytest.mark.parametrize("variant", WITH_OUTPUT)
def test_a_stack_is_read_as_a_whole_forward(here: Open, variant: str) -> None:
    one, stacks = here(variant), sample(variant)
    found, wanted = readings(one.session, stacks), by_hand(one, stacks)
    for x, y in zip(found, wanted, strict=True):
        assert far(x.kl, y.kl) <= 1
        assert far(x.loss, y.loss) <= 1
        assert torch.equal(x.agreement, y.agreement)
    # Two layers in another order are another model, and it shows.
    assert far(found[0].kl, wanted[1].kl) > 100


@pytest.mark.parametrize("variant", PLAIN_HEADS)
def test_many_logits_are_read_in_float32(
    here: Open, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FINE", 0)
    monkeypatch.setattr(reading, "PART", 40)  # neither of them divides what it splits
    monkeypatch.setattr(reading, "ROWS", 7)
    one, stacks = here(variant), sample(variant)
    assert one.session.reader.head is not None
    for x, y in zip(readings(one.session, stacks), by_hand(one, stacks), strict=True):
        assert far(x.kl, y.kl) <= 1
        assert far(x.loss, y.loss) <= 1
        assert torch.equal(x.agreement, y.agreement)


@pytest.mark.parametrize("variant", WITH_OUTPUT)
def test_a_model_as_it_is_has_no_divergence(here: Open, variant: str) -> None:
    reader = here(variant).session.reader
    kl, _, same = reader._rows(reader.blocks.streams[-1])
    assert float(reader.at.means(kl, torch.ones_like(same)).abs().max()) < 1e-6
    assert bool(same.all())
    moved, _, _ = reader._rows(reader.blocks.streams[-2])
    assert float(moved.mean()) > 1e-3


@pytest.mark.parametrize("variant", PLAIN_HEADS)
def test_float32_leaves_less_than_a_millionth(
    here: Open, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FINE", 0)
    reader = here(variant).session.reader
    kl, _, same = reader._rows(reader.blocks.streams[-1])
    assert 0 < float(reader.at.means(kl, torch.ones_like(same)).abs().max()) < 1e-6


@pytest.mark.parametrize("variant", CAUSAL)
def test_the_loss_is_the_models_own(here: Open, variant: str) -> None:
    one = here(variant)
    labelled = {"labels": one.given.ids, **one.given.named}
    own = one.model(**labelled).loss
    assert float(one.session.base().loss.mean()) == pytest.approx(float(own), rel=1e-5)


@pytest.mark.parametrize("variant", HEADLESS)
def test_a_model_without_an_output_is_refused(here: Open, variant: str) -> None:
    with pytest.raises(
        Headless, match=r"no output over tokens or classes.*open the model with its"
    ):
        here(variant).session.base()


def test_a_soft_cap_has_no_product_head(here: Open) -> None:
    assert here("gemma2").session.reader.head is None
    assert here("gemma2_biases").session.reader.head is None  # a cap far above these logits
    assert here("gemma3").session.reader.head is not None


@pytest.mark.parametrize("variant", ["gemma2", "llama_gqa"])
def test_a_stream_beyond_all_numbers_costs_infinitely_much(here: Open, variant: str) -> None:
    session = here(variant).session
    final = session.blocks.streams[-1].clone()
    final[1] = torch.inf
    found, whole_one = session.reader.read(final), session.base()
    assert found.kl[1] == found.loss[1] == torch.inf
    assert found.agreement[1] == 0
    assert found.kl[0] == whole_one.kl[0]
    assert found.loss[0] == whole_one.loss[0]


# What goes along with a block


@pytest.mark.parametrize("variant", ["gemma2", "gemma3", "qwen2_window"])
def test_a_window_goes_with_its_layer(here: Open, variant: str) -> None:
    one, moved = here(variant), stack("swap", LAYERS, 0, 3)
    found = readings(one.session, [moved])[0].kl
    assert far(found, by_hand(one, [moved])[0].kl) <= 1
    assert far(found, by_hand(one, [moved], kinds=False)[0].kl) > 100


def test_a_scale_by_depth_goes_with_its_layer(here: Open) -> None:
    one, moved = here("gpt2_by_depth"), stack("swap", LAYERS, 0, 3)
    found = readings(one.session, [moved])[0].kl
    assert far(found, by_hand(one, [moved])[0].kl) <= 1
    renumbered = deepcopy(one.model)
    blocks = renumbered.transformer.h
    renumbered.transformer.h = nn.ModuleList([blocks[layer] for layer in moved])
    for depth, block in enumerate(renumbered.transformer.h):
        block.attn.scaling *= (moved[depth] + 1) / (depth + 1)
    q = log_probabilities(exact(renumbered), one.given)
    p = log_probabilities(exact(one.model), one.given)
    assert far(found, compared(p, q, one.given).kl) > 100


# The stacks themselves


@pytest.mark.parametrize("i", range(LAYERS))
@pytest.mark.parametrize("j", range(LAYERS))
def test_stacks_of_two_layers(i: int, j: int) -> None:
    own = identity(LAYERS)
    assert stack("swap", LAYERS, i, j) == stack("swap", LAYERS, j, i)
    assert stack("average", LAYERS, i, j) == stack("average", LAYERS, j, i)
    assert (stack("replace", LAYERS, i, j) == own) == (i == j)
    assert (stack("swap", LAYERS, i, j) == own) == (i == j)
    assert (stack("replace", LAYERS, i, j) == stack("replace", LAYERS, j, i)) == (i == j)
    if i < j:
        assert stack("skip", LAYERS, i, j) == without(LAYERS, range(i + 1, j + 1))
        assert stack("skip", LAYERS, i, j)[: i + 1] == own[: i + 1]


@pytest.mark.parametrize(
    ("test", "cell", "runs"),
    [
        ("replace", (1, 3), (0, 3, 2, 3, 4)),
        ("replace", (3, 1), (0, 1, 2, 1, 4)),
        ("swap", (1, 3), (0, 3, 2, 1, 4)),
        ("average", (3, 1), (0, Averaged(1, 3), 2, Averaged(1, 3), 4)),
        ("skip", (1, 3), (0, 1, 4)),
        ("delete", (3,), (0, 1, 2, 4)),
        ("replace-healed", (1, 3), (0, Healed(3, 1), 2, 3, 4)),
        ("swap-healed", (1, 3), (0, Healed(3, 1), 2, Healed(1, 3), 4)),
        ("delete-healed", (3,), (0, 1, 2, Healed(None, 3), 4)),
    ],
)
def test_the_layers_of_a_stack_are_named_by_depth(
    test: Any, cell: tuple[int, ...], runs: Stack
) -> None:
    assert stack(test, 5, *cell) == runs


def test_bands_are_complete_and_come_by_distance() -> None:
    layers = 5
    bands = list(cells((*PAIRS, *SINGLES), range(layers), layers, ["layer"] * layers))
    assert [len(band) for band in bands] == [10, *(8 * (layers - gap) for gap in range(1, layers))]
    for gap, band in enumerate(bands[1:], start=1):
        assert {abs(cell[0] - cell[1]) for _, cell, _ in band} == {gap}
    assert sum(len(band) for band in cells(("skip",), range(1, 4), 1, "abcde")) == 2
    assert sum(len(band) for band in cells(("swap",), range(1, 4), 1, "abcde")) == 0


def test_the_mean_of_a_layer_with_itself_is_that_layer(here: Open) -> None:
    blocks = here("llama_gqa").session.blocks
    state = blocks.streams[1]
    alone = blocks.run(2, [state])[0]
    assert torch.equal(blocks.run(Averaged(2, 2), [state])[0], alone)
    assert not torch.allclose(blocks.run(Averaged(1, 2), [state])[0], alone, rtol=1e-3)


def test_a_mean_changes_neither_of_its_layers(here: Open) -> None:
    blocks = here("llama_gqa").session.blocks
    before = [x.clone() for n in (1, 2) for x in blocks.modules[n].parameters()]
    mean = averaged(blocks.modules[1], blocks.modules[2])
    after = [x for n in (1, 2) for x in blocks.modules[n].parameters()]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    parts = zip(mean.parameters(), *(blocks.modules[n].parameters() for n in (1, 2)), strict=True)
    assert all(torch.equal(m, (x + y) / 2) for m, x, y in parts)


# Healed layers


@pytest.fixture
def learning(here: Open) -> Blocks:
    """Blocks on two windows, of which the second is learned from."""
    one = here("llama_gqa")
    fitted = torch.tensor([[False], [True]]).expand_as(one.given.kept)
    return cut_up(one.model, one.session.family, one.given.named, fitted)


def test_a_layer_healed_at_its_own_depth_is_that_layer(learning: Blocks) -> None:
    before, after = learning.streams[1], learning.streams[2]
    assert torch.allclose(learning.run(Healed(1, 1), [before])[0], after, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(learning.run(Healed(2, 1), [before])[0], after, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_healing_is_the_best_scale_and_shift_of_each_channel(learning: Blocks, layer: int) -> None:
    before, target = learning.streams[1].double(), learning.streams[2].double()
    u = learning.run(layer, [learning.streams[1]])[0].double() - before
    healed = learning.run(Healed(layer, 1), [learning.streams[1]])[0].double()

    def left(found: Tensor, window: int = 1) -> Tensor:
        return (found - target)[window].square().sum(0)

    least = left(healed)
    assert bool((least <= left(before + u) * (1 + 1e-6)).all())
    for nudge in (0.02 * u, -0.02 * u, torch.full_like(u, 0.02), torch.full_like(u, -0.02)):
        assert bool((least < left(healed + nudge)).all())
    # It was fit to the second window alone: on the first one, some nudges help.
    assert bool((left(healed, 0) > left(healed + 0.02 * u, 0)).any())


def test_a_deleted_layer_leaves_its_mean_update(learning: Blocks) -> None:
    before, after = learning.streams[1], learning.streams[2]
    update = learning.run(Healed(None, 1), [before])[0] - before
    assert torch.allclose(update[0, 0], (after - before)[1].mean(0), atol=1e-5)
    assert torch.allclose(update, update[:1, :1].expand_as(update), atol=1e-5)
    assert not torch.allclose(update[0, 0], (after - before)[0].mean(0), atol=1e-2)


def test_what_is_read_does_not_teach(here: Open) -> None:
    one = here("llama_gqa")
    both, stacks = one.given, full(LAYERS, "replace-healed", "swap-healed", "delete-healed")
    session = Session(one.model, one.session.family, both, both)
    alone = replace(session, read_from=both.part(0, 1))
    for x, y in zip(readings(session, stacks), readings(alone, stacks), strict=True):
        assert torch.allclose(x.kl[:1], y.kl, rtol=1e-5, atol=1e-6)
    fewer = replace(alone, learnt_from=both.part(1, 2))
    moved = zip(readings(alone, stacks), readings(fewer, stacks), strict=True)
    assert max(float((x.kl - y.kl).abs().max()) for x, y in moved) > 1e-3


# The trie


class Counter:
    """How many streams the blocks of a model are run on."""

    def __init__(self, blocks: Blocks) -> None:
        self.states = 0
        windows = len(blocks.streams[0])

        def after(_: nn.Module, __: Any, output: Any) -> None:
            found = output if isinstance(output, Tensor) else output[0]
            self.states += len(found) // windows

        self.handles = [module.register_forward_hook(after) for module in blocks.modules]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A model of six layers."""
    return opened(build("llama_gqa", tmp_path_factory.mktemp("six") / "model", 6))


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_every_prefix_is_run_once(six: Opened, width: int) -> None:
    blocks, stacks = six.session.blocks, full(6)
    with Counter(blocks) as counter:
        found = {n: (state, ran) for n, state, ran in finals(blocks, stacks, width)}
    assert sorted(found) == list(range(len(stacks)))
    assert counter.states == sum(ran for _, ran in found.values()) == bound(stacks, 6)
    assert counter.states < 0.6 * whole(stacks)
    alone = {n: state for s in range(len(stacks)) for n, state in one_by_one(blocks, stacks, s)}
    for n, (state, _) in found.items():
        assert torch.allclose(state, alone[n], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found[0][0], found[1][0], rtol=1e-2)


def one_by_one(blocks: Blocks, stacks: Sequence[Stack], n: int) -> Iterator[tuple[int, Tensor]]:
    """A stack run from its first layer on."""
    state = blocks.streams[0]
    for block in stacks[n]:
        state = blocks.run(block, [state])[0]
    yield n, state


def test_stacks_that_share_nothing_are_run_whole(six: Opened) -> None:
    stacks: list[Stack] = [(5, 4, 3), (4, 3, 2, 1), (3,)]
    assert bound(stacks, 6) == whole(stacks) == 8
    with Counter(six.session.blocks) as counter:
        ran = sum(ran for _, _, ran in finals(six.session.blocks, stacks))
    assert counter.states == ran == 8


def test_stacks_that_are_prefixes_of_the_model_cost_nothing(six: Opened) -> None:
    blocks = six.session.blocks
    stacks: list[Stack] = [identity(6), (0, 1), (), (0, 1)]
    found = {n: state for n, state, ran in finals(blocks, stacks) if ran == 0}
    assert [found[n] is blocks.streams[d] for n, d in ((0, 6), (1, 2), (2, 0), (3, 2))] == [
        True
    ] * 4
    assert bound(stacks, 6) == 0


@pytest.mark.parametrize("width", [1, 3])
def test_streams_are_let_go(six: Opened, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most, run = [0], Blocks.run

    def watched(self: Blocks, block: Block, states: Sequence[Tensor]) -> list[Tensor]:
        found = run(self, block, states)
        for state in found:
            alive.add(state)
        most.append(len(alive))
        return found

    monkeypatch.setattr(Blocks, "run", watched)
    blocks, stacks = six.session.blocks, full(6)
    assert len([n for n, _, _ in finals(blocks, stacks, width)]) == len(stacks)
    depths = 6
    assert max(most) <= 2 * width * depths
    assert len(stacks) > 2 * width  # more than may wait at a depth
    assert len(alive) == 0
    begun = finals(blocks, stacks, width)
    assert next(ran for _, _, ran in begun if ran) <= 6 * width
    assert len(alive) > 0
    begun.close()
    assert len(alive) == 0


# What must stay as it is


def digest(model: nn.Module) -> str:
    """Of every parameter and buffer."""
    found = hashlib.sha256()
    for name, x in sorted(model.state_dict().items()):
        found.update(name.encode() + x.contiguous().numpy().tobytes())
    return found.hexdigest()


def test_short_memory_runs_siblings_one_by_one(
    six: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, stacks, call = six.session, full(6), Blocks._call
    assert session.width(session.blocks) > 1
    before, wanted, refused = digest(six.model), readings(session, stacks), []

    def short(self: Blocks, module: nn.Module, depth: int, state: Tensor) -> Tensor:
        if len(state) > len(self.streams[0]):
            refused.append(depth)
            raise torch.OutOfMemoryError("out of memory")
        return call(self, module, depth, state)

    monkeypatch.setattr(Blocks, "_call", short)
    found = readings(session, stacks)
    assert refused
    for x, y in zip(found, wanted, strict=True):
        assert torch.allclose(x.kl, y.kl, rtol=1e-5, atol=1e-6)
    assert digest(six.model) == before


@pytest.mark.parametrize("variant", WITH_OUTPUT)
def test_as_many_windows_as_positions_are_not_mistaken(
    here: Open, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = here(variant)
    given = inputs(one.checkpoint, Layers(variant, tokens=9, length=3))
    session, stacks = replace(one.session, read_from=given), full()
    assert session.width(session.blocks) > len(stacks)
    together = readings(session, stacks)
    monkeypatch.setattr(sessions, "TOGETHER", {"cpu": 0})
    assert session.width(session.blocks) == 1
    for x, y in zip(together, readings(session, stacks), strict=True):
        assert torch.allclose(x.kl, y.kl, rtol=1e-5, atol=1e-6)


def test_other_errors_are_not_taken_for_short_memory(
    six: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Tensor:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Blocks, "_call", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        readings(six.session, full(6))


@pytest.mark.parametrize(
    "variant", ["bert_masked", "gemma2", "gpt2", "llama_gqa", "qwen2_moe", "vit"]
)
def test_parameters_stay_as_they_are(here: Open, variant: str) -> None:
    one = here(variant)
    before, modules = digest(one.model), dict(one.model.named_modules())
    both = replace(one.session, learnt_from=one.given)
    readings(both, full(LAYERS, *PAIRS, *SINGLES))
    assert digest(one.model) == before
    after = dict(one.model.named_modules())
    assert modules.keys() == after.keys()
    assert all(modules[name] is after[name] for name in modules)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in after.values())
    with torch.no_grad():
        weight = next(p for p in deepcopy(one.model).parameters())
        weight.add_(1e-3)
    assert digest(one.model) == before


def test_a_digest_sees_one_number(here: Open) -> None:
    model = deepcopy(here("llama_gqa").model)
    before = digest(model)
    with torch.no_grad():
        next(model.parameters()).flatten()[0] += 1e-3
    assert digest(model) != before


def test_a_graft_shares_all_but_what_was_put_in(here: Open) -> None:
    one = here("llama_gqa")
    made = grafted(one.model, "model.layers", nn.ModuleList([nn.Identity()]))
    own, theirs = dict(one.model.named_modules()), dict(made.named_modules())
    assert len(one.model.model.layers) == LAYERS
    assert isinstance(made.model.layers[0], nn.Identity)
    assert theirs["lm_head"] is own["lm_head"]
    assert theirs["model.norm"] is own["model.norm"]
    assert theirs["model"] is not own["model"]
    places = {name: x.data_ptr() for name, x in one.model.named_parameters()}
    assert all(x.data_ptr() == places[name] for name, x in made.named_parameters())


def test_an_error_in_the_model_leaves_no_hook(here: Open) -> None:
    one = here("llama_gqa")
    with pytest.raises(IndexError):
        cut_up(one.model, one.session.family, {"input_ids": torch.full((1, 3), 10**6)})
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in one.model.modules())


def test_as_many_logits_as_are_fine_are_still_read_in_float64(
    here: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = here("llama_gqa").session.reader
    count = 24 * reader.model.config.vocab_size  # every position of two windows of twelve
    losses = []
    for most in (count - 1, count, 2**40):
        monkeypatch.setattr(reading, "FINE", most)
        losses.append(reader.read(reader.blocks.streams[-2]).loss)
    assert torch.equal(losses[1], losses[2])
    assert not torch.equal(losses[0], losses[1])
