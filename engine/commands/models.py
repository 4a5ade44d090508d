"""Commands on one model: what it is, and changes of its weights."""

from typing import Annotated

import typer

from engine.checkpoint import open_checkpoint
from engine.exports.documents import made
from engine.options import Device, Dtype, Inputs, Json, Model, Only, Out, Seed, Text, Tokens
from engine.questions import Check, Inspect, Lab
from engine.records import Experiment, ModelCard, SelfTest, plain
from engine.summaries import models as summaries
from engine.terminal import emit, listed, one_of, say, solve, watched


def inspect(
    model: Model,
    device: Device = "auto",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Family, sizes, every coordinate with its group, and the self-test's error."""
    card = solve(Inspect(model), ModelCard)
    asked = Check(model, device=device, dtype=dtype, seed=seed)
    tested = solve(asked, SelfTest)
    if as_json:
        emit(made({"card": plain(card), "self_test": plain(tested)}, asked))
    else:
        say(summaries.of_card(card))
        say(summaries.of_self_test(tested))


def scramble(
    model: Model, out: Out, seed: Seed = 0, only: Only = "", as_json: Json = False
) -> None:
    """A random gauge applied: a loadable checkpoint and symmetry.safetensors."""
    from engine.scramble import scramble as write  # noqa: PLC0415 (torch is slow to import)

    g = watched(
        lambda progress: write(open_checkpoint(model), out, seed, listed(only, "--only"), progress)
    )
    if as_json:
        result = {"model": model, "out": str(out), "seed": seed, "elements": len(g.elements)}
        emit(result | {"source": g.source, "target": g.target, "continuous": g.continuous})
    else:
        count = f"{len(g.elements)} elements, seed {seed}"
        say([f"{out}: {model} in other coordinates ({count}); g is in symmetry.safetensors"])


def lab(
    model: Model,
    preset: Annotated[str, typer.Option(help="what is done; an unknown word lists all")] = (
        "ffn-order"
    ),
    coordinate: Annotated[str, typer.Option(help="on which, where a preset has several")] = "",
    layer: Annotated[int, typer.Option(help="which layer; -1 for all")] = 0,
    draw: Annotated[str, typer.Option(help="random, transposition, sign, factor, angle, …")] = "",
    severity: Annotated[float, typer.Option(help="from 0, nothing, to 1, all of it")] = 1.0,
    angle: Annotated[float, typer.Option(help="degrees, for draws by an angle")] = 90.0,
    element: Annotated[str, typer.Option(help="typed: '(0 3 5) -7 2*1.5', '0@90', '0~1@30'")] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of the draw")] = 0,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """One change of a model's weights: which tensors move, and whether any output shows it."""
    asked = Lab(
        model, preset, coordinate, layer, draw, severity, angle, element, seed,
        one_of(text, tokens, inputs), device, dtype,
    )  # fmt: skip
    record = solve(asked, Experiment)
    if as_json:
        emit(made(plain(record, arrays=False), asked))
    else:
        say(summaries.of_experiment(record))
