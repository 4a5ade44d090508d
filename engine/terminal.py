"""What commands do with a question and its record: solve, keep, print, write."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import typer
from tqdm import tqdm

from engine.errors import Progress, Refused
from engine.questions import Question
from engine.records import ResidualMatch, named_arrays, plain
from engine.store import Store, default_root

T = TypeVar("T")


def new_file(out: Path, *suffixes: str) -> None:
    """Refused, before any work, unless a file of this name can be made."""
    if out.suffix not in suffixes:
        ends = " or ".join(suffixes)
        raise Refused(f"--out {out}: the name must end in {ends}, found {out.suffix!r}.")
    with _written(out):
        if out.exists():
            raise Refused(f"--out {out} exists: give a new file.")
        out.parent.mkdir(parents=True, exist_ok=True)
        staged = _staged(out)
        staged.touch()
        staged.unlink()


def save_json(document: Any, out: Path, indent: int | None = None) -> None:
    """A document in one step: a reader finds the whole of it, or what stood there before."""
    with _written(out):
        staged = _staged(out)
        staged.write_text(json.dumps(document, indent=indent), encoding="utf-8")
        staged.replace(out)


def _staged(out: Path) -> Path:
    return out.with_name(f".{out.name}")


@contextmanager
def _written(out: Path) -> Iterator[None]:
    """What the system says against a file becomes a refusal."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise Refused(f"--out {out} cannot be written ({why}): give another place.") from error


def save_match(record: ResidualMatch, out: Path) -> None:
    """Every matrix and matching as `.npz`, or the numbers without the matrices as `.json`."""
    if out.suffix == ".json":
        save_json(plain(record, arrays=False), out, 1)
        return
    found = {
        f"{kind}_{what}": np.stack([getattr(one, what) for one in matchings])
        for kind, matchings in (("absolute", record.absolute), ("signed", record.signed))
        for what in ("permutation", "sign", "score", "margin", "mutual")
    }
    found |= {"correlation": record.correlation, "depths": np.array(record.depths)}
    with _written(out):
        np.savez_compressed(out, allow_pickle=False, **found)


def save_arrays(record: Any, out: Path) -> None:
    """Every array of a record as `.npz`, those inside a part with its name in front."""
    with _written(out):
        np.savez_compressed(out, allow_pickle=False, **named_arrays(record))


def one_of(text: str, tokens: str) -> str:
    """The file that --text or --tokens names; both together are wrong usage."""
    if tokens and text != "default":
        raise typer.BadParameter("give --text or --tokens, not both")
    if tokens and not tokens.endswith(".json"):
        raise Refused(f"--tokens {tokens}: the name must end in .json; a text is for --text.")
    return tokens or text


def listed(words: str, option: str) -> tuple[str, ...]:
    """The words of a comma-separated option; Refused for commas alone, which would mean all."""
    found = tuple(word.strip() for word in words.split(",") if word.strip())
    if words and not found:
        raise Refused(f"{option} names nothing in {words!r}: leave it out for what is usual.")
    return found


def solve(question: Question, kind: type[T]) -> T:
    """A fresh answer, kept for the app, with progress on stderr."""
    record = keep(question, watched(question.answer))
    assert isinstance(record, kind)
    return record


def keep(question: Question, record: T) -> T:
    """Put an answer where the app finds it."""
    Store(default_root()).put(question.key, record)
    return record


def watched(work: Callable[[Progress], T], partial: Callable[[Any], None] | None = None) -> T:
    """Run with a progress bar on stderr (none where it is no terminal); `partial` takes results."""
    bar = tqdm(total=100, file=sys.stderr, disable=None, leave=False, bar_format="{l_bar}{bar}|")
    with bar:

        def progress(share: float, step: str, found: Any = None, /) -> None:
            if found is not None and partial is not None:
                partial(found)
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
