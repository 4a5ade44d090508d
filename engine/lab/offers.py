"""What a preset of the lab is, and which models have what it needs: by their cards alone."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from engine.records import BlindCard, CoordinateCard, ModelCard

HALF_TURNS, COMMON, FACTORS = "{±1}ⁿ", "S_n × {±1}", "(R∖{0})ⁿ"
"""Notations of `engine.groups`, which needs torch."""
ROTARY = "H(d_h)"
FFN = ("ffn", "sffn")
GAIN_ROW = "gain row"
"""As a preset's only coordinate: every direction in which gains are taken back by readers."""


@dataclass(frozen=True)
class Preset:
    """One experiment as a row: on which coordinate, which elements, by which table."""

    key: str
    title: str
    does: str
    shows: str
    needs: tuple[str, ...]  # words of `features`; `!word` must be missing
    coordinates: tuple[str, ...]  # on which it can be done; empty: on any that is free
    group: str = ""  # of the elements; empty: the coordinate's own
    draws: tuple[str, ...] = (
        "random",
        "transposition",
    )  # how an element is drawn, the usual way first
    claim: str = ""  # how its table differs from the family's; empty: not at all
    holds: bool = True  # what the theory says about the output
    symmetry: bool = True  # False for prunings and averages, which nobody calls one
    approximate: bool = False  # holds only up to the ε inside a norm

    @property
    def says(self) -> tuple[str, str]:
        """What is done; what it shows."""
        return self.does, self.shows


def has(card: ModelCard, needs: Collection[str]) -> bool:
    """Whether a model has what is asked for; a word after `!` must be missing."""
    if not needs:
        return True
    found = features(card)
    return all((word.removeprefix("!") in found) != word.startswith("!") for word in needs)


def features(card: ModelCard) -> frozenset[str]:
    """Coordinates of at least two, and what else presets ask for."""
    return frozenset(_features(card))


def _features(card: ModelCard) -> Iterator[str]:
    rows = {row.name: row for row in card.coordinates}
    yield from (name for name, row in rows.items() if row.size > 1)
    carriers = [carrier for word in FFN if word in rows for carrier in rows[word].carriers]
    facts = {
        "gated": any(carrier.role == "relabelled" for carrier in carriers),
        "ffn bias": any(carrier.axes in FFN for carrier in carriers),
        "relu": card.activation == "relu",
        "rotary": "rot" in rows and rows["rot"].group.startswith(ROTARY),
        "half turns": "rot" in rows and rows["rot"].group == HALF_TURNS,
        "common": "res" in rows and rows["res"].group == COMMON,
        "gain row": any(True for _ in gains(card)),
        "foldable": "res" in rows and _foldable(card, rows["res"]),
        "position rows": "pos" in rows and any("res" in c.axes for c in rows["pos"].carriers),
        "layers": card.layers > 1,
    }
    yield from (word for word, fact in facts.items() if fact)


def acts_on(card: ModelCard, preset: Preset) -> tuple[str, ...]:
    """The words on which a preset may act, its own choice first."""
    if preset.coordinates == (GAIN_ROW,):
        rows = sorted(gains(card), key=lambda row: all("{l}" not in c.tensor for c in row.carriers))
        return tuple(row.name for row in rows)
    if not preset.coordinates:
        free = (row for row in card.coordinates if not row.fixed)
        return tuple(row.name for row in free if row.dimension + row.log10)
    words = {row.name for row in card.coordinates}
    return tuple(word for word in preset.coordinates if word in words) or preset.coordinates


def gains(card: ModelCard) -> Iterator[BlindCard]:
    """The blind directions in which a norm's gains are taken back by their readers."""
    for blind in card.blind:
        if blind.group == FACTORS and {c.role for c in blind.carriers} == {"written", "read"}:
            yield blind


def _foldable(card: ModelCard, residual: CoordinateCard) -> bool:
    """Whether every gain of RMSNorms can move into readers; the last one once a head is untied."""
    if card.norm != "RMSNorm":
        return False
    taken = {c.tensor for blind in gains(card) for c in blind.carriers if c.role == "written"}
    there = {c.tensor for c in residual.carriers if c.role == "relabelled"}
    return all(name in taken or (card.tied and "{l}" not in name) for name in there)
