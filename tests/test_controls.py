"""What controls ask, where they start, and the question that is made of them."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app import inputs, session
from app.charts.heads import Cell
from app.charts.layer_maps import Pair
from app.charts.matrices import Window
from app.controls import (
    alignment,
    barrier,
    cutting,
    gap,
    heads,
    lab,
    layers,
    matrix,
    model,
    neurons,
    reproductions,
    residual,
    text,
)
from app.controls.barrier import Line, Spot
from app.controls.matrix import Sides, View
from app.controls.model import Chosen
from engine.errors import Refused
from engine.lab.presets import offered
from engine.questions import (
    Align,
    AllNeurons,
    Barrier,
    Continue,
    Cut,
    Drop,
    Gap,
    Heads,
    Lab,
    Layers,
    Match,
    Merge,
    Neurons,
    Orders,
    Slice,
    Turn,
    Written,
)
from tests import fake_heads, fake_neurons, fakes
from tests.widgets import Page, page

__all__ = ["page"]

HALVES = [str(layer) for layer in range(6)]
USUAL = ["none", "res-unsigned", "res", "ffn", "heads", "all", "random"]


@pytest.fixture(autouse=True)
def on_cpu(page: Page) -> None:
    page.held[session.DEVICE] = "cpu"


def chosen(name: str, **card: Any) -> Chosen:
    return Chosen(f"demo:{name}", f"/{name}", replace(fakes.model_card(name), **card))


A, B = chosen("a"), chosen("b")


def clicked(key: str, **point: Any) -> dict[str, Any]:
    """What a chart holds after a click on a mark."""
    return {key: {"selection": {"clicked": [point]}}}


def test_heads_of_two_models_are_asked_for_by_layer_cost_steps_and_source(page: Page) -> None:
    assert heads.question(A, B) == Heads("/a", "/b", device="cpu")
    assert page.asked == {
        "Layer": (HALVES, "0"),
        "Cost": (["rotary", "published"], "rotary"),
        "Stage 2": (["full", "orthogonal", "none"], "full"),
        "From": (["weights", "activations"], "weights"),
    }
    assert page.about("Cost") == "By which cost heads are paired."
    assert page.about("Stage 2") == "What is solved inside the paired heads."
    assert "residual coordinates of B are brought into A's, before heads" in page.about("From")
    page.held |= {"layer": "4", "cost": "published", "stage2": "none", "using": "activations"}
    assert heads.question(A, B) == Heads(
        "/a", "/b", layer=4, cost="published", stage2="none", using="activations", device="cpu"
    )
    page.held |= {"layer": "0", "cost": "product"}
    learned = chosen("a", layers=1, positions="learned")
    assert heads.question(learned, B).cost == "auto"
    assert page.asked["Cost"] == (["product", "published"], "product")


@pytest.mark.parametrize(("module", "what"), [(heads, "heads"), (neurons, "neurons")])
def test_a_model_stands_against_the_other_first_then_against_itself(
    page: Page, module: Any, what: str
) -> None:
    assert not module.against()
    assert page.asked == {"A against": (["B", "itself"], "B")}
    assert f"which two {what} of one " in page.about("A against")
    page.held["against"] = "itself"
    assert module.against()


def test_a_pair_of_heads_is_looked_at_by_its_fields_or_by_a_click(page: Page) -> None:
    record = fake_heads.heads_report()
    other = int(record.order[0])
    assert heads.pick(record) == heads.Pick(Cell(0, other), "partner", "both", True, 0)
    assert page.asked["Head of A"] == (HALVES, "0")
    assert page.asked["Head of B"] == (["partner", *HALVES], "partner")
    assert page.asked["Columns"] == (["as stored", "recovered"], "recovered")
    page.held |= clicked("heads:costs:0:partner:0", a=2, b=int(record.order[2]))
    assert heads.pick(record).cell == Cell(2, int(record.order[2]))
    assert page.held["other"] == "partner"
    stranger = int(record.order[3])
    page.held |= clicked("heads:costs:2:partner:0", a=2, b=stranger)
    assert heads.pick(record).cell == Cell(2, stranger)
    assert (page.held["head"], page.held["other"]) == ("2", str(stranger))
    page.held |= clicked(f"heads:angle:2:{stranger}:0", head=5, frequency=7)
    found = heads.pick(record)
    assert (found.cell.a, found.frequency) == (5, 7)
    page.held |= {"order": "as stored"}
    assert not heads.pick(record).recovered


@pytest.mark.parametrize("half", [False, True])
def test_the_found_turn_is_set_in_half_degrees_and_within_the_slider(
    page: Page, half: bool
) -> None:
    found = fake_heads.turns(fake_heads.Shape(), half=half)
    angle, log = found.angle.copy(), found.log_modulus.copy()
    angle[1, 0], log[1, 0] = np.radians(33.3), np.log(7.0)
    found = replace(found, angle=angle, log_modulus=log)
    hand = heads.hand(found, 1)
    assert hand == heads.Hand(group=1, frequency=0, angle=0.0, modulus=1.0)
    assert page.asked == {
        "Frequency": ([str(n) for n in range(8)], "0"),
        "Angle by hand (degrees)": ((-180.0, 180.0, 0.5, "%g°"), 0.0),
        "Modulus by hand": ((0.2, 5.0, 0.01), 1.0),
    }
    assert page.widgets["Modulus by hand"].more["disabled"] is half
    button = page.buttons["Set to the found turn"]
    assert button["on_click"] is session.assign
    assert button["kwargs"] == {"turn": 33.5, "modulus": 5.0}
    page.held |= {"frequency": "3", "turn": -20.5, "modulus": 2.5}
    hand = heads.hand(found, 0)
    assert hand == heads.Hand(0, 3, -20.5, 1.0 if half else 2.5)
    asked = Heads("/a", "/b", layer=2, using="activations", device="cpu")
    assert heads.turn(asked, hand) == Turn(
        "/a", "/b", layer=2, group=0, frequency=3, angle=-20.5, modulus=hand.modulus,
        using="activations", device="cpu",
    )  # fmt: skip


def test_the_alignment_starts_with_sweeps_over_all_coordinates(page: Page) -> None:
    assert alignment.question(A, B) == Align("/a", "/b", sweeps=12, device="cpu")
    assert page.asked == {
        "From": (["weights", "activations"], "weights"),
        "Signs": (["on", "off"], "on"),
        "Sweeps at most": ((0, 100, 1), 12),
        "Only these coordinates": (str, ""),
        "Inside heads": (["full", "orthogonal", "none"], "full"),
        "Further starts, perturbed at random": ((0, 20, 1), 0),
        "Weight of activations beside weights": ((0.0, 0.99, 0.05), 0.0),
        "Neurons by": (["invariant", "published"], "invariant"),
        "Steps along the loss half way (0: none)": ((0, 1000, 1), 0),
    }
    only = page.widgets["Only these coordinates"].more
    assert only["placeholder"] == "res,ffn,heads,rot,val"
    assert only["help"].startswith("Words with commas between; empty means all.")
    assert page.about("From") == (
        "Where the residual coordinates are read from at first: the embedding, or activations."
    )
    assert "coordinates whose sign is − cannot be right" in page.about("Signs")
    assert page.about("Inside heads") == (
        "Full: angles, moduli and any matrix. Orthogonal: turns alone. None: orders alone."
    )
    assert "Invariant: what no sign or factor can change." in page.about("Neurons by")
    page.held |= {
        "using": "activations", "signs": "off", "only": "ffn, res", "stage2": "orthogonal",
        "restarts": 2, "mix": 0.25, "neurons": "published", "refine": 7, "sweeps": 3,
    }  # fmt: skip
    assert alignment.question(A, B) == Align(
        "/a", "/b", using="activations", signs=False, only=("res", "ffn"), device="cpu",
        stage2="orthogonal", sweeps=3, restarts=2, mix=0.25, neurons="published", refine=7,
    )  # fmt: skip
    page.held["sweeps"] = 0
    found = alignment.question(A, B)
    assert (found.sweeps, found.restarts, found.mix, found.neurons) == (0, 0, 0.0, "invariant")
    assert found.refine == 7
    assert "No sweeps: each coordinate is solved once, by no common objective." in page.said


@pytest.mark.parametrize("held", ["0.991", "-0.01", "nan"])
def test_a_weight_of_activations_out_of_its_range_is_refused(page: Page, held: str) -> None:
    page.link["mix"] = held
    said = f"mix is {held}: the weight of activations beside weights is from 0 to 0.99."
    with pytest.raises(Refused, match=f"^{re.escape(said)}$"):
        alignment.weight()
    assert page.held["mix"] == 0.0
    page.held["mix"] = 0.99
    assert alignment.weight() == 0.99


def test_coordinates_are_named_in_the_order_of_the_table(page: Page) -> None:
    card = fakes.model_card()
    assert alignment.offered(card) == ("res", "ffn", "heads", "rot", "val")
    assert alignment.only("", card) == alignment.only("val,rot,heads,ffn,res", card) == ()
    assert alignment.only("val, head,grp", card) == ("heads", "val")
    with pytest.raises(Refused, match=r"^Only grp: grp and head are solved together\. Say heads"):
        alignment.only("grp,res", card)
    with pytest.raises(Refused, match=r"^Only neurons: this model has no such .* res, ffn, heads"):
        alignment.only("neurons", card)
    assert alignment.work(Align("a", "b", sweeps=4, refine=9)) == (
        "Up to 4 sweeps through both models' weights from every start, 9 steps along the loss; "
        "then both models and their mean are run on a short text."
    )
    assert alignment.work(Align("a", "b")) == (
        "One pass through both models' weights; then both models and their mean are run on a "
        "short text."
    )


def test_the_barrier_is_asked_for_as_its_controls_stand(page: Page) -> None:
    line = Line(A, chosen("b", parameters=700_000))
    assert line.parameters == 700_000
    assert barrier.question(line) == Barrier("/a", "/b", device="cpu")
    asked = page.asked
    assert asked["Interpolate"] == (
        ["whole", "first-layer", "all-attention", "first-attention", "layers"], "whole",
    )  # fmt: skip
    assert asked["Stages"][0] == [
        "none", "orders", "res-unsigned", "res", "ffn", "heads", "orthogonal", "all", "random",
    ]  # fmt: skip
    assert asked["Stages"][1] == USUAL
    assert asked["Points of t, evenly spread"] == (["5", "9", "13", "25", "49"], "25")
    assert (asked["Midpoint only"][1], asked["More points where a curve bends"][1]) == (False, True)
    assert asked["From"] == (["paste", "upload", "data set of the hub"], "paste")
    assert asked["From (matched)"] == (["weights", "activations"], "weights")
    assert asked["Sweeps of the alignment"] == ((0, 20, 1), 0)
    assert asked["Steps along the loss half way"] == ((0, 500, 1), 0)
    assert asked["Tokens"] == ([256, 512, 1024, 2048, 4096, 8192], 2048)
    assert asked["Tokens of a window"] == ([16, 32, 64, 128, 256], 128)
    assert page.about("From (matched)").startswith("What is matched: weights, or what both models")
    assert page.about("Interpolate") == (
        "Only these tensors move along the line; the others stay A's."
    )
    page.held |= {
        "scope": "layers", "layers": " 1-2 ", "stages": ["all", "none"], "points": "9",
        "midpoint": True, "adaptive": False, "matched": "activations", "swept": 4, "refined": 6,
        "read": 512, "window": 16,
    }  # fmt: skip
    assert barrier.question(line) == Barrier(
        "/a", "/b", points=9, stages=("none", "all"), scope="1-2", midpoint=True, adaptive=False,
        using="activations", sweeps=4, refine=6, tokens=512, length=16, device="cpu",
    )  # fmt: skip
    page.held |= {"stages": []}
    assert barrier.question(line).stages == tuple(USUAL)
    page.held |= {"layers": "5"}
    assert barrier.question(line).scope == "5"
    page.held |= {"layers": "4-6"}
    with pytest.raises(Refused, match=r"^There is no layer 6: the last of 6 is 5\.$"):
        barrier.question(line)


@pytest.mark.parametrize(
    ("held", "found", "midpoint"),
    [
        (None, 0.5, 0.5), ("0.3", 0.25, 0.5), ("0.25", 0.25, 0.0), ("0.8", 0.75, 1.0),
        ("7", 1.0, 1.0), ("inf", 0.5, 0.5), ("none", 0.5, 0.5), ("-1", 0.0, 0.0),
    ],
)  # fmt: skip
def test_t_is_the_nearest_of_the_points(
    page: Page, held: str | None, found: float, midpoint: float
) -> None:
    page.link |= {} if held is None else {"t": held}
    assert barrier.at(Barrier("a", "b", points=5)) == found
    assert page.asked["t: how far along the line"] == (["0", "0.25", "0.5", "0.75", "1"], "0.5")
    page.held.clear()
    assert barrier.at(Barrier("a", "b", points=5, midpoint=True)) == midpoint
    assert page.asked["t: how far along the line"] == (["0", "0.5", "1"], "0.5")


def test_a_point_is_named_with_three_digits_at_most() -> None:
    assert [barrier.name(t) for t in (1 / 3, 0.0, 0.5, 1.0)] == ["0.333", "0", "0.5", "1"]


def test_what_other_questions_about_a_line_take_over(page: Page) -> None:
    asked = Barrier(
        "a", "b", points=9, scope="0-1", using="activations", sweeps=3, refine=5, seed=7,
        tokens=512, length=32, text="own", device="cpu", dtype="float64",
    )  # fmt: skip
    alike = {"using": "activations", "text": "own", "device": "cpu", "dtype": "float64"}
    line = alike | {"sweeps": 3, "seed": 7, "scope": "0-1"}
    amount = {"tokens": 512, "length": 32}
    spot = Spot(0.12345, "all")
    assert barrier.written(asked, spot, "Hi", quarters=False) == Written(
        "a", "b", at=(0.0, 0.1235, 1.0), prompt="Hi", stage="all", **line
    )
    assert barrier.written(asked, Spot(0.5, "refined"), "", quarters=True) == Written(
        "a", "b", at=(0.0, 0.25, 0.5, 0.75, 1.0), stage="refined", refine=5, **line
    )
    assert barrier.merge(asked, spot) == Merge("a", "b", t=0.1235, stage="all", **line, **amount)
    assert barrier.plane(asked, "refined") == Slice(
        "a", "b", stage="refined", refine=5, **line, **amount
    )
    assert barrier.orders(asked, 3) == Orders("a", "b", layer=3, **alike, **amount)
    assert barrier.ablation(asked) == replace(
        asked, stages=("none", "heads", "orthogonal", "all"), refine=0
    )
    assert barrier.merging(asked) == replace(
        asked, stages=("orders", "all"), refine=0, scrambled=True
    )


def test_the_last_stage_writes_and_random_ones_come_last(page: Page) -> None:
    assert barrier.stage(("none", "random", "heads", "all")) == "all"
    assert page.asked["Stage that writes"] == (["all", "heads", "none", "random"], "all")
    assert not barrier.several()
    assert barrier.what() == "loss"
    assert barrier.layer(6) == 0 and page.asked["Layer"] == (HALVES, "0")
    page.held["layer"] = "4"
    assert (barrier.layer(6), barrier.layer(1)) == (4, 0)
    assert barrier.head_orders(Line(A, B)) == (72, 72)  # 3!² · 2!
    one = chosen("a", heads=2, kv_heads=2)
    assert barrier.head_orders(Line(one, B)) == (2, 2)
    assert barrier.head_orders(Line(chosen("a", heads=30, kv_heads=30), B))[1] == 0


def test_maps_of_layers_start_with_replacing_beside_swapping(page: Page) -> None:
    assert layers.question(A) == Layers("/a", device="cpu")
    asked = page.asked
    assert asked["Positions"] == (["mean", "last"], "mean")
    assert asked["Tests"] == (
        ["replace", "swap", "average", "skip", "replace-healed", "swap-healed", "delete",
         "delete-healed"],
        list(Layers.tests),
    )  # fmt: skip
    assert asked["Largest |i − j| (0: all)"] == ((0, 5, 1), 0)
    assert asked["Layers that are tested, both ends included"] == ((0, 5), (0, 5))
    assert (asked["Tokens"][1], asked["Tokens of a window"][1]) == (512, 32)
    assert "all of them, or the last one only" in page.about("Positions")
    assert page.about("Tokens of a window") == "Intervals resample windows: they need 16 or more."
    page.held |= {"aggregate": "last", "tests": ["swap", "replace"], "reach": 2, "range": (1, 5),
                  "count": 256, "length": 64}  # fmt: skip
    assert layers.question(A) == Layers(
        "/a", tests=("replace", "swap"), layers="1-5", reach=2, aggregate="last", tokens=256,
        length=64, device="cpu",
    )  # fmt: skip
    page.held |= {"range": (1, 6), "reach": 9, "tests": []}
    found = layers.question(A)
    assert (found.layers, found.reach, found.tests) == ("", 5, Layers.tests)


def test_the_chosen_pair_lies_in_the_middle_until_a_cell_is_clicked(page: Page) -> None:
    tests = ("skip", "swap", "replace")
    assert layers.pick(6, tests) == layers.Pick(Pair(2, 3), "replace", "swap", "max")
    assert page.asked == {
        "Depth i": ((0, 5, 1), 2), "Layer j": ((0, 5, 1), 3),
        "Left map": (["replace", "swap", "skip"], "replace"),
        "Right map": (["replace", "swap", "skip"], "swap"),
        "Pair score": (["max", "mean", "geometric", "min"], "max"),
    }  # fmt: skip
    assert page.about("Pair score") == "How both directions become one number."
    page.held |= clicked("layers:right:2:3", i=4, j=1)
    page.held |= {"left": "skip", "score": "min"}
    assert layers.pick(6, tests) == layers.Pick(Pair(4, 1), "skip", "swap", "min")
    page.held |= {"left": "average", "right": "average"}
    found = layers.pick(4, ("replace", "swap", "skip"))
    assert (found.pair, found.left, found.right) == (Pair(3, 1), "replace", "swap")
    page.held.clear()
    assert layers.pick(1, ()) == layers.Pick(Pair(0, 0), "replace", "replace", "max")
    assert layers.Pick(Pair(1, 2), "a", "b", "max").key("left") == "layers:left:1:2"


@pytest.mark.parametrize(
    ("test", "pair"), [("replace", (4, 1)), ("replace-healed", (4, 1)), ("swap", (1, 4)),
                       ("skip", (1, 4))]
)  # fmt: skip
def test_only_replacing_writes_with_a_direction(test: str, pair: tuple[int, int]) -> None:
    asked = Layers("/a", device="cpu")
    pick = layers.Pick(Pair(4, 1), "replace", "swap", "max")
    assert layers.continuation(asked, pick, test, "Once") == Continue(
        "/a", test=test, i=pair[0], j=pair[1], prompt="Once", device="cpu"
    )


def test_maps_are_those_of_this_model_or_published_ones(page: Page) -> None:
    assert layers.source() == ""
    shown = page.asked["Maps of"][0]
    assert shown[0] == "this model" and "published qwen3-8b" in shown
    page.held["source"] = "published qwen3-8b"
    assert layers.source() == "qwen3-8b"


def test_the_cut_is_asked_for_as_its_controls_stand(page: Page) -> None:
    assert cutting.question(A) == Cut("/a", device="cpu")
    asked = page.asked
    ways = ["swap", "replace", "healed", "influence", "angular", "greedy"]
    assert asked["Ways to choose"] == (ways, ways)
    assert asked["Largest budget"] == ((0, 5, 1), 5)
    assert asked["Largest |i − j| of a pair (0: all)"] == ((0, 5, 1), 0)
    page.held |= {"by": ["greedy", "swap"], "largest": 2, "reach": 3, "count": 256, "length": 16}
    found = Cut("/a", budget=2, by=("swap", "greedy"), reach=3, tokens=256, length=16, device="cpu")
    assert cutting.question(A) == found
    page.held |= {"by": [], "largest": 0}
    assert (cutting.question(A).by, cutting.question(A).budget) == (tuple(ways), 1)
    assert cutting.drop(replace(found, text="own", dtype="float64"), (1, 2)) == Drop(
        "/a", (1, 2), tokens=256, length=16, text="own", device="cpu", dtype="float64"
    )
    page.held.clear()
    cutting.question(chosen("a", layers=20))
    assert page.asked["Largest budget"] == ((0, 19, 1), 5)


def test_the_budget_starts_at_one_layer_and_gives_way_to_the_largest(page: Page) -> None:
    assert cutting.budget(4) == 1
    assert page.asked["Layers left out, n"] == ((0, 4, 1), 1)
    page.held["n"] = 5
    assert cutting.budget(4) == page.held["n"] == 4
    page.held["n"] = 0
    assert cutting.budget(4) == 0
    assert cutting.budget(0) == 0


def test_own_layers_are_typed_or_clicked(page: Page) -> None:
    assert cutting.written((11, 9, 5, 7, 10)) == "5,7,9-11"
    assert cutting.written((0, 1)) == "0-1" and cutting.written(()) == ""
    assert cutting.mine("base", 6) == ((), "")
    page.held |= {"mine": "3-4,0"} | clicked("cutting:strip:3-4,0", layer=1)
    assert cutting.mine("base", 6) == ((0, 1, 3, 4), "")
    assert page.held["mine"] == "0-1,3-4"
    page.held |= clicked("cutting:strip:0-1,3-4", layer=3)
    assert cutting.mine("base", 6) == ((0, 1, 4), "")
    page.held["mine"] = "6"
    cut, said = cutting.mine("base", 6)
    assert cut == () and "6" in said
    assert page.about("Mine: layers to leave out") == (
        "Numbers from 0; 9-11 means 9, 10 and 11. Or click the strip."
    )


def test_a_gap_is_asked_for_over_a_series_or_chosen_models(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap, "demo_series", lambda: {"base": ("x", "y"), "seeds": ("z",)})
    monkeypatch.setattr(inputs, "choices", lambda: ["one", "two"])
    assert gap.models() == ("x", "y")
    assert page.asked["Series"] == (["base", "seeds", "chosen"], "base")
    assert "Saved steps of one training" in page.about("Series")
    page.held |= {"series": "chosen", "models": ["two", "one"]}
    assert gap.models() == ("two", "one")
    assert page.asked["Models, in order"] == (["one", "two"], [])
    assert gap.scale() == "log ratio"
    assert gap.beside(["p", "q"]) == "p"
    assert gap.amount() == (512, 32)
    assert gap.question(("x", "y"), 256, 16) == Gap(("x", "y"), tokens=256, length=16, device="cpu")


def test_the_window_of_a_matrix_has_as_many_columns_as_the_matrix(page: Page) -> None:
    sides = Sides(30, 50, "neuron", (session.UP, session.ACROSS))
    assert sides.whole == Window((0, 30), (0, 50))
    assert matrix.view(sides) == View(True, True, Window((0, 30), (0, 50)))
    assert page.asked == {
        "Matrix": (["signed", "absolute"], "signed"),
        "Columns": (["as stored", "recovered"], "recovered"),
        "Neurons of A": ((0, 29), (0, 29)),
        "Columns (across)": ((0, 49), (0, 49)),
    }
    assert "Whole matrix" not in page.buttons
    page.held |= {"up": (3, 9), "across": (10, 19), "matrix": "absolute", "order": "as stored"}
    seen = Window((3, 10), (10, 20))
    assert matrix.view(sides) == View(False, False, seen)
    box = {"selection": {"box": [{"x": [12.2, 15.8], "y": [5.0, 8.9]}]}}
    page.held[matrix.chart_key(seen)] = box
    assert matrix.view(sides).window == Window((5, 10), (12, 17))
    assert (page.held["up"], page.held["across"]) == ((5, 9), (12, 16))
    back = page.buttons["Whole matrix"]
    back["on_click"](*back["args"])
    assert (page.held["up"], page.held["across"]) == ((0, 29), (0, 49))
    page.held["matrix"] = "absolute"
    assert matrix.view(sides, ("signed",)).signed


def test_a_page_of_one_model_starts_with_a(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.letter() == "A"
    assert page.asked["Model"] == (["A", "B"], "A")
    page.held["of"] = "B"
    assert model.letter() == "B"
    page.held["of"] = None
    assert model.letter() == "A"
    cards = {"/demo:x": A.card, "/demo:y": B.card}
    monkeypatch.setattr(inputs, "pair", lambda: ("demo:x", "demo:y"))
    monkeypatch.setattr(inputs, "open_slow", lambda spec, letter: False)
    monkeypatch.setattr(inputs, "located", "/{}".format)
    monkeypatch.setattr(inputs, "card", cards.__getitem__)
    assert model.both() == (
        Chosen("demo:x", "/demo:x", A.card), Chosen("demo:y", "/demo:y", B.card)
    )  # fmt: skip


def test_neurons_are_asked_for_by_layer_expert_and_source(page: Page) -> None:
    assert neurons.question(A, B) == Neurons("/a", "/b", layer=0, device="cpu")
    assert page.asked == {
        "Layer": (HALVES, "0"),
        "From": (["weights", "activations"], "weights"),
        "Compare with": (["planted", "identity", "none"], "planted"),
    }
    assert "by their weights, or by how they fire together" in page.about("From")
    assert "the gauge that was planted in B" in page.about("Compare with")
    page.held |= {"layer": "3", "using": "activations", "truth": "identity", "expert": "2"}
    many = chosen("a", experts=3)
    asked = Neurons("/a", "/b", layer=3, expert="2", using="activations", truth="identity",
                    device="cpu")  # fmt: skip
    assert neurons.question(many, B) == asked
    assert page.asked["Expert of A"] == (["0", "1", "2"], "0")
    assert neurons.question(many, many).truth == "planted"
    assert neurons.all_layers(asked) == AllNeurons(
        "/a", "/b", using="weights", truth="identity", device="cpu"
    )
    shared = replace(asked, expert="shared")
    assert (neurons.all_layers(shared).expert, neurons.all_layers(shared).using) == (
        "shared", "weights",
    )  # fmt: skip
    assert neurons.all_layers(replace(asked, expert="")).using == "activations"
    ffn = next(row for row in A.card.coordinates if row.name == "ffn")
    both = chosen("a", experts=2, coordinates=(*A.card.coordinates, replace(ffn, name="sffn")))
    page.held["expert"] = "shared"
    assert neurons.question(both, B).expert == "shared"
    assert page.asked["Expert of A"] == (["0", "1", "shared"], "0")


def test_a_neuron_is_looked_at_by_its_number_or_by_a_click(page: Page) -> None:
    record = fake_neurons.neuron_match()
    size = len(record.rows)
    assert neurons.pick(record) == neurons.Pick(0, 0, other=False)
    assert page.asked == {
        "Neuron of A": ((0, size - 1, 1), 0), "Beside it": (["partner", "next best"], "partner"),
    }  # fmt: skip
    page.held |= {"neurons:pairs:0": {"selection": {"points": [{"x": 4, "y": 7}]}}}
    page.held |= {"beside-it": "next best"}
    assert neurons.pick(record) == neurons.Pick(7, 7, other=True)
    page.held |= {"neurons:scales:7": {"selection": {"points": [{"x": 4, "y": 9}]}}}
    assert neurons.pick(record).neuron == 4
    del page.held["neurons:pairs:0"]
    page.held["neuron"] = size
    assert neurons.pick(record).neuron == 0
    page.held["neuron"] = size - 1
    assert neurons.pick(record).row == size - 1
    some = replace(record, rows=np.array([2, 5, 9]))
    page.held["neuron"] = 5
    assert neurons.pick(some) == neurons.Pick(1, 5, other=True)
    page.held["neuron"] = 6
    assert neurons.pick(some) == neurons.Pick(2, 9, other=True)
    page.held.clear()
    alike = fake_neurons.itself()
    second = alike.second_score.copy()
    second[11] = 0.99
    assert neurons.pick(replace(alike, second_score=second)) == neurons.Pick(11, 11, other=True)


def test_published_results_start_with_the_scope_of_their_ablation(page: Page) -> None:
    assert (reproductions.scope(), reproductions.using()) == ("first-layer", "weights")
    assert page.asked == {
        "Scope": (["first-layer", "first-attention", "all-attention", "whole"], "first-layer"),
        "Layers matched by": (["weights", "activations"], "weights"),
    }
    about = page.about("Layers matched by")
    assert about.startswith("Weights: as published. Activations: heads by what they look at")
    assert "the models of a pair do not share" in page.about("Scope")


def test_a_match_by_weights_reads_no_tokens(page: Page) -> None:
    assert residual.match("/a", "/b") == Match("/a", "/b", device="cpu")
    assert page.asked == {
        "From": (["activations", "weights"], "activations"),
        "Tokens": ([2048, 8192, 32768], 8192),
        "Compare with": (["planted", "identity", "none"], "planted"),
    }
    tokens = page.widgets["Tokens"].more
    assert tokens["disabled"] is False
    assert [tokens["format_func"](n) for n in (2048, 8192, 32768)] == ["2k", "8k", "32k"]
    page.held |= {"tokens": 2048, "truth": "none"}
    asked = residual.match("/a", "/b")
    assert asked == Match("/a", "/b", tokens=2048, truth="none", device="cpu")
    assert residual.work(asked) == "Runs both models on 2,048 tokens."
    page.held["method"] = "weights"
    asked = residual.match("/a", "/b")
    assert asked == Match("/a", "/b", using="weights", tokens=8192, truth="none", device="cpu")
    assert residual.work(asked) == "Reads the weights; runs no model."
    assert page.widgets["Tokens"].more["disabled"] is True


def test_a_depth_is_chosen_by_name_all_of_them_at_first(page: Page) -> None:
    record = fakes.residual_match()
    names = list(record.depths)
    assert residual.depth(record) == len(names) - 1
    assert page.asked["Depth"] == (names, names[-1])
    page.held["depth"] = names[1]
    assert residual.depth(record) == 1
    assert residual.coordinate(record) == 0
    assert page.asked["Coordinate of A"] == ((0, 95, 1), 0)


def test_the_experiment_of_the_lab_starts_as_the_engine_does(page: Page) -> None:
    preset = next(row for row in offered(A.card) if row.key == "ffn-order")
    page.held["preset"] = preset.title
    assert lab.preset(A.card) == preset
    assert lab.question(A, preset) == Lab("/a", preset="ffn-order", device="cpu")
    asked = page.asked
    assert asked["Layer"] == (["all", *HALVES], "0")
    assert asked["Severity"] == ((0.0, 1.0, 0.05), 1.0)
    assert asked["Draw"] == (["random", "transposition"], "random")
    assert asked["Seed"] == ((0, 2**31, 1), 0)
    assert asked["Or type an element"] == (str, "")
    assert "Angle (degrees)" not in asked
    assert page.about("Severity") == "0 changes nothing, 1 is the whole draw."
    assert page.about("Or type an element").startswith("Replaces the draw, on every copy")
    assert page.buttons["New draw"]["kwargs"] == {"seed": 1}
    page.held |= {"layer": "all", "severity": 0.5, "draw": "transposition", "seed": 8}
    assert lab.question(A, preset) == Lab(
        "/a", preset="ffn-order", layer=-1, severity=0.5, draw="transposition", seed=8,
        device="cpu",
    )  # fmt: skip
    assert page.buttons["New draw"]["kwargs"] == {"seed": 9}
    page.held |= {"layer": "2", "element": " (0 3) ", "text": "calibration"}
    found = lab.question(A, preset)
    assert (found.layer, found.element, found.draw) == (2, "(0 3)", "")
    assert found.text == str(lab.TEXTS / "calibration.txt")


@pytest.mark.parametrize(
    ("ways", "items"),
    [
        (("random", "transposition"), ["`(0 3 5)`"]),
        (("random", "sign", "factor"), ["`-7`", "`2*1.5`"]),
        (("matrix", "angle"), ["`(0 3 5)`", "`-7`", "`2*1.5`", "`0~1@30`"]),
        (("random", "angle", "frequency"), ["`2*1.5`", "`0@90`"]),
        (("mean",), ["`0=1`"]),
        (("cut",), ["`2*1.5`"]),
        (("rotation",), ["`(0 3 5)`", "`-7`", "`0~1@30`"]),
    ],
)
def test_what_may_be_typed_follows_the_draws(ways: tuple[str, ...], items: list[str]) -> None:
    line = lab.grammar(ways)
    found = line.removeprefix("To type: ").split(". Several act")[0].split(" · ")
    assert [item.split(":")[0] for item in found] == items
    assert line.endswith(". Several act from left to right and replace the draw.")
    assert lab.grammar(("random",)) == ""


def test_a_text_is_the_programs_own_until_one_is_chosen(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert text.file("default") == "default"
    assert text.amount("/a", "default", 512, 32) == (512, 32)
    monkeypatch.setattr(text.texts, "names", dict)
    monkeypatch.setattr(text.outputs, "answered", lambda *_, **__: 500)
    assert text.amount("/a", "own", 2048, 128) == (384, 128)
    assert page.said == ["The text has 500 tokens: 384 are read, in 3 windows."]
    monkeypatch.setattr(text.outputs, "answered", lambda *_, **__: None)
    assert text.amount("/a", "own", 2048, 128) is None
