"""What sections of pages offer to take away, and what they put beside their pictures."""

import io
import runpy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app import inputs, outputs, session
from app.charts import heads as head_charts
from app.charts.layer_maps import Pair
from app.charts.theme import LIGHT
from app.controls import heads as head_controls
from app.controls import layers as layer_controls
from app.controls.model import Chosen
from app.pruned import Pruning
from app.sections import (
    alignment,
    atlas,
    checkpoints,
    curves,
    cutting,
    experts,
    gap,
    growing,
    heads,
    lab,
    layers,
    models,
    neurons,
    relation,
    residual,
)
from app.settings import ROOT
from engine.published import published as qwen3_8b
from engine.questions import (
    Align,
    Barrier,
    Cut,
    Experts,
    Gap,
    Heads,
    Lab,
    Layers,
    Match,
    Neurons,
    Related,
)
from tests import (
    fake_alignments,
    fake_barriers,
    fake_experts,
    fake_heads,
    fake_layers,
    fake_neurons,
    fakes,
)
from tests.widgets import Page, page

__all__ = ["page"]

MIMES = {
    "csv": "text/csv", "npz": "application/octet-stream", "json": "application/json",
    "png": "image/png", "svg": "image/svg+xml", "yaml": "text/yaml",
}  # fmt: skip
CARD = fakes.model_card()
A, B = Chosen("demo:a", "/a", CARD), Chosen("demo:b", "/b", CARD)
CELL = head_controls.Pick(head_charts.Cell(0, 1), "partner", "both", True, 0)
PICK = layer_controls.Pick(Pair(2, 3), "replace", "swap", "max")
RELATED = Related("/a", "/b"), fake_alignments.relatedness()


@dataclass(frozen=True)
class Sketch:
    """A picture that is not drawn: which it is, and what it was given."""

    name: str
    given: tuple[Any, ...]

    def properties(self, **_: Any) -> "Sketch":
        return self


SKETCHED = {
    "barriers": ("lines",), "cuts": ("curves",), "descents": ("objective", "midpoints"),
    "disguises": ("chart",), "drawing": ("beside", "above"),
    "experts": ("cost_map", "likeness", "tolls"), "gaps": ("lines", "compared", "scatter"),
    "heads": ("cost_map", "order_map"), "layer_maps": ("pair_map", "disagreement"),
    "lineages": ("tests", "likeness"), "objectives": ("steps", "left", "singular", "removal"),
    "shares": ("bars",), "turns": ("turn_map",),
}  # fmt: skip
"""The pictures of each module of charts that other tests draw."""


