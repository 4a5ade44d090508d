"""Published and measured here: the page, its sentences, its pictures."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app import layer_views, outputs, reproduced
from app.charts import drawing
from app.charts import reproductions as charts
from app.charts.theme import DARK, LIGHT
from app.sections import reproductions as sections
from app.sentences import answers
from app.sentences import published as layers
from app.sentences import reproductions as sentences
from app.settings import ROOT
from engine import published, reproduction
from engine.records import VARIANTS, Architecture, Connectivity, OrderTrial, ScopeRatios
from tests import app_pages
from tests.allowed import stored_pair
from tests.app_pages import plots, text

PAGE = str(ROOT / "pages" / "published.py")
opened = partial(app_pages.opened, PAGE, seconds=60)
TOLD = reproduction.connectivity()


def scope(name: str, word: str, none: float, orthogonal: float, full: float) -> ScopeRatios:
    """Three pairs around these means."""
    middle = np.array([none, orthogonal, full])[:, None] * np.array([0.9, 1.0, 1.1])
    relative = np.stack([middle, 0.8 * middle, 1.2 * middle], axis=-1)
    naive = np.array([0.5, 1.0, 1.5])
    left = relative[2] * naive[:, None]
    pairs = tuple((f"{name}-{k}", f"{name}-{k + 1}") for k in range(3))
    return ScopeRatios(name, word, pairs, naive, relative, left, 0 * left)


@pytest.fixture
def here() -> Connectivity:
    every = {n: Architecture(n, "encoder", p, "class", "images", 3, 48, 4) for n, p in
             (("vit", "absolute"), ("llama", "rotary"))}  # fmt: skip
    found = (
        scope("vit", "first-layer", 0.8, 0.14, 0.1),
        scope("llama", "first-layer", 0.3, 0.32, 0.34),
        scope("llama", "whole", 0.7, 0.6, 0.5),
    )
    barrier = np.array([0.3, 0.1, 0.2])
    trial = OrderTrial("vit", ("vit-0", "vit-1"), barrier, 0.9, 2, (1, 2))
    return Connectivity(every, found, (trial,), (), ("No rotary ViT.",), 25, "python -m x")


# Sentences


def test_the_verdict_counts_settings_and_names_exceptions(here: Connectivity) -> None:
    said = sentences.told(here, TOLD)
    assert said.headline == (
        "The full Stage 2 leaves clearly less of the barrier than Stage 1 alone in 1 of 3 settings."
    )
    assert "9 pairs" in said.text
    assert (
        "In 1 more it is less in every pair, with intervals that overlap; in 1 the two" in said.text
    )
    assert "Stage 1 alone in: Llama, the first layer (34% after 30%)." in said.text
    assert said.text.index("Stage 1 finds") < said.text.index("On the mean")
    assert "the first layer, 1 of 2 architectures here lie in its 7% to 12%." in said.text
    assert said.badge == ""
    assert sentences.told(replace(here, missing=("vit: whole",)), TOLD).badge == "partial"
    assert "No ratio" not in said.text
    last = here.scopes[-1]
    none = replace(last, relative=np.full_like(last.relative, np.nan))
    less = sentences.told(replace(here, scopes=(*here.scopes[:2], none)), TOLD)
    assert "in 1 of 2 settings" in less.headline and "9 pairs" in less.text
    assert "No ratio, since the naive barrier may be 0: Llama, the whole model." in less.text
    better = replace(here, scopes=here.scopes[:1])
    assert sentences.exceptions(better) == ""


def test_both_ways_of_matching_are_told_apart(here: Connectivity) -> None:
    assert "rather than by weights" not in sentences.told(here, TOLD).text
    vit, llama, _ = here.scopes
    better = replace(vit, using="activations", relative=vit.relative / 2)
    worse = replace(llama, using="activations", relative=llama.relative * 1.1)
    both = replace(here, scopes=(*here.scopes, better, worse))
    assert (
        "Stage 2 leaves less on the mean in 1 of 2 settings measured with both: 21% in place of 22%"
        in sentences.told(both, TOLD).text
    )
    said = sentences.told(both, TOLD, "activations")
    assert "6 pairs" in said.text and "in 1 of 2 settings." in said.headline
    assert "Llama, the first layer by activations (37% after 33%)." in said.text
    assert both.by("weights").scopes == here.scopes
    assert both.by("activations").orders == ()
    assert charts.table(both)["matched by"].tolist() == [*["weights"] * 3, *["activations"] * 2]


def test_full_and_orthogonal_are_compared_on_the_same_windows(here: Connectivity) -> None:
    assert "less in 0 of 9 pairs, more in 0; in 9 the interval" in sentences.told(here, TOLD).text
    apart = np.array([[-1, -2, -0.5], [1, 0.5, 2], [-1, -2, 0.5]])
    first = replace(here.scopes[0], difference=apart)
    alone = replace(here, scopes=(first,))
    assert "less in 1 of 3 pairs, more in 1; in 1 the interval" in sentences.paired(alone)
    unknown = replace(first, difference=np.full((3, 3), np.nan))
    assert sentences.paired(replace(here, scopes=(unknown,))) == ""


def test_the_ablation_says_where_the_paper_has_none(here: Connectivity) -> None:
    card = sentences.ablation(here, TOLD, "first-layer")
    assert "full Stage 2 7% to 12%" in card.theirs
    assert "ViT: 80%, 14%, 10%; Llama: 30%, 32%, 34%." in card.ours
    assert "No rotary ViT." in card.differs and "no ablation" not in card.differs
    other = sentences.ablation(here, TOLD, "whole")
    assert "The paper has no ablation of the whole model." in other.differs
    assert sentences.ablation(here, TOLD, "all-attention").ours == answers.NOTHING


def test_nothing_is_called_connected(here: Connectivity) -> None:
    card = sentences.connected(here, TOLD, "whole")
    assert "Large data: not connected" in card.theirs
    assert "above 0 with its whole interval in 3 of 3 pairs" in card.ours
    touching = here.scopes[2].left.copy()
    touching[0, 1] = 0.0
    scopes = (*here.scopes[:2], replace(here.scopes[2], left=touching))
    assert (
        "in 2 of 3 pairs" in sentences.connected(replace(here, scopes=scopes), TOLD, "whole").ours
    )


def test_orders_are_ranked_by_what_was_measured(here: Connectivity) -> None:
    assert "ViT 2 of 3 (12)." in sentences.orders(here, TOLD).ours  # 100 (0.2 − 0.1) / 0.8
    assert np.isnan(replace(here.orders[0], naive=0.05).lost)
    assert sentences.orders(replace(here, orders=()), TOLD).ours == answers.NOTHING


def test_published_correlations_come_out_of_the_published_data() -> None:
    """Rank correlations of the paper's own file: replacing tells more there."""
    maps = layer_views.of_published(published.published("qwen3-8b-removal"))
    found = layers.told_removal(maps, maps.singles["removal"].value)
    assert found["swap"] == pytest.approx(0.62, abs=0.01)
    assert found["replace"] == pytest.approx(0.78, abs=0.01)
    shuffled = np.random.default_rng(0).permutation(maps.singles["removal"].value)
    assert abs(layers.told_removal(maps, shuffled)["replace"]) < 0.6


