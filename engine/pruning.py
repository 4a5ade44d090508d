"""A checkpoint without some of its layers: the tensors renumbered, the configuration cut along."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.agreement import complete
from engine.checkpoint import Checkpoint, open_folder, save_checkpoint
from engine.errors import Progress, Refused, silent
from engine.writing import new_folder

if TYPE_CHECKING:
    from torch import Tensor

    from engine.family import Family
    from engine.sizes import Config

PASSTHROUGH = "mergekit.yaml"
"""The same cut in mergekit's words, written beside the weights."""
CUTS = "gaugescope_cut"
"""The configuration's list of cuts that led to a checkpoint, the last one last."""
_RANGE = re.compile(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?")


def parse_layers(text: str) -> tuple[int, ...]:
    """The layers of "5,7,9-11", both ends of a range included, in the order written.

    Errors: Refused for anything else, a range that goes down, and a layer that stands twice.
    """
    found: list[int] = []
    for word in text.split(","):
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise Refused(
                f"{text!r} names no layers at {word!r}: write numbers from 0 and ranges that go "
                "up, such as 5,7,9-11 (9-11 means 9, 10 and 11)."
            )
        found += range(first, last + 1)
    _refuse_twice(found)
    return tuple(found)


def _refuse_twice(layers: Sequence[int]) -> None:
    twice = sorted(layer for layer, times in Counter(layers).items() if times > 1)
    if twice:
        raise Refused(f"Layer {twice[0]} is named twice: name each layer once.")


def kept(name: str, layers: int, drop: Sequence[int]) -> tuple[int, ...]:
    """The layers that stay, in order.

    Errors: Refused for a layer that the model lacks, one named twice, no layers, and all of them.
    """
    _refuse_twice(drop)
    strange = [layer for layer in drop if not 0 <= layer < layers]
    if strange:
        raise Refused(
            f"{name} has no layer {strange[0]}: its {layers} layers are numbered from 0 to "
            f"{layers - 1}."
        )
    if not drop:
        raise Refused(f"No layer to leave out: name some of the {layers} layers of {name}.")
    if len(drop) == layers:
        raise Refused(f"All {layers} layers of {name} would be left out: keep at least one.")
    return tuple(layer for layer in range(layers) if layer not in drop)


def runs(layers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted layers as half-open ranges: [0, 1, 2, 4] is (0, 3), (4, 5)."""
    if not layers:
        return []
    breaks = [k for k, (a, b) in enumerate(pairwise(layers), start=1) if b != a + 1]
    bounds = [0, *breaks, len(layers)]
    return [(layers[a], layers[b - 1] + 1) for a, b in pairwise(bounds)]


def spoken(layers: Sequence[int]) -> str:
    """Layers in words that leave no end open: "layers 5, 7 and 9 to 11, both ends included"."""
    if not layers:
        return "no layer"
    words: list[str] = []
    for start, stop in runs(sorted(layers)):
        long = stop - start > 2
        words += [f"{start} to {stop - 1}"] if long else map(str, range(start, stop))
    listed = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    ends = ", both ends included" if " to " in listed else ""
    return f"layer{'s' * (len(layers) > 1)} {listed}{ends}"


def passthrough(name: str, layers: int, drop: Sequence[int], beside: Sequence[str] = ()) -> str:
    """The same cut as a mergekit configuration: one slice for each run of layers that stay.

    mergekit's `layer_range: [a, b]` holds a and not b. `beside` names attributes of config.json
    that mergekit leaves as they were. Errors: as for `kept`.
    """
    ranges = runs(kept(name, layers, drop))
    start, stop = ranges[0]
    holds = f"layer {start} only" if stop == start + 1 else f"layers {start} to {stop - 1}"
    lines = [
        f"# Without {spoken(drop)}. The {layers} layers are numbered from 0 to {layers - 1}.",
        f"# A layer_range [a, b] ends before b: [{start}, {stop}] holds {holds}.",
    ]
    if beside:
        lines.append(
            f"# mergekit changes the number of layers only: take {' and '.join(beside)} from the "
            "config.json beside this file."
        )
    lines += ["merge_method: passthrough", "slices:"]
    for start, stop in ranges:
        lines += [
            "  - sources:",
            f"      - model: {json.dumps(name)}",
            f"        layer_range: [{start}, {stop}]",
        ]
    return "\n".join(lines) + "\n"


def configuration(family: "Family", config: "Config", stack: Sequence[int]) -> dict[str, Any]:
    """The configuration of a model whose depth d holds the old layer `stack[d]`.

    Lists with an entry for each layer go along, as transformers fills them in where they are left
    out; a number of first layers becomes how many of them are there; a period goes, since the list
    says it. Errors: Refused for an attribute by which the number of a layer enters the computation,
    and for another first layer where only the old one can be the first.
    """
    parts = family.by_layer
    if parts.first and stack[0] != 0:
        raise Refused(
            f"The first layer of {family.name} {parts.first}, and transformers builds no other as "
            "the first: keep layer 0."
        )
    for name in parts.indexed:
        if family.sets(config, name) and list(stack) != list(range(len(stack))):
            raise Refused(
                f"{name} scales each layer by its number, and no configuration gives a layer the "
                "scale of another number: leave out the last layers only, or a model without it."
            )
    found = {name: value for name, value in config.items() if name not in parts.periodic}
    for name, entries in listed(family, config).items():
        found[name] = [entries[layer] for layer in stack]
    for name in parts.counted:
        if config.get(name) is not None:
            found[name] = sum(layer < config[name] for layer in stack)
    return {**found, family.depth: len(stack)}


def listed(family: "Family", config: "Config") -> dict[str, list[Any]]:
    """Attributes with an entry for each layer, as transformers fills them in where left out."""
    if not family.by_layer.listed:
        return {}
    found = complete(config)
    return {name: list(found[name]) for name in family.by_layer.listed}


def renamed(checkpoint: Checkpoint, stack: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Every name of a model whose depth d holds the old layer `stack[d]`, and its old name."""
    family = checkpoint.family
    for name in checkpoint.headers:
        layer = family.row(name).layer
        if layer is None:
            yield name, name
            continue
        start, stop = family.span(name, "l")
        for depth in (depth for depth, old in enumerate(stack) if old == layer):
            yield f"{name[:start]}{depth}{name[stop:]}", name


def restacked(checkpoint: Checkpoint, stack: Sequence[int]) -> "Iterator[tuple[str, Tensor]]":
    """Every tensor of that model under its new name."""
    for name, old in renamed(checkpoint, stack):
        yield name, checkpoint.read(old)


def prune(
    checkpoint: Checkpoint, drop: Sequence[int], out: Path, progress: Progress = silent
) -> Checkpoint:
    """Write the checkpoint without some layers, every bit of the others kept, to a new folder.

    Beside it: tokenizer and generation files, and the same cut as `mergekit.yaml`; the
    configuration says from which content it was cut. Errors: Refused as for `kept` and
    `configuration`, and when `out` exists and is not empty or cannot be written.
    """
    layers = checkpoint.layers
    stack = kept(checkpoint.name, layers, drop)
    config = configuration(checkpoint.family, checkpoint.config, stack)
    cut = {"source": checkpoint.fingerprint, "layers": layers, "dropped": sorted(map(int, drop))}
    config[CUTS] = [*config.get(CUTS, ()), cut]
    total = max(1, round(len(checkpoint.headers) * len(stack) / layers))

    def watched() -> "Iterator[tuple[str, Tensor]]":
        for number, (name, tensor) in enumerate(restacked(checkpoint, stack)):
            progress(min(number / total, 1.0), f"writing {name}")
            yield name, tensor

    with new_folder(out) as staged:
        save_checkpoint(staged, watched(), like=checkpoint, config=config)
        text = passthrough(source(checkpoint), layers, drop, checkpoint.family.by_layer.listed)
        (staged / PASSTHROUGH).write_text(text, encoding="utf-8")
    return open_folder(out, str(out))


def source(checkpoint: Checkpoint) -> str:
    """What mergekit may be given: owner/name on the hub, or the folder."""
    hub = checkpoint.name.startswith("hf:")
    return checkpoint.name.removeprefix("hf:") if hub else str(checkpoint.folder.resolve())
