"""A model cut into its blocks: any block at any depth on any stream, weights by reference.

What each depth passes to its block (masks, positions, rotary tables) is caught once, in one pass
over the model as it is; after that a block is a function of the stream. A block keeps what its own
depth passes: a sliding window goes with the layer whose kind it is.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.errors import out_of_memory
from engine.family import Family
from engine.layers.stacks import Averaged, Block, Healed
from engine.running import Headless

State = Float[Tensor, "windows positions d"]
Call = tuple[tuple[Any, ...], dict[str, Any]]
"""What a depth passes to its block beside the stream."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of a model on given inputs, and the model's own streams."""

    modules: tuple[nn.Module, ...]
    calls: tuple[Call, ...]
    streams: tuple[State, ...]  # before the first block, and after each
    fitted: Bool[Tensor, "windows positions"]  # the positions from which healed blocks learn
    wrapped: bool  # whether a block gives its stream as the first of a tuple
    averaged: dict[Averaged, nn.Module] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.modules)

    def run(self, block: Block, states: Sequence[State]) -> list[State]:
        """A block on several streams of the same inputs at once, or one by one if memory is short.

        Nothing is changed: not the weights, not the streams.
        """
        if len(states) > 1:
            try:
                return list(self._one(block, torch.cat(list(states))).split(len(states[0])))
            except Exception as error:
                if not out_of_memory(error):
                    raise
        return [self._one(block, state) for state in states]

    def _one(self, block: Block, state: State) -> State:
        match block:
            case int():
                return self._call(self.modules[block], block, state)
            case Averaged():
                return self._call(self._mean(block), block.first, state)
            case Healed(None, depth):
                return state + self._mean_update(state, depth)
            case Healed(layer, depth):
                return self._healed(state, self._one(cast(int, layer), state), depth)

    def _call(self, module: nn.Module, depth: int, state: State) -> State:
        args, kwargs = self.calls[depth]
        times = len(state) // len(self.streams[0])
        args, kwargs = (_repeated(part, times, len(self.streams[0])) for part in (args, kwargs))
        with torch.inference_mode():
            found = module(state, *args, **kwargs)
        return found if isinstance(found, Tensor) else found[0]

    def _mean(self, block: Averaged) -> nn.Module:
        """The block with the mean of two layers' weights; the last few are kept."""
        if block not in self.averaged:
            while len(self.averaged) >= _KEPT:
                self.averaged.pop(next(iter(self.averaged)))
            self.averaged[block] = averaged(self.modules[block.first], self.modules[block.second])
        return self.averaged[block]

    def _rows(self, x: State) -> Float[Tensor, "copies rows d"]:
        """The positions that are learned from, of each copy of the inputs, float64."""
        return x.unflatten(0, (-1, len(self.fitted)))[:, self.fitted].double()

    def _target(self, depth: int) -> State:
        return self._rows(self.streams[depth + 1])

    def _mean_update(self, state: State, depth: int) -> State:
        mean = (self._target(depth) - self._rows(state)).mean(1)
        return mean.repeat_interleave(len(self.fitted), 0)[:, None].to(state.dtype)

    def _healed(self, before: State, after: State, depth: int) -> State:
        """x + a ∘ u + b, with b = t̄ − a ū and a = cov(u, t) / var(u) over the learned positions."""
        own = self._rows(before)
        u, t = self._rows(after) - own, self._target(depth) - own
        middle_u, middle_t = u.mean(1, keepdim=True), t.mean(1, keepdim=True)
        spread = (u - middle_u).square().sum(1, keepdim=True)
        shared = ((u - middle_u) * (t - middle_t)).sum(1, keepdim=True)
        a = torch.where(spread > 0, shared / spread.clamp(min=1e-300), 0.0)
        b = middle_t - a * middle_u
        a, b = (x.repeat_interleave(len(self.fitted), 0).to(before.dtype) for x in (a, b))
        return before + a * (after - before) + b


_KEPT = 4


