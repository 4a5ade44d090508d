"""Parts of the Heads page: costs, order, what every step leaves, matrices, what to take away."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import streamlit as st

from app import outputs
from app.charts import disguises, drawing, heads, objectives, pairings, tables, turns
from app.charts.theme import LIGHT, Shade, shade
from app.controls.heads import Pick
from app.outputs import Download
from app.sentences import attention
from engine.questions import Heads
from engine.records import HeadsReport

WIDE = 460
"""Pixels across, of a picture that is written to a file."""


def look() -> Shade:
    """The colours of the session's theme."""
    return shade(st.context.theme.type)


def picture(chart: Any, key: str, about: str, *, clicks: bool = False) -> None:
    """An Altair picture as wide as its place."""
    more: dict[str, Any] = {"on_select": "rerun", "selection_mode": heads.CLICK} if clicks else {}
    st.altair_chart(
        drawing.shown(chart, look()), key=key, width="stretch", theme=None, alt=about, **more
    )


def matching(record: HeadsReport, pick: Pick) -> None:
    """The map of costs beside the order, and the chosen cell in words."""
    left, right = st.columns([3, 2])
    with left:
        st.markdown(f"**Head × head: the {outputs.plain(record.used)} cost**")
        chart = heads.cost_map(record, record.cost, pick.term, look(), pick.recovered, pick.cell)
        picture(chart, pick.key("costs"), "Cost of every head of A against every one of B",
                clicks=True)  # fmt: skip
        st.markdown(outputs.plain(attention.cell(record, pick.cell)))
        outputs.explain(
            "Cost over the mean cost: 0 is one head in two bases. Dots mark the partners, rings "
            "the planted truth, dashes the key/value heads. Click a cell. Twins: dots at 0, the "
            "rest near 1. Fine-tunes of one base: dots near 0.",
            "Every cell near 1: noise, and the order is a guess; a dot outside its ring.",
        )
    with right:
        st.markdown("**Recovered order**")
        picture(heads.order_map(record, look(), pick.cell.a), pick.key("order"),
                "Heads of A joined with their partners in B", clicks=True)  # fmt: skip
        st.markdown(outputs.plain(attention.order(record)))
        outputs.explain(
            "A line joins a head of A with its partner in B; boxes hold the query heads that share "
            "a key/value head and stay together. Fine-tunes of one base: all lines level.",
            "Orange lines, which miss the planted partner (violet).",
        )


def steps(record: HeadsReport, pick: Pick) -> None:
    """What each step leaves of every head's distance, and the distance left at the end."""
    st.subheader("What does each step take away?")
    sides = st.columns(3)
    for place, side in zip(sides[:2], objectives.SIDES, strict=True):
        with place:
            chart = objectives.steps(record, side, look(), pick.cell.a)
            picture(chart, f"steps {side}", f"Distance of {side} after each step")
    with sides[2]:
        picture(objectives.left(record, look(), pick.cell.a), "left", "Distance left per head")
    outputs.explain(
        "The Stage-2 objective as a distance, √(objective / ‖A‖²), of every head of A and its "
        "partner: as stored, in order, after turns and rotations alone, after all of Stage 2. The "
        "chosen head is strong; under the dashed line counts as exact. Right: what is left after "
        f"what the control *Stage 2* says ({record.stage2}). Twins drop to about 1e-7, fine-tunes "
        "start low and stay low.",
        "Lines that stay near 1.4, the distance of two unrelated heads of one size: noise.",
    )
    with st.expander("Every head in numbers"):
        st.dataframe(pairings.pairs(record), hide_index=True, width="stretch")


def matrices(record: HeadsReport) -> None:
    """Singular values of the matrices that were found where any matrix is free."""
    st.subheader("Where any matrix is free: its singular values")
    left, right = st.columns(2)
    with left:
        chart = objectives.singular(record.val_singular, "between values and outputs", look())
        picture(chart, "val-singular", "Singular values of the value matrices")
    with right:
        if record.qk_singular is None:
            st.markdown(
                "Between queries and keys the channels are rotated by position: a matrix there "
                "would change the function, and each frequency has its angle and modulus instead."
            )
        else:
            chart = objectives.singular(record.qk_singular, "between queries and keys", look())
            picture(chart, "qk-singular", "Singular values of the query/key matrices")
    outputs.explain(
        "V → M V and O → O M⁻¹ leave the output alone for every invertible M. One line for each "
        "key/value head: the singular values of the M that was found. All at 1 (dashed): a "
        "rotation, or nothing at all, as between fine-tunes of one base or of a model and itself.",
        "A steep fall over several powers of ten: channels that B does not use, or a fit to noise.",
    )


def coincidences(record: HeadsReport, pick: Pick) -> None:
    """One model against itself: the nearest heads, and what removing them costs."""
    st.subheader("Which heads could do without each other?")
    left, right = st.columns(2)
    with left:
        listed(pairings.coincide(record))
    with right:
        if record.removal is None:
            st.markdown("What it costs to remove a head was not measured for this model.")
        else:
            chart = objectives.removal(record, record.removal, look(), pick.cell.a)
            picture(chart, "removal", "What it costs to remove each head")
    outputs.explain(
        "Left: pairs of heads, the nearest first, cost over the mean. Right: how far the output "
        "moves without each head, measured. Two copies of one head have cost 0.",
        "A small cost beside a dear removal: alike is not the same as superfluous.",
    )


