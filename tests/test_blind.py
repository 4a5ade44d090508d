"""Blind directions: the weights move, what the model says does not; half a move shows."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import axes
from engine.blind import Blind, Move
from engine.families import FAMILIES
from engine.family import Family
from engine.slide import possible, slide
from tests import laws, tiny
from tests.laws import doubles, opened

Built = Callable[[str], Path]
UP_TO_EPS = 1e-4
"""Relative error of directions that hold but for the ε inside a norm."""
UNUSED = {
    ("bert_old", "cls.predictions.decoder.bias"),
    ("bert_untied", "cls.predictions.bias"),
}
"""Tensors that transformers keeps beside those that it reads."""
architectures = pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
families = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@cache
def directions(folder: Path) -> tuple[Blind, ...]:
    checkpoint = opened(folder)
    return possible(checkpoint.family, checkpoint.config, checkpoint.headers)


def slid(folder: Path, blind: Blind) -> dict[str, Tensor]:
    """The tensors that a random move along a blind direction changes, after it."""
    checkpoint, before = opened(folder), doubles(folder)
    generator = torch.Generator().manual_seed(4)
    read = slide(checkpoint.family, checkpoint.config, blind, before.__getitem__, generator, before)
    return {name: y for name, x in before.items() if not torch.equal(y := read(name), x)}


def halved(before: Tensor, after: Tensor, seen: Tensor) -> Tensor:
    """Half of the seen numbers that changed, drawn at random, changed back."""
    changed = ((after != before) & seen).flatten().nonzero().squeeze(-1)
    generator = torch.Generator().manual_seed(1)
    back = changed[torch.randperm(len(changed), generator=generator)[: (len(changed) + 1) // 2]]
    mixed = after.clone().flatten()
    mixed[back] = before.flatten()[back]
    return mixed.reshape(after.shape)


@cache
def seen(folder: Path, name: str) -> Tensor:
    """False for the numbers of a tensor that no output depends on: key biases without rotation.

    Those are blocks that a direction shifts by a δ with exactly their legs, and nothing else.
    """
    checkpoint = opened(folder)
    row, x = checkpoint.family.row(name), doubles(folder)[name]
    shifts = [
        set(axes.legs(axes.parse(blind.shift)))
        for blind in directions(folder)
        for move in blind.moves
        if len(blind.moves) == 1 and not move.times
        if move.name.format(l=row.layer) == row.name
    ]

    def change(legs: tuple[axes.Leg, ...], block: Tensor) -> Tensor:
        return torch.full_like(block, set(legs) not in shifts)

    return axes.rewrite(x, row.axes, checkpoint.family.sizes(checkpoint.config), change).bool()


@architectures
def test_a_blind_direction_leaves_what_the_model_says(architecture: str, built: Built) -> None:
    folder = built(architecture)
    before, errors, moved = doubles(folder), {}, {}
    for blind in directions(folder):
        after = slid(folder, blind)
        limit = UP_TO_EPS if blind.approximate else laws.tolerance(opened(folder).family)
        errors[blind.name] = laws.error(folder, {**before, **after}) / limit
        moved[blind.name] = max((tiny.distance(y, before[n]) for n, y in after.items()), default=0)
    assert errors
    assert {name: error for name, error in errors.items() if error >= 1} == {}
    assert {name: distance for name, distance in moved.items() if distance < 0.03} == {}


@architectures
def test_half_of_a_blind_move_shows(architecture: str, built: Built) -> None:
    """Tensor by tensor: changed back in half of its numbers, each one shows."""
    folder = built(architecture)
    before, errors = doubles(folder), {}
    for blind in directions(folder):
        after = slid(folder, blind)
        for name, y in after.items():
            mixed = halved(before[name], y, seen(folder, name))
            if not torch.equal(mixed, y) and (architecture, name) not in UNUSED:
                errors[blind.name, name] = laws.error(folder, {**before, **after, name: mixed})
    assert len(errors) > len(directions(folder))
    assert {key: error for key, error in errors.items() if error <= laws.VISIBLE} == {}


@pytest.mark.parametrize(("architecture", "name"), sorted(UNUSED))
def test_unused_tensors_may_be_anything(architecture: str, name: str, built: Built) -> None:
    folder = built(architecture)
    other = torch.ones_like(doubles(folder)[name])
    assert laws.error(folder, {**doubles(folder), name: other}) == 0


def test_unseen_numbers_are_key_biases(built: Built) -> None:
    """And every one of them may be anything."""
    for architecture, names in {
        "bert_masked": {f"bert.encoder.layer.{n}.attention.self.key.bias" for n in range(2)},
        "gpt2": {f"transformer.h.{n}.attn.c_attn.bias" for n in range(2)},
        "llama_biases": set(),
    }.items():
        folder = built(architecture)
        before = doubles(folder)
        masks = {name: seen(folder, name) for name in before}
        assert {name for name, mask in masks.items() if not mask.all()} == names
        after = {name: torch.where(masks[name], x, 7.0) for name, x in before.items()}
        assert laws.error(folder, after) < laws.tolerance(opened(folder).family)


@families
def test_every_blind_row_is_executed(family: Family, built: Built) -> None:
    found = {blind.name for a in laws.architectures(family) for blind in directions(built(a))}
    assert found == {blind.name for blind in family.blind}
    assert len(found) == len(family.blind)


@families
def test_blind_rows_name_tensors_of_the_table(family: Family, built: Built) -> None:
    named: set[str] = set()
    for architecture in laws.architectures(family):
        for blind in directions(built(architecture)):
            named |= {name.partition("?")[0] for name, _ in blind.carriers}
    assert named <= {key.partition("?")[0] for key in family.tensors}


def test_a_missing_tensor_forbids_a_move(built: Built) -> None:
    """A tied model has no head of its own; without output biases a value bias is seen."""

    def found(architecture: str) -> Mapping[str, Blind]:
        return {blind.name: blind for blind in directions(built(architecture))}

    assert {"logits", "fin"} <= found("llama_gqa").keys()
    assert {"logits", "fin"}.isdisjoint(found("llama_mqa_tied"))
    assert "value" in found("llama_biases")
    assert "value" not in found("qwen2")


def test_an_optional_tensor_follows_where_there_is_one(built: Built) -> None:
    assert Move("x?", 1, ("1/y", "z")).names == ("y", "z")
    for architecture in ("vit", "vit_masked"):
        folder = built(architecture)
        (blind,) = (blind for blind in directions(folder) if blind.name == "pos")
        assert ("vit.embeddings.mask_token" in slid(folder, blind)) == (architecture != "vit")


def test_moves_follow_the_file_in_spelling(built: Built) -> None:
    """The same δ in a file that leaves the prefix out, or has the old endings of names."""
    for architecture in ("bert_bare", "bert_old"):
        folder = built(architecture)
        names = {name for blind in directions(folder) for name in slid(folder, blind)}
        assert names <= set(opened(folder).headers)
        assert {blind.name for blind in directions(folder)} >= {"value", "ffn_in"}


def test_every_layer_is_moved_by_a_shift_of_its_own(built: Built) -> None:
    """Normal with 0.3 of the first tensor's root mean square; what undoes it has the same."""
    folder = built("llama_biases")
    (blind,) = (blind for blind in directions(folder) if blind.name == "value")
    before, after = doubles(folder), slid(folder, blind)
    units = []
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn.{{}}_proj.{{}}".format
        shift = after[name("v", "bias")] - before[name("v", "bias")]
        units.append(shift / before[name("v", "bias")].square().mean().sqrt())
        heads = shift.reshape(3, 1, 4).expand(3, 2, 4).flatten()  # two query heads a group
        taken = after[name("o", "bias")] - before[name("o", "bias")]
        assert torch.allclose(taken, -before[name("o", "weight")] @ heads)
    both = torch.stack(units)
    assert 0.2 < float(both.std()) < 0.4
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.8


def test_moves_repeat_by_seed(built: Built) -> None:
    folder = built("vit")
    for blind in directions(folder):
        first, second = slid(folder, blind), slid(folder, blind)
        assert all(torch.equal(x, second[name]) for name, x in first.items())
