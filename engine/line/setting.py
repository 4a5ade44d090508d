"""Two models, checked, on what they are asked, and the work of aligning them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from engine.checkpoint import Checkpoint, open_folder
from engine.errors import Refused
from engine.line.ends import Ends, ends
from engine.line.gauges import Aligned, Work
from engine.line.scopes import equal_outside, scope
from engine.scramble import scramble


class Asked(Aligned, Protocol):
    """What a question says of a line."""

    @property
    def scope(self) -> str: ...
    @property
    def scrambled(self) -> bool: ...
    @property
    def dtype(self) -> str: ...


@contextmanager
def work(a: Checkpoint, b: Checkpoint, asked: Asked, measured: int = 0) -> Iterator[Work]:
    """Both ends of the line that a question asks for; a scrambled B is on disk meanwhile.

    `measured`: tokens that no refinement may read. Errors: Refused for a scrambled B of
    which only a part moves, for sweeps over layers that are matched by what they do, and as for
    `engine.line.ends.ends` and `scope`.
    """
    if asked.scrambled and asked.scope != "whole":
        raise Refused(
            f"--scrambled moves every tensor of B, and --scope {asked.scope} only some: leave one "
            "of them out."
        )
    inside = scope(a, asked.scope)
    with hidden(b, asked.seed, scrambled=asked.scrambled) as other:
        both = ends(a, other, inside, device=asked.device, dtype=asked.dtype)
        found = Work(both, asked, shared=shared(both), measured=measured)
        if found.shared and found.partly and asked.sweeps and asked.using == "activations":
            raise Refused(
                f"--sweeps {asked.sweeps} would match layers by their weights, and --using "
                "activations asks for what they do: leave one of them out."
            )
        yield found


def shared(both: Ends) -> bool:
    """Whether the end of the line computes what B does: nothing differs where nothing moves."""
    return equal_outside(both.a, both.b, both.inside)


@contextmanager
def hidden(b: Checkpoint, seed: int, *, scrambled: bool) -> Iterator[Checkpoint]:
    """B, or B under a random gauge in a folder that goes again."""
    if not scrambled:
        yield b
        return
    with tempfile.TemporaryDirectory() as folder:
        scramble(b, Path(folder) / "b", seed)
        yield open_folder(Path(folder) / "b", b.name)
