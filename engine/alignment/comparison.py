"""A whole alignment as a record: what was found, against the truth, and what the logits say."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine import network, shared
from engine.action import act
from engine.alignment.differences import narrow, notes, on_common_ground
from engine.alignment.matching import planted
from engine.alignment.one_pass import common
from engine.alignment.refinement import half
from engine.alignment.solving import solve
from engine.alignment.truth import negative, of, share_right, sought, unreachable
from engine.alignment.widths import WORD, Facing
from engine.axes import legs
from engine.checkpoint import Checkpoint, require_same_group, save_checkpoint
from engine.elements import Element
from engine.errors import Progress, Refused, part, silent
from engine.questions import Align
from engine.records import AlignmentReport, StageReport
from engine.running import Given, Headless, at_random, from_text, logits
from engine.symmetry import Symmetry

CHECKED = 256
"""Tokens on which the logits of A, B and aligned B are compared."""


@dataclass
class Distances:
    """‖A‖², ‖A − B‖², ‖A − g B‖² of every tensor, filled in while g · B streams by."""

    names: list[str] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)

    def measure(
        self, a: Checkpoint, b: Checkpoint, g: Symmetry, progress: Progress
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of g · B, noting how far each is from A's before and after."""
        facing = Facing(a, b, g)
        for number, name in enumerate(b.headers):
            progress(number / len(b.headers), f"rewriting {name}")
            before, after = b.read(name), act(g, name, b.read)
            if name in a.headers:
                x, both = facing.read(name).float(), (facing.cut(name, y) for y in (before, after))
                gaps = [_square(torch.sub(*common(x, y.float()))) for y in both]
                self.names.append(name)
                self.rows.append([_square(x), *gaps])
            yield name, after

    def relative(self, chosen: Sequence[int]) -> tuple[float, float]:
        """√(Σ ‖A − B‖² / Σ ‖A‖²) before and after, over some of the tensors."""
        own, before, after = np.array(self.rows)[list(chosen)].sum(axis=0)
        return float(relative(before, own)), float(relative(after, own))


def relative(gap: np.ndarray, own: np.ndarray) -> np.ndarray:
    """√(gap / own) of squared lengths; 0 where both are 0, 1 where only A's tensor is."""
    safe = np.where(own > 0, own, 1.0)
    return np.where(own > 0, np.sqrt(gap / safe), (np.asarray(gap) > 0) * 1.0)


def _square(x: Tensor) -> float:
    return float(x.square().sum(dtype=torch.float64))


def compare(
    a: Checkpoint, b: Checkpoint, asked: Align, out: Path | None = None, progress: Progress = silent
) -> tuple[AlignmentReport, Symmetry]:
    """Align B to A, write g · B to `out` if asked, and compare logits before and after."""
    given = a, b
    a, b = on_common_ground(a, b)
    require_same_group(a, b, but=(WORD,))
    b, stored = (c.spelled_like(a) for c in (b, given[1]))
    where, _ = network.device(asked.device), network.dtype(asked.dtype)
    tokens = check_tokens(a, b, asked.text)
    began = time.perf_counter()
    solved = solve(a, b, asked, part(progress, 0, 0.6))
    g = solved.g
    distances = Distances()
    stream = distances.measure(a, b, g, part(progress, 0.6, 0.8))
    if out is None:
        deque(stream, maxlen=0)
    else:
        kind = torch.float32 if g.continuous and narrow(stored) else None
        save_checkpoint(out, ((n, x) for n, x in stream if n in stored.headers), stored, kind)
        g.save(out / "symmetry.safetensors")
    try:
        check = compare_logits(a, b, g, asked, tokens, part(progress, 0.8, 1))
    except Headless:
        check = LogitCheck()
    truth = planted(a, b)
    residual = g.elements.get("res")
    rows = np.array(distances.rows)
    report = AlignmentReport(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        using=asked.using,
        signs=asked.signs,
        width=a.family.sizes(a.config)["res"],
        flipped=negative(residual) or 0,
        recovered=share_right(g, truth, "res", of(g, "res")),
        unreachable=None if asked.signs else unreachable(solved.pooled, truth),
        stages=tuple(
            stage(g, truth, distances, solved.margins, n, sought(g, n, asked))
            for n in a.family.free
            if n in solved.margins
        ),
        tensors=tuple(distances.names),
        before=relative(rows[:, 1], rows[:, 0]).astype(np.float32),
        after=relative(rows[:, 2], rows[:, 0]).astype(np.float32),
        logits_between=check.between,
        logits_kept=check.kept,
        midpoint_before=check.midpoint_before,
        midpoint_after=check.midpoint_after,
        logits_scale=check.scale,
        checked_on=check.tokens,
        device=str(where),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
        steps=solved.steps,
        sweeps=solved.sweeps,
        midpoints=solved.midpoints,
        notes=(*notes(*given, continuous=g.continuous), *solved.notes),
        norms=np.sqrt(rows[:, 0]).astype(np.float32),
    )
    return report, g


