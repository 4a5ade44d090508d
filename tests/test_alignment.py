"""Recovery: a scrambled twin comes back, every tensor and every element; and what must not."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from engine.action import act
from engine.alignment.comparison import compare, relative
from engine.alignment.one_pass import (
    STAGES,
    align,
    aligned,
    cosines,
    layer_tensors,
    start_from_embedding,
)
from engine.alignment.truth import share_right, unreachable
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.elements import Ordered
from engine.errors import Cancelled, Refused
from engine.families import FAMILIES
from engine.families.llama import FAMILY
from engine.questions import Align
from engine.records import LayerStage
from engine.symmetry import Symmetry, sample
from tests import tiny

EXACT = 1e-4
architectures = pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)


@dataclass(frozen=True)
class Twins:
    """A, B = g · A (with noise, or not), and g."""

    a: Checkpoint
    b: Checkpoint
    planted: Symmetry

    @cached_property
    def found(self) -> tuple[Symmetry, Mapping[str, list[float]]]:
        """B into A's coordinates with all that an alignment solves, and margins."""
        return align(self.a, self.b, start_from_embedding(self.a, self.b))


Make = Callable[..., Twins]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory, built: Callable[[str], Path]) -> Make:
    """Twins of a tiny model, each pair written once."""

    @cache
    def make(architecture: str, *only: str, noise: float = 0.0) -> Twins:
        a = open_checkpoint(built(architecture))
        generator = torch.Generator().manual_seed(3)
        g = sample(a.family, a.config, generator, only)

        def scrambled(name: str) -> Tensor:
            x = act(g, name, a.read)
            if not noise or x.numel() < 2:
                return x
            return x + noise * x.std() * torch.randn(x.shape, generator=generator)

        folder = tmp_path_factory.mktemp("twin") / architecture
        save_checkpoint(folder, ((name, scrambled(name)) for name in a.headers), a)
        return Twins(a, open_checkpoint(folder), g)

    return make


def recovered(pair: Twins, **options: object) -> Symmetry:
    if not options:
        return pair.found[0]
    return align(pair.a, pair.b, start_from_embedding(pair.a, pair.b), **options)[0]


def errors(pair: Twins, g: Symmetry) -> dict[str, float]:
    return {name: tiny.distance(x, pair.a.read(name)) for name, x in aligned(g, pair.b)}


@architectures
def test_every_tensor_of_a_twin_comes_back(architecture: str, twins: Make) -> None:
    pair = twins(architecture)
    family = pair.a.family
    apart = {
        name: tiny.distance(pair.b.read(name), pair.a.read(name))
        for name in pair.a.headers
        if family.carried([name])
    }
    assert min(apart.values()) > 0.1
    assert len(apart) > 0.7 * len(pair.a.headers)
    found = errors(pair, recovered(pair))
    assert set(found) == set(pair.a.headers)
    assert max(found.values()) < EXACT


@architectures
def test_the_gauge_found_is_the_inverse_of_the_planted_one(architecture: str, twins: Make) -> None:
    pair = twins(architecture)
    both = recovered(pair).compose(pair.planted)
    carried = pair.a.family.carried(pair.a.headers)
    both = both.only(carried)
    keys = pair.a.family.keys(pair.a.config)
    assert set(both.elements) == {key for key, name, _ in keys if name in carried}
    for key, element in both.elements.items():
        name = key.rpartition(".")[2]
        size = pair.a.family.sizes(pair.a.config)[name]
        identity = pair.a.family.coordinates[name].group.identity(size, element.batch)
        for word, expected in identity.numbers().items():
            assert torch.allclose(
                element.numbers()["scale" if word == "sign" else word].double(),
                expected.double(),
                atol=1e-4,
            ), key
        if isinstance(element, Ordered):
            assert torch.allclose(element.scale, torch.ones_like(element.scale), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "numbers", "place"),
    [("ffn", "scale", 0), ("rot", "z", (1, 1)), ("val", "matrix", (2, 3, 1))],
)
def test_a_number_is_right_within_a_thousandth(
    name: str, numbers: str, place: int | tuple[int, ...], built: Callable[[str], Path]
) -> None:
    """Of itself; of a matrix, of the largest number of that matrix."""
    a = open_checkpoint(built("llama_gqa"))
    truth = sample(a.family, a.config, torch.Generator().manual_seed(4), (name,))
    key = f"layers.1.{name}"
    element = truth.elements[key]
    exact: Tensor = getattr(element, numbers)
    size = exact.abs().amax((-2, -1), keepdim=True) if name == "val" else exact

    def right(error: complex) -> float | None:
        relative = torch.zeros_like(exact)
        relative[place] = error
        moved = replace(element, **{numbers: exact + relative * size})  # type: ignore[type-var]
        return share_right(truth, truth, name, {key: moved})

    turn = 1j if name == "rot" else 1
    for error in (5e-4, -5e-4, 9.9e-4, -9.9e-4, 5e-4 * turn):
        assert right(error) == 1
    for error in (5e-3, -5e-3, 1.1e-3, -1.1e-3, 5e-3 * turn):
        assert right(error) == pytest.approx(1 - 1 / exact.numel())
    still = a.family.coordinates[name].group.identity(a.family.sizes(a.config)[name], element.batch)
    bare = replace(truth, elements={})
    assert share_right(truth, bare, name, {key: still}) == 1  # where nothing was planted
    assert share_right(truth, truth, name, {key: still}) < 0.5
    assert share_right(truth, None, name, {key: still}) is None


