"""Write → coordinate → read: which tensors of a block carry each coordinate, as a drawing."""

from typing import Any, Literal

import altair as alt
import pandas as pd
import vl_convert

from app.charts.blocks import BOX, LEFT, RIGHT, SIDES, Drawing, layout
from app.charts.theme import FONT, LIGHT, MINUS, PLUS, QUIET, Shade
from engine.records import ModelCard

CLICK = "clicked"
"""Name of the selection that a click on a coordinate makes."""

COLOURS = dict(zip(SIDES, (PLUS, MINUS, QUIET), strict=True))


def block(card: ModelCard, look: Shade, chosen: str = "") -> Any:
    """The drawing; a click on a box selects its coordinate."""
    return _chart(card, look, chosen).configure(
        background="transparent", view={"stroke": None}, font=FONT
    )


def _chart(card: ModelCard, look: Shade, chosen: str) -> Any:
    drawn = layout(card)
    layers = [
        _lines(drawn, chosen),
        *_boxes(drawn, look, chosen),
        _dots(drawn),
        *_labels(drawn, look),
        _heads(drawn, look),
    ]
    return alt.layer(*layers).properties(height=drawn.height, width="container")


def _x(name: str = "x") -> alt.X:
    return alt.X(f"{name}:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None)


def _y(drawn: Drawing, name: str = "y") -> alt.Y:
    scale = alt.Scale(domain=[0, drawn.height], reverse=True, nice=False, zero=False)
    return alt.Y(f"{name}:Q", scale=scale, axis=None)


def _share(part: float) -> Any:
    """At most this part of the width, so that a narrow window cuts texts and none overlap."""
    return alt.ExprRef(f"width * {part:.3f}")


def _colour() -> alt.Color:
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    return alt.Color("side:N", scale=scale, legend=None)


def _lines(drawn: Drawing, chosen: str) -> alt.Chart:
    strong = alt.condition(alt.datum.word == chosen, alt.value(1.0), alt.value(0.45))
    line = alt.Chart(drawn.edges).mark_line(strokeWidth=1.4)
    return line.encode(_x(), _y(drawn), _colour(), detail="edge:N", order="x:Q", opacity=strong)


def _boxes(drawn: Drawing, look: Shade, chosen: str) -> list[alt.Chart]:
    on = alt.datum.word == chosen
    tips = [
        alt.Tooltip("title:N", title="coordinate"),
        alt.Tooltip("under:N", title="group, size, copies"),
        alt.Tooltip("why:N", title="why"),
    ]
    base = alt.Chart(drawn.boxes)
    box = base.mark_rect(cornerRadius=5, cursor="pointer", fill=look.surface).encode(
        _x(),
        _y(drawn),
        x2="x2:Q",
        y2="y2:Q",
        stroke=alt.condition(on, alt.value(PLUS), alt.value(QUIET)),
        strokeWidth=alt.condition(on, alt.value(2.5), alt.value(1.0)),
        tooltip=tips,
    )
    click = alt.selection_point(name=CLICK, fields=["word"], toggle=False)
    found = [box.add_params(click)]
    for text, at, size in (("title", "first", 13), ("under", "second", 11)):
        line = base.mark_text(
            fontSize=size,
            fontWeight="bold" if text == "title" else "normal",
            color=look.ink,
            font=FONT,
            cursor="pointer",
            limit=_share(BOX[1] - BOX[0]),
        )
        found.append(line.encode(_x("middle"), _y(drawn, at), text=f"{text}:N", tooltip=tips))
    return found


TIPS = ["tensor:N", alt.Tooltip("axes:N", title="name: axes"), alt.Tooltip("role:N", title="side")]


def _dots(drawn: Drawing) -> alt.Chart:
    shape = alt.condition(alt.datum.fused, alt.value("diamond"), alt.value("circle"))
    dots = alt.Chart(drawn.tensors).transform_filter(alt.datum.side != SIDES[-1])
    point = dots.mark_point(filled=True, size=60, opacity=1)
    return point.encode(_x(), _y(drawn), _colour(), shape=shape, tooltip=TIPS)


def _labels(drawn: Drawing, look: Shade) -> list[alt.Chart]:
    base, found = alt.Chart(drawn.tensors), []
    quiet = {"color": QUIET, "fontStyle": "italic", "fontSize": 11}
    for side, style in zip(
        SIDES,
        (
            {"align": "right", "dx": -9, "color": look.ink, "fontSize": 12},
            {"align": "left", "dx": 9, "color": look.ink, "fontSize": 12},
            quiet,
        ),
        strict=True,
    ):
        text = base.transform_filter(alt.datum.side == side).mark_text(
            font=FONT, limit=_share(0.9 * LEFT), **style
        )
        found.append(text.encode(_x(), _y(drawn), text="tensor:N", tooltip=TIPS))
    return found


def _heads(drawn: Drawing, look: Shade) -> alt.Chart:
    heads = [SIDES[0], "coordinate (under it, in italics: only relabelled)", SIDES[1]]
    table = pd.DataFrame({"x": [LEFT, 0.5, RIGHT], "y": [8.0] * 3, "head": heads})
    text = alt.Chart(table).mark_text(
        fontSize=12, color=look.ink, font=FONT, opacity=0.75, limit=_share(0.36)
    )
    return text.encode(_x(), _y(drawn), text="head:N")


def image(card: ModelCard, kind: Literal["png", "svg"]) -> bytes:
    """The drawing as PNG or SVG on white, made without a browser."""
    chart = _chart(card, LIGHT, "").properties(width=900)
    spec = chart.configure(view={"stroke": None}, font=FONT).to_dict() | {"background": "white"}
    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    return vl_convert.vegalite_to_png(spec, scale=2)
