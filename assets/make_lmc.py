"""Barriers between models trained from different seeds: `python -m assets.make_lmc`.

Four scopes of what was drawn anew, five architectures, at least three pairs of seeds each; Stage 2
none, orthogonal and full relative to the naive line, and, for heads that are few, the barrier of
every order. Layers are matched by their weights, as published, and by what they do. The decoder
with rotations is the demo's; the others are trained in a temporary folder first.
`assets/results/lmc.json` is written after every pair and lists what is still missing.

`--resume` keeps the pairs that the file holds and measures those that it lacks.

After Tran et al. 2026, arXiv 2606.17830. One core; the file says how many seconds it took.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from app.charts import reproductions as charts
from app.sentences import reproductions as sentences
from assets import lmc_models, shapes
from assets.lmc_book import ORDERED, POINTS, SWEEPS, TOKENS, Book, place, ways
from assets.lmc_lines import (
    STAGES,
    barriers,
    described,
    kept,
    labelled,
    ordered,
    rounded,
)
from assets.lmc_models import KINDS, Kind
from engine import reproduction
from engine.attention.counting import TRIED, count
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.line.exam import Exam
from engine.line.head_orders import every
from engine.questions import Barrier, Orders
from engine.records import SCOPES

OUT = Path(__file__).resolve().parent / "results" / "lmc.json"
SEEDS = (301, 302, 303)
LLAMA = {
    **{scope: tuple(f"scope-{scope}-{n}" for n in (1, 2, 3, 4)) for scope in SCOPES[:3]},
    "whole": ("seed-1", "seed-2", "seed-3"),
}


def log(line: str) -> None:
    """Progress goes to standard error, with the time of day."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Ground:
    """On what the models of one architecture are measured."""

    length: int  # tokens of a window
    exam: Exam | None = None  # instead of the text
    text: str = "default"  # what activations are taken from


def enter(book: Book, name: str, scope: str, models: Mapping[str, str], on: Ground) -> None:
    """Every pair of some models (name → how they open), and where heads are few all orders."""
    for first, second in combinations(models, 2):
        for using in ways(scope):
            head = {"architecture": name, "scope": scope, "using": using, "a": first, "b": second}
            if book.holds(head):
                continue
            asked = Barrier(
                models[first], models[second], points=POINTS, stages=tuple(STAGES.values()),
                scope=scope, adaptive=False, sweeps=SWEEPS if scope == "whole" else 0,
                tokens=TOKENS, length=on.length, using=using, text=on.text, device="cpu",
            )  # fmt: skip
            a, b = (open_checkpoint(models[one]) for one in (first, second))
            row = described(barriers(a, b, asked, on.exam))
            book.pairs.append({**head, **row})
            log(f"{', '.join(head.values())}: {row['relative']}, {row['seconds']} s")
            if scope == "first-attention" and few(a):
                tried = Orders(
                    asked.a, asked.b, 0, ORDERED, tokens=TOKENS, length=on.length, using=using,
                    text=on.text, device="cpu",
                )  # fmt: skip
                book.orders.append({**head, **ordered(every(a, b, tried, given=on.exam))})
            book.write()


def few(a: Checkpoint) -> bool:
    """Whether every order of a layer's heads is tried."""
    sizes = a.family.sizes(a.config)
    return count(sizes["grp"], sizes.get("head", 1)) <= TRIED


def shipped(book: Book) -> None:
    """The demo's decoder with rotations."""
    book.architectures["llama"] = {
        "kind": "decoder", "positions": "rotary", "asked": "next token",
        "data": "generated text (village)", "layers": 6, "width": 96, "heads": 6,
        "trained": "assets/demo/record.json",
    }  # fmt: skip
    for scope, names in LLAMA.items():
        enter(book, "llama", scope, {one: f"demo:{one}" for one in names}, Ground(128))


POSITIONS = {"gpt2": "absolute", "vit": "absolute", "bert": "absolute", "modernbert": "rotary"}


def made(book: Book, name: str, kind: Kind, folder: Path) -> None:
    """One of the others: trained scope by scope, measured as soon as three models stand."""
    left = [s for s in SCOPES if any(place(name, s, using) in book.missing for using in ways(s))]
    if not left:
        return
    notes = noted(name, kind)
    notes["models"] |= book.architectures.get(name, {}).get("models", {})
    book.architectures[name] = notes
    on = Ground(kind.length)
    if kind.asked == "class":
        on = Ground(kind.length, labelled(), kept(folder))
    shop = Workshop(name, kind, folder, notes)
    # Where nothing ships, the scopes begin from the first whole model.
    wanted = kind.steps and ("whole" in left or not kind.demo)
    whole = dict(shop.whole(seed) for seed in (SEEDS if wanted else ()))
    for number, scope in enumerate(SCOPES[:3], 1):
        if scope in left:
            models = dict(shop.redrawn(scope, seed, number) for seed in SEEDS)
            enter(book, name, scope, models, on)
    enter(book, name, "whole", whole, on)


