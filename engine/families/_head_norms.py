"""Blind rows of norms on queries and keys, for tensors that are named like Llama's."""

from collections.abc import Mapping

from engine.blind import Blind
from engine.families._quarters import QUARTERS
from engine.groups import SCALE, SIGNS

Tensors = Mapping[str, str]

ATTENTION = "model.layers.{l}.self_attn."
QUERIES, KEYS = ATTENTION + "q_proj.weight", ATTENTION + "k_proj.weight"
QUERY_BIAS, KEY_BIAS = ATTENTION + "q_proj.bias", ATTENTION + "k_proj.bias"
QUERY_NORM, KEY_NORM = ATTENTION + "q_norm.weight", ATTENTION + "k_norm.weight"


def scaled(name: str, what: str, size: str, over: tuple[str, ...], rows: Tensors) -> Blind:
    """Rows of W_q or W_k × c under a norm of queries or keys."""
    return Blind(
        name,
        f"scale of {what}",
        "The norm of queries and keys divides it out.",
        SCALE,
        size,
        rows,
        over,
        approximate=True,
    )


def signed(name: str, what: str, size: str, rows: Tensors) -> Blind:
    """The sign of a channel of W_q or W_k with its gain."""
    return Blind(
        name,
        f"sign of a {what} channel with its gain",
        "RMSNorm sees only squares, so that a sign passes through it to its gain.",
        SIGNS,
        size,
        rows,
    )


def quarter(rows: Tensors, over: tuple[str, ...] = ()) -> Blind:
    """q → i q and k → i k on one frequency, its two gains exchanged in both norms."""
    return Blind(
        "quarter",
        "quarter turn of a frequency with its two gains exchanged",
        "It commutes with the rotation, is the same for queries and keys, and only moves and "
        "negates numbers, which RMSNorm lets through to the gains.",
        QUARTERS,
        "head_dim",
        rows,
        over,
    )


def norms_of_each_head(offset: str = "") -> tuple[Blind, ...]:
    """Under norms of single query and key heads, with gains that all heads share."""
    per_group = "num_attention_heads / num_key_value_heads"
    return (
        scaled("query", "a query head", per_group, ("grp",), {
            QUERIES: "(grp query half rot) res", QUERY_BIAS: "(grp query half rot)",
        }),
        scaled("key", "a key head", "num_key_value_heads", (), {
            KEYS: "(key half rot) res", KEY_BIAS: "(key half rot)",
        }),
        signed("query_sign", "query", "head_dim", {
            QUERIES: "(grp head query_sign) res", QUERY_BIAS: "(grp head query_sign)",
            QUERY_NORM: f"query_sign{offset}",
        }),
        signed("key_sign", "key", "head_dim", {
            KEYS: "(grp key_sign) res", KEY_BIAS: "(grp key_sign)", KEY_NORM: f"key_sign{offset}",
        }),
        quarter({
            QUERIES: "(grp head quarter) res", QUERY_BIAS: "(grp head quarter)",
            KEYS: "(grp quarter) res", KEY_BIAS: "(grp quarter)",
            QUERY_NORM: "|quarter|", KEY_NORM: "|quarter|",
        }),
    )  # fmt: skip


def norms_of_all_heads() -> tuple[Blind, ...]:
    """Under one norm of all queries and one of all keys, every channel with its own gain."""
    return (
        scaled("query", "all queries", "1", (), {
            QUERIES: "(query grp head half rot) res", QUERY_BIAS: "(query grp head half rot)",
        }),
        scaled("key", "all keys", "1", (), {
            KEYS: "(key grp half rot) res", KEY_BIAS: "(key grp half rot)",
        }),
        signed("query_sign", "query", "num_attention_heads * head_dim", {
            QUERIES: "query_sign res", QUERY_BIAS: "query_sign", QUERY_NORM: "query_sign",
        }),
        signed("key_sign", "key", "num_key_value_heads * head_dim", {
            KEYS: "key_sign res", KEY_BIAS: "key_sign", KEY_NORM: "key_sign",
        }),
        quarter({
            QUERIES: "(grp head quarter) res", QUERY_BIAS: "(grp head quarter)",
            KEYS: "(grp quarter) res", KEY_BIAS: "(grp quarter)",
            QUERY_NORM: "(grp head |quarter|)", KEY_NORM: "(grp |quarter|)",
        }, ("grp",)),
    )  # fmt: skip
