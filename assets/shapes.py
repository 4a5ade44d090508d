"""Small models of other architectures on the base's text: their shapes, masking and measures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from assets import ngram, training
from assets.training import CONTEXT, HELD_OUT, IDS, Inputs, Recipe, tokens
from engine.corpus import START, UNKNOWN

WIDTH = 48
MASK = UNKNOWN
"""The word that stands for a hidden one; the generator never writes it."""
MASKED_SHARE = 0.15
IGNORED = -100  # the label that transformers' losses leave out


@dataclass(frozen=True)
class Shape:
    """One row: the classes, what differs from their defaults, the runs one after another.

    `pieces` marks a model that fills in hidden words: for each run, the length of the pieces into
    which windows are cut, and within which alone a word sees others.
    """

    config: type[PreTrainedConfig]
    model: type[PreTrainedModel]
    attributes: Mapping[str, Any]
    phases: tuple[Recipe, ...]
    pieces: tuple[int, ...] = ()


def decoding(seed: int) -> Recipe:
    """How the decoders are trained: AdamW alone."""
    return Recipe("village", seed, seed, 900, 8e-3, warmup=50, floor=0.05, muon=False)


def masking(seed: int, steps: int, floor: float = 1.0) -> Recipe:
    """How each run of the encoder is trained: with Muon, at a constant rate unless `floor` < 1."""
    return Recipe("village", seed, seed, steps, 1e-2, warmup=20, floor=floor)


COMMON = {
    "vocab_size": len(IDS),
    "initializer_range": WIDTH**-0.5,
    "bos_token_id": IDS[START],
    "eos_token_id": IDS[START],
}
SIZES = {
    **COMMON,
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": CONTEXT,
}
SHAPES: Mapping[str, Shape] = {
    "gpt2": Shape(
        GPT2Config,
        GPT2LMHeadModel,
        {
            **COMMON,
            "n_embd": WIDTH,
            "n_layer": 3,
            "n_head": 6,
            "n_positions": CONTEXT,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
        (decoding(301),),
    ),
    "pythia": Shape(
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        {**SIZES, "intermediate_size": 4 * WIDTH, "rotary_pct": 0.5, "use_parallel_residual": True},
        (decoding(302),),
    ),
    "qwen3": Shape(
        Qwen3Config,
        Qwen3ForCausalLM,
        {
            **SIZES,
            "intermediate_size": 128,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "tie_word_embeddings": True,
        },
        (decoding(303),),
    ),
    "mixtral": Shape(
        MixtralConfig,
        MixtralForCausalLM,
        {
            **SIZES,
            "num_hidden_layers": 2,
            "intermediate_size": 96,
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        (decoding(304),),
    ),
    "bert": Shape(
        BertConfig,
        BertForMaskedLM,
        {
            **SIZES,
            "intermediate_size": 4 * WIDTH,
            "type_vocab_size": 1,
            "pad_token_id": None,  # it would be the mask's id, whose row would then stay 0
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        (masking(305, 150), masking(306, 100), masking(307, 950, floor=0.05)),
        pieces=(8, 16, CONTEXT),
    ),
}
WRITERS = (
    "c_proj.weight",
    "attention.dense.weight",
    "dense_4h_to_h.weight",
    "o_proj.weight",
    "down_proj.weight",
    "down_proj",
    "output.dense.weight",
    "fc2.weight",
    "Wo.weight",
)
"""The matrices through which blocks add to the stream, as transformers names them in memory."""


def waves(places: int, width: int) -> Tensor:
    """Sines, then cosines of the place, frequencies falling from 1 to 1/1000: [places, width]."""
    frequency = 1000 ** -(torch.arange(width // 2) / (width // 2))
    angle = torch.arange(places)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def fresh(name: str) -> PreTrainedModel:
    """An untrained model of one name."""
    shape = SHAPES[name]
    return drawn(shape, shape.phases[0].seed)


def drawn(shape: Shape, seed: int) -> PreTrainedModel:
    """An untrained model: gains 1, matrices at 1/√width.

    What blocks add to the stream is drawn ten times smaller than the class would draw it; biases
    are drawn at 0.1, for no gradient reaches those of keys that are not rotated. An encoder starts
    from `waves` for its places: with random ones it learns more slowly.
    """
    torch.manual_seed(seed)
    model = shape.model(shape.config(**shape.attributes))
    state: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        if key.endswith(WRITERS):
            state[key] = value / 10
        elif key.endswith("bias"):
            state[key] = 0.1 * torch.randn(value.shape)
        elif key.endswith("position_embeddings.weight"):
            state[key] = 0.2 * waves(*value.shape)
        else:
            state[key] = value
    model.load_state_dict(state)
    return model


def hiding(seed: int, piece: int = CONTEXT) -> Inputs:
    """What the encoder is called with: a share of the words hidden, those to be told.

    Windows are cut into pieces, each word at the place that it has in its window; start tokens are
    never hidden.
    """
    generator = torch.Generator().manual_seed(seed)

    def inputs(rows: Tensor) -> Mapping[str, object]:
        chosen = torch.rand(rows.shape, generator=generator) < MASKED_SHARE
        hidden = chosen & (rows != IDS[START])
        called = {
            "input_ids": rows.masked_fill(hidden, IDS[MASK]),
            "labels": rows.masked_fill(~hidden, IGNORED),
            "position_ids": torch.arange(rows.shape[1]).expand_as(rows),
        }
        return {key: value.reshape(-1, piece) for key, value in called.items()}

    return inputs


def trained(name: str) -> tuple[PreTrainedModel, float]:
    """A model after all its runs, and the training loss at the end of the last."""
    shape, model, loss = SHAPES[name], fresh(name), 0.0
    for index, recipe in enumerate(shape.phases):
        pieces = shape.pieces
        inputs = hiding(recipe.seed, pieces[index]) if pieces else training.causal
        model, loss = training.train(model, recipe, training.nothing, inputs=inputs)
    return model, loss


def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The base's tokenizer; for an encoder it names the mask."""
    made = training.tokenizer()
    if SHAPES[name].pieces:
        made.mask_token = MASK
    return made


