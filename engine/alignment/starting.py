"""What became of the starts of sweeps: which were left out, and which ended before the limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Why = Literal["near", "known", "still", "flat"]
WORDS: dict[Why, str] = {
    "near": "Not tried, since a descent before them had ended near A: {}.",
    "known": "Left out, since another descent went through their residual coordinates: {}.",
    "still": "Ended before {limit} sweeps, since the residual coordinates stood still: {}.",
    "flat": "Ended before {limit} sweeps, since the objective fell no further: {}.",
}


@dataclass(frozen=True)
class Fate:
    """One start that had no sweeps, or fewer than it might."""

    start: str
    why: Why
    sweeps: int = 0
    other: str = ""  # the start whose descent was there

    @property
    def told(self) -> str:
        """The start with what is known of it."""
        more = {"known": f" (that from {self.other})", "near": ""}
        return self.start + more.get(self.why, f" after {self.sweeps}")


def sentences(fates: Sequence[Fate], limit: int) -> Iterator[str]:
    """One sentence for each reason, the starts in order."""
    for why, words in WORDS.items():
        if found := [fate.told for fate in fates if fate.why == why]:
            yield words.replace("{limit}", str(limit)).format(", ".join(found))
