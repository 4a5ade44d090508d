"""The command on the experts of a layer."""

from engine.exports.documents import made
from engine.options import A, B, By, Count, Device, Dtype, Inputs, Json, Layer, Text, Tokens, Using
from engine.questions import Experts
from engine.records import ExpertsReport, plain
from engine.summaries import experts as summaries
from engine.terminal import emit, one_of, say, solve


def experts(
    a: A,
    b: B,
    layer: Layer = 0,
    using: By = Using.weights,
    text: Text = "default",
    tokens: Tokens = "",
    inputs: Inputs = "",
    count: Count = 1024,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Which expert of one layer is which, and what merging two or removing one costs."""
    asked = Experts(a, b, layer, using.value, count, one_of(text, tokens, inputs), device, dtype)
    record = solve(asked, ExpertsReport)
    if as_json:
        emit(made(plain(record), asked))
    else:
        say(summaries.of_experts(record))
