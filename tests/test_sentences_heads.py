"""Sentences on heads, neurons and experts word for word, on records of a few numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.charts.heads import Cell
from app.sentences import attention, disguises, experts, neurons
from engine.records import (
    Disguise,
    Excited,
    HeadCost,
    HeadsReport,
    OrderRank,
    Spared,
)
from tests import fake_experts, fake_heads, fake_neurons, fakes
from tests.fake_heads import frequencies
from tests.fake_neurons import four_neurons

CARDS = fakes.model_card(), fakes.model_card("twin", "b" * 16)


def two_heads(**more: Any) -> HeadsReport:
    """A's head 0 is B's 1 and the other way round; the mean cost is 2, of either term 1."""
    cost = HeadCost(
        "rotary", np.array([[3.0, 1.0], [0.0, 4.0]]), np.array([[2.0, 0.0], [1.0, 3.0]]), (2.0, 1.5)
    )
    given = {
        "own": cost, "order": np.array([1, 0]), "second": np.array([0, 1]),
        "margin": np.array([7 / 6, 5 / 3], np.float32), "planted_order": np.array([1, 0]),
        "query_key": np.array([[4.0, 12.0], [2.0, 2.0], [0.25, 0.75], [0.01, 0.15]]),
        "query_key_norm": np.array([4.0, 12.0]), "value_output_norm": np.array([1.0, 1.0]),
        "value_output": np.array([[1.0, 1.0], [0.5, 0.5], [0.04, 0.01], [4e-4, 1e-4]]),
        "turns": frequencies(), "rank": None,
    }  # fmt: skip
    return fake_heads.heads_report(shape=fake_heads.Shape(1, 2, 4), **(given | more))


BASIS = "Residual coordinates from weights; cost: rotary."
LEFT = (
    "Relative distance left between queries and keys at most 0.11, between values and outputs at "
    "most 0.02."
)


def test_matched_heads_are_told_with_what_is_left_and_how_sure_it_is():
    found = attention.matched(two_heads())
    assert found.headline == (
        "2 of 2 heads found; their turns explain 80.0 % of the distance between queries and keys; "
        "largest angle 150°."
    )
    assert found.text == (f"{LEFT} Least certain: head 0, margin 1.2 of the mean cost. {BASIS}")
    assert found.badge == "broken 0.11"
    margin = np.array([0.5, -0.25], np.float32)
    other = attention.matched(two_heads(planted_order=None, margin=margin, stage2="orthogonal"))
    assert other.headline == (
        "2 heads paired; their turns explain 50.0 % of the distance between queries and keys; "
        "largest angle 150°."
    )
    assert other.text == (
        "Relative distance left between queries and keys at most 0.25, between values and outputs "
        "at most 0.2. Least certain: head 1, margin -0.25 of the mean cost. Below 0 another head "
        f"is cheaper but taken, or in another group. {BASIS} No truth is known for this pair."
    )
    half = frequencies(half_turns=True, angle=np.array([[0.0, np.pi]]))
    turned = attention.matched(two_heads(turns=half, planted_order=np.array([0, 1]))).headline
    assert turned.startswith("0 of 2 heads found; ")
    assert turned.endswith("; 1 of 2 frequencies turned by 180°.")


@pytest.mark.parametrize(
    ("full", "turns", "text"),
    [
        ((0.0, 4.0), True, "their turns explain 0.0 %"),
        ((0.0, 9.0), True, "their turns explain 0.0 %"),
        ((0.0, 1.0), False, "their matrices explain 50.0 %"),
        ((0.0, 1e-7), True, "their turns explain more than 99.9 %"),
        ((0.0, 0.0), True, "their turns explain all"),
    ],
)
def test_what_turns_explain_is_never_rounded_up_to_all(full, turns, text):
    rows = two_heads().query_key
    record = two_heads(query_key=np.array([*rows[:3], full]))
    record = record if turns else replace(record, turns=None)
    assert attention.explained(record) == f"{text} of the distance between queries and keys"
    equal = np.array([rows[0], np.zeros(2), np.zeros(2), np.zeros(2)])
    assert attention.explained(replace(record, query_key=equal)) == (
        "queries and keys are equal before any turn"
    )
    assert attention.explained(replace(record, stage2="none")) == "turns were left out"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (
            Cell(0, 1),
            (
                "Head 0 of A against head 1 of B: query–key 1, value–output 0, together 0.25 of "
                "the mean cost. They are partners. Second best: B 0, at 1.4; margin 1.2."
            ),
        ),
        (
            Cell(1, 1),
            (
                "Head 1 of A against head 1 of B: query–key 4, value–output 3, together 2 of the "
                "mean cost. The partner of A 1 is B 0. Second best: B 1, at 2; margin 1.7."
            ),
        ),
    ],
)
def test_a_cell_is_told_with_both_terms_partner_and_second_best(cell, text):
    assert attention.cell(two_heads(), cell) == text


def test_an_order_of_heads_is_told_with_its_rank_among_all():
    rank = OrderRank(72, 3, 12.4, 2, 0.5, (4.5, 4.25, 9.0))
    assert attention.order(two_heads(rank=rank)) == (
        "2 of 2 lines are the planted ones. Among all 72 orders that keep groups together this one "
        "is number 3 by what Stage 2 leaves (L̂ = 12 %), and number 2 by the loss half way between "
        "A and B: 4.500 nats, best 4.250, as stored 9.000."
    )
    plain = OrderRank(1296, 1, None, None, None, None)
    assert attention.order(two_heads(rank=plain, planted_order=np.array([0, 1]))) == (
        "0 of 2 lines are the planted ones. Among all 1,296 orders that keep groups together this "
        "one is number 1 by what Stage 2 leaves."
    )
    assert attention.order(two_heads(planted_order=None)) == (
        "No truth is known for this pair, so no line is right or wrong."
    )
    assert attention.order(two_heads(rank=replace(plain, orders=1))).endswith("planted ones.")


def test_angles_are_told_in_degrees_and_against_the_planted_ones():
    said = "Mean |φ| 60.0°, mean r 1.250, both by weight. Angles drawn at random would give 90°."
    assert attention.angles(frequencies()) == said
    truth = {"planted_angle": frequencies().angle, "planted_log_modulus": np.log([[1.0, 1.0]])}
    assert attention.angles(frequencies(**truth)) == (
        f"{said} From the planted turns they differ by at most 1."  # 2 in place of 1
    )
    away = {**truth, "planted_angle": np.radians([[30.0, 30.0]])}
    assert attention.angles(frequencies(**away)).endswith("at most 3.")  # 2 e^{−i180°} − 1
    half = attention.angles(frequencies(half_turns=True))
    assert half == (
        "Queries and keys are normalised per head: only a sign is free for each frequency, so "
        "every angle is 0° or 180° and every modulus is 1."
    )
    assert attention.by_hand(frequencies(), 0, 1, 4.0) == (
        "By hand the objective is 0.5 of the size of this frequency, at the found optimum "
        "(-150.0°, × 2.000) 0.88."
    )


def test_a_turn_by_hand_says_what_stays_and_what_does_not():
    found = attention.turned(fake_heads.turn_report())
    assert (found.headline, found.badge) == (
        "B's own output stays: the turn only renames.", "exact 2.0e-7")  # fmt: skip
    assert found.text == (
        "Half way between A and the turned B the logits are off by 1.4, with the found turn by "
        "3.0e-6. The loss half way is 4.400 nats, with the found turn 4.180. On 2,048 tokens of "
        "the demo models' own text."
    )
    moved = attention.turned(fake_heads.turn_report(kept=0.2, midpoint_loss=None))
    assert (moved.headline, moved.badge) == (
        "B's own output moved: this is no change of names.", "broken 0.2")  # fmt: skip
    assert "loss" not in moved.text


def three_heads(cost: float, **more: Any) -> HeadsReport:
    """One model against itself: heads 0 and 2 are nearest, at this part of the mean cost."""
    table = np.array([[0.0, 1.5, cost], [1.6, 0.0, 1.7], [cost, 1.4, 0.0]])
    table *= 9 / table.sum()
    table[0, 2] = table[2, 0] = cost
    zero = HeadCost("rotary", table, np.zeros((3, 3)), (table.mean(), 1.0))
    shape = fake_heads.Shape(1, 3, 4)
    given = {
        "own": zero, "order": np.arange(3), "planted_order": None, "second": np.array([2, 0, 0]),
        "fingerprints": ("a" * 16,) * 2, "using": "identity",
        "removal": np.array([0.3, 0.05, 0.1], np.float32),
    }  # fmt: skip
    return fake_heads.heads_report(shape=shape, **(given | more))


def test_two_heads_of_one_model_coincide_or_are_told_as_the_nearest():
    one = attention.matched(three_heads(0.0))
    assert one.headline == "Heads 0 and 2 of this layer are one head in two bases."
    assert one.badge == "exact 0"
    assert one.text == (
        "Zero would be one head in two bases; two unrelated heads are near 100 %. Measured on "
        "2,048 tokens of the demo models' own text: without head 0 the output moves by 0.3 nats, "
        "without head 2 by 0.1 (1 other is cheaper)."
    )
    cheap = attention.matched(three_heads(0.0, removal=np.array([0.01, 0.05, 0.1]))).text
    assert cheap.endswith("without head 2 by 0.1 (the cheapest of the layer).")
    assert attention.matched(three_heads(0.0, removal=None)).text.endswith(
        "What it costs to remove one of them was not measured."
    )
    even = replace(three_heads(0.0).own, query_key=np.array([[0, 3, 0.9], [3, 0, 3], [0.9, 3, 0]]))
    apart = attention.matched(three_heads(0.0, own=even))  # 0.9 of a mean of 13.8 / 9
    assert apart.headline == (
        "No two heads coincide; the nearest are 0 and 2, at 59% of the mean cost."
    )
    assert apart.badge == ""
    single = attention.matched(replace(three_heads(0.0), per_group=1))
    assert single.headline == "One head: there is no other to compare it with."
    assert attention.order(three_heads(0.5)) == (
        "Every head is its own partner; the map shows how near the others come."
    )
    assert attention.cell(three_heads(0.0, own=even), Cell(0, 2)) == (
        "Head 0 of A against head 2 of B: query–key 0.9, value–output 0, together 0.59 of the mean "
        "cost. Nearest other head of 0: 2, at 0.59."
    )


@pytest.mark.parametrize(
    ("a", "b", "itself", "which"),
    [(None, None, False, "A and B"), (None, 1, False, "A"), (0, None, False, "B"),
     (None, None, True, "A")],
)  # fmt: skip
def test_heads_and_neurons_of_a_closed_model_are_not_compared(a, b, itself, which):
    pair = tuple(None if place is None else CARDS[place] for place in (a, b))
    found = attention.refused(*pair, itself)
    assert found.headline == "No heads to compare yet."
    assert found.text == f"Not open: {which}. Below is why, or a button that opens it."


def test_heads_of_other_shapes_are_refused_with_both_values():
    found = attention.refused(CARDS[0], replace(CARDS[1], heads=8, head_dim=12), itself=False)
    assert found.headline == (
        "Different groups: the heads of these two cannot be put into each other's coordinates."
    )
    assert found.text == (
        "A and B differ in heads 6 against 8; head dimension 16 against 12. Choose two models of "
        "one architecture, or look at A against itself."
    )


def test_two_costs_disagree_on_heads_whose_nearest_they_name_otherwise():
    seen = HeadCost("published", np.array([[1.0, 3.0], [0.0, 4.0]]), np.zeros((2, 2)), (1.0, 1.0))
    record = two_heads(published=seen)
    assert attention.disagreement(record) == (
        "The two costs name different nearest heads for 1 of 2 heads."
    )
    assert attention.disagreement(replace(record, turns=None)) == (
        "The two costs name different nearest heads for 1 of 2 heads. Without rotation both read "
        "the same product; the published one centres it, which is valid for LayerNorm with its "
        "gain folded in."
    )


def dressed(kind: Any, theirs: float, own: float, error: float | None) -> Disguise:
    return Disguise(kind, np.full(2, theirs), np.full(2, own), error, None)


ITSELF = (
    "All 2 heads of layer 0 of A against themselves in {}. The product M = W_qᵀW_k is the same in "
    "all of them: the published cost {}. Costs are over ‖M‖² of the head, 2 is unrelated."
)
HENCE = (
    "{} of {} change what the model says at a published cost of 0. Ours is 0 where the output "
    "stays ({}), and only there: hence the default."
)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            (dressed("matrix", 0.0, 2.0, 0.7), dressed("turn", 0.0, 0.0, 4e-7)),
            (
                ITSELF.format("2 disguises", "calls each the head that it was (at most 0)"),
                HENCE.format(1, 2, 1),
            ),
        ),
        (
            (dressed("matrix", 0.0, 2.0, 0.7), dressed("exchange", 3e-16, 1.5, 0.3),
             dressed("turn", 0.0, 0.0, 4e-7)),
            (
                ITSELF.format(
                    "3 disguises", "calls each the head that it was (at most 3.0e-16, rounding)"
                ),
                HENCE.format(2, 3, 1),
            ),
        ),
        (  # a cost that sees it is not blind
            (dressed("matrix", 0.5, 2.0, 0.7), dressed("turn", 0.0, 0.0, 4e-7)),
            (ITSELF.format("2 disguises", "sees up to 0.5 in them"),),
        ),
        (  # ours would call it the same while the output moved
            (dressed("matrix", 0.0, 0.0, 0.7), dressed("turn", 0.0, 0.0, 4e-7)),
            (ITSELF.format("2 disguises", "calls each the head that it was (at most 0)"),),
        ),
        (
            (dressed("matrix", 0.0, 2.0, 0.7),),
            (ITSELF.format("1 disguise", "calls each the head that it was (at most 0)"),),
        ),
    ],
)  # fmt: skip
def test_disguises_are_told_by_both_costs_and_by_the_output(found, said):
    assert tuple(disguises.why(two_heads(disguises=found))) == said


def test_where_no_channel_turns_the_published_cost_reads_all_there_is():
    seen = HeadCost("published", np.array([[3.0, 1.0], [0.0, 4.0]]), np.zeros((2, 2)), (2.0, 1.0))
    record = two_heads(disguises=(), turns=None, published=seen)
    (said,) = disguises.why(record)  # over their means: 1.417 0.25 0.333 2 and 1.5 0.5 0 2
    assert said.endswith("the two tables differ by at most 0.33 of the mean cost.")
    assert disguises.why(two_heads(disguises=())) == [
        "The disguises were not tried for this model."]  # fmt: skip


def test_heads_that_were_not_matched_have_no_order():
    found = attention.matched(None)
    assert found.badge == "not measured"
    assert found.headline == (
        "Heads have no order, and their channels no axes, until they are matched."
    )


EXPERTS = fake_experts.experts_report()
ON = "on 512 tokens of a text"
ALIKE = (
    "Matched neurons are alike to 0.683 on average (1 is the same neuron, unrelated ones are near "
    "0)."
)


def test_matched_experts_are_told_with_what_half_way_costs():
    found = experts.matched(EXPERTS)
    assert found.badge == "approximate 0.05"
    assert found.headline == (
        "3 of 3 experts found; relative distance of partners at most 0.05, with neurons as stored "
        "1.4."
    )
    forced = (
        "Least certain: expert 1 of A, margin -0.25 of the mean cost. Below 0 another expert is "
        "cheaper but taken."
    )
    same = "The router's rows alone and the contents alone name the same partners."
    half = (
        f"Half way to B in all experts of this layer the output of A moves by 0.4 nats a token, "
        f"with B's experts and neurons as they are numbered by 4, {ON}."
    )
    assert found.text == f"{forced} {same} {ALIKE} {half}"
    other = fake_experts.experts_report(
        by_router=np.array([0, 1, 2]), planted_order=None, halfway=None, shared=4096,
        margin=np.array([0.0, 1.0, 2.0], np.float32),
    )  # fmt: skip
    found = experts.matched(other)
    assert found.headline.startswith("3 experts paired; relative distance of partners at most")
    assert found.text == (
        "Least certain: expert 0 of A, margin 0 of the mean cost. For 2 of 3 experts the router's "
        f"rows name another partner than the contents. {ALIKE} What the model half way costs was "
        "not measured. Every token also visits one shared expert of 4,096 neurons: it has no "
        "order, and is no part of this comparison."
    )
    strange = replace(other, content=1.0 - np.eye(3)[[1, 0, 2]])  # the contents coincide
    assert (
        "For 2 of 3 experts the router's rows name another partner than the contents, although the "
        "contents coincide: B's router does not belong to B's experts."
    ) in experts.matched(strange).text
    wrong = replace(EXPERTS, planted_order=np.array([1, 2, 0]))
    assert experts.matched(wrong).headline.startswith("1 of 3 experts found; ")


def test_two_experts_of_one_model_are_told_with_what_merging_costs():
    found = experts.matched(fake_experts.itself())
    assert found.headline == (
        "No two experts coincide; the nearest are 0 and 2, at a cost of 0.60."
    )
    assert found.badge == ""
    assert found.text == (
        "Zero is one expert in two bases, two unrelated ones are near 2. Measured on 512 tokens of "
        "a text: the cheapest pair to merge is 1 with 2, both router rows kept: KL 0.01 nats, loss "
        "+1.000; behind one row: KL 0.03 nats, loss -0.500. The nearest pair costs KL 0.02 nats, "
        "loss +0.500: alike is not yet mergeable. The cheapest to remove is expert 1, which 25 % "
        "of the tokens visit: KL 0.06 nats, loss +0.250."
    )
    copy = fake_experts.itself(content=np.zeros((3, 3)), merged=fake_experts.toll(0.0, 0.1, 0.2))
    found = experts.matched(copy)
    assert found.headline == "Experts 0 and 2 are one expert in two bases."
    assert found.badge == "exact 0"
    assert "merge is 0 with 2, both router rows kept: KL 0 nats; behind one row: KL 0.04" in (
        found.text
    )
    assert "The nearest pair" not in found.text
    one = experts.matched(fake_experts.itself(experts=1, shared=64))
    assert one.headline == "One expert: there is no other to compare it with."
    assert one.text.startswith("Every token also visits one shared expert of 64 neurons: it has")
    bare = experts.matched(fake_experts.itself(merged=None, removal=None)).text
    assert bare == (
        "Zero is one expert in two bases, two unrelated ones are near 2. What merging and removing "
        "experts costs was not measured."
    )


SURE_OF = (
    "3 of 4 pairs choose each other; smallest margin -0.5, below 0: another was nearer, but is "
    "taken."
)
FROM = "Compared by their weights, with B in A's residual coordinates (from the embedding)."


def test_matched_neurons_are_told_with_their_signs_and_scales():
    found = neurons.matched(four_neurons())
    assert found.headline == "2 of 4 neurons found in layer 3, 2 of them with sign −."
    assert found.text == (
        f"Their scales are the true ones to 0.25. {SURE_OF} The published cost, which knows "
        f"neither signs nor scales, finds 50.0%. {FROM}"
    )
    blind = neurons.matched(four_neurons(truth=None, truth_factor=None, using="activations"))
    assert (blind.headline, blind.badge) == (
        "4 neurons matched in layer 3, 2 of them with sign −.", "not measured")  # fmt: skip
    assert blind.text == (
        f"{SURE_OF} The published cost agrees on 75.0% of the partners. "
        f"{FROM.replace('the embedding', 'activations')} No truth is known for this pair: the "
        "share that is right is not measured."
    )
    plain = neurons.matched(four_neurons(
        signs=False, scales=False, expert="2", partner="5", compared="correlation",
        factor=np.ones(4), notes=("B has 5 neurons.",),
    ))  # fmt: skip
    assert plain.headline == "2 of 4 neurons found in expert 2 of layer 3."
    assert plain.text == (
        f"{SURE_OF} The published cost finds 50.0%. Compared by how they fire together, with B in "
        "A's residual coordinates (from the embedding). Its partner is expert 5 of B. B has 5 "
        "neurons."
    )
    relu = neurons.published(four_neurons(signs=False))
    assert relu == "The published cost, which knows no scales, finds 50.0%."
    assert neurons.where(four_neurons(expert="shared")) == "the shared expert of layer 3"
    assert neurons.cost(four_neurons(seconds=50.0, layers=6)) == (
        "6 layers, this one took 50 s: about 5 min."
    )
    assert neurons.matched(None).badge == "not measured"


def test_one_pair_of_neurons_is_told_with_its_factor():
    record = four_neurons()
    assert neurons.pair(record, 1, other=False) == (
        "Neuron 1 of A is neuron 0 of B: score 0.800, B 0 times -0.5, margin 0.250. This is the "
        "true partner."
    )
    assert neurons.pair(record, 2, other=False).endswith("margin 0.125. This is not the true one.")
    assert neurons.pair(record, 1, other=True) == (
        "Neuron 1 of A the next best for it is neuron 1 of B: score 0.300, B 1 times -3."
    )
    itself = four_neurons(fingerprints=("a" * 16,) * 2, truth=None, scales=True)
    assert neurons.pair(itself, 0, other=True) == (
        "Neuron 0 of A and its most alike, 3: score 0.400, A 3 times 1.5."
    )
    assert neurons.pair(four_neurons(scales=False, truth=None), 0, other=False) == (
        "Neuron 0 of A is neuron 2 of B: score 0.900, margin 0.500."
    )


def spared(**more: Any) -> Spared:
    given = {
        "kind": ("alike", "small", "alike", "random", "alike", "small", "random"),
        "neuron": np.arange(7), "other": np.arange(1, 8), "score": np.linspace(1, 0, 7),
        "factor": np.ones(7), "merged": np.array([0.1, 1.0, 0.5, 1.0, 0.3, 1.0, 1.0]),
        "removed": np.array([0.2, 0.01, 0.4, 0.05, 0.6, 0.03, 0.15]), "merged_loss": np.zeros(7),
        "removed_loss": np.zeros(7), "what": "64 tokens",
    }  # fmt: skip
    return Spared(**(given | more))


def test_neurons_of_one_model_are_told_with_what_they_are_worth():
    itself = four_neurons(
        fingerprints=("a" * 16,) * 2, truth=None, compared="inputs", second=np.array([3, 2, 1, 0])
    )
    found = neurons.matched(replace(itself, spared=spared()))
    assert found.headline == (
        "No two neurons of layer 3 coincide; the most alike are 0 and 3, score 0.4."
    )
    assert found.text == (
        "Compared by the weights with which they read: 1 is the same up to sign and scale, 0 has "
        "nothing in common. Of the 3 most alike, merging was cheaper than removing for 2: at the "
        "median KL 0.3 against 0.4 nats. Removing one of the 2 smallest ones cost 0.02. Removing "
        "one of the 2 random ones cost 0.1. Measured on 64 tokens."
    )
    score = np.array([0.3, 1 - 1e-5, 0.2, 1 - 1e-5], np.float32)
    equal = neurons.matched(replace(itself, second_score=score))
    assert equal.headline == (
        "2 neurons of layer 3 could be told by another one, up to sign and scale: 1 and 2, say."
    )
    one = neurons.matched(replace(itself, second_score=np.minimum(score, [1, 1, 1, 0.9])))
    assert one.headline.startswith("1 neuron of layer 3 could be told by another one, up to sign")


def test_places_that_excite_both_neurons_are_counted():
    places = (
        np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        np.array([[7, 0, 2], [1, 2, 3], [4, 5, 9]]),
    )
    text = np.zeros((1, 10), np.int32)
    found = Excited(("a",), text, places, (places[0] * 1.0,) * 2, "10 tokens")
    match = replace(four_neurons().match, permutation=np.array([1, 2, 0]))
    record = four_neurons(excited=found, match=match, rows=np.arange(3))
    assert neurons.shared(record, 0, 1) == "3 of the 3 places that excite each most are the same."
    assert neurons.shared(record, 1, 2) == "2 of the 3 places that excite each most are the same."
    # partners share 3, 2 and 1; at random each with its own number 1, 0 and 1
    assert neurons.overlap(record) == (
        "Over the layer, partners share 2.0 of the 3 places that excite each most; neurons paired "
        "at random 0.7."
    )
    assert neurons.overlap(four_neurons()) == ""


@pytest.mark.parametrize(
    ("negative", "text"),
    [
        ([4, 5], (
            "Over all layers 45.0% of the factors are negative (9 of 20). It is a coin flip: a "
            "method that compares signs as they stand meets the wrong one every second time."
        )),
        ([0, 0], (
            "Over all layers 0.0% of the factors are negative (0 of 20). These two still have the "
            "signs that they began with."
        )),
        ([4, 3], "Over all layers 35.0% of the factors are negative (7 of 20)."),
    ],
)  # fmt: skip
def test_signs_are_a_coin_flip_only_near_a_half(negative, text):
    record = fake_neurons.neuron_layers(negative=np.array(negative), pairs=np.array([10, 10]))
    assert neurons.signs(record) == text


def test_columns_and_pictures_of_neurons_are_explained():
    assert neurons.terms(four_neurons()) == (
        "Margin: the score less that of next B, the best other neuron of B; below 0 that one is "
        "nearer, but is another's partner. Mutual: each of the two is the other's best. Published "
        "B: the partner by git re-basin's cost, which knows neither signs nor scales. Right: B is "
        "the true partner."
    )
    bare = neurons.terms(four_neurons(signs=False, truth=None, excited=fake_neurons.excited(
        np.arange(4), np.ones(4))))  # fmt: skip
    assert bare.endswith(
        "Published B: the partner by git re-basin's cost, which compares weights as they stand. "
        "Places shared: of those that excite each most."
    )
    known, unknown = fake_neurons.neuron_layers(), fake_neurons.neuron_layers(False, False)
    assert neurons.pictured(known) == (
        "How many matched neurons have a negative factor: dashed 50 %, grey what fair coins give. "
        "The share found by the score that leaves sign and scale free, and by git re-basin's cost "
        "as published, which compares weights as they stand. Margins of the score."
    )
    assert neurons.pictured(unknown) == (
        "The share of pairs that choose each other, and of partners that git re-basin's cost as "
        "published chooses too. Margins of the score."
    )
    assert neurons.weak(known).startswith("Both shares together below 100 %: not the signs")
    assert neurons.weak(unknown).startswith("Few pairs that choose each other, margins at or below")
    assert neurons.question(itself=True) == "Which neurons of A could do without each other?"
    assert neurons.question(itself=False) == "Which neuron of B is which neuron of A?"
    refused = neurons.refused(CARDS[0], replace(CARDS[1], ffn=512, width=64), itself=False)
    assert refused.text.startswith("A and B differ in width 96 against 64. Choose two models")
