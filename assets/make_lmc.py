"""Barriers between models trained from different seeds: `python -m assets.make_lmc`.

Four scopes of what was drawn anew, five architectures, at least three pairs of seeds each; Stage 2
none, orthogonal and full relative to the naive line, and, for heads that are few, the barrier of
every order. The decoder with rotations is the demo's; the others are trained in a temporary folder
first. `assets/results/lmc.json` is written after every pair and lists what is still missing.

`--resume` keeps the pairs that the file holds and measures those that it lacks.

After Tran et al. 2026, arXiv 2606.17830. One core; the file says how many seconds it took.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from app.charts import reproductions as charts
from app.sentences import reproductions as sentences
from assets import lmc_models, shapes
from assets.lmc_lines import (
    IMAGES,
    STAGES,
    barriers,
    described,
    every_order,
    labelled,
    ordered,
    rounded,
)
from assets.lmc_models import KINDS, Kind
from engine import reproduction
from engine.attention.orders import TRIED, count
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Refused
from engine.line.exam import Exam
from engine.questions import Barrier, Orders
from engine.records import SCOPES

OUT = Path(__file__).resolve().parent / "results" / "lmc.json"
POINTS, TOKENS = 25, 2048
SWEEPS = 2
"""Of the alignment of whole models; inside one scope nothing else is free and one pass does."""
ORDERED = 5
"""Points of the line on which each order of the heads is tried."""
SEEDS = (301, 302, 303)
LLAMA = {
    **{scope: tuple(f"scope-{scope}-{n}" for n in (1, 2, 3)) for scope in SCOPES[:3]},
    "whole": ("seed-1", "seed-2", "seed-3"),
}
LEFT_OUT = (
    "A vision transformer with rotary positions: the program has no table for one.",
    "Every order of the heads of GPT-2 and BERT: their six heads have 720, and 72 are tried.",
)
PAIRS = 3
"""Of every architecture and scope."""
SETTINGS: Mapping[str, Any] = {
    "stages": STAGES, "points": POINTS, "adaptive": False, "tokens": TOKENS, "images": IMAGES,
    "using": "weights", "sweeps of whole models": SWEEPS, "points of an order": ORDERED,
    "interval": "95 %, bootstrap over windows or images, the same for both stages",
}  # fmt: skip


def log(line: str) -> None:
    """Progress goes to standard error, with the time of day."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


@dataclass
class Book:
    """What was measured so far. It changes as it grows, and is on disk after every entry."""

    path: Path
    planned: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)
    architectures: dict[str, dict[str, Any]] = field(default_factory=dict)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    before: float = 0.0  # seconds that its pairs took in earlier runs

    @classmethod
    def resumed(cls, path: Path, planned: tuple[str, ...]) -> "Book":
        """What a file holds, to go on from. Errors: Refused for one of other settings."""
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["settings"] != SETTINGS:
            raise Refused(f"{path.name} was measured with other settings: leave out --resume.")
        kept = {word: held[word] for word in ("architectures", "pairs", "orders")}
        return cls(path, planned, **kept, before=held["seconds"])

    @property
    def missing(self) -> dict[str, int]:
        """How many pairs are missing, by architecture and scope where some are."""
        done = [f"{one['architecture']}: {one['scope']}" for one in self.pairs]
        left = {what: PAIRS - done.count(what) for what in self.planned}
        return {what: count for what, count in left.items() if count > 0}

    def holds(self, head: Mapping[str, str]) -> bool:
        """Whether a pair of an architecture and a scope was measured."""
        return any(head.items() <= one.items() for one in self.pairs)

    def write(self) -> None:
        """The file as it is now, with what is missing."""
        head = {
            "command": "python -m assets.make_lmc",
            "settings": SETTINGS,
            "seconds": rounded(self.before + time.monotonic() - self.began),
            "missing": [f"{what}: {n} of {PAIRS} pairs" for what, n in self.missing.items()],
            "left out": LEFT_OUT,
            "architectures": self.architectures,
        }
        rows = {"pairs": self.pairs, "orders": self.orders}
        parts = [json.dumps(head, indent=1, ensure_ascii=False)[:-2]]
        for name, entries in rows.items():
            lines = ",\n  ".join(json.dumps(one, separators=(",", ":")) for one in entries)
            parts.append(f'"{name}": [\n  {lines}\n ]')
        written = self.path.with_suffix(".part")
        written.write_text(",\n ".join(parts) + "\n}\n", encoding="utf-8")
        written.replace(self.path)


