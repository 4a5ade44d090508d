"""Parts of the Heads page about the published cost: heads in disguise, and both costs compared."""

import streamlit as st

from app import outputs
from app.charts import disguises, heads, pairings
from app.controls.heads import Pick
from app.sections.heads import listed, look, picture
from app.sentences import attention
from app.sentences import disguises as sentences
from engine.records import HeadsReport


def why(record: HeadsReport) -> None:
    """Heads that differ although the published cost calls them one, by what the model says."""
    st.subheader(sentences.title(record))
    st.markdown(outputs.plain(" ".join(sentences.why(record))))
    if not record.disguises:
        return
    about = "Cost of heads against themselves in disguise, by either formula"
    picture(disguises.chart(record, look()), "disguises", about)
    listed(disguises.table(record), height="content")
    ran = f" Output: {record.disguised_on}." if record.disguised_on else ""
    outputs.explain(
        "One mark a head: its cost against itself in disguise; 0 is called the same head, two "
        "unrelated heads of one size are at 2 (dashed). *any matrix*: q → G q, k → G⁻ᵀ k. "
        "*frequencies exchanged*: each rotary pair in the place of another, in q and k. "
        f"*frequencies turned*: a random turn of each, as between twins.{ran}",
        "A blue mark at 0 where the output moved, or away from 0 where it stayed.",
    )


def compared(record: HeadsReport, pick: Pick) -> None:
    """Our cost and the published one side by side."""
    st.subheader("The published cost against ours")
    st.markdown(outputs.plain(attention.disagreement(record)))
    for place, cost in zip(st.columns(2), (record.own, record.published), strict=True):
        with place:
            ours = cost.kind != "published"
            st.markdown("**ours: " + cost.kind + "**" if ours else "**as published**")
            chart = heads.cost_map(record, cost, pick.term, look(), pick.recovered, pick.cell)
            picture(chart, f"cost {cost.kind}", f"Costs of all pairs of heads, {cost.kind}")
    first, second = st.columns(2)
    with first:
        st.markdown("**Nearest head by either cost**")
        listed(pairings.nearest(record))
    with second:
        st.markdown("**Pairs that the published cost brings nearer**")
        listed(pairings.apart(record))
    outputs.explain(
        "Both over their own mean. Switch *Cost* above to pair the heads by either.",
        "A pair at 0 on the right and near 1 on the left: different heads taken for one.",
    )
