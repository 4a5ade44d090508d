"""Sentences about attention heads: which is which, by which angle, what is left."""

import numpy as np

from app.charts.heads import Cell, relative
from app.sentences.verdicts import WHY, Verdict, differences
from app.sentences.words import count, number
from engine.records import TOLERANCE, HeadsReport, ModelCard, OrderRank, TurnReport, Turns, word


def matched(record: HeadsReport | None) -> Verdict:
    """How many heads were found, what their turns explain, and what is left."""
    if record is None:
        return _unmatched()
    if record.same_model:
        return _itself(record)
    found = f"{count(record.heads, 'head')} paired"
    if record.planted_order is not None:
        right = int((record.order == record.planted_order).sum())
        found = f"{right} of {count(record.heads, 'head')} found"
    parts = [found, explained(record)]
    if record.turns is not None:
        parts.append(_largest(record.turns))
    text = f"{left(record)} {_sure(record)} {_basis(record)}"
    worst = float(max(record.query_key_left.max(), record.value_output_left.max()))
    return Verdict(f"{'; '.join(parts)}.", text, record.same_weights, number(worst))


def _unmatched() -> Verdict:
    """What is said before the heads have been matched."""
    return Verdict(
        "Heads have no order, and their channels no axes, until they are matched.",
        "Two copies of one function can list their heads in another order, turn every rotary "
        "frequency by an angle of its own and mix the value channels by any matrix. Matching "
        "finds the order first, by a cost that no such change alters, then the angles.",
        "not measured",
    )


def refused(a: ModelCard | None, b: ModelCard | None, itself: bool) -> Verdict:
    """What is said of a pair that is not open, or whose shapes differ."""
    if a is None or b is None:
        which = "A" if b is not None or itself else ("B" if a is not None else "A and B")
        return Verdict("No heads to compare yet.", f"Not open: {which}. {WHY}")
    return Verdict(
        "Different groups: the heads of these two cannot be put into each other's coordinates.",
        f"A and B differ in {'; '.join(differences(a, b))}. Choose two models of one architecture, "
        "or look at A against itself.",
    )


def explained(record: HeadsReport) -> str:
    """How much of the distance that is left after ordering goes away with Stage 2."""
    if record.stage2 == "none":
        return "turns were left out"
    what = "their turns" if record.turns is not None else "their matrices"
    row = 3 if record.stage2 == "full" else 2
    before, after = (float(np.sqrt(max(record.query_key[k].sum(), 0))) for k in (1, row))
    norm = float(np.sqrt(record.query_key_norm.sum()))
    if before <= TOLERANCE * norm:
        return "queries and keys are equal before any turn"
    share = 1 - after / before
    shown = f"{max(share, 0):.1%}".replace("%", " %")
    if share >= 0.9995:
        shown = "all" if share == 1 else "more than 99.9 %"
    return f"{what} explain {shown} of the distance between queries and keys"


def _largest(turns: Turns) -> str:
    if turns.half_turns:
        flipped = int((np.abs(turns.angle) > np.pi / 2).sum())
        return f"{flipped} of {turns.angle.size} frequencies turned by 180°"
    return f"largest angle {np.degrees(np.abs(turns.angle).max()):.0f}°"


def left(record: HeadsReport) -> str:
    """The relative distance that remains, on both sides."""
    return (
        f"Relative distance left between queries and keys at most "
        f"{number(float(record.query_key_left.max()))}, between values and outputs at most "
        f"{number(float(record.value_output_left.max()))}."
    )


def _sure(record: HeadsReport) -> str:
    if record.heads == 1:
        return "There is one head."
    smallest = int(record.margin.argmin())
    margin = float(record.margin[smallest])
    text = f"Least certain: head {smallest}, margin {number(margin)} of the mean cost."
    if margin < 0:
        return f"{text} Below 0 another head is cheaper but taken, or in another group."
    return text


def _basis(record: HeadsReport) -> str:
    truth = "" if record.planted_order is not None else " No truth is known for this pair."
    return f"Residual coordinates from {record.using}; cost: {record.used}.{truth}"


def _itself(record: HeadsReport) -> Verdict:
    """Which two heads of one model are nearest to each other."""
    if record.heads == 1:
        return Verdict("One head: there is no other to compare it with.", _basis(record))
    cost = relative(record.cost) + np.diag(np.full(record.heads, np.inf))
    a, b = (int(x) for x in np.unravel_index(int(cost.argmin()), cost.shape))
    nearest = float(cost[a, b])
    same = word(nearest) == "exact"
    headline = (
        f"Heads {a} and {b} of this layer are one head in two bases."
        if same
        else f"No two heads coincide; the nearest are {a} and {b}, at {nearest:.0%} of the mean "
        "cost."
    )
    text = "Zero would be one head in two bases; two unrelated heads are near 100 %."
    return Verdict(headline, f"{text} {_removed(record, a, b)}", "exact" if same else None,
                   number(nearest) if same else "")  # fmt: skip


def _removed(record: HeadsReport, a: int, b: int) -> str:
    if record.removal is None:
        return "What it costs to remove one of them was not measured."
    first, second = float(record.removal[a]), float(record.removal[b])
    rank = int((record.removal < min(first, second)).sum())
    place = "the cheapest of the layer"
    if rank:
        place = f"{count(rank, 'other is', 'others are')} cheaper"
    return (
        f"Measured on {record.checked_on}: without head {a} the output moves by {number(first)} "
        f"nats, without head {b} by {number(second)} ({place})."
    )


