"""Sentences on models and pairs word for word, on records that can be followed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest

from app.sentences import (
    alignments,
    distances,
    experiments,
    findings,
    inventory,
    lineage,
    links,
    numbers,
    verdicts,
    words,
)
from engine.records import (
    AlignmentProgress,
    AlignmentReport,
    Assignment,
    Connectivity,
    Effect,
    LayerStage,
    LineageTest,
    Midpoint,
    Relatedness,
    ResidualMatch,
    ScopeRatios,
    Sweep,
    Truth,
)
from tests import fake_alignments, fakes

CARDS = fakes.model_card(), fakes.model_card("twin", "b" * 16)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.001, 2, "0.001"), (0.00099, 2, "9.9e-4"), (-0.25, 2, "-0.25"), (0.0994, 2, "0.099"),
        (99.4, 2, "99"), (99.6, 2, "100"), (-99.6, 2, "-100"), (101.4, 2, "101"),
        (50.44, 3, "50.4"), (999.6, 3, "1,000"),
        (12_345.6, 2, "12,346"), (99_999, 2, "99,999"), (1e5, 2, "1.0e5"),
        (1.25e-7, 3, "1.25e-7"), (float("inf"), 2, "∞"),
    ],
)  # fmt: skip
def test_a_number_has_so_many_digits_and_no_more(value: float, digits: int, text: str):
    assert numbers.number(value, digits) == text


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (1.0, 2.0, ("1", "2")), (19.31, 19.38, ("19.3", "19.4")), (0.5, 0.5, ("0.5", "0.5")),
        (1.23456, 1.23412, ("1.235", "1.234")),
        (1.23421, 1.23412, ("1.2342", "1.2341")), (2.00001, 2.00002, ("2", "2")),
    ],
)  # fmt: skip
def test_two_numbers_have_as_many_digits_as_tell_them_apart(one, other, told):
    assert numbers.apart(one, other) == told


def test_times_sizes_and_counts_change_their_unit_where_it_is_read_better():
    assert [numbers.seconds(x) for x in (0, 89, 90, 5399, 5400)] == [
        "1 s", "89 s", "2 min", "90 min", "1.5 h"]  # fmt: skip
    assert [numbers.size(x) for x in (999, 1000, 99e6, 1e8, 2e9)] == [
        "999 bytes", "1.0 kB", "99.0 MB", "0.1 GB", "2.0 GB"]  # fmt: skip
    assert [numbers.count(n, "layer") for n in (0, 1, 2, 4321)] == [
        "0 layers", "1 layer", "2 layers", "4,321 layers"]  # fmt: skip
    assert numbers.count(1, "is", "are") == "1 is" and numbers.count(2, "is", "are") == "2 are"


def test_what_records_of_before_read_has_the_name_of_today():
    older = "bundled text (calibration, then CPython's topics if more is asked), 3% unknown"
    assert numbers.named(older) == (
        "bundled English text (where it ends, Python's help topics), 3% unknown"
    )


def test_a_model_is_described_in_five_lines(monkeypatch):
    assert words.describe(fakes.model_card()) == (
        "Llama · 6 layers · width 96",
        "6 heads / 2 kv of 16 · FFN 256 silu",
        "RMSNorm · rotary, pairs (i, i + n/2), base 10000 · tied embeddings · vocabulary 640",
        "650,000 parameters · float32 · 2.6 MB on disk",
        "fingerprint aaaaaaaaaaaa",
    )
    other = replace(
        fakes.model_card(), layers=1, width=4096, kv_heads=6, ffn=11_008, experts=8, tied=False
    )
    assert words.describe(other)[:2] == (
        "Llama · 1 layer · width 4,096",
        "6 heads of 16 · FFN 11,008 silu in each of 8 experts",
    )
    assert "· untied embeddings ·" in words.describe(other)[2]
    free = type("Memory", (), {"available": 3_500_000_000})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    one, two = (replace(other, parameters=n * 10**9) for n in (1, 2))
    assert words.memory(one, two) == "Needs about 12.0 GB; 3.5 GB are free."


def aligned(
    left: float = 0.5, taken: tuple[float, ...] = (9.0, 1.0, -0.25), **more: Any
) -> AlignmentReport:
    """Two tensors of lengths 3 and 4, at relative distances 1 and 0.5: Σ ‖A − B‖² is 9 + 4."""
    names = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight")
    where = ((None, "res"), (0, "ffn"), (0, "rot"))
    steps = tuple(
        LayerStage(layer, what, 1.0, 0.5, None, part)
        for (layer, what), part in zip(where, taken, strict=True)
    )
    given = {
        "tensors": names, "before": np.array([1.0, 0.5], np.float32),
        "after": np.array([0.0, left], np.float32) / 2, "norms": np.array([3.0, 4.0], np.float32),
        "steps": steps,
    }  # fmt: skip
    return replace(fakes.alignment(), **(given | more))


def test_the_distance_of_all_weights_is_weighed_by_their_lengths():
    far = "Relative distance of all weights 0.72 as the files stand, 0.2 after alignment."
    assert distances.distance(aligned()).told == far  # √(13/25) and √(16 · 0.25² / 25)
    old = distances.distance(aligned(norms=None))
    assert old.told == (
        "Mean relative distance of the tensors 0.75 as the files stand, 0.12 after alignment."
    )
    assert (old.before, old.after) == (0.75, 0.125)
    assert distances.Distance("", 1.0, 0.999).nearer
    assert not distances.Distance("", 1.0, 1.0 - 1e-7).nearer
    assert not distances.Distance("", 1.0, 1.1).nearer
    close = distances.Distance("Far", 0.7000, 0.7004).told
    assert close == "Far 0.7 as the files stand, 0.7004 after alignment."


FAR = "Relative distance of all weights 0.72 as the files stand, {} after alignment. "


@pytest.mark.parametrize(
    ("report", "verdict", "text"),
    [
        (
            aligned(1.0, (9.0, 1.0, -1.0)),
            None,
            FAR.format("0.4") + "Only coordinates: 69.2 % of the squared distance "
            "(residual 69.2 %, FFN neurons 7.7 %, angles −7.7 %).",
        ),
        (
            aligned(1.0, (9.0, 0.0, 0.0)),
            "unrelated",
            FAR.format("0.4") + "The nearest pairs take off 69.2 % of the squared distance "
            "(residual 69.2 %, FFN neurons 0.0 %, angles 0.0 %). Between unrelated models a search "
            "over this many orders and angles always takes something off: that says nothing about "
            "what the two have in common.",
        ),
        (
            aligned(1e-3, (9.0, 4.0, 0.0)),
            None,
            FAR.format("4.0e-4") + "Only coordinates: more than 99.9 % of the squared distance "
            "(residual 69.2 %, FFN neurons 30.8 %, angles 0.0 %).",
        ),
        (
            aligned(0.0, (9.0, 4.0, 0.0)),
            None,
            FAR.format("0") + "Only coordinates: 100.0 % of the squared distance "
            "(residual 69.2 %, FFN neurons 30.8 %, angles 0.0 %).",
        ),
        (
            aligned(2.0, after=np.array([1.0, 0.6], np.float32)),
            None,
            FAR.format("0.77") + "Nothing of the squared distance was explained by coordinates.",
        ),
    ],
)
def test_shares_of_the_squared_distance_are_told_by_coordinate(report, verdict, text):
    related = None if verdict is None else fake_alignments.relatedness(verdict)
    assert alignments.explained(report, related) == text


SWEPT = (
    "Objective: the squared distance of the weights over ‖A‖², gains and biases of norms "
    "multiplied into the tensors that read them"
)


@pytest.mark.parametrize(
    ("sweeps", "text"),
    [
        (
            (Sweep("identity", 0, 2.0, 1.8, 1.8, 0.1), Sweep("embedding", 0, 1.9, 0.7, 0.7, 0.1)),
            f"{SWEPT}; it fell from 2 as the files stand to 0.7, start: embedding.",
        ),
        (
            (Sweep("identity", 0, 2.0, 0.5, 0.25, 0.1), Sweep("embedding", 0, 1.9, 0.7, 0.7, 0.1)),
            (
                f"{SWEPT}, mixed with how alike activations are (its distance: 0.25); it fell "
                "from 2 as the files stand to 0.5, start: identity."
            ),
        ),
        (
            (Sweep("identity", 0, 0.123456, 0.123456, 0.123456, 0.1),),
            f"{SWEPT}; it did not fall below 0.1235, where the files stand.",
        ),
        (
            (),
            (
                "It was not descended: without sweeps each coordinate is solved once, by a "
                "distance of its own."
            ),
        ),
    ],
)
def test_the_objective_of_an_alignment_is_told_from_where_to_where(sweeps, text):
    assert alignments.objective(aligned(sweeps=sweeps)) == text


@pytest.mark.parametrize(
    ("before", "after", "left", "more"),
    [
        (1.0, 2.0, 0.5, " So it is here, half way, by the logits."),
        (1.0, 2.0, 3.0, " Only the point half way was run."),  # weights that came no nearer
        (2.0, 1.0, 0.5, " Only the point half way was run."),
        (None, None, 0.5, ""),
    ],
)
def test_nothing_is_promised_of_the_models_between(before, after, left, more):
    report = aligned(left, midpoint_before=before, midpoint_after=after)
    assert alignments.between(report) == alignments.PROMISE + more
    measured = replace(report, midpoints=fake_alignments.midpoints())
    assert alignments.between(measured) == (
        f"{alignments.PROMISE} The loss half way was measured: see below."
    )


def test_the_loss_half_way_is_told_with_its_sign_and_its_control():
    points = (
        Midpoint("unaligned", 5.0, 3.0), Midpoint("with res", 4.0, 2.0),
        Midpoint("with ffn", 3.5, 1.5), Midpoint("refined", 1.75, -0.25),
        Midpoint("refined without matching", 2.5, 0.5),
    )  # fmt: skip
    assert alignments.half_way(aligned(midpoints=points)) == (
        "Half way the loss lies +3.000 nats from the chord as the files stand, +1.500 nats with "
        "every coordinate matched, −0.250 nats refined; refined without any matching, the control, "
        "+0.500 nats. Matching is worth 0.75 nats to it, on one text."
    )
    worse = (points[0], points[3], Midpoint("refined without matching", 1.5, -0.5))
    assert alignments.half_way(aligned(midpoints=worse)) == (
        "Half way the loss lies +3.000 nats from the chord as the files stand, −0.250 nats "
        "refined; refined without any matching, the control, −0.500 nats. The control is no worse: "
        "what was gained is not the matching's."
    )


def test_a_run_that_goes_on_says_how_far_it_has_come():
    sweeps = (Sweep("identity", 0, 2.0, 1.8, 1.8, 0.1), Sweep("embedding", 0, 1.9, 0.7, 0.7, 0.1))
    steps = tuple(LayerStage(layer, "ffn", 1.0, 0.5, None) for layer in (None, 0, 0, 3))
    found = AlignmentProgress("a", "b", steps, sweeps, ((3.0, 2.5), (2.75, 2.25, 2.0), ()))
    assert alignments.unfinished(found, goes_on=True) == (
        "So far: 2 sweeps (objective: it fell from 2 as the files stand to 0.7, start: embedding), "
        "2 layers solved, 3 steps along the loss, 2.000 nats."
    )
    assert alignments.unfinished(AlignmentProgress("a", "b", steps[:2]), goes_on=False) == (
        "Stopped; nothing was written. Until then: 1 layer solved."
    )


def test_an_unrelated_pair_is_paired_and_not_matched():
    strangers = fake_alignments.relatedness("unrelated")
    found = alignments.told(*CARDS, aligned(), strangers)
    assert found.headline == "Paired, not matched: these two are unrelated."
    assert found.more == (
        "An assignment always exists: a solver pairs every coordinate of B with one of A, whether "
        "or not they have anything to do with each other. Take the pairs below for the nearest "
        "ones, not for partners. The model half way between A and B is off by 9.1 in its logits, "
        "half way between A and the aligned B by 2.0e-6. Compared on 256 tokens of the demo "
        f"models' own text. {alignments.PROMISE} Only the point half way was run."
    )
    old = alignments.explained(aligned(norms=None))
    assert old.endswith(f"after alignment. {alignments.OLD}")
    same = aligned(before=np.zeros(2), after=np.zeros(2))
    assert alignments.explained(same) == (
        "Relative distance of all weights 0 as the files stand, 0 after alignment. There is no "
        "distance to explain."
    )
    related = alignments.told(*CARDS, aligned(), fake_alignments.relatedness("same lineage"))
    assert related.headline == "Same function, but not all of its coordinates were recovered."
    before = alignments.waiting()
    assert (before.headline, before.badge) == ("Not put into A's coordinates yet.", "not measured")
    assert before.text == (
        "A run finds, for every coordinate of A, the one of B that stands for it, and moves B's "
        "weights there. B's function stays what it is, and that is checked."
    )


def effect(error: float, **more: Any) -> Any:
    given = {
        "logits": 0.5, "largest": 0.25, "error": error, "divergence": 0.125, "agreement": 0.75,
        "tokens": "128 tokens",
    }  # fmt: skip
    return Effect(**(given | more))


def test_an_experiment_is_told_with_all_its_numbers():
    record = fakes.experiment(effect=effect(0.2), equivariance=0.03)
    assert experiments.told(record, CARDS[0]).text == (
        "2 tensors moved, the furthest by 141% of its size. Largest change of a logit 0.5, of a "
        "log-probability 0.25; mean KL 0.12 nats; the most likely token is unchanged at 75% of "
        "positions. Measured on 128 tokens. Inside, the hidden state followed the change up to "
        "0.03 of its size."
    )
    one = replace(record, tensors=record.tensors[:1], equivariance=None)
    assert experiments.told(one, CARDS[0]).text.startswith("1 tensor moved, by 141% of its size. ")
    text = replace(record, tensors=(), positions=np.array([1, 0]), equivariance=0.0)
    said = experiments.told(text, CARDS[0]).text
    assert said.startswith("No tensor moved; the positions of the text did. Largest change of a")
    assert said.endswith(" Inside, the hidden state followed the change to the last bit.")
    against = "This contradicts the theory: the output should have {}, and it {}."
    for holds, error, draw, headline in (
        (False, 1e-7, "matrix", against.format("moved", "stayed")),
        (False, 1e-7, "rotation", against.format("moved", "stayed")),
        (False, 1e-7, "sign", "Should break, but the change is too small to show on this text."),
        (False, 0.05, "matrix", "Breaks as it must, by a little: this is no symmetry."),
        (True, 0.05, "matrix", against.format("stayed", "moved")),
    ):
        found = fakes.experiment(error, holds, draw=draw)
        assert experiments.told(found, CARDS[0]).headline == headline
    assert experiments.closed("B").text.startswith("Model B is not open: the card says what is")
    waiting = experiments.waiting("FFN: order")
    assert (waiting.headline, waiting.badge) == ("FFN: order: not run.", "not measured")


def matching(**more: Any) -> ResidualMatch:
    """Four coordinates at the embedding: three places right, one of these with a wrong sign."""
    match = Assignment(
        np.array([2, 0, 1, 3]), np.array([1, -1, -1, 1], np.int8), np.full(4, 0.9, np.float32),
        np.array([0.5, -0.25, 0.75, 1.0], np.float32), np.array([True, False, True, True]), False,
    )  # fmt: skip
    truth = Truth("planted", np.array([2, 0, 3, 1]), np.array([1, 1, -1, 1], np.int8))
    given = {
        "depths": ((
            "embedding"
        ), "after layer 0", "pooled"), "absolute": (match,) * 3, "truth": truth,
        "signed_accuracy": np.array([0.5, 0.25, 0.0]), "absolute_accuracy": np.array([0.5] * 3),
        "sign_accuracy": np.array([0.25, 0.5, 0.75]), "tokens": 8192,
    }  # fmt: skip
    return replace(fakes.residual_match(4), **(given | more))


def test_matched_coordinates_are_told_depth_by_depth():
    sure = (
        "3 of 4 pairs choose each other; smallest margin -0.25, below 0: another was nearer, but "
        "is taken. Measured on 8,192 tokens of the demo models' own generator."
    )
    found = [findings.matched(matching(), depth) for depth in range(3)]
    assert [one.headline for one in found] == [
        "1 of 4 coordinates found at the embedding, 2 with sign −.",
        "2 of 4 coordinates found after layer 0, 2 with sign −.",
        "3 of 4 coordinates found over all depths together, 2 with sign −.",
    ]
    assert {one.text for one in found} == {sure}
    blind = findings.matched(matching(sign_accuracy=None, using="weights"), 0)
    assert (blind.headline, blind.badge) == (
        "4 coordinates matched at the embedding, 2 with sign −.", "not measured")  # fmt: skip
    assert blind.text == (
        "3 of 4 pairs choose each other; smallest margin -0.25, below 0: another was nearer, but "
        "is taken. Computed from the weights alone. No truth is known for this pair, so the share "
        "that is right is not measured."
    )
    assert findings.points(matching(), 0) == "2 of 4 points lie in their rings."
    assert findings.points(matching(truth=None), 0) == (
        "No truth is known for this pair, so there are no rings."
    )


@pytest.mark.parametrize(
    ("best", "stops"), [(0.77, "stops there"), (0.78, "comes from chance hits above it")]
)
def test_signs_bound_what_a_matching_without_them_finds(best: float, stops: str):
    record = matching(
        signed_accuracy=np.array([best, 0.1, 0.2]), absolute_accuracy=np.array([0.25, 0.5, 0.0])
    )
    assert findings.ceiling(record) == (
        "A coordinate whose sign is flipped anti-correlates with its partner, so matching on C "
        f"with its sign can find only the 75.0% with sign + (it reaches {best:.0%}".removesuffix(
            "%"
        )
        + f".0% and {stops}); matching on |C| and reading the sign afterwards finds 50.0%."
    )


def test_a_coordinate_is_told_with_its_partner_and_the_next_best():
    found = {
        "A": 3, "B": 7, "sign": "−", "|C|": 0.9, "its |C|": 0.4, "next B": 5, "margin": 0.5,
        "mutual": True, "right": False,
    }  # fmt: skip
    said = (
        "Coordinate 3 of A is coordinate 7 of B with sign −: |C| 0.900, against 0.400 for the next "
        "best, 5 (margin 0.500). "
    )
    assert findings.coordinate(found) == (
        f"{said}They choose each other. This is not the true partner."
    )
    bare = {name: value for name, value in found.items() if name != "right"} | {"mutual": False}
    assert findings.coordinate(bare) == f"{said}They do not choose each other."
    assert findings.coordinate(found | {"right": True}).endswith("This is the true partner.")


def test_the_settings_of_a_function_are_counted_and_told():
    card = CARDS[0]
    found = inventory.totals(card, fakes.self_test(0.3))
    assert found.text == (
        "6 indices are only names: residual coordinate (96), FFN neuron (256 × 6), key/value head "
        "(2 × 6), query head in its group (3 × 12), rotary query/key channel (16 × 12), value "
        "channel (16 × 12). Orders and signs are counted; factors, angles and matrices are the "
        "dimensions. Along 2 blind directions (1 of them only up to the ε inside a norm) the "
        "weights move without any index: 577 more dimensions. Tried: random coordinates for "
        "everything: 100% of 56 tensors moved; largest relative change of a log-probability 0.3."
    )
    one = replace(card, coordinates=card.coordinates[2:3], blind=card.blind[:1])
    assert inventory.totals(one, None).text == (
        "1 index is only a name: key/value head (2 × 6). Orders and signs are counted; factors, "
        "angles and matrices are the dimensions. Along 1 blind direction the weights move without "
        "any index: 576 more dimensions. The table says so; no random change was tried on this "
        "model yet."
    )
    rows = {row.name: inventory.about(row) for row in card.coordinates}
    assert rows["res"] == (
        "96 of them, one set for the whole model: 10¹⁷⁹ orders and signs. Why residual coordinate "
        "is a name."
    )
    assert rows["ffn"] == (
        "256 of them, 6 independent sets: 10³⁵⁰⁴ orders and signs and 1,536 continuous dimensions. "
        "Why FFN neuron is a name."
    )
    assert rows["tok"] == (
        "640 of them. Why token is a name. Nothing may act on it: a token id means an entry of the "
        "dictionary."
    )
    assert inventory.power(5.9) == "794,328" and inventory.power(6.0) == "10⁶"
    closed = inventory.closed("A")
    assert (closed.headline, closed.text) == (
        "Nothing to list yet.",
        "Model A is not open: the card says what is missing, or offers to open it.",
    )


def way(coordinates: Any, log10_p: float, *alike: float) -> LineageTest:
    share = np.array(alike, np.float32)
    return LineageTest(coordinates, log10_p, share / 2, share)


def relation(verdict: Any = "same lineage", **more: Any) -> Relatedness:
    tests = (
        way("as they stand", -0.4, 0.1, 0.1), way("embedding", -30.0, 0.5, 0.75),
        way("random", -0.3, 0.0, 0.25),
    )  # fmt: skip
    given = {"tests": tests, "log10_p": -29.6, "logits_between": 0.5, "logits_scale": 20.0}
    return replace(fake_alignments.relatedness(verdict), **(given | more))


WAYS = (
    "Two ways to match the neurons agree on 62.5% of them (residual coordinates: embedding); by "
    "chance, all tests counted, p < 1e-29. Control, random residual coordinates: p = 0.5, as "
    "between unrelated models. "
)


@pytest.mark.parametrize(
    ("record", "headline", "end"),
    [
        (relation(), "One lineage: they have common weights in their past.",
         "Largest logit difference 0.5, where logits reach 20."),
        (relation("unrelated"), "Unrelated: nothing speaks for common weights in their past.",
         (
             "Largest logit difference 0.5, where logits reach 20. A large p is no proof: long "
             "training can wash a lineage out."
         )),
        (relation("same weights", furthest=3e-8), "The same weights.",
         "No tensor is further off than 3.0e-8 of its size."),
        (relation("same function in other coordinates", logits_between=None),
         "The same function in other coordinates.", "The outputs were not compared."),
    ],
)  # fmt: skip
def test_a_relation_is_told_with_its_p_and_its_control(record, headline, end):
    found = lineage.related(record)
    assert (found.headline, found.text) == (headline, WAYS + end)
    assert found.badge == "p < 1e-29"


def test_a_control_that_finds_a_relation_fails_the_test():
    at_limit = relation(tests=(*relation().tests[:-1], way("random", -6.0, 0.5, 0.5)))
    assert (
        "The control, random residual coordinates, gives p < 1e-6: the test failed here."
    ) in lineage.related(at_limit).text
    assert [test.coordinates for test in lineage.tests(at_limit)] == ["as they stand", "embedding"]
    wide = lineage.apart(CARDS[0], replace(CARDS[1], family="GPT-2", width=128))
    assert wide.text.startswith(
        "A and B differ in family Llama against GPT-2; width 96 against 128. The test compares"
    )


@pytest.mark.parametrize(
    ("verdict", "depths", "layers", "text"),
    [
        ("same lineage", (4, 2), (1, 3), ("The 2 layers of B are layers 1 and 3 of A; no partner: "
         "layers 0 and 2.")),
        ("same lineage", (2, 5), (0, 1), ("The 2 layers of A are layers 0 and 1 of B; no partner: "
         "layers 2 to 4 (both ends included).")),
        ("unrelated", (4, 2), (1, 3), ("B has 2 layers and A has 4. They are unrelated: the marked "
         "cells are the best placement there is, and it means nothing.")),
        ("unrelated", (2, 4), (1, 3), ("A has 2 layers and B has 4. They are unrelated: the marked "
         "cells are the best placement there is, and it means nothing.")),
    ],
)  # fmt: skip
def test_layers_are_placed_in_the_deeper_model(verdict, depths, layers, text):
    record = replace(
        fake_alignments.relatedness(verdict, depths), layers=np.array(layers), depths=depths
    )
    assert lineage.placed(record) == text


def test_what_a_link_asks_for_in_vain_is_said_with_what_is_taken():
    assert links.replaced("layer", ["7"], 3) == (
        "This link asks for layer = 7, which is not on offer here: 3 is taken."
    )
    assert links.replaced("stages", ["res", "ffn"], ["res"]).endswith(
        "= res, ffn, which is not on offer here: res is taken."
    )  # fmt: skip
    assert links.replaced("own", ["x" * 90], "bundled") == (
        f"The text of this link is not here ({'x' * 60}): paste or upload it again under Own text. "
        "The bundled text is read instead."
    )
    assert [links.shown(x) for x in (True, False, [], (1, 2), 0.5)] == [
        "on", "off", "nothing", "1, 2", "0.5"]  # fmt: skip


def measured(*scopes: ScopeRatios, **more: Any) -> Connectivity:
    given = {"orders": (), "missing": (), "left_out": (), "points": 25, "command": "command"}
    return Connectivity({}, scopes, **(given | more))


def test_two_models_are_told_with_every_number_of_their_alignment():
    report = aligned(
        logits_between=4.9, logits_kept=1e-6, midpoint_before=9.1, midpoint_after=2.0, flipped=1
    )
    found = verdicts.pair(*CARDS, report)
    assert found.headline == "Not the same function."
    assert found.badge == "broken: not the same function, relative error 0.5"
    assert found.text == (
        "96 of 96 residual coordinates recovered, 1 with a flipped sign. Largest logit difference "
        "4.9, where logits reach 9.8. Relative distance of all weights 0.72 as the files stand, "
        "0.2 after alignment."
    )
    assert found.more == (
        "The model half way between A and B is off by 9.1 in its logits, half way between A and "
        "the aligned B by 2. No change of coordinates can make them equal; this one brought the "
        "weights nearer. Compared on 256 tokens of the demo models' own text."
    )
    spoiled = verdicts.pair(*CARDS, replace(report, logits_kept=4.9))
    assert spoiled.headline == "The alignment changed B's own function: do not use it."
    assert spoiled.text == (
        "96 of 96 residual coordinates recovered, 1 with a flipped sign. Its own logits moved by "
        "0.5 of their size."
    )
    unsigned = replace(report, recovered=None, unreachable=0.49, width=1)
    assert verdicts.pair(*CARDS, unsigned).text.startswith(
        "1 residual coordinate matched (no truth is known), signs were left out, so 49% cannot be "
        "right. "
    )


def test_a_self_test_is_told_with_its_furthest_row():
    test = fakes.self_test(1e-6)
    rows = (replace(test.rows[1], error=5e-5), *test.rows[2:])
    found = verdicts.check(replace(test, rows=rows, moved=0.5))
    assert found.badge == "exact 5.0e-5"
    assert found.text == (
        "Random coordinates for everything: 50% of 56 tensors moved; largest relative change of a "
        "log-probability 1.0e-6. Changed alone, the FFN neuron is furthest off: 5.0e-5."
    )
    assert verdicts.margin(-0.25) == (
        "smallest margin -0.25, below 0: another was nearer, but is taken"
    )
    assert verdicts.margin(0.0) == "smallest margin 0"


def test_two_widths_of_neurons_alone_can_be_matched():
    wide = replace(CARDS[1], ffn=512)
    assert verdicts.pair(CARDS[0], wide, None).text.startswith(
        "They differ in FFN width 256 against 512 alone: the neurons that both have can be matched."
    )
    routed = replace(wide, experts=4)
    assert verdicts.unlike(CARDS[0], routed) == (
        "FFN width 256 against 512", "experts 0 against 4")  # fmt: skip
    shallow = verdicts.pair(replace(CARDS[0], layers=5), CARDS[1], None)
    assert shallow.text.startswith("A and B differ in layers 5 against 6 alone. The test of their")
    assert verdicts.pair(CARDS[0], CARDS[0], None).text.startswith(
        "A and B have one fingerprint, aaaaaaaaaaaa: there is nothing to align."
    )