def _repeated(value: Any, times: int, windows: int) -> Any:
    """What belongs to each window, once for each copy of the windows."""
    match value:
        case Tensor() if times > 1 and value.ndim > 1 and len(value) == windows > 1:
            return torch.cat([value] * times)
        case tuple() | list():
            return type(value)(_repeated(part, times, windows) for part in value)
        case dict():
            return {name: _repeated(part, times, windows) for name, part in value.items()}
    return value


def averaged(first: nn.Module, second: nn.Module) -> nn.Module:
    """A block with the mean of two blocks' parameters; neither is changed."""
    mean = copy.deepcopy(first)
    state = {
        name: (x + y) / 2 if x.is_floating_point() else x
        for (name, x), y in zip(
            first.state_dict().items(), second.state_dict().values(), strict=True
        )
    }
    mean.load_state_dict(state)
    return mean


def cut_up(
    model: PreTrainedModel,
    family: Family,
    inputs: Mapping[str, Tensor],
    fitted: Bool[Tensor, "windows positions"] | None = None,
) -> Blocks:
    """Run the model once, and catch what each depth is given.

    Errors: Headless for a model whose blocks stand elsewhere, as they do without a head.
    """
    try:
        modules = tuple(model.get_submodule(family.blocks).children())
    except AttributeError as error:
        raise headless(model) from error
    calls: list[Call] = []
    streams: list[State] = []

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stream, rest = (args[0], args[1:]) if args else (kwargs["hidden_states"], ())
        calls.append((rest, {n: x for n, x in kwargs.items() if n != "hidden_states"}))
        streams.append(stream)

    kinds: list[bool] = []

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        kinds.append(not isinstance(output, Tensor))
        streams.append(output[0] if kinds[0] else output)

    handles = [m.register_forward_pre_hook(before, with_kwargs=True) for m in modules]
    handles.append(modules[-1].register_forward_hook(after))
    try:
        with torch.inference_mode():
            _without_head(model)(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    positions = streams[0].shape[:2]
    none = torch.zeros(positions, dtype=torch.bool, device=streams[0].device)
    # An image is one input, and has as many positions as patches.
    learned = none if fitted is None else fitted.expand(positions)
    return Blocks(modules, tuple(calls), tuple(streams), learned, kinds[0])


def _without_head(model: PreTrainedModel) -> nn.Module:
    """The model without its output matrix, whose product is the larger part of a short pass."""
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return model
    return grafted(model, path_of(model, head), nn.Identity())


def path_of(model: nn.Module, module: nn.Module) -> str:
    """Where a module stands in a model."""
    return next(path for path, other in model.named_modules() if other is module)


def headless(model: PreTrainedModel) -> Headless:
    """What a model without an output over tokens or classes is refused with."""
    return Headless(
        f"{type(model).__name__} has no output over tokens or classes, so nothing can be compared: "
        "open the model with its head."
    )


class Stand(nn.Module):
    """Stands for all blocks of a model: gives the stream that it holds, whatever it is given."""

    def __init__(self, blocks: Blocks, stream: State) -> None:
        super().__init__()
        self.__dict__["block"] = blocks.modules[0]
        self.__dict__["output"] = (stream,) if blocks.wrapped else stream

    def __getattr__(self, name: str) -> Any:
        # Some models ask a block for its kind before they call it.
        return getattr(self.__dict__["block"], name)

    def forward(self, *_: Any, **__: Any) -> Any:
        """The stream that it holds."""
        return self.__dict__["output"]


def grafted(model: nn.Module, path: str, module: nn.Module) -> nn.Module:
    """A model with another module at a path; all others are the same objects."""
    name, _, rest = path.partition(".")
    found = copy.copy(model)
    children = dict(model.named_children())
    inner = grafted(children[name], rest, module) if rest else module
    # What `copy` copied still shares the table of its children with the model.
    found.__dict__["_modules"] = {**found.__dict__["_modules"], name: inner}
    return found
