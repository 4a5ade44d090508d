"""What the commands on a line print and write, from planted records: no model runs here."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine.exports import documents
from engine.exports import line as exports
from engine.exports.documents import written
from engine.line.head_orders import taken
from engine.questions import Slice
from engine.records import BarrierReport, Curve
from engine.summaries import line as summaries
from engine.summaries.layers import interval, said
from tests import fake_barriers as fakes


def printed(*curves: Curve, classes: int = 0) -> list[str]:
    return list(summaries.of_barrier(report(*curves, classes=classes)))


def report(*curves: Curve, classes: int = 0) -> BarrierReport:
    return replace(fakes.report(("none",)), curves=curves, classes=classes)


def hill(height: float, stage: str = "none") -> Curve:
    return fakes.curve(stage, height, t=fakes.grid(5))


@pytest.mark.parametrize(
    ("height", "valley"), [(-0.3, True), (0.3, False), (0.0, False), (-2e-7, False)]
)
def test_a_valley_is_no_barrier_of_nothing(height: float, valley: bool) -> None:
    one = hill(height)
    assert (one.valley() is not None) == valley
    (line,) = (text for text in printed(one) if text.startswith("none"))
    assert ("a valley, below its chord everywhere, by 0.304 nats at t = 0.5" in line) == valley
    assert ("nats at t = 0.500" in line) == (height > 0)
    assert ("no barrier" in line) == (height <= 0)


def test_a_curve_that_crosses_its_chord_is_no_valley() -> None:
    one = hill(-0.3)
    loss = one.loss.copy()
    loss[1] += 1.0
    assert replace(one, loss=loss).valley() is None


def test_the_loss_of_both_ends_is_printed_and_a_blind_guess_beside_it() -> None:
    loss = hill(0.3).points("loss").value
    assert f"loss of A {loss[0]:.4f} nats, of B {loss[-1]:.4f}" in printed(hill(0.3))[1]
    told = {n: "\n".join(printed(hill(0.3), classes=n)) for n in (0, 2, 3, 300)}
    assert "less than A and B:" in told[2]  # ln 2 = 0.69: below 1.0 and 1.4
    assert "less than B:" in told[3]  # ln 3 = 1.10: between
    assert not any("knows nothing" in told[n] for n in (0, 300))
    assert report(hill(0.3), classes=300).blind == pytest.approx(np.log(300))


def test_ratios_of_rounding_are_not_printed() -> None:
    assert "of none" in "\n".join(printed(hill(0.3), hill(0.1, "all")))
    assert "of none" not in "\n".join(printed(hill(3e-17), hill(0.1, "all")))
    assert "accuracy falls by" in printed(hill(0.3))[2]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (3e-17, ".4g", "0"), (-3e-17, ".4g", "0"), (0.0, ".4g", "0"), (2e-5, ".4g", "2e-05"),
        (-1e-6, ".4f", "0.0000"), (-0.2, ".4f", "-0.2000"), (4e-17, "+.1f", "+0.0"),
        (1.25, "+.1f", "+1.2"),
    ],
)  # fmt: skip
def test_what_rounding_leaves_is_zero(value: float, digits: str, text: str) -> None:
    assert said(value, digits) == text
    assert interval(documents.Measure(np.asarray(value)), digits=digits) == text


@pytest.mark.parametrize(("above", "told"), [(0.2, "0.2019 above"), (-0.2, "0.2019 below"),
                                             (-1e-6, "on"), (0.0, "on")])  # fmt: skip
def test_a_merge_stands_above_on_or_below_the_chord(above: float, told: str) -> None:
    (first, *_) = summaries.of_merge(fakes.merge(hill=above))
    assert f", {told} the chord between" in first


def test_the_lowest_of_a_plane_may_be_a_model_itself() -> None:
    grid = fakes.plane()
    with_models = replace(grid, models=np.array([0.5, 3.0, 0.6]))
    assert grid.lowest[0] == grid.loss.min() > 0.5
    assert with_models.lowest == (0.5, 0.0, 0.0)
    assert with_models.measured == grid.measured + 3 == 11 * 11 + 3
    lines = list(summaries.of_slice(with_models))
    assert lines[0] == "A         at 0.000, 0.000, loss 0.5000 nats"
    assert "lowest of the 124 models measured 0.5000 nats at 0.000, 0.000" in lines[3]
    assert replace(grid, models=np.full(3, 9.0)).lowest == grid.lowest


def test_the_rank_of_the_chosen_order_is_explained_where_it_is_not_the_first() -> None:
    best, other = fakes.orders(), fakes.orders(chosen=3)
    told = {one.chosen: "\n".join(summaries.of_orders(one)) for one in (best, other)}
    assert ("another order can have a lower one" in told[3]) and "another order" not in told[0]
    assert "B's heads as they stand 1.5202" in told[0]
    assert "drawn at random" not in told[0]
    some = replace(best, total=1296)
    assert "6 of 1,296 orders: the chosen one, and others drawn at random" in "\n".join(
        summaries.of_orders(some)
    )
    assert (best.count, some.count) == (6, 1296)


@pytest.mark.parametrize("mine", [0, 700, 1295])
def test_of_many_orders_the_chosen_one_and_others_run(mine: int) -> None:
    found = taken(1296, mine)
    assert found == sorted(set(found)) == taken(1296, mine)
    assert len(found) == 72 and mine in found and max(found) < 1296
    assert taken(72, 3) == list(range(72))


def broken(value: float) -> list[dict]:
    """Documents of records that hold this number in many places."""
    one = hill(0.3)
    bad = replace(one, loss=np.full_like(one.loss, value), distance=value)
    plane, orders = fakes.plane(complete=False), fakes.orders()
    merge = fakes.merge()
    return [
        exports.of_barrier(report(bad, classes=3)),
        exports.of_merge(replace(merge, curve=replace(merge.curve, loss=bad.loss[:3]))),
        exports.of_slice(replace(plane, length=value)),
        exports.of_orders(replace(orders, naive=bad, curves=(bad,) * 6)),
    ]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_document_holds_what_json_does_not_know(value: float) -> None:
    for document in broken(value):
        text = json.dumps(document, allow_nan=False)
        assert "NaN" not in text
    with pytest.raises(ValueError, match="not JSON compliant"):
        json.dumps({"x": value}, allow_nan=False)
    known = {"x": (value, 1.5), "y": np.float64(value)}
    told = None if np.isnan(value) else "Infinity"
    assert json.loads(written(known)) == {"x": [told, 1.5], "y": told}


def test_a_document_says_what_made_it() -> None:
    asked = Slice("demo:base", "demo:seed-1", points=3, seed=4)
    found = documents.made({"loss": 1.0}, asked)
    assert found["loss"] == 1.0
    told = json.loads(written(found))["question"]
    assert (told["name"], told["points"], told["seed"]) == ("Slice", 3, 4)
    assert told["command"] == asked.command and told["key"] == asked.key
    assert told["fingerprints"] == [one.fingerprint for one in asked.checkpoints]
