"""What `make_lmc` measures and has measured: its settings, and the file that grows."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets.lmc_lines import IMAGES, STAGES, rounded
from engine.errors import Refused
from engine.questions import Using

POINTS, TOKENS = 25, 2048
SWEEPS = 2
"""Of the alignment of whole models; inside one scope nothing else is free and one pass does."""
ORDERED = 5
"""Points of the line on which each order of the heads is tried."""
LEFT_OUT = (
    "A vision transformer with rotary positions: the program has no table for one.",
    "Every order of the heads of GPT-2 and BERT: their six heads have 720, and 72 are tried.",
)
PAIRS = 3
"""Of every architecture and scope."""
USING: tuple[Using, ...] = ("weights", "activations")
"""What layers are matched by; whole models, whose residual coordinates are free, by weights."""
SETTINGS: Mapping[str, Any] = {
    "stages": STAGES, "points": POINTS, "adaptive": False, "tokens": TOKENS, "images": IMAGES,
    "using": [*USING], "sweeps of whole models": SWEEPS, "points of an order": ORDERED,
    "interval": "95 %, bootstrap over windows or images, the same for both stages",
}  # fmt: skip


def place(name: str, scope: str, using: str) -> str:
    """What three pairs are measured of."""
    return f"{name}: {scope} by {using}"


def ways(scope: str) -> tuple[Using, ...]:
    """What the layers of a scope are matched by, one way after the other."""
    return USING[: 1 if scope == "whole" else 2]


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
        done = [place(one["architecture"], one["scope"], one["using"]) for one in self.pairs]
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
