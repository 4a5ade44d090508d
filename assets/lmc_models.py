"""Models for `assets.make_lmc` that do not ship: shapes, generated data, training from seeds."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)

from assets import images, shapes, training
from assets.shapes import IGNORED, MASK, MASKED_SHARE, SIZES, Shape
from assets.training import CONTEXT, IDS, Recipe, tokens

TEXT = "village"
PIECE = 32
"""Words that an encoder sees at once."""
FOUR = {**SIZES, "num_attention_heads": 4}
Batch = Mapping[str, object]


@dataclass(frozen=True)
class Course:
    """How whole models are trained where AdamW on the batches of the scopes is slow: with Muon."""

    rate: float
    pieces: tuple[tuple[int, int], ...]  # (words that are seen at once, steps), in order

    @property
    def steps(self) -> int:
        """Of all pieces."""
        return sum(steps for _, steps in self.pieces)


@dataclass(frozen=True)
class Kind:
    """One architecture: how it is drawn, fed and trained, and what its scopes hold."""

    shape: Shape
    asked: str  # what the models are asked for
    data: str  # on what, in words
    batches: Callable[[int, int], Iterator[Batch]]  # (seed, rows of a batch), without end
    rows: int
    steps: int  # of a whole model
    rate: float
    layer: str  # prefix of a layer's parameters in memory
    attention: tuple[str, ...]  # what of a layer is attention
    length: int  # tokens of a window in measurement
    redrawn: int = 200  # steps after a scope was drawn anew
    demo: str = ""  # a shipped model to begin the scopes from
    course: Course | None = None  # of whole models, in place of `rate` and `batches`

    def holds(self, scope: str, name: str) -> bool:
        """Whether a parameter belongs to a scope, by its name in memory."""
        found = re.match(self.layer.replace("{l}", r"(\d+)").replace(".", r"\."), name)
        if scope == "whole" or found is None:
            return scope == "whole"
        inner = name[found.end() :].startswith(self.attention)
        first = found.group(1) == "0"
        return {"first-attention": inner and first, "all-attention": inner, "first-layer": first}[
            scope
        ]


def following(seed: int, rows: int) -> Iterator[Batch]:
    """Windows of the village's text, each word predicting the next."""
    for part in _texts(seed, rows):
        yield training.causal(part)


