# ruff: noqa: T201 (a script that prints)
"""Maps of layers on SmolLM2-135M: `python tests/bench/bench_layers.py [--out FILE]`.

Every figure stands beside a named alternative measured in the same run on the same machine; quote
the ratios. The full maps take a quarter of an hour on two cores; `--layers 10-13` or `--reach 1`
takes a part of them, of which all figures for a stack are then means.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn

from engine import network
from engine.checkpoint import open_checkpoint
from engine.layers.blocks import grafted
from engine.layers.inputs import inputs
from engine.layers.maps import chosen, kinds
from engine.layers.reading import Read
from engine.layers.sessions import Session
from engine.layers.stacks import Stack, bound, cells, whole
from engine.questions import Layers
from engine.records.layers import Test
from tests.clock import timed

TESTS: tuple[Test, ...] = ("replace", "swap", "delete")
Band = list[tuple[Test, tuple[int, ...], Stack]]


@dataclass(frozen=True)
class Bench:
    """A model on its windows, and the maps that are made of it."""

    session: Session
    bands: list[Band]
    layers: int

    @property
    def stacks(self) -> list[Stack]:
        """Every stack once."""
        return list(dict.fromkeys(stack for band in self.bands for _, _, stack in band))

    def of(self, *tests: Test) -> "Bench":
        """The maps of some tests only."""
        bands = [[one for one in band if one[0] in tests] for band in self.bands]
        return replace(self, bands=bands)


def prepared(model: str, windows: int, length: int, layers: str = "", reach: int = 0) -> Bench:
    """A model with every weight in memory."""
    checkpoint = open_checkpoint(model)
    asked = Layers(model, tokens=windows * length, length=length)
    loaded = network.load(checkpoint)
    for parameter in loaded.parameters():
        parameter.sum()
    session = Session(loaded, checkpoint.family, inputs(checkpoint, asked), None)
    tested = chosen(layers, checkpoint.layers)
    bands = cells(TESTS, tested, reach or checkpoint.layers, kinds(checkpoint))
    return Bench(session, list(bands), checkpoint.layers)


def ours(bench: Bench) -> tuple[dict[str, float], dict[Stack, Read]]:
    """All maps, band by band, as the engine makes them."""
    reads: dict[Stack, Read] = {}
    ran = 0
    with timed() as found:
        began = time.perf_counter()
        bench.session.base()
        first = time.perf_counter() - began
        for band in bench.bands:
            stacks = list(dict.fromkeys(stack for _, _, stack in band))
            for number, read, count in bench.session.reads(stacks):
                reads[stacks[number]] = read
                ran += count
    stacks = bench.stacks
    found |= {
        "seconds_before_the_first_stack": first,
        "stacks": len(stacks),
        "seconds_a_stack": found["seconds"] / len(stacks),
        "processor_seconds_a_stack": found["processor_seconds"] / len(stacks),
        "layers_run": ran,
        "bound": bound(stacks, bench.layers),
        "whole_forwards": whole(stacks),
        "run_over_bound": ran / max(bound(stacks, bench.layers), 1),
        "run_over_whole": ran / whole(stacks),
    }
    return found, reads


@dataclass(frozen=True)
class Theirs:
    """An alternative on some stacks: mean seconds of one, and the KL of each by window."""

    seconds: float
    processor_seconds: float
    kl: list[Tensor]

    def against(self, mine: dict[str, float]) -> dict[str, float]:
        """How much faster ours was."""
        return {
            "seconds_a_stack": self.seconds,
            "processor_seconds_a_stack": self.processor_seconds,
            "times_faster": self.seconds / mine["seconds_a_stack"],
            "times_less_processor": self.processor_seconds / mine["processor_seconds_a_stack"],
        }


def each(work: Callable[[Stack], Tensor], stacks: Sequence[Stack]) -> Theirs:
    """One stack after the other, after one that is not counted."""
    work(stacks[0])
    began, used = time.perf_counter(), time.process_time()
    kl = [work(stack) for stack in stacks]
    wall, processor = time.perf_counter() - began, time.process_time() - used
    return Theirs(wall / len(stacks), processor / len(stacks), kl)


def reordered(bench: Bench, stack: Stack) -> nn.Module:
    """The model over another ModuleList, of the same blocks."""
    blocks = nn.ModuleList([bench.session.blocks.modules[layer] for layer in stack])
    return grafted(bench.session.model, bench.session.family.blocks, blocks)


def plain(bench: Bench) -> Callable[[Stack], Tensor]:
    """A whole forward with log-softmax at every position, in the same batch: KL by window."""
    session = bench.session
    named, ids = session.read_from.named, session.read_from.ids
    assert ids is not None
    with torch.inference_mode():
        base = session.model(**named).logits.log_softmax(-1)
        likeliest = base.argmax(-1)

    @torch.inference_mode()
    def work(stack: Stack) -> Tensor:
        said = reordered(bench, stack)(**named).logits.log_softmax(-1)
        said[:, :-1].gather(-1, ids[:, 1:, None]).mean()
        (said.argmax(-1) == likeliest).double().mean()
        return (base.exp() * (base - said)).sum(-1).mean(-1)

    return work


def by_identity(bench: Bench) -> Callable[[Stack], Tensor]:
    """Whole forwards too, but read as the engine reads them."""
    blocks, reader = bench.session.blocks, bench.session.reader

    def work(stack: Stack) -> Tensor:
        state = blocks.streams[0]
        for block in stack:
            state = blocks.run(block, [state])[0]
        return reader.read(state).kl

    return work


def published(bench: Bench) -> Callable[[Stack], Tensor]:
    """One prompt at a time, weights copied into the layers and out again: KL at its last token."""
    session = bench.session
    named, modules = session.read_from.named, session.blocks.modules
    windows = range(session.read_from.windows)

    @torch.inference_mode()
    def last() -> Tensor:
        every = ({name: x[n : n + 1] for name, x in named.items()} for n in windows)
        found = [session.model(**one).logits[0, -1].float().log_softmax(-1) for one in every]
        return torch.stack(found)

    base = last()

    def work(stack: Stack) -> Tensor:
        moved = [depth for depth, layer in enumerate(stack) if layer != depth]
        saved = {
            n: {name: x.clone() for name, x in modules[n].state_dict().items()}
            for n in {*moved, *(stack[depth] for depth in moved)}
        }
        for depth in moved:
            modules[depth].load_state_dict(saved[stack[depth]])
        said = last()
        for depth in moved:
            modules[depth].load_state_dict(saved[depth])
        return (base.exp() * (base - said)).sum(-1)

    return work


def farthest(kl: Sequence[Tensor], stacks: Sequence[Stack], reads: dict[Stack, Read]) -> float:
    """Largest difference of a window's KL from ours, nats."""
    pairs = zip(kl, stacks, strict=True)
    return max(float((one.double() - reads[stack].kl).abs().max()) for one, stack in pairs)


