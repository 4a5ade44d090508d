"""A model in sections: what stands before the layers, each layer, and what stands after them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine import network
from engine.family import Family
from engine.layers.blocks import Blocks, State, cut_up, grafted
from engine.layers.heads import Head, head
from engine.layers.reading import outcome
from engine.line.ends import Ends, Tensors, put, squares
from engine.line.exam import Said, Unsaid
from engine.pruning import configuration, renamed
from engine.symmetry import Symmetry

Named = Mapping[str, Tensor]
"""Some windows by the names under which the model takes them."""


@dataclass(frozen=True)
class Section:
    """A model of few layers of which some tensors are read; the others are blank.

    It is whole for transformers, which renames and joins its tensors, and makes masks and rotary
    tables as for any other.
    """

    ends: Ends
    stack: tuple[int, ...]  # the layer at each depth
    real: frozenset[str]  # the tensors that are read, by name on disk
    layer: int | None = None  # the one that it is about, last of the stack; None: what is outside

    @property
    def parameters(self) -> int:
        """How many numbers are read."""
        return sum(self.ends.a.headers[name].parameters for name in self.real)

    def build(self, read: Callable[[str], Tensor]) -> PreTrainedModel:
        """The model on the processor, with these tensors under their names on disk."""
        ends = self.ends
        config = configuration(ends.a.family, ends.config, self.stack)
        state = {
            name: read(old) if old in self.real else ends.blank(old)
            for name, old in renamed(ends.a, self.stack)
        }
        found = network.assemble(ends.a.name, config, ends.kind, None, state_dict=state)
        return network.frozen(found, torch.device("cpu"))

    @torch.inference_mode()
    def line(self, g: Symmetry) -> "Span":
        """The part of the line from A to g·B; B is read only where something moves."""
        ends = self.ends
        model = network.frozen(self.build(ends.theirs), ends.device)
        if not self.real & ends.inside:
            return Span(self, model, {}, {})
        own = self._own(model)
        other = self._own(self.build(lambda name: ends.moved(g, name))).items()
        moved = ((n, y.to(ends.device)) for n, y in other)
        mine = {n: y for n, y in moved if not torch.equal(own[n], y)}
        return Span(self, model, {n: own[n].clone() for n in mine}, mine)

    def _own(self, model: PreTrainedModel) -> dict[str, Tensor]:
        """The parameters of this section by name in memory."""
        blocks = f"{self.ends.a.family.blocks}."
        depth = f"{blocks}{len(self.stack) - 1}."
        return {
            n: x.detach()
            for n, x in model.named_parameters()
            if (n.startswith(depth) if self.layer is not None else not n.startswith(blocks))
        }


@dataclass(frozen=True)
class Span:
    """A section of a line in memory: one buffer, and both ends where they differ."""

    section: Section
    model: PreTrainedModel
    theirs: Tensors
    mine: Tensors

    def at(self, t: float) -> None:
        """Overwrite the buffer with the section at t."""
        put(self.model, self.theirs, self.mine, t)

    @property
    def gap(self) -> dict[str, float]:
        """‖A − g·B‖² of each parameter that moves, and of the section without any: 0."""
        found = {n: squares(self.theirs[n], y) for n, y in self.mine.items()}
        return {f"{self.section.layer} {n}": x for n, x in {"": 0.0, **found}.items()}

    def first(self, named: Named, *, wrapped: bool) -> Callable[[object], State]:
        """Windows → the stream before the first layer, of the model where the buffer stands."""
        return lambda _: self._caught(named, wrapped=wrapped).streams[0]

    def block(self, named: Named, *, wrapped: bool) -> Callable[[State], State]:
        """Stream before the layer → stream after it."""
        blocks = self._only(named, wrapped=wrapped)
        return lambda x: blocks.run(0, [x])[0]

    def head(self, named: Named, x: State, *, wrapped: bool) -> Head | None:
        """The output matrix where logits are its product alone, tried on some last stream."""
        blocks = self._only(named, wrapped=wrapped)
        return head(self.model, lambda other: outcome(other, self._family, named, blocks, x))

    def last(self, named: Named, found: Head | None, *, wrapped: bool) -> Callable[[State], Said]:
        """Stream after the last layer → logits, or what a head that was found makes them of."""
        blocks = self._only(named, wrapped=wrapped)
        if found is None:
            return lambda x: outcome(self.model, self._family, named, blocks, x)
        body = found.off(self.model)
        return lambda x: Unsaid(outcome(body, self._family, named, blocks, x), found)

    @property
    def _family(self) -> Family:
        return self.section.ends.a.family

    def _caught(self, named: Named, *, wrapped: bool) -> Blocks:
        """What each depth is given beside the stream, and the first stream; no block runs."""
        modules = self.model.get_submodule(self._family.blocks).children()
        passing = nn.ModuleList([Passing(block, wrapped=wrapped) for block in modules])
        model = cast(PreTrainedModel, grafted(self.model, self._family.blocks, passing))
        return cut_up(model, self._family, named)

    def _only(self, named: Named, *, wrapped: bool) -> Blocks:
        """The layer of this section as the only block; no stream is kept."""
        caught = self._caught(named, wrapped=wrapped)
        *_, module = self.model.get_submodule(self._family.blocks).children()
        like = caught.streams[0]
        blank = like.new_zeros(()).expand(like.shape)
        return replace(caught, modules=(module,), calls=caught.calls[-1:], streams=(blank,))


class Passing(nn.Module):
    """Stands for a block, and gives the stream on as it is."""

    def __init__(self, block: nn.Module, *, wrapped: bool) -> None:
        super().__init__()
        self.__dict__["block"], self.__dict__["wrapped"] = block, wrapped

    def __getattr__(self, name: str) -> Any:
        # Some models ask a block for its kind before they call it.
        return getattr(self.__dict__["block"], name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Its first argument, in the form in which the block would give it."""
        stream = args[0] if args else kwargs["hidden_states"]
        return (stream,) if self.__dict__["wrapped"] else stream