def test_cards_of_layers_say_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduced, "shipped_maps", lambda model: None)
    monkeypatch.setattr(outputs, "known", lambda question: None)
    cards = {one.title: one for one in reproduced.cards()}
    assert len(cards) == 5
    without = [one for one in cards.values() if answers.NOTHING in one.ours]
    assert len(without) == 4  # the fine-tunes' coordinates are in the demo's own record
    assert [one.command for one in without] == ["", "", "", ""]
    assert "20 of 102 pairs, 12 with intervals apart" in without[0].theirs
    assert "pythia-160m ×14" in without[2].theirs


# Whether it holds


def test_clearly_less_needs_intervals_apart_in_every_pair(here: Connectivity) -> None:
    vit, first, whole = here.scopes
    assert [answers.standing(one) for one in (vit, first, whole)] == ["clear", "unclear", "lower"]
    wide = vit.relative.copy()
    wide[0, 0, 1] = wide[2, 0, 2] - 1e-9  # one pair's intervals touch
    assert answers.standing(replace(vit, relative=wide)) == "lower"


def test_every_card_answers_from_its_numbers(here: Connectivity) -> None:
    ours, theirs = here.scopes, TOLD.relative["full"]
    assert answers.ablation([ours[0]], theirs).word == "holds"
    assert answers.ablation([ours[0]], (0.2, 0.3)).word == "holds in part"
    assert answers.ablation([ours[1]], theirs).word == "cannot be told"
    assert answers.ablation([ours[0]], None).word == "cannot be told"
    assert answers.ablation([], theirs) == answers.UNKNOWN
    told = [answers.connected(sure, 3).word for sure in (0, 2, 3)]
    assert told == ["holds", "holds in part", "does not hold"]
    assert answers.orders(here.orders).word == "does not hold"  # rank 2 of 3
    best = replace(here.orders[0], barrier=np.arange(8.0), naive=9.0, chosen=1, ranks=(1, 2))
    assert answers.orders((best,)).word == "does not hold"  # it loses 11 of 100
    assert answers.orders((replace(best, chosen=0, ranks=(1, 1)),)).word == "holds"
    assert answers.same(True, None, "yes", "no") == answers.UNKNOWN
    assert answers.same(True, False, "yes", "no") == ("does not hold", "Here no.")
    assert answers.ordered({"x": 3, "y": 2, "z": 1}, {"x": 3, "y": 1, "z": 2}).word == (
        "holds in part"
    )
    every = [sentences.orders(here, TOLD), sentences.connected(here, TOLD, "whole")]
    assert all(card.answer.word in answers.TONES for card in [*every, *reproduced.cards()])


