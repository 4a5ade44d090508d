"""The two ways in which the engine stops on purpose, and the callback that reports progress."""

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""`progress(share, step)`: share done in [0, 1] and the step in words. It may raise `Cancelled`."""


class Refused(Exception):
    """Input that the engine will not work on: one line with what, declared, found, what to do."""


class Cancelled(Exception):
    """Raised by a progress callback to ask the engine to stop; nothing was mutated."""


def silent(share: float, step: str) -> None:
    """A progress callback that reports nowhere and never stops."""


def part(progress: Progress, low: float, high: float) -> Progress:
    """The callback for one step of a longer job: its share in [0, 1] becomes one in [low, high]."""
    return lambda share, step: progress(low + (high - low) * share, step)