def test_a_place_is_right_or_not_and_shares_are_of_all_elements_together(
    built: Callable[[str], Path],
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    truth = sample(a.family, a.config, torch.Generator().manual_seed(4), ("ffn",))
    first, second = (truth.elements[f"layers.{layer}.ffn"] for layer in (0, 1))
    assert isinstance(first, Ordered)
    order = first.permutation.clone()
    order[[3, 8]] = order[[8, 3]]
    found = {"layers.0.ffn": replace(first, permutation=order), "layers.1.ffn": second}
    assert share_right(truth, truth, "ffn", found) == pytest.approx(38 / 40)
    sign = torch.where(torch.arange(20) < 5, -1.0, 1.0).double()
    found["layers.1.ffn"] = replace(second, scale=second.scale * sign)  # type: ignore[type-var]
    assert share_right(truth, truth, "ffn", found) == pytest.approx(33 / 40)


def test_what_a_matching_without_signs_cannot_reach_are_the_coordinates_with_a_minus(
    built: Callable[[str], Path],
) -> None:
    """By the truth where it is known, else by the matching of |C|."""
    a = open_checkpoint(built("llama_gqa"))
    sign = torch.where(torch.arange(24) < 6, -1.0, 1.0).double()
    truth = Symmetry(a.family, a.config, {"res": Ordered(torch.arange(24).roll(1), sign)})
    c = np.diag(np.where(np.arange(24) < 3, -0.9, 0.8))
    assert unreachable(c, truth) == pytest.approx(6 / 24)
    assert unreachable(c, None) == pytest.approx(3 / 24)
    assert unreachable(c, replace(truth, elements={})) == pytest.approx(3 / 24)


def test_the_logits_come_back(twins: Make) -> None:
    """The same function: it only has to be computed in other coordinates."""
    pair = twins("llama_gqa")
    after = dict(aligned(recovered(pair), pair.b))
    assert tiny.distance(tiny.logits(pair.a.folder, after), tiny.logits(pair.a.folder)) < EXACT


def test_the_result_says_which_is_which(twins: Make) -> None:
    pair = twins("llama_gqa")
    g = recovered(pair)
    assert (g.source, g.target) == (pair.b.fingerprint, pair.a.fingerprint)
    assert g.names == (pair.b.name, pair.a.name)


def test_margins_are_reported_for_every_order(twins: Make) -> None:
    pair = twins("llama_gqa")
    margins = pair.found[1]
    assert {name: len(values) for name, values in margins.items()} == {
        "res": 1,
        "ffn": 2,
        "grp": 2,
        "head": 2,
        "rot": 0,
        "val": 0,
    }
    assert all(value > 0 for values in margins.values() for value in values)


def test_without_signs_the_twin_does_not_come_back(twins: Make) -> None:
    pair = twins("llama_gqa")
    found = errors(pair, recovered(pair, signs=False))
    assert found["model.embed_tokens.weight"] > 0.1
    assert sum(error > 0.1 for error in found.values()) > len(found) / 2


def test_with_unsigned_twins_signs_are_not_needed(twins: Make) -> None:
    pair = twins("llama_gqa", "ffn", "heads", "rot", "val")
    assert max(errors(pair, recovered(pair, signs=False)).values()) < EXACT


@pytest.mark.parametrize("words", ["res", "ffn", "heads", "rot", "val", "heads rot"])
def test_only_what_is_named_is_solved(words: str, twins: Make) -> None:
    """A twin that differs in these coordinates comes back by these alone."""
    pair = twins("llama_biases", *words.split())
    g = recovered(pair, only=words.split())
    assert set(g.elements) == set(pair.planted.elements)
    assert max(errors(pair, g).values()) < EXACT
    assert max(errors(pair, Symmetry(FAMILY, pair.a.config, {})).values()) > 0.1


def test_only_leaves_the_rest_alone(twins: Make) -> None:
    pair = twins("llama_gqa")
    g = recovered(pair, only=["res"])
    assert list(g.elements) == ["res"]
    found = errors(pair, g)
    assert found["model.embed_tokens.weight"] < EXACT
    assert found["model.layers.0.mlp.up_proj.weight"] > 0.1


@pytest.mark.parametrize(("word", "other"), [("grp", "head"), ("head", "grp")])
def test_half_of_what_is_solved_together_is_refused(word: str, other: str, twins: Make) -> None:
    message = f"grp and head are solved together, and {other} was not named: say heads for both."
    with pytest.raises(Refused, match=f"^{re.escape(message)}$"):
        recovered(twins("llama_gqa"), only=["res", word])


def test_noise_of_one_percent_leaves_the_discrete_part(twins: Make) -> None:
    pair = twins("llama_biases", noise=0.01)
    g = recovered(pair)
    for key, element in g.compose(pair.planted).elements.items():
        if isinstance(element, Ordered):
            identity = torch.arange(element.permutation.shape[-1]).expand(*element.batch, -1)
            assert torch.equal(element.permutation, identity), key
            assert (element.scale > 0).all(), key
    assert max(errors(pair, g).values()) < 0.1


@pytest.mark.parametrize("architecture", ["gpt2", "mixtral", "qwen3"])
def test_independent_models_are_brought_no_further_apart(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    """No twin: all tensors together come nearer, and what has no order never leaves more.

    An order is the best of its own score, so that a single layer may be farther after it; what all
    steps take off is all that is taken off. Nothing is blown up on the way.
    """
    a = open_checkpoint(built(architecture))
    b = open_checkpoint(tiny.build(architecture, tmp_path / "b", seed=9))
    steps: list[LayerStage] = []
    g = align(a, b, start_from_embedding(a, b), told=steps.append)[0]
    moved = dict(aligned(g, b))
    before, after = (
        sum(float((a.read(n) - y[n]).double().square().sum()) for n in a.headers)
        for y in ({n: b.read(n) for n in b.headers}, moved)
    )
    assert after < 0.9 * before
    outside = [n for n in a.headers if a.family.row(n).layer is None]
    (last,) = (step for step in steps if step.layer is None)
    for found, y in ((last.before, b.read), (last.after, moved.__getitem__)):
        gap = torch.cat([(a.read(n) - y(n)).flatten() for n in outside]).norm()
        own = torch.cat([a.read(n).flatten() for n in outside]).norm()
        assert found == pytest.approx(float(gap / own), rel=1e-5)
    assert sum(step.taken or 0 for step in steps) == pytest.approx(before - after, rel=1e-4)
    smooth = [
        step for step in steps if not {"res", "ffn", "exp", "grp"} & {*step.coordinates.split()}
    ]
    assert smooth and all(step.after <= step.before * (1 + 1e-6) for step in smooth)
    for name, x in moved.items():
        assert x.norm() < 1.25 * max(a.read(name).norm(), b.read(name).norm()), name


@pytest.mark.parametrize(
    "dead",
    [
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
    ],
)
def test_dead_parts_do_not_stop_an_alignment(dead: str, twins: Make, tmp_path: Path) -> None:
    """Zeroed projections, as in layers that were switched off, have no order to find."""

    def without(checkpoint: Checkpoint) -> Checkpoint:
        folder = tmp_path / checkpoint.fingerprint
        live = ((n, checkpoint.read(n) * (not n.endswith(dead))) for n in checkpoint.headers)
        save_checkpoint(folder, live, checkpoint)
        return open_checkpoint(folder)

    pair = twins("llama_gqa")
    pair = Twins(without(pair.a), without(pair.b), pair.planted)
    g = recovered(pair)
    part = dead.partition(".")[0]
    found = {n: x for n, x in errors(pair, g).items() if part not in n}
    assert max(found.values()) < EXACT
    assert all(x.isfinite().all() for _, x in aligned(g, pair.b))


def test_the_start_is_a_cosine_and_needs_only_common_tokens(twins: Make) -> None:
    pair = twins("llama_mqa_tied")
    c = start_from_embedding(pair.a, pair.b)
    res = pair.planted.elements["res"]
    assert isinstance(res, Ordered)
    assert c.shape == (24, 24)
    assert abs(c).max() <= 1 + 1e-12
    back = res.inverse()
    assert c[range(24), back.permutation] == pytest.approx(back.scale.numpy())
    x, y = (e.read("model.embed_tokens.weight").double() for e in (pair.a, pair.b))
    assert c == pytest.approx(((x / x.norm(dim=0)).T @ (y / y.norm(dim=0))).numpy())


def test_the_start_under_layer_norm_leaves_the_mean_over_the_coordinates_out(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    """Cosines of the columns of tokens and positions, every row centred first: rows A."""
    a = open_checkpoint(built("gpt2"))
    b = open_checkpoint(tiny.build("gpt2", tmp_path / "b", seed=9))
    names = ("transformer.wte.weight", "transformer.wpe.weight")
    x, y = (torch.cat([c.read(n).double() + 1 for n in names]) for c in (a, b))
    x, y = (z - z.mean(1, keepdim=True) for z in (x, y))
    expected = ((x / x.norm(dim=0)).T @ (y / y.norm(dim=0))).numpy()
    assert start_from_embedding(a, b) == pytest.approx(expected, abs=1e-12)
    shifted = {n: b.read(n).double() + 5 for n in names}
    sizes = a.family.sizes(a.config)
    found = cosines(a.family, sizes, {n: a.read(n) for n in names}, shifted, "res")
    assert found.numpy() == pytest.approx(expected, abs=1e-12)


def test_a_longer_vocabulary_is_no_hindrance(
    built: Callable[[str], Path], twins: Make, tmp_path: Path
) -> None:
    pair = twins("llama_mqa_tied")

    def padded(name: str) -> Tensor:
        x = pair.b.read(name)
        return torch.cat([x, torch.ones(8, 24)]) if name == "model.embed_tokens.weight" else x

    config = {**pair.b.config, "vocab_size": 104}
    tensors = ((name, padded(name)) for name in pair.b.headers)
    save_checkpoint(tmp_path / "padded", tensors, pair.b, config=config)
    g = recovered(Twins(pair.a, open_checkpoint(tmp_path / "padded"), pair.planted))
    assert max(errors(pair, g).values()) < EXACT


def test_progress_is_told_and_can_stop(twins: Make) -> None:
    pair = twins("llama_gqa")
    told: list[tuple[float, str]] = []

    def progress(share: float, step: str, _: object = None) -> None:
        told.append((share, step))
        if len(told) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        recovered(pair, progress=progress)
    assert told == [(0.0, "layer 0 of 2"), (0.5, "layer 1 of 2")]


def test_layers_partition_the_tensors(twins: Make) -> None:
    a = twins("llama_gqa").a
    parts = [set(layer_tensors(a, layer)) for layer in (None, 0, 1)]
    assert set.union(*parts) == set(a.headers)
    assert sum(map(len, parts)) == len(a.headers)


def test_stages_cover_the_coordinates_of_a_layer_once() -> None:
    names = [name for stage, _ in STAGES for name in stage]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert set(family.free) - {"res"} <= set(names)


def test_a_report_holds_distances_over_a_and_what_transformers_says_of_both_and_their_means(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=9))
    report, g = compare(a, b, Align(a.name, b.name, device="cpu"))
    held = [{n: c.read(n) for n in report.tensors} for c in (a, b)]
    held.append({n: act(g, n, b.read) for n in report.tensors})
    for found, y in ((report.before, held[1]), (report.after, held[2])):
        expected = [float((held[0][n] - y[n]).norm() / held[0][n].norm()) for n in report.tensors]
        assert found == pytest.approx(expected, rel=1e-5)
    assert report.norms == pytest.approx([float(x.norm()) for x in held[0].values()], rel=1e-5)
    held += [{n: (x + y[n]) / 2 for n, x in held[0].items()} for y in held[1:3]]
    ids = torch.randint(96, (2, 128), generator=torch.Generator().manual_seed(0))
    said = []
    for state in held:
        model = LlamaForCausalLM.from_pretrained(a.folder)
        model.load_state_dict(dict(state))
        with torch.no_grad():
            said.append(model(ids).logits)
    first, second, third, mean, aligned_mean = said
    for found, gap in (
        (report.logits_between, first - second),
        (report.midpoint_before, first - mean),
        (report.midpoint_after, first - aligned_mean),
        (report.logits_scale, first),
    ):
        assert found == pytest.approx(float(gap.abs().max()), rel=1e-4)
    assert report.logits_kept == pytest.approx(float((second - third).abs().max()), abs=1e-4)
    assert report.midpoint_before != pytest.approx(report.midpoint_after, rel=0.01)


def test_a_tensor_of_zeros_has_a_distance(built: Callable[[str], Path], tmp_path: Path) -> None:
    """0 of 0 is 0, not NaN; where only A's is zero it is 1."""
    model = open_checkpoint(built("llama_gqa"))
    save_checkpoint(
        tmp_path / "zero", ((n, model.read(n) * (n != "model.norm.weight")) for n in model.headers),
        model,
    )  # fmt: skip
    zero = str(tmp_path / "zero")
    same, _ = compare(*(open_checkpoint(zero) for _ in range(2)), Align(zero, zero, device="cpu"))
    assert np.isfinite(same.before).all()
    assert np.isfinite(same.after).all()
    assert same.before.max() == 0
    np.testing.assert_array_equal(relative(np.array([0.0, 4.0]), np.array([0.0, 0.0])), [0.0, 1.0])
