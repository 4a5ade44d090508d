"""Compute what the app shows of the demo models on first paint: `python -m assets.make_results`.

The records go to `assets/demo/results`, keyed like any other result: by the content of the
checkpoints and every parameter. Run it again whenever the demo checkpoints or the engine's version
change; a test compares the keys.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from assets.shapes import SHAPES
from engine.lab.presets import offered
from engine.questions import (
    Align,
    AllNeurons,
    Barrier,
    Check,
    Continue,
    Cut,
    Gap,
    Heads,
    Inspect,
    Lab,
    Layers,
    Match,
    Neurons,
    Question,
    Related,
    Turn,
    Written,
)
from engine.sources import demo_series, demos
from engine.store import Store

BASE = "demo:base"
TWINS = (BASE, "demo:twin")
RESULTS = Path(__file__).resolve().parent / "demo" / "results"
PAIRS = (
    TWINS,
    ("demo:base", "demo:seed-1"),
    ("demo:tune-a-step-0160", "demo:tune-b-step-0160"),
    ("demo:base", "demo:base-step-1100"),
    ("demo:base", "demo:scope-first-attention-1"),
)
"""Pairs whose alignment and matching ship with the project."""
SWEEPS = 12
"""At which the Alignment page starts."""
HALFWAY = (0.0, 0.5, 1.0)
"""Where the Barrier page lets models write at first."""


def shipped() -> Iterator[Question]:
    """Every question whose answer ships."""
    for name in demos():
        yield Inspect(f"demo:{name}")
    paired = (model for pair in PAIRS for model in pair)
    others = [f"demo:{name}" for name in SHAPES]
    for model in dict.fromkeys((*paired, *others)):
        yield Check(model)
    for model in (TWINS[1], *others):
        yield Lab(model)
    for preset in offered(Inspect(BASE).answer()):
        yield Lab(BASE, preset=preset.key)
    for a, b in PAIRS:
        yield from (Related(a, b), Align(a, b), Align(a, b, sweeps=SWEEPS))
        yield from (Match(a, b), Heads(a, b))
    yield Match(*TWINS, using="weights")
    for a, b in PAIRS[:2]:
        yield from (Neurons(a, b, 0), AllNeurons(a, b))
        yield from (Barrier(a, b), Written(a, b, at=HALFWAY))
    yield Turn(*TWINS)
    for model in (BASE, *others):
        yield Heads(model, model)
    yield from (Layers(BASE), Layers(BASE, ("swap-healed",)), Cut(BASE))
    yield Continue(BASE, "replace", 2, 3)
    series = demo_series()
    yield from (Gap(series["base"]), Gap(series["seeds"]))


def main() -> None:
    """Answer every question anew."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    store = Store(RESULTS)
    for question in shipped():
        store.put(question.key, question.answer())


if __name__ == "__main__":
    main()
