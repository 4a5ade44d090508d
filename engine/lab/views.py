"""What an experiment of the lab shows: hidden activations of a layer, and a window of a tensor."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine import axes
from engine.action import act
from engine.axes import Leg, Mark
from engine.checkpoint import Checkpoint
from engine.elements import Ordered
from engine.family import Coordinate
from engine.groups import Trivial
from engine.lab.claims import legged
from engine.lab.plans import Plan
from engine.symmetry import Symmetry

ROWS, COLUMNS, POSITIONS, CHANNELS = 64, 96, 24, 96
BEFORE = 8
"""How much of what did not move stands before the first place that did."""


@dataclass(frozen=True)
class Place:
    """Where hidden activations are seen: what a module is given, or what it gives."""

    kind: str  # "in" or "out"
    path: str  # of the module, in memory
    prefix: str  # a model may leave this out of the path
    axes: str  # of the last axis
    layer: int
    own: bool  # whether the experiment's coordinate is on this axis

    @property
    def name(self) -> str:
        """The place in words."""
        what = "what goes into" if self.kind == "in" else "what comes out of"
        return f"{what} {self.path}: {self.axes}"


@dataclass(frozen=True)
class Shown:
    """Hidden activations of the first window, before and after."""

    name: str
    before: np.ndarray
    after: np.ndarray
    order: np.ndarray
    channels: np.ndarray
    equivariance: float | None


@dataclass(frozen=True)
class Weight:
    """A window of a tensor, before and after."""

    name: str
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def empty(cls) -> "Weight":
        """Where nothing changed."""
        return cls("", np.zeros((0, 0), np.float16), np.zeros((0, 0), np.float16))


def place(checkpoint: Checkpoint, done: Plan, layer: int) -> Place | None:
    """The first place that carries the experiment's coordinate, else the residual stream.

    The stream is looked at where the next layer is given it: what the layer wrote is in it.
    """
    here = max(layer, 0)
    family = checkpoint.family
    rows = dict(done.g.family.hidden or family.hidden)
    for word in (done.coordinate, "res"):
        for name, text in rows.items():
            if word in {leg.name for leg in axes.legs(axes.parse(text))}:
                own = word == done.coordinate
                depth = min(here + 1, checkpoint.layers - 1) if word == "res" else here
                kind, _, path = name.format(l=depth).partition(" ")
                return Place(kind, path, family.prefix, text, depth, own)
    return None


@contextmanager
def heard(model: nn.Module, look: Place | None) -> Iterator[list[Tensor]]:
    """While active, what passes the place is collected, batch by batch, on the CPU."""
    found: list[Tensor] = []
    modules = dict(model.named_modules())
    paths = (look.path, look.path.removeprefix(look.prefix)) if look else ()
    module = next((modules[path] for path in paths if path in modules), None)
    if look is None or module is None:
        yield found
        return

    def keep(x: Any) -> None:
        found.append((x if isinstance(x, Tensor) else x[0]).detach().cpu())

    def given(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keep(args[0] if args else kwargs["hidden_states"])

    def gives(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        keep(output)

    handle = (
        module.register_forward_pre_hook(given, with_kwargs=True)
        if look.kind == "in"
        else module.register_forward_hook(gives)
    )
    try:
        yield found
    finally:
        handle.remove()


def hidden_view(done: Plan, look: Place | None, before: Tensor, after: Tensor) -> Shown:
    """A window of the activations, the order of its channels, and whether they followed g.

    ‖h(g θ) − g h(θ)‖ / ‖h(θ)‖ is measured on all of them, where the table is a true one.
    """
    nothing = np.zeros((0, 0), np.float16)
    none = np.zeros(0, np.int32)
    if look is None or not before.numel():
        return Shown("", nothing, nothing, none, none, None)
    x, y = (h.flatten(0, -2).float() for h in (before, after))
    width, equivariance, order = x.shape[-1], None, torch.arange(x.shape[-1])
    if look.own and done.g.elements:
        order = _order(done.g, look, width)
        if done.preset.holds:
            follows = _followed(done.g, look, look.axes, x)
            equivariance = float((y - follows).norm() / x.norm().clamp(min=1e-300))
    moved = (order != torch.arange(width)) if (order.diff() != 1).any() else (x != y).any(0)
    columns = _window(moved, CHANNELS)
    rows = slice(0, min(POSITIONS, x.shape[0] if before.ndim < 3 else before.shape[-2]))
    still = bool((order.diff() == 1).all())
    return Shown(
        look.name,
        _half(x[rows, columns]),
        _half(y[rows, columns]),
        none if still else order[columns].numpy().astype(np.int32),
        np.arange(width, dtype=np.int32)[columns],
        equivariance,
    )


def _order(g: Symmetry, look: Place, width: int) -> Tensor:
    """The old position of every channel; their own where the elements are no orders."""
    still = torch.arange(width)
    if not all(isinstance(element, Ordered) for element in g.elements.values()):
        return still
    relabelled = legged(look.axes, lambda leg: Leg(leg.name, Mark.RELABEL))
    return _followed(g, look, relabelled, still.double().unsqueeze(0))[0].round().long()


def _followed(g: Symmetry, look: Place, pattern: str, x: Tensor) -> Tensor:
    """g · hidden for activations [rows, axes], as if they were a tensor with one more axis."""
    local = any(leg.name in g.family.per_layer for leg in axes.legs(axes.parse(pattern)))
    name = "hidden.{l}" if local else "hidden"
    row = Coordinate("row", Trivial("a position"), str(len(x)))
    table = replace(
        g.family,
        coordinates={**g.family.coordinates, "row": row},
        tensors={**g.family.tensors, name: f"row {pattern}"},
    )
    return act(replace(g, family=table), name.format(l=look.layer), lambda _: x)


def weight_view(name: str, before: Tensor, after: Tensor) -> Weight:
    """At most 64 × 96 numbers of a tensor, around the first place that changed."""
    x, y = (_matrix(w) for w in (before, after))
    differs = x != y
    rows, columns = _window(differs.any(1), ROWS), _window(differs.any(0), COLUMNS)
    part = "" if x.shape == x[rows, columns].shape else (
        f", rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}"
    )  # fmt: skip
    return Weight(name + part, _half(x[rows, columns]), _half(y[rows, columns]))


def _matrix(x: Tensor) -> Tensor:
    return x.reshape(1, -1) if x.ndim < 2 else x.flatten(1)


def _window(marked: Tensor, length: int) -> slice:
    """`length` places that begin a little before the first marked one."""
    found = marked.nonzero()
    first = int(found[0]) if len(found) else 0
    start = max(0, min(first - BEFORE, len(marked) - length))
    return slice(start, min(start + length, len(marked)))


def _half(x: Tensor) -> np.ndarray:
    return x.clamp(-6e4, 6e4).to(torch.float16).numpy()