def enter(
    book: Book, name: str, scope: str, models: Mapping[str, str], length: int, exam: Exam | None
) -> None:
    """Every pair of some models (name → how they open), and where heads are few all orders."""
    for first, second in combinations(models, 2):
        head = {"architecture": name, "scope": scope, "a": first, "b": second}
        if book.holds(head):
            continue
        a, b = (open_checkpoint(models[one]) for one in (first, second))
        asked = Barrier(
            models[first], models[second], points=POINTS, stages=tuple(STAGES.values()),
            scope=scope, adaptive=False, sweeps=SWEEPS if scope == "whole" else 0, tokens=TOKENS,
            length=length, device="cpu",
        )  # fmt: skip
        row = described(barriers(a, b, asked, exam))
        book.pairs.append({**head, **row})
        log(f"{name}, {scope}, {first} to {second}: {row['relative']}, {row['seconds']} s")
        if scope == "first-attention" and few(a):
            tried = Orders(asked.a, asked.b, 0, ORDERED, tokens=TOKENS, length=length, device="cpu")
            book.orders.append({**head, **ordered(every_order(a, b, tried, exam))})
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
        enter(book, "llama", scope, {one: f"demo:{one}" for one in names}, 128, None)


POSITIONS = {"gpt2": "absolute", "vit": "absolute", "bert": "absolute", "modernbert": "rotary"}


def made(book: Book, name: str, kind: Kind, folder: Path) -> None:
    """One of the others: trained scope by scope, measured as soon as three models stand."""
    left = [scope for scope in SCOPES if f"{name}: {scope}" in book.missing]
    if not left:
        return
    notes = noted(name, kind)
    notes["models"] |= book.architectures.get(name, {}).get("models", {})
    book.architectures[name] = notes
    exam = labelled() if kind.asked == "class" else None
    shop = Workshop(name, kind, folder, notes)
    # Where nothing ships, the scopes begin from the first whole model.
    wanted = kind.steps and ("whole" in left or not kind.demo)
    whole = dict(shop.whole(seed) for seed in (SEEDS if wanted else ()))
    for number, scope in enumerate(SCOPES[:3], 1):
        if scope in left:
            models = dict(shop.redrawn(scope, seed, number) for seed in SEEDS)
            enter(book, name, scope, models, kind.length, exam)
    enter(book, name, "whole", whole, kind.length, exam)


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
        yield from (f"{name}: {scope}" for scope in (SCOPES if whole else SCOPES[:3]))


def table(path: Path = OUT) -> str:
    """The measured ratios as a table in Markdown, with its exceptions, for the README."""
    found = reproduction.measured(path)
    rows = charts.table(found)
    head = "| " + " | ".join(rows.columns) + " |"
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows.itertuples(index=False)]
    rule = "|---" * len(rows.columns) + "|"
    return "\n".join([head, rule, *lines, "", sentences.exceptions(found)]).rstrip()


def main(words: Iterable[str] | None = None) -> None:
    """All architectures, or those that are asked for."""
    parser = argparse.ArgumentParser(description="Measure barriers into assets/results/lmc.json.")
    every = ("llama", *KINDS)
    parser.add_argument("--only", nargs="+", choices=every, default=list(every))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", action="store_true", help="keep what the file holds")
    parser.add_argument("--table", action="store_true", help="print the README's table, no more")
    asked = parser.parse_args(None if words is None else list(words))
    if asked.table:
        print(table(asked.out))
        return
    torch.set_num_threads(1)
    book = (
        Book.resumed(asked.out, tuple(planned(every)))
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
