"""An interpolated Kneser-Ney n-gram model: the baseline that a trained model has to beat."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Order:
    """Counts of one order: n-grams as integers in base V, and for each context its sums."""

    grams: Ints
    counts: Ints
    contexts: Ints
    totals: Ints
    kinds: Ints
    discount: float


@dataclass(frozen=True)
class NGram:
    """Orders 1 … n over `size` words; the lowest is interpolated with the uniform."""

    size: int
    orders: tuple[Order, ...]


def codes(stream: Ints, order: int, size: int) -> Ints:
    """Every n-gram of the stream as one integer, Σ w_k V^(n-1-k): [len - order + 1]."""
    length = len(stream) - order + 1
    code = np.zeros(length, dtype=np.int64)
    for offset in range(order):
        code = code * size + stream[offset : offset + length]
    return code


def _order(grams: Ints, counts: Ints, size: int) -> Order:
    """Context sums, and the absolute discount n₁ / (n₁ + 2 n₂)."""
    contexts, first = np.unique(grams // size, return_index=True)
    totals = np.add.reduceat(counts, first)
    kinds = np.diff(np.append(first, len(grams)))
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / (once + 2 * twice) if once and twice else 0.5
    return Order(grams, counts, contexts, totals, kinds, discount)


def fit(stream: Ints, order: int, size: int) -> NGram:
    """Highest order from counts; each lower one from the number of words seen before it."""
    grams, counts = np.unique(codes(stream, order, size), return_counts=True)
    orders = [_order(grams, counts, size)]
    for length in range(order - 1, 0, -1):
        grams, counts = np.unique(grams % size**length, return_counts=True)
        orders.insert(0, _order(grams, counts, size))
    return NGram(size, tuple(orders))


def _looked_up(keys: Ints, values: Ints, wanted: Ints) -> Floats:
    """values[keys == wanted], 0 where absent; keys ascending."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0).astype(np.float64)


def probability(model: NGram, contexts: Ints, words: Ints) -> Floats:
    """P(word | context), contexts [rows, n - 1], words [rows].

    P_n(w|h) = max(c(hw) - D, 0) / c(h) + D N(h·) / c(h) · P_{n-1}(w|h'), and P_{n-1} alone
    where h was never seen.
    """
    result = np.full(len(words), 1 / model.size)
    for length, order in enumerate(model.orders):
        code = np.zeros(len(words), dtype=np.int64)
        for column in range(contexts.shape[1] - length, contexts.shape[1]):
            code = code * model.size + contexts[:, column]
        total = _looked_up(order.contexts, order.totals, code)
        kinds = _looked_up(order.contexts, order.kinds, code)
        count = _looked_up(order.grams, order.counts, code * model.size + words)
        seen, safe = total > 0, np.maximum(total, 1)
        kept = np.maximum(count - order.discount, 0) / safe
        result = np.where(seen, kept + order.discount * kinds / safe * result, result)
    return result


def held_out_loss(model: NGram, rows: Ints) -> float:
    """Mean nats per token over every position but the first of each window.

    Windows lie end to end, and the model may look across their borders, which favours it.
    """
    reach = len(model.orders) - 1
    stream = np.concatenate([np.zeros(reach, dtype=np.int64), rows.reshape(-1)])
    contexts = np.lib.stride_tricks.sliding_window_view(stream, reach + 1)[:, :-1]
    losses = -np.log(probability(model, contexts, rows.reshape(-1)))
    return float(losses.reshape(rows.shape)[:, 1:].mean())
