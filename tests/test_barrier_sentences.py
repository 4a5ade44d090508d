"""What the Barrier page says: only what was measured, and never that there is no hill unseen."""

from dataclasses import replace

import numpy as np
import pytest

from app.sentences import barriers as sentences
from app.sentences import lines
from engine.questions.line import ABLATION, MERGING
from engine.records import BarrierReport
from engine.summaries import line as summaries
from tests import fake_barriers as fake

NONE = "no hill was found"


def said(report: BarrierReport, of: str = "loss") -> str:
    verdict = sentences.told(report, of)
    return f"{verdict.headline} {verdict.text}"


def ended(low: float, high: float, value: float | None = None) -> BarrierReport:
    """A last stage whose barrier differs from window to window between two heights."""
    report = fake.report(("none", "all"))
    raw, last = report.curves
    t = last.t
    heights = np.where(np.arange(16) % 2 == 0, low, high) if value is None else np.full(16, value)
    loss = 1 + np.sin(np.pi * t)[:, None] * heights
    return replace(report, curves=(raw, replace(last, loss=loss)))


def test_the_headline_gives_both_lines_the_share_and_its_interval():
    report = fake.report()
    raw, last = (float(report.curve(stage).barrier().value) for stage in ("none", "all"))
    head = sentences.told(report).headline
    assert head.startswith(f"Raw line: {raw:.3g} nats above the chord at t = 0.5; all coordinates:")
    assert f"all coordinates: {last:.3g} [" in head
    assert "(19 % of it, interval " in head
    assert "at t" not in head.partition("all coordinates")[2]


def test_accuracy_is_told_as_a_depth_below_its_chord():
    report = fake.report()
    assert "below the chord in accuracy at t = " in sentences.told(report, "accuracy").headline
    assert "nats" not in sentences.told(report, "accuracy").headline


def test_the_last_step_counts_and_the_control_never_does():
    assert sentences.last(fake.report()).stage == "all"
    assert sentences.last(fake.report(("none", "random"))) is None
    assert sentences.last(fake.report(("none", "all", "refined", "random"))).stage == "refined"
    head = sentences.told(fake.report(("none", "random"))).headline
    assert head.count(";") == 0 and head.startswith("Raw line: ")


def test_a_twin_has_no_hill_on_this_text_and_the_small_number_is_stated():
    told = said(fake.twin())
    assert f"With all coordinates {NONE} on this text at 25 points: the interval ends at" in told
    assert f"up to {sentences.SMALL} counts as none" in told
    assert "below 0.01 % of it" in told
    assert "Another text may say otherwise" in told


@pytest.mark.parametrize(
    ("report", "instead"),
    [
        (fake.report(), "a hill is left: 0.6"),
        (ended(0.0, 0.03), "the text does not tell a hill from none"),
        (ended(0, 0, 0.5), "a hill is left: 0.5"),
        (fake.partial(), "whether a hill is left is not known yet"),
        (replace(fake.twin(), curves=tuple(
            replace(one, complete=False) for one in fake.twin().curves)), "points are missing"),
        (fake.report(windows=8, hills={"all": 1e-7}), "whether a hill is left is not told"),
    ],
)  # fmt: skip
def test_no_hill_is_claimed_only_where_the_interval_ends_below_the_small_number(report, instead):
    told = said(report)
    assert instead in told
    assert NONE not in told


def test_a_barrier_at_the_edge_is_told_by_its_interval_alone():
    assert NONE in said(ended(0, 0, 0.99 * sentences.SMALL))
    assert NONE not in said(ended(0, 0, 1.01 * sentences.SMALL))


def test_half_way_alone_is_not_the_whole_line():
    told = said(fake.report(points=3, hills={"all": 1e-7}))
    assert f"{NONE} on this text half way" in told
    assert "Only t = 0, ½ and 1 were measured: a hill elsewhere would not be seen." in told
    assert "½" not in said(fake.report(points=5))


@pytest.mark.parametrize("of", ["loss", "accuracy"])
def test_nobody_is_called_connected(of):
    every = (fake.report(), fake.twin(), fake.partial(), fake.scoped(), fake.report(windows=8))
    for report in every:
        told = said(report, of)
        assert not [word for word in ("connect", "valley", "basin") if word in told.lower()]
        assert not [word for word in ("exact", "approximate", "broken") if word in told.lower()]


def test_the_control_is_compared_with_the_raw_line_window_by_window():
    assert "more than the raw line" in sentences.control(fake.report(hills={"random": 4.5}), "loss")
    assert "less than the raw line" in sentences.control(fake.report(hills={"random": 1.0}), "loss")
    level = fake.report(("none", "random"))
    level = replace(level, curves=(level.curves[0], replace(level.curves[0], stage="random")))
    assert "which the text does not tell from the raw line" in sentences.control(level, "loss")
    assert "no interval" in sentences.control(fake.report(windows=8), "loss")
    assert sentences.control(fake.report(("none", "all")), "loss") == ""