def hidden(seed: int, rows: int) -> Iterator[Mapping[str, Tensor]]:
    """Pieces of the village's text with a share of the words hidden, those to be told."""
    generator = torch.Generator().manual_seed(seed)
    for part in _texts(seed, rows * PIECE // CONTEXT):
        ids = part.reshape(-1, PIECE)
        chosen = torch.rand(ids.shape, generator=generator) < MASKED_SHARE
        yield {
            "input_ids": ids.masked_fill(chosen, IDS[MASK]),
            "labels": ids.masked_fill(~chosen, IGNORED),
        }


def growing(seed: int, rows: int, pieces: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The same in shorter pieces first, each word at the place that it has in a whole one.

    Under a LayerNorm after each sum an encoder finds its attention late: in short pieces, sooner.
    """
    sizes = chain.from_iterable(repeat(size, steps) for size, steps in pieces)
    for size, batch in zip(sizes, hidden(seed, rows), strict=False):
        places = torch.arange(PIECE).expand(rows, PIECE)
        yield {n: x.reshape(-1, size) for n, x in {**batch, "position_ids": places}.items()}


def _texts(seed: int, rows: int) -> Iterator[Tensor]:
    """Windows of text without end, a hundred batches at a time."""
    number = 0
    while True:
        yield from tokens(TEXT, 1000 * seed + number, 100 * rows).split(rows)
        number += 1


def pictures(seed: int, rows: int) -> Iterator[Batch]:
    """Generated images, the shape to be named."""
    number = 0
    while True:
        pixels, labels = images.images(1_000_000 * seed + number, rows)
        yield {"pixel_values": pixels, "labels": labels}
        number += 1


LONG = Course(1e-2, ((8, 200), (16, 100), (PIECE, 500)))
KINDS: Mapping[str, Kind] = {
    "gpt2": Kind(
        shapes.SHAPES["gpt2"], "next token", "generated text (village)", following, 8, 400, 8e-3,
        "transformer.h.{l}.", ("attn.",), CONTEXT, demo="gpt2",
    ),
    "vit": Kind(
        Shape(
            ViTConfig, ViTForImageClassification,
            {
                "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
                "intermediate_size": 192, "image_size": images.SIDE, "patch_size": 4,
                "num_labels": len(images.SHAPES), "initializer_range": 48**-0.5,
                "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            },
            (),
        ),
        "class", "generated images of coloured shapes", pictures, 64, 700, 3e-3,
        "vit.layers.{l}.", ("attention.",), 1,
    ),
    "modernbert": Kind(
        Shape(
            ModernBertConfig, ModernBertForMaskedLM,
            {
                **FOUR, "intermediate_size": 96, "local_attention": 16, "pad_token_id": None,
                "cls_token_id": IDS["<s>"], "sep_token_id": IDS["<s>"],
            },
            (),
        ),
        "hidden token", "generated text (village)", hidden, 32, 700, 8e-3,
        "model.layers.{l}.", ("attn.",), PIECE,
    ),
    "bert": Kind(
        Shape(
            BertConfig, BertForMaskedLM,
            shapes.SHAPES["bert"].attributes, (),
        ),
        "hidden token", "generated text (village)", hidden, 32, LONG.steps, 3e-3,
        "bert.encoder.layer.{l}.", ("attention.self.", "attention.output.dense."), PIECE,
        demo="bert", course=LONG,
    ),
}  # fmt: skip


def base(kind: Kind) -> PreTrainedModel | None:
    """The shipped model that the scopes begin from, in float32."""
    if not kind.demo:
        return None
    return opened(kind, Path(__file__).resolve().parent / "demo" / kind.demo)


def opened(kind: Kind, folder: Path) -> PreTrainedModel:
    """The model in a folder, in float32 whatever the file's dtype."""
    return kind.shape.model.from_pretrained(folder, dtype=torch.float32).eval()


def redrawn(kind: Kind, start: PreTrainedModel, names: Iterable[str], seed: int) -> PreTrainedModel:
    """The model with the named parameters as an untrained one of this seed has them."""
    mixed, other = deepcopy(start), shapes.drawn(kind.shape, seed).state_dict()
    mixed.load_state_dict({**mixed.state_dict(), **{name: other[name] for name in names}})
    return mixed


def train(
    start: PreTrainedModel,
    kind: Kind,
    seed: int,
    steps: int,
    only: Iterable[str] | None = None,
) -> tuple[PreTrainedModel, float]:
    """A trained copy, and its mean training loss over the last tenth; `only` some names.

    AdamW; whole models by the kind's course where it has one.
    """
    model = deepcopy(start).train()
    chosen = None if only is None else set(only)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(chosen is None or name in chosen)
    moving = [p for p in model.parameters() if p.requires_grad]
    course = kind.course if chosen is None else None
    top, batches = _fed(kind, seed, course)
    recipe = Recipe(TEXT, seed, seed, steps, top, 0, 0.05, muon=course is not None)
    movers, losses = training.optimizers(model, recipe), list[float]()
    for step, batch in enumerate(islice(batches, steps)):
        for group in (group for each in movers for group in each.param_groups):
            group["lr"] = rate(top, step, steps)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(moving, 1.0)
        for mover in movers:
            mover.step()
            mover.zero_grad()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    return model.eval().requires_grad_(False), sum(last) / len(last)


def _fed(kind: Kind, seed: int, course: Course | None) -> tuple[float, Iterator[Batch]]:
    """The highest rate, and the batches."""
    if course is None:
        return kind.rate, kind.batches(seed, kind.rows)
    return course.rate, growing(seed, kind.rows, course.pieces)


def rate(top: float, step: int, steps: int) -> float:
    """Rises over the first twentieth, then falls along a cosine to a twentieth."""
    rise = max(1, steps // 20)
    if step < rise:
        return top * (step + 1) / rise
    share = (step - rise) / max(1, steps - rise)
    return top * (0.05 + 0.95 * (1 + math.cos(math.pi * share)) / 2)


def save(model: PreTrainedModel, kind: Kind, folder: Path) -> None:
    """A folder that opens like any other checkpoint; for models of text with its tokenizer."""
    if kind.asked != "class":
        model.config.gaugescope_text = TEXT
        words = training.tokenizer()
        if kind.asked == "hidden token":
            words.mask_token = MASK
        words.save_pretrained(folder)
    model.save_pretrained(folder)
