"""Elements with a dial, and elements typed by hand."""

import math
from itertools import pairwise

import pytest
import torch

from engine import groups
from engine.elements import Element, Mixed, Ordered, Turned
from engine.errors import Refused
from engine.families._quarters import QUARTERS
from engine.lab.draws import CUT, GROUPS, MEAN, Dial, draw, in_words, ways
from engine.lab.typed import typed

SIZE, COPIES = 8, (2,)
EVERY = {
    **GROUPS,
    "signed": groups.SIGNED,
    "common": groups.COMMON_SIGN,
    "monomial": groups.MONOMIAL,
    "halves": groups.ROTARY_HALF,
    "neighbours": groups.ROTARY_NEIGHBOURS,
    "quarters": QUARTERS,
}
CASES = [
    (name, how)
    for name, group in EVERY.items()
    for how in ({"cut": ("cut",), "mean": ("mean",)}.get(name) or ways(group))
]
each = pytest.mark.parametrize(("name", "how"), CASES)


def drawn(name: str, how: str, severity: float, seed: int = 0) -> Element:
    generator = torch.Generator().manual_seed(seed)
    return draw(EVERY[name], SIZE, COPIES, Dial(how, severity), generator)


def matrix(element: Element) -> torch.Tensor:
    """The element on the identity: every copy as a matrix."""
    eye = torch.eye(SIZE, dtype=torch.float64).expand(*COPIES, SIZE, SIZE)
    return element.write(eye).mT


@each
def test_severity_0_is_the_identity(name: str, how: str) -> None:
    found = drawn(name, how, 0.0)
    assert torch.equal(matrix(found), torch.eye(SIZE).double().expand(*COPIES, SIZE, SIZE))
    assert in_words(found).startswith("nothing")


@each
def test_severity_1_moves_and_is_repeatable(name: str, how: str) -> None:
    found = matrix(drawn(name, how, 1.0))
    assert not torch.allclose(found, torch.eye(SIZE).double())
    assert torch.equal(found, matrix(drawn(name, how, 1.0)))


@each
def test_a_larger_severity_moves_no_less(name: str, how: str) -> None:
    """‖M(s) − I‖, on average over seeds: an order that takes in more coordinates moves more."""
    eye = torch.eye(SIZE).double()
    far = [
        sum(float((matrix(drawn(name, how, s, seed)) - eye).norm()) for seed in range(10))
        for s in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert all(a <= b + 1e-9 for a, b in pairwise(far))


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"cut", "mean"}))
@pytest.mark.parametrize("severity", [0.3, 0.7, 1.0])
def test_a_draw_is_invertible_and_in_its_group(name: str, severity: float) -> None:
    group = EVERY[name]
    found = drawn(name, ways(group)[0], severity)
    m = matrix(found)
    assert torch.allclose(matrix(found.inverse()) @ m, torch.eye(SIZE).double(), atol=1e-9)
    if name == "rotations":
        assert torch.allclose(m @ m.mT, torch.eye(SIZE).double(), atol=1e-9)
    if isinstance(found, Ordered):
        assert isinstance(group, groups.Monomial) or name == "quarters"
        free = getattr(group, "scales", False)
        assert free or found.exact


def test_a_random_order_moves_every_coordinate_that_takes_part() -> None:
    for seed in range(5):
        found = drawn("order", "random", 1.0, seed)
        assert isinstance(found, Ordered)
        assert not bool((found.permutation == torch.arange(SIZE)).any())


def test_the_first_take_part_first() -> None:
    dial = Dial(severity=0.25, first=(5, 2, 0, 1, 3, 4, 6, 7))
    found = draw(GROUPS["order"], SIZE, (), dial, torch.Generator().manual_seed(1))
    assert isinstance(found, Ordered)
    assert (found.permutation != torch.arange(SIZE)).nonzero().flatten().tolist() == [2, 5]


def test_an_angle_turns_all_frequencies_or_one() -> None:
    every, one = (drawn("halves", how, 0.5) for how in ("angle", "frequency"))
    assert isinstance(every, Turned) and isinstance(one, Turned)
    assert torch.allclose(every.z.angle(), torch.tensor(math.pi / 4).double())
    assert ((one.z.angle() - math.pi / 4).abs() < 1e-12).sum(-1).tolist() == [1, 1]
    assert torch.allclose(one.z.abs(), torch.ones(()).double())


def test_a_mean_is_of_two_coordinates_of_one_copy() -> None:
    found = matrix(drawn("mean", "mean", 1.0))
    assert torch.equal(found[1], torch.eye(SIZE).double())
    assert sorted(found[0].diagonal().tolist()) == [0.5, 0.5, *[1.0] * (SIZE - 2)]
    assert torch.allclose(found[0] @ found[0], found[0])


