"""What records say of themselves, on numbers that can be followed by hand."""

import math
import typing
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from engine import records
from engine.records import (
    REGISTRY,
    Assignment,
    Connectivity,
    Disguise,
    Effect,
    HeadCost,
    LossSlice,
    Measure,
    OrderTrial,
    Readings,
    Record,
    ScopeRatios,
    TensorChange,
    Truth,
    Turns,
    named_arrays,
    plain,
    word,
)
from engine.records import barriers as lines
from engine.records import layers as stacks
from engine.records.layers import means
from tests import (
    fake_alignments,
    fake_barriers,
    fake_experts,
    fake_heads,
    fake_layers,
    fake_neurons,
    fakes,
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "not measured"), (0.0, "exact"), (1e-4, "exact"), (1.001e-4, "approximate"),
        (0.1, "approximate"), (0.1001, "broken"), (math.inf, "broken"), (math.nan, "broken"),
    ],
)  # fmt: skip
def test_a_word_holds_up_to_its_limit(error: float | None, said: str) -> None:
    assert word(error) == said


def test_a_word_may_have_other_limits() -> None:
    assert [word(x, 0.01, 0.5) for x in (0.01, 0.02, 0.5, 0.6)] == [
        "exact", "approximate", "approximate", "broken"]  # fmt: skip


def test_the_store_keeps_every_kind_of_record_by_its_name() -> None:
    names = {
        "SelfTest", "ModelCard", "ResidualMatch", "AlignmentReport", "Experiment", "HeadsReport",
        "TurnReport", "LayerMaps", "CutReport", "CutCost", "Continuation", "GapTrajectory",
        "PublishedMaps", "Relatedness", "AlignmentProgress", "BarrierReport", "Estimate",
        "Writing", "MergeReport", "LossSlice", "HeadOrders", "ExpertsReport", "NeuronMatch",
        "NeuronLayers",
    }  # fmt: skip
    assert {name: getattr(records, name) for name in names} == REGISTRY
    assert set(typing.get_args(Record)) == set(REGISTRY.values())
    public = {n for n, x in vars(records).items() if getattr(x, "__module__", "").startswith(
        "engine.records") and n[0].isalpha()}  # fmt: skip
    words = {"ROUNDING", "SCOPES", "STAGES", "STEPS", "TOLERANCE", "VARIANTS", "WINDOWS"}
    kinds = {"Compared", "Cost", "REGISTRY", "Record", "Role", "Word"}
    assert sorted(records.__all__) == sorted(public | words | kinds)


def test_words_and_numbers_that_all_records_share() -> None:
    assert records.STAGES == (
        "none", "orders", "res-unsigned", "res", "ffn", "heads", "orthogonal", "all", "refined",
        "random",
    )  # fmt: skip
    assert records.SCOPES == ("first-attention", "all-attention", "first-layer", "whole")
    assert records.STEPS == ("before", "order", "orthogonal", "full")
    assert records.VARIANTS == ("none", "orthogonal", "full")
    assert stacks.PAIRS == (
        "replace", "swap", "average", "skip", "replace-healed", "swap-healed"
    )  # fmt: skip
    assert stacks.SINGLES == ("delete", "delete-healed")
    assert stacks.DIRECTED == ("replace", "replace-healed")
    assert stacks.SYMMETRIC == ("swap", "average", "swap-healed")
    assert (records.TOLERANCE, records.ROUNDING, lines.SHALLOW) == (1e-4, 1e-9, 1e-5)
    assert (records.WINDOWS, stacks.DRAWS, stacks.RANDOM) == (16, 1000, "random token ids")


def test_arrays_are_named_by_where_they_stand() -> None:
    match = Assignment(
        np.array([1, 0]), np.array([1, -1]), np.ones(2), np.zeros(2), np.array([True, False]), True
    )  # fmt: skip
    found = named_arrays(match)
    assert list(found) == ["permutation", "sign", "score", "margin", "mutual"]
    assert found["sign"].tolist() == [1, -1]
    whole = named_arrays(fake_neurons.neuron_match(8))
    assert whole["match_permutation"].shape == (8,)
    assert np.array_equal(whole["excited_places_1"], fake_neurons.neuron_match(8).excited.places[1])
    assert whole["excited_pieces"].tolist() == ["the", "cat|", "*sat*", "on", "\n", "mat"]
    assert whole["fingerprints"].tolist() == ["a" * 16, "b" * 16]
    assert "excited_places" not in whole and "notes" not in whole and "seconds" not in whole


