"""Questions about one model: its card, its self-test, one experiment."""

from dataclasses import dataclass
from typing import ClassVar

from engine.errors import Progress, silent
from engine.questions.base import Question
from engine.records import Experiment, ModelCard, SelfTest


@dataclass(frozen=True)
class Inspect(Question):
    """The card of one model: configuration and headers only, in milliseconds."""

    verb: ClassVar[str] = "inspect"
    model: str

    def answer(self, progress: Progress = silent) -> ModelCard:
        """See `engine.inspection.card`."""
        from engine.inspection import card  # noqa: PLC0415

        progress(0.0, f"reading the headers of {self.model}")
        return card(self.checkpoints[0])


@dataclass(frozen=True)
class Check(Question):
    """The self-test of one model on a device."""

    verb: ClassVar[str] = "inspect"
    model: str
    device: str = "auto"
    dtype: str = "float32"
    seed: int = 0

    def answer(self, progress: Progress = silent) -> SelfTest:
        """See `engine.selftest.self_test`."""
        with self.running(progress) as (model,):
            from engine import selftest  # noqa: PLC0415

            return selftest.self_test(model, self.device, self.dtype, self.seed, progress)


@dataclass(frozen=True)
class Lab(Question):
    """One experiment of the lab: a change of the weights, and whether the output shows it.

    Empty words and numbers below 0 mean: what the preset chooses. A `layer` below 0 is every layer.
    """

    verb: ClassVar[str] = "lab"
    model: str
    preset: str = "ffn-order"
    coordinate: str = ""
    layer: int = 0
    draw: str = ""
    severity: float = 1.0
    angle: float = 90.0  # degrees
    element: str = ""  # typed by hand, see `engine.lab.typed`
    seed: int = 0
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> Experiment:
        """See `engine.lab.experiment.run`."""
        with self.running(progress) as (model,):
            from engine.lab import experiment  # noqa: PLC0415

            return experiment.run(model, self, progress)
