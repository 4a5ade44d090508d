"""Related or not: planted lineages, independent draws, and what a wrong alignment must miss."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.optimize import linear_sum_assignment
from scipy.stats import combine_pvalues, kstest, spearmanr
from transformers import LlamaForCausalLM

from engine.alignment.relatedness import fisher, lineage, log_p, placed, relate, spearman
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.cli import main
from engine.errors import Refused
from engine.pruning import prune
from engine.questions import Related
from engine.records import LineageTest, Relatedness
from engine.records.lineage import LIMIT
from engine.scramble import scramble
from tests import tiny

SAME = (
    ("base", "twin"),
    ("base", "base-step-0180"),
    ("base", "base-step-0500"),
    ("base", "base-step-1100"),
    ("base-step-0300", "base-step-1100"),
    ("base", "tune-a-step-0160"),
    ("base", "tune-b-step-0160"),
    ("tune-a-step-0160", "tune-b-step-0160"),
    ("twin", "tune-a-step-0160"),
    ("twin", "base-step-0300"),
    ("base", "scope-all-attention-1"),
    ("twin", "scope-first-layer-2"),
)
STRANGE = (
    ("base", "seed-1"),
    ("base", "seed-2"),
    ("base", "seed-3"),
    ("seed-1", "seed-2"),
    ("seed-1", "seed-3"),
    ("seed-2", "seed-3"),
    ("twin", "seed-1"),
    ("twin", "seed-2"),
    ("tune-a-step-0160", "seed-3"),
    ("base-step-0300", "seed-1"),
    ("base-step-1100", "seed-2"),
    ("scope-first-layer-1", "seed-3"),
)
KINDS = ("bert_masked", "gpt2", "gpt_neox", "llama_gqa", "mixtral", "opt", "qwen3", "vit")


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with 16 windows of 16 token ids."""
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    draw = torch.randint(96, (16, 16), generator=torch.Generator().manual_seed(0))
    path.write_text(str(draw.tolist()))
    return str(path)


@cache
def asked(a: str, b: str) -> Relatedness:
    return Related(f"demo:{a}", f"demo:{b}", tokens=1024).answer()


@pytest.mark.parametrize("pair", SAME, ids="-".join)
def test_a_common_lineage_is_seen_in_any_coordinates(pair: tuple[str, str]) -> None:
    found = asked(*pair)
    assert found.related
    assert found.log10_p < LIMIT
    assert found.tests[-1].coordinates == "random"
    assert found.tests[-1].log10_p > -4


@pytest.mark.parametrize("pair", STRANGE, ids="-".join)
def test_independent_seeds_are_unrelated(pair: tuple[str, str]) -> None:
    found = asked(*pair)
    assert found.verdict == "unrelated"
    assert found.log10_p > -4
    assert len(found.tests) == 4  # all three alignments were tried, and the control


def test_p_is_uniform_between_strangers() -> None:
    """Of all tests between unrelated models, none too often small, none too often large."""
    found = [10**t.log10_p for pair in STRANGE for t in asked(*pair).tests]
    assert kstest(found, "uniform").pvalue > 0.001
    assert np.mean(np.array(found) < 0.5) == pytest.approx(0.5, abs=0.25)


def test_a_twin_is_missed_unless_the_residual_coordinates_are_aligned() -> None:
    tests = {t.coordinates: t for t in asked("base", "twin").tests}
    assert tests["as they stand"].log10_p > -4
    assert tests["embedding"].log10_p < -1000
    assert (tests["embedding"].agreeing == 1).all()


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("base", "base"), "same weights"),
        (("base", "twin"), "same function in other coordinates"),
        (("base", "tune-a-step-0160"), "same lineage"),
        (("base", "seed-1"), "unrelated"),
    ],
)
def test_the_four_verdicts(pair: tuple[str, str], expected: str) -> None:
    assert asked(*pair).verdict == expected


@pytest.mark.parametrize("kind", KINDS)
def test_scrambled_copies_of_every_kind_are_related_and_other_draws_are_not(
    kind: str, built: Callable[[str], Path], tmp_path: Path, ids: str
) -> None:
    a = open_checkpoint(built(kind))
    scramble(a, tmp_path / "twin", seed=4)
    twin = open_checkpoint(tmp_path / "twin")
    other = open_checkpoint(tiny.build(kind, tmp_path / "other", seed=9))
    text = "default" if kind == "vit" else ids
    near, far = (relate(a, x, Related(a.name, x.name, text=text)) for x in (twin, other))
    assert near.verdict == "same function in other coordinates"
    assert near.log10_p < LIMIT
    assert far.verdict == "unrelated"
    assert far.log10_p > -3


