"""Questions about the FFN neurons of two models: one layer, and every layer in short."""

from dataclasses import dataclass
from typing import ClassVar

from engine.errors import Progress, silent
from engine.questions.base import Question
from engine.questions.pairs import Known, Using
from engine.records import NeuronLayers, NeuronMatch


@dataclass(frozen=True)
class Neurons(Question):
    """Which FFN neuron of B is which of A in one layer, with its sign and scale.

    A and B may be one model: which two of its neurons coincide, and what removing one costs.
    """

    verb: ClassVar[str] = "match"
    extra: ClassVar[tuple[str, ...]] = ("--coordinate", "ffn", "--out", "neurons.npz")
    a: str
    b: str
    layer: int
    expert: str = ""  # of A, by number; "shared"; empty for the first, or where there are none
    using: Using = "weights"
    tokens: int = 4096
    truth: Known = "planted"
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> NeuronMatch:
        """See `engine.alignment.neuron_report.one_layer`."""
        with self.running(progress) as (a, b):
            from engine.alignment import neuron_report  # noqa: PLC0415

            return neuron_report.one_layer(a, b, self, progress)


@dataclass(frozen=True)
class AllNeurons(Question):
    """The neurons of every layer in short: signs, margins, shares that are right."""

    verb: ClassVar[str] = "match"
    extra: ClassVar[tuple[str, ...]] = ("--coordinate", "ffn", "--out", "neurons.json")
    a: str
    b: str
    expert: str = ""  # "shared" for the expert that every token visits; empty for all others
    using: Using = "weights"
    tokens: int = 4096
    truth: Known = "planted"
    text: str = "default"
    device: str = "auto"
    dtype: str = "float32"

    def answer(self, progress: Progress = silent) -> NeuronLayers:
        """See `engine.alignment.neuron_report.all_layers`."""
        with self.running(progress) as (a, b):
            from engine.alignment import neuron_report  # noqa: PLC0415

            return neuron_report.all_layers(a, b, self, progress)
