"""Checkpoints that pages write: each by a job, below the results store, once."""

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from app.opening import Places
from app.outputs import results
from engine.errors import Progress, Refused
from engine.questions import Align, Merge


@cache
def places() -> Places:
    """Where this process wrote checkpoints."""
    return Places()


@dataclass(frozen=True)
class Writing:
    """The request to write a checkpoint; what it holds is said by the classes made of it."""

    @cached_property
    def key(self) -> str:
        """Digest of the content and of all that changes what is written."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name of the folder, by its content."""
        raise NotImplementedError

    def fill(self, out: Path, progress: Progress) -> None:
        """Write the checkpoint to a new folder."""
        raise NotImplementedError

    @property
    def out(self) -> Path:
        """The folder that the checkpoint is written to."""
        short = self.name if len(self.name) <= 120 else f"{self.name[:100]}-{self.key[:8]}"
        return results().models / short

    def answer(self, progress: Progress) -> Path:
        """The folder with the written checkpoint; one that is there already is not written again.

        Errors: Refused as for `fill`, and where the folder above it cannot be made.
        """
        if not (self.out / "config.json").is_file():
            try:
                self.out.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Refused(
                    f"The folder {self.out.parent} cannot be made ({error.strerror}): set "
                    "GAUGESCOPE_STORE to one that can be written."
                ) from error
            self.fill(self.out, progress)
        return self.out


@dataclass(frozen=True)
class Answering(Writing):
    """The request to write what a question makes: it is computed anew, since records hold none."""

    asked: Align | Merge

    @property
    def device(self) -> str:
        """The question's: the work takes its turn there."""
        return self.asked.device

    @cached_property
    def key(self) -> str:
        """Of the question, but not its job."""
        return hashlib.sha256(f"write {self.asked.key}".encode()).hexdigest()[:32]

    @property
    def prints(self) -> list[str]:
        """The beginnings of the models' fingerprints."""
        return [checkpoint.fingerprint[:8] for checkpoint in self.asked.checkpoints]
