"""`python -m engine COMMAND`: the same engine without a browser.

Progress goes to stderr, `--json` puts the record on stdout. Exit 0 done, 1 refused input (one clear
line), 2 usage.
"""

import typer

from engine.commands import experts, layers, line, matching, models, pairs, pruning
from engine.errors import Interrupted, Refused

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
COMMANDS = (
    models.inspect,
    models.scramble,
    pairs.related,
    pairs.align,
    matching.match,
    pairs.heads,
    pairs.turn,
    experts.experts,
    models.lab,
    layers.layers,
    layers.cut,
    pruning.prune,
    layers.continuation,
    layers.gap,
    line.barrier,
    line.merge,
    line.line,
    line.slice_,
    line.orders,
)
"""Every command, in the order in which --help lists them."""
NAMES = {"continuation": "continue", "slice_": "slice"}
"""Commands that are called by a word of Python."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Symmetries of transformer checkpoints. MODEL is a folder, hf:owner/name, a .gguf file, "
    "demo:NAME or smollm2.",
)
for command in COMMANDS:
    app.command(NAMES.get(command.__name__))(command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        app(args=arguments)
    except Refused as error:
        typer.echo(str(error), err=True)
        return 1
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        return INTERRUPTED
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            typer.echo("Interrupted: nothing was written.", err=True)
        return int(stop.code or 0)
    return 0
