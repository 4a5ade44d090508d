"""What commands print, line by line, on records that can be followed by hand."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from engine.records import (
    AlignmentReport,
    Assignment,
    Candidate,
    Continuation,
    Curve,
    CutCost,
    Disguise,
    Effect,
    Excited,
    GapStep,
    GapTrajectory,
    HeadCost,
    HeadsReport,
    LayerMaps,
    LineageTest,
    LossSlice,
    Measure,
    OrderRank,
    Readings,
    ResidualMatch,
    Spared,
    StageReport,
    Sweep,
    Truth,
    Writing,
)
from engine.summaries import experts, layers, line, margins, models, neurons, pairs
from tests import (
    fake_alignments,
    fake_barriers,
    fake_experts,
    fake_heads,
    fake_layers,
    fake_neurons,
    fakes,
)

RUN = fake_layers.run(seconds=1.25)
ON = "on 512 tokens in 16 windows of the demo models' own text, cpu, 1.2 s"


def said(lines: Iterator[str]) -> list[str]:
    return list(lines)


def test_a_margin_below_0_says_what_it_means():
    assert margins.lead(0.1239) == "0.124"
    assert margins.lead(0.0) == "0.000"
    assert margins.lead(-0.5) == "-0.500 (below 0: another was nearer, but is taken)"


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (RUN, ON),
        (fake_layers.run(1, tokens=32, seconds=0.06), ("on 32 tokens in 1 window of the demo "
         "models' own text, cpu, 0.1 s")),
        (fake_layers.run(16, tokens=16, text="images", device="cuda"),
         "on 16 inputs of images, cuda, 1.4 s"),
    ],
)  # fmt: skip
def test_an_image_is_one_input_and_a_text_is_tokens_in_windows(run, text):
    assert layers.where(run) == text


def halves(low: Any, high: Any, more: float = 2.0) -> Readings:
    """KL and rise of the loss, nats, in half of 16 windows each: [*cells].

    A resample of 16 windows holds 4 to 12 of either half in 95 of 100 (binomial), so that the
    interval ends at a quarter and at three quarters of the way from `low` to `high`.
    """
    both = np.stack([np.asarray(low, float), np.asarray(high, float)] * 8, -1)
    return Readings(both.astype(np.float32), (more + both).astype(np.float32),
                    np.exp(-both).astype(np.float32), np.full(16, 31))  # fmt: skip


def test_a_cost_is_told_with_its_intervals_before_and_after():
    base = halves(0.0, 0.0)
    found = CutCost("base", "a" * 16, (2,), base, halves(0.0, np.log(1.21)), RUN)
    assert said(layers.of_cost(found)) == [
        "KL(before ‖ after) 0.09531 (0.04766 to 0.143) nats a position",
        "loss 2 (2 to 2) → 2.095 (2.048 to 2.143) nats; perplexity +10.0 (+4.9 to +15.4) %",
        ON,
    ]
    none = np.full_like(base.loss, np.nan)
    silent = replace(found, base=replace(base, loss=none))
    assert said(layers.of_cost(silent))[1] == (
        "no next-token loss: this model does not continue texts"
    )


def test_maps_name_their_lowest_cells_with_depth_before_layer():
    replaced = np.array([[0.0, 0.5, 0.75], [0.25, 0.0, np.nan], [1.5, 0.0625, 0.0]])
    swapped = np.array([[0.0, 0.5, 0.25], [0.5, 0.0, np.nan], [0.25, np.nan, 0.0]])
    tests = {
        "replace": halves(replaced, replaced), "swap": halves(swapped, swapped),
        "delete": halves([2.0, 0.125, 3.0], [2.0, 0.125, 3.0]),
    }  # fmt: skip
    record = replace(fake_layers.layer_maps(3), tests=tests, run=RUN, passes=1234)
    assert said(layers.of_maps(record)) == [
        "base: 3 layers, KL(before ‖ after) in nats a position",
        "replace           5 cells, lowest 2, 1: 0.0625; 1, 0: 0.25; 0, 1: 0.5",
        "swap              2 cells, lowest 0, 2: 0.25; 0, 1: 0.5",
        "delete            3 cells, lowest 1: 0.125; 0: 2; 2: 3",
        f"layers run 1,234 (at least 175; whole forwards 390), {ON}",
    ]
    one = replace(record, tests={"swap": halves([[0.0]], [[0.0]])}, layers=1)
    assert said(layers.of_maps(one))[1] == "swap              0 cells: no two layers to compare"


def test_a_cut_tells_what_goes_and_what_it_costs():
    rise = np.log([1.0, 1.1, 1.5])
    one = Candidate("greedy", ((), (3,), (4, 3)), halves(rise, rise), 5, "No further layer is free")
    record = fake_layers.cut_report(candidates=(one,), run=RUN)
    assert said(layers.of_cut(record)) == [
        "greedy     n = 1: layers 3: KL 0.09531, perplexity +10.0 %",
        "greedy     n = 2: layers 3, 4: KL 0.4055, perplexity +50.0 %",
        "greedy     No further layer is free",
        ON,
    ]
    silent = replace(one, readings=replace(one.readings, loss=one.readings.loss * np.nan))
    told = said(layers.of_cut(replace(record, candidates=(silent,))))[0]
    assert told == "greedy     n = 1: layers 3: KL 0.09531"


def test_a_training_is_told_step_by_step_in_means():
    parts = (Measure(np.array(x)) for x in ([0.5, 1.5], [0.25, 0.5], [2.0, 3.0]))
    step = GapStep("base-step-100", 100, 2.5, *parts, {})
    record = GapTrajectory("Llama", 3, (step, replace(step, loss=np.nan)), True, RUN)
    assert said(layers.of_gap(record)) == [
        "base-step-100            step    100: loss 2.500, replace 1, swap 0.375, skip 2.5",
        "base-step-100            step    100: replace 1, swap 0.375, skip 2.5",
        ON,
    ]
    text = Continuation("base", "depth 2 runs layer 3", "Anna", " goes", " stays", 4)
    assert said(layers.of_continuation(text)) == [
        "base, prompt: Anna", "before:  goes", "depth 2 runs layer 3:  stays",
        "the two part after 4 tokens",
    ]  # fmt: skip


def curve(stage: str, low: float, high: float, ends: tuple[float, float] = (1.0, 2.0)) -> Curve:
    """A hill at t = 0.25 that is `low` in half of 16 windows and `high` in the others."""
    t = np.linspace(0, 1, 5)
    worse = np.zeros((5, 16))
    worse[1:4] = np.tile([low, high], 8) / 2
    worse[1] *= 2
    loss = ends[0] + (ends[1] - ends[0]) * t[:, None] + worse
    return Curve(
        stage, t, loss, 0.75 - t[:, None] / 4 - worse / 5, np.full(16, 127), 1.0, complete=True
    )


def test_a_line_is_told_stage_by_stage():
    record = replace(
        fake_barriers.report(), curves=(curve("none", 2, 2), curve("all", 0.2, 0.6)), classes=4,
        run=RUN, aligning=1.25, models=25,
    )  # fmt: skip
    assert said(line.of_barrier(record)) == [
        "base to seed-1, whole: 650,000 of 650,000 parameters move",
        "loss of A 1.0000 nats, of B 2.0000",
        (
            "a guess that knows nothing loses 1.3863 nats (the logarithm of 4), less than B: no "
            "barrier says much on a text that a model does not know"
        ),
        "none          barrier 2 (2 to 2) nats at t = 0.250; accuracy falls by 0.4 (0.4 to 0.4)",
        (
            "all           barrier 0.4 (0.3 to 0.5) nats at t = 0.250, 0.2 of none; accuracy falls "
            "by 0.08 (0.06 to 0.1)"
        ),
        "matched by weights",
        f"25 models, each asked for the next token, {ON}, of which 1.2 s for the alignment",
    ]
    apart = replace(record, shared=False, scope="3-5", moved=(1, 8), classes=2)
    told = said(line.of_barrier(apart))
    assert told[0] == "base to seed-1, 3-5: 1 of 8 parameters move"
    assert told[1] == "loss of A 1.0000 nats, of the other end 2.0000"
    assert "less than A and the other end: no barrier" in told[2]
    assert line.matched(replace(record, using="activations")) == (
        "residual coordinates matched by activations, what is inside layers by weights"
    )
    assert line.matched(replace(apart, using="activations", shared=True)) == (
        "layers matched by what they do: attention patterns, outputs, weights on their inputs"
    )


@pytest.mark.parametrize(
    ("losses", "t", "first", "second"),
    [
        (
            (1.0, 1.5, 2.0), 0.25,
            "1.5000 nats, 0.2500 above the chord between 1.0000 and 2.0000",
            ("the merge is a new function: it computes neither what A does nor what B does; in the "
            "worst window of 16 its loss differs by 0.5 from A's (broken) and by 0.25 from the "
            "other end's (broken), relative"),
        ),
        (
            (1.0, 1.25, 4.0), 0.5,
            "1.2500 nats, 1.2500 below the chord between 1.0000 and 4.0000",
            ("the merge is a new function: it computes neither what A does nor what B does; in the "
            "worst window of 16 its loss differs by 0.25 from A's (broken) and by 0.69 from the "
            "other end's (broken), relative"),
        ),
        (
            (1.0, 2.0, 2.0), 0.5,
            "2.0000 nats, 0.5000 above the chord between 1.0000 and 2.0000",
            ("the merge computes what the other end does; in the worst window of 16 its loss "
            "differs by 1 from A's (broken) and by 0 from the other end's (exact), relative"),
        ),
        (
            (2.0, 2.0, 2.0), 0.5,
            "2.0000 nats, on the chord between 2.0000 and 2.0000",
            ("the merge computes what A and the other end do; in the worst window of 16 its loss "
            "differs by 0 from A's (exact) and by 0 from the other end's (exact), relative"),
        ),
    ],
)  # fmt: skip
def test_a_merge_is_told_beside_its_ends(losses, t, first, second):
    found = replace(curve("all", 0, 0), t=np.array([0, t, 1]), loss=np.array([losses] * 16).T)
    record = replace(fake_barriers.merge(), t=t, curve=found, run=RUN)
    assert said(line.of_merge(record)) == [
        f"base and seed-1 at t = {t:g}, all: loss {first}", second, ON]  # fmt: skip


def test_a_plane_tells_its_three_models_and_its_lowest():
    loss = np.array([[1.5, 3.25, 2.0], [np.nan, 2.0, 0.5]])
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.25, 0.5]])
    record = LossSlice(
        "base", "seed-1", "all", np.array([0.0, 0.5, 1.0]), np.array([-0.25, 0.75]), loss, loss,
        places, 31.0, "next token", False, RUN, np.array([1.0, 2.0, 4.0]),
    )  # fmt: skip
    assert said(line.of_slice(record)) == [
        "A         at 0.000, 0.000, loss 1.0000 nats",
        "B         at 1.000, 0.000, loss 2.0000 nats",
        "aligned B at 0.250, 0.500, loss 4.0000 nats",
        "lowest of the 8 models measured 0.5000 nats at 1.000, 0.750; highest 3.2500",
        ON,
    ]
    old = said(line.of_slice(replace(record, models=None)))
    assert old[2] == "aligned B at 0.250, 0.500" and old[3].startswith("lowest of the 5 models")


def test_orders_of_heads_are_told_by_both_ranks():
    found = tuple(curve("all", low, low) for low in (0.5, 0.25, 0.75))
    record = replace(
        fake_barriers.orders(), orders=((0, 1), (1, 0), (1, 2)), chosen=2, curves=found, layer=4,
        objective=np.array([3.0, 2.0, 2.5]), naive=curve("none", 1.5, 1.5), run=RUN,
    )  # fmt: skip
    first = (
        "layer 4: of 3 orders the chosen one is number 2 by its objective and number 3 by its "
        "barrier"
    )
    last = "barriers 0.2500 to 0.7500 nats; chosen order 0.7500, B's heads as they stand 1.5000"
    told = said(line.of_orders(record))
    assert (told[0], told[-2:]) == (first, [last, ON]) and len(told) == 4
    best = said(line.of_orders(replace(record, chosen=1, total=24)))
    assert best == [
        "3 of 24 orders: the chosen one, and others drawn at random",
        ("layer 4: of 3 orders the chosen one is number 1 by its objective and number 1 by its "
        "barrier"),
        last.replace("order 0.7500", "order 0.2500"), ON,
    ]  # fmt: skip
    texts = Writing(
        ("a"), "b", "all", "whole", "Anna", np.array([0, 0.25]), (" goes", " sat"), (9, 0)
    )
    assert said(line.of_written(texts)) == [
        "a to b, all, prompt: Anna", "t = 0.000:  goes", "t = 0.250:  sat"]  # fmt: skip


def test_experts_are_told_one_a_line():
    record = fake_experts.experts_report()
    assert said(experts.of_experts(record)) == [
        (
            "layer 1 of Mixtral: 3 experts of 2 neurons, 2 a token; residual coordinates from "
            "weights"
        ),
        (
            "expert  0 of A:  1 of B, right, router 0.5, content 0.1, margin 1.500; neurons alike "
            "0.800 (least 0.700), distance 1.4 → 0.05; visited by 50.0% of the tokens"
        ),
        (
            "expert  1 of A:  0 of B, right, router 0.2, content 0.4, margin -0.250 (below 0: "
            "another was nearer, but is taken); neurons alike 0.750 (least 0.500), distance 1.2 → "
            "0.01; visited by 25.0% of the tokens"
        ),
        (
            "expert  2 of A:  2 of B, right, router 0.1, content 0.2, margin 0.750; neurons alike "
            "0.500 (least 0.400), distance 1.3 → 0.02; visited by 75.0% of the tokens"
        ),
        "router and content name different partners for 0 of 3 experts",
        (
            "half way to B in expert  0: KL 0.1 nats, loss -0.01; with B as numbered: KL 1 nats, "
            "loss +0.25"
        ),
        (
            "half way to B in expert  1: KL 0.2 nats, loss -0.02; with B as numbered: KL 2 nats, "
            "loss +0.5"
        ),
        (
            "half way to B in expert  2: KL 0.3 nats, loss -0.03; with B as numbered: KL 3 nats, "
            "loss +0.75"
        ),
        (
            "half way to B in all experts and router: KL 0.4 nats, loss -0.04; with B as numbered: "
            "KL 4 nats, loss +1"
        ),
        "0.4 s on 512 tokens of a text, cpu",
    ]
    bare = replace(
        record, usage=None, planted_order=np.array([1, 2, 0]), shared=64, checked_on="",
        halfway=None, by_router=np.array([0, 1, 2]),
    )  # fmt: skip
    told = said(experts.of_experts(bare))
    assert told[0].endswith("2 a token, one more of 64 for every token; residual coordinates from "
                            "weights")  # fmt: skip
    assert told[2].startswith("expert  1 of A:  0 of B, WRONG, router 0.2")
    assert told[-2:] == [
        "router and content name different partners for 2 of 3 experts", "0.4 s cpu"]  # fmt: skip


def test_experts_of_one_model_are_told_with_removals_and_merges():
    told = said(experts.of_experts(fake_experts.itself(usage=None)))
    assert told[1] == (
        "expert  0 of A:  2 nearest other, router 1, content 0.6, margin 1.500; neurons alike "
        "0.800 (least 0.700), distance 1.4 → 0.05"
    )
    assert told[4:-1] == [
        "without expert  0: KL 0.3 nats, loss +0.125",
        "without expert  1: KL 0.06 nats, loss +0.25",
        "without expert  2: KL 0.5 nats, loss +0.375",
        (
            "experts  0 and  2 (content 0.6) merged behind both router rows: KL 0.02 nats, loss "
            "+0.5; behind one row: KL 0.04 nats, loss -0.25"
        ),
        (
            "experts  1 and  2 (content 1.5) merged behind both router rows: KL 0.01 nats, loss "
            "+1; behind one row: KL 0.03 nats, loss -0.5"
        ),
        (
            "experts  0 and  1 (content 1.8) merged behind both router rows: KL 0.3 nats, loss "
            "+1.5; behind one row: KL 0.6 nats, loss -0.75"
        ),
    ]
    silent = said(experts.of_experts(fake_experts.itself(removal=fake_experts.toll(0.3, 0.1, 0.2))))
    assert silent[4] == "without expert  0: KL 0.3 nats"


def test_a_card_is_told_row_by_row():
    card = replace(fakes.model_card(), tied=False, coordinates=fakes.model_card().coordinates[1:3])
    assert said(models.of_card(card)) == [
        "base: Llama, 6 layers, width 96, 6 heads / 2 kv of 16, FFN 256, vocabulary 640",
        (
            "RMSNorm, silu, rotary, pairs (i, i + n/2), base 10000, untied, 650,000 parameters in "
            f"float32, fingerprint {'a' * 16}"
        ),
        f"      {'coordinate':26} {'group':26}    size  copies log10 count continuous",
        f"ffn   {'FFN neuron':26} {'S_n ⋉ (R∖{0})ⁿ':26}     256       6      3504.0       1536",
        f"grp   {'key/value head':26} {'S_n':26}       2       6         1.8          0",
        (
            "in all 10^3,505.8 discrete changes of coordinates keep this function, and a "
            "continuous family of dimension 1,536"
        ),
        "blind: att          gain of the attention norm against its readers, dimension 576",
        (
            "blind: scale        scale of the whole residual stream, dimension 1 (true up to the ε "
            "of a norm)"
        ),
    ]


def test_a_self_test_is_told_row_by_row():
    test = replace(fakes.self_test(0.25, 0.5), difference=3.5, seconds=0.44)
    rows = (test.rows[0], replace(test.rows[-1], moved=0.0))
    assert said(models.of_self_test(replace(test, rows=rows))) == [
        (
            "self-test: broken, largest logit difference 3.5 (0.25 relative), 50% of 56 tensors "
            "moved, on cpu in 0.4 s"
        ),
        "  res          broken       0.2, 50% of the tensors moved: residual coordinate",
        (
            "  scale        not measured 0.23, 0% of the tensors moved: scale of the whole "
            "residual stream, true up to the ε of a norm"
        ),
    ]


def test_an_experiment_is_told_with_what_came_out():
    effect = Effect(0.5, 0.25, 0.2, 0.125, 0.75, "128 tokens")
    record = fakes.experiment(effect=effect, seconds=0.26, element="0 → 3", equivariance=0.03)
    assert said(models.of_experiment(record)) == [
        "FFN: order of the neurons (ffn, layer 2, severity 1)",
        "The neurons exchange their places.",
        "No output shows their order.",
        "element, random: 0 → 3",
        "model.layers.2.mlp.up_proj.weight: ffn res*; ‖after − before‖ / ‖before‖ = 1.41",
        "model.layers.2.mlp.down_proj.weight: res ffn*; ‖after − before‖ / ‖before‖ = 1.4",
        (
            "output: broken, largest change of a logit 0.5, of a log-probability 0.25 (0.2 "
            "relative), KL(before ‖ after) 0.125 nats, 75.0% of the positions say the same; hidden "
            "activations follow up to 0.03"
        ),
        "theory: the output stays",
        "on 128 tokens, cpu, 0.3 s",
    ]
    other = replace(record, layer=None, holds=False, equivariance=None)
    told = said(models.of_experiment(other))
    assert told[0] == "FFN: order of the neurons (ffn, all layers, severity 1)"
    assert told[-3].endswith("75.0% of the positions say the same")
    assert told[-2] == "theory: the output changes"
    assert "theory" not in "".join(models.of_experiment(replace(other, symmetry=False)))


four_neurons = partial(
    fake_neurons.four_neurons,
    second=np.array([1, 0, 3, 0]),
    second_score=np.array([0.4, 0.4, 0.75, 0.5], np.float32),
)


def test_matched_neurons_are_told_with_signs_scales_and_margins():
    places = np.array([[1, 2], [3, 4], [5, 6], [7, 8]]), np.array([[3, 9], [5, 6], [1, 9], [0, 9]])
    excited = Excited(
        (("a"),), np.zeros((1, 9), np.int32), places, (places[0] * 1.0,) * 2, "9 tokens"
    )
    first = "layer 3 of Llama: 4 neurons, by invariant, residual coordinates from weights"
    assert said(neurons.of_neurons(four_neurons(excited=excited, notes=("B has 5.",)))) == [
        first,
        "B has 5.",
        (
            "50.0% negative factors, smallest margin -0.500 (below 0: another was nearer, but is "
            "taken), median 0.188, 75.0% choose each other"
        ),
        ("50.0% right, scales to 0.2; the published cost, which knows no sign and no scale: 50.0%"),
        "of the 2 places that excite a neuron of A most, its partner shares 1.00",
        "0.3 s on cpu",
    ]
    blind = said(neurons.of_neurons(four_neurons(
        truth=None, truth_factor=None, signs=False, expert="2", partner="5",
    )))  # fmt: skip
    assert blind == [
        (
            "layer 3 of Llama, expert 2, matched to expert 5: 4 neurons, by invariant, residual "
            "coordinates from weights"
        ),
        (
            "smallest margin -0.500 (below 0: another was nearer, but is taken), median 0.188, "
            "75.0% choose each other"
        ),
        "0.3 s on cpu",
    ]


def test_neurons_of_one_model_are_told_pair_by_pair():
    spared = Spared(
        ("alike", "small"), np.array([2, 1]), np.array([3, 0]), np.ones(2), np.ones(2),
        np.array([0.125, 0.5]), np.array([0.25, 1e-3]), np.zeros(2), np.zeros(2), "64 tokens",
    )  # fmt: skip
    itself = four_neurons(fingerprints=("a" * 16,) * 2, truth=None, spared=spared)
    assert said(neurons.of_neurons(itself))[1:] == [
        "neuron     2 and     3: score 0.750, factor 2.500",
        "neuron     3 and     0: score 0.500, factor 1.250",
        "neuron     0 and     1: score 0.400, factor 1.500",
        "alike  without     2: KL 0.25 nats, merged into     3: 0.125",
        "small  without     1: KL 0.001 nats, merged into     0: 0.5",
        "measured on 64 tokens",
        "0.3 s on cpu",
    ]


def test_neurons_of_every_layer_are_told_one_a_line():
    record = fake_neurons.neuron_layers(
        pairs=np.array([10, 20]), negative=np.array([4, 5]), right=np.array([1.0, 0.5]),
        published=np.array([0.75, 0.25]), smallest=np.array([-0.125, 0.25]),
        median=np.array([0.5, 0.75]), notes=("A note.",),
    )  # fmt: skip
    assert said(neurons.of_layers(record)) == [
        "A note.",
        (
            "layer   0: 10 pairs, 40.0% negative, 100.0% right, published cost 75.0%, margin "
            "-0.125 (below 0: another was nearer, but is taken) at least, 0.500 median"
        ),
        (
            "layer   1: 20 pairs, 25.0% negative, 50.0% right, published cost 25.0%, margin 0.250 "
            "at least, 0.750 median"
        ),
        "30.0% of all factors are negative",
        "0.2 s on cpu",
    ]
    bare = replace(record, negative=None, right=None, notes=())
    assert said(neurons.of_layers(bare)) == [
        (
            "layer   0: 10 pairs, margin -0.125 (below 0: another was nearer, but is taken) at "
            "least, 0.500 median"
        ),
        "layer   1: 20 pairs, margin 0.250 at least, 0.750 median",
        "0.2 s on cpu",
    ]


def aligned(**more: Any) -> AlignmentReport:
    stages = (
        StageReport("res", 1, 0.9794, 0.41, 47, 1.38, 0.4),
        StageReport("rot", 6, None, -0.5, None, 1.4, 0.5),
    )
    given = {
        "stages": stages, "tensors": ("embed", "up"), "after": np.array([0.125, 0.25]),
        "before": np.array([1.0, 0.5]), "logits_between": 0.5, "logits_kept": 2e-6,
        "midpoint_before": 9.1, "midpoint_after": 0.75, "notes": ("A note.",),
    }  # fmt: skip
    return replace(fakes.alignment(), **(given | more))


def test_an_alignment_is_told_stage_by_stage_and_by_its_logits():
    told = said(pairs.of_alignment(aligned()))
    assert told == [
        (
            "res       1 solved, 97.94% right, 47 negative, smallest margin 0.410; relative "
            "distance 1.38 → 0.4"
        ),
        (
            "rot       6 solved, smallest margin -0.500 (below 0: another was nearer, but is "
            "taken); relative distance 1.4 → 0.5"
        ),
        "A note.",
        "furthest tensor: 0.25 relative (up)",
        (
            "on 256 tokens of the demo models' own text, where logits reach 9.8: A and B differ by "
            "0.5 (approximate), aligning changed B by 2e-06 (exact)"
        ),
        (
            "the model half way between A and B is off by 9.1, half way between A and aligned B by "
            "0.75"
        ),
        "1.2 s on cpu",
    ]
    silent = said(pairs.of_alignment(aligned(logits_between=None, unreachable=0.49)))
    assert silent[2] == "signs are off: 49.0% of the residual coordinates cannot be right"
    assert silent[-1] == "the outputs were not compared; 1.2 s on cpu"


def test_a_descent_is_told_from_every_start():
    sweeps = (
        Sweep("identity", 0, 2.0, 1.8, 1.75, 0.1), Sweep("embedding", 0, 1.9, 1.0, 1.0, 0.1),
        Sweep("embedding", 1, 0.9, 0.7, 0.65, 0.1),
    )  # fmt: skip
    report = aligned(sweeps=sweeps, midpoints=fake_alignments.midpoints(-0.25)[-2:])
    assert said(pairs.of_descent(report)) == [
        "from identity: objective 2.00000 → 1.80000 in 1 sweep, distance of weights 1.75000",
        "from embedding: objective 1.90000 → 0.70000 in 2 sweeps, distance of weights 0.65000",
        "half way, refined: -0.250 nats above the mean of A's and B's loss",
        "half way, refined without matching: +0.900 nats above the mean of A's and B's loss",
    ]


def test_a_match_is_told_depth_by_depth():
    match = Assignment(
        np.array([2, 0, 1, 3]), np.array([1, -1, -1, -1], np.int8), np.full(4, 0.9),
        np.array([0.5, -0.25, 0.75, 1.0]), np.array([True, False, True, True]), False,
    )  # fmt: skip
    truth = Truth("planted", np.array([2, 0, 3, 1]), np.array([1, -1, 1, -1], np.int8))
    record = replace(
        fakes.residual_match(4), depths=("embedding", "pooled"), absolute=(match, match),
        truth=truth, signed_accuracy=np.array([0.25, 0.5]), sign_accuracy=np.array([0.75, 1.0]),
    )  # fmt: skip
    lead = "3 negative signs, smallest margin -0.250 (below 0: another was nearer, but is taken)"
    assert said(pairs.of_match(record)) == [
        f"embedding        signed 25.0%, absolute 75.0%, {lead}, 75.0% mutual",
        f"pooled           signed 50.0%, absolute 100.0%, {lead}, 75.0% mutual",
        "share of positive signs (planted): 50.0%",
        "2 matrices in 3.2 s on cpu",
    ]
    blind: ResidualMatch = replace(record, truth=None, signed_accuracy=None)
    assert said(pairs.of_match(blind))[0] == f"embedding        {lead}, 75.0% mutual"
    assert len(said(pairs.of_match(blind))) == 3


def two_heads(**more: Any) -> HeadsReport:
    cost = HeadCost("rotary", np.ones((2, 2)), np.ones((2, 2)), (1.0, 1.0))
    given = {
        "own": cost, "order": np.array([1, 0]), "second": np.array([0, 1]),
        "margin": np.array([1.25, -0.5]), "planted_order": np.array([1, 1]), "disguises": (),
        "query_key": np.array([[4.0, 12.0], [2.0, 3.0], [0.25, 0.75], [0.01, 0.15]]),
        "query_key_norm": np.array([4.0, 60.0]), "value_output_norm": np.array([1.0, 4.0]),
        "value_output": np.array([[1.0, 1.5], [0.5, 0.5], [0.04, 0.01], [4e-4, 4e-4]]),
        "rank": None,
    }  # fmt: skip
    return fake_heads.heads_report(shape=fake_heads.Shape(1, 2, 4), **(given | more))


def test_heads_are_told_one_a_line_and_step_by_step():
    dressed = (
        Disguise("matrix", np.array([0.0, 3e-16]), np.array([1.5, 2.5]), 0.68, 0.24),
        Disguise("turn", np.zeros(2), np.zeros(2), None, None),
    )
    rank = OrderRank(72, 3, 12.4, 2, 0.5, (4.5, 4.25, 9.0))
    record = two_heads(rank=rank, disguises=dressed, removal=np.array([0.3, 0.05]))
    assert said(pairs.of_heads(record)) == [
        ("layer 0 of Llama: 2 heads in 1 groups, rotary cost, residual coordinates from weights"),
        (
            "head  0 of A:  1 of B, right, margin 1.250 over 0; left 0.05 (QK), 0.02 (VO); without "
            "it KL 0.3 nats"
        ),
        (
            "head  1 of A:  0 of B, WRONG, margin -0.500 (below 0: another was nearer, but is "
            "taken) over 1; left 0.05 (QK), 0.01 (VO); without it KL 0.05 nats"
        ),
        "objective, before    : QK 16, VO 2.5",
        "objective, order     : QK 5, VO 1",
        "objective, orthogonal: QK 1, VO 0.05",
        "objective, full      : QK 0.16, VO 0.0008",
        "rank 3 of 72 orders by the objective, L̂ 12",
        "rank 2 by the loss half way, L̂ 0.5",
        (
            "A in disguise, matrix  : published cost at most 3e-16, ours 1.5 to 2.5 of ‖M‖², "
            "output broken 0.68"
        ),
        (
            "A in disguise, turn    : published cost at most 0, ours 0 to 0 of ‖M‖², output not "
            "measured"
        ),
        "0.4 s on cpu",
    ]
    bare = said(pairs.of_heads(two_heads(planted_order=None)))
    assert bare[1] == "head  0 of A:  1 of B, margin 1.250 over 0; left 0.05 (QK), 0.02 (VO)"
    assert len(bare) == 8


def test_a_turn_is_told_in_degrees():
    record = fake_heads.turn_report(
        group=1, frequency=3, angle=-np.pi / 6, log_modulus=np.log(2), objective=150.0, best=0.5
    )
    assert said(pairs.of_turn(record)) == [
        "layer 0, group 1, frequency 3 at -30° × 2: objective 150, at best 0.5",
        "B itself moved by 2e-07 (exact)",
        "half way to A the log-probabilities are off by 1.4, at best 3e-06",
        ("loss half way 4.4000, at best 4.1800 nats on 2,048 tokens of the demo models' own text"),
        "0.2 s on cpu",
    ]
    assert len(said(pairs.of_turn(replace(record, midpoint_loss=None)))) == 4


@pytest.mark.parametrize(
    ("depths", "text"),
    [
        ((4, 2), "the 2 layers of B are layers 1, 3 of the 4 of A"),
        ((2, 4), "the 2 layers of A are layers 1, 3 of the 4 of B"),
    ],
)
def test_a_relation_is_told_test_by_test(depths, text):
    def way(coordinates: Any, log10_p: float, rho: float, alike: float) -> LineageTest:
        return LineageTest(coordinates, log10_p, np.array([0, 2 * rho]), np.array([0, 2 * alike]))

    record = replace(
        fake_alignments.relatedness("same lineage", depths), layers=np.array([1, 3]),
        tests=(way("embedding", -30.0, 0.5, 0.75), way("random", -0.25, 0.125, 0.0625)),
        log10_p=-29.64, logits_between=0.5, logits_scale=20.0,
    )  # fmt: skip
    assert said(pairs.of_relatedness(record)) == [
        "same lineage: log10 p = -29.6, corrected for all tests",
        (
            "test, residual coordinates by the embedding: log10 p = -30.0, Spearman's ρ 0.500, "
            "75.0% of the neurons alike"
        ),
        (
            "control, residual coordinates at random: log10 p = -0.2, Spearman's ρ 0.125, 6.2% of "
            "the neurons alike"
        ),
        text,
        "logits differ by 0.5 of 20",
        "0.4 s on cpu",
    ]
    plain: LayerMaps | Any = replace(record, likeness=None, logits_between=None)
    assert len(said(pairs.of_relatedness(plain))) == 4
