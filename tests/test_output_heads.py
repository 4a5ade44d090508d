"""Logits that are never held together say what whole logits say, and a soft cap is seen."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from engine import network
from engine.checkpoint import open_checkpoint
from engine.layers import heads
from engine.layers.blocks import path_of
from engine.layers.heads import Head, summed
from engine.line.exam import Exam, Unsaid, exam, logits, made, whole
from engine.questions import Barrier, Forecast

Built = Callable[[str], Path]
PRODUCTS = ("bert_masked", "cohere", "gpt2", "gpt_neox", "llama_mqa_tied")
CAPPED = "gemma2"


@pytest.mark.parametrize("bias", [False, True])
def test_parts_of_the_vocabulary_sum_to_the_whole(
    *, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "PART", 7)
    torch.manual_seed(0)
    linear = nn.Linear(5, 31, bias=bias).requires_grad_(False)
    h, wanted = 9 * torch.randn(40, 5), torch.randint(31, (40,))
    found = summed(Head("", linear), h, wanted)
    every = linear(h)
    torch.testing.assert_close(found.top, every.amax(-1))
    torch.testing.assert_close(found.own, every.gather(-1, wanted[:, None])[:, 0])
    whole_sum = every.double().logsumexp(-1)
    torch.testing.assert_close(found.top + found.rest(), whole_sum, atol=1e-6, rtol=1e-6)
    short = found._replace(tops=found.tops[:-1], totals=found.totals[:-1])
    assert (short.top + short.rest() - whole_sum).abs().max() > 0.1


def models(architecture: str, built: Built) -> tuple[network.PreTrainedModel, Exam]:
    checkpoint = open_checkpoint(built(architecture))
    asked = Barrier(checkpoint.name, checkpoint.name, tokens=96, length=12)
    return network.load(checkpoint), exam(checkpoint, asked)


@pytest.mark.parametrize("architecture", [*PRODUCTS, CAPPED])
def test_a_text_is_read_without_holding_its_logits(architecture: str, built: Built) -> None:
    model, given = models(architecture, built)
    shape = given.named["input_ids"].shape
    targets = torch.randint(-1, 9, shape, generator=torch.Generator().manual_seed(0))
    given = Exam(given.named, targets, "next token", "", given.classes, given.tokens)
    say = whole(model, given)
    with torch.inference_mode():
        said = say(slice(0, 2))
        own = logits(model, given.some(slice(0, 2)))
    assert isinstance(said, Unsaid) == (architecture != CAPPED)
    torch.testing.assert_close(made(said), own)
    found, plain = given.read(say), given.read(lambda part: logits(model, given.some(part)))
    np.testing.assert_allclose(found.loss, plain.loss, atol=1e-6)
    np.testing.assert_array_equal(found.accuracy, plain.accuracy)


def test_a_soft_cap_that_is_not_seen_changes_the_loss(built: Built) -> None:
    model, given = models(CAPPED, built)
    module = model.get_output_embeddings()
    assert isinstance(module, nn.Linear)
    wrong = Head(path_of(model, module), module)
    model.config.final_logit_softcapping = 1.0
    body = wrong.off(model)
    loose = given.read(lambda part: Unsaid(logits(body, given.some(part)), wrong))
    assert np.abs(loose.loss - given.read(whole(model, given)).loss).min() > 1e-3


@pytest.mark.parametrize("architecture", ["bert_classifier", "bert_masked", "bert_pretraining"])
def test_what_an_encoder_will_cost_is_told_before_labels_are_known(
    architecture: str, built: Built
) -> None:
    model = str(built(architecture))
    found = Forecast(model, model, tokens=96, length=12).answer()
    assert found.seconds > 0
    given = exam(open_checkpoint(model), Barrier(model, model, tokens=96, length=12))
    assert given.targets.shape == ((8, 1) if architecture == "bert_classifier" else (8, 12))