@pytest.mark.parametrize("dropped", [(1,), (2, 4), (0, 1, 5)])
def test_the_layers_of_a_scrambled_pruned_child_are_found(
    dropped: tuple[int, ...], tmp_path: Path
) -> None:
    base = open_checkpoint("demo:base")
    child = prune(base, dropped, tmp_path / "child")
    scramble(child, tmp_path / "twin", seed=2)
    child = open_checkpoint(tmp_path / "twin")
    kept = [layer for layer in range(6) if layer not in dropped]
    for pair in ((base, child), (child, base)):
        found = relate(*pair, Related(pair[0].name, pair[1].name, tokens=512))
        assert found.verdict == "same lineage"
        assert found.layers.tolist() == kept
        assert found.likeness is not None
        assert found.likeness.shape == tuple(c.layers for c in pair)
        assert found.logits_between is None


def test_a_pruned_stranger_stays_one(tmp_path: Path) -> None:
    child = prune(open_checkpoint("demo:seed-1"), (2,), tmp_path / "child")
    found = relate(open_checkpoint("demo:base"), child, Related("", "", tokens=512))
    assert found.verdict == "unrelated"
    assert found.log10_p > -4


def test_a_wider_feed_forward_is_no_hindrance(tmp_path: Path) -> None:
    """B has A's neurons in another order, and more of them."""
    a = open_checkpoint(tiny.build("llama_gqa", tmp_path / "a"))
    wide = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=5, intermediate_size=30))
    tensors = load_file(wide.folder / "model.safetensors")
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:20]
    for name in tensors:
        own = a.read(name)
        tensors[name] = tensors[name].clone()
        if name.endswith("down_proj.weight"):
            tensors[name][:, order] = own
        elif "mlp" in name:
            tensors[name][order] = own
        else:
            tensors[name] = own
    save_file(tensors, wide.folder / "model.safetensors")
    b = open_checkpoint(wide.folder)
    for pair in ((a, b), (b, a)):
        test, _, _ = lineage(*pair, "as they stand", None)
        assert test.log10_p < LIMIT
        assert (test.agreeing == 1).all()


def test_other_architectures_and_widths_are_refused(built: Callable[[str], Path]) -> None:
    a, b = (open_checkpoint(built(kind)) for kind in ("llama_gqa", "gpt2"))
    with pytest.raises(Refused, match=r"cannot be tested: .* one architecture only, .* and gpt2"):
        relate(a, b, Related("", ""))
    narrow = open_checkpoint(built("llama_head_dim"))
    with pytest.raises(Refused, match=r"cannot be tested: .* theirs have 24 and 18"):
        relate(a, narrow, Related("", ""))


def test_a_test_whose_control_fails_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, built: Callable[[str], Path], tmp_path: Path, ids: str
) -> None:
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=3))

    def always(*args: object) -> tuple:
        test, layers, likeness = lineage(*args)  # type: ignore[arg-type]
        return replace(test, log10_p=-50.0), layers, likeness

    monkeypatch.setattr("engine.alignment.relatedness.lineage", always)
    assert relate(a, b, Related("", "", text=ids)).verdict == "unrelated"


@pytest.mark.parametrize(
    ("depth", "smallest", "ways", "expected"),
    [
        (2, -9.0, 3, "same lineage"),
        (2, -6.5, 3, "same lineage"),
        (2, -6.4, 3, "unrelated"),
        (5, -7.5, 3 * 10, "same lineage"),
        (5, -7.4, 3 * 10, "unrelated"),
        (2, -0.2, 3, "unrelated"),
    ],
)
def test_p_is_the_smallest_times_three_tests_and_the_ways_to_place_the_layers(
    depth: int,
    smallest: float,
    ways: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    built: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """Bonferroni: two of five layers stand in 10 ways, two of two in one; no p is above 1."""
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=3, num_hidden_layers=depth))
    known = {"as they stand": -0.1, "embedding": smallest, "random": -0.5}

    def said(*args: object) -> tuple[LineageTest, np.ndarray, None]:
        none = np.zeros(2, np.float32)
        return LineageTest(args[2], known[args[2]], none, none), np.arange(2), None  # type: ignore[arg-type, index]

    monkeypatch.setattr("engine.alignment.relatedness.lineage", said)
    for pair in ((a, b), (b, a)):
        found = relate(*pair, Related("", ""))
        assert found.log10_p == pytest.approx(min(0.0, smallest + math.log10(ways)), abs=1e-12)
        assert found.p == pytest.approx(min(1.0, ways * 10**smallest))
        assert found.verdict == expected
        assert [test.coordinates for test in found.tests] == [*known]


