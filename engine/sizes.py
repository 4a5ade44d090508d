"""Sizes as expressions of a configuration: names, numbers, `* / + -`, brackets and `len(name)`."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from engine.errors import Refused

Config = Mapping[str, Any]
Number = int | float

_OPERATORS: Mapping[type, Callable[[Any, Any], Number]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}
_ROUNDING = 1e-9


def attributes(text: str) -> set[str]:
    """The attributes of the configuration that an expression reads (of dotted names the first)."""
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)
    return set(names) - {"len"}


def evaluate(text: str, config: Config, defaults: Mapping[str, str]) -> int:
    """The whole number that an expression gives, rounded down.

    A name is an attribute (`rope_parameters.partial_rotary_factor` one of a nested one); where it
    is absent or null, `defaults` may have an expression for it, or for its length. Refused for one
    that is neither a positive whole number nor a share between 0 and 1.
    """
    return int(_value(_tree(text), text, config, defaults) + _ROUNDING)


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _value(node: ast.expr, text: str, config: Config, defaults: Mapping[str, str]) -> Number:
    match node:
        case ast.Constant(value=int(number) | float(number)):
            return number
        case ast.Name(id=name):
            return _attribute(name, config, defaults)
        case ast.Attribute():
            return _attribute(ast.unparse(node), config, defaults)
        case ast.Call(func=ast.Name(id="len"), args=[argument]):
            return _length(ast.unparse(argument), config, defaults)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = (_value(side, text, config, defaults) for side in (left, right))
            if isinstance(op, ast.Div) and first % second:
                raise Refused(
                    f"The configuration gives {ast.unparse(node)} = {first} / {second}, which is "
                    "no whole number; mend config.json."
                )
            return _OPERATORS[type(op)](first, second)
    raise ValueError(f"size {text!r}: only names, numbers, len, * / + - are understood")


def _length(name: str, config: Config, defaults: Mapping[str, str]) -> int:
    value = found(config, name)
    if value is None and name in defaults:
        return evaluate(defaults[name], config, defaults)
    return len(value or ())


def found(config: Config, name: str) -> Any:
    """An attribute by its dotted name; None where it is absent."""
    value: Any = config
    for word in name.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    return value


def _attribute(name: str, config: Config, defaults: Mapping[str, str]) -> Number:
    value = found(config, name)
    if value is None and name in defaults:
        return _value(_tree(defaults[name]), defaults[name], config, defaults)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, float) and 0 < value <= 1:
        return value
    raise Refused(
        f"Configuration attribute {name!r} must be a positive integer, found {value!r}; "
        "mend config.json."
    )