def test_a_record_becomes_plain_values_with_or_without_its_matrices() -> None:
    cost = HeadCost("rotary", np.array([[1.0, 2.0]]), np.array([3.0]), (4.0, 5.0))
    whole = {"kind": "rotary", "query_key": [[1.0, 2.0]], "value_output": [3.0],
             "balance": [4.0, 5.0]}  # fmt: skip
    assert plain(cost) == whole
    assert plain(cost, arrays=False) == whole | {"query_key": None}
    assert plain((cost, None), arrays=False) == [whole | {"query_key": None}, None]


@pytest.mark.parametrize(
    ("moved", "error", "said"),
    [
        (0.0, 1e-6, "not measured"), (0.0, 0.5, "not measured"), (0.02, 1e-6, "exact"),
        (1.0, 1e-3, "approximate"), (1.0, 0.2, "broken"),
    ],
)  # fmt: skip
def test_only_what_moved_is_measured(moved: float, error: float, said: str) -> None:
    test = fakes.self_test(0.0, 1.0)
    row = replace(test.rows[0], moved=moved, error=error)
    assert row.verdict == said
    assert replace(test, moved=moved, error=error, rows=()).verdict == said
    effect = Effect(9.0, 9.0, error, 9.0, 0.0, "")
    tensors = (TensorChange("up", "ffn res*", 1.0),) * (moved > 0)
    assert fakes.experiment(effect=effect, tensors=tensors).verdict == said


def test_a_self_test_is_as_good_as_its_worst_row_that_claims_to_be_exact() -> None:
    test = fakes.self_test(1e-6)
    first, *_, last = test.rows
    worse = replace(first, error=0.01)
    limited = replace(last, error=0.3)
    assert limited.approximate
    assert replace(test, rows=(worse, limited)).verdict == "approximate"
    assert replace(test, rows=(first, limited)).verdict == "exact"
    assert replace(test, rows=(first,), error=0.2).verdict == "broken"


def test_a_card_adds_up_its_coordinates() -> None:
    card = fakes.model_card()
    assert card.log10 == pytest.approx(178.9 + 3504.0 + 1.8 + 9.3)
    assert card.dimension == 1536 + 192 + 3072


@pytest.mark.parametrize(
    ("error", "approximate", "holds", "expected"),
    [
        (1e-6, False, True, True), (1e-6, False, False, False), (1e-3, False, True, False),
        (1e-3, False, False, True), (1e-3, True, True, True), (1e-3, True, False, False),
        (0.5, True, True, False), (0.5, False, False, True),
    ],
)  # fmt: skip
def test_an_experiment_is_as_expected_where_word_and_theory_agree(
    error: float, approximate: bool, holds: bool, expected: bool
) -> None:
    record = fakes.experiment(error, holds, approximate=approximate)
    assert record.as_expected == expected
    assert fakes.experiment(error, holds, tensors=()).as_expected


def test_an_experiment_moves_tensors_or_positions() -> None:
    still = fakes.experiment(tensors=())
    assert not still.moved and fakes.experiment().moved
    turned = replace(still, positions=np.array([1, 0], np.int32))
    assert turned.moved and turned.verdict == "exact"


def test_experts_cost_the_mean_of_router_and_content() -> None:
    record = fake_experts.experts_report()
    cost = [[3.5, 0.3, 1.5], [0.3, 2.5, 1.5], [1.5, 2.5, 0.15]]
    np.testing.assert_allclose(record.cost, cost, rtol=1e-6)
    assert record.right == 1.0
    assert replace(record, planted_order=np.array([1, 2, 0])).right == pytest.approx(1 / 3)
    assert replace(record, planted_order=None).right is None
    assert not record.same_model and fake_experts.itself().same_model
    assert fake_experts.itself().nearest == (0, 2)
    assert record.same_weights == "approximate"
    assert replace(record, left=np.array([1e-5, 1e-4, 0.0])).same_weights == "exact"
    assert replace(record, left=np.array([1e-5, 0.2, 0.0])).same_weights == "broken"


def test_a_cost_of_heads_divides_each_term_by_its_own_balance() -> None:
    cost = HeadCost("rotary", np.array([[2.0, 6.0]]), np.array([[5.0, 10.0]]), (2.0, 5.0))
    assert cost.total.tolist() == [[2.0, 5.0]]


