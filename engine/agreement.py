"""When one symmetry group acts on two checkpoints: same table, same sizes, same function."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.family import Family

ROPE = frozenset(
    {
        "rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor",
        "rotary_emb_base", "rotary_pct",
    }
)  # fmt: skip
WINDOW = frozenset({"sliding_window", "max_window_layers"})
BASE = 10000.0
"""The rotary base of configurations that give none."""


def differences(
    a: "Family", config_a: Mapping[str, Any], b: "Family", config_b: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """(attribute, value of a, value of b) wherever the two functions cannot be one orbit."""
    if a != b:
        yield "model_type", config_a["model_type"], config_b["model_type"]
        return
    if a.layers(config_a) != a.layers(config_b):
        yield a.depth, a.layers(config_a), a.layers(config_b)
    sizes = a.sizes(config_a), a.sizes(config_b)
    for name in a.free:
        if sizes[0][name] != sizes[1][name]:
            coordinate = a.coordinates[name]
            yield f"{coordinate.size} ({coordinate.title})", sizes[0][name], sizes[1][name]
    values = compared(config_a, a.compared), compared(config_b, a.compared)
    for name in values[0]:
        if not same(values[0][name], values[1][name]):
            yield name, values[0][name], values[1][name]


def compared(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The attributes to compare in one spelling, with what is switched off left out as None."""
    used = config.get("use_sliding_window", True)
    values = {
        name: None if name in WINDOW and not used else config.get(name)
        for name in names
        if name not in ROPE
    }
    if isinstance(kinds := values.get("layer_types"), list) and set(kinds) == {"full_attention"}:
        values["layer_types"] = None
    return values | ({"rope_parameters": rope(config)} if ROPE & set(names) else {})


def rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary embedding in transformers 5's spelling, whichever the configuration uses.

    Older configurations have `rope_theta` and `rope_scaling` (with `type` for `rope_type`), NeoX
    `rotary_emb_base` and `rotary_pct`.
    """
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    old = found.pop("type", "default")
    values = {
        "rope_type": old,
        "rope_theta": config.get("rope_theta", config.get("rotary_emb_base", BASE)),
    }
    part = config.get("partial_rotary_factor", config.get("rotary_pct"))
    if part is not None:
        values["partial_rotary_factor"] = part
    return values | found


def same(a: Any, b: Any) -> bool:
    """Equality of attributes: absent is off, and a float that went through float32 is itself."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(a.get(key), b.get(key)) for key in {*a, *b})
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-6)
    return (a or None) == (b or None)
