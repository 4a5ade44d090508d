"""A family of architectures as a frozen value: the coordinate on each axis of each tensor."""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from engine.axes import Pattern, Sizes, legs, parse, shape
from engine.errors import Refused
from engine.groups import Group, Trivial

Config = Mapping[str, Any]

HARMLESS: Mapping[str, str] = {
    "_name_or_path": "where it came from",
    "architectures": "which head class to load",
    "attention_dropout": "training only",
    "bos_token_id": "text only",
    "chunk_size_feed_forward": "memory only: the same sums in pieces",
    "dtype": "storage",
    "eos_token_id": "text only",
    "gaugescope_text": "which generator wrote a demo model's text",
    "id2label": "names of classes",
    "initializer_range": "before training only",
    "is_llama_config": "a converter's remark",
    "label2id": "names of classes",
    "max_position_embeddings": "a length limit; rotary embeddings have no parameters",
    "model_type": "selects the family",
    "output_attentions": "what is returned",
    "output_hidden_states": "what is returned",
    "pad_token_id": "text only",
    "problem_type": "loss of classifiers",
    "resid_pdrop": "training only",
    "return_dict": "what is returned",
    "rope_interleaved": "a converter's remark: Hugging Face's Llama pairs halves whatever it says",
    "tokenizer_class": "text only",
    "torch_dtype": "storage",
    "transformers.js_config": "another runtime",
    "transformers_version": "storage",
    "unsloth_fixed": "a converter's remark",
    "use_cache": "speed only",
    "vocab_size": "counted by the embedding; only common ids are compared",
}
"""Attributes of a configuration that change no symmetry and no comparison, each with its reason."""


@dataclass(frozen=True)
class Coordinate:
    """One internal index set of an architecture, and what may act on it."""

    title: str
    group: Group
    size: str  # expression of the configuration: names, integers, * and /
    over: tuple[str, ...] = ()  # the coordinates that contain it: one element for each of theirs
    why: str = ""


@dataclass(frozen=True)
class Row:
    """One tensor of a checkpoint: its axes and, for tensors of a layer, which layer."""

    axes: Pattern
    layer: int | None


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
    depth: str = "num_hidden_layers"
    blocks: str = "model.layers"  # module path of the blocks
    final_norm: str = "model.norm"  # module path of the norm that ends the residual stream

    @cached_property
    def rows(self) -> tuple[tuple[re.Pattern[str], Pattern], ...]:
        """Compiled name and axes, in the table's order."""
        return tuple(
            (re.compile(re.escape(named(key)[0]).replace(r"\{l\}", r"(?P<l>\d+)")), parse(axes))
            for key, axes in self.tensors.items()
        )

    def row(self, tensor: str) -> Row:
        """The row of a tensor by its name on disk; Refused if the table has none."""
        for name, axes in self.rows:
            if found := name.fullmatch(tensor):
                layer = found.groupdict().get("l")
                return Row(axes, None if layer is None else int(layer))
        raise Refused(
            f"Unknown tensor {tensor!r}: the {self.name} family has no row for it; "
            "a model with extra parts cannot be checked and is not opened."
        )

    @cached_property
    def per_layer(self) -> frozenset[str]:
        """The coordinates that live in one layer: every tensor that carries them has a layer."""
        shared = {
            leg.name for name, axes in self.rows if "l" not in name.groupindex
            for leg in legs(axes)
        }  # fmt: skip
        return frozenset(self.coordinates) - shared

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The coordinates on which more than the identity may act, in the table's order."""
        return tuple(n for n, c in self.coordinates.items() if not isinstance(c.group, Trivial))

    def layers(self, config: Config) -> int:
        """Number of blocks."""
        return _evaluate(self.depth, config, self.defaults)

    def sizes(self, config: Config) -> Sizes:
        """Size of every coordinate of a model with this configuration."""
        return {
            name: _evaluate(coordinate.size, config, self.defaults)
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
        for name in self.free:
            for layer in range(self.layers(config)) if name in self.per_layer else [None]:
                yield self.key(name, layer), name, layer

    def check(self, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse an unknown attribute, an unknown or missing tensor, a shape not in the table."""
        self._check_attributes(config)
        sizes = self.sizes(config)
        layers = self.layers(config)
        for tensor, found in shapes.items():
            row = self.row(tensor)
            if row.layer is not None and row.layer >= layers:
                raise Refused(
                    f"Tensor {tensor!r} is of layer {row.layer}, but the configuration declares "
                    f"{layers} layers (0 to {layers - 1}); config.json and weights do not belong "
                    "together."
                )
            expected = shape(row.axes, sizes)
            if found != expected:
                raise Refused(
                    f"Tensor {tensor!r}: its configuration declares shape {list(expected)}, "
                    f"the file holds {list(found)}; config.json and weights do not belong together."
                )
        missing = [name for name in self._required(config) if name not in shapes]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise Refused(
                f"Missing tensors: {', '.join(missing[:3])}{more}; "
                "the checkpoint is incomplete, download or save it again."
            )

    def _required(self, config: Config) -> Iterator[str]:
        for key in self.tensors:
            name, condition = named(key)
            attribute = condition.removeprefix("!")
            demanded = bool(config.get(attribute)) != condition.startswith("!")
            if condition and not demanded:
                continue
            for layer in range(self.layers(config)) if "{l}" in name else [0]:
                yield name.format(l=layer)

    def _check_attributes(self, config: Config) -> None:
        sized = {
            word
            for text in [self.depth, *(c.size for c in self.coordinates.values())]
            for word in re.findall(r"[A-Za-z_]\w*", text)
        }
        known = sized | set(HARMLESS) | set(self.compared) | set(self.constants) | {*self.defaults}
        for name, value in config.items():
            if name not in known:
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


def named(key: str) -> tuple[str, str]:
    """A table's key as name and condition.

    `{l}` in the name stands for a layer. `name?attribute` may be absent unless the configuration
    sets the attribute, `name?!attribute` unless it does not.
    """
    name, _, condition = key.partition("?")
    return name, condition


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


_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}


def _evaluate(text: str, config: Config, defaults: Mapping[str, str]) -> int:
    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return number_of(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
        raise ValueError(f"size {text!r}: only names, integers, * and / are understood")

    def number_of(name: str) -> int:
        found = config.get(name)
        if found is None and name in defaults:
            return _evaluate(defaults[name], config, defaults)
        if type(found) is not int or found <= 0:
            raise Refused(
                f"Configuration attribute {name!r} must be a positive integer, found {found!r}; "
                "mend config.json."
            )
        return found

    return value(ast.parse(text, mode="eval").body)
