"""What a question may ask for: found before any model is opened, in one line."""

from dataclasses import replace

import pytest

from engine.checkpoint import open_checkpoint
from engine.errors import Refused, silent
from engine.line import gauges
from engine.line.setting import work
from engine.questions import Align, Barrier, Merge, Orders, Question, Slice, Written
from engine.questions.base import BOUNDS, OPTIONS
from tests import tiny

NOWHERE = ("no-such-folder", "no-such-folder")
ASKED: tuple[Question, ...] = (
    Align(*NOWHERE), Barrier(*NOWHERE), Merge(*NOWHERE), Orders(*NOWHERE), Slice(*NOWHERE),
    Written(*NOWHERE),
)  # fmt: skip
EDGES = [
    pytest.param(one, name, id=f"{one.verb}-{name}")
    for one in ASKED
    for name in sorted(one.bounds)
    if hasattr(one, name)
]


@pytest.mark.parametrize(("asked", "name"), EDGES)
def test_a_number_beyond_its_bounds_is_refused_before_any_model_is_opened(
    asked: Question, name: str
) -> None:
    low, high = asked.bounds[name]
    for value in (low, high):
        more = (
            {"stage": "refined"} if name == "refine" and value and hasattr(asked, "stage") else {}
        )
        replace(asked, **{name: value}, **more).require()
    for value in (low - 1, high + 1):
        option = OPTIONS.get(name, name)
        told = rf"^--{option} {value}: give {low:,} to {high:,}\.$"
        with pytest.raises(Refused, match=told):
            replace(asked, **{name: value}).answer()


def test_every_number_that_costs_time_has_bounds() -> None:
    assert {"points", "sweeps", "restarts", "refine", "tokens", "length", "count"} <= BOUNDS.keys()
    assert Slice.bounds["points"] != Barrier.bounds["points"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Barrier(*NOWHERE, stages=("naive",)), "no stage 'naive'"),
        (Barrier(*NOWHERE, stages=("refined",)), "needs steps: give --refine"),
        (Barrier(*NOWHERE, refine=3, scope="0"), "--refine moves all tensors"),
        (Barrier(*NOWHERE, scope="last"), "no scope 'last'"),
        (Barrier(*NOWHERE, scope="3-"), "names no layers at '3-'"),
        (Merge(*NOWHERE, stage="naive"), "no stage 'naive'"),
        (Merge(*NOWHERE, stage="refined"), "needs steps: give --refine"),
        (Merge(*NOWHERE, scope="last"), "no scope 'last'"),
        (Slice(*NOWHERE, stage="refined"), "needs steps: give --refine"),
        (Written(*NOWHERE, stage="refined"), "needs steps: give --refine"),
        (Written(*NOWHERE, scope="last"), "no scope 'last'"),
    ],
)
def test_words_that_there_are_not_are_found_before_any_model_is_opened(
    asked: Question, told: str
) -> None:
    with pytest.raises(Refused, match=told):
        asked.answer()


@pytest.mark.parametrize("kind", [Merge, Slice, Written])
def test_a_refinement_with_steps_goes_on_to_its_models(kind: type) -> None:
    with pytest.raises(Refused, match="no-such-folder"):
        kind(*NOWHERE, stage="refined", refine=3).answer()


def test_no_gauge_is_called_refined_without_steps(tmp_path) -> None:
    a, b = (open_checkpoint(tiny.build("llama_gqa", tmp_path / n, k)) for k, n in enumerate("ab"))
    with work(a, b, Barrier(a.name, b.name)) as both:
        with pytest.raises(Refused, match="needs steps"):
            gauges.gauges(both, ("refined",), silent)
        assert set(gauges.gauges(both, ("all",), silent)) == {"all"}
