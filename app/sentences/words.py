"""Numbers, amounts and model cards in words."""

import psutil

from app.sentences.numbers import apart, count, number, seconds, size
from engine.records import ModelCard

__all__ = ["apart", "count", "describe", "memory", "number", "seconds", "size"]


def describe(card: ModelCard) -> tuple[str, ...]:
    """A model in five lines."""
    tied = "tied" if card.tied else "untied"
    values = "" if card.kv_heads == card.heads else f" / {card.kv_heads} kv"
    inner = f"FFN {card.ffn:,} {card.activation}"
    inner += f" in each of {card.experts} experts" if card.experts else ""
    return (
        f"{card.family} · {count(card.layers, 'layer')} · width {card.width:,}",
        f"{card.heads} heads{values} of {card.head_dim} · {inner}",
        f"{card.norm} · {card.positions} · {tied} embeddings · vocabulary {card.vocabulary:,}",
        f"{card.parameters:,} parameters · {card.dtype} · {size(card.bytes)} on disk",
        f"fingerprint {card.fingerprint[:12]}",
    )


def memory(a: ModelCard, b: ModelCard) -> str:
    """What two models in float32 need, and what is free."""
    need = 4 * (a.parameters + b.parameters)
    return f"Needs about {size(need)}; {size(psutil.virtual_memory().available)} are free."
