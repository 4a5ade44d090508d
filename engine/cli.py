"""`python -m engine COMMAND`: the same engine without a browser.

Progress goes to stderr, `--json` puts the record on stdout. Exit 0 done, 1 refused input (one clear
line), 2 usage.
"""

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

import typer

from engine.commands import experts, layers, line, matching, models, pairs, pruning
from engine.errors import Interrupted, Refused

INTERRUPTED, TERMINATED = 130, 143
"""The exit codes after Ctrl-C and after SIGTERM."""
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
    with stoppable() as stopped:
        code = ended(sys.argv[1:] if arguments is None else arguments)
    return TERMINATED if stopped and code == INTERRUPTED else code


def ended(arguments: list[str]) -> int:
    """The exit code of a command, and on stderr the line that says why it is not 0."""
    try:
        require_values(arguments)
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


def require_values(arguments: Sequence[str]) -> None:
    """Refused for an option with an empty value, which would mean what is usual, or everything."""
    for word, value in pairwise([*arguments, "end"]):
        name, given, rest = word.partition("=")
        if word.startswith("--") and ((given and not rest) or not value):
            raise Refused(
                f"{name} names nothing: its value is empty; leave it out for what is usual, or "
                "look at the variable that was to fill it."
            )


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """While active SIGTERM stops as Ctrl-C does, once; the signals that came."""
    came: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what was begun is being cleaned up
        came.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # no other may set a handler
        yield came
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)
