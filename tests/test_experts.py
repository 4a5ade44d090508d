"""Experts: planted orders are found, wrong routers show, copies merge for nothing."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.optimize import linear_sum_assignment
from streamlit.testing.v1 import AppTest
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div
from transformers import MixtralForCausalLM

from app.charts import drawing, tables
from app.charts import experts as charts
from app.charts.theme import LIGHT
from app.sentences import experts as sentences
from engine import network
from engine.action import act
from engine.alignment import expert_trials as trials
from engine.alignment.expert_report import report
from engine.alignment.experts import folded, match
from engine.alignment.one_pass import layer_tensors
from engine.alignment.stages import expert_score, solve_experts
from engine.attention.pairs import pair
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.cli import main
from engine.errors import Refused, silent
from engine.questions import Experts
from engine.records import REGISTRY, ExpertsReport, plain
from engine.running import log_probabilities
from engine.scramble import scramble
from engine.store import Store
from engine.summaries import experts as summaries
from engine.symmetry import sample
from tests import tiny
from tests.allowed import stored_pair

Built = Callable[[str], Path]
FAMILIES = ("mixtral", "qwen2_moe", "qwen3_moe")
families = pytest.mark.parametrize("architecture", FAMILIES)
EXACT = 1e-4


def asked(a: object, b: object, layer: int = 0, **more: object) -> Experts:
    return Experts(str(a), str(b), layer, device="cpu", **more)  # type: ignore[arg-type]


def rewritten(a: Checkpoint, out: Path, changed: Callable[[str], Tensor]) -> Checkpoint:
    save_checkpoint(out, ((n, changed(n)) for n in a.headers), a)
    return open_checkpoint(out)


@pytest.fixture(scope="module")
def twins(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ExpertsReport]:
    """Reports on a model and itself under a random gauge, each made once."""
    made: dict[str, ExpertsReport] = {}

    def make(architecture: str) -> ExpertsReport:
        if architecture not in made:
            folder = tmp_path_factory.mktemp("experts") / architecture
            a = open_checkpoint(built(architecture))
            scramble(a, folder, seed=5)
            made[architecture] = asked(a.folder, folder, 1).answer()
        return made[architecture]

    return make


@families
def test_a_planted_order_is_found_by_router_and_by_content(architecture: str, twins) -> None:
    record = twins(architecture)
    assert record.planted_order is not None
    assert record.planted_order.tolist() != [0, 1, 2, 3]
    for order in (record.order, record.by_router, record.by_content, record.partner):
        assert order.tolist() == record.planted_order.tolist()
    here = np.arange(4)
    assert record.router[here, record.order].max() < 1e-6
    assert record.content[here, record.order].max() < 1e-6
    assert record.content.mean() > 1
    assert record.margin.min() > 0.5
    assert record.alike.min() > 1 - 1e-6
    assert record.same_weights == "exact"
    assert record.before.min() > 1
    assert record.right == 1
    assert record.shared == (14 if architecture == "qwen2_moe" else 0)


@families
def test_half_way_to_a_twin_is_the_model_itself(architecture: str, twins) -> None:
    record = twins(architecture)
    assert record.halfway.kl.shape == (5,)
    assert record.halfway.kl.max() < 1e-6
    assert record.halfway_stored.kl.min() > 1e-4
    assert record.halfway_stored.kl[-1] > record.halfway_stored.kl[:-1].max()
    assert record.usage.sum() == pytest.approx(record.active)
    assert "random token ids" in record.checked_on
    assert np.isnan(record.halfway.loss).all()  # no tokenizer, no text
    assert (record.removal, record.merged, len(record.pairs)) == (None, None, 0)


@families
def test_factors_and_orders_of_neurons_are_the_planted_ones(
    architecture: str, built: Built, twins
) -> None:
    record = twins(architecture)
    a = open_checkpoint(built(architecture))
    g = sample(a.family, a.config, torch.Generator().manual_seed(5)).inverse()
    element = g.elements["layers.1.ffn"]
    assert record.neuron_order.tolist() == element.permutation.tolist()
    np.testing.assert_allclose(record.neuron_factor, element.scale, rtol=1e-4)


@families
def test_a_router_that_did_not_follow_breaks_the_function_and_is_told(
    architecture: str, built: Built, tmp_path: Path
) -> None:
    """The negative twin: experts in another order behind rows that stayed."""
    a = open_checkpoint(built(architecture))
    g = sample(a.family, a.config, torch.Generator().manual_seed(5), ("exp",), [0])
    order = g.elements["layers.0.exp"].permutation.tolist()
    assert sorted(order) != order

    def stayed(name: str) -> Tensor:
        inside = "exp" in a.family.row(name).places
        return act(g, name, a.read) if inside else a.read(name)

    b = rewritten(a, tmp_path / "b", stayed)
    said = [log_probabilities(network.load(c), tiny.tokens())["logits"] for c in (a, b)]
    assert tiny.distance(*said) > 0.01
    record = report(a, b, asked("a", "b"))
    back = np.argsort(order).tolist()
    assert record.by_content.tolist() == back
    assert record.by_router.tolist() == [0, 1, 2, 3]
    differ = sum(i != j for i, j in enumerate(back))
    told = sentences.matched(record).text
    assert f"For {differ} of 4 experts the router's rows name another partner" in told
    assert "B's router does not belong to B's experts" in told
    whole = rewritten(a, tmp_path / "whole", partial(act, g, read=a.read))
    said = [log_probabilities(network.load(c), tiny.tokens())["logits"] for c in (a, whole)]
    assert tiny.distance(*said) < 1e-5


def routers(a: Checkpoint, b: Checkpoint, layer: int) -> tuple[str, list[dict[str, Tensor]]]:
    """The name of a layer's router and both layers' tensors."""
    both = [layer_tensors(c, layer) for c in (a, b)]
    (name,) = (n for n in both[0] if str(a.family.row(n).axes[0]) == "exp")
    return name, both


@families
def test_a_vector_common_to_all_rows_of_a_router_changes_no_score(
    architecture: str, built: Built, tmp_path: Path
) -> None:
    """softmax takes it out; what is compared are the rows less their mean, over the mean gap."""
    a = open_checkpoint(built(architecture))
    b = open_checkpoint(tiny.build(architecture, tmp_path / "b", seed=6))
    name, (theirs, mine) = routers(a, b, 0)
    x, y = (z[name].double().numpy() for z in (theirs, mine))
    x, y = (z - z.mean(0) for z in (x, y))
    gap = ((x[:, None] - y[None]) ** 2).sum(-1)
    more = torch.randn(24, generator=torch.Generator().manual_seed(0)) + 3
    sizes = a.family.sizes(a.config)
    for one, other in ((0, 0), (more, 0), (0, more), (more, -more)):
        changed = {**theirs, name: theirs[name] + one}, {**mine, name: mine[name] + other}
        score = expert_score(a.family, sizes, *changed).numpy()
        np.testing.assert_allclose(score, -gap / gap.mean(), atol=1e-5)
        found = solve_experts(a.family, sizes, *changed)
        order = found.elements["exp"].permutation.numpy()
        best = min(permutations(range(4)), key=lambda p: gap[range(4), list(p)].sum())
        assert order.tolist() == list(best)
        rest = np.where(np.eye(4)[order] > 0, np.inf, gap).min(1)
        assert found.margin == pytest.approx(
            (rest - gap[range(4), order]).min() / gap.mean(), abs=1e-5
        )


def test_costs_of_experts_by_their_definition(built: Built) -> None:
    """Router and content from the file's own numbers, the gain of the norm before them in both."""
    a = open_checkpoint(built("mixtral"))
    record = match(folded(pair(a, a, asked("a", "a", 1), silent)))
    held = {n: x.double().numpy() for n, x in tiny.tensors(a.folder).items()}
    gain = held["model.layers.1.post_attention_layernorm.weight"]
    rows = held["model.layers.1.block_sparse_moe.gate.weight"] * gain
    rows = rows - rows.mean(0)
    far = ((rows[:, None] - rows) ** 2).sum(-1) / (rows**2).sum(-1).mean()
    np.testing.assert_allclose(record.router, far, rtol=1e-5, atol=1e-6)
    name = "model.layers.1.block_sparse_moe.experts.{}.w{}.weight"
    gate, down, up = ([held[name.format(e, k)] for e in range(4)] for k in (1, 2, 3))
    gate, up = ([x * gain for x in one] for one in (gate, up))
    product = [np.einsum("nr,dn->nrd", u, d) for u, d in zip(up, down, strict=True)]
    scale = [np.mean([(x**2).sum() for x in one]) for one in (gate, product)]
    content = np.zeros((4, 4))
    for i, j in permutations(range(4), 2):
        cost = sum(
            ((one[i][:, None] - one[j][None]) ** 2).reshape(20, 20, -1).sum(-1) / (2 * size)
            for one, size in zip((gate, product), scale, strict=True)
        )
        content[i, j] = cost[linear_sum_assignment(cost)].sum()
    np.testing.assert_allclose(record.content, content, rtol=1e-5)
    others = np.where(np.eye(4) > 0, np.inf, content)
    assert record.second.tolist() == others.argmin(1).tolist()
    np.testing.assert_allclose(record.margin, others.min(1) / content.mean(), rtol=1e-5)


