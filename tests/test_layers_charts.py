"""Pictures and sentences about layers, on fake and published records."""

import dataclasses
import json
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd
import pytest

from app import layer_views as views
from app.charts import cuts, drawing, gaps, layer_maps, layer_tables, measures
from app.charts.layer_maps import Pair
from app.charts.measures import Number
from app.charts.theme import DARK, LIGHT
from app.sections import cutting
from app.sentences import cuts as cut_verdicts
from app.sentences import gaps as gap_verdicts
from app.sentences import layers as layer_verdicts
from engine import published
from engine.exports import layers as exports
from engine.layers.selection import HOWS
from engine.records import Measure
from tests import fake_layers as fakes

PAIR = Pair(2, 3)


@pytest.fixture(scope="module")
def maps():
    return views.of_model(fakes.layer_maps())


@pytest.fixture(scope="module")
def report():
    return fakes.cut_report()


def spec(chart) -> str:
    return json.dumps(drawing.shown(chart, LIGHT).to_dict())


def rows(chart) -> list[dict]:
    found = chart.to_dict()["datasets"].values()
    return max(found, key=len)


def test_both_maps_have_one_scale_that_holds_every_value(maps):
    span = layer_maps.domain(maps.pairs.values())
    domains = []
    for test in ("replace", "swap"):
        chart = layer_maps.pair_map(maps, test, span, LIGHT, PAIR)
        colour = chart.to_dict()["layer"][0]["encoding"]["color"]
        domains.append(colour["scale"]["domain"])
        drawn = [row["drawn"] for row in rows(chart)]
        assert min(drawn) >= colour["scale"]["domain"][0] * 0.999
        assert max(drawn) <= colour["scale"]["domain"][-1] * 1.001
        assert colour["scale"]["type"] == "log"
    assert domains[0] == domains[1]
    alone = layer_maps.domain([maps.pairs["swap"]])
    assert alone != span


def test_a_cell_stands_where_depth_and_layer_say(maps):
    span = layer_maps.domain(maps.pairs.values())
    chart = layer_maps.pair_map(maps, "replace", span, LIGHT, PAIR)
    encoding = chart.to_dict()["layer"][0]["encoding"]
    assert (encoding["y"]["field"], encoding["x"]["field"]) == ("i", "j")
    assert (encoding["y"]["title"], encoding["x"]["title"]) == ("depth i", "layer j")
    found = {(row["i"], row["j"]): row["KL"] for row in rows(chart)}
    assert len(found) == 30  # no diagonal
    value = np.asarray(maps.pairs["replace"].value)
    assert found[4, 1] == pytest.approx(value[4, 1], rel=1e-3)
    assert found[1, 4] == pytest.approx(value[1, 4], rel=1e-3)
    assert found[4, 1] != found[1, 4]


def test_what_was_not_measured_is_not_drawn():
    view = views.of_model(fakes.partial())
    chart = layer_maps.pair_map(view, "swap", (0.01, 1.0), LIGHT, PAIR)
    assert {abs(row["i"] - row["j"]) for row in rows(chart)} == {1}


