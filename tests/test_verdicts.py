"""Sentences: the four reserved words come from measured numbers, and nothing is claimed beyond."""

from dataclasses import replace

import pytest

from app.sentences import experiments, findings, inventory, verdicts, words
from app.sentences.verdicts import TONES
from engine.records import TOLERANCE
from tests import fakes
from tests.fakes import Logits

RESERVED = {"exact", "approximate", "broken", "not measured"}


@pytest.fixture
def cards():
    return fakes.model_card(), fakes.model_card("twin", "b" * 16)


def test_every_reserved_word_has_its_own_colour():
    assert set(TONES) == RESERVED
    assert len(set(TONES.values())) == 4


@pytest.mark.parametrize(
    ("error", "word"), [(1.1e-6, "exact"), (TOLERANCE * 1.01, "approximate"), (0.2, "broken")]
)
def test_a_self_test_says_its_word_and_its_number(error: float, word: str):
    verdict = verdicts.check(fakes.self_test(error))
    assert verdict.word == word
    assert verdict.badge == f"{word} {words.number(error)}"


def test_a_self_test_that_moved_nothing_or_was_not_run_is_not_measured():
    assert verdicts.check(None).badge == "not measured"
    still = verdicts.check(fakes.self_test(moved=0.0))
    assert still.badge == "not measured"
    assert "shows nothing" in still.text


def test_a_twin_is_the_same_function_in_other_coordinates(cards):
    verdict = verdicts.pair(*cards, fakes.alignment())
    assert verdict.headline == "Same function in other coordinates."
    assert verdict.badge == "exact 2.1e-7"
    assert "96 of 96 residual coordinates recovered, 47 with a flipped sign" in verdict.text
    assert "Largest logit difference 2.1e-6, where logits reach 9.8." in verdict.text


@pytest.mark.parametrize(
    ("between", "word", "headline"),
    [
        (9.8 * TOLERANCE * 0.9, "exact", "Same function in other coordinates."),
        (9.8 * TOLERANCE * 1.1, "approximate", "Nearly the same function in other coordinates."),
        (5.0, "broken", "Not the same function."),
    ],
)
def test_the_word_of_a_pair_follows_the_measured_logits(cards, between, word, headline):
    verdict = verdicts.pair(*cards, fakes.alignment(Logits(between=between)))
    assert (verdict.word, verdict.headline) == (word, headline)


def test_equal_logits_with_distant_weights_do_not_count_as_recovered(cards):
    verdict = verdicts.pair(*cards, fakes.alignment(left=0.8, recovered=0.5))
    assert verdict.headline == "Same function, but not all of its coordinates were recovered."
    assert "48 of 96" in verdict.text


def test_weights_that_did_not_differ_are_in_the_same_coordinates(cards):
    verdict = verdicts.pair(*cards, fakes.alignment(apart=1e-7))
    assert verdict.headline == "Same function in the same coordinates."


def test_no_alignment_makes_two_functions_one(cards):
    verdict = verdicts.pair(*cards, fakes.alignment(Logits(between=5.0)))
    assert "No change of coordinates can make them equal" in verdict.more
    assert verdict.badge == "broken: not the same function, relative error 0.51"
    assert "over the largest logit" in verdict.about


def test_an_alignment_that_spoiled_the_model_says_so(cards):
    verdict = verdicts.pair(*cards, fakes.alignment(Logits(kept=3.0)))
    assert verdict.word == "broken"
    assert "do not use it" in verdict.headline


def test_outputs_that_were_not_run_are_not_measured(cards):
    verdict = verdicts.pair(*cards, fakes.alignment(Logits(None, None, None)))
    assert verdict.badge == "not measured"
    assert "The models were not run." in verdict.text


def test_a_pair_without_a_report_is_not_measured(cards):
    verdict = verdicts.pair(*cards, None)
    assert verdict.badge == "not measured"
    assert verdict.headline == "These two can be compared."


def test_one_fingerprint_is_one_model():
    card = fakes.model_card()
    assert verdicts.pair(card, card, None).headline == "The same weights twice."


