"""Checkpoints that pages write: each by a job, below the results store, once."""

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from app.opening import Places
from app.outputs import results
from engine.errors import Progress, Refused
from engine.questions import Align, Merge
from engine.sources import Roots, is_model

PREFIXES = ("aligned-", "merged-", "pruned-")
"""How the names of written checkpoints begin; what else lies beside them cannot be opened."""


@cache
def places() -> Places:
    """Where this process wrote checkpoints."""
    return Places()


def folders() -> tuple[Path, ...]:
    """The checkpoints that pages wrote below the store, by name."""
    root = results().models
    inside = sorted(root.iterdir()) if root.is_dir() else []
    return tuple(folder for folder in inside if _ours(folder))


def found(spec: str) -> Path | None:
    """The written checkpoint that a name, or its whole path, means; None for anything else."""
    root, named = results().models, Path(spec)
    folder = root / named.name
    told = spec == named.name or named == folder or named == folder.resolve()
    return folder.resolve() if told and _ours(folder) else None


def _ours(folder: Path) -> bool:
    """Whether it is a written checkpoint, with all its files where they seem to be."""
    if not folder.name.startswith(PREFIXES) or folder.is_symlink() or not is_model(folder):
        return False
    try:
        return Roots((folder,)).inside(folder.resolve()) == folder.resolve()
    except Refused:
        return False


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
