"""Parts of the Barrier page beyond one line: the plane through three models, orders of heads."""

import streamlit as st

from app import outputs
from app.charts import drawing, head_orders, planes
from app.charts.theme import LIGHT
from app.controls import barrier as controls
from app.controls.barrier import Line, Spot
from app.outputs import Download
from app.sections import growing
from app.sections.curves import drawn
from app.sections.heads import listed, look, picture
from app.sentences import barriers as sentences
from app.sentences import lines
from engine.exports import line as exports
from engine.questions import Barrier
from engine.records import BarrierReport

Kept = tuple[list[Download], list[str]]
"""What a part adds to the take-away: files and command lines."""
WIDE = 520


def plane(question: Barrier, report: BarrierReport, spot: Spot) -> Kept:
    """The loss over the plane through A, B and B at the chosen stage, if one goes through them."""
    st.subheader("The plane through A, B and aligned B")
    stage = lines.spanning(report, spot.stage)
    if stage != spot.stage:
        st.markdown(outputs.plain(lines.flat(report, spot.stage, stage)))
    if not stage:
        return [], []
    asked = controls.plane(question, stage)
    about = (
        f"{asked.points} × {asked.points} models on {asked.tokens:,} tokens, with the stage {stage}"
        f"{'' if asked.scope == 'whole' else f', over {sentences.scope(asked.scope)}'}."
    )
    record = outputs.measured(asked, "Loss over a plane", "Measure the plane", about)
    record = outputs.so_far(asked) if record is None else record
    growing.follow(asked, planes.measured, record)
    files: list[Download] = []
    if record is not None:
        picture(planes.plane(record, look()), "plane", "Loss over the plane of three models")
        st.markdown(outputs.plain(lines.plane(record)))
        files = [
            outputs.document("Plane (JSON)", "slice.json",
                             lambda: exports.of_slice(record), asked),
            *drawn("Plane", "barrier-plane",
                   lambda: planes.plane(record, LIGHT).properties(width=WIDE)),
        ]  # fmt: skip
    outputs.explain(
        "Every cell is a model of the plane, its colour the loss. A is the origin; to the right "
        "lies B as it is, above it B as far in A's coordinates as the stage goes. Dashed: the raw "
        "line and the aligned one.",
        "A ridge of strong colour across both dashed lines: aligned B is in another valley than A.",
    )
    return files, [asked.command]


def orders(question: Barrier, line: Line) -> Kept:
    """The barrier of every order of the heads of one layer."""
    st.subheader("Is it the right order of the heads?")
    many, tried = controls.head_orders(line)
    if tried < 2:
        st.markdown(outputs.plain(lines.too_many(line.a.card.heads, many)))
        return [], []
    asked = controls.orders(question, controls.layer(line.a.card.layers))
    about = lines.orders_to_try(many, tried, asked.layer)
    title = f"Orders of the heads of layer {asked.layer}"
    go = "Try every order" if tried == many else f"Try {tried} orders"
    record = outputs.measured(asked, title, go, about)
    record = outputs.so_far(asked) if record is None else record
    growing.follow(asked, "curves", record)
    files: list[Download] = []
    if record is not None and record.curves:
        left, right = st.columns([3, 2])
        with left:
            picture(head_orders.barriers(record, look()), "orders", "Barrier of every order")
        with right:
            picture(head_orders.against(record), "orders-cost", "Cost of an order and its barrier")
        st.markdown(outputs.plain(lines.orders(record)))
        with st.expander("Every order in numbers"):
            listed(head_orders.orders(record))
        files = [
            Download("Orders (CSV)", "head-orders.csv", "text/csv",
                     lambda: head_orders.orders(record).to_csv(index=False)),
            outputs.document("Orders (JSON)", "orders.json",
                             lambda: exports.of_orders(record), asked),
            *drawn("Orders", "barrier-orders", lambda: drawing.beside(
                head_orders.barriers(record, LIGHT).properties(width=WIDE),
                head_orders.against(record).properties(width=WIDE // 2),
            )),
        ]  # fmt: skip
    outputs.explain(
        "One layer's attention is interpolated, in every order of its heads, each solved inside "
        "as well as it can be. Blue: the order that an alignment of this layer alone takes, in one "
        "pass. Dashed: the heads as they are. Right: what Stage 2 leaves of an order against the "
        "barrier that it makes.",
        "The blue dot far from the left: another order would have made a lower line.",
    )
    return files, [asked.command]
