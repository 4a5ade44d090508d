"""Sentences on layers, cuts and training word for word, on records of a few numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.charts.layer_maps import Maps, Pair
from app.charts.measures import Number
from app.layer_views import Counted
from app.sentences import cuts, gaps, published
from app.sentences import layers as layer_sentences
from engine.records import GapStep, GapTrajectory, Measure, PublishedCoordinates, Readings
from tests import fake_layers


def halves(low: float, high: float) -> Readings:
    """KL and rise of the loss in nats, half of 16 windows each, for budgets 0 and 1."""
    rise = np.stack([np.zeros(16), np.tile([low, high], 8)]).astype(np.float32)
    return Readings(rise, 2 + rise, np.exp(-rise), np.full(16, 31))


LN = np.log([1.0, 1.21, 1.5, 1.6, 1.04])
SURE, NEXT = halves(LN[0], LN[1]), halves(LN[2], LN[3])  # +10 % and about +55 %


def candidate(by: str, layer: int, readings: Readings) -> Any:
    found = fake_layers.candidate(by, (layer,), 1, 16)
    return replace(found, readings=readings, stopped="")


def cut_report(*candidates: Any, **more: Any) -> Any:
    given = {"candidates": candidates, "run": fake_layers.run()}
    return fake_layers.cut_report(**(given | more))


LEFT_OUT = (
    "Candidates are chosen on one half of the text. Measured on 512 tokens of the demo models' own "
    "text in 16 windows, mean over all positions, on cpu in float32, 1 s. Another text may say "
    "otherwise."
)


def test_a_cut_is_advised_with_its_rise_and_the_next():
    greedy, swap = candidate("greedy", 3, SURE), candidate("swap", 4, NEXT)
    found = cuts.told(cut_report(swap, greedy), 1)
    assert found.headline == (
        "At n = 1, leaving out layer 3 costs least: +10.0 % [+4.88, +15.4] perplexity."
    )
    assert found.text == (
        "Chosen by greedy by measured perplexity; the next, swap-guided, costs +54.9 % [+52.4, "
        "+57.4] perplexity, and the intervals share no value. 1 layer of 6 holds 14% of the "
        f"parameters. {LEFT_OUT}"
    )
    same = cuts.advice(cut_report(swap, greedy, candidate("influence", 3, SURE)), 1)[1]
    assert same.startswith(
        "Chosen by greedy by measured perplexity (block influence chose the same); the next, swap-"
    )
    wide = candidate("swap", 4, halves(LN[0], 2 * LN[1]))  # exp(¼ · 2 ln 1.21) − 1 = 10 %
    assert cuts.advice(cut_report(wide, greedy), 1) == (
        "No advice at n = 1: the cheapest cut is not separated from the next.",
        (
            "Cheapest: greedy by measured perplexity, without layer 3, +10.0 % [+4.88, +15.4] "
            "perplexity. Its interval overlaps with: swap-guided +21.0 % [+10.0, +33.1] perplexity."
        ),
    )
    half = cuts.told(cut_report(fake_layers.candidate("greedy", (3, 4), 2, 16)), 2)
    assert half.headline == "All candidates leave out layers 3 and 4."
    assert " 2 layers of 6 hold 28% of the parameters. Candidates are chosen " in half.text


@pytest.mark.parametrize(
    ("report", "headline", "reason"),
    [
        (cut_report(), "No advice: no candidate leaves out so many layers.",
         "Nothing was measured at this budget."),
        (cut_report(complete=False), "No advice: the measurements are not complete.",
         "Nothing was measured at this budget."),
        (cut_report(candidate("greedy", 3, SURE), run=fake_layers.run(text="random token ids")),
         "No advice: the tokens are random, since no tokenizer opens.",
         ("Cheapest: greedy by measured perplexity, without layer 3, +10.0 % [+4.88, +15.4] "
         "perplexity.")),
        (cut_report(candidate("greedy", 3, SURE), run=fake_layers.run(15)),
         "No advice, no interval: fewer than 16 windows.",
         ("Cheapest: greedy by measured perplexity, without layer 3, +10.0 % [+4.88, +15.4] "
         "perplexity.")),
    ],
)  # fmt: skip
def test_no_cut_is_advised_without_grounds(report, headline, reason):
    assert cuts.advice(report, 1) == (headline, reason)


def test_a_cut_of_a_model_without_next_tokens_costs_nats():
    silent = replace(SURE, loss=np.full_like(SURE.loss, np.nan))
    (cost,) = cuts.costs(cut_report(candidate("greedy", 3, silent)), 1)
    assert cost.said == "0.095 [0.048, 0.14] nats of KL"  # ln 1.21 over 2, 4 and ¾
    own = fake_layers.cut_cost((5, 9, 10, 11), 0.5)
    exact = replace(own, readings=replace(own.readings, loss=own.base.loss + np.log(1.5)))
    assert cuts.mine(exact, own.dropped) == (
        "Mine: without layers 5 and 9 to 11 (both ends included), +50.0 % [+50.0, +50.0] "
        "perplexity."
    )
    assert cuts.mine(None, (7,)) == "Mine: without layer 7, not measured."
    assert cuts.mine(None, ()) == (
        "Mine: no layer yet. Click the strip, or write layers such as 5,7,9-11."
    )
    assert cuts.costs(cut_report(candidate("swap", 4, NEXT)), 1, exact)[-1].by == "mine"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            [("swap", 0.25, 4), ("replace", 0.91, 12), ("angular", float("nan"), 2)],
            "swap ρ = 0.25 over 4 layers; replace ρ = 0.91 over 12 layers.",
        ),
        (
            [("swap", 0.95, 4), ("replace", 0.5, 12)],
            (
                "swap ρ = 0.95 over 4 layers; replace ρ = 0.50 over 12 layers. With so few layers "
                "a ρ is a hint only."
            ),
        ),
        ([("swap", 0.5, 10)], "swap ρ = 0.50 over 10 layers."),
    ],
)
def test_a_rank_correlation_is_a_hint_where_the_best_has_few_layers(found, text):
    said = f"Rank correlation with the measured cost of one layer: {text}"
    assert cuts.told_scores(found) == said


def grown(replaced: list[float], swap: list[float], step: int, **properties: float) -> GapStep:
    """A step with the cost of replacing and of swapping the two adjacent pairs of three layers."""
    first, second = np.array(replaced), np.array(swap)
    skip = Measure(np.array([0.5, 1.0]))
    return GapStep(
        f"base-step-{step}", step, 2.0, Measure(first), Measure(second), skip, properties
    )


START = grown([0.2, 0.4], [0.1, 0.4], 500, loss=3.0, cka=0.1)  # log₂ 2 and log₂ 1; 0.1 and 0
LATER = grown([0.4, 0.8], [0.1, 0.4], 1000, loss=2.5, cka=0.2)  # 2 and 1; 0.3 and 0.4
END = grown([0.8, 1.6], [0.1, 0.4], 20_000, loss=2.75, cka=0.3)  # 3 and 2; 0.7 and 1.2
PAIRS = "a mean over 2 pairs of adjacent layers."


def course(*steps: GapStep, **more: Any) -> GapTrajectory:
    given = {"steps": steps, "layers": 3}
    return replace(fake_layers.gap(), **(given | more))


@pytest.mark.parametrize(
    ("record", "scale", "headline", "text"),
    [
        (
            course(END, START, LATER), "log ratio",
            "The gap is larger at step 20,000 than at step 500: 2.5 after 0.5 (log ratio).",
            (
                f"It grows, at every step; {PAIRS} At the last one, mean KL in nats: replace 1.2, "
                "swap 0.25, skip 0.75."
            ),
        ),
        (
            course(START, LATER), "difference",
            "The gap is larger at step 1,000 than at step 500: 0.35 after 0.05 (difference).",
            ("A mean over 2 pairs of adjacent layers. At the last one, mean KL in nats: replace "
            "0.6, swap 0.25, skip 0.75."),
        ),
        (
            course(replace(END, step=1), LATER, START), "log ratio",
            "The gap is no larger at step 1,000 than at step 1: 1.5 after 2.5 (log ratio).",
            (f"It shrinks, not at every step; {PAIRS} At the last one, mean KL in nats: replace "
            "0.6, swap 0.25, skip 0.75."),
        ),
        (
            course(replace(START, model="one"), replace(END, model="two")), "log ratio",
            "Over 2 models the mean gap lies between 0.5 and 2.5 (log ratio).",
            (
                "Each a mean over 2 pairs of adjacent layers; 0 is no gap. At the last one, mean "
                "KL in nats: replace 1.2, swap 0.25, skip 0.75."
            ),
        ),
    ],
)  # fmt: skip
def test_a_gap_is_told_from_its_first_step_to_its_last(record, scale, headline, text):
    found = gaps.told(record, scale)
    ran = (
        " Measured on 512 tokens of the demo models' own text in 16 windows, mean over all "
        "positions, on cpu in float32, 1 s."
    )
    assert (found.headline, found.text) == (headline, text + ran)


def test_properties_are_correlated_with_the_gap_in_the_order_of_training():
    said = (
        "Rank correlation with the mean gap: loss ρ = -0.50; cka ρ = 1.00. 3 models are few. "
        "Training moves all of these at once, so none is shown to be the cause."
    )
    assert gaps.correlated(course(END, START, LATER), "log ratio") == said
    seeds = course(*(replace(x, model=f"m{x.step}") for x in (START, LATER, END)))
    assert gaps.correlated(seeds, "log ratio").endswith(
        "few. A property that differs along is not shown to be the cause."
    )
    many = course(*(replace(START, step=n, model=f"s-step-{n}",
                            replace=Measure(START.replace.value * (n + 1)),
                            properties={"loss": -n}) for n in range(10)))  # fmt: skip
    assert gaps.correlated(many, "log ratio").startswith(
        "Rank correlation with the mean gap: loss ρ = -1.00. Training moves all"
    )
    single = course(START, layers=2)
    assert gaps.moved(single, "log ratio") == "A mean over 1 pair of adjacent layers."


NAN = np.nan
REPLACED = np.array([[NAN, 0.2, 0.9], [0.4, NAN, 0.06], [0.8, 0.03, NAN]])
SWAPPED = np.array([[NAN, 0.02, 1.0], [0.02, NAN, 0.04], [1.0, 0.04, NAN]])


def layer_view(apart: float = 0.95, **more: Any) -> Maps:
    """Three layers; depth 0 runs layer 1 at 0.2 nats, depth 1 runs layer 0 at 0.4."""
    pairs = {
        "replace": Measure(REPLACED, REPLACED * apart, REPLACED / apart),
        "swap": Measure(SWAPPED, SWAPPED * apart, SWAPPED / apart),
    }
    given = {
        "layers": 3, "kinds": ("attention",) * 3, "pairs": pairs, "singles": {},
        "influence": None, "published": False,
    }  # fmt: skip
    return Maps(**(given | more))


def test_maps_of_layers_are_told_in_nats_test_by_test():
    found = layer_sentences.told(layer_view(), fake_layers.layer_maps(3), "max")
    assert found.headline == "Swapping costs more than replacing in 1 of 3 pairs."
    assert found.text == (
        "Its intervals share no value. The median replacement costs 1.5 × the swap of the same "
        "pair. Cheapest by swap: layers 0 and 1, 0.02 [0.019, 0.021] nats; 2 below 0.05 (strong). "
        "Cheapest by replace: layers 1 and 2, 0.06 [0.057, 0.063] nats; none below 0.05 (strong). "
        "First to go by the published rule, no two of them neighbours: by swap 0, 2; by replace 1. "
        "They share none. Measured on 512 tokens of the demo models' own text in 16 windows, mean "
        "over all positions, on cpu in float32, 1 s. The cost of removing layers is on the Cutting "
        "page; no map shows it."
    )
    low = layer_sentences.told(layer_view(0.88), fake_layers.layer_maps(3), "min")
    assert low.headline == "Swapping costs more than replacing in 2 of 3 pairs."
    assert low.text.startswith(
        "In 1 of those 2 the intervals share no value. The median replacement costs 0.8 × the swap "
        "of the same pair. Cheapest by swap: layers 0 and 1, 0.02 [0.018, 0.023] nats; 2 below "
        "0.05 (strong). Cheapest by replace: layers 1 and 2, 0.03 [0.026, 0.034] nats; 1 below "
        "0.05 (strong)."
    )
    mean = layer_sentences.told(layer_view(), fake_layers.layer_maps(3), "mean").text
    assert mean.startswith(
        "The median replacement costs 1.1 × the swap of the same pair. There are no intervals by "
        "which to say how sure the exceptions are."
    )
    near = layer_sentences.told(layer_view(0.5), fake_layers.layer_maps(3), "max").text
    assert near.startswith("Its intervals overlap. ")


@pytest.mark.parametrize(
    ("view", "headline"),
    [
        (layer_view(layers=1), "This model has one layer: there are no pairs."),
        (layer_view(pairs={"swap": Measure(SWAPPED)}),
         "Only one of the two tests: whether they agree is not known."),
        (layer_view(pairs={"swap": Measure(SWAPPED), "replace": Measure(SWAPPED * NAN)}),
         "No pair was measured by both tests."),
        (layer_view(pairs={"swap": Measure(SWAPPED), "replace": Measure(SWAPPED)}),
         "Swapping costs no more than replacing in any of 3 pairs."),
    ],
)  # fmt: skip
def test_two_tests_are_compared_only_where_both_were_measured(view, headline):
    assert layer_sentences.told(view, fake_layers.layer_maps(3), "max").headline == headline


@pytest.mark.parametrize(
    ("pair", "how", "names", "text"),
    [
        (Pair(0, 1), "max", ("replace", "swap"),
         "replace over swap: 20 (the max of both directions)."),
        (Pair(1, 0), "min", ("replace", "swap"),
         "replace over swap: 10 (the min of both directions)."),
        (Pair(0, 1), "mean", ("swap", "replace"),
         "swap over replace: 0.067 (the mean of both directions)."),
        (Pair(0, 1), "max", ("replace", "skip"), "replace over skip: not measured."),
        (Pair(0, 0), "max", ("replace", "swap"), "replace over swap: not measured."),
    ],
)  # fmt: skip
def test_one_test_over_another_is_told_with_its_value(pair, how, names, text):
    assert layer_sentences.ratio(layer_view(), how, pair, names) == text
    free = layer_view(pairs={**layer_view().pairs, "swap": Measure(SWAPPED * 0)})
    assert layer_sentences.ratio(free, "max", Pair(0, 1), ("replace", "swap")) == (
        "swap costs nothing measurable; replace 0.4 nats."
    )


LOWS = "Low is below 0.1 nats: strong below 0.05, conditional from there ({})."


@pytest.mark.parametrize(
    ("pair", "how", "text"),
    [
        (
            Pair(1, 2), "max",
            (
                "Layers 1 and 2: both low. Each layer does the other's work: either may run "
                "twice, and their order is free. "
                f"{LOWS.format('replace conditional, swap strong')}"
            ),
        ),
        (
            Pair(0, 1), "max",
            ("Layers 0 and 1: swap low, replace high. Their order is free but both are needed: "
            "running one of them twice is not the same. "
            f"{LOWS.format('replace neither, swap strong')}"),
        ),
        (
            Pair(0, 2), "max",
            ("Layers 0 and 2: both high. Neither stands in for the other, and their order matters. "
            f"{LOWS.format('replace neither, swap neither')}"),
        ),
        (
            Pair(2, 2), "max",
            "Depth 2 running layer 2 is the model as it is: choose two layers.",
        ),
    ],
)  # fmt: skip
def test_a_chosen_pair_is_told_by_both_tests(pair, how, text):
    assert layer_sentences.picked(layer_view(), pair, how) == text
    turned = layer_view(pairs={"replace": Measure(SWAPPED), "swap": Measure(SWAPPED * 10)})
    assert layer_sentences.picked(turned, Pair(0, 1), how).startswith(
        "Layers 0 and 1: replace low, swap high. One of them may run twice, yet their order"
    )
    assert layer_sentences.cell(layer_view().pairs["replace"], Pair(1, 0)) == Number(
        0.4, 0.4 * 0.95, 0.4 / 0.95
    )


def test_what_a_run_read_is_told_in_units():
    run = fake_layers.run(1, tokens=1, aggregate="last", seconds=200, device="cuda")
    assert layer_sentences.ran(run) == (
        "Measured on 1 token of the demo models' own text in 1 window, mean over the last position "
        "of each window, on cuda in float32, 3 min. There is no interval: fewer than 16 windows."
    )
    said = {name: text.partition(":")[2].strip() for name, text in layer_sentences.TITLES.items()}
    assert said["replace"] == "depth i runs layer j"
    assert layer_sentences.SAYS["replace"] == (
        "depth i runs layer j, and j runs at its own depth too"
    )
    assert said["skip"] == "i's output goes to the layer after j"
    assert layer_sentences.SAYS["skip"] == "layers i + 1 to j are left out, both ends included"


def ways(above: int, pairs: int, apart: int = 2, *, intervals: bool = True) -> Counted:
    return Counted(pairs, above, apart, intervals, 2.5)


@pytest.mark.parametrize(
    ("theirs", "ours", "said", "answer"),
    [
        (ways(20, 102), ways(10, 40), ("swapping costs more in 10 of 40 pairs, 2 with intervals "
         "apart; replacing costs 2.5 times as much on the median."),
         ("holds", "Here too, swapping costs less in most pairs.")),
        (ways(20, 102), ways(20, 40, intervals=False), ("swapping costs more in 20 of 40 pairs; "
         "replacing costs 2.5 times as much on the median."),
         ("does not hold", "Here swapping costs more in most pairs.")),
        (ways(20, 102), None, "Not measured here yet.",
         ("cannot be told", "Nothing of the kind was measured here.")),
    ],
)  # fmt: skip
def test_a_published_comparison_of_tests_stands_beside_ours(theirs, ours, said, answer):
    card = published.tests(theirs, ours, "source", "command")
    assert card.theirs == (
        "Qwen3-8B: swapping costs more in 20 of 102 pairs, 2 with intervals apart; replacing costs "
        "2.5 times as much on the median."
    )
    assert card.ours == f"SmolLM2-135M: {said}"
    assert (card.answer, card.command) == (answer, "command" if ours else "")


def test_the_test_that_tells_more_has_the_larger_correlation():
    theirs = {"swap": 0.5, "replace": 0.75}
    card = published.removal(theirs, {"swap": 0.9, "replace": 0.8}, "source", "command")
    assert (card.theirs, card.ours) == (
        "Qwen3-8B: swap ρ = 0.50, replace ρ = 0.75, replace tells more.",
        "SmolLM2-135M: swap ρ = 0.90, replace ρ = 0.80, swap tells more.",
    )
    assert card.answer == ("does not hold", "Here swapping tells more.")
    near = published.removal(theirs, {"swap": 0.84, "replace": 0.8}, "source", "command").answer
    assert near == ("cannot be told", "Here the two correlations differ by less than 0.05.")
    better = published.removal(theirs, {"swap": 0.5, "replace": 0.8}, "source", "command").answer
    assert better == ("holds", "Here replacing tells more.")
    cost = np.array([3.0, 1.0, 2.0, 5.0])  # the lower of two neighbours: 1, 1, 2
    pairs = np.full((4, 4), np.nan)
    pairs[[0, 1, 2], [1, 2, 3]] = pairs[[1, 2, 3], [0, 1, 2]] = [0.1, 0.2, 0.3]
    other = np.where(np.isnan(pairs), np.nan, 1 - pairs)
    view = layer_view(layers=4, pairs={"swap": Measure(pairs), "replace": Measure(other)})
    found = published.told_removal(view, cost)
    assert found == pytest.approx({"swap": np.sqrt(0.75), "replace": -np.sqrt(0.75)})


def test_a_gap_in_training_is_told_as_a_ratio_of_its_ends():
    card = published.gap({"pythia": course(START, END)}, course(START, LATER), "source", "command")
    assert (card.theirs, card.ours) == (
        "pythia ×19 (0.05 to 0.95, step 500 to 20,000).",
        "The demo's base: ×7 (0.05 to 0.35, step 500 to 1,000).",
    )
    assert card.answer == ("holds", "Here it grows from the first saved step to the last.")
    shrunk = course(replace(END, step=1), LATER)
    assert published.gap({"pythia": course(START, END)}, shrunk, "", "").answer == (
        "does not hold", (
            "Here it does not grow from the first saved step to the last."
        ))  # fmt: skip
    below = course(grown([0.1, 0.1], [0.2, 0.2], 5), LATER)
    assert published.gap({}, below, "", "").ours == (
        "The demo's base: no ratio (-0.1 to 0.35, step 5 to 1,000)."
    )


def test_coordinates_through_training_and_transport_are_told_beside_ours():
    theirs = PublishedCoordinates(
        "source", "OLMo", {"signs": 97.5, "none": 40.0}, "a steering vector",
        {"cosine": (0.25, 0.9), "loss": (3.0, 2.5)},
    )  # fmt: skip
    card = published.trajectory(theirs, {"signs": 99.94, "none": 51.0})
    assert card.theirs == "OLMo: signs 97.5 %, none 40 %."
    assert card.ours == ("Two fine-tunes of the demo's base, 160 steps: signs 99.9 %, none 51 %.")
    assert card.answer.word == "holds"
    moved = published.transport(theirs)
    assert moved.theirs == "A steering vector: cosine 0.25 against 0.9; loss 3 against 2.5."
    assert (moved.ours, moved.answer.word) == ("Not measured here yet.", "cannot be told")
