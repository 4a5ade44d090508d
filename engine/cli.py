"""`python -m engine COMMAND`: the same engine without a browser.

Progress goes to stderr, `--json` puts the record on stdout. Exit 0 done, 1 refused input (one clear
line), 2 usage.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from engine import summaries
from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.options import (
    A,
    B,
    By,
    Costs,
    Count,
    Depth,
    Device,
    Dtype,
    Inside,
    Json,
    Known,
    Layer,
    Model,
    Only,
    Out,
    Seed,
    Signs,
    Switch,
    Text,
    Tokens,
    Using,
)
from engine.questions import Align, Check, Heads, Inspect, Lab, Match, Turn
from engine.records import (
    Experiment,
    HeadsReport,
    ModelCard,
    ResidualMatch,
    SelfTest,
    TurnReport,
    plain,
)
from engine.terminal import emit, keep, listed, one_of, save_match, say, solve, watched
from engine.writing import new_folder

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Symmetries of transformer checkpoints. MODEL is a folder, hf:owner/name, a .gguf file, "
    "demo:NAME or smollm2.",
)


@app.command()
def inspect(
    model: Model,
    device: Device = "auto",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Family, sizes, every coordinate with its group, and the self-test's error."""
    card = solve(Inspect(model), ModelCard)
    tested = solve(Check(model, device=device, dtype=dtype, seed=seed), SelfTest)
    if as_json:
        emit({"card": plain(card), "self_test": plain(tested)})
    else:
        say(summaries.of_card(card))
        say(summaries.of_self_test(tested))


@app.command()
def scramble(
    model: Model, out: Out, seed: Seed = 0, only: Only = "", as_json: Json = False
) -> None:
    """A random gauge applied: a loadable checkpoint and symmetry.safetensors."""
    from engine.scramble import scramble as write  # noqa: PLC0415 (torch is slow to import)

    g = watched(lambda progress: write(open_checkpoint(model), out, seed, listed(only), progress))
    if as_json:
        result = {"model": model, "out": str(out), "seed": seed, "elements": len(g.elements)}
        emit(result | {"source": g.source, "target": g.target, "continuous": g.continuous})
    else:
        count = f"{len(g.elements)} elements, seed {seed}"
        say([f"{out}: {model} in other coordinates ({count}); g is in symmetry.safetensors"])


@app.command()
def align(
    a: A,
    b: B,
    out: Out,
    using: By = Using.weights,
    signs: Signs = Switch.on,
    only: Only = "",
    stage2: Inside = Depth.full,
    text: Text = "default",
    tokens: Tokens = "",
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
        only=listed(only),
        tokens=count,
        text=one_of(text, tokens),
        device=device,
        dtype=dtype,
        stage2=stage2.value,
    )
    with new_folder(out) as staged:
        report = keep(asked, watched(lambda progress: asked.answer(progress, staged)))
        text_of = json.dumps(plain(report), indent=1)
        (staged / "report.json").write_text(text_of, encoding="utf-8")
    if as_json:
        emit(plain(report))
    else:
        say(summaries.of_alignment(report))


@app.command()
def match(
    a: A,
    b: B,
    out: Annotated[Path, typer.Option(help="a file: .npz with every matrix, or .json without")],
    using: By = Using.activations,
    truth: Annotated[
        Known,
        typer.Option(
            help="the right answer to count against: the gauge in "
            "symmetry.safetensors, the identity (fine-tunes of one base), or none"
        ),
    ] = Known.planted,
    text: Text = "default",
    tokens: Tokens = "",
    count: Count = 8192,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """The residual coordinates at every depth: matrices, matchings, margins."""
    if out.suffix not in {".npz", ".json"}:
        raise Refused(f"--out {out}: the name must end in .npz or .json, found {out.suffix!r}.")
    if out.exists():
        raise Refused(f"--out {out} exists: give a new file.")
    asked = Match(
        a,
        b,
        using=using.value,
        tokens=count,
        truth=truth.value,
        text=one_of(text, tokens),
        device=device,
        dtype=dtype,
    )
    record = solve(asked, ResidualMatch)
    save_match(record, out)
    if as_json:
        emit(plain(record, arrays=False))
    else:
        say([*summaries.of_match(record), f"written to {out}"])


@app.command()
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
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """One change of a model's weights: which tensors move, and whether any output shows it."""
    asked = Lab(
        model, preset, coordinate, layer, draw, severity, angle, element, seed,
        one_of(text, tokens), device, dtype,
    )  # fmt: skip
    record = solve(asked, Experiment)
    if as_json:
        emit(plain(record, arrays=False))
    else:
        say(summaries.of_experiment(record))


@app.command()
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
        text=one_of(text, tokens),
        device=device,
        dtype=dtype,
    )
    record = solve(asked, HeadsReport)
    if as_json:
        emit(plain(record))
    else:
        say(summaries.of_heads(record))


@app.command()
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
    count: Count = 1024,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """One frequency of one head turned by hand: the distance to A, and what lies half way."""
    asked = Turn(
        a, b, layer, group, frequency, angle, modulus, using.value, count,
        one_of(text, tokens), device, dtype,
    )  # fmt: skip
    record = solve(asked, TurnReport)
    if as_json:
        emit(plain(record))
    else:
        say(summaries.of_turn(record))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        app(args=arguments)
    except Refused as error:
        typer.echo(str(error), err=True)
        return 1
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            typer.echo("Interrupted: nothing was written.", err=True)
        return int(stop.code or 0)
    return 0