def test_what_repeating_the_barriers_costs_is_said(here: Connectivity) -> None:
    assert sentences.orders(here, TOLD).cost == ""
    dear = sentences.orders(replace(here, seconds=3600.0), TOLD)
    assert "60 min on one processor core" in dear.cost


def test_an_architecture_without_a_dot_is_named_beside_the_picture(here: Connectivity) -> None:
    assert sentences.without(here, "first-layer") == ""
    assert "matched by weights alone" in sentences.without(here, "all-attention")
    assert sentences.without(replace(here, scopes=()), "all-attention") == ""
    none = replace(here.scopes[0], relative=np.full_like(here.scopes[0].relative, np.nan))
    gone = replace(here, scopes=(none, *here.scopes[1:]))
    assert sentences.without(gone, "first-layer").startswith(
        "Not in the picture: ViT (3 of 3 pairs"
    )


# Pictures


def test_every_pair_is_a_dot_beside_the_published_bars(here: Connectivity) -> None:
    table = charts.dots(here, "first-layer")
    assert len(table) == 2 * 3 * len(VARIANTS)
    assert table["who"].unique().tolist() == ["ViT", "Llama"]
    assert ((table["low"] < table["ratio"]) & (table["ratio"] < table["high"])).all()
    assert charts.ranges(TOLD)["high"].tolist() == [0.91, 0.16, 0.12]
    spec = charts.ratios(here, TOLD, "first-layer", LIGHT).to_dict()
    marks = [layer["mark"]["type"] for layer in spec["layer"]]
    assert marks == ["rule", "bar", "rule", "point", "tick"]
    assert len(json.dumps(spec)) < 100_000


