"""Numbers and amounts in few characters."""

import math


def number(value: float, digits: int = 2) -> str:
    """A number in few characters: 9.8, 0.031, 2.1e-6."""
    if not math.isfinite(value):
        return "no number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        few = abs(value) < 10**digits - 0.5  # what rounds to more has a digit more
        return f"{value:.{digits}g}" if few else f"{value:,.0f}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def apart(one: float, other: float, digits: int = 2) -> tuple[str, str]:
    """Both in as few digits as tell them apart, at least `digits`, at most 5: 19.31 and 19.38."""
    for count in range(digits, 5):
        told = number(one, count), number(other, count)
        if told[0] != told[1] or one == other:
            return told
    return number(one, 5), number(other, 5)


def seconds(value: float) -> str:
    """A time in words: "8 s", "3 min", "2 h"."""
    if value < 90:
        return f"{max(1, round(value))} s"
    return f"{round(value / 60)} min" if value < 5400 else f"{value / 3600:.1f} h"


def size(count: float) -> str:
    """A number of bytes: "2.6 MB", "0.4 GB"."""
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step or (unit == "GB" and count >= 1e8):
            return f"{count / step:.1f} {unit}"
    return f"{count:.0f} bytes"


OLDER = "bundled text (calibration, then CPython's topics if more is asked)"
"""What records of before call the bundled text."""
BUNDLED = "bundled English text (where it ends, Python's help topics)"


def named(text: str) -> str:
    """What a record says it was measured on, in the words of today."""
    return text.replace(OLDER, BUNDLED)


def count(value: int, one: str, many: str | None = None) -> str:
    """A count with its noun: "1 coordinate", "47 coordinates"."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"
