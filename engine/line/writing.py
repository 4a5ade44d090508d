"""The answer to `Written`: what the models on a line write after a prompt."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from engine import network, shared
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, part, silent
from engine.layers.continuing import prompt_ids
from engine.line.gauges import gauges
from engine.line.interpolate import ground
from engine.line.setting import work
from engine.questions import Written
from engine.records import Writing
from engine.running import decodes


def written(a: Checkpoint, b: Checkpoint, asked: Written, progress: Progress = silent) -> Writing:
    """Greedy continuations at every t.

    Errors: Refused for a model that predicts no next token or has no tokenizer, for a prompt that
    is too long, for t outside [0, 1], and as for `engine.line.barrier.barrier`.
    """
    if not decodes(a):
        raise Refused(f"{a.name} predicts no next token, so that it writes no text.")
    if not asked.at or not all(0 <= t <= 1 for t in asked.at):
        raise Refused("--at names no point of the line: give values from 0 to 1.")
    progress(0.0, "reading the prompt")
    words = network.tokenizer(a, "choose a model with one to see what it writes")
    ids = prompt_ids(a, asked, words, shared.vocabulary(a, b))
    with work(a, b, asked) as both:
        if int(ids.max()) >= (both.ends.known or 0):
            raise Refused(
                f"The prompt holds token {int(ids.max())}, and both models have the first "
                f"{both.ends.known} in common: give another --prompt."
            )
        ((stage, g),) = gauges(both, (asked.stage,), part(progress, 0.05, 0.3)).items()
        line = ground(both.ends).line(g)
        found: list[list[int]] = []
        every = (0.0, *asked.at)  # A's own, to compare with
        for number, t in enumerate(every):
            progress(0.3 + 0.7 * number / len(every), f"writing at t = {t:.3f}")
            found.append(list(greedy(line.at(t), a, ids, asked.count)))

    def said(tokens: list[int]) -> str:
        return str(words.decode(tokens, skip_special_tokens=True))

    own, others = found[0], found[1:]
    return Writing(
        a=a.name,
        b=b.name,
        stage=stage,
        scope=asked.scope,
        prompt=asked.prompt or said(ids[0].tolist()),
        at=np.array(asked.at),
        texts=tuple(said(tokens) for tokens in others),
        same=tuple(_same(own, tokens) for tokens in others),
    )


def _same(x: list[int], y: list[int]) -> int:
    """Tokens until two texts part."""
    parting = (n for n, (one, other) in enumerate(zip(x, y, strict=False)) if one != other)
    return next(parting, min(len(x), len(y)))


@torch.inference_mode()
def greedy(
    model: PreTrainedModel, a: Checkpoint, ids: Int[Tensor, "1 positions"], count: int
) -> Iterator[int]:
    """The likeliest next token, `count` times or until the text ends; keys and values are kept."""
    ends = a.config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    state: dict[str, Any] = {}
    given = ids
    for _ in range(count):
        found = model(input_ids=given, use_cache=True, **state)
        token = int(found.logits[0, -1].argmax())
        yield token
        if token in ends:
            return
        state = {"cache": found.cache}
        given = torch.tensor([[token]], device=ids.device)
