"""Residual matching: correlations against NumPy, planted gauges, the ceiling of signed matching."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import network
from engine.activations import Correlation, correlate_streams, depths, residual_stream
from engine.alignment.comparison import compare
from engine.alignment.matching import match_residual, planted, residual_truth
from engine.assignment import match
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Cancelled, Refused
from engine.inspection import card
from engine.questions import Align, Match
from engine.records import Carrier
from engine.scramble import scramble
from tests import tiny

Built = Callable[[str], Path]
Pair = tuple[Checkpoint, Checkpoint]


@pytest.fixture(scope="module")
def pair(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A checkpoint and its scrambled copy."""
    a = open_checkpoint(built("llama_gqa"))
    folder = tmp_path_factory.mktemp("pair") / "b"
    scramble(a, folder, seed=5)
    return a, open_checkpoint(folder)


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with 16 windows of 64 token ids."""
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    draw = torch.randint(96, (16, 64), generator=torch.Generator().manual_seed(0))
    path.write_text(str(draw.tolist()))
    return str(path)


@given(st.integers(0, 1000), st.integers(1, 4))
def test_streamed_correlation_is_numpys(seed: int, batches: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(batches * 20, 5)) * [1, 1e3, 1, 1e-3, 1] + [0, 1e4, 5, 0, -7]
    b = a[:, ::-1] * -1 + 0.3 * rng.normal(size=a.shape)
    stream = Correlation()
    for x, y in zip(np.split(a, batches), np.split(b, batches), strict=True):
        stream.add(torch.from_numpy(x), torch.from_numpy(y))
    expected = np.corrcoef(a, b, rowvar=False)[:5, 5:]
    np.testing.assert_allclose(stream.result().numpy(), expected, atol=1e-9)


def test_a_coordinate_that_never_varies_correlates_with_nothing() -> None:
    stream = Correlation()
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 4.0
    stream.add(x, x)
    expected = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(stream.result().diagonal(), expected)


def test_the_stream_is_read_before_every_block_and_before_the_last_norm(built: Built) -> None:
    a = open_checkpoint(built("llama_gqa"))
    model = network.load(a)
    tokens = torch.randint(96, (3, 8), generator=torch.Generator().manual_seed(1))
    streams = residual_stream(model, a.family, tokens)
    assert len(streams) == a.layers + 1 == len(depths(a.layers))
    with torch.no_grad():
        hidden = model(tokens, output_hidden_states=True).hidden_states
        last = model.get_submodule("model.norm")(streams[-1].reshape(3, 7, -1))
    for found, expected in zip(streams[:-1], hidden, strict=False):
        torch.testing.assert_close(found, expected[:, 1:].flatten(0, 1))
    torch.testing.assert_close(last, hidden[-1][:, 1:])


def test_sinks_are_dropped(built: Built) -> None:
    a = open_checkpoint(built("llama_gqa"))
    model = network.load(a)
    tokens = torch.tensor([[7, 1, 8, 9], [1, 7, 8, 1]])
    every, some = (residual_stream(model, a.family, tokens, drop)[1] for drop in ((), (1,)))
    assert every.shape[0] == 6  # the first of each window never counts
    assert torch.equal(some, every[[1, 2, 3, 4]])


@pytest.mark.parametrize("using", ["weights", "activations"])
def test_absolute_matching_finds_everything_and_signed_stops_at_the_positive_share(
    pair: Pair, ids: str, using: str
) -> None:
    asked = Match(pair[0].name, pair[1].name, using=using, text=ids)  # type: ignore[arg-type]
    found = match_residual(*pair, asked)
    assert found.truth is not None
    assert 0.2 < found.truth.positive_share < 0.8
    assert found.absolute_accuracy is not None
    assert found.sign_accuracy is not None
    assert found.signed_accuracy is not None
    assert (found.absolute_accuracy == 1).all()
    assert (found.sign_accuracy == 1).all()
    assert (found.signed_accuracy <= found.truth.positive_share + 1e-6).all()
    assert all(one.shortcut for one in found.absolute)


def test_the_wrong_truth_is_not_matched(pair: Pair) -> None:
    asked = Match(pair[0].name, pair[1].name, using="weights", truth="identity")
    found = match_residual(*pair, asked)
    assert found.absolute_accuracy is not None
    assert (found.absolute_accuracy < 0.3).all()
    assert residual_truth(*pair, "none") is None


def test_a_planted_gauge_is_found_from_both_sides_and_only_for_its_pair(pair: Pair) -> None:
    a, b = pair
    forward, back = planted(a, b), planted(b, a)
    assert forward is not None
    assert back is not None
    round_trip = forward.compose(back).elements["res"].numbers()
    assert torch.equal(round_trip["permutation"], torch.arange(24))
    assert set(round_trip) == {"permutation"}  # every sign cancels
    assert planted(replace(a, fingerprint="0" * 32), b) is None
    assert planted(a, a) is None


def test_two_orders_of_a_pair_are_inverse(pair: Pair) -> None:
    a, b = pair
    there = match_residual(a, b, Match(a.name, b.name, using="weights")).absolute[-1]
    back = match_residual(b, a, Match(b.name, a.name, using="weights")).absolute[-1]
    assert (there.permutation[back.permutation] == np.arange(24)).all()
    assert (back.sign[there.permutation] == there.sign).all()


def test_signed_matching_of_a_half_flipped_matrix() -> None:
    rng = np.random.default_rng(0)
    order, sign = rng.permutation(200), rng.choice([-1, 1], 200)
    c = 0.05 * rng.normal(size=(200, 200))
    c[np.arange(200), order] = sign
    absolute, signed = match(c, absolute=True), match(c, absolute=False)
    assert (absolute.permutation == order).all()
    assert (absolute.sign == sign).all()
    right = (signed.permutation == order).mean()
    assert abs(right - (sign > 0).mean()) < 0.02
    unsigned = match(c, absolute=False, signs=False)
    assert (unsigned.sign == 1).all()


def test_cancelling_leaves_the_weights_alone(pair: Pair, ids: str) -> None:
    a, b = pair
    models = [network.load(c) for c in pair]
    before = [[p.clone() for p in m.parameters()] for m in models]
    heard: list[str] = []

    def stop(share: float, step: str, _: object = None) -> None:
        heard.append(step)
        if share > 0:
            raise Cancelled

    tokens = np.random.default_rng(0).integers(96, size=(48, 16))
    with pytest.raises(Cancelled):
        correlate_streams(models, [a.family, b.family], tokens, progress=stop)
    assert heard
    for model, old in zip(models, before, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), old, strict=True))
        inner = model.get_submodule("model")
        assert not any(m._forward_pre_hooks for m in inner.modules())


def test_a_cancelled_alignment_writes_nothing(pair: Pair, tmp_path: Path) -> None:
    a, b = pair
    prints = [open_checkpoint(c.folder).fingerprint for c in pair]

    def stop(share: float, step: str, _: object = None) -> None:
        if share > 0.7:
            raise Cancelled(step)

    with pytest.raises(Cancelled):
        compare(a, b, Align(a.name, b.name), tmp_path / "out", stop)
    assert list(tmp_path.iterdir()) == []
    assert [open_checkpoint(c.folder).fingerprint for c in pair] == prints


def test_alignment_report_of_a_twin_and_of_a_stranger(
    pair: Pair, tmp_path: Path, built: Built
) -> None:
    a, b = pair
    twin, g = compare(a, b, Align(a.name, b.name))
    assert (twin.same_function, twin.kept, twin.same_weights) == ("exact", "exact", "exact")
    assert twin.moved
    assert twin.recovered == 1.0
    assert all(s.right == 1.0 for s in twin.stages)
    assert {s.coordinate for s in twin.stages} == {"res", "ffn", "grp", "head", "rot", "val"}
    assert (g.source, g.target) == (b.fingerprint, a.fingerprint)
    stranger = open_checkpoint(tiny.build("llama_gqa", tmp_path / "llama_gqa_other", seed=9))
    found, _ = compare(a, stranger, Align(a.name, stranger.name))
    assert found.same_function == "broken"
    assert found.kept == "exact"  # any gauge keeps the function, right or wrong
    assert found.same_weights == "broken"
    assert found.recovered is None


def test_a_model_is_the_same_as_itself(built: Built) -> None:
    a = open_checkpoint(built("llama_gqa"))
    found, _ = compare(a, a, Align(a.name, a.name))
    assert not found.moved
    assert found.same_function == "exact"
    assert float(found.after.max()) < 1e-6
    assert found.flipped == 0


def test_different_groups_are_refused(built: Built, tmp_path: Path) -> None:
    a = open_checkpoint(built("llama_gqa"))
    theta = {"rope_theta": 500_000.0, "rope_type": "default"}
    b = open_checkpoint(
        tiny.build("llama_gqa", tmp_path / "llama_gqa_theta", rope_parameters=theta)
    )
    with pytest.raises(Refused, match=r"10000.*500000|500000.*10000"):
        compare(a, b, Align(a.name, b.name))


def test_card_counts_the_table(built: Built) -> None:
    found = card(open_checkpoint(built("llama_head_dim")))
    rows = {row.name: row for row in found.coordinates}
    assert (found.width, found.heads, found.kv_heads, found.head_dim) == (18, 9, 3, 6)
    assert rows["ffn"].copies == found.layers
    assert rows["val"].dimension == found.layers * 3 * 36
    assert rows["res"].log10 == pytest.approx(
        sum(np.log10(k) for k in range(1, 19)) + 18 * np.log10(2)
    )
    name = "model.layers.{l}.self_attn.q_proj.weight"
    assert Carrier(name, "(grp head rot) res*", "written") in rows["rot"].carriers


def test_images_are_not_asked_for_a_text(built: Built) -> None:
    model = str(built("vit"))
    with pytest.raises(Refused, match=r"reads images, .* match by the weights"):
        Match(model, model, device="cpu").answer()


def test_a_text_that_is_no_file_is_not_called_missing(built: Built) -> None:
    model = str(built("llama_gqa"))
    with pytest.raises(Refused, match=r"Text file /dev/null is no regular file"):
        Align(model, model, using="activations", text="/dev/null", device="cpu").answer()
