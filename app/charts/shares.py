"""How much of the distance between two models was only coordinates, and which ones."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from app.charts.tables import split
from app.charts.theme import MINUS, PLUS, TRUTH, Shade
from engine.records import AlignmentReport

LEFT, WHOLE, OUTSIDE = "left over", "all", "–"
NAMES = {
    "res": "residual", "exp": "experts", "ffn": "FFN neurons", "sffn": "shared neurons",
    "grp head": "heads", "rot": "angles", "qk": "query/key channels", "val": "value channels",
    "gain": "gains", "pool": "pooler",
    "refined": "refinement",
}  # fmt: skip
COLOURS = {
    "res": PLUS, "exp": "#E69F00", "ffn": MINUS, "sffn": "#F0B98A", "grp head": "#009E73",
    "rot": TRUTH, "qk": "#CC79A7", "val": "#56B4E9", "gain": "#B8A000", "pool": "#6B4E2E",
    "refined": "#E0457B",
}  # fmt: skip
"""One colour for what is solved together."""
TALL = 260
LEAST = 1e-12
"""A squared distance, as a share of ‖A‖², that is none."""


@dataclass(frozen=True)
class Gap:
    """Σ ‖A‖², Σ ‖A − B‖² and Σ ‖A − g B‖² over some tensors."""

    own: float = 0.0
    before: float = 0.0
    after: float = 0.0

    def more(self, own: float, before: float, after: float) -> "Gap":
        """With one tensor more, of relative distances `before` and `after`."""
        size = own * own
        found = (size, size * before * before, size * after * after)
        return Gap(self.own + found[0], self.before + found[1], self.after + found[2])


def squares(report: AlignmentReport) -> dict[str, Gap]:
    """The squared distances of all together, and of every layer; nothing for old records."""
    found: dict[str, Gap] = {}
    if report.norms is None:
        return found
    columns = (np.asarray(x, np.float64) for x in (report.norms, report.before, report.after))
    for name, *numbers in zip(report.tensors, *columns, strict=True):
        for place in (WHOLE, layer_of(split(name)[0])):
            found[place] = found.get(place, Gap()).more(*map(float, numbers))
    layers = sorted(int(place) for place in found if place.isdigit())
    order = (WHOLE, *map(str, layers), OUTSIDE)
    return {place: found[place] for place in order if place in found}


def layer_of(layer: int | None) -> str:
    """A layer as the pictures name it."""
    return OUTSIDE if layer is None else str(layer)


def total(report: AlignmentReport) -> tuple[float, float] | None:
    """√(Σ ‖A − B‖² / Σ ‖A‖²) over all tensors, before and after; None for old records."""
    gap = squares(report).get(WHOLE)
    return None if gap is None else (sqrt(gap.before / gap.own), sqrt(gap.after / gap.own))


def shares(report: AlignmentReport) -> pd.DataFrame:
    """The share of Σ ‖A − B‖² that each coordinate takes away, layer by layer and over all.

    Together with what is left over they are 1. A share below 0: that coordinate, in the order in
    which they are applied, moved B away. Layers that do not differ are left out.
    """
    found: list[dict[str, Any]] = []
    for layer, gap in squares(report).items():
        if gap.before <= LEAST * gap.own:
            continue
        taken: dict[str, float] = {}
        for step in report.steps:
            if step.taken is not None and layer in {WHOLE, layer_of(step.layer)}:
                taken[step.coordinates] = taken.get(step.coordinates, 0.0) + step.taken
        found += [
            {"layer": layer, "what": what, "share": value / gap.before,
             "coordinate": NAMES.get(what, what)}
            for what, value in (taken | {LEFT: gap.after}).items()
        ]  # fmt: skip
    return pd.DataFrame(found, columns=["layer", "what", "share", "coordinate"])


def order(report: AlignmentReport) -> str:
    """The coordinates in the order in which they were applied, in words."""
    found = dict.fromkeys(step.coordinates for step in report.steps)
    return ", ".join(NAMES.get(name, name) for name in found)


def whole(report: AlignmentReport) -> dict[str, float]:
    """The shares over all tensors, by coordinate; what is left over comes last."""
    table = shares(report)
    table = table[table["layer"] == WHOLE]
    return dict(zip(table["coordinate"], table["share"], strict=True))


def bars(report: AlignmentReport, look: Shade) -> Any:
    """One stacked bar a layer, the first for all together."""
    table = shares(report)
    kinds = [what for what in (*COLOURS, LEFT) if what in set(table["what"])]
    table["order"] = [kinds.index(what) for what in table["what"]]
    colours = [*(COLOURS[what] for what in kinds if what != LEFT), look.grid]
    colour = alt.Color(
        "coordinate:N",
        scale=alt.Scale(domain=[NAMES.get(what, what) for what in kinds], range=colours),
        legend=alt.Legend(title=None, orient="top", columns=4, labelLimit=160),
    )
    layers = list(dict.fromkeys(table["layer"]))
    axis = alt.Axis(labelAngle=0, values=[WHOLE, *layers[1 :: max(1, len(layers) // 14)]])
    return alt.Chart(table).mark_bar(stroke=look.surface, strokeWidth=0.5).encode(
        alt.X("layer:N", sort=layers, title="layer (– outside the layers)", axis=axis),
        alt.Y("share:Q", title="share of ‖A − B‖²", axis=alt.Axis(format=".0%", grid=True,
                                                              gridOpacity=0.3)),
        colour,
        order=alt.Order("order:Q"),
        tooltip=["layer:N", "coordinate:N", alt.Tooltip("share:Q", format=".2%")],
    ).properties(height=TALL)  # fmt: skip