def test_a_scope_says_what_moves_and_what_the_other_end_is():
    shared = said(fake.scoped())
    assert "Only the attention of the first layer is interpolated, 6.2 % of the numbers" in shared
    assert "A and B are equal elsewhere." in shared
    assert "matched by their weights; from activations, what they do counts as well" in shared
    heard = said(replace(fake.scoped(), using="activations"))
    assert "heads by what they look at and say" in heard and "by their weights" not in heard
    assert "matched by" not in said(fake.scoped(shared=False)) + said(fake.report())
    for report in (fake.scoped(shared=False), fake.report()):
        other = said(replace(report, using="activations"))
        assert "matched by activations, what is inside layers by weights." in other
    assert "the other end of the line is not B" in said(fake.scoped(shared=False))
    assert "interpolated" not in said(fake.report())
    assert sentences.scope("3-5") == "layers 3-5" and sentences.scope("2") == "layer 2"


def test_a_model_against_itself_is_a_point():
    alone = replace(fake.report(("none",), hills={"none": 0.0}), fingerprints=("a" * 16,) * 2)
    assert "A and B are the same weights" in said(alone)
    assert 0 < alone.curves[0].barrier().value < 1e-15  # rounding
    assert sentences.headline(alone, "loss") == "Raw line: nowhere worse than its chord."
    assert "same weights" not in said(replace(alone, scrambled=True))


def test_what_is_asked_for_is_said_where_it_is_no_next_token():
    assert "hidden tokens" in said(fake.report(target="hidden token"))
    assert "A and B together hold for the likeliest" in said(fake.report(target="likeliest class"))
    assert "asked for" not in said(fake.report())


def test_a_partial_record_has_its_badge():
    assert sentences.told(fake.partial()).badge == "partial"
    assert sentences.told(fake.report()).badge == ""
    first = replace(fake.partial(), curves=(fake.curve("none", complete=False),))
    assert sentences.told(first).headline.startswith("Raw line, partial: 3.2")
    assert "Raw line: " in sentences.told(fake.partial()).headline
    begun = replace(fake.partial(), curves=())
    assert sentences.told(begun).headline == "No stage of the line was measured yet."


def test_the_cost_is_told_in_tokens_windows_models_and_seconds():
    told = sentences.cost(fake.estimate(42.0))
    assert told.startswith("2,048 tokens of the demo models' own text in 16 windows; 163 models")
    assert "about 42 s on cpu" in told
    assert "The alignment" in told


def test_the_ablation_tells_an_order_only_where_the_interval_leaves_out_0():
    apart = sentences.ablation(fake.report(ABLATION, hills={"orthogonal": 0.9, "all": 0.6}))
    assert "head order 41 % of it" in apart and "all is lower on this text" in apart
    near = sentences.ablation(fake.report(ABLATION, hills={"orthogonal": 0.6, "all": 0.6}))
    assert "the interval holds 0, so no order is told" in near
    other = sentences.ablation(fake.report(ABLATION, hills={"orthogonal": 0.3, "all": 0.6}))
    assert "orthogonal is lower on this text" in other
    assert "so no order is told" in sentences.ablation(fake.report(ABLATION, windows=8))
    flat = sentences.ablation(fake.report(ABLATION, hills={"none": 1e-9}))
    assert flat == "The raw line has no barrier that another could be a part of."
    assert sentences.ablation(fake.report(("all",))) == "Not measured yet."


def test_a_hidden_gauge_is_told_for_both_alignments():
    told = sentences.gauge(fake.report(MERGING, hills={"all": 1e-7}))
    assert "permutations only: 3" in told and "all coordinates: 1" in told
    assert sentences.gauge(replace(fake.report(MERGING), curves=())) == "Not measured yet."


@pytest.mark.parametrize(("hill", "side"), [(0.6, "above"), (-0.2, "below")])
def test_a_merge_has_its_loss_and_is_called_a_new_function(hill, side):
    told = lines.merged(fake.merge(hill=hill))
    assert f"{side} the chord between 1 and 1.4;" in told
    assert "It is a new function: it computes neither what A does nor what B does; " in told
    assert "no interval" not in told
    assert "no interval" in lines.merged(fake.merge(windows=8))


def measured(rows, **changed):
    """A merge whose losses are some rows of the usual one's, times a factor in one window."""
    found = fake.merge()
    loss = found.curve.loss[list(rows)].copy()
    loss[1, 3] *= changed.pop("factor", 1.0)
    return replace(found, curve=replace(found.curve, loss=loss, **changed))


