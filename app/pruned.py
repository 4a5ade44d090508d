"""Checkpoints without some of their layers, written by a job below the results store."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from app.opening import Places
from app.outputs import results
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Progress, Refused


@cache
def places() -> Places:
    """Where this process wrote the checkpoints that it pruned."""
    return Places()


@dataclass(frozen=True)
class Pruning:
    """The request to write a checkpoint without some of its layers."""

    model: str
    drop: tuple[int, ...]
    device: str = "disk"

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The opened checkpoint: configuration and headers only."""
        return open_checkpoint(self.model)

    @cached_property
    def key(self) -> str:
        """Digest of the content and of the layers that go."""
        parts = json.dumps([self.checkpoint.fingerprint, self.drop])
        return hashlib.sha256(f"prune {parts}".encode()).hexdigest()[:32]

    @property
    def out(self) -> Path:
        """The folder that the checkpoint is written to, named by its content and the cut."""
        name = f"pruned-{self.checkpoint.fingerprint[:8]}-without-{'-'.join(map(str, self.drop))}"
        long = name if len(name) <= 120 else f"{name[:100]}-{self.key[:8]}"
        return results().models / long

    def answer(self, progress: Progress) -> Path:
        """The folder with the written checkpoint; one that is there already is not written again.

        Errors: Refused as for `engine.pruning.prune`.
        """
        if not (self.out / "config.json").is_file():
            from engine.pruning import prune  # noqa: PLC0415

            try:
                self.out.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Refused(
                    f"The folder {self.out.parent} cannot be made ({error.strerror}): set "
                    "GAUGESCOPE_STORE to one that can be written."
                ) from error
            prune(self.checkpoint, self.drop, self.out, progress)
        return self.out


def yaml(asked: Pruning) -> str:
    """The same cut as a mergekit passthrough. Errors: Refused for no layer, or all of them."""
    from engine import pruning  # noqa: PLC0415

    checkpoint = asked.checkpoint
    beside = checkpoint.family.by_layer.listed
    return pruning.passthrough(pruning.source(checkpoint), checkpoint.layers, asked.drop, beside)
