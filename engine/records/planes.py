"""Beyond one line: the loss over a plane through three models, and orders of heads."""

from dataclasses import dataclass

import numpy as np

from engine.records.barriers import Curve, Target
from engine.records.layers import Run

FLAT = 1e-4
"""Of ‖B − A‖: a third model nearer than this to the line of the other two spans no plane."""


@dataclass(frozen=True)
class LossSlice:
    """The loss over the plane through A, B and aligned B.

    The plane has A as its origin; the first axis leads to B, and the second is what is left of the
    way to aligned B, made orthogonal to the first. Both are in units of ‖B − A‖.
    """

    a: str
    b: str
    stage: str
    x: np.ndarray  # float64 [n]: along the first axis
    y: np.ndarray  # float64 [m]: along the second
    loss: np.ndarray  # float64 [m, n]: nats; nan where not measured yet
    accuracy: np.ndarray  # float64 [m, n]
    places: np.ndarray  # float64 [3, 2]: x and y of A, B and aligned B
    length: float  # ‖B − A‖
    target: Target
    complete: bool
    run: Run
    models: np.ndarray | None = None  # float64 [3]: the loss of A, B and aligned B, nats
    scope: str = "whole"  # what moves: the other tensors are A's everywhere

    @property
    def lowest(self) -> tuple[float, float, float]:
        """The lowest loss of all that were measured, the three models too, and its x and y."""
        row, column = np.unravel_index(int(np.nanargmin(self.loss)), self.loss.shape)
        grid = float(self.loss[row, column]), float(self.x[column]), float(self.y[row])
        if self.models is None or np.nanmin(self.models) > grid[0]:
            return grid
        one = int(np.nanargmin(self.models))
        return float(self.models[one]), *self.places[one].tolist()

    @property
    def measured(self) -> int:
        """How many models were run."""
        return int((~np.isnan(self.loss)).sum()) + (0 if self.models is None else len(self.models))


@dataclass(frozen=True)
class HeadOrders:
    """The barrier of every order of the heads of one layer, the rest of the line fixed at A's."""

    a: str
    b: str
    layer: int
    orders: tuple[tuple[int, ...], ...]  # [n]: B's head at each of A's places
    objective: np.ndarray  # float64 [n]: what Stage 2 leaves of the layer's attention
    chosen: int  # the order that the alignment takes
    curves: tuple[Curve, ...]  # [n], stage: the order in words; fewer while not complete
    naive: Curve  # B's attention as it is, in A's residual coordinates
    complete: bool
    run: Run
    total: int = 0  # orders that there are, where not all were tried

    @property
    def count(self) -> int:
        """Orders that there are, tried or not."""
        return self.total or len(self.orders)

    @property
    def ranks(self) -> tuple[int, int]:
        """Of the chosen order among all, from 1: by its objective, and by its measured barrier."""
        barriers = np.array([float(one.barrier().value) for one in self.curves])
        mine = self.chosen
        return (
            1 + int((self.objective < self.objective[mine]).sum()),
            1 + int((barriers < barriers[mine]).sum()),
        )