@pytest.mark.parametrize("say", [lines.function, summaries.computed])
def test_what_a_merge_computes_is_told_by_its_loss_in_every_window(say):
    both = measured((0, 0, 0), factor=1 + 1e-6)
    assert "computes what A and the other end do" in say(both) and say(both).count("(exact)") == 2
    assert "1e-06 from A's" in say(both) or "1.0e-6 from A's" in say(both)
    assert "computes what A does" in say(measured((0, 0, 2)))
    assert "computes what the other end does" in say(measured((0, 2, 2)))
    one = measured((0, 0, 0), factor=1 + 2e-4)  # in a single window, where the mean hides it
    assert "new function" in say(one) and "exact" not in say(one)
    assert "new function" in say(fake.merge())
    assert "new function" in say(measured((0, 0, 0), factor=np.inf))


def test_a_merge_of_equal_weights_or_at_an_end_is_called_no_new_one():
    told = lines.merged(measured((0, 0, 0), distance=2e-8))
    assert "have the same weights here, to 2.0e-8: so has every merge of them" in told
    assert "new function" not in told
    assert "same weights" not in lines.merged(measured((0, 0, 0)))
    at_end = replace(fake.merge(), t=1.0)
    assert "It is the other end itself, not a merge." in lines.merged(at_end)
    assert "It is A itself" in lines.merged(replace(at_end, t=0.0))
    assert summaries.computed(at_end) == "this is the other end itself, not a merge"


def test_a_plane_is_told_by_its_ends_and_by_how_near_aligned_b_is():
    told = lines.plane(fake.plane())
    assert "B at the stage all is 58 % as far from A as B is." in told
    assert lines.plane(fake.plane(complete=False)).startswith("Partial: 55 of 121 points.")


def test_the_taken_order_is_ranked_by_cost_and_by_barrier():
    assert "rank 1 of 6 by what Stage 2 leaves, rank 1 by the measured barrier" in (
        lines.orders(fake.orders())
    )
    assert "No order has a lower barrier." in lines.orders(fake.orders())
    other = lines.orders(fake.orders(chosen=2))
    assert "Taken: order 1 0 2" in other and "rank 3 by the measured barrier" in other
    assert "The lowest, order 0 1 2, has 0.2" in other
    assert lines.orders(fake.orders(measured=4)) == "Partial: 4 of 6 orders measured."


def test_a_text_is_told_by_how_long_it_stays_with_a():
    record = fake.writing()
    assert lines.written(record, 0) == "A itself"
    assert lines.written(record, 1) == "the first 3 tokens are as A's"
    assert lines.written(replace(record, same=(24, 0, 1)), 1) == "parts from A at once"
    assert lines.written(replace(record, same=(24, 0, 1)), 2) == "the first 1 token is as A's"


def test_a_plane_needs_a_stage_that_leaves_the_line():
    """Known before it is measured: B aligned onto A spans no plane, and the next stage does."""
    report = fake.twin(("none", "heads", "all", "random"))
    moved = {"none": 1.39, "heads": 0.66, "all": 5.2e-8, "random": 1.47}
    curves = tuple(replace(one, distance=moved[one.stage]) for one in report.curves)
    twins = replace(report, curves=curves)
    assert lines.spanning(twins, "heads") == "heads"
    assert lines.spanning(twins, "all") == lines.spanning(twins, "none") == "heads"
    told = lines.flat(twins, "all", "heads")
    assert "With the stage all, B stands where A does (distance 5.2e-8)" in told
    assert "Taken is the stage heads" in told
    assert "B stands as it was" in lines.flat(twins, "none", "heads")
    still = tuple(replace(one, distance=1.39) for one in curves[:3])
    assert lines.spanning(replace(report, curves=still), "all") == ""
    assert lines.flat(twins, "all", "").startswith("No plane")
    same = tuple(replace(one, distance=0.0 if one.stage == "none" else 1.0) for one in curves)
    assert lines.spanning(replace(report, curves=same), "random") == ""


def test_every_stage_with_an_end_of_its_own_is_said_of_its_percentages():
    apart, joined = fake.scoped(shared=False), fake.scoped()
    told = sentences.told(apart).text
    assert "Each stage has its own other end, with a loss of 1.4 to 7.4 nats" in told
    assert "its own other end" not in sentences.told(joined).text
    assert sentences.own_chords(apart) and not sentences.own_chords(joined)
    assert not sentences.own_chords(fake.report())


def test_the_bundled_text_is_named_in_words_whatever_a_record_calls_it():
    older = "bundled text (calibration, then CPython's topics if more is asked), 3% unknown"
    said = sentences.told(fake.report(run=fake.run(text=older))).text
    assert "of bundled English text (where it ends, Python's help topics), 3% unknown in" in said
    assert "calibration" not in said
