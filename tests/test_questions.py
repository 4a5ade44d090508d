"""What every question asks where nothing else is said, and what every option of a command is."""

import inspect
import shlex
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from engine import questions
from engine.cli import COMMANDS, NAMES, main
from engine.commands import experts, layers, line, matching, models, pairs, pruning
from engine.questions import (
    Align,
    AllNeurons,
    Barrier,
    Check,
    Continue,
    Cut,
    Drop,
    Experts,
    Forecast,
    Gap,
    Heads,
    Inspect,
    Lab,
    Layers,
    Match,
    Merge,
    Neurons,
    Orders,
    Question,
    Related,
    Slice,
    Turn,
    Written,
)
from engine.questions.base import BOUNDS

TEXT = "text='default' device='auto' dtype='float32'"
ON = f"tokens=2048 length=128 {TEXT}"
STAGED = "stage='all' scope='whole' using='weights' sweeps=0 refine=0"
FIELDS: dict[type[Question], tuple[str, str]] = {
    Inspect: ("inspect", "model"),
    Check: ("inspect", "model device='auto' dtype='float32' seed=0"),
    Lab: (
        "lab",
        ("model preset='ffn-order' coordinate='' layer=0 draw='' severity=1.0 angle=90.0 "
        f"element='' seed=0 {TEXT}"),
    ),
    Related: ("related", f"a b tokens=4096 {TEXT} thorough=False"),
    Match: (
        "match --out match.npz", f"a b using='activations' tokens=8192 truth='planted' {TEXT}"
    ),
    Align: (
        "align --out aligned",
        (f"a b using='weights' signs=True only=() tokens=8192 {TEXT} stage2='full' sweeps=0 "
        "restarts=0 mix=0.0 neurons='invariant' refine=0"),
    ),
    Heads: (
        "heads",
        f"a b layer=0 cost='auto' stage2='full' using='weights' tokens=1024 {TEXT}",
    ),
    Turn: (
        "turn",
        ("a b layer=0 group=0 frequency=0 angle=0.0 modulus=1.0 using='weights' tokens=1024 "
        f"{TEXT}"),
    ),
    Neurons: (
        "match --coordinate ffn --out neurons.npz",
        f"a b layer expert='' using='weights' tokens=4096 truth='planted' {TEXT}",
    ),
    AllNeurons: (
        "match --coordinate ffn --out neurons.json",
        f"a b expert='' using='weights' tokens=4096 truth='planted' {TEXT}",
    ),
    Experts: ("experts", f"a b layer=0 using='weights' tokens=1024 {TEXT}"),
    Layers: (
        "layers --out layers.json",
        ("model tests=('replace','swap','delete') layers='' reach=0 aggregate='mean' tokens=512 "
        f"length=32 {TEXT}"),
    ),
    Cut: (
        "cut --out cut.json",
        ("model budget=5 by=('swap','replace','healed','influence','angular','greedy') reach=0 "
        f"tokens=512 length=32 {TEXT}"),
    ),
    Drop: ("prune --out pruned", f"model drop tokens=512 length=32 {TEXT}"),
    Continue: (
        "continue",
        "model test='replace' i=0 j=1 prompt='' count=24 device='auto' dtype='float32'",
    ),
    Gap: ("gap --out gap.json", f"series tokens=512 length=32 {TEXT}"),
    Barrier: (
        "barrier --out barrier.json",
        ("a b points=25 stages=('none','res-unsigned','res','ffn','heads','all','random') "
        "scope='whole' midpoint=False adaptive=True using='weights' sweeps=0 refine=0 "
        f"scrambled=False seed=0 {ON}"),
    ),
    Forecast: (
        "barrier --out barrier.json",
        ("a b points=25 stages=('none','res-unsigned','res','ffn','heads','all','random') "
        f"midpoint=False refined=False {ON}"),
    ),
    Written: (
        "line",
        ("a b at=(0.0,0.25,0.5,0.75,1.0) stage='all' prompt='' count=24 scope='whole' "
        f"using='weights' sweeps=0 refine=0 scrambled=False seed=0 {TEXT}"),
    ),
    Merge: ("merge --out merged", f"a b t=0.5 {STAGED} scrambled=False seed=0 {ON}"),
    Slice: (
        "slice --out slice.json",
        f"a b points=11 margin=0.2 {STAGED} seed=0 {ON.replace('2048', '1024')}",
    ),
    Orders: ("orders --out orders.json", f"a b layer=0 points=5 using='weights' {ON}"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_a_question_has_these_fields_and_defaults_in_this_order(kind: type[Question]) -> None:
    verb, declared = FIELDS[kind]
    found = " ".join(
        one.name if one.default is MISSING else f"{one.name}={one.default!r}".replace(", ", ",")
        for one in fields(kind)
    )
    assert (" ".join((kind.verb, *kind.extra)), found) == (verb, declared)


def test_numbers_of_questions_lie_within_these_bounds() -> None:
    assert BOUNDS == {
        "points": (3, 1001), "sweeps": (0, 10_000), "restarts": (0, 1000), "refine": (0, 10_000),
        "mix": (0, 0.99), "seed": (0, 2**63 - 1), "tokens": (1, 10_000_000),
        "length": (2, 2**31), "count": (1, 100_000), "margin": (0, 100),
    }  # fmt: skip
    assert Slice.bounds == {**BOUNDS, "points": (2, 101)}
    assert all(kind.bounds is BOUNDS for kind in FIELDS if kind is not Slice)


def test_all_questions_are_offered_by_their_names() -> None:
    kinds = {kind.__name__ for kind in FIELDS}
    words = {"CostKind", "Known", "NeuronCost", "Stage2", "Turn", "Using"}
    assert set(questions.__all__) == kinds | words | {"Question", "STARTING", "ask"}
    assert len(questions.__all__) == len(set(questions.__all__))


FILE = "-    a new .json file; what is done so far stands in it"
FOLDER = "-    a new folder"
BY = "weights    by what coordinates are matched; see Barriers, measured"
GAUGE = f"0 0..{2**63 - 1}    of the random gauge"
WINDOW = "2..    how many tokens a window has"
STEPS = "0 0..    steps along the loss half way, as for align"
DESCENT = "0 0..    of coordinate descent, as for align"
SCOPE = "whole    first-attention, all-attention, first-layer, whole, or layers such as 3-5"
STAGE = "all    how far B is in A's coordinates, as for barrier"
HIDDEN = "off    on puts B under a random gauge first"
INSIDE = "full    inside heads: everything, turns and orthogonal matrices only, or nothing"
PAIR = {
    "a": "-    the reference",
    "b": "-    what is compared with A, or put into its coordinates",
}
RUN = {
    "device": "auto    auto, cpu, cuda, cuda:1, mps",
    "dtype": "float32    float32, bfloat16, float16, float64: where models run",
    "as_json": "False    the record as JSON on stdout",
}
WORDS = (
    "default    a text file, or hf:owner/name, a data set; default: a demo model's own, else "
    "bundled"
)
READ = {
    "text": WORDS,
    "tokens": "     a JSON file, lists of token ids, instead of a text",
    "inputs": "     a .safetensors or .npz file instead: pixel_values or input_ids, labels",
}
MODEL = {"model": "-    None"}


def counted(usual: object, least: int, length: int | None = None) -> dict[str, str]:
    """Options on what is read, how much of it, and where."""
    found = {**READ, "count": f"{usual} {least}..10000000    how many tokens to run on"}
    if length is not None:
        found["length"] = f"{length} {WINDOW}"
    return found | RUN


OPTIONS: dict[str, dict[str, str]] = {
    "inspect": {**MODEL, "device": RUN["device"], "dtype": RUN["dtype"], "seed": GAUGE,
                "as_json": RUN["as_json"]},
    "scramble": {
        **MODEL, "out": FOLDER, "seed": GAUGE,
        "only": "     coordinates, comma-separated: res,ffn,heads,rot,val",
        "as_json": RUN["as_json"],
    },
    "related": {
        **PAIR, "thorough": "off    on runs every test, even where the embeddings settle it",
        **counted(4096, 256),
    },
    "align": {
        **PAIR, "out": FOLDER, "using": BY,
        "signs": "on    off searches S_d only, as git re-basin does",
        "only": "     coordinates, comma-separated: res,ffn,heads,rot,val",
        "stage2": INSIDE,
        "sweeps": "0 0..    of coordinate descent at most; 0 solves everything once",
        "restarts": "0 0..    further starts of the sweeps",
        "mix": "0.0 0..0.99    weight of activations in the sweeps",
        "neurons": "invariant    how sweeps match neurons: published is git re-basin's cost",
        "refine": "0 0..    steps that descend the loss half way between A and B",
        **counted(8192, 256),
    },
    "match": {
        **PAIR, "out": "-    a file: .npz with every matrix, or .json without",
        "coordinate": "res    the residual stream, or the neurons of the FFNs",
        "layer": "None    of the neurons, from 0; left out: every layer in short",
        "expert": '     of the neurons, where experts hold them: a number, or "shared"',
        "using": "None    where correlations come from; for neurons the weights, if not said",
        "truth": "planted    the right answer to count against: the gauge in "
        "symmetry.safetensors, the identity (fine-tunes of one base), or none",
        **counted(None, 256),
    },
    "heads": {
        **PAIR, "layer": "0    which layer, from 0",
        "cost": "auto    auto: what this family rotates; published: as in the paper",
        "stage2": INSIDE, "using": BY, **counted(1024, 256),
    },
    "turn": {
        **PAIR, "layer": "0    which layer, from 0", "group": "0    which key/value head of A",
        "frequency": "0    which rotary frequency, the highest is 0",
        "angle": "0.0    degrees, q of B turned forward",
        "modulus": "1.0    by which q is multiplied and k divided", "using": BY,
        **counted(1024, 256),
    },
    "experts": {
        **PAIR, "layer": "0    which layer, from 0", "using": BY, **counted(1024, 256),
    },
    "lab": {
        **MODEL, "preset": "ffn-order    what is done; an unknown word lists all",
        "coordinate": "     on which, where a preset has several",
        "layer": "0    which layer; -1 for all",
        "draw": "     random, transposition, sign, factor, angle, …",
        "severity": "1.0    from 0, nothing, to 1, all of it",
        "angle": "90.0    degrees, for draws by an angle",
        "element": "     typed: '(0 3 5) -7 2*1.5', '0@90', '0~1@30'",
        "seed": f"0 0..{2**63 - 1}    of the draw", **READ, **RUN,
    },
    "layers": {
        **MODEL, "out": FILE, "tests": "replace,swap,delete    comma-separated",
        "layers": "     such as 3-9, both ends included; default all",
        "reach": "0 0..    largest distance of two layers; 0 for all",
        "aggregate": "mean    mean over positions, or the last one", **counted(512, 2, 32),
    },
    "cut": {
        **MODEL, "out": FILE, "budget": "5 1..    how many layers go, at most",
        "by": "swap,replace,healed,influence,angular,greedy    comma-separated",
        "reach": "0 0..    largest distance of two layers; 0 for all", **counted(512, 2, 32),
    },
    "prune": {
        **MODEL, "drop": "-    layers, from 0: 5,7,9-11 (both ends included)", "out": FOLDER,
        "cost": "on    off writes without measuring", **counted(512, 256, 32),
    },
    "continue": {
        **MODEL, "test": "replace    replace, swap, average, skip or delete",
        "i": "0 0..    the depth, or the first layer",
        "j": "1 0..    the layer that runs there, or the other",
        "prompt": "     default: the beginning of the text", "count": "24 1..    tokens to write",
        **RUN,
    },
    "gap": {"series": "-    steps or seeds", "out": FILE, **counted(512, 2, 32)},
    "barrier": {
        **PAIR, "out": FILE, "points": "25 3..    values of t, ends included",
        "stages": "none,res-unsigned,res,ffn,heads,all,random    comma-separated", "scope": SCOPE,
        "midpoint": "off    on measures t = 0, 1/2, 1 only",
        "adaptive": "on    on adds points where a curve bends", "using": BY, "sweeps": DESCENT,
        "refine": STEPS, "scrambled": HIDDEN, "seed": GAUGE, **counted(2048, 2, 128),
    },
    "merge": {
        **PAIR, "out": FOLDER, "t": "0.5 0..1    0 is A, 1 the other end", "stage": STAGE,
        "scope": SCOPE, "using": BY, "sweeps": DESCENT, "refine": STEPS, "scrambled": HIDDEN,
        "seed": GAUGE, **counted(2048, 2, 128),
    },
    "line": {
        **PAIR, "at": "0,0.25,0.5,0.75,1    values of t, comma-separated", "stage": STAGE,
        "prompt": "     default: the beginning of the text", "count": "24 1..    tokens to write",
        "scope": SCOPE, "using": BY, "sweeps": DESCENT, "refine": STEPS, "scrambled": HIDDEN,
        "seed": GAUGE, "text": READ["text"], **RUN,
    },
    "slice": {
        **PAIR, "out": FILE, "points": "11 2..    along each axis",
        "margin": "0.2 0..    beyond the models, in parts", "stage": STAGE, "scope": SCOPE,
        "using": BY, "sweeps": DESCENT, "refine": STEPS, "seed": GAUGE, **counted(1024, 2, 128),
    },
    "orders": {
        **PAIR, "out": FILE, "layer": "0    which layer, from 0",
        "points": "5 3..    values of t, ends included", "using": BY, **counted(2048, 2, 128),
    },
}  # fmt: skip
"""Of every command: each option's default, range and help."""


def shown(parameter: inspect.Parameter) -> str:
    """Default and range of an option, and what its help says."""
    usual = "-" if parameter.default is inspect.Parameter.empty else parameter.default
    usual = getattr(usual, "value", usual)
    about = next(x for x in parameter.annotation.__metadata__ if hasattr(x, "help"))
    most = "" if about.max is None else about.max
    within = "" if about.min is None else f" {about.min}..{most}"
    return f"{' ' if usual == '' else usual}{within}    {about.help}"


def named(command: Callable[..., None]) -> str:
    return NAMES.get(command.__name__, command.__name__)


def test_the_commands_stand_in_this_order() -> None:
    assert [named(command) for command in COMMANDS] == [
        "inspect",
        "scramble",
        "related",
        "align",
        "match",
        "heads",
        "turn",
        "experts",
        "lab",
        "layers",
        "cut",
        "prune",
        "continue",
        "gap",
        "barrier",
        "merge",
        "line",
        "slice",
        "orders",
    ]


@pytest.mark.parametrize("command", COMMANDS, ids=named)
def test_an_option_has_this_default_range_and_help(command: Callable[..., None]) -> None:
    found = inspect.signature(command).parameters
    assert {name: shown(one) for name, one in found.items()} == OPTIONS[named(command)]


def test_arguments_are_called_by_what_they_are() -> None:
    words = {"model": "MODEL", "a": "A", "b": "B", "series": "MODEL..."}
    for command in COMMANDS:
        for name, one in inspect.signature(command).parameters.items():
            about = typing.get_args(one.annotation)[1]
            assert getattr(about, "metavar", None) == words.get(name), (command, name)


READING = {"text": "a.txt", "device": "cpu", "dtype": "float64"}
MOVED: dict[str, Any] = {
    "scope": "3-5", "using": "activations", "sweeps": 2, "refine": 3, "seed": 4, **READING,
}  # fmt: skip
SOME = {"tokens": 300, "length": 16}
EVERY_FIELD: tuple[Question, ...] = (
    Check("m", "cpu", "float64", 7),
    Lab("m", "rotary", "rot", 3, "angle", 0.25, -45.0, "0@90", 11, *READING.values()),
    Related("x", "y", tokens=300, thorough=True, **READING),
    Match("x", "y", using="weights", tokens=300, truth="identity", **READING),
    Neurons("x", "y", 2, "3", "activations", 300, "none", **READING),
    AllNeurons("x", "y", "shared", "activations", 300, "identity", **READING),
    Align(
        "x", "y", using="activations", signs=False, only=("res", "ffn"), tokens=300,
        stage2="orthogonal", sweeps=2, restarts=3, mix=0.25, neurons="published", refine=4,
        **READING,
    ),
    Heads("x", "y", 1, "published", "none", "activations", 300, **READING),
    Turn("x", "y", 1, 2, 3, -30.0, 1.5, "activations", 300, **READING),
    Experts("x", "y", 1, "activations", 300, **READING),
    Layers("m", ("swap", "skip"), "3-9", 2, "last", **SOME, **READING),
    Cut("m", 3, ("greedy", "swap"), 2, **SOME, **READING),
    Drop("demo:base", (1, 3), **SOME, **READING),
    Continue("m", "swap", 2, 3, "Anna goes", 5, "cpu", "float64"),
    Gap(("m", "n", "o"), **SOME, **READING),
    Barrier(
        "x", "y", points=9, stages=("res", "all"), midpoint=True, adaptive=False, scrambled=True,
        **MOVED, **SOME,
    ),
    Merge("x", "y", t=0.25, stage="refined", scrambled=True, **MOVED, **SOME),
    Written("x", "y", (0.0, 0.75), "res", "Anna goes", 5, scrambled=True, **MOVED),
    Slice("x", "y", 5, 0.5, "heads", **MOVED, **SOME),
    Orders("x", "y", 1, 7, "activations", **SOME, **READING),
)  # fmt: skip
"""Of every kind one that differs from its defaults in all that a command can say."""


class Asked(Exception):
    """The question that a command asks."""


def took(asked: Question, *_: object, **__: object) -> None:
    if not isinstance(asked, Inspect):
        raise Asked(asked)


@pytest.mark.parametrize("wanted", EVERY_FIELD, ids=lambda one: type(one).__name__)
def test_the_printed_command_asks_the_same_question_field_by_field(
    wanted: Question, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (experts, layers, line, matching, models, pairs, pruning):
        for name in ("solve", "keep", "told"):
            monkeypatch.setattr(module, name, took, raising=False)
        monkeypatch.setattr(module, "watched", lambda *_: None, raising=False)
    with pytest.raises(Asked) as asked:
        main(shlex.split(wanted.command)[3:])
    assert asked.value.args == (wanted,)
    assert list(tmp_path.iterdir()) == []
    usual = {one.name for one in fields(wanted) if getattr(wanted, one.name) == one.default}
    assert not usual


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (Related("x", "y"), "related x y"),
        (Layers("a b", tokens=9, length=3), "layers 'a b' --count 9 --length 3 --out layers.json"),
        (Gap(("m", "n"), text="ids.json"), "gap m n --tokens ids.json --out gap.json"),
        (Match("x", "y", text="a.npz"), "match x y --inputs a.npz --out match.npz"),
        (Align("x", "y", signs=False, only=("res", "ffn")),
         "align x y --signs off --only res,ffn --out aligned"),
        (Merge("x", "y", scrambled=True), "merge x y --scrambled on --out merged"),
        (Continue("m", prompt="Anna goes", count=3), "continue m --prompt 'Anna goes' --count 3"),
        (Drop("m", (1, 3)), "prune m --drop 1,3 --out pruned"),
        (Written("x", "y", at=(0.0, 1.0)), "line x y --at 0.0,1.0"),
    ],
)  # fmt: skip
def test_a_command_says_what_differs_from_the_usual(asked: Question, command: str) -> None:
    assert asked.command == f"python -m engine {command}"


def test_a_barrier_is_forecast_as_it_is_asked() -> None:
    asked = Barrier(
        "x", "y", 9, ("res", "all"), "3-5", True, refine=3, tokens=300, length=16, **READING
    )  # fmt: skip
    wanted = Forecast("x", "y", 9, ("res", "all"), True, True, 300, 16, *READING.values())
    assert asked.forecast == wanted
    assert asked.wanted == ("res", "all", "refined")
    plain = Barrier("x", "y", stages=("res",))
    assert plain.wanted == ("res",) and not plain.forecast.refined