def bench_positions(bench: Bench, sampled: int) -> dict[str, object]:
    """KL, loss and agreement at all positions, against whole forwards."""
    mine, reads = ours(bench)
    some = random.Random(0).sample(bench.stacks, min(sampled, len(bench.stacks)))
    whole_forwards, same = each(plain(bench), some), each(by_identity(bench), some)
    return {
        "ours": mine,
        "sampled": len(some),
        "whole": whole_forwards.against(mine)
        | {"farthest_nats": farthest(whole_forwards.kl, some, reads)},
        "whole_with_our_identity": same.against(mine)
        | {"farthest_nats": farthest(same.kl, some, reads)},
    }


def bench_last(bench: Bench, sampled: int) -> dict[str, object]:
    """KL at the last position, against the published loop; replacing and swapping only."""
    only = replace(bench.of("replace", "swap"), session=replace(bench.session, aggregate="last"))
    mine, reads = ours(only)
    some = random.Random(1).sample(only.stacks, min(sampled, len(only.stacks)))
    loop = each(published(only), some)
    return {
        "ours": mine,
        "sampled": len(some),
        "published": loop.against(mine) | {"farthest_nats": farthest(loop.kl, some, reads)},
    }


def main() -> None:
    """All figures as one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the figures to a file")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--sampled", type=int, default=60, help="stacks run as whole forwards")
    parser.add_argument("--layers", default="", help="a range of layers, such as 10-13")
    parser.add_argument("--reach", type=int, default=0, help="largest distance of a pair")
    asked = parser.parse_args()
    bench = prepared(asked.model, asked.windows, asked.length, asked.layers, asked.reach)
    figures = {
        "threads": torch.get_num_threads(),
        "tokens": int(bench.session.read_from.kept.sum()),
        "all_positions": bench_positions(bench, asked.sampled),
        "last_position": bench_last(bench, asked.sampled),
    }
    text = json.dumps(figures, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
