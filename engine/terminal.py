"""What commands do with a question and its record: solve, keep, print, write."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import typer
from tqdm import tqdm

from engine.errors import Progress, Refused
from engine.questions import Question
from engine.records import ResidualMatch, plain
from engine.store import Store, default_root

T = TypeVar("T")


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
    """The words of a comma-separated option; Refused for commas alone, which would mean all."""
    found = tuple(word.strip() for word in words.split(",") if word.strip())
    if words and not found:
        raise Refused(f"--only names nothing in {words!r}: leave it out for every coordinate.")
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