@pytest.fixture(autouse=True)
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture is drawn."""
    for module, names in SKETCHED.items():
        for name in names:

            def sketch(*given: Any, name: str = f"{module}.{name}", **_: Any) -> Sketch:
                return Sketch(name, given)

            monkeypatch.setattr(f"app.charts.{module}.{name}", sketch)
    monkeypatch.setattr("app.charts.drawing.shown", lambda chart, look: chart)


def drawn(label: str, name: str) -> list[tuple[str, str]]:
    """A picture as both of its files."""
    return [(f"{label} ({kind.upper()})", f"{name}.{kind}") for kind in ("png", "svg")]


RELATION = [
    ("Relatedness (JSON)", "related.json"), ("Tests (CSV)", "related-tests.csv"),
    *drawn("Tests", "related-tests"),
]  # fmt: skip
TAKEN: dict[str, tuple[Callable[[], None], list[tuple[str, str]]]] = {
    "alignment": (
        lambda: alignment.take_away(
            Align("/a", "/b"), fake_alignments.alignment(refined=True), RELATED
        ),
        [
            ("Report (JSON)", "alignment.json"), ("Tensors (CSV)", "alignment-tensors.csv"),
            ("Steps (CSV)", "alignment-steps.csv"), ("Sweeps (CSV)", "alignment-sweeps.csv"),
            *RELATION, *drawn("Objective", "alignment-objective"),
            *drawn("Shares", "alignment-shares"), *drawn("Midpoints", "alignment-midpoints"),
            *drawn("Maps", "alignment-maps"),
        ],
    ),
    "atlas": (
        lambda: atlas.take_away(A, None),
        [("Table (CSV)", "atlas.csv"), ("Card (JSON)", "card.json"), *drawn("Diagram", "atlas")],
    ),
    "barrier": (
        lambda: curves.take_away(
            Barrier("/a", "/b"), fake_barriers.report(), "loss", 0.5, ([], ["more"])
        ),
        [
            ("Points (CSV)", "barrier-points.csv"), ("Stages (CSV)", "barrier-stages.csv"),
            ("Record (JSON)", "barrier.json"), *drawn("Line", "barrier-line"),
        ],
    ),
    "cutting": (
        lambda: cutting.take_away(
            Cut("/a"), fake_layers.cut_report(), 2, None, Pruning("/a", (2, 3))
        ),
        [
            ("Table at n = 2 (CSV)", "cut-2.csv"), ("Costs (CSV)", "cut-costs.csv"),
            ("Record (JSON)", "cut.json"), ("mergekit (YAML)", "mergekit.yaml"),
            *drawn("Cost", "cut-cost"),
        ],
    ),
    "experts": (
        lambda: experts.take_away(
            Experts("/a", "/b", layer=1), fake_experts.experts_report(), "both"
        ),
        [
            ("Experts (CSV)", "experts-layer-1.csv"), ("Costs (CSV)", "experts-layer-1-costs.csv"),
            ("Arrays (NPZ)", "experts-layer-1.npz"), ("Record (JSON)", "experts-layer-1.json"),
            *drawn("Experts, map", "experts-layer-1-map"),
            *drawn("Experts, neurons", "experts-layer-1-neurons"),
            *drawn("Experts, tolls", "experts-layer-1-tolls"),
        ],
    ),
    "gap": (
        lambda: gap.take_away(
            Gap(("/a", "/b")), fake_layers.gap(), fake_layers.gap(), "log ratio"
        ),
        [
            ("Pairs (CSV)", "gap-pairs.csv"), ("Properties (CSV)", "gap-properties.csv"),
            ("Record (JSON)", "gap.json"), *drawn("Gap", "gap-gap"), *drawn("Tests", "gap-tests"),
        ],
    ),
    "heads": (
        lambda: heads.take_away(
            Heads("/a", "/b"), fake_heads.heads_report(removal=np.ones(6, np.float32)), CELL
        ),
        [
            ("Heads (CSV)", "heads-layer-0.csv"), ("Arrays (NPZ)", "heads-layer-0.npz"),
            ("Record (JSON)", "heads-layer-0.json"), ("Turns (CSV)", "heads-layer-0-turns.csv"),
            ("Removal (CSV)", "heads-layer-0-removal.csv"),
            ("Disguises (CSV)", "heads-layer-0-disguises.csv"),
            *drawn("Costs", "heads-layer-0-costs"), *drawn("Order", "heads-layer-0-order"),
            *drawn("Disguises", "heads-layer-0-disguises"),
            *drawn("Objective", "heads-layer-0-objective"), *drawn("Turns", "heads-layer-0-turns"),
            *drawn("Singular", "heads-layer-0-singular"),
            *drawn("Removal", "heads-layer-0-removal"),
        ],
    ),
    "lab": (
        lambda: lab.take_away(Lab("/a"), fakes.experiment()),
        [
            ("Tensors (CSV)", "lab-ffn-order.csv"), ("Record (JSON)", "lab-ffn-order.json"),
            ("Matrices (NPZ)", "lab-ffn-order.npz"),
        ],
    ),
    "layers": (
        lambda: layers.take_away(
            Layers("/a"), layers.viewed(fake_layers.layer_maps()), fake_layers.layer_maps(), PICK
        ),
        [
            ("Pairs (CSV)", "layers-pairs.csv"), ("Layers (CSV)", "layers.csv"),
            ("Maps (JSON)", "layers.json"), *drawn("Maps", "layers-replace-swap-maps"),
            *drawn("Disagreement", "layers-replace-swap-disagreement"),
        ],
    ),
    "models": (
        lambda: models.take_away(Align("/a", "/b"), fake_alignments.alignment(), *RELATED),
        [
            ("Tensors (CSV)", "alignment-tensors.csv"), ("Report (JSON)", "alignment.json"),
            *drawn("Maps", "maps"), *RELATION,
        ],
    ),
    "neurons": (
        lambda: neurons.take_away(
            Neurons("/a", "/b", layer=0), fake_neurons.neuron_match(expert="2"),
            fake_neurons.neuron_layers(),
        ),
        [
            ("Matching (CSV)", "neurons-layer-0-expert-2-matching.csv"),
            ("Arrays (NPZ)", "neurons-layer-0-expert-2.npz"),
            ("Record (JSON)", "neurons-layer-0-expert-2.json"), ("Layers (JSON)", "neurons.json"),
        ],
    ),
    "one model's neurons": (
        lambda: neurons.take_away(Neurons("/a", "/a", layer=0), fake_neurons.itself(), None),
        [
            ("Pairs (CSV)", "neurons-layer-0-pairs.csv"),
            ("Costs (CSV)", "neurons-layer-0-costs.csv"), ("Arrays (NPZ)", "neurons-layer-0.npz"),
            ("Record (JSON)", "neurons-layer-0.json"),
        ],
    ),
    "relation": (
        lambda: relation.alone(RELATED[0], fake_alignments.relatedness("unrelated", (6, 4))),
        [
            ("Relatedness (JSON)", "related.json"), ("Tests (CSV)", "related-tests.csv"),
            ("Layers (CSV)", "related-layers.csv"), *drawn("Tests", "related-tests"),
            *drawn("Layers", "related-layers"),
        ],
    ),
    "residual": (
        lambda: residual.take_away(Match("/a", "/b"), fakes.residual_match(), 0),
        [
            ("Matching (CSV)", "match-embedding.csv"),
            ("Gauge and matrix (NPZ)", "match-embedding.npz"), ("Record (JSON)", "match.json"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_every_file_of_a_page_has_its_name_and_kind(page: Page, name: str) -> None:
    show, files = TAKEN[name]
    show()
    found = {
        label: (one["file_name"], one["mime"])
        for label, one in page.buttons.items() if "mime" in one
    }  # fmt: skip
    assert found == {label: (file, MIMES[file.split(".")[-1]]) for label, file in files}
    for label, one in page.buttons.items():
        if one["mime"] == "text/csv":
            table = pd.read_csv(io.StringIO(one["data"]()))
            assert len(table) and "Unnamed: 0" not in table, label


def test_the_arrays_of_a_match_are_those_of_the_chosen_depth(page: Page) -> None:
    record = fakes.residual_match()
    residual.take_away(Match("/a", "/b"), record, 1)
    found = np.load(io.BytesIO(page.buttons["Gauge and matrix (NPZ)"]["data"]()))
    np.testing.assert_array_equal(found["sign"], record.absolute[1].sign)
    np.testing.assert_array_equal(found["margin"], record.absolute[1].margin)
    np.testing.assert_array_equal(found["correlation"], record.correlation[1])
    assert not np.array_equal(record.absolute[0].margin, record.absolute[1].margin)


def test_every_page_ends_with_the_commands_that_repeat_it(page: Page) -> None:
    models.take_away(Align("/a", "/b"), fake_alignments.alignment(), *RELATED)
    assert page.said[-2] == "The same results without a browser:"
    assert page.said[-1].splitlines() == [
        "python -m engine inspect /a", "python -m engine inspect /b",
        "python -m engine align /a /b --out aligned", "python -m engine related /a /b",
    ]  # fmt: skip
    cutting.take_away(Cut("/a"), fake_layers.cut_report(), 2, None, Pruning("/a", (2, 3)))
    assert page.said[-1].splitlines() == [
        "python -m engine cut /a --out cut.json",
        "python -m engine prune /a --drop 2,3 --out pruned",
    ]
    curves.take_away(Barrier("/a", "/b"), fake_barriers.report(), "loss", 0.5, ([], ["more"]))
    assert page.said[-1].splitlines() == [
        "python -m engine barrier /a /b --out barrier.json", "more",
    ]  # fmt: skip
    told = qwen3_8b("qwen3-8b")
    layers.take_away(None, layers.viewed(told), told, PICK)
    assert page.said[-2].startswith("Published numbers stand in assets/published. The same")


def test_a_written_checkpoint_opens_on_either_side(page: Page) -> None:
    checkpoints.written(Path("/store/models/merged-1"), "`report.json`")
    said = "Written: `/store/models/merged-1`, with `report.json`. It loads in transformers, and "
    assert page.said == [f"{said}opens here as a folder."]
    assert list(page.buttons) == ["Open as A", "Open as B"]
    for name in ("a", "b"):
        button = page.buttons[f"Open as {name.upper()}"]
        button["on_click"](**button["kwargs"])
        assert page.held[name] == "merged-1"


@pytest.mark.parametrize(("half", "parts"), [(False, ["angle", "modulus"]), (True, ["angle"])])
def test_the_file_of_turns_has_moduli_where_any_turn_is_free(half: bool, parts: list[str]) -> None:
    shape = fake_heads.Shape()
    record = fake_heads.heads_report(turns=fake_heads.turns(shape, half=half))
    pick = replace(CELL, cell=head_charts.Cell(4, 0), frequency=5)  # of the second group
    maps = heads.pictures(record, pick)["turns"].given
    assert [one.given for one in maps] == [
        (record, record.turns, part, LIGHT, (1, 5), part) for part in parts
    ]


def test_pictures_of_one_model_leave_out_what_is_between_two() -> None:
    alone, free, both = fake_heads.itself(), fake_heads.unrotated(), fake_heads.heads_report()
    assert list(heads.pictures(alone, CELL)) == ["costs", "order", "disguises", "removal"]
    assert list(heads.tabulated(alone)) == ["removal", "disguises"]
    found = heads.pictures(free, CELL)
    assert list(found) == ["costs", "order", "objective", "singular"]
    assert [one.given[:2] for one in found["singular"].given] == [
        (free.val_singular, "values and outputs"), (free.qk_singular, "queries and keys"),
    ]  # fmt: skip
    names = [(one.name, one.given[1]) for one in found["objective"].given]
    assert names == [
        ("objectives.steps", "query–key"), ("objectives.steps", "value–output"),
        ("objectives.left", LIGHT),
    ]  # fmt: skip
    found = heads.pictures(both, CELL)
    assert list(found) == ["costs", "order", "disguises", "objective", "turns", "singular"]
    assert len(found["singular"].given) == 1


def test_a_card_says_where_blind_directions_stand(page: Page) -> None:
    models._rows("A", CARD, fakes.self_test())
    assert page.said[0] == "Internal coordinates of A, each changed alone"
    assert page.said[1] == (
        "Coordinates first, blind directions below. Those marked “up to ε” are true only up to the "
        "small number inside a norm. The Atlas page says what each is."
    )
    assert page.tables[0]["kind"].tolist() == ["coordinate"] * 6 + ["blind direction"] * 2
    marked = ["up to ε" in result for result in page.tables[0]["result"]]
    assert marked == [False] * 7 + [True]
    models._rows("B", CARD, None)
    assert page.said[-1] == "Internal coordinates of B"
    assert "self-test" not in page.tables[1].columns


def ran(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page from top to bottom, of two models with cards."""
    monkeypatch.setattr(inputs, "located", str)
    monkeypatch.setattr(inputs, "card", lambda path: CARD)
    monkeypatch.setattr(Gap, "key", "0")
    runpy.run_path(str(ROOT / "pages" / f"{name}.py"))


