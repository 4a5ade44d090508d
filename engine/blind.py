"""Blind directions: changes of the weights that no index takes part in and no output shows.

They are rows of tables in the grammar of `engine.axes`, executed by `engine.slide`. The families
list theirs, the atlas shows them, the self-test tries each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.groups import DIAGONAL, Group


@dataclass(frozen=True)
class Move:
    """One tensor changed along a shift δ: T += sign · Σ δ · factors.

    Legs are matched by name. Legs that neither δ nor a factor has are broadcast, legs that the
    tensor lacks are summed. A factor is a tensor's name, or `1/name`. `tensor?` may be absent.
    """

    tensor: str
    sign: int
    times: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The tensor that it changes."""
        return self.tensor.removesuffix("?")

    @property
    def names(self) -> tuple[str, ...]:
        """All tensors that it touches or reads, but for one that may be absent."""
        touched = () if self.tensor.endswith("?") else (self.tensor,)
        return (*touched, *(factor.removeprefix("1/") for factor in self.times))


@dataclass(frozen=True)
class Blind:
    """A family of changes without an index: factors (`table`) or shifts (`shift` and `moves`).

    The leg `name` in `table` is written, read or relabelled by a random element of `group`; other
    legs only say how an axis splits. δ is drawn with the legs `shift`.
    """

    name: str
    title: str
    why: str
    group: Group = DIAGONAL
    size: str = "hidden_size"
    table: Mapping[str, str] = field(default_factory=dict)
    over: tuple[str, ...] = ()
    shift: str = ""
    moves: tuple[Move, ...] = ()
    needs: tuple[str, ...] = ()  # tensors that must be there, though they do not move
    head: bool = False  # it takes an output layer for granted
    approximate: bool = False  # true up to the ε inside a norm

    @property
    def carriers(self) -> Iterator[tuple[str, str]]:
        """(tensor, how it is changed) for every tensor that moves."""
        yield from ((tensor.partition("?")[0], axes) for tensor, axes in self.table.items())
        for move in self.moves:
            product = " · ".join(("δ", *move.times))
            yield move.name, f"{'+' if move.sign > 0 else '−'} {product}"
