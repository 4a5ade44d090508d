"""The card of a model: what its configuration and headers say, and its table of coordinates."""

import math
from collections import Counter

from engine.action import legs
from engine.checkpoint import Checkpoint
from engine.records import CoordinateCard, ModelCard


def card(checkpoint: Checkpoint) -> ModelCard:
    """Everything about a checkpoint that can be said without reading a weight."""
    family, config = checkpoint.family, checkpoint.config
    sizes = family.sizes(config)
    kinds = Counter(h.dtype for h in checkpoint.headers.values())
    return ModelCard(
        name=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        family=f"{family.name} ({config['model_type']})",
        layers=checkpoint.layers,
        width=sizes["res"],
        heads=sizes["grp"] * sizes["head"],
        kv_heads=sizes["grp"],
        head_dim=sizes["val"],
        ffn=sizes["ffn"],
        vocabulary=sizes["tok"],
        norm=family.norm,
        activation=str(config.get("hidden_act", "silu")),
        rotary=_rotary(checkpoint),
        tied=checkpoint.tied,
        dtype=", ".join(sorted(kinds)),
        parameters=checkpoint.parameters,
        bytes=checkpoint.nbytes,
        coordinates=tuple(_coordinate(checkpoint, name) for name in family.coordinates),
    )


def _rotary(checkpoint: Checkpoint) -> str:
    declared = checkpoint.config.get("rope_parameters") or {}
    base = declared.get("rope_theta", checkpoint.config.get("rope_theta", 10_000.0))
    kind = declared.get("rope_type", "default")
    scaling = "" if kind == "default" else f", {kind} scaling"
    return f"pairs (i, i + n/2), base {base:g}{scaling}"


def _coordinate(checkpoint: Checkpoint, name: str) -> CoordinateCard:
    family, config = checkpoint.family, checkpoint.config
    coordinate, sizes = family.coordinates[name], family.sizes(config)
    layers = checkpoint.layers if name in family.per_layer else 1
    copies = layers * math.prod(family.batch(name, sizes))
    return CoordinateCard(
        name=name,
        title=coordinate.title,
        group=coordinate.group.notation,
        size=sizes[name],
        copies=copies,
        log10=copies * coordinate.group.log10(sizes[name]),
        dimension=copies * coordinate.group.dimension(sizes[name]),
        carriers=tuple(f"{row}: {axes}" for row, axes in legs(family, name).items()),
    )
