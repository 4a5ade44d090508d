"""One experiment of the lab: a change of the weights, what it does inside, and what comes out."""

import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from engine import network, shared, texts
from engine.checkpoint import Checkpoint
from engine.elements import Ordered
from engine.errors import Progress, Refused, silent
from engine.inspection import card
from engine.lab.plans import Plan, Source, plan
from engine.lab.views import Place, Weight, heard, hidden_view, place, weight_view
from engine.questions import Lab
from engine.records import Effect, Experiment, TensorChange
from engine.running import (
    HIDDEN,
    Given,
    at_random,
    divergence,
    from_text,
    normalised,
    require_signal,
    responses,
)

WINDOWS, LENGTH = 2, 64


def run(checkpoint: Checkpoint, asked: Lab, progress: Progress = silent) -> Experiment:
    """The record of one experiment: the model before and after on the same tokens.

    Errors: Refused for a preset that does not apply, and for a layer, severity, draw or typed
    element that is not there.
    """
    began = time.perf_counter()
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    inputs, tokens, pieces = given(checkpoint, asked.text, asked.seed)
    done = plan(checkpoint, card(checkpoint), asked, inputs.shape[1])
    look = place(checkpoint, done, asked.layer)
    progress(0.1, f"loading {checkpoint.name}")
    before, inside = measured(checkpoint, done.before, inputs, look, (where, kind))
    progress(0.4, f"changing {done.coordinate}")
    changes, weight = differences(done)
    progress(0.6, "the changed model")
    moved = inputs if done.positions is None else inputs[:, done.positions.permutation]
    after, then = measured(checkpoint, done.after, moved, look, (where, kind))
    if done.positions is not None:
        after, then = back(after, done.positions), back({"": then}, done.positions)[""]
    shown = hidden_view(done, look, inside, then)
    progress(0.95, "comparing")
    return Experiment(
        model=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        preset=done.preset.key,
        title=done.preset.title,
        says=done.preset.says,
        holds=done.preset.holds,
        symmetry=done.preset.symmetry,
        coordinate=done.coordinate,
        layer=done.layer,
        draw=done.draw,
        seed=asked.seed,
        severity=asked.severity,
        element=done.element,
        tensors=changes,
        weight=weight.name,
        weight_before=weight.before,
        weight_after=weight.after,
        hidden=shown.name,
        hidden_before=shown.before,
        hidden_after=shown.after,
        order=shown.order,
        equivariance=shown.equivariance,
        pieces=pieces,
        effect=effect(before, after, tokens),
        device=str(where),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
        channels=shown.channels,
        positions=moved_positions(done.positions),
        approximate=done.preset.approximate,
    )


def given(checkpoint: Checkpoint, text: str, seed: int) -> tuple[Tensor, str, tuple[str, ...]]:
    """Inputs, what they are, and the pieces of the first window.

    Without a tokenizer the default text is random ids; a model of images gets random pixels where
    no file holds others.
    """
    if checkpoint.family.inputs == "pixels":
        found = shown(checkpoint, text, seed)
        sizes = checkpoint.family.sizes(checkpoint.config)
        pieces = ("first token", *(f"patch {i}" for i in range(sizes["pos"] - 1)))
        return found.inputs, found.what, pieces
    if text == texts.DEFAULT and not reads(checkpoint):
        found = at_random(checkpoint, WINDOWS, LENGTH, seed)
        return found.inputs, found.what, pieces_of(checkpoint, found.inputs[0])
    ids = from_text(checkpoint, text, WINDOWS * texts.WINDOW).inputs
    longest = checkpoint.family.sizes(checkpoint.config).get("pos", LENGTH)
    ids = ids[:WINDOWS, : min(LENGTH, longest)].contiguous()
    what = f"{ids.numel()} tokens of {texts.describe(checkpoint, text, ids.numpy())}"
    return ids, what, pieces_of(checkpoint, ids[0])


