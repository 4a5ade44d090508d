"""The ways in which the engine stops on purpose, and the callback that reports progress."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """`progress(share, step)`: share done in [0, 1] and the step in words; may raise `Cancelled`.

    Long work also hands over what it has so far: a record that says of itself it is not complete.
    """

    def __call__(self, share: float, step: str, partial: Any = None, /) -> None: ...


class Refused(Exception):
    """Input that the engine will not work on: one line with what, declared, found, what to do."""


class Short(Refused):
    """Refused for want of memory: another time more may be free."""


class Brief(Refused):
    """Refused for a text with fewer tokens than were asked for: fewer may do."""


class Cancelled(Exception):
    """Raised by a progress callback to ask the engine to stop; nothing was mutated."""


class Interrupted(Exception):
    """Ctrl-C after a part of an answer was written: one line that says where it is."""


def silent(share: float, step: str, partial: Any = None, /) -> None:
    """A progress callback that reports nowhere and never stops."""


def part(progress: Progress, low: float, high: float) -> Progress:
    """The callback for one step of a longer job: its share in [0, 1] becomes one in [low, high]."""

    def inner(share: float, step: str, partial: Any = None, /) -> None:
        progress(low + (high - low) * share, step, partial)

    return inner


def forward(progress: Progress) -> Progress:
    """The callback with a share that never goes back."""
    most = 0.0

    def inner(share: float, step: str, partial: Any = None, /) -> None:
        nonlocal most
        most = max(most, share)
        progress(most, step, partial)

    return inner


def out_of_memory(error: BaseException) -> bool:
    """Python's own, torch's on an accelerator, or torch's allocator on the processor."""
    text = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "out of memory" in text or "can't allocate memory" in text
