"""Sentences about cuts: what each costs, and what the measurements advise, if they do."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.charts.cuts import base
from app.charts.measures import FEW, Number, at, percent, rise
from app.sentences.layers import ran
from app.sentences.verdicts import Verdict
from app.sentences.words import count
from engine.pruning import spoken
from engine.records import Candidate, CutCost, CutReport
from engine.records.layers import RANDOM, WINDOWS

NAMES = {
    "swap": "swap-guided",
    "replace": "replace-guided",
    "healed": "swap-guided, healed",
    "influence": "block influence",
    "angular": "contiguous block by angle",
    "greedy": "greedy by measured perplexity",
    "mine": "mine",
}
HOW = {
    "swap": "lowest swap score first, no two neighbours (published rule)",
    "replace": "lowest replacement score first, no two neighbours (published rule)",
    "healed": "as swap-guided, each changed depth refit before the score is read",
    "influence": "lowest 1 − cos(input, output) first",
    "angular": "the block of n layers whose input and output are nearest in angle",
    "greedy": "one layer after another, each time the one whose removal costs least",
    "mine": "the layers that you chose",
}


@dataclass(frozen=True)
class Cost:
    """What one candidate costs at one budget."""

    by: str
    cut: tuple[int, ...]
    rise: Number  # per cent
    kl: Number  # nats
    forwards: int | None

    @property
    def figure(self) -> Number:
        """The rise of the perplexity; the KL where the model predicts no next token."""
        return self.kl if np.isnan(self.rise.value) else self.rise

    @property
    def said(self) -> str:
        """That figure in words."""
        if np.isnan(self.rise.value):
            return f"{self.kl.text} nats of KL"
        return f"{percent(self.rise)} perplexity"


def costs(report: CutReport, n: int, own: CutCost | None = None) -> list[Cost]:
    """Every candidate that has a choice for budget n, the cheapest first; then the user's own."""
    found = [_cost(one, n) for one in report.candidates if n < len(one.sets)]
    found.sort(key=lambda cost: (np.isnan(cost.figure.value), cost.figure.value))
    if own is not None:
        rises, kl = rise(own.readings, own.base), own.readings.measure()
        found.append(Cost("mine", own.dropped, at(rises), at(kl), None))
    return found


def _cost(one: Candidate, n: int) -> Cost:
    rises, kl = rise(one.readings, base(one)), one.readings.measure()
    return Cost(one.by, one.sets[n], at(rises, n), at(kl, n), one.forwards)


def cut(layers: Sequence[int]) -> str:
    """The layers that go, in words that leave no end open."""
    words = spoken(layers) if layers else "no layer"
    listed, comma, ends = words.partition(", both")
    return f"{listed} (both{ends})" if comma else words


def told(report: CutReport, n: int) -> Verdict:
    """The advice that follows from the measurements at budget n, and on what they were made."""
    share = n * report.parameters[0] / max(report.parameters[1], 1)
    amount = (
        f"{count(n, 'layer')} of {report.layers} hold {share:.0%} of the parameters."
        if n != 1
        else f"1 layer of {report.layers} holds {share:.0%} of the parameters."
    )
    headline, reason = advice(report, n)
    text = (
        f"{reason} {amount} Candidates are "
        f"chosen on one half of the text. {ran(report.run)} Another text may say otherwise."
    )
    return Verdict(headline, text, number="" if report.complete else "partial")


def advice(report: CutReport, n: int) -> tuple[str, str]:
    """Headline and reason: a cut that is advised, or why the measurements support none."""
    if n == 0:
        return "Nothing is cut.", "With n = 0 every candidate is the model as it is."
    found = [cost for cost in costs(report, n) if not np.isnan(cost.figure.value)]
    why = _no_grounds(report, found)
    if why:
        return why, _cheapest(found)
    best = found[0]
    others = [cost for cost in found[1:] if set(cost.cut) != set(best.cut)]
    return _against(n, best, others, found) if others else (
        f"All candidates leave out {cut(best.cut)}.", _cheapest(found)
    )  # fmt: skip