def opened(name: str, folder: Path) -> PreTrainedModel:
    """The model in a folder, in float32 whatever the file's dtype."""
    return SHAPES[name].model.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def filled(model: PreTrainedModel, rows: Tensor) -> Mapping[str, float]:
    """Mean nats per hidden word of these windows, and the share that is guessed right."""
    inputs, losses, right = hiding(HELD_OUT), list[Tensor](), list[Tensor]()
    for batch in rows.split(32):
        called = inputs(batch)
        labels = cast("Tensor", called["labels"])
        hidden = labels != IGNORED
        logits, words = model(**called).logits[hidden], labels[hidden]
        losses.append(torch.nn.functional.cross_entropy(logits, words, reduction="none"))
        right.append((logits.argmax(-1) == words).float())
    return {
        "held_out_loss": torch.cat(losses).mean().item(),
        "masked_accuracy": torch.cat(right).mean().item(),
    }


def words_alone(seen: Tensor, rows: Tensor) -> Mapping[str, float]:
    """The same two measures of a guesser that knows how often each word was seen, and no more."""
    start = IDS[START]
    counted, hidden = seen[seen != start].numpy(), rows[rows != start].numpy()
    model = ngram.fit(counted, 1, len(IDS))
    chance = ngram.probability(model, np.zeros((len(hidden), 0), dtype=np.int64), hidden)
    commonest = np.bincount(counted).argmax()
    return {
        "unigram_loss": float(-np.log(chance).mean()),
        "commonest_word_accuracy": float((hidden == commonest).mean()),
    }


def measured(name: str, folder: Path, count: int) -> Mapping[str, object]:
    """What a stored model reaches on `count` held-out windows, beside what counting words does."""
    shape, model = SHAPES[name], opened(name, folder)
    seen = torch.cat([tokens(r.text, r.text_seed, r.steps * r.batch) for r in shape.phases])
    rows = tokens(shape.phases[0].text, HELD_OUT, count)
    if shape.pieces:
        told = {"mask": MASK, "masked_share": MASKED_SHARE, "pieces": shape.pieces}
        return {**told, **filled(model, rows), **words_alone(seen, rows)}
    found = {"held_out_loss": training.held_out_loss(model, rows)}
    for order, kind in ((1, "unigram"), (2, "bigram")):
        counted = ngram.fit(seen.flatten().numpy(), order, len(IDS))
        found[f"{kind}_loss"] = ngram.held_out_loss(counted, rows.numpy())
    return found
