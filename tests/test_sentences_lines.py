"""Sentences on the line between two models word for word, on hills that can be followed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.sentences import barriers, lines
from engine.records import BarrierReport, Curve, MergeReport
from tests import fake_barriers
from tests.fake_barriers import hill

RAW, ALL = hill("none", 2, 2, 1), hill("all", 0.2, 0.6)
RANDOM = hill("random", 2.6, 3.4)


def line(*curves: Curve, **more: Any) -> BarrierReport:
    given = {"curves": curves, "grid": np.linspace(0, 1, 5)}
    return replace(fake_barriers.report(("none",)), **(given | more))


def few(curve: Curve) -> Curve:
    """The same curve on half as many windows: too few for an interval."""
    return replace(
        curve, loss=curve.loss[:, :8], accuracy=curve.accuracy[:, :8], positions=np.full(8, 127)
    )


RAN = (
    "Measured on 2,048 tokens of the demo models' own text in 16 windows, mean over all positions, "
    "on cpu in float32, 21 s."
)
LIMITS = (
    "Another text may say otherwise, and every model between the ends is a new function, low or "
    "not."
)


def test_a_line_is_told_in_nats_above_its_chord():
    found = barriers.told(line(RAW, ALL, RANDOM))
    assert found.headline == (
        "Raw line: 2 nats above the chord at t = 0.25; all coordinates: 0.4 [0.3, 0.5] (20 % of "
        "it, interval 15 to 25 %)."
    )
    assert found.text == (
        "A random gauge, the control: 3 [2.8, 3.2] nats, more than the raw line. With all "
        f"coordinates a hill is left: 0.4 [0.3, 0.5] nats. {RAN} {LIMITS}"
    )
    seen = barriers.told(line(RAW, ALL, RANDOM), "accuracy")
    assert seen.headline == (
        "Raw line: 0.4 below the chord in accuracy at t = 0.25; all coordinates: 0.08 [0.06, 0.1] "
        "(20 % of it, interval 15 to 25 %)."
    )
    assert seen.text == (
        "A random gauge, the control: 0.6 [0.56, 0.64] in accuracy, more than the raw line. With "
        f"all coordinates a hill is left: 0.08 [0.06, 0.1] in accuracy. {RAN} {LIMITS}"
    )
    alone = barriers.headline(line(ALL), "loss")
    assert alone == "All coordinates: 0.4 nats above the chord at t = 0.5."
    begun = line(replace(RAW, complete=False), replace(ALL, complete=False))
    assert barriers.headline(begun, "loss") == (
        "Raw line, partial: 2 nats above the chord at t = 0.25; all coordinates, partial: 0.4 "
        "[0.3, 0.5] (20 % of it, interval 15 to 25 %)."
    )


@pytest.mark.parametrize(
    ("curve", "text"),
    [
        (ALL, "With all coordinates a hill is left: 0.4 [0.3, 0.5] nats."),
        (
            hill("ffn", 0.0, 0.02),
            (
                "With FFN the text does not tell a hill from none: 0.01 [0.005, 0.015] nats, and "
                "0.01 counts as none."
            ),
        ),
        (
            hill("all", 0.002, 0.006),
            (
                "With all coordinates no hill was found on this text at 5 points: the interval "
                "ends at 0.005 nats, and up to 0.01 counts as none."
            ),
        ),
        (
            replace(ALL, complete=False),
            "With all coordinates points are missing: whether a hill is left is not known yet.",
        ),
        (
            few(ALL),
            (
                "With all coordinates the barrier has no interval: fewer than 16 windows; whether "
                "a hill is left is not told."
            ),
        ),
    ],
)
def test_whether_a_hill_is_left_follows_from_both_ends_of_its_interval(curve, text):
    assert barriers.hill(line(RAW, curve, RANDOM), "loss") == text


SAID = "A random gauge, the control: "


@pytest.mark.parametrize(
    ("curve", "of", "text"),
    [
        (hill("random", 0.8, 1.2), "loss", "1 [0.9, 1.1] nats, less than the raw line."),
        (hill("random", 1.0, 3.0), "loss",
         "2 [1.5, 2.5] nats, which the text does not tell from the raw line."),
        (few(RANDOM), "loss", "3 nats; no interval: fewer than 16 windows."),
        (hill("random", 0.8, 1.2), "accuracy",
         "0.2 [0.18, 0.22] in accuracy, less than the raw line."),
    ],
)  # fmt: skip
def test_the_control_is_more_or_less_than_the_raw_line_in_its_unit(curve, of, text):
    raw = few(RAW) if len(curve.positions) < 16 else RAW
    assert barriers.control(line(raw, curve), of) == SAID + text
    assert barriers.control(line(curve), of).startswith(SAID)


def test_rounding_is_no_hill_of_a_model_with_itself():
    """(1 − t) x + t x differs from x in its last digit."""
    raw = replace(RAW, loss=np.full((5, 16), 1.3), t=np.array([0, 0.3, 0.5, 0.75, 1]))
    assert 0 < float(raw.barrier().value) < 1e-15
    alone = line(raw, replace(raw, stage="all"), fingerprints=("a" * 16,) * 2)
    assert barriers.headline(alone, "loss") == (
        "Raw line: nowhere worse than its chord; all coordinates: 0."
    )
    assert barriers.same(alone) == "A and B are the same weights: the raw line is a single point."
    assert barriers.same(replace(alone, scrambled=True)) == ""


def test_a_scope_tells_its_part_and_the_other_ends():
    part = {"scope": "3-5", "moved": (1, 8), "shared": False}
    assert barriers.moved(line(RAW, ALL, **part, using="weights")) == (
        "Only layers 3-5 is interpolated, 12 % of the numbers. Elsewhere A and B differ, and A's "
        "tensors stay: the other end of the line is not B. Each stage has its own other end, with "
        "a loss of 2 to 2 nats: percentages compare barriers over two chords, each its own."
    )
    low = replace(ALL, loss=ALL.loss - ALL.t[:, None] / 2)
    assert barriers.other_ends(line(RAW, low, **part)) == (1.5, 2.0)
    assert barriers.other_ends(line(RAW, low, **part | {"shared": True})) is None
    assert barriers.moved(line(RAW, **part | {"scope": "all-attention", "shared": True})) == (
        "Only the attention of every layer is interpolated, 12 % of the numbers. A and B are equal "
        "elsewhere."
    )


def test_what_a_run_costs_is_told_with_every_unit():
    one = replace(fake_barriers.estimate(7200), tokens=1, windows=1, models=1)
    assert barriers.cost(one) == (
        "1 token of the demo models' own text in 1 window; 1 model is run on all of it, about 2.0 "
        "h on cpu. The alignment and points that are added where a curve bends come on top."
    )
    assert barriers.cost(fake_barriers.estimate()) == (
        "2,048 tokens of the demo models' own text in 16 windows; 163 models are run on all of it, "
        "about 42 s on cpu. The alignment and points that are added where a curve bends come on "
        "top."
    )


def test_an_ablation_tells_parts_of_the_raw_line_and_which_is_lower():
    heads, turned = hill("heads", 1, 1), hill("orthogonal", 0.7, 0.7)
    assert barriers.ablation(line(RAW, heads, turned, ALL)) == (
        "Against the raw line's barrier: head order 50 % of it, interval 50 to 50 %; orthogonal "
        "inside heads 35 % of it, interval 35 to 35 %; all coordinates 20 % of it, interval 15 to "
        "25 %. All minus orthogonal: -0.3 [-0.4, -0.2] nats: all is lower on this text."
    )
    assert barriers.ablation(line(RAW, hill("orthogonal", 0.1, 0.1), ALL)).endswith(
        "All minus orthogonal: 0.3 [0.2, 0.4] nats: orthogonal is lower on this text."
    )
    assert barriers.ablation(line(RAW, hill("orthogonal", 0.4, 0.4), ALL)).endswith(
        "nats: the interval holds 0, so no order is told."
    )
    assert barriers.ablation(line(*map(few, (RAW, turned, ALL)))) == (
        "Against the raw line's barrier: orthogonal inside heads 35 % of it; all coordinates 20 % "
        "of it. All minus orthogonal: -0.3 nats; no interval: fewer than 16 windows, so no order "
        "is told."
    )
    assert barriers.ablation(line(RAW, complete=False)) == "The other stages are still to come."
    assert barriers.gauge(line(hill("orders", 1, 1), ALL)) == (
        "B under a random gauge, then aligned. permutations only: 1 [1, 1] nats above the chord at "
        "its peak; all coordinates: 0.4 [0.3, 0.5] nats above the chord at its peak."
    )


def test_before_a_line_is_measured_its_models_are_named():
    found = barriers.waiting(("base", "twin"))
    assert (found.headline, found.badge) == (
        "Whether there is a hill between them has not been measured.", "not measured")  # fmt: skip
    assert found.text == (
        "The loss of every model (1 − t) A + t B between base and twin is measured, with B as it "
        "is and in A's coordinates, stage by stage."
    )
    none = barriers.apart(("width 96 against 128", "layers 6 against 5"))
    assert none.text == "A and B differ in width 96 against 128; layers 6 against 5."


def merge(own: float, merged: float, other: float, t: float = 0.25, **more: Any) -> MergeReport:
    """Losses of A, of a merge and of B, the same in 16 windows; accuracies are their inverses."""
    loss = np.repeat([[own], [merged], [other]], 16, 1)
    given = {"t": np.array([0, t, 1]), "loss": loss, "accuracy": 1 / loss, "distance": 1.0}
    return replace(fake_barriers.merge(), t=t, curve=replace(ALL, **(given | more)))


NEW = (
    "It is a new function: it computes neither what A does nor what B does; in the worst window of "
    "16 its loss differs by {} from A's (broken) and by {} from the other end's ({}), relative."
)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            merge(1.0, 1.5, 2.0),
            (
                "At t = 0.25, all coordinates: loss 1.5 [1.5, 1.5] nats, 0.25 above the chord "
                "between 1 and 2; accuracy 0.667 [0.667, 0.667]. "
                f"{NEW.format(0.5, 0.25, 'broken')}"
            ),
        ),
        (
            merge(1.0, 1.25, 4.0, 0.5),
            (
                "At t = 0.5, all coordinates: loss 1.25 [1.25, 1.25] nats, 1.25 below the chord "
                f"between 1 and 4; accuracy 0.8 [0.8, 0.8]. {NEW.format(0.25, 0.69, 'broken')}"
            ),
        ),
        (
            merge(1.0, 2.0, 2.0, 0.5),
            (
                "At t = 0.5, all coordinates: loss 2 [2, 2] nats, 0.5 above the chord between 1 "
                "and 2; accuracy 0.5 [0.5, 0.5]. It computes what the other end does: in the "
                "worst window of 16 its loss differs by 1 from A's (broken) and by 0 from the "
                "other end's (exact), relative."
            ),
        ),
        (
            merge(2.0, 2.0, 2.0, 0.5, distance=3e-8),
            (
                "At t = 0.5, all coordinates: loss 2 [2, 2] nats, 0 above the chord between 2 and "
                "2; accuracy 0.5 [0.5, 0.5]. It computes what A and the other end do: in the "
                "worst window of 16 its loss differs by 0 from A's (exact) and by 0 from the "
                "other end's (exact), relative. A and the other end have the same weights here, "
                "to 3.0e-8: so has every merge of them."
            ),
        ),
    ],
)
def test_a_merge_is_told_by_its_loss_beside_those_of_its_ends(record, text):
    assert lines.merged(record) == text


def test_a_plane_is_told_from_its_lowest_loss_to_its_highest():
    loss = np.array([[1.5, 3.25], [np.nan, 2.0]])
    places = np.array([[0.1, 0.2], [1.1, 0.2], [0.4, 0.6]])
    record = replace(fake_barriers.plane(3), loss=loss, places=places, stage="heads")
    assert lines.plane(record) == (
        f"Loss from 1.5 to 3.25 nats. B at the stage heads is 50 % as far from A as B is. {RAN}"
    )
    part = replace(record, complete=False, scope="3-5")
    assert lines.plane(part) == (
        "Partial: 3 of 4 points. Loss from 1.5 to 3.25 nats. B at the stage heads is 50 % as far "
        f"from A as B is, over layers 3-5 alone. {RAN}"
    )
    assert lines.plane(replace(record, loss=loss * np.nan)) == (
        "No point of the plane was measured yet."
    )


def test_a_stage_that_does_not_move_b_spans_no_plane():
    moved = replace(ALL, stage="heads", distance=0.5)
    report = line(ALL, moved)  # no raw line: B is at the distance 1 as it was
    assert lines.spanning(report, "all") == "heads"
    assert lines.flat(report, "all", "heads") == (
        "With the stage all, B stands as it was: three models on one line span no plane. Taken is "
        "the stage heads; others can be chosen under Stage that writes."
    )
    near = line(replace(RAW, distance=2.0), replace(ALL, distance=2e-4), moved)
    assert lines.flat(near, "all", "heads").startswith(
        "With the stage all, B stands where A does (distance 2.0e-4): three models on one line "
    )
    assert lines.flat(near, "all", "") == (
        "No plane: at every stage that was measured, B stands where A does or as it was. Choose "
        "another pair, or measure more stages under What is measured."
    )


def test_an_order_of_heads_is_told_with_both_ranks():
    curves = tuple(hill("all", low, low) for low in (0.5, 0.25, 0.75))
    record = replace(
        fake_barriers.orders(), orders=((0, 1), (1, 0), (1, 2)), chosen=2, curves=curves,
        objective=np.array([3.0, 2.0, 2.5]),
    )  # fmt: skip
    assert lines.orders(record) == (
        "Taken: order 1 2, barrier 0.75 [0.75, 0.75] nats; rank 2 of 3 by what Stage 2 leaves, "
        "rank 3 by the measured barrier. The lowest, order 1 0, has 0.25."
    )
    short = replace(record, chosen=1, curves=tuple(map(few, curves)))
    assert lines.orders(short) == (
        "Taken: order 1 0, barrier 0.25 nats; rank 1 of 3 by what Stage 2 leaves, rank 1 by the "
        "measured barrier. No order has a lower barrier. No interval: fewer than 16 windows."
    )
    texts = fake_barriers.writing((0.0, 0.25, 0.5, 0.75))
    texts = replace(texts, same=(24, 0, 1, 7))
    assert [lines.written(texts, n) for n in range(4)] == [
        "A itself", "parts from A at once", "the first 1 token is as A's",
        "the first 7 tokens are as A's",
    ]  # fmt: skip
    assert lines.too_many(1, 1) == "A layer has one head, and that has one order."
    assert lines.too_many(9, 362_880).startswith(
        "9 heads have 362,880 orders, too many to solve Stage 2 for: orders are tried up to "
    )
    assert lines.orders_to_try(24, 24, 0) == "All 24 orders of layer 0."
    assert lines.orders_to_try(1296, 72, 3) == (
        "72 of the 1,296 orders of layer 3: the alignment's, others at random."
    )
