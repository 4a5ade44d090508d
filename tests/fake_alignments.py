"""Small records of alignments and of relations without an engine, consistent in themselves."""

from dataclasses import replace

import numpy as np

from engine.records import (
    AlignmentProgress,
    AlignmentReport,
    LayerStage,
    LineageTest,
    Midpoint,
    Relatedness,
    StageReport,
    Sweep,
)
from engine.records.lineage import Verdict
from tests import fakes
from tests.fakes import LAYERS, Logits

PARTS = {"res": 0.1, "ffn": 0.5, "grp head": -0.05, "rot": 0.2, "val": 0.15}
"""The share that each coordinate takes off; what is left is 0.1."""
LEFT = 0.1


def sweeps(low: float = 0.7) -> tuple[Sweep, ...]:
    """Two starts: the identity falls a little, the embedding to `low`."""
    return (
        Sweep("identity", 0, 2.0, 1.8, 1.8, 0.2),
        Sweep("embedding", 0, 1.9, 1.0, 1.0, 0.2),
        Sweep("embedding", 1, 0.9, low, low, 0.2),
    )


def stuck() -> tuple[Sweep, ...]:
    """A descent that gained nothing."""
    return (Sweep("identity", 0, 0.5, 0.5, 0.5, 0.1),)


def midpoints(refined: float = 0.4, control: float = 0.9) -> tuple[Midpoint, ...]:
    """A model half way whose chord is at 2 nats."""
    above = {
        "unaligned": 3.0, "with res": 2.5, "with ffn": 1.2, "with val": 1.3, "refined": refined,
        "refined without matching": control,
    }  # fmt: skip
    return tuple(Midpoint(stage, 2.0 + value, value) for stage, value in above.items())


def gaps(report: AlignmentReport) -> dict[int | None, float]:
    """Σ ‖A − B‖² of each layer, every tensor having length 1."""
    found: dict[int | None, float] = {}
    for name, before in zip(report.tensors, report.before, strict=True):
        parts = [part for part in name.split(".") if part.isdigit()]
        layer = int(parts[0]) if parts else None
        found[layer] = found.get(layer, 0.0) + float(before) ** 2
    return found


def alignment(
    low: float = 0.7, logits: Logits | None = None, refined: bool = False, **more: object
) -> AlignmentReport:
    """A report whose steps add up: the distances, squared, fall to a tenth."""
    report = fakes.alignment(logits, left=float(np.sqrt(LEFT)))
    report = replace(report, norms=np.ones(len(report.tensors), np.float32))
    steps = tuple(
        LayerStage(layer, names, 1.4, 1.0, 0.2, share * gap)
        for layer, gap in gaps(report).items()
        for names, share in PARTS.items()
    )
    stages = (
        StageReport("res", 1, 1.0, 0.41, 47, 1.38, 0.4),
        StageReport("ffn", LAYERS, 0.98, 0.02, 700, 1.4, 0.5),
        StageReport("rot", LAYERS, None, None, None, 1.4, 0.5),
    )
    points = midpoints() if refined else ()
    found = replace(report, steps=steps, sweeps=sweeps(low), stages=stages, midpoints=points)
    return replace(found, **more)  # type: ignore[arg-type]


def progress(
    count: int = 2, layers: int = 0, losses: tuple[tuple[float, ...], ...] = ()
) -> AlignmentProgress:
    """A run that has not ended."""
    steps = tuple(LayerStage(layer, "ffn", 1.4, 0.3, 0.1, 2.0) for layer in range(layers))
    return AlignmentProgress("base", "twin", steps, sweeps()[:count], losses)


def tested(coordinates: str, log10_p: float, rho: float, pairs: int) -> LineageTest:
    """A test with ρ near a value in every pair of layers."""
    draw = np.random.default_rng(len(coordinates))
    found = np.clip(rho + 0.05 * draw.normal(size=pairs), -1, 1).astype(np.float32)
    return LineageTest(coordinates, log10_p, found, np.abs(found))  # type: ignore[arg-type]


def relatedness(
    verdict: Verdict = "same function in other coordinates", depths: tuple[int, int] = (6, 6)
) -> Relatedness:
    """A relation with its control; at unequal depth B's layers, or A's, are the first ones."""
    log10_p, rho = (-0.9, 0.0) if verdict == "unrelated" else (-3021.4, 0.97)
    pairs = min(depths)
    unequal = depths[0] != depths[1]
    likeness = np.full(depths, 0.01, np.float32)
    layers = np.arange(max(depths))[-pairs:]
    for k, layer in enumerate(layers):
        at = (int(layer), k) if depths[0] > depths[1] else (k, int(layer))
        likeness[at] = 0.9
    run = None if unequal else 12.0 if verdict == "unrelated" else 2.1e-6
    return Relatedness(
        a="base",
        b="twin",
        fingerprints=("a" * 16, "b" * 16),
        verdict=verdict,
        log10_p=log10_p,
        tests=(
            tested("as they stand", -0.4, 0.0, pairs),
            tested("embedding", log10_p - 2, rho, pairs),
            tested("random", -0.4, 0.0, pairs),
        ),
        neurons=(256, 256),
        depths=depths,
        layers=layers.astype(np.int64),
        likeness=likeness if unequal else None,
        furthest=1e-7 if verdict == "same weights" else 1.4,
        logits_between=run,
        logits_scale=None if unequal else 20.0,
        checked_on="256 tokens of the demo models' own text",
        device="cpu",
        dtype="float32",
        seconds=0.4,
    )
