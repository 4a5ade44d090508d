"""Parts of the Cutting page: the strip, the curves, scores against costs, what to take away."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app import outputs, pruned, session, written
from app.charts import cuts, drawing
from app.charts.theme import LIGHT
from app.controls import cutting as controls
from app.controls.model import Chosen
from app.outputs import Download
from app.pruned import Pruning
from app.sections import checkpoints
from app.sections.heads import listed, look, picture
from app.sections.layers import figure
from app.sentences import cuts as sentences
from app.sentences import words
from app.settings import settings
from engine.exports import layers as exports
from engine.questions import Cut
from engine.records import CutCost, CutReport

WIDE = 460
ACROSS = 3
"""Pictures of scores in one row."""


def strip(report: CutReport, n: int, mine: tuple[int, ...]) -> None:
    """Which layers each candidate leaves out at budget n."""
    st.subheader(f"Which layers go, n = {n}")
    sets = cuts.chosen(report, n, mine)
    chart = cuts.strip(report.layers, {sentences.NAMES[by]: cut for by, cut in sets.items()},
                       look())  # fmt: skip
    picture(chart, controls.chart_key(), "Layers kept and cut by each candidate", clicks=True)
    for line in sentences.missing(report, n):
        st.caption(outputs.plain(line))
    outputs.explain(
        "One row a way to choose, on one half of the text; every marked layer is left out. The "
        f"first layer is 0, the last {report.layers - 1}. Click a layer: it joins *mine*, or "
        "leaves it.",
        "The first or last layer cut, which usually costs most; candidates that share no layer: "
        "not all of them can name the least needed ones.",
    )


def own(asked: Cut, mine: tuple[int, ...], model: Chosen) -> CutCost | None:
    """What the user's own cut costs."""
    if not mine:
        return None
    question = controls.drop(asked, mine)
    title, about = f"Without {sentences.cut(mine)}", words.memory(model.card, model.card)
    return outputs.answered(question, model.card.parameters, title, "Measure mine", about)


def curves(report: CutReport, n: int, mine: CutCost | None) -> None:
    """Cost against the budget, for every candidate."""
    st.subheader("What it costs, against n")
    kinds = (("perplexity", "Rise of the perplexity"), ("kl", "KL from the model as it is"))
    for place, (kind, title) in zip(st.columns(2), kinds, strict=True):
        with place:
            st.markdown(f"**{title}**")
            if cuts.costs(report, kind).empty:
                st.markdown("Not measured: this model predicts no next token.")
                continue
            picture(cuts.curves(report, kind, n, look(), mine), f"curve-{kind}", title)
    outputs.explain(
        "Each line is one way to choose; bands are 95 % intervals from windows drawn again, of the "
        "difference to the model as it is. Dashed: the budget. Diamond: mine.",
        "Bands that overlap: the text does not separate the candidates. A jump of a line: the last "
        "layer added was needed.",
    )


def table(report: CutReport, n: int, mine: CutCost | None) -> pd.DataFrame:
    """Every candidate at budget n."""
    return pd.DataFrame([
        {
            "chosen by": sentences.NAMES[cost.by],
            "left out": sentences.cut(cost.cut),
            "perplexity": sentences.percent(cost.rise),
            "KL, nats": cost.kl.text,
            "forwards to choose": "–" if cost.forwards is None else f"{cost.forwards:,}",
        }
        for cost in sentences.costs(report, n, mine)
    ])  # fmt: skip


def exported(report: CutReport, n: int, mine: CutCost | None) -> pd.DataFrame:
    """The same for a file: every number in a column of its own, layers with blanks between."""
    return pd.DataFrame([
        {
            "chosen by": cost.by,
            "left out": " ".join(map(str, cost.cut)),
            **cost.rise.columns("perplexity, rise in %"),
            **cost.kl.columns("KL, nats"),
            "forwards to choose": cost.forwards,
        }
        for cost in sentences.costs(report, n, mine)
    ])  # fmt: skip


def candidates(report: CutReport, n: int, mine: CutCost | None) -> None:
    """The table of candidates, the cheapest first."""
    listed(table(report, n, mine), height="content")
    few = "" if report.single.kl.shape[-1] >= 16 else f" There is {sentences.FEW}."
    st.caption(
        "The cheapest first, mine last; in brackets 95 % intervals. Every named layer is left out, "
        f"both ends of a range included.{few}"
    )


