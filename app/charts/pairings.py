"""Heads as tables: pairs, second best, where two costs disagree, which heads coincide."""

import numpy as np
import pandas as pd

from app.charts.heads import relative
from engine.records import HeadsReport


def pairs(record: HeadsReport) -> pd.DataFrame:
    """Every head of A with its partner, the second best, what is left, and the truth if known."""
    heads = np.arange(record.heads)
    cost = relative(record.cost)
    table = pd.DataFrame({
        "head of A": heads,
        "group of A": heads // record.per_group,
        "head of B": record.order,
        "group of B": record.order // record.per_group,
        "cost": cost[heads, record.order],
        "second": record.second,
        "its cost": cost[heads, record.second],
        "margin": record.margin,
        "query–key left": record.query_key_left,
        "value–output left": record.value_output_left,
    })  # fmt: skip
    if record.query_scale is not None:
        table["query factor"] = record.query_scale
    if record.key_scale is not None:
        table["key factor"] = np.repeat(record.key_scale, record.per_group)
    if record.planted_order is not None:
        table["planted head of B"] = record.planted_order
    if record.removal is not None:
        table["KL without it"] = record.removal
    return table


def nearest(record: HeadsReport) -> pd.DataFrame:
    """For every head of A the nearest head of B by our cost, and by the published one.

    Of one model against itself, the head itself is left out.
    """
    own, seen = relative(record.own), relative(record.published)
    if record.same_model:
        own, seen = (x + np.diag(np.full(len(x), np.inf)) for x in (own, seen))
    heads = np.arange(record.heads)
    mine, theirs = own.argmin(1), seen.argmin(1)
    return pd.DataFrame({
        "A": heads,
        "ours": mine,
        "cost": own[heads, mine],
        "published": theirs,
        "its cost": seen[heads, theirs],
        "ours there": own[heads, theirs],
        "agree": mine == theirs,
    })  # fmt: skip


def apart(record: HeadsReport, count: int = 8) -> pd.DataFrame:
    """The pairs that the published cost calls nearer than ours does, the most different first."""
    own, seen = relative(record.own), relative(record.published)
    gap = own - seen
    if record.same_model:
        np.fill_diagonal(gap, -np.inf)
    flat = np.argsort(-gap, axis=None, kind="stable")[:count]
    a, b = np.divmod(flat[gap.ravel()[flat] > 0], record.heads)
    return pd.DataFrame({
        "A": a,
        "B": b,
        "published": seen[a, b],
        "ours": own[a, b],
        "partners": record.order[a] == b,
    })  # fmt: skip


def coincide(record: HeadsReport, count: int = 12) -> pd.DataFrame:
    """Pairs of heads of one model, the nearest first, with what removing either of them costs."""
    cost = relative(record.cost)
    a, b = np.triu_indices(record.heads, 1)
    both = np.minimum(cost[a, b], cost[b, a])
    first = np.argsort(both, kind="stable")[:count]
    a, b = a[first], b[first]
    table = pd.DataFrame({"head": a, "other": b, "cost": both[first]})
    table["one group"] = a // record.per_group == b // record.per_group
    if record.removal is not None:
        table["KL without it"] = record.removal[a]
        table["or the other"] = record.removal[b]
    return table


def removal(record: HeadsReport, removed: np.ndarray) -> pd.DataFrame:
    """What it costs to remove each head of a model."""
    heads = np.arange(record.heads)
    return pd.DataFrame({
        "head": heads, "group": heads // record.per_group, "KL without it": removed,
    })  # fmt: skip
