"""`python -m engine COMMAND`: the same engine without a browser.

Progress goes to stderr, `--json` puts the record on stdout. Exit 0 done, 1 refused input (one clear
line), 2 usage.
"""

import json
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer
from tqdm import tqdm

from engine import summaries
from engine.checkpoint import open_checkpoint
from engine.errors import Progress, Refused
from engine.questions import Align, Check, Inspect, Lab, Match, Question
from engine.records import Experiment, ModelCard, ResidualMatch, SelfTest, plain
from engine.store import Store, default_root
from engine.writing import new_folder

T = TypeVar("T")
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


class Using(StrEnum):
    """Where correlations come from."""

    weights = "weights"
    activations = "activations"


class Switch(StrEnum):
    """On or off."""

    on = "on"
    off = "off"


class Known(StrEnum):
    """What the matching is compared with."""

    planted = "planted"
    identity = "identity"
    none = "none"


Model = Annotated[str, typer.Argument(metavar="MODEL")]
A = Annotated[str, typer.Argument(metavar="A", help="the reference")]
B = Annotated[
    str, typer.Argument(metavar="B", help="what is compared with A, or put into its coordinates")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16, float64: where models run")]
Json = Annotated[bool, typer.Option("--json", help="the record as JSON on stdout")]
Out = Annotated[Path, typer.Option(help="a new folder")]
Text = Annotated[str, typer.Option(help="a text file; default: a demo model's own, else bundled")]
Tokens = Annotated[str, typer.Option(help="a JSON file, lists of token ids, instead of a text")]
Count = Annotated[int, typer.Option(min=256, help="how many tokens to run on")]
Only = Annotated[str, typer.Option(help="coordinates, comma-separated: res,ffn,heads,rot,val")]
By = Annotated[Using, typer.Option(help="where the residual correlations come from")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of the random gauge")]
Signs = Annotated[Switch, typer.Option(help="off searches S_d only, as git re-basin does")]


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


def save_match(record: ResidualMatch, out: Path) -> None:
    """Every matrix and matching as `.npz`, or the numbers without the matrices as `.json`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".json":
        out.write_text(json.dumps(plain(record, arrays=False), indent=1), encoding="utf-8")
        return
    found = {
        f"{kind}_{what}": np.stack([getattr(one, what) for one in matchings])
        for kind, matchings in (("absolute", record.absolute), ("signed", record.signed))
        for what in ("permutation", "sign", "score", "margin", "mutual")
    }
    found |= {"correlation": record.correlation, "depths": np.array(record.depths)}
    np.savez_compressed(out, allow_pickle=False, **found)


def one_of(text: str, tokens: str) -> str:
    """The file that --text or --tokens names; both together are wrong usage."""
    if tokens and text != "default":
        raise typer.BadParameter("give --text or --tokens, not both")
    return tokens or text


def listed(words: str) -> tuple[str, ...]:
    """The words of a comma-separated option."""
    return tuple(word.strip() for word in words.split(",") if word.strip())


def solve(question: Question, kind: type[T]) -> T:
    """A fresh answer, kept for the app, with progress on stderr."""
    record = keep(question, watched(question.answer))
    assert isinstance(record, kind)
    return record


def keep(question: Question, record: T) -> T:
    """Put an answer where the app finds it."""
    Store(default_root()).put(question.key, record)
    return record


def watched(work: Callable[[Progress], T]) -> T:
    """Run with a progress bar on stderr (none where stderr is no terminal)."""
    bar = tqdm(total=100, file=sys.stderr, disable=None, leave=False, bar_format="{l_bar}{bar}|")
    with bar:

        def progress(share: float, step: str) -> None:
            bar.set_description_str(step, refresh=False)
            bar.update(max(100 * share - bar.n, 0))

        return work(progress)


def say(lines: Iterable[str]) -> None:
    """Lines for people."""
    for line in lines:
        typer.echo(line)


def emit(value: Any) -> None:
    """One JSON document for machines."""
    typer.echo(json.dumps(value))


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
