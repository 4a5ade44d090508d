"""The part of the Neurons page on experts: which is which, and which two could be one."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import streamlit as st

from app import inputs, outputs, session
from app.charts import drawing, experts, tables
from app.charts.experts import Term
from app.charts.theme import LIGHT
from app.controls.model import Chosen
from app.outputs import Download
from app.sections.heads import listed, look, picture
from app.sentences import experts as sentences
from app.sentences import words
from engine.questions import Experts
from engine.records import ExpertsReport

WIDE = 460
"""Pixels across, of a picture that is written to a file."""


def whole(a: Chosen, b: Chosen, layer: int) -> None:
    """Everything on the experts of one layer, A against itself too; nothing without experts."""
    if not (a.card.experts and b.card.experts):
        return
    st.header("Which expert is which, and which two could be one?")
    verdict = st.container()
    term = chosen_term()
    question = Experts(a.path, b.path, layer=layer, device=inputs.chosen_device())
    names = [inputs.label(model.spec) for model in (a, b)]
    with verdict:
        place = st.container()
        title = f"Experts of {names[1]} and {names[0]}, layer {layer}"
        about = words.memory(a.card, b.card)
        record = outputs.answered(question, a.card.parameters, title, "Match the experts", about)
    with place:
        outputs.say(sentences.matched(record), key="experts-verdict")
    if record is not None:
        shown(question, record, term)


def shown(question: Experts, record: ExpertsReport, term: Term) -> None:
    """All pictures of a report."""
    left, right = st.columns([3, 2])
    with left:
        costs(record, term)
    with right:
        neurons(record)
    st.markdown(f"**{'Nearest others' if record.same_model else 'Partners'}**")
    listed(experts.partners(record), "content")
    trials(record)
    theory()
    take_away(question, record, term)


def chosen_term() -> Term:
    """Which of the two costs the map shows."""
    session.within(session.EXPERT_COST, experts.TERMS, "both")
    found = st.segmented_control(
        "Cost of experts", experts.TERMS, required=True, default="both",
        help="By the router's rows, by what is inside the experts, or the mean of both.",
        **session.linked(session.EXPERT_COST),
    )  # fmt: skip
    return cast(Term, found or "both")


def costs(record: ExpertsReport, term: Term) -> None:
    """The map of all pairs."""
    st.markdown("**Expert × expert: the cost**")
    picture(experts.cost_map(record, term, look()), session.local("experts", "costs", term),
            "Cost of every expert of A against every other")  # fmt: skip
    if record.same_model:
        outputs.explain(
            "Squared distance over squared size, of the router's rows, of what is inside, or the "
            "mean of both: 0 off the diagonal is one expert in two bases, strangers are near 2.",
            "A router near 0 where the contents are near 2: tokens are sent alike to two experts "
            "that answer differently.",
        )
        return
    outputs.explain(
        "Squared distance over squared size: 0 is one expert in two bases, strangers are near 2. "
        "Dots mark the partners, rings the planted truth. Twins: every dot on a 0.",
        "Router and contents at 0 in different places: a router that does not belong to its "
        "experts. One even colour: the order is a guess.",
    )


def neurons(record: ExpertsReport) -> None:
    """How well the neurons of each expert match."""
    st.markdown("**How much alike are their neurons?**")
    picture(experts.likeness(record, look()), session.local("experts", "alike"),
            "Match quality of the neurons of every expert")  # fmt: skip
    whose = "the nearest other expert" if record.same_model else "its partner"
    outputs.explain(
        f"Every neuron of an expert with the one it is matched to in {whose}: 1 is the same neuron "
        "in another order, sign or scale. Bars hold half of the neurons and nine in ten, lines "
        "all, the tick is the median.",
        "Bars around 0.2 and below: no neuron has a counterpart, and a mean of the two is neither.",
    )


def trials(record: ExpertsReport) -> None:
    """What was measured by running the model."""
    st.subheader("What does it cost?")
    table = experts.changes(record)
    if table.empty:
        st.markdown("Nothing was run: these models have no output over tokens.")
        return
    left, right = st.columns(2)
    with left:
        picture(experts.tolls(record, look()), session.local("experts", "tolls"),
                "KL of every change of the experts")  # fmt: skip
    with right:
        listed(table, 330)
    st.caption(f"On {outputs.plain(record.checked_on)}.")
    if record.same_model:
        outputs.explain(
            "How far the output moves when two experts become their mean (neurons matched first), "
            "and when no token can visit one. *Both rows kept*: the mean stands behind both rows "
            "of the router, which changes nothing if the two were one. *One row*: it stands behind "
            "the mean of both rows, and a token's freed place goes to another expert.",
            "Merging as dear as removing: the two had nothing in common, and the mean is neither.",
        )
    else:
        outputs.explain(
            "A with one expert half way to B's: partners in the same order, signs and factors, or "
            "B's expert of the same number with its neurons as they are stored. Twins: 0.",
            "Aligned as dear as numbered: nothing was gained, and the partners are a guess.",
        )


def theory() -> None:
    """Both costs, and what merging can and cannot keep."""
    outputs.formula(
        r"$C_{ij} = \frac12\big(\|r_i - r_j\|^2 / \bar r + \frac12 \min_\pi \sum_n (\|g_n - "
        r"g'_{\pi n}\|^2 / \bar g + \|u_n \otimes d_n - u'_{\pi n} \otimes d'_{\pi n}\|^2 / \bar o)"
        r"\big)$ with rows $r$ of the router less their mean, rows $g$, $u$ and columns $d$ of "
        "gate, up and down with the norm's gain folded in; bars are mean squared sizes. No order, "
        "sign or factor of neurons changes it.  \n"
        r"**Merging.** A token that visits both $i$ and $j$ gives them $p_i + p_j$; with one "
        r"expert in two bases, the mean behind both rows is the same function. One row would need "
        r"the score $\log(e^{r_i x} + e^{r_j x})$, which is not linear in $x$.",
        "Ainsworth et al. 2023 (git re-basin) for matching neurons by weights; the costs without "
        "signs and factors, and what merging costs here, are this program's.",
        "expert costs",
    )


def take_away(question: Experts, record: ExpertsReport, term: Term) -> None:
    """Downloads and the command line."""
    name = f"experts-layer-{record.layer}"
    table: Callable[[], str] = partial(experts.partners(record).to_csv, index=False)
    measured: Callable[[], str] = partial(experts.changes(record).to_csv, index=False)
    files = [
        Download("Experts (CSV)", f"{name}.csv", "text/csv", table),
        Download("Costs (CSV)", f"{name}-costs.csv", "text/csv", measured),
        Download("Arrays (NPZ)", f"{name}.npz", "application/octet-stream",
                 lambda: tables.as_npz(record)),
        outputs.document("Record (JSON)", f"{name}.json",
                         lambda: tables.document(record), question),
    ]  # fmt: skip
    for title, chart in pictures(record, term).items():
        for kind, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
            make: Callable[[], bytes] = partial(
                drawing.image, chart.properties(width=WIDE), cast(drawing.Kind, kind)
            )
            label = f"Experts, {title} ({kind.upper()})"
            files.append(Download(label, f"{name}-{title}.{kind}", mime, make))
    outputs.take_away(files, [question.command])


def pictures(record: ExpertsReport, term: Term) -> dict[str, Any]:
    """Every picture on white, by name."""
    found = {
        "map": experts.cost_map(record, term, LIGHT),
        "neurons": experts.likeness(record, LIGHT),
    }
    if not experts.changes(record).empty:
        found["tolls"] = experts.tolls(record, LIGHT)
    return found
