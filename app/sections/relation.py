"""Whether two models are related, on every page that compares them."""

import streamlit as st

from app import inputs, outputs
from app.charts import lineages, tables
from app.charts.theme import LIGHT
from app.controls.model import Chosen
from app.outputs import Download
from app.sections.heads import look, picture
from app.sections.layers import figure
from app.sentences import lineage, words
from engine.questions import Related
from engine.records import ModelCard, Relatedness

WIDE = 460


def question(a: Chosen, b: Chosen) -> Related:
    """Are they related?"""
    return Related(a.path, b.path, device=inputs.chosen_device())


def told(a: Chosen, b: Chosen) -> Relatedness | None:
    """The verdict, measured at once for demo models, else by a button."""
    asked, place = question(a, b), st.container()
    names = inputs.label(a.spec), inputs.label(b.spec)
    demo = a.spec.startswith("demo:") and b.spec.startswith("demo:")
    size = max(a.card.parameters, b.card.parameters) if demo else outputs.SMALL + 1
    title = "Are {} and {} related?".format(*names)
    about = words.memory(a.card, b.card)
    record = outputs.answered(asked, size, title, "Test whether they are related", about)
    with place:
        outputs.say(lineage.related(record), key="related")
    return record


def untested(a: ModelCard, b: ModelCard) -> None:
    """The same card where the test does not apply, with the reason."""
    outputs.say(lineage.apart(a, b), key="related")


def pictures(record: Relatedness) -> None:
    """The test layer by layer beside its control and, at unequal depth, which layer is which."""
    wide = record.likeness is not None
    left, right = st.columns(2) if wide else (st.container(), None)
    with left:
        st.markdown("**Do two ways to match the neurons tell alike?**")
        picture(lineages.tests(record, look()), "lineage-tests",
                "Correlation of two matchings of the neurons, layer by layer")  # fmt: skip
        outputs.explain(
            "Neurons are matched once by the rows of their gate and once by those of up, in A's "
            "residual coordinates; ρ compares both lists. Grey marks, the control, show "
            "what unrelated models look like.",
            "The control far from 0, or every colour among the grey marks: no relation was found.",
        )
    if right is not None:
        with right:
            st.markdown("**Which layer is which?**")
            picture(lineages.likeness(record, look()), "lineage-layers",
                    "How alike every layer of A is to every layer of B")  # fmt: skip
            st.markdown(outputs.plain(lineage.placed(record)))
            outputs.explain(
                "Share of neurons (in %) whose nearest in the other layer is one neuron by both "
                "descriptions. Squares mark the increasing placement with the largest sum.",
                "Squares no darker than their rows: the placement is a guess.",
            )
    theory()


def files(asked: Related, record: Relatedness) -> list[Download]:
    """The record, its tables and its pictures."""
    found = [
        outputs.document("Relatedness (JSON)", "related.json",
                         lambda: tables.document(record), asked),
        Download("Tests (CSV)", "related-tests.csv", "text/csv",
                 lambda: lineages.correlations(record).to_csv(index=False)),
    ]  # fmt: skip
    charts = {"tests": lineages.tests(record, LIGHT)}
    if record.likeness is not None:
        charts["layers"] = lineages.likeness(record, LIGHT)
        found.append(
            Download("Layers (CSV)", "related-layers.csv", "text/csv",
                     lambda: lineages.cells(record).to_csv(index=False))
        )  # fmt: skip
    for title, chart in charts.items():
        wide = chart.properties(width=WIDE)
        found += [figure(title, f"related-{title}", wide, kind) for kind in ("png", "svg")]
    return found


def alone(asked: Related, record: Relatedness) -> None:
    """All that can be said of two models that no group acts on."""
    pictures(record)
    outputs.take_away(files(asked, record), [asked.command])


def theory() -> None:
    """The test as a formula."""
    outputs.formula(
        r"Two assignments of one layer's neurons, $\pi_1 = \arg\max \sum |\cos(g_i, g'_{\pi(i)})|$ "
        r"by the rows of the gate and $\pi_2$ by those of up; Spearman's $\rho(\pi_1, \pi_2)$, its "
        r"$p$ by Student's $t$; all layers by Fisher, $-\sum \log p$; times the number of tests "
        "and of placements (Bonferroni). Related below $10^{-6}$, unless the control is too.",
        "After Zhu et al. 2025 (independence tests for language models); the residual coordinates "
        "are aligned first, without which a scrambled copy is missed.",
        "the test of lineage",
    )
