"""What neurons do as the models run: how they vary together, and which tokens excite each."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from engine import network, shared, texts
from engine.activations import Correlation, trunk
from engine.alignment.heads import gather
from engine.alignment.listening import BATCH, places
from engine.alignment.neuron_pairs import Models, neurons
from engine.alignment.one_pass import layer_tensors
from engine.alignment.stages import one_expert
from engine.axes import Mark
from engine.checkpoint import Checkpoint
from engine.errors import Progress, Refused, silent
from engine.family import Family
from engine.questions import AllNeurons, Neurons
from engine.records import Excited

TOP = 8
"""Places that are kept of each neuron."""
Ids = Int[Tensor, "windows length"]


@dataclass(frozen=True)
class Site:
    """The neurons of one layer of a checkpoint, or of one of its experts."""

    checkpoint: Checkpoint
    word: str
    layer: int
    expert: int | None


def module(model: nn.Module, family: Family, path: str) -> nn.Module:
    """A module by the family's path, which a model without a head shortens."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        return model.get_submodule(path.removeprefix(family.prefix))


def down(site: Site) -> str | None:
    """Path of the module that is given the neurons as they fire; None where experts hold them."""
    found = places(site.checkpoint.family, site.checkpoint.layers, site.word)
    return found[site.layer] if found and site.expert is None else None


class Enough(Exception):
    """Raised where the neurons were heard: no later layer needs to run."""


def fired(model: nn.Module, site: Site, ids: Ids) -> Float[Tensor, "windows length n"]:
    """What `down` is given of every neuron; 0 where a token does not visit the expert."""
    heard: dict[str, Any] = {}
    family, path = site.checkpoint.family, down(site)

    def given(_: nn.Module, args: tuple[Any, ...]) -> None:
        heard["h"] = args[0]
        raise Enough

    def routed(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        heard.update(x=args[0], chosen=output[-1])
        raise Enough

    with ExitStack() as stack, torch.no_grad():
        if path is not None:
            handle = module(model, family, path).register_forward_pre_hook(given)
        else:
            handle = module(model, family, router(site)).register_forward_hook(routed)
        stack.callback(handle.remove)
        stack.enter_context(suppress(Enough))
        trunk(model)(input_ids=ids)
    h = heard["h"] if path is not None else _inside(model, site, heard["x"], heard["chosen"])
    return h.float().reshape(*ids.shape, -1)


def router(site: Site) -> str:
    """Path of the module that chooses experts: it is given the stream and tells its choice."""
    family = site.checkpoint.family
    (found,) = (key for key, axes in family.hidden.items() if key[:4] == "out " and axes == "exp")
    return found[4:].replace("{l}", str(site.layer))


def _inside(model: nn.Module, site: Site, x: Tensor, chosen: Tensor) -> Float[Tensor, "rows n"]:
    """act(gate x) · up x of one expert from its tensors on disk: in memory experts are fused."""
    assert site.expert is not None
    rows = _rows(site)
    gate, up = (rows[mark].to(x) for mark in (Mark.RELABEL, Mark.WRITE))
    family = site.checkpoint.family
    beside = module(model, family, router(site).rpartition(".")[0] + ".experts")
    act: Any = beside.act_fn
    flat = x.reshape(-1, x.shape[-1])
    visits = (chosen == site.expert).any(-1, keepdim=True)
    return act(flat @ gate) * (flat @ up) * visits


def _rows(site: Site) -> dict[Mark, Tensor]:
    checkpoint = site.checkpoint
    family = checkpoint.family
    tensors = layer_tensors(checkpoint, site.layer)
    inside = tensors if site.expert is None else one_expert(family, tensors, site.expert)
    return gather(family, family.sizes(checkpoint.config), inside, site.word, dtype=torch.float32)


@dataclass(frozen=True)
class Top:
    """The places where each neuron fires most, by modulus, and with what."""

    places: Int[Tensor, "n top"]
    values: Float[Tensor, "n top"]

    def with_more(self, h: Float[Tensor, "rows n"], at: Int[Tensor, " rows"]) -> "Top":
        """The same with further places."""
        values = torch.cat([self.values, h.mT], 1)
        where = torch.cat([self.places, at.expand(h.shape[1], -1)], 1)
        best = values.abs().topk(min(TOP, values.shape[1]), dim=1).indices
        return Top(where.gather(1, best), values.gather(1, best))


def nothing(count: int) -> Top:
    """Before anything was heard."""
    return Top(torch.zeros(count, 0, dtype=torch.long), torch.zeros(count, 0))


@dataclass(frozen=True)
class Heard:
    """What both models' neurons did on one text."""

    excited: Excited
    correlation: Float[np.ndarray, "n m"]  # rows A; empty where it was not asked for
    spread: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " m"]]  # standard deviations