def blank(ends: Ends) -> Section:
    """The shape of a model with one layer, and nothing that was read."""
    return Section(ends, (0,), frozenset())


def front(ends: Ends) -> Section:
    """What makes the first stream: the tensors that the table lists before the layers."""
    return Section(ends, (0,), frozenset(_outside(ends, before=True)))


def layer(ends: Ends, number: int) -> Section:
    """One layer."""
    family = ends.a.family
    real = frozenset(name for name in ends.a.headers if family.row(name).layer == number)
    return Section(ends, shortest(family, ends.config, number), real, number)


def back(ends: Ends) -> Section:
    """What reads the last stream; a tied head is the embedding."""
    real = {*_outside(ends, before=False), *(_outside(ends, before=True) if ends.a.tied else ())}
    return Section(ends, (0,), frozenset(real))


def sections(ends: Ends) -> Iterator[Section]:
    """All of them, in the order of the computation."""
    yield front(ends)
    yield from (layer(ends, number) for number in range(ends.a.layers))
    yield back(ends)


def shortest(family: Family, config: Mapping[str, Any], number: int) -> tuple[int, ...]:
    """The fewest layers that end with this one and compute it as before: see `configuration`."""
    if any(family.sets(config, name) for name in family.by_layer.indexed):
        return tuple(range(number + 1))
    return (0, number) if family.by_layer.first and number else (number,)


def _outside(ends: Ends, *, before: bool) -> Iterator[str]:
    family = ends.a.family
    table = [pattern for pattern, _ in family.rows]
    first = next(k for k, pattern in enumerate(table) if "l" in pattern.groupindex)
    for name in ends.a.headers:
        row = family.row(name)
        listed = any(pattern.fullmatch(row.name) for pattern in table[:first])
        if row.layer is None and listed is before:
            yield name
