"""What an alignment has found so far, handed over while it works."""

from dataclasses import dataclass, field

from engine.errors import Progress
from engine.records import AlignmentProgress, LayerStage, Sweep


@dataclass
class Watch:
    """What has been found. It changes as it grows; `so_far` is a copy of what it holds."""

    a: str
    b: str
    steps: list[LayerStage] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    told: int = 0  # parts that were handed over

    def so_far(self) -> AlignmentProgress:
        """The record of it."""
        losses = tuple(map(tuple, self.losses))
        return AlignmentProgress(self.a, self.b, tuple(self.steps), tuple(self.sweeps), losses)

    def reporting(self, progress: Progress) -> Progress:
        """The callback that also hands over the record, whenever there is more of it."""

        def inner(share: float, step: str, partial: object = None, /) -> None:
            now = self.so_far()
            more, self.told = now.parts > self.told, now.parts
            progress(share, step, now if more else partial)

        return inner