def test_a_cut_leaves_1_minus_s() -> None:
    found = drawn("cut", "cut", 0.75)
    assert isinstance(found, Ordered)
    assert sorted(found.scale.flatten().tolist())[:2] == [0.25, 1.0]


@pytest.mark.parametrize(
    ("text", "group", "expected"),
    [
        ("(0 1 2)", groups.PERMUTATION, [[0, 0, 1], [1, 0, 0], [0, 1, 0]]),
        ("(0 1) (1 2)", groups.PERMUTATION, [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        ("-2", groups.SIGNED, [[1, 0, 0], [0, 1, 0], [0, 0, -1]]),
        ("(0 1) -0", groups.SIGNED, [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
        ("-", groups.COMMON_SIGN, [[-1, 0, 0], [0, -1, 0], [0, 0, -1]]),
        ("1*-1.5", groups.MONOMIAL, [[1, 0, 0], [0, -1.5, 0], [0, 0, 1]]),
        ("1*0", CUT, [[1, 0, 0], [0, 0, 0], [0, 0, 1]]),
        ("0=2", MEAN, [[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]),
        ("(0,2)  2*3", groups.LINEAR, [[0, 0, 1], [0, 1, 0], [3, 0, 0]]),
        ("0~1@90", groups.ORTHOGONAL, [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
        ("", groups.PERMUTATION, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ],
)
def test_typed_elements(text: str, group: groups.Group, expected: list[list[float]]) -> None:
    found = typed(text, group, 3, (2,))
    assert found.batch == (2,)
    eye = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    assert torch.allclose(found.write(eye).mT, torch.tensor(expected).double(), atol=1e-12)


def test_typed_turns() -> None:
    found = typed("0@90 1*1.2 0@-30*2", groups.ROTARY_HALF, 4, ())
    assert isinstance(found, Turned)
    assert found.z.abs().tolist() == pytest.approx([2, 1.2])
    assert found.z.angle().rad2deg().tolist() == pytest.approx([60, 0])


def test_a_lower_severity_keeps_the_first_items() -> None:
    found = typed("-0 -1 -2 -3", groups.SIGNED, 4, (), severity=0.5)
    assert isinstance(found, Ordered)
    assert found.scale.tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize(
    ("text", "group", "message"),
    [
        ("hello", groups.PERMUTATION, "makes no sense at 'hello'"),
        ("(0 1", groups.PERMUTATION, "makes no sense at '(0 1'"),
        ("(1)", groups.PERMUTATION, "makes no sense"),
        ("1.5*2", groups.MONOMIAL, "makes no sense"),
        ("(0 4)", groups.PERMUTATION, "there is no 4, this coordinate counts 0 to 3"),
        ("2@90", groups.ROTARY_HALF, "there is no 2, this coordinate counts 0 to 1"),
        ("(0 0)", groups.PERMUTATION, "the same index stands there twice"),
        ("0~0@9", groups.LINEAR, "the same index stands there twice"),
        ("-1", groups.PERMUTATION, "the group here is S_n, which has no signs"),
        ("1*2", groups.SIGNED, "has no factors"),
        ("1*-2", groups.POSITIVE, "has no factors"),
        ("(0 1)", groups.SIGNS, "has no orders"),
        ("-1", groups.COMMON_SIGN, "has no signs"),
        ("1*0", groups.MONOMIAL, "a factor is a number other than 0"),
        ("1*0", groups.LINEAR, "a factor is a number other than 0"),
        ("1*2", groups.ORTHOGONAL, "has no factors"),
        ("0@30", groups.LINEAR, "has no turns of frequencies"),
        ("(0 1)", groups.ROTARY_HALF, "has no orders"),
        ("0=1", groups.LINEAR, "has no means"),
        ("(0 1)", MEAN, "write 0=1"),
        ("(0 1)", groups.Trivial("why not"), "cannot be typed"),
    ],
)
def test_nonsense_is_refused_in_one_line(text: str, group: groups.Group, message: str) -> None:
    with pytest.raises(Refused) as refused:
        typed(text, group, 4, ())
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_elements_in_words() -> None:
    said = in_words(typed("(0 2) -1 3*1.5", groups.MONOMIAL, 4, (2,)))
    assert said == "2 → 0; 0 → 2; sign of 1; 3 × 1.5 (the first of 2 copies)"
    assert in_words(typed("1@90", groups.ROTARY_HALF, 4, ())) == "frequency 1: 90° × 1"
    assert in_words(Mixed(torch.eye(2).double() * 2)) == "matrix 2 × 2, ‖M − I‖ = 1.41"