@torch.no_grad()
def said_by(folder: Path, ids: Tensor) -> tuple[Tensor, float]:
    """Log-probabilities of transformers' own model and its loss, nats."""
    x = MixtralForCausalLM.from_pretrained(folder).eval()(ids).logits.double()
    return x.log_softmax(-1), float(cross_entropy(x[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))


def test_an_expert_out_of_reach_costs_what_a_model_without_it_says(tmp_path: Path) -> None:
    """KL(A ‖ A without it) and loss above A's, against a checkpoint of one expert less."""
    folder, smaller = (
        tiny.build("mixtral", tmp_path / str(n), num_hidden_layers=1, num_local_experts=n)
        for n in (4, 3)
    )
    held = {n: x * (8 if ".w2." in n else 1) for n, x in tiny.tensors(folder).items()}
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    ids = torch.randint(96, (8, 16), generator=torch.Generator().manual_seed(1))
    (tmp_path / "ids.json").write_text(str(ids.tolist()))
    record = asked(folder, folder, text=str(tmp_path / "ids.json")).answer()
    (before, loss), unequal = said_by(folder, ids), []
    gate = "model.layers.0.block_sparse_moe.gate.weight"
    name = "model.layers.0.block_sparse_moe.experts.{}.w{}.weight"
    for gone in range(4):
        rest = [e for e in range(4) if e != gone]
        less = {n: x for n, x in held.items() if ".experts." not in n}
        less[gate] = held[gate][rest].clone()
        for place, e in enumerate(rest):
            less |= {name.format(place, k): held[name.format(e, k)] for k in (1, 2, 3)}
        save_file(less, smaller / "model.safetensors", {"format": "pt"})
        after, changed = said_by(smaller, ids)
        forth, back = (
            float(kl_div(q, p, reduction="sum", log_target=True)) / ids.numel()
            for p, q in ((before, after), (after, before))
        )
        assert record.removal.kl[gone] == pytest.approx(forth, rel=1e-3)
        assert record.removal.loss[gone] == pytest.approx(changed - loss, abs=1e-4)
        unequal.append(abs(forth - back) / forth)
    assert max(unequal) > 0.02


def with_a_copy(a: Checkpoint, out: Path, layer: int, *, row: bool) -> Checkpoint:
    """Expert 2 of a layer becomes expert 0 with its neurons in other coordinates.

    `row`: it has expert 0's row of the router as well.
    """
    family = a.family
    g = sample(family, a.config, torch.Generator().manual_seed(8), ("ffn",), [layer])

    def changed(name: str) -> Tensor:
        here = family.row(name)
        if here.layer == layer and here.places.get("exp") == 2:
            start, stop = family.span(name, "exp")
            source = f"{name[:start]}0{name[stop:]}"
            return act(g, name, lambda _: a.read(source))
        if row and here.layer == layer and str(here.axes[0]) == "exp":
            x = a.read(name).clone()
            x[2] = x[0]
            return x
        return a.read(name)

    return rewritten(a, out, lambda name: changed(name).float())


@pytest.mark.parametrize(
    ("architecture", "row"), [("mixtral", False), ("mixtral", True), ("qwen2_moe", False)]
)
def test_a_copy_in_other_coordinates_is_found_and_merges_for_nothing(
    architecture: str, row: bool, built: Built, tmp_path: Path
) -> None:
    one = with_a_copy(open_checkpoint(built(architecture)), tmp_path / "copy", 0, row=row)
    record = report(one, one, asked(one.folder, one.folder))
    assert record.same_model
    assert record.nearest == (0, 2)
    assert record.content[0, 2] < 1e-6
    assert np.delete(record.content[0], [0, 2]).min() > 0.5
    assert (record.router[0, 2] < 1e-6) == row
    assert (record.partner[0], record.partner[2]) == (2, 0)
    assert record.alike[[0, 2]].min() > 1 - 1e-6
    assert record.left[[0, 2]].max() < EXACT < record.before[[0, 2]].min()
    assert record.merged.kl[0] < 1e-7
    assert record.merged.kl[1:].min() > 1e-3
    assert record.removal.kl[[0, 2]].min() > 1e-3
    assert record.single.kl[0] > 1e-6  # one row never says what two do
    verdict = sentences.matched(record)
    assert verdict.headline == "Experts 0 and 2 are one expert in two bases."
    assert verdict.word == "exact"


@families
def test_without_a_copy_no_two_experts_coincide(architecture: str, built: Built) -> None:
    folder = built(architecture)
    record = asked(folder, folder).answer()
    assert record.order.tolist() == [0, 1, 2, 3]
    assert np.array_equal(record.content, record.content.T)
    assert np.diag(record.content).max() == 0
    assert record.content[np.triu_indices(4, 1)].min() > 0.5
    assert record.pairs.shape == (6, 2)
    assert record.merged.kl.min() > 1e-3
    assert sentences.matched(record).word is None
    first = record.content[tuple(record.pairs.T)]
    assert np.array_equal(first, np.sort(first))
    assert (record.halfway, record.planted_order, record.using) == (None, None, "identity")


@families
def test_out_of_reach_is_what_a_router_of_one_row_less_does(
    architecture: str, built: Built
) -> None:
    """Against the block computed by hand: softmax and choice over the other rows."""
    a = open_checkpoint(built(architecture))
    question = asked(a.folder, a.folder)
    both = pair(a, a, question, silent)
    one = trials.runs(both, question)
    assert one is not None
    model = one.built({})
    gate = one.gate(model)
    x = torch.randn(50, 24, generator=torch.Generator().manual_seed(0))
    before = gate(x)
    with trials.unreachable(gate, 1):
        _, weights, chosen = gate(x)
    assert torch.equal(gate(x)[2], before[2])
    scores = (x @ gate.weight.T).index_fill(1, torch.tensor([1]), -torch.inf).softmax(-1)
    top = scores.topk(gate.top_k, -1)
    expected = top.values
    if architecture == "mixtral" or a.config.get("norm_topk_prob"):
        expected = expected / expected.sum(-1, keepdim=True)
    assert torch.equal(chosen, top.indices)
    assert not bool((chosen == 1).any()) and bool((before[2] == 1).any())
    torch.testing.assert_close(weights, expected)


def test_every_expert_active_leaves_one_less(built: Built, tmp_path: Path) -> None:
    folder = tiny.build("mixtral", tmp_path / "all", num_local_experts=2, num_experts_per_tok=2)
    record = asked(folder, folder).answer()
    assert record.usage.tolist() == [1, 1]
    assert record.removal.kl.min() > 1e-3
    assert record.pairs.tolist() == [[0, 1]]


def test_families_without_experts_are_refused(built: Built) -> None:
    llama, mixtral = (built(name) for name in ("llama_gqa", "mixtral"))
    with pytest.raises(Refused, match=r"\(Llama\) has no experts: give two models that have"):
        asked(llama, llama).answer()
    with pytest.raises(Refused, match="has no experts"):
        asked(mixtral, llama).answer()
    with pytest.raises(Refused, match=r"There is no layer 2: .* has 0 to 1"):
        asked(mixtral, mixtral, 2).answer()


def test_nothing_of_the_model_is_changed(built: Built) -> None:
    folder = built("mixtral")
    before = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    asked(folder, folder).answer()
    assert {path: path.read_bytes() for path in sorted(folder.iterdir())} == before


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> ExpertsReport:
    """The shipped model with a copy of an expert, against itself, on its own text."""
    out = tmp_path_factory.mktemp("demo") / "copy"
    one = with_a_copy(open_checkpoint("demo:mixtral"), out, 1, row=False)
    return report(one, one, asked(out, out, 1))


def test_on_text_the_loss_says_the_same(demo: ExpertsReport) -> None:
    assert demo.nearest == (0, 2)
    assert demo.merged.kl[0] < 1e-6 and abs(demo.merged.loss[0]) < 1e-5
    assert demo.removal.kl.min() > 100 * demo.merged.kl[0]
    assert demo.removal.loss.max() > 0.01
    assert "generated text" in demo.checked_on


def test_the_record_is_kept_and_exported(demo: ExpertsReport, tmp_path: Path) -> None:
    assert REGISTRY["ExpertsReport"] is ExpertsReport
    store = Store(tmp_path)
    store.put("key", demo)
    again = store.get("key")
    assert again.merged.kl.tolist() == demo.merged.kl.tolist()
    assert json.loads(json.dumps(plain(demo)))["experts"] == 4
    with np.load(io.BytesIO(tables.as_npz(demo))) as arrays:
        assert arrays["merged_kl"].tolist() == demo.merged.kl.tolist()
        assert arrays["neuron_order"].shape == (4, 96)


def test_the_command_says_which_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experts", "demo:mixtral", "demo:mixtral", "--layer", "1", "--count", "256"]) == 0
    told = capsys.readouterr().out
    assert "layer 1 of Mixtral: 4 experts of 96 neurons, 2 a token" in told
    assert told.count("merged behind both router rows") == 6
    assert told.count("without expert") == 4
    assert main(["experts", "demo:base", "demo:base"]) == 1
    assert Experts("a", "b", 3).command == "python -m engine experts a b --layer 3"


def test_between_two_models_the_lines_say_who_is_right(twins) -> None:
    lines = list(summaries.of_experts(twins("qwen2_moe")))
    assert "one more of 14 for every token" in lines[0]
    assert sum(", right, router" in line for line in lines) == 4
    assert "router and content name different partners for 0 of 4 experts" in lines
    assert sum("half way to B in" in line for line in lines) == 5


@pytest.mark.parametrize("term", charts.TERMS)
def test_pictures_show_the_record(demo: ExpertsReport, twins, term: charts.Term) -> None:
    for record in (demo, twins("mixtral")):
        table = charts.cells(record, term)
        np.testing.assert_allclose(
            table["cost"].to_numpy().reshape(4, 4), charts.costs(record, term)
        )
        assert table["partner"].sum() == (0 if record.same_model else 4)
        changes = charts.changes(record)
        assert len(changes) == (6 + 6 + 4 if record.same_model else 10)
        for chart in (
            charts.cost_map(record, term, LIGHT),
            charts.likeness(record, LIGHT),
            charts.tolls(record, LIGHT),
        ):
            assert len(json.dumps(chart.to_dict())) < 100_000
            if term == "both" and record.same_model:
                assert drawing.image(chart.properties(width=300), "svg").startswith(b"<svg")


def test_percentiles_are_of_the_neurons(demo: ExpertsReport) -> None:
    table = charts.percentiles(demo)
    assert table["p50"].tolist() == pytest.approx(np.median(demo.alike, axis=1).tolist())
    assert table["p0"].tolist() == pytest.approx(demo.alike.min(axis=1).tolist())


def test_sentences_before_and_without_measurements(demo: ExpertsReport, twins) -> None:
    assert sentences.matched(None).badge == "not measured"
    bare = replace(demo, merged=None, single=None, removal=None, usage=None)
    assert "was not measured" in sentences.matched(bare).text
    assert charts.changes(bare).empty
    record = twins("qwen2_moe")
    verdict = sentences.matched(record)
    assert verdict.headline.startswith("4 of 4 experts found; relative distance of partners at")
    assert "one shared expert of 14 neurons" in verdict.text
    assert "The router's rows alone and the contents alone name the same partners." in verdict.text
    worse = replace(record, order=np.roll(record.order, 1))
    assert sentences.matched(worse).headline.startswith("0 of 4 experts found")


PAGE = """
from app import inputs
from app.controls import model as models
from app.sections import experts

inputs.choose_pair()
inputs.choose_device()
a, b = models.opened("A"), models.opened("B")
if a and b:
    experts.whole(a, b, {layer})
"""


def page(layer: int = 1, **link: str) -> AppTest:
    """The part of a page on experts, for the pair of a link."""
    at = AppTest.from_string(PAGE.format(layer=layer), default_timeout=60)
    for name, value in {"a": "demo:mixtral", "b": "demo:mixtral", **link}.items():
        at.query_params[name] = value
    at = at.run()
    assert not at.exception
    return at


def said(at: AppTest) -> str:
    return "\n".join(item.value for item in at.markdown).replace("\\", "")


@pytest.fixture
def answers(
    demo: ExpertsReport, twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Experts]]:
    """Every question that the page asks, answered by known records."""
    found: list[Experts] = []
    between = replace(twins("mixtral"), fingerprints=("a", "b"))

    def answer(self: Experts, progress: object) -> ExpertsReport:
        found.append(self)
        return demo if self.layer == 1 else between

    monkeypatch.setattr(Experts, "answer", answer)
    with stored_pair(tmp_path, monkeypatch):
        yield found