def shown(checkpoint: Checkpoint, text: str, seed: int) -> Given:
    """The first images of a file of inputs, or random ones."""
    if not shared.named(text):
        return at_random(checkpoint, WINDOWS, LENGTH, seed)
    every = from_text(checkpoint, text, WINDOWS).inputs[:WINDOWS]
    return Given(every, f"{len(every)} images of {texts.describe(checkpoint, text)}", text=False)


def reads(checkpoint: Checkpoint) -> bool:
    """Whether a model has a tokenizer of its own."""
    try:
        network.tokenizer(checkpoint)
    except Refused:
        return False
    return True


def pieces_of(checkpoint: Checkpoint, ids: Tensor) -> tuple[str, ...]:
    """Each token as text; its id where the model has no tokenizer."""
    if not reads(checkpoint):
        return tuple(str(i) for i in ids.tolist())
    encode = network.tokenizer(checkpoint)
    return tuple(str(encode.decode([i])) for i in ids.tolist())


def measured(
    checkpoint: Checkpoint,
    source: Source,
    inputs: Tensor,
    look: Place | None,
    where: tuple[torch.device, torch.dtype],
) -> tuple[Mapping[str, Tensor], Tensor]:
    """Outputs [window, position, class] by name, and hidden activations."""
    tensors = {name: source.read(name).to(where[1]) for name in source.names}
    model = network.build(checkpoint, tensors, *where, config=source.config)
    del tensors
    with heard(model, look) as inside:
        found = responses(model, inputs)
    if HIDDEN in found:
        raise Refused(
            f"{checkpoint.name} has no output over tokens or classes, so that nothing shows: open "
            "the model with its head."
        )
    require_signal(found, checkpoint.name)
    return found, torch.cat(inside) if inside else torch.zeros(0, 0, 0)


def back(found: Mapping[str, Tensor], order: Ordered) -> dict[str, Tensor]:
    """Results at the tokens to which they belong, wherever these stood."""
    old, length = order.permutation.argsort(), len(order.permutation)
    return {
        name: x[:, old] if x.ndim > 2 and x.shape[1] == length else x for name, x in found.items()
    }


def moved_positions(order: Ordered | None) -> np.ndarray:
    """The old place of each token; empty where none moved."""
    if order is None or bool((order.permutation.diff() == 1).all()):
        return np.zeros(0, np.int32)
    return order.permutation.numpy().astype(np.int32)


def differences(done: Plan) -> tuple[tuple[TensorChange, ...], Weight]:
    """Every tensor that changed, and a window of the one to look at."""
    changes: list[TensorChange] = []
    best: tuple[int, str] | None = None
    for name in done.after.names:
        x, y = done.origin(name), done.after.read(name)
        if x is y or torch.equal(x, y):
            continue
        x, y = x.double(), y.double()
        change = float((y - x).norm() / x.norm().clamp(min=1e-300))
        changes.append(TensorChange(name, done.row(name), change))
        rank = (not done.carries(name)) + 2 * (x.ndim < 2)
        best = min(best or (9, ""), (rank, name), key=lambda found: found[0])
    if best is None:
        return (), Weight.empty()
    name = best[1]
    return tuple(changes), weight_view(
        f"{name}: {done.row(name)}", done.origin(name), done.after.read(name)
    )


def effect(before: Mapping[str, Tensor], after: Mapping[str, Tensor], tokens: str) -> Effect:
    """Differences over all outputs; KL and agreement of the first one."""
    name = next(iter(before))
    p, q = normalised(before), normalised(after)
    largest, scale = _largest(p, q), max(float(x.abs().max()) for x in p.values())
    agreement = float((p[name].argmax(-1) == q[name].argmax(-1)).double().mean())
    return Effect(
        logits=_largest(before, after),
        largest=largest,
        error=largest / max(scale, 1e-300),
        divergence=divergence(p[name], q[name]),
        agreement=agreement,
        tokens=tokens,
    )


def _largest(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    return max(float((after[name] - x).abs().max()) for name, x in before.items())
