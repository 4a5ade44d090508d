"""FFN neurons of two models: planted orders, signs and scales come back, and what must not."""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.optimize import linear_sum_assignment
from torch.nn.functional import cross_entropy, kl_div
from transformers import LlamaForCausalLM

from engine.alignment import neuron_trials
from engine.alignment.candidates import invariant
from engine.alignment.firing import Site
from engine.alignment.neuron_scores import alike, published, reading_alike
from engine.alignment.stages import neuron_score, pair_neurons
from engine.axes import Mark
from engine.checkpoint import open_checkpoint
from engine.cli import main
from engine.errors import Refused, silent
from engine.groups import MONOMIAL, PERMUTATION, POSITIVE, Monomial
from engine.questions import AllNeurons, Neurons
from engine.records import NeuronMatch, named_arrays
from engine.running import at_random
from engine.scramble import scramble
from tests import tiny

Built = Callable[[str], Path]
FAMILIES = ("bert_masked", "gemma2", "gpt2", "llama_biases", "llama_gqa", "opt", "phi3", "vit")
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe")
UP, DOWN = "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"
GATE = "model.layers.1.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def twin(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A scrambled copy of a tiny model."""

    @cache
    def folder(architecture: str) -> Path:
        path = tmp_path_factory.mktemp("neurons") / architecture
        scramble(open_checkpoint(built(architecture)), path, 1, (), silent)
        return path

    return folder