def test_the_disagreement_is_zero_where_both_agree_and_changes_its_sign_when_turned(maps):
    replace_, swap = (views.scored(maps, test, "max") for test in ("replace", "swap"))
    same = layer_maps.ratios(swap, swap)
    assert (same["log"] == 0).all() and (same["ratio"] == 1).all()
    there, back = layer_maps.ratios(replace_, swap), layer_maps.ratios(swap, replace_)
    np.testing.assert_allclose(there["log"], -back["log"], atol=2e-3)
    at = there.set_index(["i", "j"])["log"]
    assert at[2, 3] == pytest.approx(-1, abs=0.1)
    assert at[1, 4] == pytest.approx(np.log2(3), abs=0.1)
    chart = layer_maps.disagreement(maps, replace_, swap, ("replace", "swap"), LIGHT, PAIR)
    domain = chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert domain[0] == -domain[-1]
    assert domain[len(domain) // 2] == 0


@pytest.mark.parametrize("span", [(0.0123, 7.7), (1e-6, 100.0), (0.3, 3.0)])
def test_a_scale_names_some_round_numbers(span):
    found = layer_maps.ticks(span)
    assert len(found) >= 3
    assert all(span[0] <= tick <= span[1] for tick in found)


def test_an_empty_map_has_a_scale():
    low, high = layer_maps.domain([Measure(np.full((3, 3), np.nan))])
    assert 0 < low < high
    assert layer_maps.domain([]) == (low, high)


def test_rows_of_the_strip_go_from_their_least_to_their_most():
    share = layer_maps.shares(np.array([1.0, 10.0, np.inf, np.nan, -3.0]))
    assert share[2] == share[1] == 1.0
    assert np.isnan(share[3]) and share[4] == 0.0
    assert 0 < share[0] < 1
    assert (layer_maps.shares(np.array([2.0, 2.0])) == 0.5).all()


def test_kinds_are_drawn_where_there_are_two():
    one, two = (views.of_model(r) for r in (fakes.layer_maps(), fakes.two_kinds()))
    row = {"block influence": fakes.influence()}
    assert "kind of layer" not in spec(layer_maps.strip(row, one.kinds, LIGHT, PAIR))
    assert "sliding attention" in spec(layer_maps.strip(row, two.kinds, LIGHT, PAIR))
    assert "are not exchanged" in layer_verdicts.kinds(two)
    assert layer_verdicts.kinds(one) == ""
    said = layer_verdicts.picked(two, PAIR, "max")
    assert "Layer 2 is of the kind full attention, layer 3 of the kind sliding attention" in said
    assert "exchanged" not in layer_verdicts.picked(two, Pair(2, 4), "max")


def large(layers: int = 80):
    return views.of_model(fakes.layer_maps(layers))


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
def test_every_picture_of_eighty_layers_is_small(look):
    maps = large()
    span = layer_maps.domain(maps.pairs.values())
    scores = [views.scored(maps, test, "max") for test in ("replace", "swap")]
    report = fakes.cut_report(80, 20)
    sets = cuts.chosen(report, 7, (1, 2))
    steps = fakes.gap(tuple(np.linspace(0, 2, 30)))
    pictures = [
        layer_maps.pair_map(maps, "replace", span, look, PAIR),
        layer_maps.disagreement(maps, *scores, ("replace", "swap"), look, PAIR),
        layer_maps.strip({"block influence": fakes.influence(80)}, maps.kinds, look, PAIR),
        cuts.strip(80, sets, look),
        cuts.curves(report, "perplexity", 7, look, fakes.cut_cost()),
        cuts.scatter(report.scores["swap"], report.single.measure(), "swap", look),
        gaps.lines(steps, "log ratio", look, published=False),
        gaps.compared(steps),
        gaps.scatter(steps, "loss", "log ratio", look),
    ]
    with alt.data_transformers.enable("default", max_rows=None):  # as the server has it
        sizes = [len(json.dumps(drawing.shown(chart, look).to_dict())) for chart in pictures]
    assert max(sizes) < 2_000_000
    assert sizes[0] > 100_000  # every cell is there


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures_become_files_without_a_browser(maps, report, kind):
    span = layer_maps.domain(maps.pairs.values())
    both = [layer_maps.pair_map(maps, test, span, LIGHT, PAIR, clicks=False)
            for test in ("replace", "swap")]  # fmt: skip
    for chart in (
        drawing.beside(*both),
        cuts.curves(report, "kl", 2, LIGHT, None),
        gaps.lines(fakes.gap(), "log ratio", LIGHT, published=True),
    ):
        found = drawing.image(chart, kind)
        assert found[:4] == (b"\x89PNG" if kind == "png" else b"<svg")


def test_a_rise_is_measured_window_by_window_against_the_base():
    readings = fakes.readings(np.array([0.0, 0.1]), noise=0.0)
    found = measures.rise(readings, fakes.base())
    np.testing.assert_allclose(found.value, [0, 100 * np.expm1(0.1)], atol=1e-4)
    np.testing.assert_allclose(found.low, found.value, atol=1e-4)
    # a base that differs from window to window widens nothing: the difference is resampled
    shift = np.linspace(-1, 1, 16, dtype=np.float32)
    moved = replace(readings, loss=readings.loss + shift)
    base = replace(fakes.base(), loss=fakes.base().loss + shift)
    again = measures.rise(moved, base)
    np.testing.assert_allclose(again.high - again.low, 0, atol=1e-3)
    alone = moved.measure("loss")
    assert (alone.high - alone.low).min() > 0.1
    few = measures.rise(fakes.readings(np.array([0.1]), windows=8), fakes.base(8))
    assert few.low is None


def test_numbers_say_their_interval_or_that_there_is_none():
    assert Number(0.123, 0.1, 0.15).text == "0.12 [0.1, 0.15]"
    assert Number(0.123).text == "0.12"
    assert Number(float("nan"), 0.1, 0.2).text == "not measured"
    assert measures.percent(Number(4.2, -1.0, 25.0)) == "+4.20 % [−1.00, +25.0]"
    assert measures.percent(Number(4.2, float("nan"), float("nan"))) == "+4.20 %"
    assert measures.percent(Number(float("nan"))) == "not measured"


def test_intervals_of_scores_are_those_of_the_direction_that_gives_them(maps):
    held = maps.pairs["replace"]
    for how, pick in (("max", np.argmax), ("min", np.argmin)):
        score = views.scored(maps, "replace", how)
        both = [(1, 4), (4, 1)]
        cell = both[int(pick([held.value[at] for at in both]))]
        assert score.low[1, 4] == score.low[4, 1] == held.low[cell]
        assert score.high[1, 4] == held.high[cell]
    assert views.scored(maps, "replace", "mean").low is None
    assert views.scored(maps, "swap", "mean").low is not None


@pytest.mark.parametrize("how", HOWS)
def test_the_planted_pair_is_the_only_one_above(maps, how):
    found = views.counted(maps, how)
    sure = how in {"max", "min"}  # the windows of a mean of both directions are not kept
    assert (found.pairs, found.above, found.apart) == (15, 1, int(sure))
    assert found.intervals == sure


def test_the_verdict_says_what_is_partial_and_what_is_published():
    whole, part = fakes.layer_maps(), fakes.partial()
    told = layer_verdicts.told(views.of_model(whole), whole, "max")
    assert told.headline == "Swapping costs more than replacing in 1 of 15 pairs."
    assert told.badge == "" and "Partial" not in told.text
    told = layer_verdicts.told(views.of_model(part), part, "max")
    assert told.badge == "partial" and "Partial: 15 of 51 cells" in told.text
    few = fakes.layer_maps(windows=8)
    assert measures.FEW in layer_verdicts.told(views.of_model(few), few, "max").text


def first_to_go(pairs: list[dict[str, float]], cost: str) -> list[int]:
    """Five layers by their cheapest pair, no two of them neighbours."""
    least: dict[int, float] = {}
    for pair in pairs:
        for layer in (int(pair["layer_i"]), int(pair["layer_j"])):
            least[layer] = min(least.get(layer, np.inf), pair[cost])
    chosen: list[int] = []
    for layer in sorted(least, key=least.__getitem__):
        if len(chosen) < 5 and all(abs(layer - other) > 1 for other in chosen):
            chosen.append(layer)
    return chosen


def test_the_published_maps_say_what_is_counted_in_their_file():
    """Of every pair both directions are in the file, with intervals: the larger one is its cost."""
    file = published.FOLDER / "qwen3_8b_pairs.json"
    pairs = json.loads(file.read_text(encoding="utf-8"))["pairs"]
    above, apart = 0, 0
    for pair in pairs:
        larger, end = max((pair[f"replacement_kl_{x}"], pair[f"ci_95_rep_{x}"][1])
                          for x in ("ij", "ji"))  # fmt: skip
        above += pair["interchange_kl"] > larger
        apart += pair["interchange_kl"] > larger and pair["ci_95_interchange"][0] > end
    assert (above, apart, len(pairs)) == (20, 12, 102)
    swap, replaced = (first_to_go(pairs, x) for x in ("interchange_kl", "replacement_max"))
    paper = published.published("qwen3-8b")
    told = layer_verdicts.told(views.of_published(paper), paper, "max")
    assert told.headline == f"Swapping costs more than replacing in {above} of {len(pairs)} pairs."
    assert f"In {apart} of those {above} the intervals share no value." in told.text
    said = "; ".join(
        f"by {test} {', '.join(map(str, layers))}"
        for test, layers in (("swap", swap), ("replace", replaced))
    )
    assert f"{said}. They share none." in told.text and not set(swap) & set(replaced)
    assert told.badge == "published"


def test_what_is_wanted_is_what_a_finished_map_holds():
    for record in (fakes.layer_maps(), fakes.every_test(), fakes.two_kinds()):
        assert views.measured(record) == views.wanted(record)
    assert views.measured(fakes.partial()) < views.wanted(fakes.partial())


def test_the_pair_in_numbers_has_both_directions(maps):
    table = layer_tables.pair(maps, PAIR, fakes.layer_maps())
    assert table["test"].tolist() == ["replace 2 ← 3", "replace 3 ← 2", "swap 2 ↔ 3"]
    assert table["perplexity"].str.contains("%").all()
    every = layer_tables.pair(views.of_model(fakes.every_test()), Pair(4, 1), fakes.every_test())
    assert "skip 1 → after 4" in every["test"].tolist()
    assert not every["KL, nats"].str.contains("not measured").any()


def test_json_says_null_where_nothing_was_measured_and_zero_on_the_diagonal():
    held = json.loads(json.dumps(exports.of_maps(fakes.partial())))
    assert held["layers"] == 6 and held["direction"] == "KL(base‖modified)"
    assert held["replace"][0][5] is None
    assert held["replace"][0][1] > 0
    held = json.loads(json.dumps(exports.of_published(published.published("qwen3-8b-removal"))))
    assert held["removal"][0] == "Infinity"
    held = exports.of_published(published.published("qwen3-8b"))
    assert held["replace"][2][2] == held["swap"][2][2] == 0.0
    assert held["replace"][0][9] is None and held["replace"][0][1] > 0
    assert held["direction"] == "KL(base‖modified)"
    overflown = dataclasses.replace(fakes.layer_maps().base, loss=np.full(16, np.inf, np.float32))
    assert exports.numbers(overflown.measure("loss").value) == "Infinity"


def test_tables_hold_what_was_measured(maps):
    table = layer_tables.pairs(maps)
    assert len(table) == 60  # 30 cells of replace, 30 of swap
    assert set(table["test"]) == {"replace", "swap"}
    assert (table["from"] <= table["KL"]).all() and (table["KL"] <= table["to"]).all()
    layers = layer_tables.layers(maps, {"s by swap": views.layers_of(maps, "swap", "max")})
    assert layers["layer"].tolist() == list(range(6))
    assert {"delete", "block influence", "s by swap"} <= set(layers.columns)


def test_the_strip_of_cuts_marks_what_each_candidate_leaves_out(report):
    sets = cuts.chosen(report, 2, (0, 5))
    assert sets["greedy"] == (2, 3) and sets["mine"] == (0, 5)
    found = pd.DataFrame(rows(cuts.strip(6, sets, LIGHT)))
    gone = found[found["cut"] == "cut"].groupby("by")["layer"].apply(tuple)
    assert {by: cut for by, cut in sets.items() if cut} == gone.to_dict()
    assert len(found) == 6 * len(sets)


def test_the_cost_of_no_cut_is_none_and_curves_rise(report):
    table = cuts.costs(report, "perplexity")
    assert (table[table["n"] == 0]["value"] == 1).all()
    for _, one in table.groupby("by"):
        assert one["value"].is_monotonic_increasing
    assert (cuts.costs(report, "kl")["value"] >= 0).all()
    few = cuts.costs(fakes.cut_report(windows=8), "kl")
    assert few["from"].isna().all()


def test_advice_follows_from_the_measurements(report):
    headline, reason = cut_verdicts.advice(report, 2)
    assert headline.startswith("At n = 2, leaving out layers 2 and 3 costs least: +")
    assert "the intervals share no value" in reason
    assert cut_verdicts.advice(report, 0)[0] == "Nothing is cut."


def test_no_advice_without_grounds(report):
    few = cut_verdicts.advice(fakes.cut_report(windows=8), 2)[0]
    assert few == "No advice, no interval: fewer than 16 windows."
    random = replace(report, run=replace(report.run, text="random token ids"))
    told = cut_verdicts.advice(random, 2)[0]
    assert told == "No advice: the tokens are random, since no tokenizer opens."
    unfinished = replace(report, complete=False)
    assert "not complete" in cut_verdicts.advice(unfinished, 2)[0]
    assert cut_verdicts.told(unfinished, 2).badge == "partial"
    rival = replace(fakes.candidate("swap", (3, 4), 5, 16), sets=((), (3,), (3, 4)))
    close = replace(report.candidates[4], by="replace", sets=((), (1,), (1, 2)))
    rivals = replace(report, candidates=(report.candidates[4], close))
    headline, reason = cut_verdicts.advice(rivals, 2)
    assert headline == "No advice at n = 2: the cheapest cut is not separated from the next."
    assert "overlaps with: replace-guided" in reason
    assert rival.by == "swap"


def test_a_model_without_next_tokens_is_advised_by_kl(report):
    def mute(one):
        nothing = np.full_like(one.readings.loss, np.nan)
        return replace(one, readings=replace(one.readings, loss=nothing))

    silent = replace(report, candidates=tuple(map(mute, report.candidates)))
    headline, _ = cut_verdicts.advice(silent, 2)
    assert headline.startswith("At n = 2, leaving out layers 2 and 3 costs least: ")
    assert headline.endswith("nats of KL.")
    assert cuts.costs(silent, "perplexity").empty and not cuts.costs(silent, "kl").empty


def test_candidates_that_agree_need_no_advice(report):
    twin = replace(report.candidates[4], by="swap")
    agreed = replace(report, candidates=(report.candidates[4], twin))
    assert cut_verdicts.advice(agreed, 2)[0] == "All candidates leave out layers 2 and 3."


def test_boundaries_leave_no_end_open():
    assert cut_verdicts.cut((9, 10, 11, 5)) == "layers 5 and 9 to 11 (both ends included)"
    assert cut_verdicts.cut((3,)) == "layer 3"
    assert cut_verdicts.cut(()) == "no layer"


def test_a_candidate_that_stops_says_where_and_why(report):
    found = cut_verdicts.missing(report, 4)
    assert len(found) == 1
    assert found[0].startswith("swap-guided stops at 3 layers: ")
    assert cut_verdicts.missing(report, 2) == []


def test_scores_are_told_with_their_rank_correlation():
    found = [("swap", 0.95, 6), ("replace", 0.4, 12), ("angular", float("nan"), 2)]
    said = cut_verdicts.told_scores(found)
    assert "swap ρ = 0.95 over 6 layers; replace ρ = 0.40 over 12 layers." in said
    assert said.endswith("With so few layers a ρ is a hint only.") and "angular" not in said
    sure = cut_verdicts.told_scores([("swap", 0.95, 12), ("replace", 0.4, 6)])
    assert sure.endswith("replace ρ = 0.40 over 6 layers.")  # of the best there are enough
    assert "fewer than three" in cut_verdicts.told_scores([])


def test_a_gap_of_one_doubles_the_cost():
    record = fakes.gap((0.0, 1.0, 2.0))
    np.testing.assert_allclose(gaps.means(record, "log ratio"), [0, 1, 2], atol=1e-12)
    swap = np.linspace(0.1, 0.3, 5).mean()
    np.testing.assert_allclose(gaps.means(record, "difference"), swap * np.array([0, 1, 3]))


def test_steps_are_drawn_in_the_order_of_training():
    record = fakes.gap()
    mixed = replace(record, steps=tuple(reversed(record.steps)))
    assert gaps.ordered(mixed) == record.steps
    assert gap_verdicts.headline(mixed, "log ratio") == (
        "The gap is larger at step 500 than at step 100: 1.8 after 0.2 (log ratio)."
    )
    assert "It grows, not at every step" in gap_verdicts.told(record, "log ratio").text
    steady = fakes.gap((0.1, 0.2, 0.3))
    assert "It grows, at every step" in gap_verdicts.told(steady, "log ratio").text


def test_seeds_are_models_and_no_steps():
    record = fakes.seeds()
    assert not gaps.trained(record) and gaps.trained(fakes.gap())
    assert "line" not in {
        layer["mark"]["type"]
        for layer in gaps.compared(record).to_dict()["layer"]
    }  # fmt: skip
    told = gap_verdicts.told(record, "log ratio")
    assert told.headline == "Over 3 models the mean gap lies between 0.9 and 1.2 (log ratio)."


def test_the_published_training_is_drawn_by_the_same_pictures():
    record = published.trajectories()["pythia-160m"]
    assert set(gaps.tests(record)["test"]) == {"replace", "swap"}  # no skip was published
    table = gaps.gaps(record, "difference")
    assert table[table["mean"]]["step"].tolist() == [0, 1000, 16000, 64000, 143000]
    assert len(spec(gaps.lines(record, "difference", LIGHT, published=True))) < 200_000
    assert "skip" not in gap_verdicts.skips(record)


def test_properties_are_candidates_and_no_causes():
    said = gap_verdicts.correlated(fakes.gap(), "log ratio")
    assert "loss ρ = -1.00" in said and "weights" not in said  # a constant has no ranks
    assert "none is shown to be the cause" in said and "5 models are few" in said
    assert "Fewer than three" in gap_verdicts.correlated(fakes.gap((1.0, 2.0)), "log ratio")


def test_maps_are_told_apart_by_their_content():
    whole, again = fakes.layer_maps(), fakes.layer_maps()
    assert views.digest(whole) == views.digest(again)
    others = [fakes.partial(), fakes.two_kinds(), fakes.layer_maps(windows=8), fakes.every_test()]
    assert len({views.digest(record) for record in (whole, *others)}) == 5
    tests = {**whole.tests, "swap": replace(whole.tests["swap"], kl=whole.tests["swap"].kl * 1.001)}
    assert views.digest(replace(whole, tests=tests)) != views.digest(whole)


def test_the_file_of_candidates_holds_numbers_alone():
    table = cutting.exported(fakes.cut_report(), 2, fakes.cut_cost())
    numbers = table.drop(columns=["chosen by", "left out"])
    assert numbers.dtypes.map(lambda kind: kind.kind).isin(["f", "i"]).all()
    assert {"KL, nats", "KL, nats low", "KL, nats high", "perplexity, rise in % low"} <= set(table)
    assert (table["KL, nats low"] <= table["KL, nats"]).all()
    assert all(len(cut.split()) == 2 for cut in table["left out"])
