"""How far the two tests of adjacent layers lie apart: over saved steps of a training, or seeds."""

import re
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engine import network
from engine.checkpoint import Checkpoint
from engine.costs import Cost, foretold
from engine.errors import Progress, Refused, part, silent
from engine.layers import baselines
from engine.layers.filling import readings
from engine.layers.inputs import Inputs, inputs
from engine.layers.maps import run
from engine.layers.stacks import Stack, stack
from engine.layers.trials import Trial
from engine.questions import Gap
from engine.records.layers import GapStep, GapTrajectory, Measure


def gap(
    checkpoints: Sequence[Checkpoint], asked: Gap, progress: Progress = silent
) -> GapTrajectory:
    """Replacing, swapping and skipping of all adjacent layers of every model, on one text.

    Hands over what it has after each model. Errors: Refused for fewer than one model, and for
    models of different family, depth or vocabulary.
    """
    began = time.perf_counter()
    first = same_kind(checkpoints)
    text = inputs(first, asked)
    found = GapTrajectory(
        family=first.family.name,
        layers=first.layers,
        steps=(),
        complete=False,
        run=run(asked, "mean", text, began),
    )
    for number, checkpoint in enumerate(checkpoints):
        low, high = number / len(checkpoints), (number + 1) / len(checkpoints)
        watched = part(progress, low, high)
        watched(0.0, f"{checkpoint.name}: pairs of adjacent layers", found)
        one = step_of(checkpoint, number, text, asked, watched)
        steps = (*found.steps, one)
        ended = number + 1 == len(checkpoints)
        again = run(asked, "mean", text, began)
        found = GapTrajectory(found.family, found.layers, steps, ended, again)
        if not number and not ended:
            progress(high, cost(found, len(checkpoints) - 1))
    return found


def cost(first: GapTrajectory, more: int) -> Cost:
    """What further models will take, by the first."""
    run = first.run
    return foretold(run.tokens, run.windows, more, run.seconds, "further model{s}")


def same_kind(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The first of models that can stand in one picture; Refused otherwise."""
    if not checkpoints:
        raise Refused("No model was given: name the saved steps of a training, or some seeds.")
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, a, b in (
            ("family", first.family.name, other.family.name),
            ("number of layers", first.layers, other.layers),
            ("vocabulary", first.config.get("vocab_size"), other.config.get("vocab_size")),
        ):
            if a != b:
                raise Refused(
                    f"{first.name} and {other.name} differ in {what} ({a} and {b}): take saved "
                    "steps or seeds of one model."
                )
    if first.layers < 2:
        raise Refused(f"{first.name} has one layer: there are no pairs.")
    return first


def step_of(
    checkpoint: Checkpoint, number: int, text: Inputs, asked: Gap, progress: Progress
) -> GapStep:
    """One model."""
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    trial = Trial(network.load(checkpoint, where, kind), checkpoint, text)
    layers = checkpoint.layers
    pairs = list(pairwise(range(layers)))
    stacks: list[Stack] = [tuple(range(layers))]
    for i, j in pairs:
        stacks += [
            stack("replace", layers, i, j),
            stack("replace", layers, j, i),
            stack("swap", layers, i, j),
            stack("skip", layers, i, j),
        ]
    sheet = trial.read(stacks, progress)
    base = readings(sheet[:, :1], trial.positions).measure("loss").value[0]
    every = sheet[:, 1:].reshape(3, len(pairs), 4, -1)

    def measure(n: int) -> Measure:
        return readings(every[:, :, n], trial.positions).measure()

    return GapStep(
        model=checkpoint.name,
        step=step_in(checkpoint.name, number),
        loss=float(base),
        replace=larger(measure(0), measure(1)),
        swap=measure(2),
        skip=measure(3),
        properties={"loss": float(base), **properties(trial)},
    )


def larger(a: Measure, b: Measure) -> Measure:
    """Of two measures of each cell the larger one, with its interval (the pair score of Garcia)."""
    first = a.value >= b.value
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return Measure(np.where(first, a.value, b.value))
    low, high = np.where(first, a.low, b.low), np.where(first, a.high, b.high)
    return Measure(np.where(first, a.value, b.value), low, high)


def step_in(name: str, number: int) -> int:
    """The step that a name ends with, such as base-step-0500; else its place in the series."""
    found = re.search(r"(?:step|checkpoint)[-_]?(\d+)/?$", name)
    return int(found[1]) if found else number


def properties(trial: Trial) -> dict[str, float]:
    """What may go with the gap: means over layers, or over adjacent ones.

    influence: 1 − cos(in, out). update: ‖out − in‖ / ‖in‖. turn: cos of successive updates. cka:
    linear CKA of successive depths. weights: ‖W_i − W_{i+1}‖ / √(½(‖W_i‖² + ‖W_{i+1}‖²)).
    """
    streams = [stream.double() for stream in trial.streams()]
    updates = [b - a for a, b in pairwise(streams)]
    turns = [baselines.cosines(a, b).mean() for a, b in pairwise(updates)]
    sizes = [
        (update.norm(dim=-1) / stream.norm(dim=-1).clamp(min=1e-30)).mean()
        for update, stream in zip(updates, streams, strict=False)
    ]
    likeness = baselines.cka(streams)
    found = {
        "influence": baselines.influence(streams).mean(),
        "update": torch.stack(sizes).mean(),
        "turn": torch.stack(turns).mean(),
        "cka": likeness.diagonal(1).mean(),
        "weights": apart(trial.model.get_submodule(trial.checkpoint.family.blocks)),
    }
    return {name: float(value) for name, value in found.items()}


def apart(blocks: torch.nn.Module) -> Tensor:
    """Relative distance of adjacent layers' weights, mean over pairs."""
    found = []
    for first, second in pairwise(blocks.children()):
        ours = dict(first.named_parameters())
        gap, size = torch.zeros(()), torch.zeros(())
        for name, other in second.named_parameters():
            if name in ours and ours[name].shape == other.shape:
                x, y = ours[name].float().cpu(), other.float().cpu()
                gap = gap + (x - y).square().sum()
                size = size + (x.square().sum() + y.square().sum()) / 2
        found.append((gap / size.clamp(min=1e-30)).sqrt())
    return torch.stack(found).mean()
