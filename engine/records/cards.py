"""What one model is: its table of coordinates and blind directions, and its self-test."""

from dataclasses import dataclass
from typing import Literal

from engine.records.words import Word, word


@dataclass(frozen=True)
class DirectionTest:
    """One coordinate, or one blind direction, changed at random on its own."""

    name: str  # word of the table
    title: str
    kind: Literal["coordinate", "blind"]
    approximate: bool  # true only up to the ε inside a norm
    error: float  # max |log p after − before| / max |log p before|
    moved: float  # share of the tensors that changed, in [0, 1]

    @property
    def verdict(self) -> Word:
        """*exact* only when the check passed and something moved."""
        return word(self.error) if self.moved > 0 else "not measured"


@dataclass(frozen=True)
class SelfTest:
    """A random gauge of every coordinate was applied: did the output change, did the tensors?"""

    error: float  # max |log p after − before| / max |log p before|, all coordinates at once
    difference: float  # max |log p after − before|
    moved: float  # share of the tensors that the gauge changed, in [0, 1]
    tensors: int
    rows: tuple[DirectionTest, ...]  # each coordinate and each blind direction alone
    seed: int
    device: str
    dtype: str
    seconds: float

    @property
    def verdict(self) -> Word:
        """*exact* only when every row that claims to be passed, and tensors moved."""
        if self.moved == 0:
            return "not measured"
        alone = (row.error for row in self.rows if not row.approximate)
        return word(max((self.error, *alone)))


Role = Literal["written", "read", "relabelled", "named", "shifted"]


@dataclass(frozen=True)
class Carrier:
    """One tensor of the table that carries a coordinate, or moves along a blind direction."""

    tensor: str  # name on disk, `{l}` for the layer
    axes: str  # the row of the table, or how a shift changes the tensor
    role: Role


@dataclass(frozen=True)
class CoordinateCard:
    """One row of a model's table of coordinates."""

    name: str  # word of the table: res, ffn, grp, head, rot, val, tok
    title: str  # residual coordinate, FFN neuron, …
    group: str  # the group in mathematical notation, e.g. "S_d ⋉ {±1}^d"
    size: int  # elements of one index set
    copies: int  # how many independent index sets (layers × groups)
    log10: float  # log₁₀ of the number of discrete elements, all copies together
    dimension: int  # dimension of the continuous part, all copies together
    carriers: tuple[Carrier, ...]
    why: str  # the sentence that says why
    fixed: str  # why nothing may act on it; empty for a coordinate that is only a name
    local: bool  # one index set (or more) in every layer, not one for the model
    criterion: tuple[bool, bool, bool]
    """What is done in between treats all indices alike; one write and one read cancel; the index
    means nothing outside the model."""


@dataclass(frozen=True)
class BlindCard:
    """One blind direction: the weights move, no index does, and no output shows it."""

    name: str
    title: str
    why: str
    group: str  # which factors, or "shift"
    dimension: int  # all copies together
    approximate: bool  # true only up to the ε inside a norm
    carriers: tuple[Carrier, ...]


@dataclass(frozen=True)
class ModelCard:
    """What a checkpoint is, read from its configuration and headers alone."""

    name: str
    fingerprint: str
    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    experts: int  # 0 without
    vocabulary: int  # tokens, or classes of a model without
    norm: str  # "RMSNorm", …
    activation: str  # "silu", …
    positions: str  # "rotary pairs (i, i + n/2), base 10000", "learned", …
    tied: bool
    dtype: str  # on disk
    parameters: int
    bytes: int
    coordinates: tuple[CoordinateCard, ...]
    blind: tuple[BlindCard, ...]

    @property
    def log10(self) -> float:
        """log₁₀ of how many discrete changes of coordinates leave this function alone."""
        return sum(c.log10 for c in self.coordinates)

    @property
    def dimension(self) -> int:
        """Dimension of the continuous changes of coordinates, blind directions left out."""
        return sum(c.dimension for c in self.coordinates)