def hear(
    both: Models, sites: Sequence[Site], asked: Neurons, ids: Ids, progress: Progress = silent
) -> Heard:
    """Both models on the same tokens, the first of each window and what is no text left out.

    Two sites of one checkpoint are run once.
    """
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    found = [network.load(c, where, kind) for c in ((both.a,) if both.same else (both.a, both.b))]
    tops = [nothing(neurons(site.checkpoint, both.word)) for site in sites]
    together, special = Correlation(), torch.tensor(texts.special(both.a), dtype=ids.dtype)
    for start in range(0, len(ids), BATCH):
        progress(start / len(ids), f"tokens {start * ids.shape[1]} of {ids.numel()}")
        rows = ids[start : start + BATCH]
        kept = ~torch.isin(rows, special)
        kept[:, 0] = False
        at = (torch.arange(rows.numel()) + start * ids.shape[1]).reshape(rows.shape)[kept]
        pairs = zip(found, sites, strict=False)
        h = [fired(model, site, rows.to(where)).cpu()[kept] for model, site in pairs]
        h = h * 2 if both.same else h
        tops = [top.with_more(x, at) for top, x in zip(tops, h, strict=True)]
        if asked.using == "activations":
            together.add(h[0], h[1])
    words = Excited(
        *_spelled(both.a, ids),
        places=(tops[0].places.int().numpy(), tops[1].places.int().numpy()),
        values=(tops[0].values.numpy(), tops[1].values.numpy()),
        what=f"{ids.numel():,} tokens of {texts.describe(both.a, asked.text, ids.numpy())}",
    )
    if asked.using != "activations":
        return Heard(words, np.zeros((0, 0), np.float32), (np.zeros(0), np.zeros(0)))
    return Heard(words, together.result().float().numpy(), _spread(together))


def _spread(found: Correlation) -> tuple[np.ndarray, np.ndarray]:
    a, b, aa, bb, _ = (x / found.count for x in found.sums)
    one, other = (((xx - x.square()).clamp(min=0)).sqrt().numpy() for x, xx in ((a, aa), (b, bb)))
    return one, other


def _spelled(checkpoint: Checkpoint, ids: Ids) -> tuple[tuple[str, ...], np.ndarray]:
    """The tokens of a text, each once, and which of them stands where."""
    every, where = np.unique(ids.numpy(), return_inverse=True)
    try:
        words = network.tokenizer(checkpoint)
        pieces = tuple(str(words.decode([int(token)])) for token in every)
    except Refused:
        pieces = tuple(f"⟨{token}⟩" for token in every)
    return pieces, where.reshape(ids.shape).astype(np.int32)


def common_windows(both: Models, asked: Neurons | AllNeurons) -> tuple[Ids, tuple[str, ...]]:
    """The windows of the text whose tokens both vocabularies have, and what was left out.

    Errors: Refused for models of images, and where there is no text or no window is left.
    """
    if both.a.family.inputs == "pixels":
        raise Refused(f"{both.a.name} reads images, and neurons are heard on texts only.")
    ids, gone = shared.shared(both.a, both.b, asked.text, asked.tokens)
    return torch.from_numpy(ids), (f"{gone}.",) if gone else ()


def sites(both: Models, number: int, expert: int | None, partner: int | None) -> Iterator[Site]:
    """Where the neurons of a layer are in A and in B."""
    pairs = ((both.a, expert), (both.b, partner))
    return (Site(checkpoint, both.word, number, here) for checkpoint, here in pairs)
