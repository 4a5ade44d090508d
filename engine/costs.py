"""What a run will cost, said as soon as it is known."""


class Cost(str):
    """A step of progress that stays on the terminal; else a step as any other."""

    __slots__ = ()


def foretold(tokens: int, windows: int, runs: int, each: float, what: str = "model{s}") -> Cost:
    """What so many runs over a text will take, by a run that was timed (`each`, seconds).

    `what` is run, with the mark {s} where its plural has an s.
    """
    what = what.format(s="s" * (runs != 1))
    return Cost(
        f"{tokens:,} tokens in {windows:,} window{'s' * (windows != 1)}; {runs:,} {what} to run, "
        f"about {each:.2g} s each on this machine: about {lasting(runs * each)}"
    )


def lasting(seconds: float) -> str:
    """A time in words: "8 s", "3 min", "2.4 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
