"""The layer results of this program beside published ones, from what ships with it."""

from app import layer_views, outputs
from app.sentences import published as sentences
from app.sentences.answers import Card
from engine.published import SOURCE, published, trajectories
from engine.questions import Cut, Gap, Layers
from engine.reproduction import coordinates, demo_shares, shipped_cut, shipped_maps
from engine.sources import SMOLLM2, demo_series


def cards() -> list[Card]:
    """Everything but the barriers."""
    own, cut = shipped_maps(SMOLLM2), shipped_cut(SMOLLM2)
    maps = None if own is None else layer_views.of_model(own)
    theirs = layer_views.of_published(published("qwen3-8b"))
    cost = layer_views.of_published(published("qwen3-8b-removal"))
    here = (
        None
        if maps is None or cut is None
        else sentences.told_removal(maps, cut.single.measure().value)
    )
    series = Gap(demo_series()["base"])
    return [
        sentences.tests(
            layer_views.counted(theirs, "max"),
            None if maps is None else layer_views.counted(maps, "max"),
            SOURCE,
            command(Layers.verb, "layers.json"),
        ),
        sentences.removal(
            sentences.told_removal(cost, cost.singles["removal"].value),
            here,
            SOURCE,
            command(Cut.verb, "cut.json"),
        ),
        sentences.gap(trajectories(), outputs.known(series), SOURCE, series.command),
        sentences.trajectory(coordinates(), demo_shares()),
        sentences.transport(coordinates()),
    ]


def command(verb: str, file: str) -> str:
    """The command of a question about SmolLM2, whether it is installed or not."""
    return f"python -m engine {verb} {SMOLLM2} --out {file}"