def test_different_groups_are_named_with_both_values(cards):
    other = replace(cards[1], width=128, positions="rotary, pairs (2i, 2i + 1)")
    verdict = verdicts.pair(cards[0], other, None)
    assert verdict.headline.startswith("Different groups")
    assert "width 96 against 128" in verdict.text
    found = "positions rotary, pairs (i, i + n/2), base 10000 against rotary, pairs (2i, 2i + 1)"
    assert found in verdict.text


def test_a_truth_that_is_not_known_is_not_claimed(cards):
    text = verdicts.pair(*cards, fakes.alignment(recovered=None)).text
    assert "no truth is known" in text
    assert "recovered" not in text


def test_left_out_signs_are_reported(cards):
    text = verdicts.pair(*cards, fakes.alignment(unreachable=0.49)).text
    assert "49% cannot be right" in text


@pytest.mark.parametrize("missing", ["A", "B"])
def test_a_model_that_cannot_be_opened_is_named(missing: str):
    card = fakes.model_card()
    pair = (None, card) if missing == "A" else (card, None)
    assert verdicts.unopened(*pair).text.startswith(f"Not open: {missing}.")


def test_the_share_of_coordinates_is_not_rounded_up_to_all():
    assert verdicts.share_of_coordinates(fakes.alignment()).startswith("More than 99.9%")
    assert verdicts.share_of_coordinates(fakes.alignment(left=0.25)).startswith("75.0%")
    assert "no distance" in verdicts.share_of_coordinates(fakes.alignment(apart=0.0))


def test_a_match_is_told_with_its_basis():
    record = fakes.residual_match()
    verdict = findings.matched(record, 0)
    flipped = int((record.truth.sign < 0).sum())
    assert verdict.headline == (
        f"96 of 96 coordinates found at the embedding, {flipped} with sign −."
    )
    assert "8,192 tokens" in verdict.text
    weights = findings.matched(replace(record, using="weights"), -1)
    assert "from the weights alone" in weights.text
    assert "over all depths together" in weights.headline


def test_a_match_without_a_truth_is_not_measured():
    verdict = findings.matched(fakes.residual_match(truth=False), 2)
    assert verdict.badge == "not measured"
    assert "after layer 1" in verdict.headline
    assert "not sufficient" in findings.ceiling(fakes.residual_match(truth=False))


def test_the_ceiling_is_the_share_of_positive_signs():
    record = fakes.residual_match()
    text = findings.ceiling(record)
    assert f"only the {record.truth.positive_share:.1%} with sign +" in text
    assert "stops there" in text
    assert "finds 100.0%" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9.8, "9.8"),
        (0.031, "0.031"),
        (2.1e-6, "2.1e-6"),
        (1234.0, "1,234"),
        (31.4, "31"),
        (float("nan"), "no number"),
        (float("-inf"), "−∞"),
    ],
)
def test_numbers_are_short(value: float, text: str):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.2, "1 s"), (75, "75 s"), (200, "3 min"), (7200, "2.0 h")]
)
def test_times_are_short(value: float, text: str):
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(12, "12 bytes"), (2_600_000, "2.6 MB"), (4e8, "0.4 GB"), (22e9, "22.0 GB"), (5200, "5.2 kB")],
)
def test_sizes_are_short(value: float, text: str):
    assert words.size(value) == text


def test_a_card_is_described_in_full():
    text = "\n".join(words.describe(fakes.model_card()))
    for part in ("6 layers", "width 96", "6 heads / 2 kv of 16", "FFN 256", "RMSNorm", "tied"):
        assert part in text
    assert words.describe(replace(fakes.model_card(), kv_heads=6))[1].startswith("6 heads of 16")
    assert words.memory(fakes.model_card(), fakes.model_card()).startswith("Needs about 5.2 MB")


