"""A family of architectures as a frozen value: the coordinate on each axis of each tensor."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from engine.axes import Sizes, legs, shape, with_offset
from engine.blind import Blind
from engine.errors import Refused
from engine.groups import Rotary, Trivial
from engine.harmless import HARMLESS
from engine.rows import ByLayer, Coordinate, Row, compiled, named
from engine.sizes import Config, attributes, evaluate

MANY = 1000  # missing tensors are counted up to here


@dataclass(frozen=True)
class Family:
    """The table of one family: data only, executed by `engine.action`."""

    name: str
    model_types: tuple[str, ...]
    coordinates: Mapping[str, Coordinate]
    tensors: Mapping[str, str]  # name on disk → axes; see `named` for what a name may say
    norm: str
    compared: tuple[str, ...]  # attributes that change the function and must agree between models
    constants: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # admitted values
    defaults: Mapping[str, str] = field(default_factory=dict)  # attribute left out → expression
    assumed: Mapping[str, Any] = field(default_factory=dict)  # value of an attribute left out
    limits: Mapping[str, str] = field(default_factory=dict)  # attribute → its largest value
    harmless: Mapping[str, str] = field(default_factory=dict)  # attribute → why it changes nothing
    depth: str = "num_hidden_layers"
    blocks: str = "model.layers"  # module path of the blocks, in memory
    by_layer: ByLayer = field(default_factory=ByLayer)  # attributes that go along with layers
    hidden: Mapping[str, str] = field(default_factory=dict)  # "in path" or "out path" → axes
    blind: tuple[Blind, ...] = ()
    inputs: Literal["tokens", "pixels"] = "tokens"
    prefix: str = ""  # a file may leave this out of all names
    spellings: Mapping[str, str] = field(default_factory=dict)  # old endings → the table's

    @cached_property
    def rows(self) -> tuple[tuple[re.Pattern[str], Row], ...]:
        """Compiled name and row, in the table's order."""
        return tuple(
            (compiled(named(key)[0]), Row(*with_offset(text), condition=named(key)[1]))
            for key, text in self.tensors.items()
        )

    @cached_property
    def _found(self) -> dict[str, Row | None]:
        return {}

    @cached_property
    def derived(self) -> dict[object, tuple[object, "Family"]]:
        """Tables that were made from this one, by what they were made for, which is kept too."""
        return {}

    def find(self, tensor: str) -> Row | None:
        """The row of a tensor by its name on disk; None if the table has none."""
        if tensor not in self._found:
            tries = (self._match(name) for name in self._spelled(tensor))
            self._found[tensor] = next((row for row in tries if row is not None), None)
        return self._found[tensor]

    def row(self, tensor: str) -> Row:
        """The row of a tensor by its name on disk; Refused if the table has none."""
        row = self.find(tensor)
        if row is None:
            raise Refused(
                f"Unknown tensor {tensor!r}: the {self.name} family has no row for it; "
                "a model with extra parts cannot be checked and is not opened."
            )
        return row

    def _spelled(self, tensor: str) -> Iterator[str]:
        """A name on disk in the table's spelling, with and without the family's prefix."""
        for old, new in self.spellings.items():
            tensor = tensor.removesuffix(old) + new if tensor.endswith(old) else tensor
        yield tensor
        yield self.prefix + tensor

    def _match(self, name: str) -> Row | None:
        for pattern, row in self.rows:
            if found := pattern.fullmatch(name):
                places = {word: int(number) for word, number in found.groupdict().items()}
                return replace(row, layer=places.pop("l", None), places=places, name=name)
        return None

    def span(self, tensor: str, word: str) -> tuple[int, int]:
        """Where the number of a named place stands in a tensor's name."""
        for pattern, _ in self.rows:
            for added, name in zip((0, len(self.prefix)), self._spelled(tensor), strict=True):
                if found := pattern.fullmatch(name):
                    start, stop = found.span(word)
                    return start - added, stop - added
        raise KeyError(tensor)

    @cached_property
    def per_layer(self) -> frozenset[str]:
        """The coordinates that live in one layer: every tensor that carries them has a layer."""
        shared = {
            leg.name for name, row in self.rows if "l" not in name.groupindex
            for leg in legs(row.axes)
        }  # fmt: skip
        return frozenset(self.coordinates) - shared

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The coordinates on which more than the identity may act, in the table's order."""
        return tuple(n for n, c in self.coordinates.items() if not isinstance(c.group, Trivial))

    def layers(self, config: Config) -> int:
        """Number of blocks."""
        return evaluate(self.depth, config, self.defaults)

    def sizes(self, config: Config) -> Sizes:
        """Size of every coordinate of a model with this configuration."""
        return {
            name: evaluate(coordinate.size, config, self.defaults)
            for name, coordinate in self.coordinates.items()
        }

    def batch(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        """How many independent elements one key of this coordinate holds: its `over` sizes."""
        return tuple(sizes[outer] for outer in self.coordinates[name].over)

    def key(self, name: str, layer: int | None) -> str:
        """The key of a coordinate's element in a gauge: `res` or `layers.3.ffn`."""
        return f"layers.{layer}.{name}" if name in self.per_layer else name

    def keys(self, config: Config) -> Iterator[tuple[str, str, int | None]]:
        """(key, coordinate, layer) of every element that a gauge of this model may have."""
        sizes = self.sizes(config)
        for name in self.free:
            if sizes[name]:
                for layer in range(self.layers(config)) if name in self.per_layer else [None]:
                    yield self.key(name, layer), name, layer

    def carried(self, tensors: Iterable[str]) -> frozenset[str]:
        """The free coordinates that some of these tensors carry."""
        rows = (self.row(tensor) for tensor in tensors)
        found = {leg.name for row in rows for leg in legs(row.axes)}
        return frozenset(found) & frozenset(self.free)

    def check(self, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse an unknown attribute, an unknown or missing tensor, a shape not in the table."""
        self._check_attributes(config)
        sizes = self.sizes(config)
        self._check_sizes(config, sizes)
        for tensor, found in shapes.items():
            row = self.row(tensor)
            self._check_places(tensor, row, config, sizes)
            expected = shape(row.axes, sizes)
            if found != expected:
                raise Refused(
                    f"Tensor {tensor!r}: its configuration declares shape {list(expected)}, "
                    f"the file holds {list(found)}; config.json and weights do not belong together."
                )
        present = {self.row(tensor).name for tensor in shapes}
        lacking = (name for name in self._required(config, sizes) if name not in present)
        missing = list(islice(lacking, MANY))
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise Refused(
                f"Missing tensors: {', '.join(missing[:3])}{more}; "
                "the checkpoint is incomplete, download or save it again."
            )

    def _check_sizes(self, config: Config, sizes: Sizes) -> None:
        for name, coordinate in self.coordinates.items():
            if isinstance(coordinate.group, Rotary) and sizes[name] % 2:
                raise Refused(
                    f"{coordinate.size} gives {sizes[name]} rotary channels: they turn in pairs, "
                    "so that their number is even; mend config.json."
                )
        for attribute, limit in self.limits.items():
            most, found = evaluate(limit, config, self.defaults), config.get(attribute, 1)
            if type(found) is not int or not 1 <= found <= most:
                raise Refused(
                    f"Configuration attribute {attribute!r} is {found!r}, and must be from 1 to "
                    f"{most} ({limit}); mend config.json."
                )

    def _check_places(self, tensor: str, row: Row, config: Config, sizes: Sizes) -> None:
        found = [("layer", row.layer or 0, self.layers(config))]
        found += [(self.coordinates[w].title, place, sizes[w]) for w, place in row.places.items()]
        for what, place, count in found:
            if place >= count:
                raise Refused(
                    f"Tensor {tensor!r} is of {what} {place}, but the configuration declares "
                    f"{count} {what}s (0 to {count - 1}); config.json and weights do not belong "
                    "together."
                )

    def _required(self, config: Config, sizes: Sizes) -> Iterator[str]:
        for key in self.tensors:
            name, condition = named(key)
            if not self._demanded(condition, config):
                continue
            words = re.findall(r"\{(\w+)\}", name)
            ranges = [range(self.layers(config) if w == "l" else sizes[w]) for w in words]
            for numbers in _every(ranges):
                yield name.format(**dict(zip(words, numbers, strict=True)))

    def _demanded(self, condition: str | None, config: Config) -> bool:
        if not condition:
            return condition is None
        return self.sets(config, condition.removeprefix("!")) != condition.startswith("!")

    def idle(self, config: Config, row: Row) -> bool:
        """Whether a model leaves a tensor of its file unused: an untied head of a tied model."""
        return bool(row.condition) and not self._demanded(row.condition, config)

    def sets(self, config: Config, attribute: str) -> bool:
        """Whether a configuration switches an attribute on, by default or by itself."""
        return bool(config.get(attribute, self.assumed.get(attribute)))

    @cached_property
    def known(self) -> frozenset[str]:
        """The attributes of a configuration that the table knows what to do with."""
        texts = [self.depth, *(c.size for c in self.coordinates.values()), *self.defaults.values()]
        sized = {word for text in texts for word in attributes(text)}
        others = (
            HARMLESS,
            self.harmless,
            self.compared,
            self.constants,
            self.defaults,
            self.assumed,
        )
        return frozenset(sized).union(*others)

    def _check_attributes(self, config: Config) -> None:
        for name, value in config.items():
            if name not in self.known:
                raise Refused(
                    f"Unknown configuration attribute {name!r} = {value!r}: it may change the "
                    f"computation, and the {self.name} family does not say how; not opened."
                )
            allowed = self.constants.get(name)
            if allowed is not None and value not in allowed:
                raise Refused(
                    f"Configuration attribute {name!r} is {value!r}; the {self.name} family "
                    f"covers {' or '.join(map(repr, allowed))} only."
                )


def _every(ranges: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """The product of ranges, one by one: a configuration may declare any number of layers."""
    if not ranges:
        yield ()
        return
    for first in ranges[0]:
        for rest in _every(ranges[1:]):
            yield first, *rest


def family_of(config: Config) -> Family:
    """The family of a configuration by its `model_type`; Refused where there is none."""
    from engine.families import FAMILIES  # noqa: PLC0415 (the tables import this module)

    kind = config.get("model_type")
    for family in FAMILIES:
        if kind in family.model_types:
            return family
    known = ", ".join(sorted(kind for family in FAMILIES for kind in family.model_types))
    raise Refused(
        f"Unsupported architecture: model_type {kind!r}; there are tables for {known}. "
        "A family needs one table that names the coordinate on every axis of every tensor."
    )
