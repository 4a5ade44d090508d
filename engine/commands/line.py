"""Commands on the line between two models: barrier, merge, line, slice, orders."""

from pathlib import Path
from typing import Annotated

import typer

from engine.commands.layers import told
from engine.exports import line as exports
from engine.exports.documents import made, written
from engine.options import (
    A,
    B,
    By,
    Device,
    Dtype,
    Few,
    Inputs,
    Json,
    Layer,
    Out,
    Seed,
    Switch,
    Text,
    Tokens,
    Using,
)
from engine.questions import Barrier, Merge, Orders, Slice, Written
from engine.questions.line import USUAL
from engine.records import plain
from engine.summaries import line as summaries
from engine.terminal import emit, keep, listed, one_of, say, watched
from engine.writing import new_folder

File = Annotated[Path, typer.Option(help="a new .json file; what is done so far stands in it")]
Scope = Annotated[
    str,
    typer.Option(help="first-attention, all-attention, first-layer, whole, or layers such as 3-5"),
]
Stage = Annotated[str, typer.Option(help="how far B is in A's coordinates, as for barrier")]
Sweeps = Annotated[int, typer.Option(min=0, help="of coordinate descent, as for align")]
Refine = Annotated[int, typer.Option(min=0, help="steps along the loss half way, as for align")]
Scrambled = Annotated[Switch, typer.Option(help="on puts B under a random gauge first")]
Length = Annotated[int, typer.Option(min=2, help="how many tokens a window has")]


def barrier(
    a: A,
    b: B,
    out: File,
    points: Annotated[int, typer.Option(min=3, help="values of t, ends included")] = 25,
    stages: Annotated[str, typer.Option(help="comma-separated")] = ",".join(USUAL),
    scope: Scope = "whole",
    midpoint: Annotated[Switch, typer.Option(help="on measures t = 0, 1/2, 1 only")] = Switch.off,
    adaptive: Annotated[
        Switch, typer.Option(help="on adds points where a curve bends")
    ] = Switch.on,
    using: By = Using.weights,
    sweeps: Sweeps = 0,
    refine: Refine = 0,
    scrambled: Scrambled = Switch.off,
    seed: Seed = 0,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 2048,
    length: Length = 128,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Loss and accuracy on the line from A to B, and the barrier of every stage."""
    asked = Barrier(
        a,
        b,
        points=points,
        stages=listed(stages, "--stages"),
        scope=scope,
        midpoint=midpoint is Switch.on,
        adaptive=adaptive is Switch.on,
        using=using.value,
        sweeps=sweeps,
        refine=refine,
        scrambled=scrambled is Switch.on,
        seed=seed,
        tokens=count,
        length=length,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    told(asked, out, exports.of_barrier, summaries.of_barrier, as_json=as_json)


def merge(
    a: A,
    b: B,
    out: Out,
    t: Annotated[float, typer.Option(min=0, max=1, help="0 is A, 1 the other end")] = 0.5,
    stage: Stage = "all",
    scope: Scope = "whole",
    using: By = Using.weights,
    sweeps: Sweeps = 0,
    refine: Refine = 0,
    scrambled: Scrambled = Switch.off,
    seed: Seed = 0,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 2048,
    length: Length = 128,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """The model at t of the line: a loadable checkpoint, and its loss in report.json."""
    asked = Merge(
        a,
        b,
        t=t,
        stage=stage,
        scope=scope,
        using=using.value,
        sweeps=sweeps,
        refine=refine,
        scrambled=scrambled is Switch.on,
        seed=seed,
        tokens=count,
        length=length,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    with new_folder(out) as staged:
        record = keep(asked, watched(lambda progress: asked.answer(progress, staged)))
        document = made(exports.of_merge(record), asked)
        (staged / "report.json").write_text(written(document, 1), encoding="utf-8")
    if as_json:
        emit(document)
    else:
        say([*summaries.of_merge(record), f"written to {out}"])


def line(
    a: A,
    b: B,
    at: Annotated[str, typer.Option(help="values of t, comma-separated")] = "0,0.25,0.5,0.75,1",
    stage: Stage = "all",
    prompt: Annotated[str, typer.Option(help="default: the beginning of the text")] = "",
    count: Annotated[int, typer.Option(min=1, help="tokens to write")] = 24,
    scope: Scope = "whole",
    using: By = Using.weights,
    sweeps: Sweeps = 0,
    refine: Refine = 0,
    scrambled: Scrambled = Switch.off,
    seed: Seed = 0,
    text: Text = "default",
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """What the models on the line write after a prompt."""
    asked = Written(
        a,
        b,
        at=tuple(_number(word) for word in listed(at, "--at")),
        stage=stage,
        prompt=prompt,
        count=count,
        scope=scope,
        using=using.value,
        sweeps=sweeps,
        refine=refine,
        scrambled=scrambled is Switch.on,
        seed=seed,
        text=one_of(text, "", ""),
        device=device,
        dtype=dtype,
    )
    record = keep(asked, watched(asked.answer))
    if as_json:
        emit(made(plain(record), asked))
    else:
        say(summaries.of_written(record))


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise typer.BadParameter(f"--at {word!r} is no number") from error


def slice_(
    a: A,
    b: B,
    out: File,
    points: Annotated[int, typer.Option(min=2, help="along each axis")] = 11,
    margin: Annotated[float, typer.Option(min=0, help="beyond the models, in parts")] = 0.2,
    stage: Stage = "all",
    scope: Scope = "whole",
    using: By = Using.weights,
    sweeps: Sweeps = 0,
    refine: Refine = 0,
    seed: Seed = 0,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 1024,
    length: Length = 128,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """The loss over the plane through A, B and aligned B."""
    asked = Slice(
        a,
        b,
        points=points,
        margin=margin,
        stage=stage,
        scope=scope,
        using=using.value,
        sweeps=sweeps,
        refine=refine,
        seed=seed,
        tokens=count,
        length=length,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    told(asked, out, exports.of_slice, summaries.of_slice, as_json=as_json)


def orders(
    a: A,
    b: B,
    out: File,
    layer: Layer = 0,
    points: Annotated[int, typer.Option(min=3, help="values of t, ends included")] = 5,
    using: By = Using.weights,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 2048,
    length: Length = 128,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """The barrier of every order of the heads of one layer, the rest fixed at A's."""
    asked = Orders(
        a,
        b,
        layer=layer,
        points=points,
        using=using.value,
        tokens=count,
        length=length,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    told(asked, out, exports.of_orders, summaries.of_orders, as_json=as_json)
