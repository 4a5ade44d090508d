"""Alignments while they run: what they hand over, how their steps add up, what they refuse."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.charts import shares
from engine.alignment.one_pass import apart, took
from engine.alignment.solving import REFINED, moved, require_sound
from engine.alignment.watching import Watch
from engine.checkpoint import open_checkpoint
from engine.errors import Cancelled, Refused
from engine.questions import Align
from engine.records import AlignmentProgress, AlignmentReport, LayerStage, Sweep
from engine.scramble import scramble
from engine.symmetry import sample
from tests import tiny

PAIR = ("demo:base", "demo:seed-1")
Told = list[tuple[float, AlignmentProgress]]


@pytest.fixture(scope="module")
def ran(
    built: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Told, AlignmentReport]:
    """Sweeps and a short refinement between two draws: what was handed over, and the answer."""
    found: Told = []

    def told(share: float, step: str, partial: Any = None, /) -> None:
        if partial is not None:
            found.append((share, partial))

    folder = tmp_path_factory.mktemp("ran")
    a, b = str(built("llama_gqa")), str(tiny.build("llama_gqa", folder / "b", seed=9))
    asked = Align(a, b, sweeps=1, refine=3, text=str(ids_in(folder)), tokens=256)
    return found, asked.answer(told)


def ids_in(folder: Path) -> Path:
    """A text of few token ids."""
    path = folder / "ids.json"
    draw = np.random.default_rng(0).integers(1, 64, (16, 32))
    path.write_text(json.dumps(draw.tolist()))
    return path


def test_what_is_handed_over_grows_up_to_the_answer(ran: tuple[Told, AlignmentReport]) -> None:
    told, report = ran
    parts = [record.parts for _, record in told]
    assert parts == sorted(set(parts))
    last = told[-1][1]
    assert last.sweeps == report.sweeps
    assert last.steps == tuple(step for step in report.steps if step.coordinates != REFINED)
    assert list(map(len, last.losses)) == [3, 3]
    assert last.losses[0][-1] < last.losses[0][0]
    first = next(record for _, record in told if record.sweeps)
    assert first.sweeps == report.sweeps[:1] and not first.steps  # before the second start ends
    assert {(record.a, record.b) for _, record in told} == {(report.a, report.b)}


def test_the_steps_of_sweeps_and_a_refinement_are_the_whole_change(
    ran: tuple[Told, AlignmentReport],
) -> None:
    report = ran[1]
    assert report.norms is not None
    own = np.asarray(report.norms, np.float64) ** 2
    before, after = (float((own * x.astype(np.float64) ** 2).sum())
                     for x in (report.before, report.after))  # fmt: skip
    taken = sum(step.taken or 0.0 for step in report.steps)
    assert taken == pytest.approx(before - after, rel=1e-4, abs=1e-4 * before)
    assert {s.coordinates for s in report.steps} == {
        "res",
        "ffn",
        "grp head",
        "rot",
        "val",
        REFINED,
    }
    sums = shares.shares(report).groupby("layer")["share"].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-3)
    without = replace(report, steps=tuple(s for s in report.steps if s.coordinates != REFINED))
    assert np.abs(shares.shares(without).groupby("layer")["share"].sum() - 1).max() > 2e-3


@pytest.mark.parametrize("architecture", ["gpt2", "llama_gqa", "mixtral"])
def test_the_steps_of_one_pass_are_the_whole_change(
    architecture: str, built: Callable[[str], Path], tmp_path: Path
) -> None:
    scramble(open_checkpoint(built(architecture)), tmp_path / "b", seed=3)
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([list(range(1, 17))] * 32))
    report = Align(
        str(built(architecture)), str(tmp_path / "b"), text=str(ids), tokens=256
    ).answer()
    found = shares.whole(report)
    assert sum(found.values()) == pytest.approx(1, abs=1e-5)
    assert found[shares.LEFT] == pytest.approx(0, abs=1e-5)
    assert {"residual", "FFN neurons"} <= set(found)


def test_a_step_is_the_fall_of_the_squared_distance() -> None:
    base = open_checkpoint("demo:base")
    a = {n: base.read(n) for n in base.headers if base.family.row(n).layer == 0}
    far, near = ({n: x + s * torch.ones_like(x) for n, x in a.items()} for s in (0.2, 0.1))
    step = took(base.family, 0, ("ffn",), a, far, near, margin=0.3)
    gap, own = apart(base.family, a, far, ("ffn",))
    assert step.taken == pytest.approx(0.75 * gap, rel=1e-4)
    assert (step.before, step.after) == pytest.approx(((gap / own) ** 0.5, (gap / own / 4) ** 0.5))
    assert took(base.family, 0, ("ffn",), a, near, far).taken == pytest.approx(-(step.taken or 0))


def test_going_on_from_a_gauge_to_itself_is_no_step(built: Callable[[str], Path]) -> None:
    a = open_checkpoint(built("llama_gqa"))
    g = sample(a.family, a.config, torch.Generator().manual_seed(0))
    h = sample(a.family, a.config, torch.Generator().manual_seed(1))
    assert {step.taken for step in moved(a, a, g, g)} == {0.0}
    there, back = (sum(s.taken or 0.0 for s in moved(a, a, *p)) for p in ((g, h), (h, g)))
    assert there == pytest.approx(-back) and abs(there) > 0.01


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"mix": 1.0, "sweeps": 1}, "--mix 1.0: give 0 to 0.99"),
        ({"mix": -0.1}, "--mix -0.1: give 0"),
        ({"mix": 0.5}, "--mix 0.5 needs sweeps, and there are none: give --sweeps"),
        ({"restarts": 3}, "--restarts 3 needs sweeps"),
        ({"neurons": "published"}, "--neurons published needs sweeps"),
        ({"sweeps": -1}, "--sweeps -1: give 0 to 10,000"),
        ({"restarts": -2}, "--restarts -2: give 0 to 1,000"),
        ({"refine": -3}, "--refine -3: give 0 to 10,000"),
        ({"only": ("grp", "res")}, "grp and head are solved together, and head was not named"),
        ({"only": ("neurons",)}, "--only names neurons; the Llama family has"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_work(options: dict, line: str) -> None:
    a, b = (open_checkpoint(name) for name in PAIR)
    with pytest.raises(Refused, match=line):
        require_sound(a, b, Align(*PAIR, **options))
    require_sound(a, b, Align(*PAIR, only=("heads",), mix=0.99, sweeps=1))
    require_sound(a, b, Align(*PAIR, neurons="published", restarts=2, sweeps=1))


def test_only_what_is_new_is_handed_over() -> None:
    watch, found = Watch("a", "b"), []
    progress = watch.reporting(lambda share, step, partial=None: found.append(partial))
    progress(0.1, "nothing yet")
    watch.steps.append(LayerStage(0, "ffn", 1.0, 0.5, None))
    progress(0.2, "one")
    progress(0.3, "no more")
    watch.sweeps.append(Sweep("identity", 0, 2.0, 1.0, 1.0, 0.1))
    progress(0.4, "two", "another record")
    progress(0.5, "another's", "another record")
    assert [getattr(one, "parts", one) for one in found] == [None, 1, None, 2, "another record"]


def test_an_aligned_checkpoint_is_written_whole_and_opens_in_transformers(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    a = built("llama_gqa")
    scramble(open_checkpoint(a), tmp_path / "b", seed=2)
    asked = Align(str(a), str(tmp_path / "b"))
    report = asked.write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors", "report.json",
        "symmetry.safetensors",
    ]  # fmt: skip
    assert json.loads((tmp_path / "out" / "report.json").read_text())["flipped"] == report.flipped
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    theirs = AutoModelForCausalLM.from_pretrained(a).state_dict()
    assert max(tiny.distance(loaded[name], theirs[name]) for name in theirs) < 1e-4
    with pytest.raises(Refused, match="exists and is not empty"):
        asked.write(tmp_path / "out")


def test_a_cancelled_alignment_leaves_nothing(built: Callable[[str], Path], tmp_path: Path) -> None:
    def stop(share: float, step: str, partial: Any = None, /) -> None:
        if partial is not None:
            raise Cancelled

    a = str(built("llama_gqa"))
    with pytest.raises(Cancelled):
        Align(a, a, sweeps=2).write(tmp_path / "out", stop)
    assert not list(tmp_path.iterdir())
