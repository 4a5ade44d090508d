"""A checkpoint under a random gauge: the same function in other coordinates."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from engine.action import act
from engine.checkpoint import Checkpoint, open_folder, save_checkpoint
from engine.errors import Progress, silent
from engine.symmetry import Symmetry, sample
from engine.writing import new_folder


def scramble(
    checkpoint: Checkpoint,
    out: Path,
    seed: int = 0,
    only: Collection[str] = (),
    progress: Progress = silent,
) -> Symmetry:
    """Write g · checkpoint and `symmetry.safetensors` (g · source = target) to a new folder.

    A gauge of signed permutations keeps the dtype and every bit; a continuous one writes float32.
    """
    generator = torch.Generator().manual_seed(seed)
    g = sample(checkpoint.family, checkpoint.config, generator, only)

    def changed() -> Iterator[tuple[str, Tensor]]:
        for number, name in enumerate(checkpoint.headers):
            progress(number / len(checkpoint.headers), f"rewriting {name}")
            x = act(g, name, checkpoint.read)
            yield name, x.float() if g.continuous and x.is_floating_point() else x

    with new_folder(out) as staged:
        save_checkpoint(staged, changed(), like=checkpoint)
        g = replace(
            g,
            source=checkpoint.fingerprint,
            target=open_folder(staged, str(out)).fingerprint,
            names=(checkpoint.name, str(out)),
        )
        g.save(staged / "symmetry.safetensors")
    return g