def test_a_group_of_heads_goes_where_its_first_head_goes() -> None:
    shape = fake_heads.Shape(3, 2, 4)
    order = np.array([4, 5, 1, 0, 2, 3])
    record = fake_heads.heads_report(
        shape=shape, order=order, planted_order=np.array([4, 5, 0, 1, 3, 2])
    )
    assert record.heads == 6
    assert record.group_order.tolist() == [2, 0, 1]
    assert record.right == pytest.approx(2 / 6)
    assert replace(record, planted_order=None).right is None


STAGES_LEFT = [("none", 3.0), ("orthogonal", 1.0), ("full", 0.5)]


@pytest.mark.parametrize(("stage2", "left"), STAGES_LEFT)
def test_what_stage_2_leaves_of_a_head_is_a_relative_distance(
    stage2: Literal["none", "orthogonal", "full"], left: float
) -> None:
    steps = np.array([[100.0, 400.0], [36.0, 144.0], [4.0, 16.0], [1.0, -1e-9]])
    record = fake_heads.heads_report(
        shape=fake_heads.Shape(1, 2, 4), query_key=steps, value_output=steps[:, ::-1] / 100,
        query_key_norm=np.array([4.0, 16.0]), value_output_norm=np.array([16.0, 4.0]),
        stage2=stage2,
    )  # fmt: skip
    none = 0.0 if stage2 == "full" else left
    np.testing.assert_allclose(record.query_key_left, [left, none])
    np.testing.assert_allclose(record.value_output_left, [none / 10, left / 10])
    assert record.same_weights == "broken"


def test_heads_are_equal_where_the_worst_of_both_terms_is() -> None:
    norm = np.full(6, 4.0)
    none = np.zeros((4, 6))
    record = fake_heads.heads_report(
        query_key=none, value_output=none, query_key_norm=norm, value_output_norm=norm
    )
    assert record.same_weights == "exact"
    for name in ("query_key", "value_output"):
        one = none.copy()
        one[3, 5] = 4 * 0.05**2
        assert replace(record, **{name: one}).same_weights == "approximate"


def test_a_cost_is_the_published_one_only_where_it_was_used() -> None:
    record = fake_heads.heads_report()
    assert record.cost is record.own
    assert replace(record, used="published").cost is record.published
    assert replace(record, used="product").cost is record.own
    assert not record.same_model and fake_heads.itself().same_model


