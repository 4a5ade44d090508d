"""Whether a published result holds here, on ratios that can be followed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.sentences import answers, reproductions
from engine.records import Connectivity, OrderTrial, PublishedConnectivity, ScopeRatios


def ratios(alone: list[Any], full: list[Any], name: str = "llama", **more: Any) -> ScopeRatios:
    """Pairs with (value, low, high) after Stage 1 alone and after the full Stage 2."""
    nothing = [[0.5, 0.4, 0.6]] * len(full)
    given = {
        "pairs": tuple((f"a{n}", f"b{n}") for n in range(len(full))), "naive": np.ones(len(full)),
        "relative": np.array([alone, nothing, full], float), "left": np.array(full, float),
        "difference": np.zeros((len(full), 3)), "scope": "first-attention",
    }  # fmt: skip
    return ScopeRatios(name, **(given | more))


NO = [np.nan] * 3
HIGH, LOW, MIDDLE = [0.8, 0.7, 0.9], [0.2, 0.1, 0.3], [0.6, 0.5, 0.75]
CLEAR = ratios([HIGH, HIGH], [LOW, LOW])
OVERLAP = ratios([HIGH, HIGH], [LOW, MIDDLE], "gpt2")
MIXED = ratios([HIGH, LOW], [LOW, HIGH], "vit")
NONE = ratios([NO], [NO], "bert", left=np.array([[0.35, 0.0, 0.5]]))


@pytest.mark.parametrize(
    ("one", "word"), [(CLEAR, "clear"), (OVERLAP, "lower"), (MIXED, "unclear")]
)
def test_less_is_clear_where_every_interval_ends_below_the_other(one, word):
    assert answers.standing(one) == word
    touching = ratios([HIGH], [[0.6, 0.5, 0.7]])
    assert answers.standing(touching) == "lower"


LESS = "The full Stage 2 leaves less than Stage 1 alone in every pair of "


@pytest.mark.parametrize(
    ("own", "published", "word", "why"),
    [
        ([], (0.1, 0.3), "cannot be told", "Nothing of the kind was measured here."),
        ([NONE], (0.1, 0.3), "cannot be told", "Nothing of the kind was measured here."),
        (
            [CLEAR, NONE],
            (0.1, 0.3),
            "holds",
            (
                f"{LESS}1 of 1 architecture, in 1 with intervals apart; its mean is in the "
                "published 10% to 30% in 1."
            ),
        ),
        (
            [CLEAR, OVERLAP, MIXED],
            (0.15, 0.25),
            "holds in part",
            (
                f"{LESS}2 of 3 architectures, in 1 with intervals apart; its mean is in the "
                "published 15% to 25% in 1."
            ),
        ),
        (
            [CLEAR],
            (0.3, 0.4),
            "holds in part",
            (
                f"{LESS}1 of 1 architecture, in 1 with intervals apart; its mean is in the "
                "published 30% to 40% in 0."
            ),
        ),
        (
            [MIXED],
            (0.1, 0.2),
            "cannot be told",
            (
                f"{LESS}0 of 1 architecture, in 0 with intervals apart; its mean is in the "
                "published 10% to 20% in 0."
            ),
        ),
        (
            [CLEAR],
            None,
            "cannot be told",
            (
                f"{LESS}1 of 1 architecture, in 1 with intervals apart; the paper has no numbers "
                "for this scope."
            ),
        ),
    ],
)
def test_a_published_ablation_holds_where_all_is_clear_and_in_its_range(own, published, word, why):
    assert answers.ablation(own, published) == (word, why)


@pytest.mark.parametrize(
    ("sure", "pairs", "word", "why"),
    [
        (0, 2, "holds", "A barrier above 0 is left for sure in 0 of 2 pairs."),
        (1, 2, "holds in part", "A barrier above 0 is left for sure in 1 of 2 pairs."),
        (1, 1, "does not hold", "A barrier above 0 is left for sure in 1 of 1 pair."),
        (0, 0, "cannot be told", "Nothing of the kind was measured here."),
    ],
)
def test_connected_holds_where_no_barrier_is_left_for_sure(sure, pairs, word, why):
    assert answers.connected(sure, pairs) == (word, why)


def trial(rank: int, barriers: list[float], naive: float = 20.0, chosen: int = 0) -> OrderTrial:
    return OrderTrial("llama", ("a", "b"), np.array(barriers), naive, chosen, (1, rank))


GOOD = trial(2, [1.0, 0.0, *[20.0] * 6])  # of 100 that the best order gains 5 are lost
DEAR = trial(2, [1.2, 0.0, *[20.0] * 6])
LATE = trial(3, [0.0] * 8)
CHOSEN = "The chosen order is in the first quarter by its barrier and loses at most 5 of 100 in "


@pytest.mark.parametrize(
    ("trials", "word", "end"),
    [
        ((GOOD,), "holds", "1 of 1 pair."),
        ((GOOD, DEAR), "holds in part", "1 of 2 pairs."),
        ((GOOD, DEAR, LATE, LATE), "does not hold", "1 of 4 pairs."),
        ((trial(1, [20.0, 20.0]),), "does not hold", "0 of 1 pair."),  # naive is the best: no loss
    ],
)
def test_a_chosen_order_is_good_where_its_rank_is_low_and_its_loss_small(trials, word, end):
    assert answers.orders(trials) == (word, CHOSEN + end)
    assert answers.orders(()) == answers.UNKNOWN


def test_a_yes_and_an_order_are_compared_with_the_published_ones():
    assert answers.same(True, None, "yes", "no") == answers.UNKNOWN
    assert answers.same(True, True, "it grows", "it does not") == ("holds", "Here it grows.")
    assert answers.same(True, False, "it grows", "it does not") == (
        "does not hold", "Here it does not.")  # fmt: skip
    theirs = {"c": 1.0, "a": 3.0, "b": 2.0, "d": 0.5}
    kept = "Published order: a, b, c; {} of its 2 steps are found here."
    assert answers.ordered(theirs, {"a": 9, "b": 8, "c": 7}) == ("holds", kept.format(2))
    assert answers.ordered(theirs, {"a": 9, "b": 8, "c": 8}) == ("holds in part", kept.format(1))
    assert answers.ordered(theirs, {"a": 7, "b": 8, "c": 9}) == ("does not hold", kept.format(0))
    assert answers.ordered(theirs, {"a": 7}) == answers.UNKNOWN


def measured(*scopes: ScopeRatios, **more: Any) -> Connectivity:
    given = {"orders": (), "missing": (), "left_out": (), "points": 25, "command": "command"}
    return Connectivity({}, scopes, **(given | more))


THEIRS = PublishedConnectivity(
    "source", "ViT and BERT", ("CIFAR", "MNIST"), "first-attention",
    {"none": (0.5, 0.7), "orthogonal": (0.3, 0.4), "full": (0.1, 0.3)}, "the chosen is third",
    {"first-attention": ("yes", "no")},
)  # fmt: skip


def test_an_ablation_is_told_over_all_its_settings():
    worse = ratios([LOW], [HIGH], "vit", scope="all-attention",
                   difference=np.array([[0.5, 0.25, 0.75]]))  # fmt: skip
    less = replace(CLEAR, difference=np.array([[-0.5, -0.75, -0.25], [0.1, -0.1, 0.3]]))
    heard = ratios([HIGH, HIGH], [[0.1, 0.0, 0.2]] * 2, using="activations")
    record = measured(less, OVERLAP, worse, NONE, heard, missing=("one",))
    found = reproductions.told(record, THEIRS)
    assert found.headline == (
        "The full Stage 2 leaves clearly less of the barrier than Stage 1 alone in 1 of 3 settings."
    )
    assert found.badge == "partial"
    parts = (
        (
            "Clearly: in every pair with intervals apart. In 1 more it is less in every pair, with "
            "intervals that overlap; in 1 the two are not to be told apart."
        ),
        reproductions.STAGES,
        "A setting is an architecture and a scope; 6 pairs of models from different seeds.",
        (
            "With layers matched by activations rather than by weights the full Stage 2 leaves "
            "less on the mean in 1 of 1 setting measured with both: 10% in place of 20% over all "
            "of them."
        ),
        (
            "On the mean the full Stage 2 leaves no less than Stage 1 alone in: ViT, the "
            "attention of every layer (80% after 20%)."
        ),
        (
            "Full against orthogonal on the same windows: less in 1 of 6 pairs, more in 1; in 4 "
            "the interval of their difference holds 0."
        ),
        "No ratio, since the naive barrier may be 0: BERT, the attention of the first layer.",
        (
            "In the paper's scope, the attention of the first layer, 1 of 2 architectures here "
            "lie in its 10% to 30%."
        ),
        "The models here are far smaller than the paper's: a ratio that differs refutes nothing.",
        "Not measured yet: 1 setting.",
    )
    assert found.text == " ".join(parts)


def test_cards_of_a_reproduction_say_theirs_ours_and_what_differs():
    record = measured(CLEAR, NONE, orders=(GOOD, DEAR), seconds=7200.0, left_out=("No CNN.",))
    card = reproductions.ablation(record, THEIRS, "first-attention")
    assert (card.theirs, card.ours) == (
        (
            "Stage 1 alone 50% to 70%, orthogonal Stage 2 30% to 40%, full Stage 2 10% to 30%, in "
            "the attention of the first layer."
        ),
        (
            "In the attention of the first layer, Stage 1 alone, orthogonal Stage 2, full Stage 2: "
            "Llama: 80%, 50%, 20%; BERT: no ratio."
        ),
    )
    assert card.differs == (
        "Theirs: ViT and BERT on CIFAR, MNIST, the attention of the first layer, ranges over data "
        "sets. Ours: 3 to 6 layers of width 48 or 96 on generated data. No CNN."
    )
    assert card.answer.word == "holds"
    assert card.cost == (
        "The command trains and measures all architectures and scopes anew: 2.0 h on one processor "
        "core; --only names some."
    )
    whole = reproductions.ablation(record, THEIRS, "whole")
    assert whole.ours == "Not measured here yet."
    assert "The paper has no ablation of the whole model." in whole.differs
    joined = reproductions.connected(record, THEIRS, "first-attention")
    assert joined.theirs == "Small data: yes. Large data: no."
    assert joined.ours == (
        "After a full Stage 2 the barrier is above 0 with its whole interval in 2 of 3 pairs; it "
        "lies between 0.2 and 0.35 nats."
    )
    assert joined.answer == (
        "holds in part", "A barrier above 0 is left for sure in 2 of 3 pairs.")  # fmt: skip
    ranked = reproductions.orders(record, THEIRS)
    assert ranked.theirs == "Of 24 orders, the chosen is third."
    assert ranked.ours == (
        "Rank of the chosen order by its measured barrier, and in brackets what it loses of 100 "
        "that the best gains: Llama 2 of 8 (5), Llama 2 of 8 (6)."
    )
    assert reproductions.without(record, "first-attention") == (
        "Not in the picture: BERT (1 of 1 pair). The naive barrier there is not above 0 with its "
        "whole interval, so nothing can be a share of it."
    )
    assert reproductions.without(record, "whole") == (
        "No dots: with the whole model interpolated nothing is shared that both models hear, and "
        "pairs are matched by weights alone."
    )
    assert reproductions.setting(replace(MIXED, using="activations")) == (
        "ViT, the attention of the first layer by activations"
    )