@dataclass(frozen=True)
class LogitCheck:
    """Largest differences of any logit on the same tokens; None for models without a head."""

    between: float | None = None  # A against B
    kept: float | None = None  # B against g · B
    midpoint_before: float | None = None  # A against ½ (A + B)
    midpoint_after: float | None = None  # A against ½ (A + g · B)
    scale: float | None = None  # largest logit of A
    tokens: str = "nothing: the models have no head"  # which tokens


def compare_logits(
    a: Checkpoint, b: Checkpoint, g: Symmetry, asked: Align, given: Given, progress: Progress
) -> LogitCheck:
    """The same tokens through A, B, g · B and both means, one model in memory at a time."""
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    known = min(map(classes, (a, b)))
    sources: tuple[tuple[str, Checkpoint, Callable[[str], Tensor]], ...] = (
        (a.name, a, a.read),
        (b.name, b, b.read),
        (f"aligned {b.name}", b, lambda n: act(g, n, b.read)),
        ("the mean", a, partial(_mean, Facing(a, b, replace(g, elements={})))),
        ("the aligned mean", a, partial(_mean, Facing(a, b, g))),
    )
    found: list[Tensor] = []
    for number, (label, like, read) in enumerate(sources):
        progress(number / len(sources), f"logits of {label}")
        model = network.build(like, {n: read(n) for n in like.headers}, where, kind)
        found.append(logits(model, given.inputs)[..., :known])
        del model
    first, second, third, mean, aligned_mean = found
    return LogitCheck(
        between=_largest(first - second),
        kept=_largest(second - third),
        midpoint_before=_largest(first - mean),
        midpoint_after=_largest(first - aligned_mean),
        scale=_largest(first),
        tokens=given.what,
    )


def _mean(facing: Facing, name: str) -> Tensor:
    """½ (A + g B) of a tensor where both have numbers, A's alone elsewhere."""
    x = facing.a.read(name).float()
    if name not in facing.b.headers:
        return x
    y = act(facing.g, name, facing.b.read).float()
    return half(x, facing.spread(name, y))


def _largest(x: Tensor) -> float:
    return float(x.abs().max())


def check_tokens(a: Checkpoint, b: Checkpoint, text: str) -> Given:
    """The text's first tokens that both know; random ids where nobody named a text.

    That is, where A has no tokenizer for it, or both know no whole window. Errors: Refused for what
    the user named, as `engine.shared.shared`.
    """
    try:
        return from_text(a, text, CHECKED, b)
    except Refused:
        if shared.named(text):
            raise
        return at_random(min(a, b, key=classes), 2, CHECKED // 2)


def classes(checkpoint: Checkpoint) -> int:
    """Number of tokens, or of classes of a model without tokens."""
    sizes = checkpoint.family.sizes(checkpoint.config)
    return sizes.get("tok", sizes.get("cls", 0))


def stage(
    g: Symmetry,
    truth: Symmetry | None,
    distances: Distances,
    margins: Mapping[str, Sequence[float]],
    name: str,
    elements: Mapping[str, Element],
) -> StageReport:
    """One coordinate's row of the report; `elements` are all that were sought, by key."""
    carriers = [
        number
        for number, tensor in enumerate(distances.names)
        if any(leg.name == name for leg in legs(g.family.row(tensor).axes))
    ]
    before, after = distances.relative(carriers)
    flips = [negative(element) for element in elements.values()]
    leads = [margin for margin in margins[name] if np.isfinite(margin)]
    return StageReport(
        coordinate=name,
        solved=len(elements),
        right=share_right(g, truth, name, elements),
        margin=min(leads, default=None),
        flipped=sum(f for f in flips if f is not None) if None not in flips else None,
        before=before,
        after=after,
    )