def test_a_pair_without_a_ratio_is_no_dot(here: Connectivity) -> None:
    gone = here.scopes[0].relative.copy()
    gone[:, 1] = np.nan
    less = replace(here, scopes=(replace(here.scopes[0], relative=gone),))
    assert len(charts.dots(less, "first-layer")) == 2 * len(VARIANTS)
    assert charts.span(np.zeros(0), "{}") == "no ratio"
    assert charts.dots(here, "all-attention").empty


def test_the_table_is_means_and_ranges(here: Connectivity) -> None:
    table = charts.table(here)
    assert table["full Stage 2"].tolist()[0] == "10% (9% to 11%)"
    assert table["naive, nats"].tolist()[0] == "1 (0.5 to 1.5)"
    rows = charts.pairs(here)
    assert len(rows) == 9
    assert rows["full Stage 2"].iloc[0] == here.scopes[0].relative[2, 0, 0]


def test_the_chosen_order_stands_out(here: Connectivity) -> None:
    line, dots = charts.orders(here.orders, LIGHT).layer
    assert line.data["barrier"].tolist() == [here.orders[0].naive]
    data = dots.data
    assert data.sort_values("rank")["barrier"].tolist() == [0.1, 0.2, 0.3]
    assert data[data["order"] == "chosen"]["barrier"].tolist() == [0.2]


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_pictures_are_drawn(here: Connectivity, look: Any) -> None:
    for chart in (charts.ratios(here, TOLD, "whole", look), charts.orders(here.orders, look)):
        assert drawing.image(chart, "svg").startswith(b"<svg")


# The page


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with stored_pair(tmp_path, monkeypatch):
        yield opened


def test_the_page_shows_what_the_file_holds(at: Any) -> None:
    page = at()
    assert page.title[0].value == "Does what was published hold here?"
    record = reproduction.measured()
    assert sentences.told(record, TOLD).headline in text(page)
    assert page.segmented_control(key="scope").value == TOLD.scope
    assert len(plots(page)) == 1 + bool(record.orders)
    heard = page.segmented_control(key="matched").set_value("activations").run()
    assert sentences.told(record, TOLD, "activations").headline in text(heard)
    assert len(heard.dataframe[0].value) == len(record.by("activations").scopes)
    assert record.command in page.code[0].value
    assert [button.label for button in page.get("download_button")][:2] == [
        "Pairs (CSV)",
        "Cards (JSON)",
    ]


def test_a_link_opens_another_scope(at: Any) -> None:
    page = at(scope="all-attention")
    assert page.segmented_control(key="scope").value == "all-attention"
    assert "The paper has no ablation" in "\n".join(c.value for c in page.caption)
    page = page.segmented_control(key="scope").set_value("whole").run()
    assert "not connected" in text(page)


def test_without_a_file_the_other_cards_stay(at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction.measured, "__defaults__", (Path("nowhere.json"),))
    page = at()
    assert "run python -m assets.make_lmc" in page.text[0].value
    assert "Does swapping cost less than replacing?" in text(page)


def test_cards_become_json(here: Connectivity) -> None:
    files: list[Any] = []
    seen = {"files": files}
    original = outputs.take_away
    try:
        outputs.take_away = lambda f, c, n="": seen.update(files=f, commands=c)  # type: ignore[assignment]
        cards = [sentences.ablation(here, TOLD, "first-layer"), *reproduced.cards()]
        sections.take_away(here, TOLD, "first-layer", cards)
    finally:
        outputs.take_away = original
    made = {file.name: file.make() for file in seen["files"]}
    held = json.loads(made["published-cards.json"])
    assert held["cards"][0]["ours"] == cards[0].ours and len(held["cards"]) == len(cards)
    assert held["question"] == {
        "command": "python -m x", "scope": "first-layer", "using": "weights"
    }  # fmt: skip
    assert made["published-pairs.csv"].count("\n") == 10
    assert made["published-ratios.png"].startswith(b"\x89PNG")
    assert seen["commands"][0] == "python -m x" and len(set(seen["commands"])) == len(
        seen["commands"]
    )
