"""A model on one text: any stacks of its layers read, however many windows the text has."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from engine.checkpoint import Checkpoint
from engine.errors import Progress, silent
from engine.layers.filling import Sheet, array, readings
from engine.layers.inputs import Inputs
from engine.layers.sessions import Session, sessions
from engine.layers.stacks import Stack
from engine.records.layers import Readings


@dataclass(frozen=True)
class Trial:
    """A model on one text, to read stacks of its layers."""

    model: PreTrainedModel
    checkpoint: Checkpoint
    text: Inputs

    @cached_property
    def _alone(self) -> Session | None:
        """The session of the whole text where it is read in one part."""
        every = list(self._sessions())
        return every[0][1] if len(every) == 1 else None

    def _sessions(self) -> Iterator[tuple[slice, Session]]:
        c = self.checkpoint
        yield from sessions(self.model, c.family, c.layers, self.text, None)

    def read(self, stacks: Sequence[Stack], progress: Progress = silent) -> Sheet:
        """All stacks on all windows, float32 [3, stacks, windows]."""
        found = np.full((3, len(stacks), self.text.windows), np.nan, np.float32)
        alone = self._alone
        every = self._sessions() if alone is None else [(slice(0, self.text.windows), alone)]
        for windows, session in every:
            for done, (number, read, _) in enumerate(session.reads(stacks)):
                found[:, number, windows] = array(read)
                share = windows.start + done / len(stacks) * (windows.stop - windows.start)
                progress(share / self.text.windows, "layers left out")
        return found

    def readings(self, stacks: Sequence[Stack], progress: Progress = silent) -> Readings:
        """The same as a record."""
        return readings(self.read(stacks, progress), self.positions)

    @property
    def positions(self) -> np.ndarray:
        """Positions of each window that are read."""
        return self.text.kept.sum(1).cpu().numpy()

    @property
    def layers(self) -> int:
        """How many there are."""
        return self.checkpoint.layers

    def streams(self) -> list[Tensor]:
        """The model's own stream at every depth, on the first part of the text."""
        alone = self._alone
        return (next(self._sessions())[1] if alone is None else alone).streams()