@pytest.fixture(scope="module")
def answer(built: Built, twin: Callable[[str], Path]) -> Callable[..., NeuronMatch]:
    """The match of one layer of a tiny model and its twin."""

    @cache
    def found(architecture: str, **more: object) -> NeuronMatch:
        pair = str(built(architecture)), str(twin(architecture))
        return Neurons(*pair, **({"layer": 1} | more)).answer()

    return found


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with 16 windows of 16 token ids."""
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    draw = torch.randint(90, (16, 16), generator=torch.Generator().manual_seed(0))
    path.write_text(str(draw.tolist()))
    return str(path)


def changed(source: Path, folder: Path, change: Callable[[dict], None], **config: object) -> Path:
    """A copy of a tiny checkpoint with other tensors."""
    folder.mkdir(parents=True)
    held = {name: x.clone() for name, x in tiny.tensors(source).items()}
    change(held)
    save_file({n: x.contiguous() for n, x in held.items()}, folder / "model.safetensors",
              {"format": "pt"})  # fmt: skip
    said = json.loads((source / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(said))
    return folder


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_planted_twin_comes_back(architecture: str, answer: Callable[..., NeuronMatch]) -> None:
    """Order, signs and scales, and nothing negative where the group has no signs."""
    found = answer(architecture)
    assert found.right is not None and found.right.all()
    assert found.truth is not None and not np.array_equal(found.truth.permutation, found.rows)
    assert found.scale_error is not None and found.scale_error < 1e-5
    assert found.match.mutual.all() and found.match.score.min() > 1 - 1e-5
    assert found.match.margin.min() > 0.05
    pairs = found.score[found.rows, found.match.permutation]
    np.testing.assert_allclose(pairs, found.match.sign, atol=1e-5)
    if not found.signs:
        assert found.negative is None and (found.score >= 0).all() and (found.factor > 0).all()
    if not found.scales:
        assert (found.factor == 1).all()


@pytest.mark.parametrize("architecture", EXPERTS)
def test_neurons_of_experts_come_back(
    architecture: str, answer: Callable[..., NeuronMatch]
) -> None:
    for expert in range(2):
        found = answer(architecture, expert=str(expert))
        assert found.partner == found.true_partner
        assert found.right is not None and found.right.all()
        assert found.scale_error is not None and found.scale_error < 1e-5


def test_the_shared_expert_comes_back(answer: Callable[..., NeuronMatch]) -> None:
    found = answer("qwen2_moe", expert="shared")
    assert found.sizes == (14, 14) and found.right is not None and found.right.all()
    every = AllNeurons(found.a, found.b, expert="shared").answer()
    assert every.right is not None and every.right.tolist() == [1, 1]


def test_the_published_cost_loses_flipped_neurons(
    built: Built, twin: Callable[[str], Path]
) -> None:
    """Negative twin: half of the signs are flipped, and a cost without signs misses those."""
    every = AllNeurons(str(built("llama_gqa")), str(twin("llama_gqa"))).answer()
    assert every.right is not None and every.published is not None
    assert every.right.tolist() == [1, 1]
    assert every.published.max() < 0.8
    assert every.negative_share is not None and 0.2 < every.negative_share < 0.8
    one = Neurons(every.a, every.b, 1).answer()
    assert one.published_right == pytest.approx(every.published[1])
    assert one.match.margin.min() == pytest.approx(every.smallest[1])
    assert (one.factor < 0).sum() == every.negative[1]


def test_the_wrong_layer_and_the_wrong_model_do_not_match(
    answer: Callable[..., NeuronMatch], built: Built, tmp_path: Path
) -> None:
    first, second = (answer("llama_gqa", layer=layer) for layer in (0, 1))
    assert first.truth is not None and second.truth is not None
    assert np.mean(first.match.permutation == second.truth.permutation) < 0.5
    stranger = tiny.build("llama_gqa", tmp_path / "stranger", seed=9)
    found = Neurons(str(built("llama_gqa")), str(stranger), 1, truth="identity").answer()
    assert found.right is not None and found.right.mean() < 0.5
    assert found.match.score.max() < 0.9


@pytest.mark.parametrize(("group", "gated"), [(MONOMIAL, True), (POSITIVE, False),
                                              (PERMUTATION, False)])  # fmt: skip
def test_the_score_is_invariant_and_at_most_one(group, gated: bool, generator) -> None:
    marks = (Mark.RELABEL, Mark.WRITE, Mark.READ) if gated else (Mark.WRITE, Mark.READ)
    x = {mark: torch.randn(12, 9, generator=generator) for mark in marks}
    g = group.sample(9, (), generator)
    moved = {
        m: {Mark.RELABEL: g.relabel, Mark.WRITE: g.write, Mark.READ: g.read}[m](z)
        for m, z in x.items()
    }
    before, after = alike(group, x, x)[0], alike(group, x, moved)[0]
    np.testing.assert_allclose(after, before[:, g.permutation.numpy()], atol=1e-5)
    assert before.max() < 1 + 1e-5
    np.testing.assert_allclose(np.diag(before), 1, atol=1e-5)
    more = {m: z * (1.5 if m is Mark.WRITE else 1) for m, z in x.items()}
    assert np.diag(alike(group, x, more)[0]).max() < 0.99  # no element of the group


def gaps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """‖x_i − y_j‖² of all first entries."""
    return ((x[:, None] - y[None]) ** 2).reshape(len(x), len(y), -1).sum(-1)


@pytest.mark.parametrize(
    ("group", "gated"), [(MONOMIAL, True), (POSITIVE, False), (PERMUTATION, False)]
)
def test_scores_of_neurons_by_their_outer_products(
    group: Monomial, gated: bool, generator: torch.Generator
) -> None:
    """Likeness, relative distance and partners of 9 neurons and 7, each up ⊗ down formed."""
    marks = (Mark.RELABEL, Mark.WRITE, Mark.READ) if gated else (Mark.WRITE, Mark.READ)
    x, y = ({m: torch.randn(12, n, generator=generator) for m in marks} for n in (9, 7))
    one, other = ({m: rows.double().numpy().T for m, rows in z.items()} for z in (x, y))
    parts = [
        [z[m] for m in marks if m is Mark.RELABEL or not group.scales]
        + [z[Mark.WRITE][:, :, None] * z[Mark.READ][:, None]] * group.scales
        for z in (one, other)
    ]
    likeness, distance = [], []
    for p, q in zip(*parts, strict=True):
        size = gaps(p, 0 * p[:1]) + gaps(q, 0 * q[:1]).T
        likeness.append(1 - gaps(p, q) / size)
        distance.append(gaps(p, q) / gaps(p, q).mean())
    np.testing.assert_allclose(alike(group, x, y)[0], np.mean(likeness, 0), atol=1e-5)
    np.testing.assert_allclose(neuron_score(group, x, y), -np.sum(distance, 0), atol=1e-5)
    inner = {m: x[m].mT @ y[m] for m in x}
    if group.scales:
        np.testing.assert_allclose(invariant(x, y, inner), -np.sum(distance, 0), atol=1e-5)
    rows, columns = linear_sum_assignment(np.sum(distance, 0))
    found = pair_neurons(group, x, y)
    assert (found.rows.tolist(), found.columns.tolist()) == (rows.tolist(), columns.tolist())
    others = np.sum(distance, 0)[rows]
    chosen = others[range(7), columns]
    others[range(7), columns] = np.inf
    assert found.margin == pytest.approx((others.min(1) - chosen).min(), abs=1e-5)


def test_the_sign_of_a_pair_is_that_of_the_nearest_factor(generator: torch.Generator) -> None:
    """Of ±c on what is read and ±1/c on what is written, c on a fine grid."""
    x, y = (
        {m: torch.randn(6, n, generator=generator).double() for m in (Mark.WRITE, Mark.READ)}
        for n in (9, 7)
    )
    c = torch.linspace(-4, 4, 801).exp().double()[:, None, None]
    left = []
    for sign in (1, -1):
        up, down = (
            torch.cdist((x[m].mT)[None], sign * (f * y[m].mT)).square()
            for m, f in ((Mark.WRITE, c), (Mark.READ, 1 / c))
        )
        left.append((up + down).amin(0))
    assert (alike(MONOMIAL, x, y)[1] == (left[1] < left[0]).numpy()).all()
    assert alike(POSITIVE, x, y)[1] is None


def test_two_neurons_of_one_model_are_alike_by_what_they_read(generator: torch.Generator) -> None:
    """½ (|cos| of up + 1 − ‖Δ gate‖² / (‖gate‖² + ‖gate‖²)); what they write does not count."""
    x = {m: torch.randn(12, 9, generator=generator) for m in (Mark.RELABEL, Mark.WRITE, Mark.READ)}
    gate, up = (x[m].double().numpy().T for m in (Mark.RELABEL, Mark.WRITE))
    cosine = up @ up.T / np.outer(*[np.linalg.norm(up, axis=1)] * 2)
    size = (gate**2).sum(1)
    near = 1 - gaps(gate, gate) / (size[:, None] + size)
    score, flipped = reading_alike(MONOMIAL, x)
    np.testing.assert_allclose(score, (np.abs(cosine) + near) / 2, atol=1e-5)
    assert (flipped == (cosine < 0)).all()
    less = {m: z for m, z in x.items() if m is not Mark.RELABEL}
    np.testing.assert_allclose(reading_alike(POSITIVE, less)[0], cosine, atol=1e-5)
    plain = 1 - gaps(up, up) / ((up**2).sum(1)[:, None] + (up**2).sum(1))
    np.testing.assert_allclose(reading_alike(PERMUTATION, less)[0], plain, atol=1e-5)


def test_a_larger_group_than_the_familys_would_pair_what_is_not_one_neuron(generator) -> None:
    x = {m: torch.randn(12, 9, generator=generator) for m in (Mark.WRITE, Mark.READ)}
    flipped = {m: -z for m, z in x.items()}
    for group, same in ((MONOMIAL, True), (PERMUTATION, False)):
        assert (np.diag(alike(group, x, flipped)[0]) > 0.99).all() == same
    assert (np.diag(reading_alike(POSITIVE, {**x, Mark.WRITE: x[Mark.WRITE]})[0]) > 0.99).all()
    assert (published(x, flipped) == np.arange(9)).mean() < 0.5


@pytest.mark.parametrize(("a", "b"), [("demo:base", "demo:seed-1"), ("demo:seed-2", "demo:seed-3")])
@pytest.mark.parametrize("using", ["weights", "activations"])
def test_independent_seeds_agree_on_half_of_the_signs(a: str, b: str, using: str) -> None:
    found = AllNeurons(a, b, using=using, tokens=1024).answer()
    assert found.right is None and found.truth == "none"
    assert found.negative_share is not None and 0.35 < found.negative_share < 0.65
    assert found.mutual.max() < 0.6


def test_fine_tunes_keep_their_names_and_signs() -> None:
    pair = "demo:tune-a-step-0160", "demo:tune-b-step-0160"
    found = AllNeurons(*pair, truth="identity").answer()
    assert found.right is not None and found.right.min() == 1 and found.negative_share == 0


@pytest.fixture(scope="module", params=["weights", "activations"])
def demo(request: pytest.FixtureRequest) -> NeuronMatch:
    """Layer 3 of the demo twins."""
    return Neurons("demo:base", "demo:twin", 3, using=request.param, tokens=1024).answer()


def test_demo_twins_fire_on_the_same_tokens(demo: NeuronMatch) -> None:
    """Every exciting place is shared, with the same values once the factor is put on."""
    assert demo.right is not None and demo.right.all()
    assert demo.scale_error is not None and demo.scale_error < 1e-4
    assert demo.published_right is not None and demo.published_right < 0.6
    excited = demo.excited
    assert excited is not None and excited.places[0].shape == (256, 8)
    pairs = list(zip(demo.rows, demo.match.permutation, strict=True))
    assert np.mean([excited.shared(i, j) for i, j in pairs]) > 7.9
    a, b = (x[k] for x, k in zip(excited.values, (demo.rows, demo.match.permutation), strict=True))
    np.testing.assert_allclose(b * demo.factor[:, None], a, rtol=1e-3)
    assert (np.abs(a[:, :-1]) >= np.abs(a[:, 1:])).all()  # the strongest first
    assert (excited.places[0] % excited.text.shape[1] > 0).all()  # no sinks
    stray = [excited.shared(i, j) for (i, _), (_, j) in pairwise(pairs)]
    assert np.mean(stray) < 1


def test_a_record_is_small(demo: NeuronMatch) -> None:
    assert sum(x.nbytes for x in named_arrays(demo).values()) < 2_000_000


def test_exciting_places_are_those_of_what_down_is_given(
    answer: Callable[..., NeuronMatch], tmp_path: Path
) -> None:
    """Against a hook on transformers' own model: window · length + position, |h| falling.

    The first position of a window and the token that starts a text do not count.
    """
    ids = torch.randint(90, (24, 16), generator=torch.Generator().manual_seed(2))
    (tmp_path / "ids.json").write_text(str(ids.tolist()))
    found = answer("llama_gqa", text=str(tmp_path / "ids.json"), using="activations")
    assert found.excited is not None
    spelled = np.array(found.excited.pieces)[found.excited.text]
    assert spelled[3, 5] == f"⟨{ids[3, 5]}⟩"
    heard: list[np.ndarray] = []
    for folder in (found.a, found.b):
        model = LlamaForCausalLM.from_pretrained(folder).eval()
        given: list[torch.Tensor] = []
        place = model.get_submodule("model.layers.1.mlp.down_proj")
        place.register_forward_pre_hook(lambda _, args, kept=given: kept.append(args[0]))
        with torch.no_grad():
            model(ids)
        heard.append(given[0].double().flatten(0, 1).numpy())
    first = np.arange(ids.numel()) % ids.shape[1] == 0
    sinks = first | (ids.flatten() == 1).numpy()
    for h, places, values in zip(heard, found.excited.places, found.excited.values, strict=True):
        strongest = np.argsort(-np.where(sinks[:, None], 0, np.abs(h)), axis=0)[:8].T
        np.testing.assert_array_equal(places, strongest)
        np.testing.assert_allclose(values, np.take_along_axis(h.T, strongest, 1), rtol=1e-3)
    a, b = (h[~sinks] for h in heard)
    c = np.corrcoef(a, b, rowvar=False)[:20, 20:]
    np.testing.assert_allclose(found.score, c, atol=1e-4)
    ratio = a.std(0)[found.rows] / b.std(0)[found.match.permutation]
    np.testing.assert_allclose(np.abs(found.factor), ratio, rtol=1e-4)


@pytest.mark.parametrize(("architecture", "expert"), [("mixtral", "1"), ("qwen2_moe", "shared")])
def test_experts_fire_only_for_tokens_that_visit_them(
    architecture: str, expert: str, answer: Callable[..., NeuronMatch], words: str
) -> None:
    found = answer(architecture, expert=expert, text=words, using="activations")
    assert found.right is not None and found.right.all()
    assert found.excited is not None
    pairs = zip(found.rows, found.match.permutation, strict=True)
    assert np.mean([found.excited.shared(i, j) for i, j in pairs]) > 7.5


FACTORS = {"llama_gqa": -2.0, "opt": 2.0, "gpt2": 1.0}
NAMES = {
    "llama_gqa": (GATE, UP, DOWN),
    "opt": ("model.decoder.layers.1.fc1.weight", "model.decoder.layers.1.fc1.bias",
            "model.decoder.layers.1.fc2.weight"),
    "gpt2": ("transformer.h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.bias",
             "transformer.h.1.mlp.c_proj.weight"),
}  # fmt: skip


THIS, THAT = 3, {"gpt2": 5, "llama_gqa": 5, "opt": 8}
"""Which neuron becomes a copy of which: one that fires."""


def duplicate(architecture: str, held: dict) -> None:
    """Neuron `this` becomes `that` times a factor, which leaves it 0.3 of what it writes."""
    this, that = THIS, THAT[architecture]
    *reads, writes = (held[name] for name in NAMES[architecture])
    factor = FACTORS[architecture]
    if architecture == "gpt2":  # stored [in, out]
        reads, writes = [reads[0].mT, reads[1]], writes.mT
    for k, x in enumerate(reads):
        gate = architecture == "llama_gqa" and k == 0
        x[this] = x[that] * (1 if gate else factor)
    whole = writes[:, that].clone()
    writes[:, that], writes[:, this] = 0.7 * whole, 0.3 * whole / factor


@pytest.mark.parametrize("architecture", sorted(NAMES))
def test_a_planted_duplicate_is_found_and_merging_it_costs_nothing(
    architecture: str, built: Built, tmp_path: Path
) -> None:
    source = built(architecture)
    folder = changed(source, tmp_path / "double", lambda held: duplicate(architecture, held))
    found = Neurons(str(folder), str(folder), 1).answer()
    assert found.same_model and found.compared == "inputs"
    that = THAT[architecture]
    assert (found.second[3], found.second[that]) == (that, 3)
    assert found.second_score[3] == pytest.approx(1, abs=1e-5)
    assert found.second_factor[3] == pytest.approx(FACTORS[architecture], rel=1e-5)
    assert np.sort(found.second_score)[:-2].max() < 0.98
    cost = found.spared
    assert cost is not None
    double = (cost.neuron == 3) | (cost.neuron == that)
    assert {cost.kind[k] for k in np.flatnonzero(double)} >= {"alike"}
    assert cost.merged[double].max() < 1e-9
    assert cost.removed[double].min() > 1e-6
    assert np.median(cost.merged[~double]) > 1e-6
    before = Neurons(str(source), str(source), 1).answer()
    assert before.second_score.max() < 0.98  # nothing is found where nothing was planted


def test_doing_without_a_neuron_costs_kl_from_the_model_to_the_changed_one_and_loss_above_its_own(
    built: Built, tmp_path: Path, words: str
) -> None:
    """Against transformers' own model with the columns of `down` rewritten by hand."""

    def louder(held: dict) -> None:
        held[DOWN] = 12 * held[DOWN]

    folder = changed(built("llama_gqa"), tmp_path / "loud", louder)
    found = Neurons(str(folder), str(folder), 1, text=words).answer().spared
    assert found is not None and len(found.neuron) == 20
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor(json.loads(Path(words).read_text()))
    own = model.get_parameter(DOWN).detach().clone()

    @torch.no_grad()
    def said(down: torch.Tensor) -> tuple[torch.Tensor, float]:
        model.get_parameter(DOWN).copy_(down)
        x = model(ids).logits.double()
        loss = cross_entropy(x[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return x.log_softmax(-1), float(loss)

    before, loss = said(own)
    unequal = []
    for k, (neuron, other) in enumerate(zip(found.neuron, found.other, strict=True)):
        for factor, kl, above in (
            (found.factor[k], found.merged[k], found.merged_loss[k]),
            (0.0, found.removed[k], found.removed_loss[k]),
        ):
            down = own.clone()
            down[:, other] += factor * own[:, neuron]
            down[:, neuron] = 0
            after, changed_loss = said(down)
            forth, back = (
                float(kl_div(q, p, reduction="sum", log_target=True)) / ids.numel()
                for p, q in ((before, after), (after, before))
            )
            assert kl == pytest.approx(forth, rel=1e-4)
            assert above == pytest.approx(changed_loss - loss, abs=1e-5)
            unequal.append(abs(forth - back) / forth)
    assert max(unequal) > 0.1  # no other order of the two gives the same
    assert min(found.removed_loss) < -0.01 < 0.01 < max(found.removed_loss)


def test_the_norm_of_a_neuron_is_that_of_what_it_reads_times_that_of_what_it_writes(
    built: Built,
) -> None:
    """‖up‖ ‖down‖ with the gain of the norm before them; LayerNorm's bias is a bias of theirs.

    Nothing along the mean over the residual coordinates counts where LayerNorm leaves it out.
    """
    held = {n: x.double() for n, x in tiny.tensors(built("llama_gqa")).items()}
    gain = held["model.layers.1.post_attention_layernorm.weight"]
    gated = (held[UP] * gain).norm(dim=1) * held[DOWN].norm(dim=0)
    held = {n: x.double() for n, x in tiny.tensors(built("gpt2")).items()}
    reads, bias, writes = (held[name] for name in NAMES["gpt2"])
    gain, shift = (held[f"transformer.h.1.ln_2.{name}"] for name in ("weight", "bias"))
    bias, reads = bias + shift @ reads, gain[:, None] * reads
    reads = torch.cat([reads - reads.mean(0), bias[None]])
    plain = reads.norm(dim=0) * (writes - writes.mean(1, keepdim=True)).norm(dim=1)
    for architecture, expected in (("llama_gqa", gated), ("gpt2", plain)):
        folder = str(built(architecture))
        assert Neurons(folder, folder, 1).answer().norm == pytest.approx(expected.numpy(), rel=1e-5)


def test_an_expert_against_itself_is_merged_in_its_tensors(built: Built) -> None:
    folder = str(built("mixtral"))
    found = Neurons(folder, folder, 1, expert="2").answer()
    assert found.spared is not None and len(found.spared.kind) == 20
    assert (found.spared.removed > 0).all() and (found.spared.merged > 0).all()


def test_a_hook_and_the_tensors_say_the_same(built: Built) -> None:
    """h_neuron ← factor · h_other is down_other + factor · down_neuron."""
    checkpoint = open_checkpoint(built("llama_gqa"))
    site, given = Site(checkpoint, "ffn", 1, None), at_random(checkpoint, 2, 12)
    asked = Neurons(str(checkpoint.folder), str(checkpoint.folder), 1)
    for change in ((3, 5, -0.7), (3, 5, 0.0)):
        hooked = neuron_trials.speaker(site, asked, given)(change)["logits"]
        held = {name: checkpoint.read(name) for name in checkpoint.headers}
        held |= neuron_trials.rewritten(site, change)
        assert (held[DOWN][:, 3] == 0).all()
        from engine import network
        from engine.running import log_probabilities

        built_ = log_probabilities(network.build(checkpoint, held), given.inputs)["logits"]
        torch.testing.assert_close(hooked, built_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wider", ["A", "B"])
def test_unequal_widths_pair_what_both_have(wider: str, built: Built, tmp_path: Path) -> None:
    kept = torch.tensor([19, 2, 7, 11, 3, 0, 14, 5, 9, 17, 12, 1, 16, 8])

    def narrow(held: dict) -> None:
        for layer in range(2):
            for word in ("gate", "up"):
                name = f"model.layers.{layer}.mlp.{word}_proj.weight"
                held[name] = held[name][kept]
            name = f"model.layers.{layer}.mlp.down_proj.weight"
            held[name] = held[name][:, kept]

    wide = built("llama_gqa")
    small = changed(wide, tmp_path / "narrow", narrow, intermediate_size=len(kept))
    pair = (wide, small) if wider == "A" else (small, wide)
    found = Neurons(*map(str, pair), 1).answer()
    if wider == "A":
        assert found.rows.tolist() == sorted(kept.tolist())
        assert kept[found.match.permutation].tolist() == found.rows.tolist()
    else:
        assert found.match.permutation.tolist() == kept.tolist()
    assert found.match.score.min() > 1 - 1e-5 and found.truth is None
    assert "each of " in found.notes[0] and "6 of the other model's have none" in found.notes[0]
    assert (found.published[: len(found.rows)] == found.match.permutation).all()
    every = AllNeurons(*map(str, pair)).answer()
    assert every.pairs.tolist() == [14, 14] and every.agree.tolist() == [1, 1]


def test_unequal_vocabularies_are_compared_on_what_both_know(
    built: Built, tmp_path: Path, words: str
) -> None:
    def shorter(held: dict) -> None:
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            held[name] = held[name][:80]

    a = built("llama_gqa")
    b = changed(a, tmp_path / "short", shorter, vocab_size=80)
    found = Neurons(str(a), str(b), 1, truth="identity", text=words).answer()
    assert found.right is not None and found.right.all()
    assert found.notes[0].startswith("A knows 96 tokens, B 80")
    assert "were left out" in found.notes[1] and found.excited is not None
    assert len(found.excited.text) < 16


@pytest.mark.parametrize(
    ("architecture", "more", "line"),
    [
        ("llama_gqa", {"layer": 2}, "There is no layer 2"),
        ("llama_gqa", {"layer": -1}, "There is no layer -1"),
        ("llama_gqa", {"expert": "0"}, "has no experts, and --expert 0 names one"),
        ("llama_gqa", {"expert": "shared"}, "has no shared expert"),
        ("mixtral", {"expert": "4"}, "There is no expert '4'"),
        ("mixtral", {"expert": "one"}, "There is no expert 'one'"),
        ("vit", {"using": "activations"}, "reads images"),
        ("llama_gqa", {"using": "activations"}, "has no tokenizer"),
    ],
)
def test_refusals_in_one_line(
    architecture: str, more: dict, line: str, answer: Callable[..., NeuronMatch]
) -> None:
    with pytest.raises(Refused, match=line) as refusal:
        answer(architecture, **more)
    assert "\n" not in str(refusal.value)


def test_two_architectures_or_widths_are_refused(built: Built) -> None:
    with pytest.raises(Refused, match="model_type is 'llama' in"):
        Neurons(str(built("llama_gqa")), str(built("gpt2")), 1).answer()
    with pytest.raises(Refused, match="hidden_size"):
        Neurons(str(built("llama_gqa")), str(built("llama_head_dim")), 1).answer()


def test_all_layers_of_experts_need_weights(built: Built, twin: Callable[[str], Path]) -> None:
    pair = str(built("mixtral")), str(twin("mixtral"))
    found = AllNeurons(*pair).answer()
    assert found.right is not None and found.right.tolist() == [1, 1]
    assert found.pairs.tolist() == [80, 80]
    with pytest.raises(Refused, match="is in one layer"):
        AllNeurons(*pair, expert="1").answer()


def test_the_command_line(
    built: Built, twin: Callable[[str], Path], tmp_path: Path, capsys
) -> None:
    pair = [str(built("llama_gqa")), str(twin("llama_gqa"))]
    asked = Neurons(*pair, 1)
    words = ["match", *pair, "--coordinate", "ffn"]
    assert asked.command.endswith("--layer 1 --coordinate ffn --out neurons.npz")
    assert main([*words, "--layer", "1", "--out", str(tmp_path / "one.npz")]) == 0
    with np.load(tmp_path / "one.npz") as arrays:
        assert {"score", "match_permutation", "factor", "truth_sign"} <= set(arrays)
    assert "100.0% right" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "all.json")]) == 0
    assert json.loads((tmp_path / "all.json").read_text())["right"] == [1, 1]
    assert "of all factors are negative" in capsys.readouterr().out
    assert main([*words, "--layer", "7", "--out", str(tmp_path / "no.npz")]) == 1
    assert capsys.readouterr().err.startswith("There is no layer 7")
    assert main(["match", *pair, "--layer", "1", "--out", str(tmp_path / "res.npz")]) == 1
    assert "say --coordinate ffn" in capsys.readouterr().err
