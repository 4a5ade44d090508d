"""Parts of the Atlas page: the diagram, the tables, one coordinate in detail."""

from typing import Any

import streamlit as st

from app import inputs, outputs, session
from app.charts import cards, diagrams, tables
from app.charts.theme import shade
from app.controls.model import Chosen
from app.outputs import Download
from app.sentences import inventory
from engine.questions import Check, Inspect
from engine.records import BlindCard, CoordinateCard, ModelCard, SelfTest

HELP = (
    "Between write and read all indices are treated alike, or by what follows their exchange.",
    "One tensor writes the index and one reads it: a change of the one is undone in the other.",
    "The index means nothing outside the model: no dictionary, no counting.",
)
"""What the three ticks of the criterion mean."""

SENTENCES = ["why", "carried by"]
"""Columns that get a table of their own: they are long."""

Row = CoordinateCard | BlindCard


def rows(card: ModelCard) -> dict[str, Row]:
    """Every row of the table by its title: names first, then fixed ones, then blind directions."""
    found: tuple[Row, ...] = (*cards.free(card), *cards.fixed(card), *card.blind)
    return {row.title: row for row in found}


def choose(model: Chosen, letter: str) -> Row:
    """The row to look at, from the field or from a click on the diagram."""
    offered = rows(model.card)
    session.within(session.WORD, list(offered))
    chosen = session.value(session.WORD) or next(iter(offered))
    clicked = _clicked(st.session_state.get(_key(letter, offered[chosen].name)))
    found = next((title for title, row in offered.items() if row.name == clicked), chosen)
    if found != chosen:
        session.assign(**{session.WORD: found})
    title = st.selectbox("Look at", list(offered), width=330, **session.linked(session.WORD))
    return offered[title]


def _clicked(state: Any) -> str:
    """The word of the box that was clicked, if one was."""
    found = (state or {}).get("selection", {}).get(diagrams.CLICK) or [{}]
    return str(found[0].get("word", ""))


def _key(letter: str, word: str) -> str:
    """A new choice is a new drawing without the old click."""
    return session.local("block", letter, word)


def picture(model: Chosen, letter: str, chosen: Row) -> None:
    """Write → coordinate → read."""
    st.altair_chart(
        diagrams.block(model.card, shade(st.context.theme.type), chosen.name),
        key=_key(letter, chosen.name),
        on_select="rerun",
        selection_mode=diagrams.CLICK,
        width="stretch",
        theme=None,
    )
    outputs.explain(
        "One row for each index that is only a name. Left: the tensors that write it. Right: those "
        "that read it. In italics: those that follow its order and nothing else. A diamond is one "
        "tensor on both sides. Click a box to see its tensors below.",
        "A tensor missing on one side: whoever changes the index then changes the function.",
    )


def detail(chosen: Row) -> None:
    """One row of the table with every tensor that carries it."""
    st.subheader(f"{outputs.plain(chosen.title)} · `{chosen.name}`")
    about = (
        inventory.about(chosen)
        if isinstance(chosen, CoordinateCard)
        else f"{chosen.dimension:,} dimensions. {chosen.why}"
    )
    st.markdown(outputs.plain(about))
    if chosen.carriers:
        st.dataframe(cards.carriers(chosen), hide_index=True, width="stretch")
        st.caption(
            "Axes count from 0, as the file stores them. `x` is written, `x*` is read, `|x|` is "
            "only relabelled; brackets split one axis, outer first; `+` puts blocks side by side; "
            "`{l}` is the layer."
        )


def everything(model: Chosen, test: SelfTest | None) -> None:
    """All coordinates, then what is fixed."""
    st.subheader("Every index that is only a name")
    table = cards.coordinates(model.card, test).drop(columns=SENTENCES)
    st.dataframe(table, hide_index=True, width="stretch", column_config=_columns())
    st.caption(
        "The three ticks are the source's criterion, and an index is only a name where all three "
        "hold. *Alike*: all indices are treated alike in between. *Cancels*: one write and one "
        "read, which undo each other. *Private*: the index means nothing outside the model."
    )
    _reasons(cards.free(model.card), model.card)
    st.subheader("What is not only a name")
    table = cards.fixed_table(model.card)
    st.dataframe(table, hide_index=True, width="stretch", column_config=_columns())


def _columns() -> dict[str, Any]:
    column = st.column_config
    found: dict[str, Any] = {
        name: column.TextColumn(name, help=text, width=60)
        for name, text in zip(cards.TICKS, HELP, strict=True)
    }
    found["log₁₀ count"] = column.NumberColumn(
        "log₁₀ count", format="%.1f", help="Of the number of orders and signs, all copies together."
    )
    found["continuous"] = column.NumberColumn(
        "continuous", format="%d", help="Dimension of the factors, angles and matrices together."
    )
    found["copies"] = column.NumberColumn(
        "copies", help="Independent index sets: layers × groups of heads × experts."
    )
    return found | {"word": None}


def _reasons(rows: tuple[Row, ...], card: ModelCard) -> None:
    """The sentence that says why, and the tensors, row by row."""
    st.dataframe(cards.reasons(rows, card), hide_index=True, width="stretch")


def blind(model: Chosen, test: SelfTest | None) -> None:
    """The blind directions, and the job that tries all of them."""
    st.subheader("Blind directions: the weights move, no index does")
    if not model.card.blind:
        st.markdown("None is known for this model.")
    else:
        table = cards.blind(model.card, test).drop(columns=SENTENCES)
        st.dataframe(table, hide_index=True, width="stretch", column_config=_columns())
        _reasons(model.card.blind, model.card)
        outputs.explain(
            "Each row is a change of the weights in which no index takes part and which no output "
            "shows: factors that cancel, or shifts. The self-test tries each on its own.",
            "Broken in the self-test column: the direction is not blind in this model.",
        )
    if test is None:
        question = Check(model.path, device=inputs.chosen_device())
        title = f"Self-test of {inputs.label(model.spec)}"
        outputs.measured(question, title, "Run the self-test", "Tries every row of both tables.")


def theory() -> None:
    """How the elements are counted."""
    outputs.formula(
        r"An index set of $n$ with group $G$ has $|G|$ discrete elements: $n!$ for an order "
        r"($S_n$), $2^n n!$ with signs ($B_n = S_n \ltimes \{\pm 1\}^n$); factors "
        r"$(\mathbb R \setminus 0)^n$ add $n$ dimensions and $2^n$ signs, rotary frequencies "
        r"$\mathbb C \setminus 0$ two dimensions each, $GL(n)$ adds $n^2$. All copies are "
        r"independent, so logarithms and dimensions add up. For almost every setting of the "
        r"parameters these are different settings of the same function.",
        "Signed permutations: Sweeney 2026 (arXiv 2606.31963). Heads: Tran et al. 2026 (arXiv "
        "2606.17830). Matching of weights: Ainsworth et al. 2023 (git re-basin).",
    )


def take_away(model: Chosen, test: SelfTest | None) -> None:
    """Downloads and the command line."""
    card, asked = model.card, Inspect(model.path)

    def csv() -> str:
        return cards.exported(card, test).to_csv(index=False)

    files = [
        Download("Table (CSV)", "atlas.csv", "text/csv", csv),
        outputs.document("Card (JSON)", "card.json", lambda: tables.document(card), asked),
        Download("Diagram (PNG)", "atlas.png", "image/png", lambda: diagrams.image(card, "png")),
        Download(
            "Diagram (SVG)", "atlas.svg", "image/svg+xml", lambda: diagrams.image(card, "svg")
        ),
    ]
    outputs.take_away(files, [asked.command])
