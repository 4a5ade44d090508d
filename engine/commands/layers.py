"""Commands on the layers of a model: maps, cuts, continuations, and the gap during a training."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import Interrupted
from engine.exports import layers as exports
from engine.exports.documents import made
from engine.options import Aggregates, Device, Dtype, Few, Inputs, Json, Length, Model, Text, Tokens
from engine.questions import Continue, Cut, Gap, Question
from engine.questions import Layers as Maps
from engine.questions.layers import METHODS, TESTS
from engine.records import Record, plain
from engine.summaries import layers as summaries
from engine.terminal import emit, keep, listed, new_file, one_of, save_json, say, watched

File = Annotated[Path, typer.Option(help="a new .json file; what is done so far stands in it")]
Reach = Annotated[int, typer.Option(min=0, help="largest distance of two layers; 0 for all")]


def layers(
    model: Model,
    out: File,
    tests: Annotated[str, typer.Option(help="comma-separated")] = ",".join(TESTS),
    layers: Annotated[str, typer.Option(help="such as 3-9, both ends included; default all")] = "",
    reach: Reach = 0,
    aggregate: Annotated[
        Aggregates, typer.Option(help="mean over positions, or the last one")
    ] = Aggregates.mean,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 512,
    length: Length = 32,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """KL maps of all pairs of layers, adjacent ones first: replaced, exchanged, left out, …."""
    asked = Maps(
        model,
        listed(tests, "--tests"),
        layers,
        reach,
        aggregate=aggregate.value,
        tokens=count,
        length=length,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    told(asked, out, exports.of_maps, summaries.of_maps, as_json=as_json)


def cut(
    model: Model,
    out: File,
    budget: Annotated[int, typer.Option(min=1, help="how many layers go, at most")] = 5,
    by: Annotated[str, typer.Option(help="comma-separated")] = ",".join(METHODS),
    reach: Reach = 0,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 512,
    length: Length = 32,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Which layers to leave out, chosen in several ways, and what each choice really costs."""
    asked = Cut(
        model,
        budget,
        listed(by, "--by"),
        reach,
        tokens=count,
        length=length,
        text=one_of(text, tokens, inputs),
        device=device,
        dtype=dtype,
    )
    told(asked, out, exports.of_cut, summaries.of_cut, as_json=as_json)


def continuation(
    model: Model,
    test: Annotated[str, typer.Option(help="replace, swap, average, skip or delete")] = "replace",
    i: Annotated[int, typer.Option(min=0, help="the depth, or the first layer")] = 0,
    j: Annotated[int, typer.Option(min=0, help="the layer that runs there, or the other")] = 1,
    prompt: Annotated[str, typer.Option(help="default: the beginning of the text")] = "",
    count: Annotated[int, typer.Option(min=1, help="tokens to write")] = 24,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """What the model writes after a prompt, before and after one test of its layers."""
    asked = Continue(model, test, i, j, prompt, count, device, dtype)
    record = keep(asked, watched(asked.answer))
    if as_json:
        emit(made(plain(record), asked))
    else:
        say(summaries.of_continuation(record))


def gap(
    series: Annotated[list[str], typer.Argument(metavar="MODEL...", help="steps or seeds")],
    out: File,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Few = 512,
    length: Length = 32,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """How far replacing and exchanging of adjacent layers lie apart, step by step."""
    asked = Gap(
        tuple(series), count, length, one_of(text, tokens, inputs), device=device, dtype=dtype
    )
    told(asked, out, exports.of_gap, summaries.of_gap, as_json=as_json)


def told(
    asked: Question,
    out: Path,
    document: Callable[[Any], dict[str, Any]],
    lines: Callable[[Any], Any],
    *,
    as_json: bool,
) -> None:
    """Answer a long question; its document stands in the file from the first part on."""
    new_file(out, ".json")

    def write(record: Record) -> None:
        save_json(made(document(record), asked), out)

    try:
        record = keep(asked, watched(asked.answer, write))
    except KeyboardInterrupt as stop:
        if out.exists():
            raise Interrupted(f"Interrupted: {out} holds what was done so far.") from stop
        raise
    write(record)
    if as_json:
        emit(made(document(record), asked))
    else:
        say([*lines(record), f"written to {out}"])
