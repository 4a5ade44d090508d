"""Parts of the page of published results: cards, both pictures, what to take away."""

from dataclasses import asdict
from typing import Any

import streamlit as st

from app import outputs
from app.charts import reproductions as charts
from app.charts.theme import LIGHT
from app.outputs import Download
from app.sections.heads import look, picture
from app.sections.layers import figure
from app.sentences import answers
from app.sentences import reproductions as sentences
from app.sentences.answers import Card
from engine.records import Connectivity, PublishedConnectivity

WIDE = 640


def card(one: Card, place: int) -> None:
    """Theirs, ours, the setting's difference, the command that repeats ours."""
    with st.container(border=True, key=f"card-{place}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{outputs.plain(one.title)}**", width="content")
            st.badge(one.answer.word, color=answers.TONES[one.answer.word])
        st.markdown(outputs.plain(one.answer.why))
        left, right = st.columns(2)
        left.caption("Published")
        left.markdown(outputs.plain(one.theirs))
        right.caption("Measured here")
        right.markdown(outputs.plain(one.ours))
        if one.differs:
            st.caption(outputs.plain(f"What differs: {one.differs}"))
        st.caption(outputs.plain(one.source))
        if one.cost:
            st.caption(outputs.plain(one.cost))
        if one.command:
            st.code(one.command, language="bash", wrap_lines=True)


def ratios(measured: Connectivity, told: PublishedConnectivity, scope: str) -> None:
    """The published ranges beside every pair of one scope."""
    picture(
        charts.ratios(measured, told, scope, look()),
        f"ratios-{scope}",
        "Barrier relative to the naive line, published and measured here",
    )
    if gone := sentences.without(measured, scope):
        st.markdown(outputs.plain(gone))
    outputs.explain(
        "Bars: the published ranges, always of the first layer. Dots: pairs of models trained from "
        "different seeds, with their 95 % intervals; ticks: means over pairs. 100 % (dashed) is "
        "the line without alignment; what lies beyond the right edge is drawn there.",
        "Dots of the full Stage 2 on those of Stage 1 alone: what is continuous inside the heads "
        "would not matter. Dots at 100 %: the alignment found nothing.",
    )


def table(measured: Connectivity) -> None:
    """All scopes in numbers."""
    st.subheader("Every architecture and scope")
    st.dataframe(charts.table(measured), hide_index=True, width="stretch")
    st.caption(
        "Mean over pairs, in brackets the smallest and the largest. Naive: the line without "
        f"alignment. The last three: what is left of its barrier. {sentences.STAGES} A pair whose "
        "naive barrier is not above 0 with its whole interval has no ratio."
    )


def orders(measured: Connectivity) -> None:
    """The barrier of every order of the heads."""
    st.subheader("Every order of the heads")
    if not measured.orders:
        st.markdown("Not measured yet.")
        return
    picture(charts.orders(measured.orders, look()), "orders", "Barriers of all orders of heads")
    outputs.explain(
        "A row is a pair, a dot an order of the heads of the first layer with its own Stage 2; the "
        "large dot is the one that Stage 1 takes, the tick the line without alignment.",
        "The chosen dot far to the right of the others: then the order was chosen badly.",
    )


def theory() -> None:
    """What is divided by what."""
    outputs.formula(
        r"$B = \sup_t [L((1-t)A + t\,g B) - (1-t)L(A) - t L(B)]$ over 25 points; a ratio is $B$ "
        "after an alignment over $B$ of the naive line, $g = 1$. Stage 1: orders of residual "
        "coordinates, neurons and heads. Stage 2: inside each head, orthogonal matrices and turns, "
        "or the whole group.",
        "Tran et al. 2026 (arXiv 2606.17830); intervals resample windows, the same for both.",
    )


def take_away(
    measured: Connectivity, told: PublishedConnectivity, scope: str, cards: list[Card]
) -> None:
    """Tables, cards and pictures as files, and the command."""
    pictures: dict[str, Any] = {
        "ratios": charts.ratios(measured, told, scope, LIGHT).properties(width=WIDE),
    }
    if measured.orders:
        pictures["orders"] = charts.orders(measured.orders, LIGHT).properties(width=WIDE)
    using = next((one.using for one in measured.scopes), "weights")
    asked = {"command": measured.command, "scope": scope, "using": using}
    files = [
        Download("Pairs (CSV)", "published-pairs.csv", "text/csv",
                 lambda: charts.pairs(measured).to_csv(index=False)),
        outputs.document("Cards (JSON)", "published-cards.json",
                         lambda: {"question": asked, "cards": [asdict(one) for one in cards]}),
    ]  # fmt: skip
    for title, chart in pictures.items():
        files += [figure(title, f"published-{title}", chart, kind) for kind in ("png", "svg")]
    outputs.take_away(files, list(dict.fromkeys(one.command for one in cards if one.command)))