def test_the_objective_of_a_turn_is_a_distance_of_complex_rows() -> None:
    q, k = np.array([1 + 2j, 0.5 - 1j]), np.array([2 - 1j, 1j])
    q_b, k_b = np.array([0.5 + 1j, 2 + 1j]), np.array([1 + 1j, -1 + 2j])

    def power(x: np.ndarray) -> np.ndarray:
        return np.array([[float((abs(x) ** 2).sum())]])

    def inner(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = (x.conj() * y).sum()
        return np.array([[[found.real, found.imag]]])

    angle, log = 0.7, math.log(1.5)
    z = 1.5 * np.exp(0.7j)
    turns = Turns(
        np.array([[angle]]), np.array([[log]]), np.ones((1, 1)), power(q_b), power(k_b),
        inner(q_b, q), inner(k_b, k), power(q) + power(k), False, None, None,
    )  # fmt: skip
    wanted = (power(q - z * q_b) + power(k - k_b / z.conjugate())).item()
    assert turns.objective(0, 0, angle, log) == pytest.approx(wanted)
    assert turns.best(0, 0) == pytest.approx(wanted)
    assert turns.objective(0, 0, -angle, log) != pytest.approx(wanted)


@pytest.mark.parametrize(
    ("value", "said"),
    [(1e-5, "exact"), (1e-3, "approximate"), (0.5, "broken"), (None, "not measured")],
)
def test_an_output_is_called_by_its_error(value: float | None, said: str) -> None:
    assert Disguise("turn", np.zeros(1), np.zeros(1), value, 0.0).output == said
    if value is not None:
        assert fake_heads.turn_report(kept=value).verdict == said


def test_an_alignment_is_called_by_what_was_measured() -> None:
    report = fakes.alignment(fakes.Logits(between=0.5, kept=2e-5, scale=2.0))
    assert (report.same_function, report.kept) == ("broken", "exact")
    near = replace(report, logits_between=0.19, logits_kept=2.1e-4)
    assert (near.same_function, near.kept) == ("approximate", "approximate")
    for other in (replace(report, logits_scale=None), replace(report, logits_scale=0.0)):
        assert (other.same_function, other.kept) == ("not measured", "not measured")
    silent = replace(report, logits_between=None, logits_kept=None)
    assert (silent.same_function, silent.kept) == ("not measured", "not measured")
    apart = replace(report, after=np.array([1e-5, 0.05]), before=np.array([1e-5, 2e-4]))
    assert apart.same_weights == "approximate" and apart.moved
    assert not replace(report, before=np.array([1e-5, 1e-4])).moved


def test_a_truth_knows_how_many_signs_are_positive() -> None:
    truth = Truth("planted", np.arange(4), np.array([1, -1, 1, 1], np.int8))
    assert truth.positive_share == 0.75


def test_an_alignment_has_as_many_parts_as_it_has_come_to() -> None:
    record = fake_alignments.progress(2, 3, ((3.0, 2.5), (3.1,)))
    assert record.parts == 3 + 2 + 3


def test_models_are_related_up_to_their_verdict() -> None:
    record = fake_alignments.relatedness("same lineage", (4, 4))
    assert record.related
    assert not replace(record, verdict="unrelated").related
    assert replace(record, log10_p=-3.0).p == pytest.approx(1e-3)
    assert replace(record, log10_p=-1000.0).p == 0.0


def neurons(**more: Any) -> records.NeuronMatch:
    """Four pairs: the second has a wrong partner, the third a wrong sign."""
    match = Assignment(
        np.array([2, 0, 1, 3]), np.array([1, -1, -1, 1], np.int8), np.ones(4), np.ones(4),
        np.ones(4, bool), False,
    )  # fmt: skip
    truth = Truth("planted", np.array([2, 3, 1, 3]), np.array([1, -1, 1, 1], np.int8))
    given = {
        "match": match, "truth": truth, "factor": np.array([2.0, -0.5, -1.0, 0.5]),
        "truth_factor": np.array([1.6, 9.0, 9.0, 1.0]), "published": np.array([2, 3, 0, -1]),
        "excited": None,
    }  # fmt: skip
    return replace(fake_neurons.neuron_match(4), **(given | more))


def test_a_neuron_is_right_with_partner_and_sign() -> None:
    record = neurons()
    assert record.right.tolist() == [True, False, False, True]
    assert record.published_right == 0.5
    assert record.scale_error == pytest.approx(0.5)  # 0.5 where 1 was planted; 2 / 1.6 = 1.25
    assert record.negative == 0.5
    assert neurons(signs=False).negative is None
    assert neurons(factor=np.array([0.5, 0.25, 2.0, -1e-3])).negative == 0.25
    blind = neurons(truth=None, truth_factor=None)
    assert (blind.right, blind.published_right, blind.scale_error) == (None, None, None)
    wrong = neurons(partner="1", true_partner="2")
    assert not wrong.right.any() and wrong.published_right == 0.0 and wrong.scale_error is None
    assert neurons(partner="2", true_partner="2").right.tolist() == record.right.tolist()
    assert not record.same_model and fake_neurons.itself().same_model


def test_places_that_excite_two_neurons_are_counted() -> None:
    excited = replace(
        fake_neurons.neuron_match().excited,
        places=(np.array([[1, 2, 3], [4, 5, 6]]), np.array([[6, 5, 9], [3, 1, 2]])),
    )
    assert [[excited.shared(i, j) for j in (0, 1)] for i in (0, 1)] == [[0, 3], [2, 0]]


def test_the_share_of_negative_factors_is_over_all_pairs() -> None:
    record = fake_neurons.neuron_layers(pairs=np.array([10, 30]), negative=np.array([5, 3]))
    assert record.negative_share == 0.2
    assert replace(record, negative=None).negative_share is None


def test_means_are_weighted_by_what_is_read_and_leave_unknown_windows_out() -> None:
    values = np.array([[1.0, 4.0, np.nan], [np.nan] * 3, [np.inf, 1.0, 1.0]])
    weights = np.array([[3.0, 1.0, 5.0], [0.0, 2.0, 2.0]])
    found = means(values, weights)
    np.testing.assert_allclose(found, [[1.75, 4.0], [np.nan, np.nan], [np.inf, 1.0]])


def test_readings_of_few_windows_have_no_interval() -> None:
    values = np.linspace(0, 1, 16)
    for windows, has in ((15, False), (16, True)):
        some = values[:windows]
        positions = np.arange(1, windows + 1)
        found = Readings(some, some + 1, 1 - some, positions)
        mean = float(np.average(some, weights=positions))
        assert found.measure().value == pytest.approx(mean)
        assert found.measure("loss").value == pytest.approx(1 + mean)
        assert found.measure("agreement").value == pytest.approx(1 - mean)
        assert (found.measure().low is not None) == has


def test_an_interval_holds_95_of_100_resamples() -> None:
    """Half of the windows 0, half 1: 4 to 12 of 16, the quantiles of a binomial distribution."""
    half = np.tile([0.0, 1.0], 8)
    found = Readings(half, half, half, np.full(16, 31)).measure()
    assert (found.value, found.low, found.high) == (0.5, 0.25, 0.75)


def test_a_line_stands_above_or_below_its_own_chord() -> None:
    t = np.array([0.0, 0.25, 1.0])
    loss = np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 4.0]])
    curve = lines.Curve(
        "none", t, loss, 1 - loss / 10, np.array([30, 10]), 1.0, complete=True
    )  # fmt: skip
    np.testing.assert_allclose(curve.points().value, [1.25, 2.75, 4.75])
    np.testing.assert_allclose(curve.chord(), [1.25, 2.125, 4.75])
    np.testing.assert_allclose(curve.excess().value, [0, 0.625, 0], atol=1e-12)
    np.testing.assert_allclose(curve.excess("accuracy").value, [0, 0.0625, 0], atol=1e-12)
    np.testing.assert_allclose(curve.chord("accuracy"), 1 - curve.chord() / 10)
    assert curve.barrier().value == pytest.approx(0.625)
    assert (curve.peak(), curve.valley()) == (0.25, None)
    assert (curve.barrier().low, curve.drawn()) == (None, None)


