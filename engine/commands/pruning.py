"""The command that leaves layers out and writes what is left."""

from typing import Annotated

import typer

from engine.checkpoint import open_checkpoint
from engine.exports.documents import made, written
from engine.options import (
    Count,
    Device,
    Dtype,
    Inputs,
    Json,
    Length,
    Model,
    Out,
    Switch,
    Text,
    Tokens,
)
from engine.pruning import PASSTHROUGH, kept, parse_layers, spoken
from engine.pruning import prune as write
from engine.questions import Drop
from engine.records import CutCost, plain
from engine.summaries import layers as summaries
from engine.terminal import emit, one_of, say, solve, watched
from engine.writing import new_folder


def prune(
    model: Model,
    drop: Annotated[str, typer.Option(help="layers, from 0: 5,7,9-11 (both ends included)")],
    out: Out,
    cost: Annotated[Switch, typer.Option(help="off writes without measuring")] = Switch.on,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Count = 512,
    length: Length = 32,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """A loadable checkpoint without some layers, what that costs, and the cut for mergekit."""
    source = open_checkpoint(model)
    dropped = tuple(sorted(parse_layers(drop)))
    kept(model, source.layers, dropped)
    asked = Drop(model, dropped, count, length, one_of(text, tokens, inputs), device, dtype)
    with new_folder(out) as staged:
        measured = solve(asked, CutCost) if cost is Switch.on else None
        pruned = watched(lambda progress: write(source, dropped, staged, progress))
        result = {
            "model": model,
            "out": str(out),
            "dropped": list(dropped),
            "layers": [source.layers, pruned.layers],
            "parameters": [source.parameters, pruned.parameters],
            "cost": None if measured is None else plain(measured),
        }
        result = made(result, asked)
        (staged / "report.json").write_text(written(result, 1), encoding="utf-8")
    if as_json:
        emit(result)
        return
    share = pruned.parameters / source.parameters - 1
    what = f"{source.layers} → {pruned.layers} layers"
    size = f"{source.parameters:,} → {pruned.parameters:,} parameters ({share:+.1%})"
    say([f"{model} without {spoken(dropped)}: {what}, {size}"])
    say(summaries.of_cost(measured) if measured else ["the cost was not measured"])
    say([f"written to {out}, and there the same cut for mergekit: {PASSTHROUGH}"])