def test_the_page_says_which_two_could_be_one(answers: list[Experts]) -> None:
    at = page(1)
    assert "Experts 0 and 2 are one expert in two bases." in said(at)
    assert "both router rows kept: KL" in said(at)
    assert len(at.get("vega_lite_chart")) == 3
    assert len(at.dataframe) == 2
    assert sum("What would bad look like?" in item.value for item in at.caption) == 3
    labels = [button.label for button in at.get("download_button")]
    assert labels[:4] == ["Experts (CSV)", "Costs (CSV)", "Arrays (NPZ)", "Record (JSON)"]
    assert len(labels) == 10
    assert at.code[0].value == "python -m engine experts demo:mixtral demo:mixtral --layer 1"
    at.segmented_control(key="expert-cost").set_value("router").run()
    assert not at.exception
    assert len(answers) == 1


def test_the_page_compares_two_models(answers: list[Experts]) -> None:
    at = page(0, b="demo:base")
    assert not at.header  # one without experts
    at = page(0)
    assert "4 of 4 experts found; relative distance of partners at most" in said(at)
    assert "Half way to B in all experts of this layer" in said(at)
    assert answers[0].layer == 0


def test_models_without_experts_have_no_such_part(answers: list[Experts]) -> None:
    at = page(0, a="demo:base", b="demo:base")
    assert not at.header
    assert answers == []