def cell(record: HeadsReport, chosen: Cell) -> str:
    """One cell of the map: its two terms, the second best, the margin."""
    cost, here = record.cost, (chosen.a, chosen.b)
    total = relative(cost)
    partner, second = int(record.order[chosen.a]), int(record.second[chosen.a])
    next_best = number(float(total[chosen.a, second]))
    text = (
        f"Head {chosen.a} of A against head {chosen.b} of B: query–key "
        f"{number(float(cost.query_key[here]))}, value–output "
        f"{number(float(cost.value_output[here]))}, together "
        f"{number(float(total[here]))} of the mean cost. "
    )
    if record.same_model:
        return f"{text}Nearest other head of {chosen.a}: {second}, at {next_best}."
    kind = (
        "They are partners."
        if partner == chosen.b
        else f"The partner of A {chosen.a} is B {partner}."
    )
    if record.heads == 1:
        return f"{text}{kind}"
    return (
        f"{text}{kind} Second best: B {second}, at {next_best}; margin "
        f"{number(float(record.margin[chosen.a]))}."
    )


def order(record: HeadsReport) -> str:
    """How many lines are the planted ones, and where the order ranks among all."""
    if record.planted_order is None:
        found = "No truth is known for this pair, so no line is right or wrong."
    else:
        right = int((record.order == record.planted_order).sum())
        found = f"{right} of {record.heads} lines are the planted ones."
    if record.same_model:
        return "Every head is its own partner; the map shows how near the others come."
    return f"{found} {_rank(record.rank)}".strip()


def _rank(rank: OrderRank | None) -> str:
    if rank is None or rank.orders == 1:
        return ""
    text = f"Among all {rank.orders:,} orders that keep groups together this one is number "
    text += f"{rank.rank:,} by what Stage 2 leaves"
    if rank.excess is not None:
        text += f" (L̂ = {number(rank.excess)} %)"
    if rank.midpoint_rank is not None and rank.midpoint_loss is not None:
        chosen, best, naive = rank.midpoint_loss
        text += (
            f", and number {rank.midpoint_rank:,} by the loss half way between A and B: "
            f"{chosen:.3f} nats, best {best:.3f}, as stored {naive:.3f}"
        )
    return f"{text}."


def angles(turns: Turns) -> str:
    """What the angles are as a whole, and whether they are the planted ones."""
    if turns.half_turns:
        return (
            "Queries and keys are normalised per head: only a sign is free for each frequency, so "
            "every angle is 0° or 180° and every modulus is 1."
        )
    weight = turns.weight / max(float(turns.weight.sum()), 1e-30)
    mean = float(np.degrees((weight * np.abs(turns.angle)).sum()))
    text = (
        f"Mean |φ| {mean:.1f}°, mean r {float((weight * np.exp(turns.log_modulus)).sum()):.3f}, "
        "both by weight. Angles drawn at random would give 90°."
    )
    if turns.planted_angle is None or turns.planted_log_modulus is None:
        return text
    z = np.exp(turns.log_modulus + 1j * turns.angle)
    off = np.abs(z / np.exp(turns.planted_log_modulus + 1j * turns.planted_angle) - 1)
    return f"{text} From the planted turns they differ by at most {number(float(off.max()))}."


def by_hand(turns: Turns, group: int, frequency: int, mine: float) -> str:
    """The objective by hand against the best one."""
    norm, best = float(turns.constant[group, frequency]), turns.best(group, frequency)
    return (
        f"By hand the objective is {number(mine / max(norm, 1e-300))} of the size of this "
        f"frequency, at the found optimum ({np.degrees(turns.angle[group, frequency]):.1f}°, × "
        f"{np.exp(turns.log_modulus[group, frequency]):.3f}) {number(best / max(norm, 1e-300))}."
    )


def turned(record: TurnReport) -> Verdict:
    """What a turn by hand does to the output of B, and to what lies half way."""
    kept = (
        "B's own output stays: the turn only renames."
        if record.verdict == "exact"
        else "B's own output moved: this is no change of names."
    )
    text = (
        f"Half way between A and the turned B the logits are off by {number(record.midpoint)}, "
        f"with the found turn by {number(record.midpoint_best)}."
    )
    if record.midpoint_loss is not None and record.midpoint_loss_best is not None:
        text += (
            f" The loss half way is {record.midpoint_loss:.3f} nats, with the found turn "
            f"{record.midpoint_loss_best:.3f}."
        )
    return Verdict(kept, f"{text} On {record.checked_on}.", record.verdict, number(record.kept))


def disagreement(record: HeadsReport) -> str:
    """On how many heads the two costs disagree, and how near the published one comes to 0."""
    own, seen = relative(record.own), relative(record.published)
    if record.same_model:
        own, seen = (x + np.diag(np.full(len(x), np.inf)) for x in (own, seen))
    differ = int((own.argmin(1) != seen.argmin(1)).sum())
    text = f"The two costs name different nearest heads for {differ} of {record.heads} heads."
    if record.turns is None:
        return (
            f"{text} Without rotation both read the same product; the published one centres it, "
            "which is valid for LayerNorm with its gain folded in."
        )
    return text
