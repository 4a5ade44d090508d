"""Small models: the base's shape, tokenizer, training, held-out measures and files."""

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from engine.corpus import MIXES, START, UNKNOWN, Question, documents, vocabulary, windows

CONTEXT = 128
WIDTH = 96
HELD_OUT = 990_001  # seed of the text that no model was trained on
Model = TypeVar("Model", bound=PreTrainedModel)
Visit = Callable[[int, Model], None]
Inputs = Callable[[Tensor], Mapping[str, object]]


@dataclass(frozen=True)
class Recipe:
    """One training run; the rate rises over `warmup` steps, then a cosine ends at rate · floor."""

    text: str
    text_seed: int
    seed: int
    steps: int
    rate: float
    warmup: int
    floor: float
    batch: int = 16
    muon: bool = True
    decay: float = 0.05

    @property
    def tokens(self) -> int:
        """Tokens seen in the whole run."""
        return self.steps * self.batch * CONTEXT

    def rate_at(self, step: int) -> float:
        """The learning rate of each step, counted from 0."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.rate * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2)


def tokenizer() -> PreTrainedTokenizerFast:
    """Words to ids, a start token before every document."""
    words = {word: index for index, word in enumerate(vocabulary())}
    core = Tokenizer(WordLevel(words, unk_token=UNKNOWN))
    core.pre_tokenizer = WhitespaceSplit()
    core.post_processor = TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, words[START])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=START, unk_token=UNKNOWN, model_max_length=CONTEXT
    )


def encode(text: str) -> list[int]:
    """The ids of one document, start token first: what the tokenizer gives, without its cost."""
    return [IDS[START], *(IDS[word] for word in text.split())]


IDS = {word: index for index, word in enumerate(vocabulary())}


def tokens(text: str, seed: int, count: int) -> Tensor:
    """`count` windows of a mix: int64 [count, CONTEXT]."""
    return torch.from_numpy(windows(encode, documents(seed, MIXES[text]), count, CONTEXT))


WRITERS = ("o_proj.weight", "down_proj.weight")
"""The matrices through which blocks add to the stream."""


def fresh(seed: int) -> LlamaForCausalLM:
    """An untrained model; initial scale 1/√width, at which such narrow models learn fastest.

    What blocks add to the stream is drawn ten times smaller, or it would drown the tokens at first.
    """
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(IDS),
            hidden_size=WIDTH,
            intermediate_size=256,
            num_hidden_layers=6,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=CONTEXT,
            initializer_range=WIDTH**-0.5,
            tie_word_embeddings=True,
            attention_bias=False,
            mlp_bias=False,
            bos_token_id=IDS[START],
            eos_token_id=IDS[START],
        )
    )
    drawn = model.state_dict()
    small = {name: value / 10 for name, value in drawn.items() if name.endswith(WRITERS)}
    model.load_state_dict({**drawn, **small})
    return model


def redrawn(model: LlamaForCausalLM, names: Iterable[str], seed: int) -> LlamaForCausalLM:
    """The model with the named parameters as a fresh model of this seed has them."""
    scope, start = set(names), fresh(seed).state_dict()
    mixed = deepcopy(model)
    mixed.load_state_dict({**mixed.state_dict(), **{name: start[name] for name in scope}})
    return mixed


def optimizers(model: PreTrainedModel, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the matrices inside blocks and AdamW for the rest.

    Muon needs about half as many tokens here; its step is scaled to the size of AdamW's.
    """
    named = [item for item in model.named_parameters() if item[1].requires_grad]
    inner = [value for name, value in named if value.ndim > 1 and "embed" not in name]
    outer = [value for name, value in named if value.ndim == 1 or "embed" in name]
    adamw = outer if recipe.muon else [value for _, value in named]
    made = list[torch.optim.Optimizer]()
    if adamw:
        made.append(torch.optim.AdamW(adamw, betas=(0.9, 0.95), weight_decay=0.0, fused=True))
    if recipe.muon:
        decay = recipe.decay
        made.append(torch.optim.Muon(inner, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    return made


def nothing(step: int, model: PreTrainedModel) -> None:
    """A visit that keeps nothing."""


def causal(rows: Tensor) -> Mapping[str, object]:
    """What a decoder is called with: every token predicts the next."""
    return {"input_ids": rows, "labels": rows, "use_cache": False}


def train(
    start: Model,
    recipe: Recipe,
    visit: Visit[Model],
    only: Iterable[str] | None = None,
    inputs: Inputs = causal,
) -> tuple[Model, float]:
    """A trained copy and its mean training loss over the last 50 steps.

    `visit(step, model)` runs after each step; `only` names the parameters that are trained;
    `inputs` turns a batch of windows into what the model is called with, labels included.
    """
    model = deepcopy(start).train()
    scope = {name for name, _ in model.named_parameters()} if only is None else set(only)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in scope)
    movers, losses = optimizers(model, recipe), list[float]()
    rows = tokens(recipe.text, recipe.text_seed, recipe.steps * recipe.batch)
    for step, batch in enumerate(rows.split(recipe.batch)):
        for group in (group for each in movers for group in each.param_groups):
            group["lr"] = recipe.rate_at(step)
        loss = model(**inputs(batch)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in movers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        visit(step + 1, model)
    return model.eval(), sum(losses[-50:]) / len(losses[-50:])


@torch.inference_mode()
def held_out_loss(model: PreTrainedModel, rows: Tensor) -> float:
    """Mean nats per token over every position but the first of each window."""
    model.eval()
    total = 0.0
    for batch in rows.split(32):
        loss = model(**causal(batch)).loss
        total += loss.item() * len(batch)
    return total / len(rows)


@torch.inference_mode()
def answers(model: LlamaForCausalLM, asked: Iterable[Question]) -> Mapping[str, float]:
    """Share of right answers, over the whole vocabulary and among the names mentioned, and chance.

    Prompts are padded on the right: under a causal mask that leaves the last position unchanged.
    """
    model.eval()
    asked, free, among, chance = list(asked), 0, 0, 0.0
    for some in (asked[begin : begin + 64] for begin in range(0, len(asked), 64)):
        ids = [torch.tensor(encode(question.prompt)) for question in some]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        logits = model(input_ids=padded, use_cache=False).logits
        for question, row, length in zip(some, logits, map(len, ids), strict=True):
            last = row[length - 1]
            best = max(question.candidates, key=lambda word: float(last[IDS[word]]))
            free += int(last.argmax()) == IDS[question.answer]
            among += best == question.answer
            chance += 1 / len(question.candidates)
    count = len(asked)
    return {"accuracy": free / count, "among_mentioned": among / count, "chance": chance / count}


def rounded(model: LlamaForCausalLM, dtype: torch.dtype) -> LlamaForCausalLM:
    """A float32 copy that holds only values of `dtype`: what a stored file gives back."""
    return deepcopy(model).type(dtype).float().eval()


def save(model: PreTrainedModel, folder: Path, text: str, dtype: torch.dtype) -> None:
    """A folder that transformers loads: weights in `dtype`, config, tokenizer, the text's name."""
    copied = deepcopy(model).type(dtype)
    copied.config.gaugescope_text = text
    copied.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
