"""Commands on two models: related, align, heads, and one turn by hand."""

from typing import Annotated

import typer

from engine.exports.documents import made
from engine.options import (
    A,
    B,
    By,
    Costs,
    Count,
    Depth,
    Device,
    Dtype,
    Inputs,
    Inside,
    Json,
    Layer,
    Only,
    Out,
    Scores,
    Signs,
    Switch,
    Text,
    Tokens,
    Using,
)
from engine.questions import Align, Heads, Related, Turn
from engine.questions.base import BOUNDS
from engine.records import HeadsReport, Relatedness, TurnReport, plain
from engine.summaries import pairs as summaries
from engine.terminal import emit, keep, listed, one_of, say, solve, watched


def related(
    a: A,
    b: B,
    thorough: Annotated[
        Switch, typer.Option(help="on runs every test, even where the embeddings settle it")
    ] = Switch.off,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Count = 4096,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Whether two models have a common lineage, with the p-value."""
    source = one_of(text, tokens, inputs)
    asked = Related(a, b, count, source, device, dtype, thorough is Switch.on)
    record = solve(asked, Relatedness)
    if as_json:
        emit(made(plain(record), asked))
    else:
        say(summaries.of_relatedness(record))


def align(
    a: A,
    b: B,
    out: Out,
    using: By = Using.weights,
    signs: Signs = Switch.on,
    only: Only = "",
    stage2: Inside = Depth.full,
    sweeps: Annotated[
        int, typer.Option(min=0, help="of coordinate descent at most; 0 solves everything once")
    ] = 0,
    restarts: Annotated[int, typer.Option(min=0, help="further starts of the sweeps")] = 0,
    mix: Annotated[
        float,
        typer.Option(
            min=BOUNDS["mix"][0],
            max=BOUNDS["mix"][1],
            help="weight of activations in the sweeps",
        ),
    ] = 0.0,
    neurons: Annotated[
        Scores, typer.Option(help="how sweeps match neurons: published is git re-basin's cost")
    ] = Scores.invariant,
    refine: Annotated[
        int, typer.Option(min=0, help="steps that descend the loss half way between A and B")
    ] = 0,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Count = 8192,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """B in A's coordinates: a loadable checkpoint, symmetry.safetensors, report.json."""
    asked = Align(
        a,
        b,
        using=using.value,
        signs=signs is Switch.on,
        only=listed(only, "--only"),
        tokens=count,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
        stage2=stage2.value,
        sweeps=sweeps,
        restarts=restarts,
        mix=mix,
        neurons=neurons.value,
        refine=refine,
    )
    report = keep(asked, watched(lambda progress: asked.write(out, progress)))
    if as_json:
        emit(made(plain(report), asked))
    else:
        say([*summaries.of_alignment(report), *summaries.of_descent(report)])


def heads(
    a: A,
    b: B,
    layer: Layer = 0,
    cost: Annotated[
        Costs, typer.Option(help="auto: what this family rotates; published: as in the paper")
    ] = Costs.auto,
    stage2: Inside = Depth.full,
    using: By = Using.weights,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Count = 1024,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Which attention head is which in one layer, and by which angles it was turned."""
    asked = Heads(
        a,
        b,
        layer,
        cost=cost.value,
        stage2=stage2.value,
        using=using.value,
        tokens=count,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    record = solve(asked, HeadsReport)
    if as_json:
        emit(made(plain(record), asked))
    else:
        say(summaries.of_heads(record))


def turn(
    a: A,
    b: B,
    layer: Layer = 0,
    group: Annotated[int, typer.Option(help="which key/value head of A")] = 0,
    frequency: Annotated[int, typer.Option(help="which rotary frequency, the highest is 0")] = 0,
    angle: Annotated[float, typer.Option(help="degrees, q of B turned forward")] = 0.0,
    modulus: Annotated[float, typer.Option(help="by which q is multiplied and k divided")] = 1.0,
    using: By = Using.weights,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Count = 1024,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """One frequency of one head turned by hand: the distance to A, and what lies half way."""
    asked = Turn(
        a, b, layer, group, frequency, angle, modulus, using.value, count,
        one_of(text, tokens, inputs), device, dtype,
    )  # fmt: skip
    record = solve(asked, TurnReport)
    if as_json:
        emit(made(plain(record), asked))
    else:
        say(summaries.of_turn(record))
