"""What a model writes with its layers in another order: the likeliest token, again and again."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from engine import network, shared, texts
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, silent
from engine.layers.blocks import cut_up
from engine.layers.reading import outcome
from engine.layers.stacks import Stack, identity, stack
from engine.layers.trie import finals
from engine.pruning import spoken
from engine.questions import Continue
from engine.records.layers import PAIRS, SINGLES, Continuation, Test
from engine.running import decodes

BEGINNING, PIECES = 24, 64
"""Tokens of the text that are the prompt where none is given."""
WORDS: dict[Test, str] = {
    "replace": "depth {i} runs layer {j}",
    "swap": "layers {i} and {j} exchanged",
    "average": "depths {i} and {j} run the mean of their layers",
    "skip": "without {dropped}",
    "delete": "without layer {i}",
}


def continuation(
    checkpoint: Checkpoint, asked: Continue, progress: Progress = silent
) -> Continuation:
    """Greedy continuations before and after one test of a model's layers.

    Errors: Refused for a model that predicts no next token or has no tokenizer, for layers that are
    not there, and for healed tests, which need a text of their own.
    """
    test = _test(asked, checkpoint)
    progress(0.0, "reading the prompt")
    words = network.tokenizer(checkpoint, "choose a model with one to see what it writes")
    ids = prompt_ids(checkpoint, asked, words)
    shared.own(checkpoint, ids.cpu().numpy())
    model = network.load(checkpoint, network.device(asked.device), network.dtype(asked.dtype))
    layers = checkpoint.layers
    cell = (asked.i, asked.j) if test in PAIRS else (asked.i,)
    texts_found: list[list[int]] = []
    for part, one in enumerate((identity(layers), stack(test, layers, *cell))):
        step = f"writing, {'after' if part else 'before'} the change"
        texts_found.append([])
        for number, token in enumerate(_written(model, checkpoint, ids, one, asked.count)):
            progress((part + number / asked.count) / 2, step)
            texts_found[-1].append(token)
    before, after = texts_found

    def said(tokens: list[int]) -> str:
        return str(words.decode(tokens, skip_special_tokens=True))

    same = next((n for n, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), None)
    return Continuation(
        model=checkpoint.name,
        stack=in_words(test, asked.i, asked.j),
        prompt=asked.prompt or said(ids[0].tolist()),
        before=said(before),
        after=said(after),
        same=min(len(before), len(after)) if same is None else same,
    )


def in_words(test: Test, i: int, j: int) -> str:
    """A test of two layers in words."""
    return WORDS[test].format(i=i, j=j, dropped=spoken(range(i + 1, j + 1)) if j > i else "")


def _test(asked: Continue, checkpoint: Checkpoint) -> Test:
    found = next((test for test in (*PAIRS, *SINGLES) if test == asked.test), None)
    if found is None or found not in WORDS:
        raise Refused(f"There is no test {asked.test!r} to write with: use {', '.join(WORDS)}.")
    if not decodes(checkpoint):
        raise Refused(f"{checkpoint.name} predicts no next token, so that it writes no text.")
    last = checkpoint.layers - 1
    used = (asked.i, asked.j) if found in PAIRS else (asked.i,)
    if not all(0 <= n <= last for n in used) or (found == "skip" and asked.i >= asked.j):
        raise Refused(
            f"Layers {' and '.join(map(str, used))}: {checkpoint.name} has 0 to {last}"
            f"{', and what is skipped lies between two layers in order' * (found == 'skip')}."
        )
    return found


class Prompted(Protocol):
    """What a question says of its prompt."""

    @property
    def prompt(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def device(self) -> str: ...


def prompt_ids(
    checkpoint: Checkpoint, asked: Prompted, words: network.Tokenizer, known: int | None = None
) -> Int[Tensor, "1 positions"]:
    """A prompt, or the first piece of the text that holds no token from `known` on, if any.

    Errors: Refused where it and `count` tokens do not fit.
    """
    if not asked.prompt:
        ids = _beginning(checkpoint, known)
    else:
        start = [] if words.bos_token_id is None else [words.bos_token_id]
        ids = [start + words.encode(asked.prompt, add_special_tokens=False)]
        texts.require_known(checkpoint, words, np.array(ids), "The prompt")
    longest = texts.positions(checkpoint) - asked.count
    found = torch.as_tensor(ids)
    if longest < 1:
        raise Refused(
            f"--count {asked.count}: {checkpoint.name} has {longest + asked.count} positions, for "
            "the prompt and what is written; ask for fewer tokens."
        )
    if not 0 < found.shape[1] <= longest:
        raise Refused(
            f"The prompt has {found.shape[1]} tokens: {checkpoint.name} takes 1 to {longest} "
            f"before {asked.count} new ones."
        )
    return found.to(network.device(asked.device))


def _beginning(checkpoint: Checkpoint, known: int | None) -> np.ndarray:
    every = texts.tokens(checkpoint, texts.DEFAULT, BEGINNING * (PIECES if known else 1), BEGINNING)
    fit = (every < known).all(1) if known else np.ones(len(every), np.bool_)
    place = int(fit.argmax())  # the first; where none fits, the first of all, to be refused
    return every[place : place + 1]


def _written(
    model: PreTrainedModel, checkpoint: Checkpoint, ids: Tensor, one: Stack, count: int
) -> Iterator[int]:
    """The likeliest next token, `count` times or until the text ends."""
    ends = checkpoint.config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    for _ in range(count):
        inputs = {"input_ids": ids}
        blocks = cut_up(model, checkpoint.family, inputs)
        ((_, final, _),) = finals(blocks, [one])
        token = outcome(model, checkpoint.family, inputs, blocks, final)[:, -1:].argmax(-1)
        yield int(token)
        if int(token) in ends:
            return
        ids = torch.cat([ids, token], 1)
