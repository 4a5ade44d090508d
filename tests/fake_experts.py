"""Reports on experts without an engine: three experts, numbers that can be followed by hand."""

from typing import Any

import numpy as np

from engine.records import ExpertsReport, Toll

ROUTER = np.array([[4.0, 0.5, 1.0], [0.2, 3.0, 2.0], [1.0, 2.0, 0.1]], np.float32)
CONTENT = np.array([[3.0, 0.1, 2.0], [0.4, 2.0, 1.0], [2.0, 3.0, 0.2]], np.float32)


def toll(*kl: float, loss: float = np.nan) -> Toll:
    """What so many changes cost: the loss of the k-th is k times as large as that of the first."""
    return Toll(np.array(kl), loss * np.arange(1.0, len(kl) + 1))


def experts_report(**more: Any) -> ExpertsReport:
    """B's experts are A's 1, 0 and 2; expert 1 is the least certain and its cost was forced."""
    order = np.array([1, 0, 2])
    given = {
        "a": "base", "b": "twin", "fingerprints": ("a" * 16, "b" * 16), "family": "Mixtral",
        "layer": 1, "layers": 2, "experts": 3, "active": 2, "neurons": 2, "shared": 0,
        "using": "weights", "router": ROUTER, "content": CONTENT, "order": order,
        "by_router": order, "by_content": order, "second": np.array([2, 2, 0]),
        "margin": np.array([1.5, -0.25, 0.75], np.float32), "planted_order": order,
        "partner": order, "neuron_order": np.array([[1, 0], [0, 1], [1, 0]]),
        "neuron_factor": np.array([[-1.0, 2.0], [1.0, 1.0], [0.5, -2.0]]),
        "alike": np.array([[0.9, 0.7], [1.0, 0.5], [0.6, 0.4]], np.float32),
        "before": np.array([1.4, 1.2, 1.3]), "left": np.array([0.05, 0.01, 0.02]),
        "usage": np.array([0.5, 0.25, 0.75]), "halfway": toll(0.1, 0.2, 0.3, 0.4, loss=-0.01),
        "halfway_stored": toll(1.0, 2.0, 3.0, 4.0, loss=0.25), "removal": None,
        "pairs": np.zeros((0, 2), np.int64), "merged": None, "single": None,
        "checked_on": "512 tokens of a text", "device": "cpu", "dtype": "float32", "seconds": 0.4,
    }  # fmt: skip
    return ExpertsReport(**(given | more))


def itself(**more: Any) -> ExpertsReport:
    """A model against itself: experts 0 and 2 are nearest, 1 and 2 are the cheapest to merge."""
    content = np.array([[0.0, 1.8, 0.6], [1.8, 0.0, 1.5], [0.6, 1.5, 0.0]], np.float32)
    given = {
        "b": "base", "fingerprints": ("a" * 16,) * 2, "using": "identity", "content": content,
        "order": np.arange(3), "by_router": np.arange(3), "by_content": np.arange(3),
        "planted_order": None, "second": np.array([2, 2, 0]), "partner": np.array([2, 2, 0]),
        "halfway": None, "halfway_stored": None, "removal": toll(0.3, 0.06, 0.5, loss=0.125),
        "pairs": np.array([[0, 2], [1, 2], [0, 1]]), "merged": toll(0.02, 0.01, 0.3, loss=0.5),
        "single": toll(0.04, 0.03, 0.6, loss=-0.25),
    }  # fmt: skip
    return experts_report(**(given | more))