def _no_grounds(report: CutReport, found: Sequence[Cost]) -> str:
    """Why nothing can be advised, whatever the numbers are; empty if something can."""
    if not report.complete:
        return "No advice: the measurements are not complete."
    if not found:
        return "No advice: no candidate leaves out so many layers."
    if report.run.text == RANDOM:
        return "No advice: the tokens are random, since no tokenizer opens."
    return f"No advice, {FEW}." if report.run.windows < WINDOWS else ""


def _against(n: int, best: Cost, others: Sequence[Cost], found: Sequence[Cost]) -> tuple[str, str]:
    """The cheapest cut against those that leave out other layers."""
    close = [cost for cost in others if _overlap(best.figure, cost.figure)]
    if close:
        names = ", ".join(f"{NAMES[c.by]} {c.said}" for c in close)
        return (
            f"No advice at n = {n}: the cheapest cut is not separated from the next.",
            f"{_cheapest(found)} Its interval overlaps with: {names}.",
        )
    same = [NAMES[c.by] for c in found[1:] if set(c.cut) == set(best.cut)]
    also = f" ({' and '.join(same)} chose the same)" if same else ""
    after = f"{NAMES[others[0].by]}, costs {others[0].said}"
    return (
        f"At n = {n}, leaving out {cut(best.cut)} costs least: {best.said}.",
        f"Chosen by {NAMES[best.by]}{also}; the next, {after}, and the intervals share no value.",
    )


def _cheapest(found: Sequence[Cost]) -> str:
    if not found:
        return "Nothing was measured at this budget."
    best = found[0]
    return f"Cheapest: {NAMES[best.by]}, without {cut(best.cut)}, {best.said}."


def _overlap(a: Number, b: Number) -> bool:
    """Whether two intervals share a value; True where one is missing."""
    (a_low, a_high), (b_low, b_high) = (
        [-np.inf, np.inf] if end.low is None or end.high is None else [end.low, end.high]
        for end in (a, b)
    )
    return not (a_low > b_high or b_low > a_high)


def missing(report: CutReport, n: int) -> list[str]:
    """Why a candidate has no choice for this budget, one line each."""
    return [
        f"{NAMES[one.by]} stops at {count(len(one.sets) - 1, 'layer')}"
        + (f": {one.stopped}" if one.stopped else "")
        for one in report.candidates
        if n >= len(one.sets)
    ]


def mine(own: CutCost | None, chosen: Sequence[int]) -> str:
    """The user's own cut in one line."""
    if not chosen:
        return "Mine: no layer yet. Click the strip, or write layers such as 5,7,9-11."
    if own is None:
        return f"Mine: without {cut(chosen)}, not measured."
    rises, kl = rise(own.readings, own.base), own.readings.measure()
    said = Cost("mine", own.dropped, at(rises), at(kl), None).said
    return f"Mine: without {cut(chosen)}, {said}."


def told_scores(found: Sequence[tuple[str, float, int]]) -> str:
    """Which score ranks the layers most like their measured cost."""
    known = [(by, rho, n) for by, rho, n in found if not np.isnan(rho)]
    if not known:
        return "No score can be compared with the measured cost: fewer than three layers have both."
    listed = "; ".join(f"{by} ρ = {rho:.2f} over {n} layers" for by, rho, n in known)
    best = max(known, key=lambda row: row[1])
    few = " With so few layers a ρ is a hint only." if best[2] < 10 else ""
    return f"Rank correlation with the measured cost of one layer: {listed}.{few}"


def waiting(name: str) -> Verdict:
    """What is said before a cut was measured."""
    return Verdict(
        "No cut was measured yet.",
        f"Which layers of {name} can go, and at what price, is measured for several ways to "
        "choose them.",
        "not measured",
    )
