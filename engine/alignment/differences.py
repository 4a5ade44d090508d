"""What differs between two checkpoints on which one group acts, and what is done about it."""

from collections.abc import Iterator
from dataclasses import replace

from engine.alignment.widths import widths
from engine.checkpoint import Checkpoint
from engine.groups import Trivial
from engine.rows import named
from engine.writing import SHARD

TIE = "tie_word_embeddings"


def on_common_ground(a: Checkpoint, b: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
    """Both as they are, or both untied where only one of two models of a family is tied."""
    alike = a.family != b.family or a.tied == b.tied
    return (a, b) if alike else (untied(a), untied(b))


def untied(checkpoint: Checkpoint) -> Checkpoint:
    """The same function with a head of its own, a copy of the embedding; nothing is written.

    A tied model is a point of the untied architecture, U = E, and a gauge acts on both tables
    alike: E → E gᵀ, U → U g⁻¹, where g⁻¹ = gᵀ for signed permutations, so that g of a tied model is
    tied again. The gain of the last norm stays where it is: folded into U alone it would untie.
    """
    if not checkpoint.tied:
        return checkpoint
    family = checkpoint.family
    names = {axes: named(key)[0] for key, axes in family.tensors.items()}
    head, embedding = names["tok res*"], names["tok res"]
    here = {family.row(name).name: name for name in checkpoint.headers}
    copy = {here.get(head, head): checkpoint.headers[here[embedding]]}
    return replace(
        checkpoint,
        headers={**checkpoint.headers, **copy},
        config={**checkpoint.config, TIE: False},
        view=True,
    )


def notes(a: Checkpoint, b: Checkpoint, *, continuous: bool) -> tuple[str, ...]:
    """One sentence for each difference: both values, and what was done.

    `continuous`: the gauge multiplies by more than signs, so that narrow dtypes are widened.
    """
    dtypes = _dtypes(a, b, continuous=continuous)
    return (*_rows(a, b), *_width(a, b), *_ties(a, b), *dtypes, *_files(a, b))


def _rows(a: Checkpoint, b: Checkpoint) -> Iterator[str]:
    """Sizes of the fixed coordinates, whose rows mean something outside the model."""
    sizes = [c.family.sizes(c.config) for c in (a, b)]
    for name, coordinate in a.family.coordinates.items():
        x, y = (size[name] for size in sizes)
        if isinstance(coordinate.group, Trivial) and x != y:
            more = "A" if x > y else "B"
            kept = "; aligned B keeps them" if more == "B" else ""
            were = "row" if abs(x - y) == 1 else "rows"
            yield (
                f"A has {x:,} {coordinate.title} rows, B {y:,}: the last {abs(x - y):,} {were} of "
                f"{more} were left out of every comparison{kept}."
            )


def _width(a: Checkpoint, b: Checkpoint) -> Iterator[str]:
    """Numbers of neurons, see `engine.alignment.widths`."""
    if both := widths(a, b):
        x, y = both
        one, other = ("A", "B") if x < y else ("B", "A")
        rest = (
            "follow behind them in aligned B, and were left out of every distance"
            if x < y
            else "were left out of every distance, and are A's own in the model half way"
        )
        yield (
            f"A has {x:,} neurons in the feed-forward network of a layer, B {y:,}: each of {one}'s "
            f"was matched with one of {other}'s; the {abs(x - y):,} left over of {other} {rest}."
        )


def _ties(a: Checkpoint, b: Checkpoint) -> Iterator[str]:
    if a.tied != b.tied:
        one, other = ("A", "B") if a.tied else ("B", "A")
        yield (
            f"{one} reads out by its embedding (tied), {other} has a head of its own: {one} was "
            f"compared as the untied model that it equals, its embedding once against {other}'s "
            f"embedding and once against {other}'s head. The gain of the last norm was folded into "
            f"neither. Aligned B is {'untied' if a.tied else 'tied'}, as B is."
        )


def _dtypes(a: Checkpoint, b: Checkpoint, *, continuous: bool) -> Iterator[str]:
    if a.dtype != b.dtype:
        kind = "float32" if continuous and narrow(b) else b.dtype
        why = ", since the gauge multiplies by more than signs" if kind != b.dtype else ""
        yield (
            f"A is stored as {a.dtype}, B as {b.dtype}: both were compared in float32 or finer, "
            f"and aligned B is written as {kind}{why}."
        )


def narrow(checkpoint: Checkpoint) -> bool:
    """Whether a product of its numbers would be rounded to fewer than 24 bits."""
    return checkpoint.dtype in {"bfloat16", "float16"}


def _files(a: Checkpoint, b: Checkpoint) -> Iterator[str]:
    x, y = (len({h.file for h in c.headers.values()}) for c in (a, b))
    if x != y:
        yield (
            f"A is stored in {_counted(x)}, B in {_counted(y)}: tensors were compared by name, and "
            f"aligned B is written in files of at most {SHARD // 10**9} GB."
        )


def _counted(files: int) -> str:
    return f"{files} file" if files == 1 else f"{files} files"