@pytest.mark.parametrize("seed", range(5))
def test_the_statistics_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.permutation(40)
    y = np.where(rng.random(40) < 0.3, x, rng.permutation(40) + 100)
    expected = spearmanr(x, y, alternative="greater")
    rho = spearman(x, y)
    assert rho == pytest.approx(expected.statistic)
    assert log_p(rho, 40) == pytest.approx(math.log(expected.pvalue))
    p = rng.random(6)
    assert 10 ** fisher(list(np.log(p))) == pytest.approx(combine_pvalues(p).pvalue)


def test_the_smallest_p_of_n_neurons_is_one_of_all_orders() -> None:
    assert log_p(1.0, 6) == pytest.approx(-math.log(720))
    assert log_p(1.0, 2) == 0 == spearman(np.arange(2), np.arange(2))


def test_distances_are_relative_to_a_and_logits_are_those_of_transformers(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    """max ‖A − B‖ / ‖A‖ of any tensor; max |logits A − logits B| and max |logits A|."""
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=3))
    found = relate(a, b, Related("", ""))
    x, y = (tiny.tensors(c.folder) for c in (a, b))
    gaps = {n: float((x[n] - y[n]).double().norm() / x[n].double().norm()) for n in x}
    assert found.furthest == pytest.approx(max(gaps.values()), rel=1e-6)
    ids = torch.randint(96, (2, 128), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        said = [LlamaForCausalLM.from_pretrained(c.folder)(ids).logits for c in (a, b)]
    assert found.checked_on == "256 random token ids"
    assert found.logits_between == pytest.approx(float((said[0] - said[1]).abs().max()), rel=1e-4)
    assert found.logits_scale == pytest.approx(float(said[0].abs().max()), rel=1e-4)


def unit_rows(folder: Path, layer: int, word: str) -> np.ndarray:
    """Rows of a gated FFN, the gain of the norm before them folded in, at unit length."""
    held = tiny.tensors(folder)
    gain = held[f"model.layers.{layer}.post_attention_layernorm.weight"]
    rows = (held[f"model.layers.{layer}.mlp.{word}_proj.weight"] * gain).double().numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_likeness_and_correlation_of_layers_by_their_definition(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    """Rows A. Likeness: the share whose nearest by |cos| is one by gate and by up.

    Correlation: Spearman's, of both best matchings, and their p-values by Fisher's method.
    """
    a = open_checkpoint(built("llama_gqa"))
    b = open_checkpoint(tiny.build("llama_gqa", tmp_path / "b", seed=3, num_hidden_layers=3))
    for one, other in ((a, b), (b, a)):
        test, layers, likeness = lineage(one, other, "as they stand", None)
        expected = np.zeros((one.layers, other.layers))
        cosines = {}
        for i, j in product(range(one.layers), range(other.layers)):
            cosines[i, j] = [
                np.abs(unit_rows(one.folder, i, word) @ unit_rows(other.folder, j, word).T)
                for word in ("gate", "up")
            ]
            nearest = [c.argmax(1) for c in cosines[i, j]]
            expected[i, j] = (nearest[0] == nearest[1]).mean()
        assert likeness == pytest.approx(expected)
        pairs = [(k, j) if one is a else (j, k) for k, j in enumerate(layers.tolist())]
        found, ps = [], []
        for pair in pairs:
            orders = [linear_sum_assignment(c, maximize=True)[1] for c in cosines[pair]]
            rho = spearmanr(*orders, alternative="greater")
            found.append(rho.statistic)
            ps.append(rho.pvalue)
        assert test.rho == pytest.approx(found, rel=1e-5)
        assert 10**test.log10_p == pytest.approx(combine_pvalues(ps).pvalue, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_placement_is_the_best_of_all(seed: int) -> None:
    from itertools import combinations

    score = np.random.default_rng(seed).normal(size=(7, 4))
    best = max(combinations(range(7), 4), key=lambda c: sum(score[c[j], j] for j in range(4)))
    assert placed(score).tolist() == list(best)


def test_the_command_says_it_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["related", "demo:base", "demo:twin", "--count", "512"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("same function in other coordinates: log10 p = -3")
    assert "test, residual coordinates as they stand: log10 p" in said
    assert "control, residual coordinates at random" in said and "Spearman's ρ" in said


def test_the_question_is_asked_again_from_its_command() -> None:
    question = Related("demo:base", "demo:twin", thorough=True)
    assert question.command == "python -m engine related demo:base demo:twin --thorough on"
    assert isinstance(question.checkpoints[0], Checkpoint)
