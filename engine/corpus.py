"""Text: an unlimited seeded generator for the demo models, bundled files, equal token windows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from pydoc_data.topics import topics
from random import Random
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine import drills, village
from engine.village import Question

TEXT = Path(__file__).resolve().parent.parent / "assets" / "text"
UNKNOWN, START = "<unk>", "<s>"
LETTERS, EDGE = 8, 64
"""Letters that a token hardly has on the mean, and tokens at the end of a part of a text that are
dropped."""

GENRES: Mapping[str, Callable[[Random], str]] = MappingProxyType(
    {
        "story": village.story,
        "sums": drills.sums,
        "brackets": drills.brackets,
        "rhymes": drills.rhymes,
        "agreement": drills.agreement,
        "counting": drills.counting,
        "mirrors": drills.mirrors,
        "trading": drills.trading,
    }
)

VILLAGE: Mapping[str, float] = MappingProxyType(
    {
        "story": 0.66,
        "sums": 0.06,
        "brackets": 0.06,
        "rhymes": 0.05,
        "agreement": 0.05,
        "counting": 0.06,
        "mirrors": 0.03,
        "trading": 0.03,
    }
)
MIXES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "village": VILLAGE,
        "market": MappingProxyType({"trading": 0.6, "story": 0.4}),
        "drills": MappingProxyType(
            {"mirrors": 0.4, "sums": 0.2, "brackets": 0.2, "rhymes": 0.1, "counting": 0.1}
        ),
    }
)


def documents(seed: int, genres: Mapping[str, float] = VILLAGE) -> Iterator[str]:
    """Documents without end, each of a genre drawn by weight; the same seed, the same text.

    Raises ValueError on a genre that does not exist.
    """
    unknown = sorted(set(genres) - set(GENRES))
    if unknown:
        raise ValueError(
            f"genres: {', '.join(GENRES)} exist, found {', '.join(unknown)}: rename or drop them"
        )
    return _documents(Random(f"documents {seed}"), genres)


def _documents(rng: Random, genres: Mapping[str, float]) -> Iterator[str]:
    names, weights = list(genres), list(genres.values())
    while True:
        (name,) = rng.choices(names, weights)
        yield GENRES[name](rng)


def questions(seed: int, count: int) -> Iterator[Question]:
    """`count` held-out prompts, `who` and `where` in turn, from a stream of their own."""
    rng = Random(f"questions {seed}")
    for index in range(count):
        yield village.question("who" if index % 2 == 0 else "where", rng)


def vocabulary() -> tuple[str, ...]:
    """Every word that the generator can write, after the unknown and the start token."""
    drilled = chain(
        drills.NUMBERS,
        drills.BRACKETS,
        drills.BRACKETS.values(),
        drills.COLOURS,
        _both(drills.ANIMALS + drills.GOODS, drills.plural),
        _both(drills.VERBS, drills.third),
        drills.NEAR,
        drills.CARE,
        drills.KEPT,
        chain.from_iterable(drills.RHYMES),
        drills.WORDS,
    )
    told = chain(village.WORDS, village.PEOPLE, village.PLACES, village.OBJECTS)
    return tuple(dict.fromkeys(chain((UNKNOWN, START), told, drilled)))


def _both(words: Iterable[str], inflect: Callable[[str], str]) -> Iterator[str]:
    return chain.from_iterable((word, inflect(word)) for word in words)


def bundled(split: Literal["calibration", "evaluation"]) -> str:
    """The English text that ships with the project, for models with a vocabulary of their own."""
    return (TEXT / f"{split}.txt").read_text(encoding="utf-8")


def natural() -> Iterator[str]:
    """The bundled calibration text, then CPython's own topics (65,000 words) for longer runs."""
    yield bundled("calibration")
    yield from topics.values()


def windows(
    encode: Callable[[str], Sequence[int]],
    texts: Iterable[str],
    count: int,
    length: int,
    separator: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Encoded texts end to end, `separator` before each, cut into equal windows: [count, length].

    Reads only as much as it needs. Raises ValueError when the texts run out first.
    """
    needed, tokens = count * length, list[int]()
    for text in texts:
        tokens += [*separator, *beginning(encode, text, needed - len(tokens))]
        if len(tokens) >= needed:
            break
    if len(tokens) < needed:
        raise ValueError(
            f"text: {count} windows of {length} tokens need {needed} tokens, found {len(tokens)}: "
            "give a longer text, or ask for fewer or shorter windows"
        )
    return np.array(tokens[:needed], dtype=np.int64).reshape(count, length)


def beginning(encode: Callable[[str], Sequence[int]], text: str, count: int) -> Sequence[int]:
    """At least the first `count` tokens of a text, or all: no more of it is encoded than it takes.

    A part ends where a line does, and its last `EDGE` tokens, which may depend on what comes after
    it, are not counted on.
    """
    size = LETTERS * (count + EDGE)
    while size < len(text):
        found = encode(text[: text.find("\n", size) + 1 or size])
        if len(found) >= count + EDGE:
            return found[:-EDGE]
        size *= 2
    return encode(text)
