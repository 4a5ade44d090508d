"""In how many orders the heads of a layer may stand, and how many of these are tried."""

from math import factorial

RANKED, DRAWN = 8, 9
"""Most heads of a layer whose orders are all ranked by what Stage 2 leaves, or drawn from."""
PARTS, TRIED = 2000, 72
"""Most parts (a group on another's place, in one order) that are solved; most orders that run."""


def count(groups: int, inside: int) -> int:
    """inside!^groups · groups!, with so many query heads inside each group."""
    return factorial(inside) ** groups * factorial(groups)


def solvable(groups: int, inside: int, most: int = RANKED) -> bool:
    """Whether Stage 2 is solved on every part of every order."""
    return groups * inside <= most and groups**2 * factorial(inside) <= PARTS


def tried(groups: int, inside: int) -> int:
    """How many orders run: all, some of very many, or none."""
    return min(count(groups, inside), TRIED) if solvable(groups, inside, DRAWN) else 0
