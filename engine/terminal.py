"""What commands do with a question and its record: solve, keep, print, write."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import typer
from tqdm import tqdm

from engine.costs import Cost
from engine.errors import Progress, Refused
from engine.exports.documents import made, written
from engine.prepared import SUFFIXES, is_prepared
from engine.questions import Match, Question
from engine.records import ResidualMatch, named_arrays, plain
from engine.store import Store, default_root

T = TypeVar("T")
HUB = "hf:"
"""Before the name of a data set of the Hugging Face hub."""


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
        staged.write_text(written(document, indent), encoding="utf-8")
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


def save_match(asked: Match, record: ResidualMatch, out: Path) -> None:
    """Every matrix and matching as `.npz`, or the numbers without the matrices as `.json`."""
    if out.suffix == ".json":
        save_json(made(plain(record, arrays=False), asked), out, 1)
        return
    found = {
        f"{kind}_{what}": np.stack([getattr(one, what) for one in matchings])
        for kind, matchings in (("absolute", record.absolute), ("signed", record.signed))
        for what in ("permutation", "sign", "score", "margin", "mutual")
    }
    found |= {"correlation": record.correlation, "depths": np.array(record.depths)}
    _save(found, out)


def save_arrays(record: Any, out: Path) -> None:
    """Every array of a record as `.npz`, those inside a part with its name in front."""
    _save(named_arrays(record), out)


def _save(arrays: Mapping[str, np.ndarray], out: Path) -> None:
    """Numbers alone: nothing that a reader would have to run."""
    with _written(out):
        np.savez_compressed(out, allow_pickle=False, **arrays)


def one_of(text: str, tokens: str, inputs: str = "") -> str:
    """The file that --text, --tokens or --inputs names; two of them are wrong usage."""
    if sum((bool(tokens), bool(inputs), text != "default")) > 1:
        raise typer.BadParameter("give one of --text, --tokens and --inputs")
    if text.startswith(HUB):
        return fetched(text.removeprefix(HUB))
    if inputs and not is_prepared(inputs):
        ends = " or ".join(SUFFIXES)
        raise Refused(f"--inputs {inputs}: the name must end in {ends}; a text is for --text.")
    if tokens and not tokens.endswith(".json"):
        raise Refused(f"--tokens {tokens}: the name must end in .json; a text is for --text.")
    return inputs or tokens or text


def fetched(name: str) -> str:
    """The first text file of a data set of the hub, downloaded; Refused as `engine.datasets`."""
    from engine import datasets  # noqa: PLC0415 (needed by few)

    file, path = watched(lambda progress: datasets.download(name, datasets.LARGEST, progress))
    typer.echo(f"text: {file} of {name}", err=True)
    return str(path)


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
    """Run with a progress bar on stderr (none where it is no terminal); `partial` takes results.

    What the run will cost is a line there, as soon as the first models have been timed.
    """
    bar = tqdm(total=100, file=sys.stderr, disable=None, leave=False, bar_format="{l_bar}{bar}|")
    with bar:

        def progress(share: float, step: str, found: Any = None, /) -> None:
            if found is not None and partial is not None:
                partial(found)
            if isinstance(step, Cost):
                tqdm.write(step, file=sys.stderr)
            else:
                bar.set_description_str(step, refresh=False)
            bar.update(max(100 * share - bar.n, 0))

        return work(progress)


def say(lines: Iterable[str]) -> None:
    """Lines for people."""
    for line in lines:
        typer.echo(line)


def emit(value: Any) -> None:
    """One JSON document for machines."""
    typer.echo(written(value))
