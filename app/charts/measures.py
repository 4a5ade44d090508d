"""Measured values with their intervals: ratios, rises of perplexity, and both in few characters."""

from dataclasses import dataclass

import numpy as np

from app.charts.theme import QUIET, TRUTH
from app.sentences.numbers import number
from engine.records import WINDOWS, Measure, Readings

FEW = f"no interval: fewer than {WINDOWS} windows"
LARGEST = 50.0
"""Nats above the base's loss beyond which a perplexity is drawn no higher."""
COLOURS = {
    "swap": "#0072B2", "replace": "#D55E00", "influence": "#009E73", "angular": "#CC79A7",
    "greedy": "#E69F00", "skip": QUIET, "average": "#56B4E9",
    "swap-healed": "#56B4E9", "healed": "#56B4E9", "replace-healed": "#E69F00",
    "delete": "#009E73", "mine": TRUTH,
}  # fmt: skip
"""One colour for a test or a way to choose, on every picture."""


@dataclass(frozen=True)
class Number:
    """One measured value with its interval; None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The value and its interval in few characters."""
        return self.said(2)

    def columns(self, name: str) -> dict[str, float]:
        """The same for a file: the value and both ends, nan where there is none."""
        low, high = (float("nan") if end is None else end for end in (self.low, self.high))
        return {name: self.value, f"{name} low": low, f"{name} high": high}

    def said(self, digits: int) -> str:
        """The same in some digits."""
        if np.isnan(self.value):
            return "not measured"
        if self.low is None or self.high is None or np.isnan([self.low, self.high]).any():
            return number(self.value, digits)
        low, high = (number(end, digits) for end in (self.low, self.high))
        return f"{number(self.value, digits)} [{low}, {high}]"


def at(measure: Measure, *index: int) -> Number:
    """One cell of a measure."""
    low, high = (None if end is None else float(end[index]) for end in (measure.low, measure.high))
    return Number(float(measure.value[index]), low, high)


def rise(readings: Readings, base: Readings) -> Measure:
    """How far the perplexity rises above the base's, in per cent: 100 (exp(Δ loss) − 1).

    The interval resamples the windows of both together, so it is one of the difference.
    """
    apart = Readings(
        readings.kl, readings.loss - np.asarray(base.loss), readings.agreement, readings.positions
    )
    found = apart.measure("loss")
    low, high = (None if end is None else _per_cent(end) for end in (found.low, found.high))
    return Measure(_per_cent(found.value), low, high)


def _per_cent(nats: np.ndarray) -> np.ndarray:
    return 100 * np.expm1(np.minimum(nats, LARGEST))


def ends(measure: Measure) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the intervals; nan where there is none."""
    none = np.full_like(np.asarray(measure.value), np.nan)
    low, high = measure.low, measure.high
    return (none if low is None else np.asarray(low), none if high is None else np.asarray(high))


def apart(a: Measure, b: Measure) -> np.ndarray:
    """Where the intervals of two measures share no value; False where one has no interval."""
    (a_low, a_high), (b_low, b_high) = ends(a), ends(b)
    with np.errstate(invalid="ignore"):
        return (a_low > b_high) | (b_low > a_high)


def percent(found: Number) -> str:
    """A rise in per cent with its interval: "+4.20 % [+3.10, +5.02]"."""
    if np.isnan(found.value):
        return "not measured"
    ends = [end for end in (found.low, found.high) if end is not None and not np.isnan(end)]
    interval = f" [{', '.join(map(_signed, ends))}]" if len(ends) == 2 else ""
    return f"{_signed(found.value)} %{interval}"


def _signed(value: float) -> str:
    sign, size = "−" if value < 0 else "+", abs(value)
    digits = 2 if size < 10 else 1 if size < 100 else 0
    return f"{sign}{size:,.{digits}f}" if size < 1e5 else f"{sign}{number(size)}"
