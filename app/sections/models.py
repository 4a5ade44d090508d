"""Parts of the Models page: two cards, the distance picture, the tour."""

import streamlit as st

from app import inputs, outputs
from app.charts import cards, layers, tables
from app.charts.theme import shade
from app.outputs import Download
from app.sections import relation
from app.sentences import verdicts, words
from engine.errors import Refused
from engine.questions import Align, Check, Inspect, Related
from engine.records import AlignmentReport, ModelCard, Relatedness, SelfTest

TOUR = {
    "Start with the verdict.": "It says in words whether A and B compute the same thing, with the "
    "number that was measured. Nothing is called exact unless a fresh check passed.",
    "Look at the two cards.": "Each says what one checkpoint is. The self-test gives every "
    "internal coordinate a random name, sign or angle, and checks that the output stays the same.",
    "Compare the two maps.": "Left: how far the files are apart. Right: what remains once B is put "
    "into A's coordinates. What disappears was only a matter of names.",
    "Open Atlas in the sidebar.": "There you see which numbers inside a model are only names, "
    "which tensors carry each, and how many settings of the weights are this same function.",
    "Turn a dial in the Lab.": "Choose an experiment, a layer and how far to turn: the weights "
    "move. Does the output? Some changes hold exactly, others break as they must.",
    "Open Residual.": "There you see which coordinate of B is which of A, one by "
    "one, and why a match that ignores flipped signs stops half way.",
    "Put B into A's coordinates.": "On Alignment, see first whether the two are related at all, "
    "then how the objective falls, which coordinates explain the distance, and write the result.",
    "Bring your own models.": "Change A or B in its card: a folder with safetensors, or an id on "
    "the hub. The address in your browser follows; send it to share the view.",
}


def tour() -> None:
    """Steps through the program."""
    with st.popover("Guided tour", icon=":material/tour:"):
        for number, (title, text) in enumerate(TOUR.items(), start=1):
            st.markdown(f"**{number}. {title}** {text}")


def side(letter: inputs.Letter, spec: str) -> ModelCard | None:
    """One model: what it is and its self-test, or the one line why it cannot be opened."""
    with st.container(border=True, height="stretch", key=f"card-{letter}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{letter}** · {outputs.plain(inputs.label(spec))}", width="stretch")
            inputs.change(letter)
        try:
            if letter == "B" and inputs.same() and inputs.unopened(spec):
                st.caption("The same model as A: it is opened there.")
                return None
            if inputs.open_slow(spec, letter):
                return None
            path = inputs.located(spec)
            card = inputs.card(path)
        except Refused as refusal:
            outputs.refuse(str(refusal))
            return None
        st.markdown("  \n".join(outputs.plain(line) for line in words.describe(card)))
        test = _self_test(letter, spec, path)
        _rows(letter, card, test)
        return card


def _rows(letter: str, card: ModelCard, test: SelfTest | None) -> None:
    """Its coordinates, each with its own number once the self-test has run."""
    if test is None:
        with st.expander(f"Internal coordinates of {letter}"):
            table = cards.coordinates(card).drop(columns=[*cards.TICKS, "self-test"])
            st.dataframe(table, hide_index=True, width="stretch")
        return
    with st.expander(f"Internal coordinates of {letter}, each changed alone"):
        st.dataframe(cards.self_test(test), hide_index=True, width="stretch")
        st.caption(
            "Coordinates first, blind directions below. Those marked “up to ε” are true only up to "
            "the small number inside a norm. The Atlas page says what each is."
        )


def _self_test(letter: str, spec: str, path: str) -> SelfTest | None:
    """The reserved word with its number, or the button that measures it."""
    question = Check(path, device=inputs.chosen_device())
    record = outputs.known(question)
    verdict = verdicts.check(record)
    with st.container(horizontal=True, vertical_alignment="center", key=f"check-{letter}"):
        st.badge(f"self-test: {verdict.badge}", color=verdict.tone, help=verdict.text)
        if record is None:
            title = f"Self-test of {inputs.label(spec)}"
            where = "" if letter == "A" else letter
            outputs.measured(question, title, "Run the self-test", where=where)
    return record


def pictures(report: AlignmentReport) -> None:
    """How far the tensors are apart, before and after."""
    look = shade(st.context.theme.type)
    st.subheader("How much of the distance was only coordinates?")
    st.markdown(outputs.plain(verdicts.share_of_coordinates(report)))
    before, after = st.columns(2)
    before.altair_chart(layers.distance_map(report, "before", look), width="stretch", theme=None)
    after.altair_chart(layers.distance_map(report, "after", look), width="stretch", theme=None)
    outputs.explain(
        "Each cell is one tensor: the length of the difference between A's and B's numbers, "
        "divided by the length of A's. Left: the files as they are. Right: B in A's coordinates.",
        "A right side that stays dark: the two models differ by more than names, order, signs and "
        "angles, or the matching went wrong.",
    )
    with st.expander("Stage by stage"):
        st.dataframe(tables.stages(report), hide_index=True, width="stretch")


def theory() -> None:
    """What aligning means."""
    outputs.formula(
        r"Aligning finds a change of coordinates $g$ with $g \cdot B \approx A$: a signed "
        r"permutation $y_i = s_i\, x_{\pi(i)}$ of the residual stream, orders of neurons and "
        r"heads, and angles in heads. The maps show $\lVert A - B \rVert / \lVert A \rVert$ and "
        r"$\lVert A - g \cdot B \rVert / \lVert A \rVert$ for each tensor. A change of coordinates "
        "never changes the function, so the verdict compares the logits of A and B on the same "
        r"tokens, and those of the model half way, $\frac12 (A + g \cdot B)$.",
        "Signed permutations of the residual stream: Sweeney 2026 (arXiv 2606.31963). Matching of "
        "weights: Ainsworth et al. 2023 (git re-basin).",
    )


def take_away(
    question: Align, report: AlignmentReport, asked: Related | None, related: Relatedness | None
) -> None:
    """Downloads and command lines."""

    def csv() -> str:
        return tables.distances(report).to_csv(index=False)

    files = [
        Download("Tensors (CSV)", "alignment-tensors.csv", "text/csv", csv),
        outputs.document(
            "Report (JSON)", "alignment.json", lambda: tables.document(report), question
        ),
        Download(
            "Maps (PNG)", "maps.png", "image/png", lambda: layers.distance_image(report, "png")
        ),
        Download(
            "Maps (SVG)", "maps.svg", "image/svg+xml", lambda: layers.distance_image(report, "svg")
        ),
    ]
    commands = [Inspect(question.a).command, Inspect(question.b).command, question.command]
    if asked is not None:
        commands.append(asked.command)
        files += [] if related is None else relation.files(asked, related)
    outputs.take_away(files, commands)
