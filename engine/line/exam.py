"""What the models on a line are asked, and how well they answer: −log p and hits, by window."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine import network
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused
from engine.layers.blocks import headless
from engine.layers.heads import Head, Sums, head, summed
from engine.layers.inputs import Asked, Inputs, inputs
from engine.prepared import classes as labelled
from engine.records.barriers import Target
from engine.running import OUTPUTS

HIDDEN_SHARE = 0.15
"""Of the tokens that an encoder is to fill in."""
HELD = 2**25
"""Logits that are held at once."""
TOKENS = {"cpu": 2048}
"""Tokens that run at once, by device: a small model's pass costs milliseconds however few."""
PROBED = 8
"""Tokens of a window on which a head is tried."""
IMAGES = 64
"""Images that run at once."""
TOGETHER = 2**19
"""Of those, how many are summed at once on a processor: few enough to stay in its cache."""


@dataclass(frozen=True)
class Unsaid:
    """Logits that are not made: a head, and what it is given."""

    given: Float[Tensor, "windows *places d"]
    head: Head

    def logits(self) -> Float[Tensor, "windows *places classes"]:
        """All of them."""
        return self.head.linear(self.given)


Said = Tensor | Unsaid
"""Logits of some windows, [window, place, class] or [window, class]."""


def made(said: Said) -> Tensor:
    """All logits of what was said."""
    return said.logits() if isinstance(said, Unsaid) else said


Say = Callable[[slice], Said]
"""What one model says of some windows."""
At = Callable[[float], Say]
"""What the model at a point of a line says, until another point is asked for."""


class Marks(NamedTuple):
    """One model on every window, float64 [windows]."""

    loss: np.ndarray  # mean −log p of what is asked for, nats; inf where it is no number
    accuracy: np.ndarray  # share of places where it is the likeliest


def joined(parts: Sequence[Marks]) -> Marks:
    """One model on the windows of all parts."""
    loss, accuracy = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Marks(loss, accuracy)


