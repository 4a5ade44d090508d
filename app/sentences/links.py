"""Sentences about links: what one asks for that is not on offer."""

from collections.abc import Sequence
from typing import Any

from app.session import OWN

LONGEST = 60
"""Characters of a value that are shown."""


def replaced(name: str, said: Sequence[str], now: Any) -> str:
    """What the address asks for in vain, and what stands there instead."""
    asked = ", ".join(said)[:LONGEST]
    if name == OWN:
        return (
            f"The text of this link is not here ({asked}): paste or upload it again under Own "
            f"text. The {shown(now)} text is read instead."
        )
    return (
        f"This link asks for {name} = {asked}, which is not on offer here: {shown(now)} is taken."
    )


def shown(value: Any) -> str:
    """A value of a control in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)
