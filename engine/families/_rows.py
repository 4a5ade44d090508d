"""Rows that several tables share: how the blind directions of a block look, from its tensors.

γ and β are gain and bias of a norm, W a matrix, b its bias, δ a random shift, c random factors.
"""

from collections.abc import Mapping

from engine.blind import Blind, Move
from engine.families import _head_norms
from engine.family import named
from engine.groups import DIAGONAL, SCALE, SIGNS

Tensors = Mapping[str, str]

norms_of_each_head = _head_norms.norms_of_each_head
norms_of_all_heads = _head_norms.norms_of_all_heads


def axes(tensors: Tensors, name: str) -> str:
    """The axes of a tensor, whatever condition its name in the table carries."""
    return next(text for key, text in tensors.items() if named(key)[0] == name)


def instead(tensors: Tensors, names: tuple[str, ...], old: str, new: str) -> dict[str, str]:
    """The rows of some tensors with another word for a leg."""
    return {name: axes(tensors, name).replace(old, new) for name in names}


def gain(
    tensors: Tensors,
    name: str,
    what: str,
    norm: tuple[str, ...],
    readers: tuple[str, ...],
    *,
    size: str = "hidden_size",
    offset: str = "",
) -> Blind:
    """γ c (and β c) against the columns of W over c, for every coordinate."""
    return Blind(
        name,
        f"gain of the {what} against its readers",
        "What a norm multiplies by a factor, every matrix behind it may divide by.",
        DIAGONAL,
        size,
        dict.fromkeys(norm, name + offset) | instead(tensors, readers, "res*", f"{name}*"),
    )


def bias_of_norm(name: str, what: str, norm: str, readers: Mapping[str, str]) -> Blind:
    """β + δ against b − W δ, for a norm whose readers (matrix → bias) all have a bias."""
    return Blind(
        name,
        f"bias of the {what} against the biases of its readers",
        "A constant that every reader sees can be taken back in the bias of every reader.",
        shift="res",
        moves=(
            Move(norm, +1),
            *(Move(bias, -1, (matrix,)) for matrix, bias in readers.items()),
        ),
    )


def slope(
    name: str, what: str, shift: str, matrix: str, norm: str, biases: tuple[str, str] | None = None
) -> Blind:
    """W + δ (1/γ)ᵀ against b − δ Σ β/γ; `biases` are b and β, None if β is 0 or b is not seen."""
    back = (Move(biases[0], -1, (f"1/{norm}", biases[1])),) if biases else ()
    return Blind(
        name,
        f"multiples of 1/γ on the rows of {what}",
        "A LayerNorm's output divided by its gain sums to a constant over the coordinates.",
        shift=shift,
        moves=(Move(matrix, +1, (f"1/{norm}",)), *back),
    )


def mean(name: str, what: str, shift: str, written: str, needs: tuple[str, ...] = ()) -> Blind:
    """W + 1 δᵀ, or b + 1 δ."""
    return Blind(
        name,
        f"all coordinates alike, {what}",
        "Every LayerNorm that reads the stream first subtracts the mean over its coordinates.",
        shift=shift,
        moves=(Move(written, +1),),
        needs=needs,
    )


def stream(
    tensors: Tensors,
    writers: tuple[str, ...],
    norm: tuple[str, ...],
    head: str = "lm_head.weight",
    offset: str = "",
    readers: tuple[str, ...] = (),
) -> Blind:
    """All writers × c: the norms divide it out; for a tied head the last gain takes 1/c.

    `readers` read the stream without a norm before them and divide; norms among the writers are
    stored less `offset`.
    """
    last = dict.fromkeys(norm, f"(scale* res){offset}")
    last[head] = "tok (scale res)"
    rows = {
        name: f"(scale res){offset}" if axes(tensors, name) == "|res|" else text
        for name, text in instead(tensors, writers, "res", "(scale res)").items()
    }
    return Blind(
        "scale",
        "scale of the whole residual stream",
        "Every norm divides by the size of what it reads.",
        SCALE,
        "1",
        rows | instead(tensors, readers, "res*", "(scale* res)") | last,
        head=True,
        approximate=True,
    )


def value_bias(bias: str, matrix: str, out: str, shift: str = "grp val") -> Blind:
    """b_v + δ against b_o − W_o δ."""
    return Blind(
        "value",
        "value bias against output bias",
        "Attention weights sum to 1: a constant on all values comes out as that constant.",
        shift=shift,
        moves=(Move(bias, +1), Move(out, -1, (matrix,))),
    )


def key_bias(bias: str) -> Blind:
    """b_k + δ on channels that are not rotated."""
    return Blind(
        "key",
        "key bias of channels that are not rotated",
        "It adds the same number to all scores of a query, and the softmax does not see it.",
        shift="grp qk*",
        moves=(Move(bias, +1),),
    )


def last_gain(
    norm: tuple[str, ...],
    head: str = "lm_head.weight",
    size: str = "hidden_size",
    offset: str = "",
) -> Blind:
    """γ c against an untied head over c."""
    return Blind(
        "fin",
        "gain of the last norm against an untied head",
        "What a norm multiplies by a factor, the head behind it may divide by; a tied head is also "
        "the embedding and may not.",
        DIAGONAL,
        size,
        dict.fromkeys(norm, f"fin{offset}") | {head: "tok fin*"},
    )


def common_logit(head: str = "lm_head.weight") -> Blind:
    """W_u + 1 δᵀ on an untied head."""
    return Blind(
        "logits",
        "a common vector on all rows of an untied head",
        "It adds the same number to all logits of a position; log-probabilities stay.",
        shift="res*",
        moves=(Move(head, +1),),
    )


def one_logit(bias: str) -> Blind:
    """b_u + 1 δ on the bias of a head."""
    return Blind(
        "bias",
        "one number on the bias of all tokens",
        "It shifts all logits alike; log-probabilities stay.",
        shift="one",
        moves=(Move(bias, +1),),
    )


def output_scale(tensors: Tensors, name: str, what: str, writers: tuple[str, ...]) -> Blind:
    """W_o × c (with its bias) where a norm follows."""
    return Blind(
        name,
        f"scale of {what}",
        "A norm follows and divides by the size of what it reads.",
        SCALE,
        "1",
        instead(tensors, writers, "res", f"({name} res)"),
        approximate=True,
    )


def output_sign(
    tensors: Tensors,
    name: str,
    what: str,
    writers: tuple[str, ...],
    norm: str,
    offset: str = "",
) -> Blind:
    """The sign of each row of W_o with the gain of the norm that follows."""
    return Blind(
        name,
        f"signs of the rows of {what} with the gains behind it",
        "RMSNorm sees only squares, so that a sign passes through it to its gain.",
        SIGNS,
        "hidden_size",
        {norm: name + offset} | instead(tensors, writers, "res", name),
    )
