"""Parts of the Layers page: maps, strip, disagreement, the chosen pair, what to take away."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from app import layer_views as views
from app import outputs
from app.charts import drawing, layer_maps, layer_tables
from app.charts.layer_maps import Maps
from app.charts.theme import LIGHT, Shade
from app.controls import layers as controls
from app.controls.layers import Pick
from app.controls.model import Chosen
from app.outputs import Download
from app.sections.heads import listed, look, picture
from app.sentences import layers as sentences
from app.sentences import words
from engine.exports import layers as exports
from engine.questions import Layers
from engine.records import Continuation, LayerMaps, PublishedMaps

Held = LayerMaps | PublishedMaps
WIDE = 420
"""Pixels across, of a map that is written to a file."""


def viewed(record: Held) -> Maps:
    """A record as maps; those made here are kept by their content, since intervals take a while."""
    if isinstance(record, PublishedMaps):
        return views.of_published(record)
    return _kept(views.digest(record), record)


@st.cache_resource(max_entries=4, show_spinner=False)
def _kept(digest: str, _record: LayerMaps) -> Maps:  # noqa: ARG001  the digest is the cache's key
    return views.of_model(_record)


def whole(question: Layers | None, record: Held, pick: Pick, model: Chosen | None) -> None:
    """All pictures of maps at rest; without a question, published ones."""
    maps = viewed(record)
    pictures(maps, record, pick)
    if maps.layers < 2:
        take_away(question, maps, record, pick)
        return
    if question is not None and model is not None and isinstance(record, LayerMaps):
        continuations(question, record, pick, model)
    theory()
    take_away(question, maps, record, pick)


def pictures(maps: Maps, record: Held, pick: Pick) -> None:
    """All pictures of maps, finished or not; those of pairs need two layers."""
    if maps.layers > 1:
        pair_maps(maps, record, pick)
    strip(maps, pick)
    if maps.layers > 1:
        disagreement(maps, record, pick)


@st.fragment(run_every=outputs.EVERY)
def live(question: Layers, pick: Pick) -> None:
    """The maps as far as they are, drawn anew as they grow; the controls are left alone."""
    record = outputs.so_far(question)
    if record is None:
        return
    outputs.say(sentences.told(viewed(record), record, pick.how), key="verdict-so-far")
    pictures(viewed(record), record, pick)
    if any(controls.clicked(pick.key(side)) for side in controls.SIDES):
        st.rerun()


def sides(maps: Maps, pick: Pick) -> list[str]:
    """The tests of both maps, those that were measured for any pair."""
    known = {test for test, measure in maps.pairs.items() if not np.isnan(measure.value).all()}
    return [test for test in (pick.left, pick.right) if test in known]


def pair_maps(maps: Maps, record: Held, pick: Pick) -> None:
    """Two maps on one scale."""
    shown = sides(maps, pick)
    span = layer_maps.domain(maps.pairs[test] for test in shown)
    where = " · published" if maps.published else ""
    for place, side, test in zip(st.columns(2), controls.SIDES, (pick.left, pick.right),
                                 strict=False):  # fmt: skip
        with place:
            st.markdown(f"**{outputs.plain(sentences.TITLES[test])}**{where}")
            if test not in shown or (side == "right" and pick.left == pick.right):
                st.markdown("No second test is there." if test in shown else "Not measured yet.")
                continue
            chart = layer_maps.pair_map(maps, test, span, look(), pick.pair)
            picture(chart, pick.key(side), f"KL of every pair of layers, {test}", clicks=True)
    if maps.published and isinstance(record, PublishedMaps):
        st.caption(f"Published: {outputs.plain(record.source)}.")
    outputs.explain(
        "KL(base ‖ modified) in nats, logarithmic, one scale for both: faint cells barely change "
        "what the model says. "
        + " ".join(f"*{test}*: {sentences.SAYS[test]}." for test in dict.fromkeys(shown))
        + f" Grey: not measured. Click a cell. {sentences.kinds(maps)}",
        "Strong colour everywhere: no layer stands in for another. Faint in one map only: "
        "do not call the two layers equivalent.",
    )


def strip(maps: Maps, pick: Pick) -> None:
    """What is known of single layers."""
    unit = "perplexity, %" if maps.published else "KL without it"
    rows = {f"{name}: {unit}": measure.value for name, measure in maps.singles.items()}
    if maps.influence is not None:
        rows["block influence"] = maps.influence
    rows |= {f"nearest partner by {t}": views.layers_of(maps, t, pick.how)
             for t in dict.fromkeys(sides(maps, pick))}  # fmt: skip
    st.markdown("**Layer by layer**")
    chart = layer_maps.strip(rows, maps.kinds, look(), pick.pair)
    picture(chart, "strip", "Measures of every single layer")
    alike = " All layers are of one kind." if len(set(maps.kinds)) == 1 else ""
    alike = "" if maps.published else alike
    outputs.explain(
        "Each row from its least (faint) to its most (strong), logarithmic: the cost of leaving "
        "the layer out, how far it turns the stream (1 − cos of input and output), and its lowest "
        f"pair score s(i) = min over j of d(i, j). The chosen layers are framed.{alike}",
        "Rows that disagree: a faint score under a strong removal would cut a needed layer.",
    )


def disagreement(maps: Maps, record: Held, pick: Pick) -> None:
    """Where both tests part, beside the chosen pair in numbers."""
    left, right = st.columns(2)
    names = (pick.left, pick.right)
    with left:
        st.markdown(f"**Disagreement: {names[0]} over {names[1]}**")
        if pick.left == pick.right or len(sides(maps, pick)) < 2:
            st.markdown("Choose two tests that were both measured.")
        else:
            chart = _apart(maps, pick, look())
            picture(chart, pick.key("apart"), "Ratio of two tests, pair by pair", clicks=True)
        outputs.explain(
            f"log₂ of the pair scores ({pick.how} of both directions): +1 means that "
            f"{names[0]} costs twice as much, −1 half as much; 0, faint, that both agree. The map "
            "is symmetric. Click a cell.",
            "Strong colour: the answer depends on the question.",
        )
    with right:
        st.markdown("**The chosen pair**")
        st.markdown(outputs.plain(sentences.picked(maps, pick.pair, pick.how)))
        if not pick.pair.same and not sentences.kinds(maps, pick.pair):
            st.markdown(outputs.plain(sentences.ratio(maps, pick.how, pick.pair, names)))
            mine = record if isinstance(record, LayerMaps) else None
            listed(layer_tables.pair(maps, pick.pair, mine), height="content")
            ways = "i ← j: depth i runs layer j. "
            st.caption(outputs.plain(ways + _intervals(maps)))


def _intervals(maps: Maps) -> str:
    if any(measure.low is not None for measure in maps.pairs.values()):
        return "In brackets: 95 % intervals" + (
            ", published." if maps.published else ", from windows drawn again 1,000 times."
        )
    return "No intervals were published." if maps.published else f"There is {sentences.FEW}."


def _apart(maps: Maps, pick: Pick, shade: Shade) -> Any:
    scores = [views.scored(maps, test, pick.how) for test in (pick.left, pick.right)]
    names = (pick.left, pick.right)
    return layer_maps.disagreement(maps, scores[0], scores[1], names, shade, pick.pair)


def continuations(question: Layers, record: LayerMaps, pick: Pick, model: Chosen) -> None:
    """What the model writes, as it is and under both tests of the chosen pair."""
    if pick.pair.same or sentences.kinds(viewed(record), pick.pair):
        return
    st.subheader("What does it write then?")
    if np.isnan(record.base.loss).all():
        st.markdown("Nothing: this model predicts no next token.")
        return
    beginning = controls.prompt()
    for place, test in zip(st.columns(2), dict.fromkeys((pick.left, pick.right)), strict=False):
        with place:
            st.markdown(f"**{test}**")
            if test.endswith("healed"):
                st.markdown("Healed layers learn from a text of their own; they write none here.")
                continue
            asked = controls.continuation(question, pick, test, beginning)
            title = f"Write with {test} of {asked.i} and {asked.j}"
            about = words.memory(model.card, model.card)
            told = outputs.answered(asked, model.card.parameters, title, f"Write: {test}", about)
            if told is not None:
                written(told)
    outputs.explain(
        "The likeliest next token, again and again, from one beginning: before, and after the "
        "test. A single text is an example, not a measurement.",
        "Repetition or broken words after a test whose KL is called low.",
    )


def written(record: Continuation) -> None:
    """One text before and after."""
    st.caption(f"{outputs.plain(record.stack)} · the first {record.same} tokens are the same")
    for name, text in (("before", record.before), ("after", record.after)):
        st.markdown(f"*{name}*")
        st.code(f"{record.prompt}▸{text}", language=None, wrap_lines=True)


def theory() -> None:
    """The tests as formulas."""
    outputs.formula(
        r"$R[i, j] = \mathbb{E}\,KL(p \,\|\, p_{i \leftarrow j})$: depth $i$ runs layer $j$'s "
        r"weights (directed). $S[i, j] = \mathbb{E}\,KL(p \,\|\, p_{i \leftrightarrow j})$: both "
        r"exchanged (symmetric). $p$ is the model as it is. Pair score $d(i, j)$: the larger of "
        r"both directions (or mean, geometric mean, smaller). $s(i) = \min_j d(i, j)$; layers go "
        r"in ascending order, ties to the lower index, no two with $|i - k| \le 1$. Below 0.05 "
        "nats strong, below 0.10 conditional.  \n"
        "*Skip* hands layer $i$'s output to the layer after $j$: so the first account that many "
        "read of this work describes replacement, which is another operation. *Healed* tests "
        "refit each changed depth's update, channel by channel, on other text.",
        "Garcia 2026 (arXiv 2605.16234), for the tests, the rule and the thresholds. Block "
        "influence: ShortGPT (Men et al. 2024). Angular distance: Gromov et al. 2024.",
    )


def charts(maps: Maps, pick: Pick) -> dict[str, Any]:
    """The pictures on white, by name."""
    shown = sides(maps, pick)
    span = layer_maps.domain(maps.pairs[test] for test in shown)
    both = [
        layer_maps.pair_map(maps, test, span, LIGHT, pick.pair, clicks=False).properties(
            width=WIDE, title=test
        )
        for test in dict.fromkeys(shown)
    ]
    found = {"maps": drawing.beside(*both)} if both else {}
    if len(both) == 2:
        found["disagreement"] = _apart(maps, pick, LIGHT).properties(width=WIDE)
    return found


def take_away(question: Layers | None, maps: Maps, record: Held, pick: Pick) -> None:
    """Downloads and the command line."""
    name = f"layers-{pick.left}-{pick.right}"
    scores = {f"s by {test}": views.layers_of(maps, test, pick.how) for test in sides(maps, pick)}
    files = [
        Download("Pairs (CSV)", "layers-pairs.csv", "text/csv",
                 lambda: layer_tables.pairs(maps).to_csv(index=False)),
        Download("Layers (CSV)", "layers.csv", "text/csv",
                 lambda: layer_tables.layers(maps, scores).to_csv(index=False)),
        outputs.document("Maps (JSON)", "layers.json", lambda: document(record), question),
    ]  # fmt: skip
    for title, chart in charts(maps, pick).items():
        files += [figure(title, f"{name}-{title}", chart, kind) for kind in ("png", "svg")]
    commands = [] if question is None else [question.command]
    if question is None:
        commands = ["python -m engine layers MODEL --tests replace,swap,delete --out layers.json"]
    outputs.take_away(files, commands, "Published numbers stand in assets/published."
                      if question is None else "")  # fmt: skip


def document(record: Held) -> dict[str, Any]:
    """What the command line writes; the same names for published maps."""
    mine = isinstance(record, LayerMaps)
    return exports.of_maps(record) if mine else exports.of_published(record)


def figure(title: str, name: str, chart: Any, kind: drawing.Kind) -> Download:
    """One picture as a file."""
    mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    make = partial(drawing.image, chart, kind)
    return Download(f"{title.capitalize()} ({kind.upper()})", f"{name}.{kind}", mime, make)