def scores(report: CutReport) -> None:
    """Which score told what a single layer costs."""
    st.subheader("Which score told?")
    cost = report.single.measure()
    found = controls.correlations(report, cost)
    st.markdown(outputs.plain(sentences.told_scores(found)))
    for start in range(0, len(found), ACROSS):
        for place, (by, rho, _) in zip(st.columns(ACROSS), found[start : start + ACROSS],
                                       strict=False):  # fmt: skip
            with place:
                shown = "no ρ" if np.isnan(rho) else f"ρ = {rho:.2f}"
                st.markdown(f"**{outputs.plain(by)}: {outputs.plain(shown)}**")
                chart = cuts.scatter(report.scores[by], cost, by, look())
                picture(chart, f"score-{by}", f"Score by {by} against the measured cost")
    outputs.explain(
        "One dot a layer: its score against the measured KL when it alone is left out. A score "
        "that tells rises from left to right; ρ is Spearman's, 1 for the same order.",
        "No slope, or dots low on the left and high above: the score would cut a needed layer.",
    )


def write(model: Chosen, report: CutReport, n: int, mine: tuple[int, ...]) -> Pruning | None:
    """The pruned checkpoint of one candidate, written by a job; the chosen cut."""
    st.subheader("Write it")
    sets = {cost.by: cost.cut for cost in sentences.costs(report, n)} | {cuts.MINE: mine}
    offered = [by for by, cut in sets.items() if 0 < len(cut) < model.card.layers]
    if not offered:
        st.markdown("There is nothing to write: no candidate leaves out a layer.")
        return None
    by = st.selectbox(
        "The cut of", offered, width=260, format_func=lambda name: sentences.NAMES[name],
        key=session.local("cut-of"),
    )  # fmt: skip
    asked = Pruning(model.path, tuple(sorted(sets[by])))
    st.markdown(outputs.plain(f"Leaves out {sentences.cut(asked.drop)}."))
    if settings().hosted:
        st.caption("A hosted server writes no checkpoints: use the command line below.")
        return asked
    about = f"To {asked.out}; the model itself is not changed."
    title = f"Write without {sentences.cut(asked.drop)}"
    place = outputs.measured(asked, title, "Write the checkpoint", about, written.places())
    if place is not None:
        checkpoints.written(place)
    return asked


def theory() -> None:
    """What is measured, and how the candidates choose."""
    ways = "  \n".join(f"*{sentences.NAMES[by]}*: {how}." for by, how in sentences.HOW.items())
    outputs.formula(
        r"$\Delta PPL = e^{\ell(\text{cut}) - \ell} - 1$ with the mean next-token loss $\ell$ on "
        "one text; intervals draw its windows again, the same for both. "
        r"$KL(p \,\|\, p_\text{cut})$ is the mean over positions, in nats.  " + f"\n{ways}",
        "Swap and replacement: Garcia 2026 (arXiv 2605.16234). Block influence: ShortGPT (Men et "
        "al. 2024). Angular distance: Gromov et al. 2024 (arXiv 2403.17887). Greedy: SLEB (Song et "
        "al. 2024).",
    )


def charts(report: CutReport, n: int, mine: CutCost | None) -> dict[str, Any]:
    """The pictures on white, by name."""
    both = [
        cuts.curves(report, kind, n, LIGHT, mine).properties(width=WIDE)
        for kind in ("perplexity", "kl")
    ]
    return {"cost": drawing.beside(*both)}


def take_away(
    question: Cut, report: CutReport, n: int, mine: CutCost | None, asked: Pruning | None
) -> None:
    """Downloads and the command lines."""
    files = [
        Download(f"Table at n = {n} (CSV)", f"cut-{n}.csv", "text/csv",
                 lambda: exported(report, n, mine).to_csv(index=False)),
        Download("Costs (CSV)", "cut-costs.csv", "text/csv",
                 lambda: cuts.costs(report, "perplexity").to_csv(index=False)),
        outputs.document("Record (JSON)", "cut.json", lambda: exports.of_cut(report), question),
    ]  # fmt: skip
    if asked is not None:
        files.append(
            Download("mergekit (YAML)", "mergekit.yaml", "text/yaml", lambda: pruned.yaml(asked))
        )
    for title, chart in charts(report, n, mine).items():
        files += [figure(title, f"cut-{title}", chart, kind) for kind in ("png", "svg")]
    commands = [question.command]
    if asked is not None:
        commands.append(controls.drop(question, asked.drop).command)
    outputs.take_away(files, commands)