@dataclass(frozen=True)
class Exam:
    """Windows, and what is asked for at each of their places (−1: nothing)."""

    named: Mapping[str, Tensor]
    targets: Int[Tensor, "windows places"]
    target: Target
    what: str
    classes: int  # logits at a place
    tokens: int  # of all windows; of images how many there are

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self.targets)

    @property
    def positions(self) -> np.ndarray:
        """Places of each window that are asked, int64 [windows]."""
        return (self.targets >= 0).sum(1).cpu().numpy()

    def parts(self) -> Iterator[slice]:
        """The windows, as many at once as `HELD` and `TOKENS` allow."""
        ids = self.named.get("input_ids")
        most = max(1, HELD // self.classes)
        if ids is None:
            step = min(most, IMAGES)
        else:
            step = max(1, min(most, TOKENS.get(ids.device.type, most)) // ids.shape[1])
        for start in range(0, self.windows, step):
            yield slice(start, min(start + step, self.windows))

    def read(self, say: Say) -> Marks:
        """What a model that says its logits part by part makes of all windows."""
        with torch.inference_mode():
            found = [marks(say(part), self.targets[part]) for part in self.parts()]
        loss, right = (torch.cat(one).cpu().numpy() for one in zip(*found, strict=True))
        return Marks(np.nan_to_num(loss, nan=np.inf, posinf=np.inf), right)

    def some(self, part: slice) -> dict[str, Tensor]:
        """The inputs of some windows."""
        return {name: x[part] for name, x in self.named.items()}

    def cut(self, part: slice) -> "Exam":
        """The exam on some windows."""
        return replace(self, named=self.some(part), targets=self.targets[part])


Says = Callable[[Sequence[float], Progress], Iterator[tuple[Exam, At]]]
"""All points of a line that are wanted on the windows of an exam: on one part after the other."""


def logits(model: nn.Module, named: Mapping[str, Tensor]) -> Tensor:
    """The first output over tokens or classes. Errors: Headless for a model without one."""
    found = model(**named)
    present = [name for name in OUTPUTS if name in found]
    if not present:
        raise headless(cast(PreTrainedModel, model))
    return found[present[0]]


def whole(model: PreTrainedModel, exam: Exam) -> Say:
    """The model's own passes over some windows."""
    body, said = beheaded(model, exam)
    return lambda part: said(logits(body, exam.some(part)))


def beheaded(model: PreTrainedModel, exam: Exam) -> tuple[nn.Module, Callable[[Tensor], Said]]:
    """The model without a head that only multiplies, and what its output then means."""
    ids = exam.named.get("input_ids")
    if ids is None:
        return model, lambda x: x
    few = {name: x[:1, :PROBED] for name, x in exam.named.items()}
    with torch.inference_mode():
        found = head(model, lambda other: logits(other, few))
    if found is None:
        return model, lambda x: x
    return found.off(model), lambda x: Unsaid(x, found)


def marks(said: Said, targets: Int[Tensor, "windows places"]) -> tuple[Tensor, Tensor]:
    """Mean −log p and share of hits of every window, float64; logits are used up.

    −log p = (max − said) + log Σ exp(· − max): both parts are small, so that float32 loses nothing
    that counts; sums and logarithms are float64.
    """
    asked = targets >= 0
    if isinstance(said, Unsaid):
        given = said.given.reshape(*targets.shape, -1)[asked]
        found = _unsaid(said.head, given, targets[asked])
        blank = torch.zeros(targets.shape, dtype=torch.float64)
        loss, right = (blank.masked_scatter(asked.cpu(), x) for x in found)
    else:
        loss, right = _said(said.reshape(targets.numel(), -1), targets.flatten())
    asked = asked.cpu()
    totals = (torch.where(asked, x.view(asked.shape), 0.0).sum(1) for x in (loss, right))
    loss, right = (x / asked.sum(1) for x in totals)
    return loss, right


def _said(rows: Float[Tensor, "rows classes"], wanted: Int[Tensor, " rows"]) -> list[Tensor]:
    """−log p and hits of every row, few rows at a time."""
    size = len(rows) if rows.device.type != "cpu" else max(1, TOGETHER // rows.shape[-1])
    found = [_rows(*some) for some in zip(rows.split(size), wanted.split(size), strict=True)]
    return [torch.cat(one) for one in zip(*found, strict=True)]


def _rows(said: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    top = said.amax(-1, keepdim=True)
    own = said.gather(-1, wanted.clamp(min=0)[:, None])
    rest = said.sub_(top).exp_().sum(-1)
    # The device may know no float64.
    right, gap, rest = (x.cpu().double() for x in (own == top, top - own, rest))
    return gap[:, 0] + rest.log(), right[:, 0]


def _unsaid(head: Head, given: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The same of rows whose logits are made a part of the vocabulary at a time."""
    found = Sums(*(x.cpu() for x in summed(head, given, wanted)))
    return (found.top - found.own).double() + found.rest(), (found.own == found.top).double()


def exam(a: Checkpoint, asked: Asked, known: int | None = None) -> Exam:
    """The windows that a question asks for, and what is asked for at their places.

    Classifiers are asked for the labels that were given, decoders for the next token, encoders with
    a mask token for hidden ones; what others are asked for is left to `label`. Errors: Refused for
    a token that only one vocabulary has (`known`: how many both have).
    """
    every = inputs(a, asked, known=known)
    ids = every.ids
    sizes = a.family.sizes(a.config)
    classes = known or sizes.get("tok") or sizes.get("cls") or 1
    tokens = int(every.kept.sum())
    if every.labels is not None:
        wanted, classes = every.labels[:, None], labelled(a) or classes
        return Exam(every.named, wanted, "given class", every.what, classes, tokens)
    if every.causal:
        return Exam(every.named, _following(every), "next token", every.what, classes, tokens)
    mask = _mask(a)
    if ids is not None and mask is not None and mask < classes:
        return _hiding(every, ids, mask, classes)
    places = ids.shape if ids is not None and _over_tokens(a) else (every.windows, 1)
    blank = torch.full(places, -1, device=every.kept.device)
    return Exam(every.named, blank, "likeliest class", every.what, classes, tokens)


def _following(every: Inputs) -> Tensor:
    """The token after each, where there is one; Refused for a window without any."""
    assert every.ids is not None
    if int(every.kept.sum(1).min()) < 2:
        raise Refused(
            f"{every.what} has windows of 1 token, and each next token is asked for: give 2 or "
            "more in each."
        )
    after = torch.full_like(every.ids, -1)
    after[:, :-1] = torch.where(every.kept[:, 1:], every.ids[:, 1:], -1)
    return after


def _over_tokens(a: Checkpoint) -> bool:
    """Whether an encoder says something of every token."""
    return network.network_class(a.config).__name__.endswith(("ForMaskedLM", "ForPreTraining"))


def _mask(a: Checkpoint) -> int | None:
    """The token that stands for a hidden one, of an encoder whose output is over tokens."""
    if "ForMaskedLM" not in network.network_class(a.config).__name__:
        return None
    try:
        found = network.tokenizer(a).mask_token_id
        return found if isinstance(found, int) else None
    except Refused:
        return None


def _hiding(every: Inputs, ids: Tensor, mask: int, classes: int) -> Exam:
    """A share of the tokens of every window hidden, at least one, the same each time."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.rand(ids.shape, generator=generator).to(ids.device)
    draw = torch.where(every.kept, draw, 2.0)
    draw[:, 0] = 2.0  # the beginning of a text is known
    chosen = (draw < HIDDEN_SHARE) | (draw == draw.amin(1, keepdim=True))
    named = {**every.named, "input_ids": torch.where(chosen, mask, ids)}
    return Exam(
        named,
        torch.where(chosen, ids, -1),
        "hidden token",
        every.what,
        classes,
        int(every.kept.sum()),
    )


def label(exam: Exam, at: At) -> Exam:
    """The exam with the classes that both ends together hold for the likeliest, places as found.

    The sum of both log-probabilities: neither model is the teacher of the other.
    """
    if exam.target != "likeliest class":
        return exam
    found = []
    with torch.inference_mode():
        for part in exam.parts():
            both = (made(at(t)(part)) for t in (0.0, 1.0))
            first, second = (one.double().log_softmax(-1) for one in both)
            found.append((first + second).argmax(-1))
    labels = torch.cat(found).reshape(exam.windows, -1)
    kept = exam.named.get("attention_mask")
    if kept is not None and kept.shape == labels.shape:
        labels = torch.where(kept.bool(), labels, -1)
    return replace(exam, targets=labels)
