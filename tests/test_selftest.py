"""The self-test tries every coordinate and blind direction of every family, and can fail."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import running
from engine.checkpoint import Checkpoint, open_checkpoint, save_checkpoint
from engine.errors import Refused
from engine.groups import LINEAR, SIGNED
from engine.inspection import card
from engine.selftest import self_test
from tests import tiny

Built = Callable[[str], Path]


@pytest.mark.parametrize("architecture", sorted(tiny.ARCHITECTURES))
def test_every_coordinate_and_direction_passes_alone(architecture: str, built: Built) -> None:
    model = open_checkpoint(built(architecture))
    found, sheet = self_test(model, device="cpu"), card(model)
    assert found.verdict == "exact"
    carrying = [name for name in model.headers if model.family.carried([name])]
    assert found.moved == pytest.approx(len(carrying) / len(model.headers))
    tried = {
        kind: [r.name for r in found.rows if r.kind == kind] for kind in ("coordinate", "blind")
    }
    free = [c.name for c in sheet.coordinates if c.log10 or c.dimension]
    assert tried["coordinate"] == free
    assert tried["blind"] == [b.name for b in sheet.blind]
    for row in found.rows:
        assert row.moved > 0, row.name
        assert row.error < (1e-3 if row.approximate else 1e-4), row.name


def test_the_same_seed_repeats_and_another_does_not(built: Built) -> None:
    model = open_checkpoint(built("llama_gqa"))
    first, again, other = (self_test(model, device="cpu", seed=seed) for seed in (0, 0, 1))
    assert first.rows == again.rows
    assert first.error == again.error != other.error


def wrong(model: Checkpoint, name: str, **changes: object) -> Checkpoint:
    """The checkpoint as if its family's table claimed something else."""
    family = model.family
    coordinate = replace(family.coordinates[name], **changes)
    copy = replace(model)
    vars(copy)["family"] = replace(family, coordinates={**family.coordinates, name: coordinate})
    return copy


@pytest.mark.parametrize(
    ("architecture", "name", "group"),
    [("gpt2", "res", SIGNED), ("gpt2", "ffn", SIGNED), ("llama_gqa", "rot", LINEAR)],
)
def test_a_table_that_claims_too_much_is_broken_in_that_row(
    architecture: str, name: str, group: object, built: Built
) -> None:
    found = self_test(wrong(open_checkpoint(built(architecture)), name, group=group), device="cpu")
    assert found.verdict == "broken"
    verdicts = {row.name: row.verdict for row in found.rows}
    assert verdicts.pop(name) == "broken"
    others = {row.name for row in found.rows if not row.approximate} - {name}
    assert {verdicts[other] for other in others} == {"exact"}


def test_a_model_that_says_nothing_is_refused(built: Built, tmp_path: Path) -> None:
    """All logits 0: every change would pass."""
    folder = tmp_path / "silent"
    tensors = {n: x * (n != "lm_head.weight") for n, x in tiny.tensors(built("llama_gqa")).items()}
    model = open_checkpoint(built("llama_gqa"))
    save_checkpoint(folder, tensors.items(), model)
    with pytest.raises(Refused, match=r"Every output of \S+ is the same number"):
        self_test(open_checkpoint(folder), device="cpu")


def test_a_bare_model_has_no_direction_through_a_head(built: Built, tmp_path: Path) -> None:
    """GPT2Model gives its last hidden state: a gain of the last norm that undid a scale shows."""
    model = open_checkpoint(built("gpt2"))
    folder = tmp_path / "bare"
    save_checkpoint(
        folder, ((n, model.read(n)) for n in model.headers), model,
        config={**model.config, "architectures": ["GPT2Model"]},
    )  # fmt: skip
    bare = open_checkpoint(folder)
    names = {b.name for b in card(bare).blind}
    assert {b.name for b in card(model).blind} - names == {"scale"}
    found = self_test(bare, device="cpu")
    assert found.verdict == "exact"
    assert {row.verdict for row in found.rows} == {"exact"}


def test_it_reads_2_windows_of_48_tokens(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    drawn = running.random_inputs

    def random_inputs(*args: object) -> object:
        found = drawn(*args)
        seen.append(tuple(found.shape))
        return found

    monkeypatch.setattr(running, "random_inputs", random_inputs)
    self_test(open_checkpoint(built("llama_gqa")), device="cpu")
    assert seen == [(2, 48)]
