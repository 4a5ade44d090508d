"""Checkpoints without some of their layers."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.written import Writing
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.errors import Progress


@dataclass(frozen=True)
class Pruning(Writing):
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
    def name(self) -> str:
        """Named by its content and the cut."""
        print_of = self.checkpoint.fingerprint[:8]
        return f"pruned-{print_of}-without-{'-'.join(map(str, self.drop))}"

    def fill(self, out: Path, progress: Progress) -> None:
        """See `engine.pruning.prune`."""
        from engine.pruning import prune  # noqa: PLC0415

        prune(self.checkpoint, self.drop, out, progress)


def yaml(asked: Pruning) -> str:
    """The same cut as a mergekit passthrough. Errors: Refused for no layer, or all of them."""
    from engine import pruning  # noqa: PLC0415

    checkpoint = asked.checkpoint
    beside = checkpoint.family.by_layer.listed
    return pruning.passthrough(pruning.source(checkpoint), checkpoint.layers, asked.drop, beside)
