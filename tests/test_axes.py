"""Laws of the grammar: parsing undoes printing, rewriting by the identity changes nothing."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.axes import (
    Axis,
    Leg,
    Mark,
    Pattern,
    extent,
    legs,
    parse,
    pieces,
    rewrite,
    shape,
    with_offset,
)
from engine.families import FAMILIES

SIZES = {"a": 2, "b": 3, "c": 1, "grp": 2, "head": 3, "rot": 4, "qk": 5, "val": 6, "res": 7}

LEGS = st.builds(Leg, st.sampled_from(["a", "b", "c", "rot"]), st.sampled_from(Mark))


def _blocks(children: st.SearchStrategy) -> st.SearchStrategy:
    block = st.lists(children, min_size=1, max_size=2).map(tuple)
    return st.lists(block, min_size=1, max_size=2).map(lambda found: Axis(tuple(found)))


PATTERNS = st.lists(st.recursive(LEGS, _blocks, max_leaves=4), min_size=1, max_size=2).map(tuple)


def text(nodes: Pattern) -> str:
    return " ".join(map(str, nodes))


def filled(nodes: Pattern) -> Tensor:
    """A tensor of that shape with all values different."""
    size = shape(nodes, SIZES)
    return torch.arange(math.prod(size), dtype=torch.float64).reshape(size)


@given(PATTERNS)
def test_parse_reads_what_str_writes(nodes: Pattern) -> None:
    assert parse(text(nodes)) == nodes


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_table_survives_a_round_trip(family) -> None:
    for row in family.tensors.values():
        nodes, offset = with_offset(row)
        assert text(nodes) + (f" - {offset:g}" if offset else "") == row


def test_marks_and_nesting() -> None:
    assert parse("x y* |z|") == (
        Leg("x", Mark.WRITE),
        Leg("y", Mark.READ),
        Leg("z", Mark.RELABEL),
    )
    (axis,) = parse("(a ((b + c*) + a))")
    assert axis == Axis(
        (
            (
                Leg("a", Mark.WRITE),
                Axis(
                    (
                        (Axis(((Leg("b", Mark.WRITE),), (Leg("c", Mark.READ),))),),
                        (Leg("a", Mark.WRITE),),
                    )
                ),
            ),
        )
    )


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a)", "pattern 'a)': unexpected ')'"),
        ("a + b", "pattern 'a + b': unexpected '+'"),
        ("a ** b", "pattern 'a ** b': cannot read '** b'"),
        ("|a*|", "pattern '|a*|': cannot read '|a*|'"),
        ("a-b", "pattern 'a-b': cannot read '-b'"),
        ("(a", "pattern '(a': empty or unclosed bracket at 'end'"),
        ("(a +) b", "pattern '(a +) b': empty or unclosed bracket at ')'"),
        ("()", "pattern '()': empty or unclosed bracket at ')'"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_shown_with_the_place(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse(pattern)


def test_shapes_multiply_in_products_and_add_in_sums() -> None:
    assert shape(parse("(grp head rot) res*"), SIZES) == (24, 7)
    assert shape(parse("res* ((grp qk) + (grp qk*) + (grp val))"), SIZES) == (7, 32)
    assert shape(parse("(grp ((rot + qk) + (rot* + qk*) + val)) res*"), SIZES) == (48, 7)
    assert extent(parse("((a + b) c)")[0], SIZES) == 5


@given(PATTERNS)
def test_the_identity_change_returns_the_tensor(nodes: Pattern) -> None:
    x = filled(nodes)
    assert torch.equal(rewrite(x, nodes, SIZES, lambda _, block: block), x)


@given(PATTERNS)
def test_pieces_are_a_partition_with_one_dimension_a_leg(nodes: Pattern) -> None:
    x = filled(nodes)
    found = list(pieces(x, nodes, SIZES))
    values = torch.cat([block.flatten() for _, block in found]).sort().values
    assert torch.equal(values, x.flatten())
    for carried, block in found:
        assert tuple(block.shape) == tuple(SIZES[leg.name] for leg in carried)
        assert set(carried) <= set(legs(nodes))


@given(PATTERNS)
def test_rewrite_meets_the_pieces_in_order(nodes: Pattern) -> None:
    x = filled(nodes)
    met: list[tuple[tuple[Leg, ...], Tensor]] = []

    def double(carried: tuple[Leg, ...], block: Tensor) -> Tensor:
        met.append((carried, block))
        return 2 * block

    assert torch.equal(rewrite(x, nodes, SIZES, double), 2 * x)
    expected = list(pieces(x, nodes, SIZES))
    assert [carried for carried, _ in met] == [carried for carried, _ in expected]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(met, expected, strict=True))


def test_pythia_heads_are_split_head_by_head() -> None:
    """Each head holds its own [q|k|v], each q and k its rotary and its other channels."""
    nodes = parse("(grp ((rot + qk) + (rot* + qk*) + val)) res*")
    x = filled(nodes)
    found = {tuple(map(str, carried)): block for carried, block in pieces(x, nodes, SIZES)}
    bounds = {"rot": (0, 4), "qk": (4, 9), "rot*": (9, 13), "qk*": (13, 18), "val": (18, 24)}
    assert list(found) == [("grp", word, "res*") for word in bounds]
    for word, (start, stop) in bounds.items():
        for head in range(2):
            expected = x[head * 24 + start : head * 24 + stop]
            assert torch.equal(found["grp", word, "res*"][head], expected)


def test_phi_blocks_are_contiguous() -> None:
    nodes = parse("((grp head rot) + (grp rot*) + (grp val)) res*")
    x = filled(nodes)
    q, k, v = (block for _, block in pieces(x, nodes, SIZES))
    assert torch.equal(q[1, 2], x[(1 * 3 + 2) * 4 : (1 * 3 + 2) * 4 + 4])
    assert torch.equal(k[1], x[24 + 4 : 24 + 8])
    assert torch.equal(v[1], x[32 + 6 : 32 + 12])


def test_gpt2_blocks_are_columns() -> None:
    nodes = parse("res* ((grp qk) + (grp qk*) + (grp val))")
    x = filled(nodes)
    _, (carried, k), _ = pieces(x, nodes, SIZES)
    assert carried == (Leg("res", Mark.READ), Leg("grp", Mark.WRITE), Leg("qk", Mark.READ))
    assert torch.equal(k[:, 1], x[:, 10 + 5 : 10 + 10])


def test_a_change_reaches_only_its_block() -> None:
    nodes = parse("(grp ((rot + qk) + (rot* + qk*) + val)) res*")
    x = filled(nodes)

    def change(carried: tuple[Leg, ...], block: Tensor) -> Tensor:
        return -block if Leg("qk", Mark.READ) in carried else block

    expected = x.clone()
    expected[13:18] *= -1
    expected[24 + 13 : 24 + 18] *= -1
    assert torch.equal(rewrite(x, nodes, SIZES, change), expected)
