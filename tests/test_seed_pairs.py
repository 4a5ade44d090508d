"""The six pairs of models trained from different seeds: sweeps beat every lesser search."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch

from engine.alignment.one_pass import start_from_embedding
from engine.alignment.sweeps import Descent, descend
from engine.checkpoint import open_checkpoint
from engine.elements import Ordered
from engine.questions import Align
from engine.records import AlignmentReport
from engine.symmetry import Symmetry, words

MODELS = ("base", "seed-1", "seed-2", "seed-3")
PAIRS = tuple(combinations(MODELS, 2))
SWEEPS = 2
"""Of a quick look; on request as many as the descent takes, at most `MOST`."""
MOST = 12
QUICK = PAIRS[3:]
"""Those that no other test looks at, and that there is time for."""
some = pytest.mark.parametrize("pair", QUICK, ids="-".join)
every = pytest.mark.parametrize("pair", PAIRS, ids="-".join)


@cache
def searched(
    pair: tuple[str, str], sweeps: int, signs: bool = True, neurons: str = "invariant"
) -> tuple[float, float, Symmetry]:
    """J of the files as they stand, the lowest J found, and where."""
    a, b = (open_checkpoint(f"demo:{name}") for name in pair)
    asked = Align(a.name, b.name, sweeps=sweeps, signs=signs, neurons=neurons)  # type: ignore[arg-type]
    task = Descent(a, b, asked, words(a.family, ()) & a.family.carried(b.headers))
    g, rows = descend(task, {"identity": None, "embedding": start_from_embedding(a, b)})
    return rows[0].before, min(row.after for row in rows), g


def negative(g: Symmetry, name: str) -> float:
    """Share of the factors of a coordinate that are below 0."""
    found = [e for key, e in g.elements.items() if key.rpartition(".")[2] == name]
    scales = [e.scale.flatten() for e in found if isinstance(e, Ordered)]
    return float((torch.cat(scales) < 0).double().mean())


def beats_all(pair: tuple[str, str], sweeps: int) -> None:
    start, lowest, g = searched(pair, sweeps)
    assert lowest < 0.9 * start
    assert lowest < searched(pair, sweeps, signs=False)[1]
    assert lowest < searched(pair, sweeps, neurons="published")[1]
    for name in ("res", "ffn"):
        assert 0.35 < negative(g, name) < 0.65, name


@some
def test_two_seeds_come_nearer_than_by_any_lesser_search(pair: tuple[str, str]) -> None:
    beats_all(pair, SWEEPS)


@pytest.mark.long
@every
def test_every_pair_does_with_all_sweeps(pair: tuple[str, str]) -> None:
    beats_all(pair, MOST)


@cache
def refined(pair: tuple[str, str], steps: int = 300) -> AlignmentReport:
    a, b = pair
    return Align(f"demo:{a}", f"demo:{b}", sweeps=6, mix=0.6, refine=steps).answer()


@pytest.mark.long
@some
def test_refining_brings_each_pair_near_the_chord(pair: tuple[str, str]) -> None:
    """Beside a control without any matching; the pairs with `base`: `tests/test_refinement.py`."""
    above = {point.stage: point.above for point in refined(pair).midpoints}
    assert above["refined"] <= 0.15 * above["unaligned"]
    assert above["refined"] < 0.7 * above["refined without matching"]
    stages = [above[name] for name in ("unaligned", "with val", "refined")]
    assert np.all(np.diff(stages) < 0)
