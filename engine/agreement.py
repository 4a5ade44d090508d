"""When one symmetry group acts on two checkpoints: same table, same sizes, same function."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.family import Family

ROPE = frozenset(
    {
        "partial_rotary_factor", "rope_local_base_freq", "rope_scaling", "rope_theta",
        "rotary_emb_base", "rotary_pct",
    }
)  # fmt: skip
"""Older spellings of what transformers 5 keeps in `rope_parameters`."""
STRETCHED = frozenset({"dynamic", "longrope", "yarn"})
"""Rotary embeddings that depend on the length that a model was made for."""
BASE = 10000.0
"""The rotary base of configurations that give none."""


def differences(
    a: "Family",
    config_a: Mapping[str, Any],
    b: "Family",
    config_b: Mapping[str, Any],
    but: Collection[str] = (),
) -> Iterator[tuple[str, Any, Any]]:
    """(attribute, value of a, value of b) wherever the two functions cannot be one orbit.

    `but`: coordinates whose sizes may differ, unless others contain them (neurons of experts).
    """
    if a != b:
        yield "model_type", config_a["model_type"], config_b["model_type"]
        return
    if a.layers(config_a) != a.layers(config_b):
        yield a.depth, a.layers(config_a), a.layers(config_b)
    sizes = a.sizes(config_a), a.sizes(config_b)
    for name in a.free:
        coordinate = a.coordinates[name]
        if sizes[0][name] != sizes[1][name] and (name not in but or coordinate.over):
            yield f"{coordinate.size} ({coordinate.title})", sizes[0][name], sizes[1][name]
    values = compared(a, config_a), compared(a, config_b)
    for name in values[0]:
        if not same(values[0][name], values[1][name]):
            yield name, values[0][name], values[1][name]


def compared(family: "Family", config: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes to compare, in transformers' own spelling and with its defaults filled in."""
    filled = {**family.assumed, **config, **complete(config)}
    names = [name for name in family.compared if name not in ROPE]
    values = {name: filled.get(name) for name in names}
    if not filled.get("use_sliding_window", True):
        values |= {name: None for name in ("sliding_window", "max_window_layers") if name in values}
    if isinstance(kinds := values.get("layer_types"), list) and set(kinds) == {"full_attention"}:
        values["layer_types"] = None
    if "rope_parameters" in values:
        values["rope_parameters"] = rope(filled)
        if values["rope_parameters"].get("rope_type") in STRETCHED:
            values["max_position_embeddings"] = filled.get("max_position_embeddings")
    return values


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as transformers reads it: old spellings renamed, defaults filled in.

    Refused for values that it does not accept.
    """
    from engine.network import configuration  # noqa: PLC0415 (torch is slow to import)

    return configuration(config).to_dict()


def rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary embedding in transformers 5's spelling, whichever the configuration uses.

    Older configurations have `rope_theta` and `rope_scaling` (with `type` for `rope_type`), NeoX
    `rotary_emb_base` and `rotary_pct`.
    """
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    old = found.pop("type", "default")
    if any(isinstance(value, Mapping) for value in found.values()):
        return found  # one embedding for each kind of layer
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