def noted(name: str, kind: Kind) -> dict[str, Any]:
    """What the file says of one architecture, before any model of it was trained."""
    notes: dict[str, Any] = {
        "kind": "decoder" if kind.asked == "next token" else "encoder",
        "positions": POSITIONS[name], "asked": kind.asked, "data": kind.data, "layers": 3,
        "width": 48, "heads": 6 if kind.demo else 4,
        "base": f"demo:{kind.demo}" if kind.demo else f"{name}-{SEEDS[0]}",
        "rows of a step": kind.rows,
        "rate": kind.rate, "steps": {"whole": kind.steps, "scope": kind.redrawn}, "models": {},
    }  # fmt: skip
    if kind.course is not None:
        notes["whole"] = {
            "optimizer": "Muon", "rate": kind.course.rate,
            "words at once, steps": kind.course.pieces,
        }  # fmt: skip
    return notes


@dataclass(frozen=True)
class Workshop:
    """Where the models of one architecture are trained, and what is noted of each."""

    name: str
    kind: Kind
    folder: Path
    notes: dict[str, Any]

    def whole(self, seed: int) -> tuple[str, str]:
        """A model from nothing: its name, and the folder that it opens from."""
        start = shapes.drawn(self.kind.shape, seed)
        return self._trained(f"{self.name}-{seed}", start, seed, self.kind.steps, None)

    @cached_property
    def start(self) -> PreTrainedModel:
        """What the scopes begin from: a shipped model, or the first whole one."""
        whole = self.folder / f"{self.name}-{SEEDS[0]}"
        return lmc_models.base(self.kind) or lmc_models.opened(self.kind, whole)

    def redrawn(self, scope: str, seed: int, number: int) -> tuple[str, str]:
        """The start with one scope drawn anew, and that scope alone trained."""
        names = [one for one, _ in self.start.named_parameters() if self.kind.holds(scope, one)]
        drawn = 100 * number + seed
        fresh = lmc_models.redrawn(self.kind, self.start, names, drawn)
        word = f"{self.name}-{scope}-{seed}"
        return self._trained(word, fresh, drawn, self.kind.redrawn, names)

    def _trained(
        self, word: str, start: PreTrainedModel, seed: int, steps: int, only: Sequence[str] | None
    ) -> tuple[str, str]:
        began = time.monotonic()
        model, loss = lmc_models.train(start, self.kind, seed, steps, only)
        lmc_models.save(model, self.kind, self.folder / word)
        seconds = rounded(time.monotonic() - began)
        self.notes["models"][word] = {
            "seed": seed, "train_loss": rounded(loss), "seconds": seconds,
        }  # fmt: skip
        log(f"{word}: loss {loss:.3f}, {seconds} s")
        return word, str(self.folder / word)


def planned(names: Iterable[str]) -> Iterator[str]:
    """What a complete file holds three pairs of."""
    for name in names:
        whole = name == "llama" or KINDS[name].steps
        for scope in SCOPES if whole else SCOPES[:3]:
            yield from (place(name, scope, using) for using in ways(scope))


def table(path: Path = OUT) -> str:
    """The measured ratios as a table in Markdown, with its exceptions, for the README."""
    found = reproduction.measured(path)
    rows = charts.table(found)
    head = "| " + " | ".join(rows.columns) + " |"
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows.itertuples(index=False)]
    rule = "|---" * len(rows.columns) + "|"
    return "\n".join(
        [head, rule, *lines, "", sentences.exceptions(found), sentences.paired(found)]
    ).rstrip()


def main(words: Iterable[str] | None = None) -> None:
    """All architectures, or those that are asked for."""
    parser = argparse.ArgumentParser(description="Measure barriers into assets/results/lmc.json.")
    names = ("llama", *KINDS)
    parser.add_argument("--only", nargs="+", choices=names, default=list(names))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", action="store_true", help="keep what the file holds")
    parser.add_argument("--table", action="store_true", help="print the README's table, no more")
    asked = parser.parse_args(None if words is None else list(words))
    if asked.table:
        print(table(asked.out))
        return
    torch.set_num_threads(1)
    book = (
        Book.resumed(asked.out, tuple(planned(names)))
        if asked.resume
        else Book(asked.out, tuple(planned(asked.only)))
    )
    for name in asked.only:
        if name == "llama":
            shipped(book)
            continue
        with tempfile.TemporaryDirectory() as folder:
            made(book, name, KINDS[name], Path(folder))
    book.write()


if __name__ == "__main__":
    main()