@pytest.mark.parametrize(
    ("inner", "valley"),
    [
        ((-0.25, -0.5, -0.125), (0.5, 0.5)), ((-0.5, -0.25, -0.125), (0.5, 0.25)),
        ((-0.5, 0.0, -0.5), None), ((-0.5, 1e-8, -0.5), None), ((0.5, -0.5, -0.5), None),
        ((-9e-6, -9e-6, -9e-6), None), ((-2e-5, -1e-6, -1e-6), (2e-5, 0.25)),
        ((-0.5, -0.5, -0.5e-9), None),
    ],
)  # fmt: skip
def test_a_valley_is_below_the_chord_everywhere(
    inner: tuple[float, ...], valley: tuple[float, float] | None
) -> None:
    t = np.linspace(0, 1, 5)
    loss = (1 + t + np.array([0, *inner, 0]))[:, None] * np.ones(3)
    curve = lines.Curve("all", t, loss, loss, np.ones(3), 1.0, complete=True)
    assert curve.valley() == (None if valley is None else pytest.approx(valley))


def flat(stage: str, *heights: float) -> lines.Curve:
    """A hill at t = ½ as high as this in each window."""
    loss = np.array([[1.0], [1.0], [1.0]]) + np.array([[0], [1], [0]]) * np.array(heights)
    t = np.array([0, 0.5, 1])
    positions = np.full(len(heights), 9)
    return lines.Curve(stage, t, loss, loss / 10, positions, 1.0, complete=True)


def test_stages_are_compared_by_their_barriers() -> None:
    report = replace(
        fake_barriers.report(("none",)),
        curves=(flat("none", 2.0, 4.0), flat("res", 1.0, 2.0), flat("all", -1.0, -1.0)),
    )
    assert report.curve("res") is report.curves[1] and report.curve("heads") is None
    assert report.relative("res").value == 0.5
    assert report.relative("none", to="res").value == 2.0
    assert report.relative("res", to="all") is None
    assert report.difference("res", "none").value == -1.5
    assert report.difference("none", "all").value == 3.0
    assert report.difference("none", "ffn") is None


def test_a_report_knows_what_a_blind_guess_loses_and_when_layers_are_sensed() -> None:
    report = replace(fake_barriers.report(("none",)), classes=8)
    assert report.blind == pytest.approx(2.0794415)
    assert replace(report, classes=0).blind == math.inf
    part = replace(report, using="activations", moved=(3, 8))
    assert part.sensed
    for more in ({"using": "weights"}, {"shared": False}, {"moved": (8, 8)}):
        assert not replace(part, **more).sensed


def test_a_merge_is_as_near_to_an_end_as_its_worst_window() -> None:
    merge = fake_barriers.merge()
    loss = np.array([[1.0, 2.0], [1.5, 2.0], [2.0, 2.5]])
    positions = np.array([30, 10])
    one = replace(merge, curve=replace(merge.curve, t=np.array([0, 0.25, 1]), loss=loss,
                                       accuracy=1 - loss / 10, positions=positions))  # fmt: skip
    assert one.loss == pytest.approx(1.625)
    assert one.accuracy == pytest.approx(1 - 0.1625)
    assert one.above == pytest.approx(1.625 - (0.75 * 1.25 + 0.25 * 2.125))
    assert one.apart == pytest.approx((0.5, 0.25))
    assert one.same == ("broken", "broken")
    near = loss.copy()
    near[1] = [1.00001, 2.01]
    assert replace(one, curve=replace(one.curve, loss=near)).same == ("approximate", "broken")