def test_weights_that_came_no_nearer_are_not_said_to_have(cards):
    report = fakes.alignment()
    far = replace(report, logits_between=report.logits_scale)
    near, away = (replace(far, after=far.before * scale) for scale in (0.5, 1.2))
    assert "brought the weights nearer" in verdicts.pair(*cards, near).more
    assert "did not bring their weights" in verdicts.pair(*cards, away).more
    assert "50.0%" in verdicts.share_of_coordinates(near)
    assert "did not bring the tensors nearer" in verdicts.share_of_coordinates(away)


def test_a_coordinate_that_is_worse_alone_gives_the_number():
    test = fakes.self_test()
    rows = (replace(test.rows[0], error=0.02), *test.rows[1:])
    verdict = verdicts.check(replace(test, rows=rows))
    assert verdict.badge == "approximate 0.02"
    assert "Changed alone, the residual coordinate is furthest off: 0.02." in verdict.text


def test_the_totals_are_those_of_the_table_and_the_word_is_measured():
    card = fakes.model_card()
    verdict = inventory.totals(card, None)
    assert verdict.headline == (
        "10³⁶⁹⁴ settings of the parameters are this same function, and a 4,800-dimensional "
        "family of them."
    )
    assert verdict.badge == "not measured"
    assert "6 indices are only names" in verdict.text
    assert "577 more dimensions" in verdict.text
    assert inventory.totals(card, fakes.self_test(0.3)).word == "broken"
    bare = replace(card, blind=(), coordinates=card.coordinates[:1])
    assert inventory.totals(bare, None).headline == (
        "10¹⁷⁹ settings of the parameters are this same function."
    )
    assert "No blind direction is known." in inventory.totals(bare, None).text


@pytest.mark.parametrize(
    ("log10", "text"), [(0, "1"), (2.8573325, "720"), (6, "10⁶"), (178.9, "10¹⁷⁹")]
)
def test_counts_are_powers_where_they_are_large(log10: float, text: str):
    assert inventory.power(log10) == text


def test_a_fixed_index_is_told_with_its_reason():
    token = fakes.model_card().coordinates[-1]
    assert "Nothing may act on it: a token id means" in inventory.about(token)
    assert "192 continuous dimensions" in inventory.about(fakes.model_card().coordinates[4])


@pytest.mark.parametrize(
    ("error", "holds", "more", "headline"),
    [
        (1e-7, True, {}, "Holds: the weights moved, the output did not."),
        (0.4, False, {}, "Breaks as it must: this is no symmetry."),
        (0.01, False, {}, "Breaks as it must, by a little: this is no symmetry."),
        (0.4, True, {}, "This contradicts the theory: the output should have stayed"),
        (0.01, True, {}, "This contradicts the theory: the output should have stayed"),
        (1e-7, False, {}, "This contradicts the theory: the output should have moved"),
        (1e-7, False, {"severity": 0.1}, "Should break, but the change is too small"),
        (1e-7, False, {"draw": "transposition"}, "Should break, but the change is too small"),
        (0.01, True, {"coordinate": "scale"}, "Holds up to the ε inside a norm"),
        (0.4, False, {"symmetry": False}, "No symmetry: the function is another one now."),
        (1e-7, False, {"symmetry": False}, "No symmetry, but on this text the output stayed."),
    ],
)
def test_an_experiment_is_told_by_what_was_measured(error, holds, more, headline):
    record = fakes.experiment(error, holds, **more)
    verdict = experiments.told(record, fakes.model_card())
    assert verdict.headline.startswith(headline)
    assert verdict.badge == f"{record.verdict} {words.number(error)}"
    assert "Measured on 128 tokens." in verdict.text


def test_an_experiment_that_moved_nothing_shows_nothing():
    verdict = experiments.told(fakes.experiment(0.0, tensors=()), fakes.model_card())
    assert verdict.badge == "not measured"
    assert verdict.headline == "Nothing was changed."


def test_the_hidden_state_is_told_only_where_it_was_measured():
    card = fakes.model_card()
    assert "followed the change up to 2.0e-7" in experiments.told(fakes.experiment(), card).text
    exact = experiments.told(fakes.experiment(equivariance=0.0), card).text
    assert "to the last bit" in exact
    assert "Inside" not in experiments.told(fakes.experiment(equivariance=None), card).text
