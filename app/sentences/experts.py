"""Sentences about experts: which is which, which two could be one, and what that costs."""

import numpy as np

from app.sentences.numbers import number
from app.sentences.verdicts import Verdict
from app.sentences.words import count
from engine.records import ExpertsReport, Toll, word


def matched(record: ExpertsReport | None) -> Verdict:
    """How many experts were found, what is left of their distance, and what half way costs."""
    if record is None:
        return Verdict(
            "Experts have no order until they are matched.",
            "The router's rows move along with the experts, and inside each expert neurons have an "
            "order, signs and factors of their own. Matching finds both.",
            "not measured",
        )
    if record.same_model:
        return _itself(record)
    found = f"{count(record.experts, 'expert')} paired"
    if record.planted_order is not None:
        right = int((record.order == record.planted_order).sum())
        found = f"{right} of {count(record.experts, 'expert')} found"
    parts = [_sure(record), _agree(record), _neurons(record), _half(record), _shared(record)]
    worst = float(record.left.max())
    return Verdict(f"{found}; {_distance(record)}.", " ".join(filter(None, parts)),
                   record.same_weights, number(worst))  # fmt: skip


def _distance(record: ExpertsReport) -> str:
    before, left = float(record.before.max()), float(record.left.max())
    return (
        f"relative distance of partners at most {number(left)}, with neurons as stored "
        f"{number(before)}"
    )


def _sure(record: ExpertsReport) -> str:
    if record.experts == 1:
        return "There is one expert."
    least = int(record.margin.argmin())
    margin = float(record.margin[least])
    text = f"Least certain: expert {least} of A, margin {number(margin)} of the mean cost."
    return f"{text} Below 0 another expert is cheaper but taken." if margin < 0 else text


def _agree(record: ExpertsReport) -> str:
    """Whether router and content name the same partners: if not, the router did not follow."""
    differ = int((record.by_router != record.by_content).sum())
    if not differ:
        return "The router's rows alone and the contents alone name the same partners."
    which = f"{differ} of {record.experts} experts"
    if word(float(np.diag(record.content[:, record.by_content]).max())) == "exact":
        return (
            f"For {which} the router's rows name another partner than the contents, although the "
            "contents coincide: B's router does not belong to B's experts."
        )
    return f"For {which} the router's rows name another partner than the contents."


def _neurons(record: ExpertsReport) -> str:
    return (
        f"Matched neurons are alike to {record.alike.mean():.3f} on average (1 is the same neuron, "
        "unrelated ones are near 0)."
    )


def _half(record: ExpertsReport) -> str:
    if record.halfway is None or record.halfway_stored is None:
        return "What the model half way costs was not measured."
    return (
        f"Half way to B in all experts of this layer the output of A moves by "
        f"{number(float(record.halfway.kl[-1]))} nats a token, with B's experts and neurons as "
        f"they are numbered by {number(float(record.halfway_stored.kl[-1]))}, on "
        f"{record.checked_on}."
    )


def _shared(record: ExpertsReport) -> str:
    if not record.shared:
        return ""
    return (
        f"Every token also visits one shared expert of {record.shared:,} neurons: it has no order, "
        "and is no part of this comparison."
    )


def _itself(record: ExpertsReport) -> Verdict:
    """Which two experts of one model coincide, and what it costs to make them one."""
    if record.experts == 1:
        return Verdict("One expert: there is no other to compare it with.", _shared(record))
    i, j = record.nearest
    nearest = float(record.content[i, j])
    same = word(nearest) == "exact"
    headline = f"No two experts coincide; the nearest are {i} and {j}, at a cost of {nearest:.2f}."
    if same:
        headline = f"Experts {i} and {j} are one expert in two bases."
    text = "Zero is one expert in two bases, two unrelated ones are near 2."
    parts = [text, _merged(record), _removed(record), _shared(record)]
    return Verdict(headline, " ".join(filter(None, parts)), "exact" if same else None,
                   number(nearest) if same else "")  # fmt: skip


def _merged(record: ExpertsReport) -> str:
    if record.merged is None or record.single is None:
        return "What merging and removing experts costs was not measured."
    best = int(record.merged.kl.argmin())
    i, j = record.pairs[best]
    text = (
        f"Measured on {record.checked_on}: the cheapest pair to merge is {i} with {j}, both router "
        f"rows kept: {_toll(record.merged, best)}; behind one row: {_toll(record.single, best)}."
    )
    if (i, j) != record.nearest:
        text += f" The nearest pair costs {_toll(record.merged, 0)}: alike is not yet mergeable."
    return text


def _removed(record: ExpertsReport) -> str:
    if record.removal is None:
        return ""
    best = int(record.removal.kl.argmin())
    used = ""
    if record.usage is not None:
        used = f", which {record.usage[best]:.0%} of the tokens visit".replace("%", " %")
    return f"The cheapest to remove is expert {best}{used}: {_toll(record.removal, best)}."


def _toll(toll: Toll, k: int) -> str:
    loss = float(toll.loss[k])
    more = "" if np.isnan(loss) else f", loss {loss:+.3f}"
    return f"KL {number(float(toll.kl[k]))} nats{more}"
