"""Pictures and sentences about alignments and relations, on fake records."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.charts import descents, drawing, lineages, shares, tables
from app.charts.theme import DARK, LIGHT
from app.sections.alignment import by_layer, charts, stages, stepwise, terms
from app.sentences import alignments, lineage, verdicts
from engine.records import Midpoint, Relatedness
from engine.records.lineage import LIMIT, Verdict
from engine.store import Store
from tests import fake_alignments as made
from tests import fakes
from tests.fakes import Logits

FOUR: tuple[Verdict, ...] = (
    "same weights", "same function in other coordinates", "same lineage", "unrelated",
)  # fmt: skip
STRANGERS = Logits(between=12.0)


def rows(chart: Any) -> list[dict[str, Any]]:
    return max(chart.to_dict()["datasets"].values(), key=len)


@pytest.fixture
def cards():
    return fakes.model_card(), fakes.model_card("twin", "b" * 16)


def test_the_objective_goes_down_in_half_steps_and_ends_at_the_diamond():
    table = descents.points(made.sweeps())
    own = table[table["start"] == "embedding"]
    assert own["sweep"].tolist() == [0.0, 1.0, 1.5, 2.0]
    assert own["objective"].tolist() == [1.9, 1.0, 0.9, 0.7]
    assert (np.diff(own["objective"]) < 0).all()
    chart = descents.objective(made.sweeps(), LIGHT).to_dict()
    rule, _, mark = (chart["datasets"][layer["data"]["name"]] for layer in chart["layer"])
    assert rule == [{"height": 2.0}]
    assert mark == [{"sweep": 2.0, "height": 0.7, "start": "embedding"}]


@pytest.mark.parametrize(("low", "kind"), [(1e-14, "log"), (0.0, "log"), (0.7, None)])
def test_a_fall_to_nothing_is_drawn_on_powers_of_ten(low: float, kind: str | None):
    chart = descents.objective(made.sweeps(low), LIGHT).to_dict()
    assert chart["layer"][1]["encoding"]["y"]["scale"].get("type") == kind
    heights = [row["height"] for rows in chart["datasets"].values() for row in rows]
    assert min(heights) == max(low, descents.LEAST)


def test_half_steps_are_explained_only_where_there_are_any():
    assert "half steps" in descents.steps(made.sweeps())
    assert "half" not in descents.steps(made.sweeps()[:2])


@pytest.mark.parametrize(("low", "zero"), [(0.7, True), (1.6, False)])
def test_a_small_fall_is_not_drawn_from_zero(low: float, zero: bool):
    encoding = descents.objective(made.sweeps(low), LIGHT).to_dict()["layer"][1]["encoding"]
    assert encoding["y"]["scale"]["zero"] is zero


def test_shares_and_what_is_left_add_up_to_all():
    table = shares.shares(made.alignment())
    for layer, here in table.groupby("layer"):
        assert here["share"].sum() == pytest.approx(1, rel=1e-5), layer
    assert list(dict.fromkeys(table["layer"])) == ["all", "0", "1", "2", "3", "4", "5", "–"]
    found = shares.whole(made.alignment())
    assert found["FFN neurons"] == pytest.approx(0.5, rel=1e-5)
    assert found["heads"] == pytest.approx(-0.05, rel=1e-5)
    assert found[shares.LEFT] == pytest.approx(made.LEFT, rel=1e-5)


def test_a_step_that_is_forgotten_shows():
    record = made.alignment()
    short = replace(record, steps=record.steps[1:])
    table = shares.shares(short)
    sums = table.groupby("layer")["share"].sum()
    assert sums.min() < 0.99


def test_the_total_is_the_distance_of_all_tensors_together():
    record = made.alignment()
    before, after = shares.total(record) or (0.0, 0.0)
    assert before == pytest.approx(np.sqrt((record.before**2).mean()), rel=1e-5)
    assert after == pytest.approx(np.sqrt((record.after**2).mean()), rel=1e-5)


def test_equal_tensors_have_no_shares_and_old_records_say_so():
    record = made.alignment()
    equal = replace(record, before=record.before * 0, after=record.after * 0)
    assert shares.shares(equal).empty
    assert "There is no distance to explain." in alignments.explained(equal)
    old = replace(record, norms=None)
    assert shares.shares(old).empty and shares.total(old) is None
    assert "Only coordinates" not in alignments.explained(old)
    assert "computed anew" in alignments.explained(old)
    assert set(charts(old)) == {"objective"}


def test_every_coordinate_that_is_solved_together_has_a_name_and_a_colour():
    from engine.alignment.solving import REFINED
    from engine.alignment.stages import STAGES

    expected = {"res", REFINED, *(" ".join(names) for names, _ in STAGES)}
    assert set(shares.NAMES) == set(shares.COLOURS) == expected


def test_bars_of_the_points_between_stand_in_order_and_on_the_chord():
    record = made.alignment(refined=True)
    table = descents.half_way(record)
    assert table["stage"].tolist()[0] == "unaligned"
    assert table["kind"].tolist() == ["unaligned", *["matched"] * 3, "refined",
                                      "refined without matching"]  # fmt: skip
    assert table["chord"].tolist() == pytest.approx([2.0] * 6)
    below = replace(record, midpoints=(*record.midpoints[:-1],
                    Midpoint("refined without matching", 1.9, -0.1)))  # fmt: skip
    scale = descents.midpoints(below, LIGHT).to_dict()["layer"][0]["encoding"]["x"]["scale"]
    assert scale["domain"][0] < -0.1


@pytest.mark.parametrize("depths", [(6, 5), (5, 6), (6, 6)])
def test_layers_are_named_as_in_a_and_b(depths: tuple[int, int]):
    record = made.relatedness("same lineage", depths)
    table = lineages.correlations(record)
    assert set(table["residual coordinates"]) == {"as they stand", "embedding", lineages.CONTROL}
    expected = {(6, 5): "1 · 0", (5, 6): "0 · 1", (6, 6): "0"}[depths]
    assert table["layers"][0] == expected
    if record.likeness is None:
        return
    cells = lineages.cells(record)
    assert len(cells) == depths[0] * depths[1]
    taken = cells[cells["taken"]]
    assert taken["alike"].min() == pytest.approx(0.9)
    assert cells[~cells["taken"]]["alike"].max() == pytest.approx(0.01)
    assert len(taken) == min(depths)


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_every_picture_is_drawn(look):
    record = made.alignment(refined=True)
    lone = made.relatedness("same lineage", (6, 5))
    for chart in (
        descents.objective(record.sweeps, look), descents.losses(((3.0, 2.5), (3.1,)), look),
        descents.midpoints(record, look), shares.bars(record, look), lineages.tests(lone, look),
        lineages.likeness(lone, look),
    ):  # fmt: skip
        assert rows(chart)
        assert drawing.image(chart.properties(width=300), "svg").startswith(b"<svg")


def test_pictures_become_files():
    found = charts(made.alignment(refined=True))
    assert list(found) == ["objective", "shares", "midpoints"]
    for chart in found.values():
        assert drawing.image(chart, "png").startswith(b"\x89PNG")


def test_tables_are_what_was_measured():
    record = made.alignment()
    table = stages(record)
    assert table["right"].tolist() == ["100.00%", "98.00%", "–"]
    assert table["smallest margin"].tolist() == ["0.41", "0.02", "–"]
    assert table["flipped"].tolist() == ["47", "700", "–"]
    steps = stepwise(record.steps)
    assert steps["layer"].tolist()[0] == "5" and len(steps) == len(record.steps)
    sure = (replace(record.steps[0], margin=0.25), replace(record.steps[1], margin=None))
    told = by_layer(replace(record, steps=sure))
    assert told["smallest margin"].tolist() == ["0.25", "–"]
    assert told["layer"].tolist() == [shares.layer_of(step.layer) for step in sure]
    kept = descents.kept(record.sweeps)
    assert kept["sweep"].tolist() == [1, 1, 2]
    document = tables.document(record)
    assert document["sweeps"][2]["after"] == 0.7
    assert len(document["norms"]) == len(document["tensors"])


def test_margins_after_sweeps_are_said_to_be_fitted():
    record = made.alignment()
    assert "pairs of unrelated models can lead too" in terms(record)
    assert "unrelated" not in terms(replace(record, sweeps=()))


def test_a_run_that_goes_on_is_stored_and_found_again(tmp_path):
    store = Store(tmp_path)
    found = made.progress(2, 3, ((3.0, 2.0),))
    store.put("key", found)
    assert store.get("key") == found
    assert found.parts == 7


def test_the_verdict_says_its_objective_and_promises_nothing(cards):
    found = alignments.told(*cards, made.alignment(), made.relatedness())
    fell = alignments.objective(made.alignment())
    assert "it fell from 2 as the files stand to 0.7, start: embedding." in fell
    assert alignments.PROMISE in found.more and alignments.PROMISE not in found.text
    assert "Only the point half way was run." in found.more
    assert found.word == "exact"
    noted = made.alignment(notes=("Biases that only B has were left out.",))
    assert "Biases that only B has" in alignments.told(*cards, noted, None).text
    mixed = tuple(replace(sweep, distance=1.1) for sweep in made.sweeps())
    text = alignments.objective(made.alignment(sweeps=mixed))
    assert "mixed with how alike activations are (its distance: 1.1)" in text


def test_an_objective_that_did_not_fall_is_no_improvement(cards):
    rose = (replace(made.stuck()[0], after=0.6),)
    for sweeps in (made.stuck(), rose):
        found = alignments.objective(made.alignment(sweeps=sweeps))
        assert "it did not fall below 0.5, where the files stand" in found
        assert not re.search(r"it fell|gained|improve", found)


def test_a_middle_that_got_worse_is_told(cards):
    report = made.alignment(midpoint_before=1.0, midpoint_after=2.0)
    assert "So it is here, half way, by the logits." in alignments.told(*cards, report, None).more
    better = made.alignment(midpoint_before=2.0, midpoint_after=1.0)
    assert "So it is here" not in alignments.told(*cards, better, None).more


def test_unrelated_models_never_get_the_word_same(cards):
    report, strangers = made.alignment(1.6, STRANGERS), made.relatedness("unrelated")
    found = alignments.told(*cards, report, strangers)
    related = lineage.related(strangers)
    explained = alignments.explained(report, strangers)
    for text in (found.headline, found.text, related.headline, related.text, explained):
        assert not re.search(r"\b[Ss]ame\b", text), text
    assert lineage.ASSIGNMENT in found.more
    assert "says nothing about what the two have in common" in explained
    twins = alignments.told(*cards, made.alignment(), made.relatedness())
    assert lineage.ASSIGNMENT not in twins.more and "Same function" in twins.headline
    assert "Only coordinates: 90.0 %" in alignments.explained(made.alignment())


def test_the_control_of_a_refinement_decides_what_is_claimed():
    worth = alignments.half_way(made.alignment(refined=True))
    assert "+3.000 nats from the chord as the files stand, +1.300 nats with every" in worth
    assert "Matching is worth 0.5 nats to it" in worth
    same = made.alignment(midpoints=made.midpoints(0.9, 0.9))
    assert "The control is no worse" in alignments.half_way(same)
    assert "is worth" not in alignments.half_way(same)


@pytest.mark.parametrize("verdict", FOUR)
def test_each_of_the_four_has_its_headline_its_p_and_its_control(verdict: Verdict):
    found = lineage.related(made.relatedness(verdict))
    assert found.headline == lineage.HEADLINES[verdict]
    assert found.word is None  # no reserved word: it is a test, not an error
    assert found.badge == ("p = 0.13" if verdict == "unrelated" else "p < 1e-3021")
    assert "Control, random residual coordinates: p = 0.4, as between unrelated" in found.text
    assert ("A large p is no proof" in found.text) == (verdict == "unrelated")


def test_what_was_not_tested_is_not_claimed():
    found = lineage.related(None)
    assert found.badge == "not measured"
    record = made.relatedness("unrelated")
    failed = replace(record, tests=(*record.tests[:-1], made.tested("random", LIMIT - 1, 0.9, 6)))
    assert "the test failed here" in lineage.related(failed).text
    assert "as between unrelated" not in lineage.related(failed).text


@pytest.mark.parametrize(
    ("log10", "text"),
    [(0.0, "p = 1"), (-1.0, "p = 0.1"), (-4.0, "p < 1e-4"), (-3021.4, "p < 1e-3021")],
)
def test_p_is_never_rounded_below_what_it_is(log10: float, text: str):
    assert lineage.p(log10) == text


def test_the_placement_is_told_and_of_strangers_is_not_believed():
    found = lineage.placed(made.relatedness("same lineage", (6, 5)))
    assert found.startswith("The 5 layers of B are layers 1 to 5")
    assert found.endswith("of A; no partner: layer 0.")
    turned = lineage.placed(made.relatedness("same lineage", (5, 6)))
    assert turned.startswith("The 5 layers of A are layers 1 to 5")
    assert "it means nothing" in lineage.placed(made.relatedness("unrelated", (6, 5)))


def test_depth_alone_is_another_sentence_than_other_groups(cards):
    shallow = replace(cards[1], layers=5)
    assert verdicts.pair(cards[0], shallow, None).headline.startswith("Different depths")
    assert lineage.comparable(cards[0], shallow)
    wide = replace(shallow, width=128)
    assert verdicts.pair(cards[0], wide, None).headline.startswith("Different groups")
    assert not lineage.comparable(cards[0], wide)


@pytest.mark.parametrize(
    ("found", "goes_on", "text"),
    [
        (
            made.progress(3),
            True,
            "So far: 3 sweeps (objective: it fell from 2 as the files stand to 0.7",
        ),
        (made.progress(0, 4), True, "So far: 4 layers solved."),
        (
            made.progress(1),
            False,
            "Stopped; nothing was written. Until then: 1 sweep (objective: it fell",
        ),
        (made.progress(0, 1, ((3.0, 2.5), ())), True, "2 steps along the loss, 2.500 nats."),
        (made.progress(0), True, "So far: nothing yet."),
    ],
)
def test_a_run_says_how_far_it_is(found, goes_on: bool, text: str):
    assert text in alignments.unfinished(found, goes_on=goes_on)


def test_a_relation_is_kept_whole(tmp_path):
    store, record = Store(tmp_path), made.relatedness("same lineage", (6, 5))
    store.put("key", record)
    found = store.get("key")
    assert isinstance(found, Relatedness)
    np.testing.assert_array_equal(found.likeness, record.likeness)
    assert found.verdict == "same lineage"
