"""The command that matches one coordinate of two models: residual coordinates, or FFN neurons."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import Refused
from engine.exports.documents import made
from engine.options import MOST, A, B, Device, Dtype, Inputs, Json, Known, Text, Tokens, Using
from engine.questions import AllNeurons, Match, Neurons, Question
from engine.records import NeuronLayers, NeuronMatch, ResidualMatch, plain
from engine.summaries import neurons, pairs
from engine.terminal import (
    emit,
    new_file,
    one_of,
    save_arrays,
    save_json,
    save_match,
    say,
    solve,
)


class Coordinate(StrEnum):
    """What is matched."""

    res = "res"
    ffn = "ffn"


def match(
    a: A,
    b: B,
    out: Annotated[Path, typer.Option(help="a file: .npz with every matrix, or .json without")],
    coordinate: Annotated[
        Coordinate, typer.Option(help="the residual stream, or the neurons of the FFNs")
    ] = Coordinate.res,
    layer: Annotated[
        int | None, typer.Option(help="of the neurons, from 0; left out: every layer in short")
    ] = None,
    expert: Annotated[
        str, typer.Option(help='of the neurons, where experts hold them: a number, or "shared"')
    ] = "",
    using: Annotated[
        Using | None,
        typer.Option(help="where correlations come from; for neurons the weights, if not said"),
    ] = None,
    truth: Annotated[
        Known,
        typer.Option(
            help="the right answer to count against: the gauge in "
            "symmetry.safetensors, the identity (fine-tunes of one base), or none"
        ),
    ] = Known.planted,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Annotated[
        int | None, typer.Option(min=256, max=MOST, help="how many tokens to run on")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Which residual coordinate, or FFN neuron, is which: matrices, matchings, margins."""
    new_file(out, ".npz", ".json")
    common: dict[str, Any] = {
        "truth": truth.value, "text": one_of(text, tokens, inputs), "device": device,
        "dtype": dtype,
    }  # fmt: skip
    given = {"using": using and using.value, "tokens": count}
    chosen = common | {name: value for name, value in given.items() if value is not None}
    if coordinate is Coordinate.res:
        if layer is not None or expert:
            raise Refused("The residual stream has no layers and no experts: say --coordinate ffn.")
        asked = Match(a, b, **chosen)
        record = solve(asked, ResidualMatch)
        save_match(asked, record, out)
        lines = pairs.of_match(record)
    elif layer is None:
        asked = AllNeurons(a, b, expert=expert, **chosen)
        record = solve(asked, NeuronLayers)
        _save(asked, record, out)
        lines = neurons.of_layers(record)
    else:
        asked = Neurons(a, b, layer, expert=expert, **chosen)
        record = solve(asked, NeuronMatch)
        _save(asked, record, out)
        lines = neurons.of_neurons(record)
    if as_json:
        emit(made(plain(record, arrays=False), asked))
    else:
        say([*lines, f"written to {out}"])


def _save(asked: Question, record: NeuronMatch | NeuronLayers, out: Path) -> None:
    if out.suffix == ".json":
        save_json(made(plain(record, arrays=False), asked), out, 1)
    else:
        save_arrays(record, out)