def test_a_gap_that_is_not_measured_to_its_end_shows_the_models_so_far(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    half = fake_layers.gap((0.2, 0.6))
    page.held |= {session.SERIES: "chosen", session.MODELS: ["/a", "/b", "/c"]}
    page.held |= {session.DEVICE: "cpu"}
    monkeypatch.setattr(inputs, "choices", list)
    monkeypatch.setattr(outputs, "answered", lambda *told: asked.append(told))
    monkeypatch.setattr(outputs, "so_far", {Gap(("/a", "/b", "/c"), device="cpu"): half}.get)
    monkeypatch.setattr(growing, "follow", lambda *told: asked.append(told))
    ran("gap", monkeypatch)
    question = Gap(("/a", "/b", "/c"), device="cpu")
    assert asked[0] == (
        question, 3 * CARD.parameters, "Gap over 3 models", "Measure the gap",
        "Runs 3 models, one after another.",
    )  # fmt: skip
    assert asked[1] == (question, "steps", half)
    assert page.charts["gap"].given[:2] == (half, "log ratio")
    assert page.charts["tests"].given == (half,)
    for name in half.steps[0].properties:
        assert page.charts[f"property-{name}"].given[:3] == (half, name, "log ratio")
    told = page.charts["tests-published"].given[0]
    assert told.steps[0].model == "pythia-160m step0"
    assert page.charts["gap-published"].given[0] is told
    assert page.said[0] == "When do replacing and swapping come apart?"
    assert page.buttons["Pairs (CSV)"]["file_name"] == "gap-pairs.csv"
