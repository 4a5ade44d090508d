"""Coordinates that several tables share; sizes are Hugging Face's usual attributes."""

from dataclasses import replace

from engine.family import Coordinate
from engine.groups import COMMON_SIGN, DIAGONAL, LINEAR, PERMUTATION, SIGNS, Trivial

WIDTH = "hidden_size / num_attention_heads"

CENTRED = Coordinate(
    "residual coordinate", COMMON_SIGN, "hidden_size",
    why="LayerNorm subtracts the mean over coordinates: they keep one sign in common.",
)  # fmt: skip
NEURON = Coordinate(
    "FFN neuron", PERMUTATION, "intermediate_size",
    why="The activation treats all neurons alike, but is not linear: no sign or scale passes.",
)  # fmt: skip
HEAD = Coordinate(
    "attention head", PERMUTATION, "num_attention_heads",
    why="Heads run in parallel and are summed by the output projection.",
)  # fmt: skip
UNROTATED = Coordinate(
    "query/key channel without rotation", LINEAR, WIDTH, over=("grp",),
    why="Only products of queries and keys are seen: any invertible matrix cancels between them.",
)  # fmt: skip
VALUE = Coordinate(
    "value channel", LINEAR, WIDTH, over=("grp",),
    why="Attention weights mix positions, not channels: any invertible matrix cancels between "
    "V and O.",
)  # fmt: skip
TOKEN = Coordinate(
    "token", Trivial("a token id means an entry of the dictionary"), "vocab_size",
    why="The index has a meaning outside the model.", criterion=(True, True, False),
)  # fmt: skip
POSITION = Coordinate(
    "position", Trivial("a position means a place in the text"), "max_position_embeddings",
    why="The index has a meaning outside the model.", criterion=(False, False, False),
)  # fmt: skip
ONE = Coordinate(
    "single row", Trivial("there is only one"), "1",
    why="Old files keep an axis of length 1.", criterion=(False, False, False),
)  # fmt: skip
FREQUENCY = Coordinate(
    "rotary frequency", Trivial("each frequency has its own angle"), WIDTH,
    why="Old files keep the table of frequencies.", criterion=(False, False, False),
)  # fmt: skip
HALF_TURN = Coordinate(
    "half turn of a rotary pair", SIGNS, "head_dim / 2", over=("grp",),
    why="The norm of queries and keys and its gains forbid every turn but the half one, which "
    "cancels between queries and keys.",
)  # fmt: skip
GAIN = Coordinate(
    "gain of a rotary frequency", DIAGONAL, "head_dim / 2",
    why="A factor on both gains of a pair commutes with its rotation; it cancels between queries "
    "and keys.",
)  # fmt: skip
HALF = Coordinate(
    "member of a rotary pair", Trivial("the rotation tells the two apart"), "2",
    why="Channel i is rotated together with channel i + n/2.", criterion=(False, False, False),
)  # fmt: skip


def sized(coordinate: Coordinate, size: str) -> Coordinate:
    """The same coordinate where the configuration has another name for its size."""
    return replace(coordinate, size=size)
