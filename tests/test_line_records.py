"""Curves and their barriers as numbers, the adaptive points, marks: no model runs here."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.line.exam import marks
from engine.line.sampling import EXTRA, coarse_first, grid, next_point
from engine.records import BarrierReport, Curve, HeadOrders, MergeReport
from engine.records.layers import Run
from engine.store import Store

RUN = Run("planted", 512, 16, "mean", "cpu", "float32", 1.0)


def curve(height: float, stage: str = "none", windows: int = 16, noise: float = 0.1) -> Curve:
    """A parabola over the chord from 1 to 2 nats, its height drawn anew in every window."""
    t = grid(5)
    draw = 1 + noise * np.random.default_rng(3).uniform(-1, 1, windows)
    loss = 1 + t[:, None] + 4 * (t * (1 - t))[:, None] * height * draw
    positions = np.full(windows, 31, np.int64)
    return Curve(stage, t, loss, 1 - loss / 10, positions, 0.5, complete=True)


def report(*curves: Curve) -> BarrierReport:
    return BarrierReport(
        "a", "b", ("f", "g"), "Llama", "whole", (10, 10), True, False, "weights", grid(5), curves,
        "next token", 9, 0.1, True, RUN,
    )  # fmt: skip


def test_a_barrier_is_the_highest_point_over_the_chord() -> None:
    found = curve(0.7)
    middle = 0.7 * (found.loss[2] - 1.5).mean() / 0.7
    assert found.barrier().value == pytest.approx(middle)
    assert found.peak() == 0.5
    assert found.barrier().low < middle < found.barrier().high
    assert found.excess().value[[0, -1]].tolist() == [0, 0]
    np.testing.assert_allclose(found.chord(), 1 + found.t)
    assert found.barrier("accuracy").value == pytest.approx(middle / 10)
    assert found.points("accuracy").value[0] == pytest.approx(0.9)


def test_what_lies_below_the_chord_is_no_barrier() -> None:
    found = curve(-0.3)
    assert found.barrier().value == found.barrier().high == 0
    assert found.excess().value.min() == pytest.approx(-0.3, rel=0.1)


def test_few_windows_give_no_interval() -> None:
    found = curve(0.7, windows=15)
    assert found.barrier().low is None
    assert found.drawn() is None
    assert report(found, curve(0.2, "all", 15)).relative("all").low is None


def test_stages_are_compared_on_the_same_windows() -> None:
    found = report(curve(1.0), curve(0.4, "all"))
    ratio, gap = found.relative("all"), found.difference("all", "none")
    assert ratio.value == pytest.approx(0.4)
    # Both curves rise and fall together in every window: paired, nothing is left of the noise.
    assert ratio.high - ratio.low < 1e-9
    assert gap.value == pytest.approx(-0.6, rel=0.1)
    assert gap.high < 0
    assert found.relative("heads") is None
    assert found.relative("all", to="heads") is None
    assert report(curve(0.0), curve(0.4, "all")).relative("all") is None


def test_unpaired_noise_stays() -> None:
    other = replace(curve(0.4, "all"), loss=curve(0.4).loss[:, ::-1])
    ratio = report(curve(1.0), other).relative("all")
    assert ratio.high - ratio.low > 0.01


def test_an_interval_is_that_of_the_highest_point_of_each_resample() -> None:
    """Windows are drawn with their places, the same for every t, and the top is sought anew."""
    windows, t = 40, grid(9)
    draw = np.random.default_rng(5)
    positions = draw.integers(5, 60, windows)
    loss = 1 + t[:, None] + draw.normal(size=(9, windows))
    loss[1:-1] += 0.2 + 3 / positions
    loss[-1] = 2 + draw.normal(size=windows)
    found = Curve("none", t, loss, 1 - loss / 10, positions, 0.5, complete=True)

    def top(chosen: np.ndarray) -> np.ndarray:
        weight = positions[chosen] / positions[chosen].sum()
        mean = loss[:, chosen] @ weight
        return mean - (1 - t) * mean[0] - t * mean[-1]

    every = top(np.arange(windows))
    again = np.random.default_rng(6)
    tops = [top(again.integers(windows, size=windows)) for _ in range(4000)]
    low, high = np.quantile([one.max() for one in tops], (0.025, 0.975))
    barrier = found.barrier()
    assert barrier.value == pytest.approx(every.max())
    assert float(barrier.low) == pytest.approx(low, abs=0.08 * (high - low))
    assert float(barrier.high) == pytest.approx(high, abs=0.08 * (high - low))
    fixed = np.quantile([one[every.argmax()] for one in tops], 0.025)
    assert fixed < low - 0.15 * (high - low)  # of the place that is the highest in all
    assert found.barrier("accuracy").value == pytest.approx(every.max() / 10)


def test_a_difference_and_a_ratio_are_of_the_stage_to_the_other() -> None:
    found = report(curve(1.0), curve(0.25, "all"))
    assert found.difference("all", "none").value == pytest.approx(
        -0.75 * found.curves[0].barrier().value
    )
    assert found.difference("none", "all").value > 0
    assert found.relative("all").value == pytest.approx(0.25)
    assert found.relative("none", to="all").value == pytest.approx(4)


def test_a_valley_is_how_far_below_the_chord_and_where() -> None:
    t, places = np.array([0, 0.25, 0.5, 1]), np.array([3, 1])
    loss = np.array([[1.0, 5], [1, 1], [1.5, 2.5], [2.0, 2]])
    found = Curve("none", t, loss, 1 - loss / 10, places, 0.5, complete=True)
    # Means 2, 1, 1.75, 2 against a chord of 2.
    depth, at = found.valley()
    assert (depth, at) == (pytest.approx(1.0), 0.25)
    assert found.excess().value == pytest.approx([0, -1, -0.25, 0])
    raised = replace(found, loss=loss + np.array([[0], [0], [2.0], [0]]))
    assert raised.valley() is None
    assert (raised.peak(), raised.barrier().value) == (0.5, pytest.approx(1.75))


def test_orders_are_ranked_by_how_many_are_better() -> None:
    heights = (0.5, 0.1, 0.3, 0.2)
    found = HeadOrders(
        "a", "b", 0, ((0, 1),) * 4, np.array([4.0, 1.0, 2.0, 3.0]), 2,
        tuple(curve(height, noise=0) for height in heights), curve(1.0), True, RUN, total=24,
    )  # fmt: skip
    assert found.ranks == (2, 3)
    assert found.count == 24
    assert replace(found, chosen=1).ranks == (1, 1)


def test_records_survive_the_store(tmp_path) -> None:
    store = Store(tmp_path)
    store.put("one", report(curve(1.0), curve(0.4, "all")))
    found = store.get("one")
    assert found.relative("all").value == pytest.approx(0.4)
    merged = MergeReport(
        "a", "b", ("f", "g"), "Llama", 0.5, "whole", False, curve(0.5, "all"), 3, "next token", RUN
    )
    store.put("two", merged)
    assert store.get("two").above == merged.above


@pytest.mark.parametrize("points", [3, 4, 5, 25, 26])
def test_a_grid_is_walked_coarse_first_and_whole(points: int) -> None:
    order = list(coarse_first(points))
    assert sorted(order) == list(range(1, points - 1))
    assert order[0] == (points - 1) // 2
    assert grid(points)[[0, -1]].tolist() == [0, 1]


def sampled(f, points: int = 25) -> dict[float, float]:
    """A curve measured as the engine measures one."""
    found = {float(t): f(float(t)) for t in grid(points)}
    for _ in range(EXTRA):
        t = next_point(found, 1 / (points - 1), 1e-3)
        if t is None:
            break
        assert t not in found
        found[t] = f(t)
    return found


@given(st.floats(0.1, 0.9), st.sampled_from(["cosine", "tent", "box"]), st.floats(1.5, 4.0))
def test_a_planted_bump_one_and_a_half_spacings_wide_is_found(
    middle: float, shape: str, width: float
) -> None:
    half = width / 24 / 2

    def bump(t: float) -> float:
        x = abs(t - middle) / half
        if x >= 1:
            return 0.0
        return {"cosine": 0.5 + 0.5 * np.cos(np.pi * x), "tent": 1 - x, "box": 1.0}[shape]

    def f(t: float) -> float:
        return 1 + 0.3 * t + bump(t)

    found = sampled(f)
    assert max(value - 1 - 0.3 * t for t, value in found.items()) > 0.9


def test_the_grid_alone_may_miss_its_height() -> None:
    middle, half = 0.5 + 0.5 / 24, 0.75 / 24
    even = [max(0.0, 1 - abs(t - middle) / half) for t in grid(25)]
    assert max(even) < 0.4


def test_smooth_curves_get_no_points() -> None:
    assert len(sampled(lambda t: 1 + t + 3 * t * (1 - t))) == 25
    assert len(sampled(lambda t: 1.0 + 0.0 * t)) == 25
    assert len(sampled(lambda t: 1 + 1e-5 * np.sin(40 * t))) == 25
    assert next_point({0.0: 1.0, 0.5: np.inf, 1.0: 1.0}, 0.5) is None


def test_a_step_takes_all_points_that_there_are() -> None:
    found = sorted(sampled(lambda t: float(t > 0.617)))
    assert len(found) <= 25 + EXTRA
    assert min(np.diff(found)) >= 1 / 24 / 16 - 1e-12


@pytest.mark.parametrize("shape", [(3, 7, 50), (3, 50)])
def test_marks_are_what_log_softmax_says(shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    said = 9 * torch.randn(shape, generator=draw)
    places = shape[1] if len(shape) == 3 else 1
    targets = torch.randint(-1, 50, (3, places), generator=draw)
    targets[:, 0] = torch.tensor([1, 2, 3])
    rows = said.double().view(3, places, 50).log_softmax(-1)
    each = -rows.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    right = rows.argmax(-1) == targets
    loss, accuracy = marks(said.clone(), targets)
    asked = targets >= 0
    for window in range(3):
        kept = asked[window]
        torch.testing.assert_close(loss[window], each[window, kept].mean(), atol=1e-7, rtol=1e-7)
        assert accuracy[window] == right[window, kept].double().mean()


def test_marks_of_no_number_are_infinite_losses() -> None:
    loss, accuracy = marks(torch.full((1, 2, 5), torch.nan), torch.zeros(1, 2, dtype=torch.int64))
    assert not loss.isfinite()
    assert accuracy == 0