def test_the_lowest_of_a_plane_is_found_with_its_two_coordinates() -> None:
    loss = np.array([[3.0, 2.0, 1.5], [np.nan, 4.0, 5.0]])
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 0.5]])
    record = LossSlice(
        "a", "b", "all", np.array([0.0, 0.5, 1.0]), np.array([-1.0, 2.0]), loss, loss, places, 1.0,
        "next token", True, fake_layers.run(), np.array([2.0, 1.75, 1.5]),
    )  # fmt: skip
    assert record.measured == 5 + 3
    assert record.lowest == (1.5, 0.25, 0.5)  # of two equal ones the model itself
    assert replace(record, models=np.array([2.0, 1.25, 1.5])).lowest == (1.25, 1.0, 0.0)
    alone = replace(record, models=None)
    assert (alone.lowest, alone.measured) == ((1.5, 1.0, -1.0), 5)
    assert replace(record, models=np.array([2.0, 1.75, 1.6])).lowest == alone.lowest
    other = loss.copy()
    other[1, 1] = 0.5
    assert replace(record, loss=other).lowest == (0.5, 0.5, 2.0)


def test_a_chosen_order_is_ranked_from_1_by_two_measures() -> None:
    record = replace(
        fake_barriers.orders(), orders=((0, 1), (1, 0), (1, 2)),
        objective=np.array([1.0, 3.0, 2.0]),
        curves=tuple(flat("all", height) for height in (0.75, 0.25, 0.5)),
    )  # fmt: skip
    assert [replace(record, chosen=k).ranks for k in range(3)] == [(1, 3), (3, 1), (2, 2)]
    assert (record.count, replace(record, total=24).count) == (3, 24)
    even = replace(record, objective=np.ones(3), curves=(flat("all", 1.0),) * 3)
    assert replace(even, chosen=2).ranks == (1, 1)


def ratios(using: str = "weights") -> ScopeRatios:
    """Two pairs; the naive line of the second has no barrier."""
    of = np.array([[[1.0, 1.0, 1.0], [np.nan] * 3], [[0.5, 0.25, 0.75], [np.nan] * 3],
                   [[0.25, 0.125, 0.5], [0.75, 0.5, 1.0]]])  # fmt: skip
    nothing = np.zeros((2, 3))
    return ScopeRatios(
        "BERT", "whole", (("a", "b"), ("c", "d")), np.array([2.0, 0.0]), of, nothing, nothing, using
    )


def test_ratios_are_those_of_pairs_that_have_one() -> None:
    found = ratios()
    assert found.of("orthogonal").tolist() == [[0.5, 0.25, 0.75]]
    assert (found.mean("none"), found.mean("orthogonal"), found.mean("full")) == (1.0, 0.5, 0.5)
    assert math.isnan(replace(found, relative=np.full((3, 2, 3), np.nan)).mean("full"))


def test_an_order_loses_its_share_of_what_the_best_one_gains() -> None:
    trial = OrderTrial("BERT", ("a", "b"), np.array([0.75, 0.5, 1.5]), 1.5, 0, (1, 2))
    assert trial.lost == 25.0
    assert [replace(trial, chosen=k).lost for k in (1, 2)] == [0.0, 100.0]
    assert math.isnan(replace(trial, naive=0.5).lost)


def test_a_reproduction_is_read_by_how_layers_were_matched() -> None:
    trial = OrderTrial("BERT", ("a", "b"), np.ones(2), 1.0, 0, (1, 1))
    whole = Connectivity(
        {}, (ratios(), ratios("activations")), (trial, replace(trial, using="activations"), trial),
        (), (), 25, "make",
    )  # fmt: skip
    assert whole.by("weights").scopes == (whole.scopes[0],)
    assert whole.by("weights").orders == (trial, trial)
    assert whole.by("activations").orders == (whole.orders[1],)
    assert whole.by("activations").scopes == (whole.scopes[1],)


def test_a_measure_without_an_interval_says_none() -> None:
    assert (Measure(np.zeros(1)).low, Measure(np.zeros(1)).high) == (None, None)
