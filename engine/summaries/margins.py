"""Margins in words."""

FORCED = " (below 0: another was nearer, but is taken)"


def lead(margin: float) -> str:
    """A margin, and what one below 0 means."""
    return f"{margin:.3f}{FORCED if margin < 0 else ''}"