def listed(table: Any, height: int | Literal["content"] = 260) -> None:
    """A table with its real numbers in few digits."""
    real = {
        name: st.column_config.NumberColumn(format="%.3g")
        for name in table.columns
        if table[name].dtype.kind == "f"
    }
    st.dataframe(table, hide_index=True, width="stretch", height=height, column_config=real)


def theory() -> None:
    """Both stages as formulas."""
    outputs.formula(
        r"**Stage 1.** Complex rows $q_f = W_q[f] + i\,W_q[f + n/2]$, $k_f$ likewise; "
        r"$N = W_v^\top W_o^\top$; $C_{ij} = \sum_f \|q_f^A \bar k_f^A - q_f^B \bar k_f^B\|^2 "
        r"/ c_1 + \|N_i - N_j\|^2 / c_2$, each term over its mean. Without rotation "
        r"$M = W_q^\top W_k$ takes the "
        r"place of the first. Published: $\|\bar M_i - \bar M_j\|^2 + \|N_i - N_j\|^2$, $\bar M$ "
        "centred per row. The assignment keeps the query heads of a group together.  \n"
        r"**Stage 2.** $z = r e^{i\varphi}$ acts as $q \to z q$, $k \to k / \bar z$ and minimises "
        r"$a r^2 + b / r^2 - 2\,|s r + t / r|$ with $a = \|q_B\|^2$, $b = \|k_B\|^2$, $s = "
        r"\langle q_B, q_A\rangle$, $t = \langle k_B, k_A\rangle$; $\varphi = \arg(s r + t / r)$. "
        r"Any matrix: $\min_M \|V_A - M V_B\|^2 + \|O_A - O_B M^{-1}\|^2$.",
        "Tran et al. 2026 (arXiv 2606.17830), for the two stages and the published cost; the cost "
        "over complex rows and the closed form for z are this program's.",
    )


def pictures(record: HeadsReport, pick: Pick) -> dict[str, Any]:
    """Every Altair picture of the page on white, by name."""
    cost = heads.cost_map(record, record.cost, pick.term, LIGHT, pick.recovered, pick.cell)
    found = {"costs": cost, "order": heads.order_map(record, LIGHT, pick.cell.a)}
    if record.disguises:
        found["disguises"] = disguises.chart(record, LIGHT)
    if not record.same_model:
        found |= _between(record, pick)
    if not record.same_model or record.turns is None:
        found["singular"] = _singular(record)
    if record.removal is not None:
        found["removal"] = objectives.removal(record, record.removal, LIGHT, pick.cell.a)
    return found


def _between(record: HeadsReport, pick: Pick) -> dict[str, Any]:
    """What is drawn of two models only."""
    sides = (objectives.steps(record, side, LIGHT, pick.cell.a) for side in objectives.SIDES)
    found = {"objective": _beside(*sides, objectives.left(record, LIGHT, pick.cell.a))}
    if record.turns is not None:
        chosen = pick.cell.a // record.per_group, pick.frequency
        parts: tuple[turns.Part, ...] = ("angle", "modulus")
        found["turns"] = drawing.above(*(
            turns.turn_map(record, record.turns, part, LIGHT, chosen, part).properties(width=WIDE)
            for part in parts[: 1 if record.turns.half_turns else 2]
        ))  # fmt: skip
    return found


def _singular(record: HeadsReport) -> Any:
    matrices = [objectives.singular(record.val_singular, "values and outputs", LIGHT)]
    if record.qk_singular is not None:
        matrices.append(objectives.singular(record.qk_singular, "queries and keys", LIGHT))
    return _beside(*matrices)


def _beside(*charts: Any) -> Any:
    return drawing.beside(*(chart.properties(width=WIDE * 0.7) for chart in charts))


def tabulated(record: HeadsReport) -> dict[str, Any]:
    """The numbers behind pictures that the table of heads does not hold, by name."""
    found = {}
    if record.turns is not None and not record.same_model:
        found["turns"] = turns.frequencies(record, record.turns)
    if record.removal is not None:
        found["removal"] = pairings.removal(record, record.removal)
    if record.disguises:
        found["disguises"] = disguises.costs(record).drop(columns="drawn")
    return found


def take_away(question: Heads, record: HeadsReport, pick: Pick) -> None:
    """Downloads and the command line."""
    name = f"heads-layer-{record.layer}"
    files = [
        Download("Heads (CSV)", f"{name}.csv", "text/csv",
                 lambda: pairings.pairs(record).to_csv(index=False)),
        Download("Arrays (NPZ)", f"{name}.npz", "application/octet-stream",
                 lambda: tables.as_npz(record)),
        outputs.document("Record (JSON)", f"{name}.json",
                         lambda: tables.document(record), question),
    ]  # fmt: skip
    for title, table in tabulated(record).items():
        make: Callable[[], str] = partial(table.to_csv, index=False)
        files.append(
            Download(f"{title.capitalize()} (CSV)", f"{name}-{title}.csv", "text/csv", make)
        )
    for title, chart in pictures(record, pick).items():
        wide = (
            chart if title in {"objective", "singular", "turns"} else chart.properties(width=WIDE)
        )
        files += [_file(title, name, wide, kind) for kind in ("png", "svg")]
    outputs.take_away(files, [question.command], "Other pictures have a camera button (PNG).")


def _file(title: str, name: str, chart: Any, kind: drawing.Kind) -> Download:
    mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    make: Callable[[], bytes] = partial(drawing.image, chart, kind)
    return Download(f"{title.capitalize()} ({kind.upper()})", f"{name}-{title}.{kind}", mime, make)
