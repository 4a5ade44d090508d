"""Makes the demo checkpoints and the record of how they were made: `python -m assets.make_demo`.

Stages, each of which may be run alone with --only: base, baseline, seeds, scan, tunes, scopes,
shapes. Seeds, scan, tunes and scopes need the base; shapes are the rows of `assets/shapes.py`.
On one machine and one thread the result is repeatable.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from transformers import LlamaForCausalLM, PreTrainedModel  # noqa: E402

from assets import drift, ngram, training  # noqa: E402
from assets import shapes as others  # noqa: E402
from assets.training import HELD_OUT, Recipe, Visit, held_out_loss, nothing, tokens  # noqa: E402
from engine.corpus import questions  # noqa: E402

DEMO = Path(__file__).resolve().parent / "demo"
RECORD = DEMO / "record.json"
BASE = Recipe("village", text_seed=1, seed=1, steps=1800, rate=4e-3, warmup=50, floor=0.05)
PHASES = (BASE,)
EARLIER = (20, 50, 100, 180, 300, 500, 750, 1100)
SEEDS = (1, 2, 3)
TUNES = {"a": "market", "b": "drills"}
SAVES = tuple(range(20, 161, 20))
SCAN = ((1e-3, 160, 10), (4e-3, 160, 10))  # rate, steps, finest spacing
TUNE_RATE = 4e-3
SCOPES: Mapping[str, Callable[[str], bool]] = {
    "first-attention": lambda name: name.startswith("model.layers.0.self_attn."),
    "all-attention": lambda name: ".self_attn." in name,
    "first-layer": lambda name: name.startswith("model.layers.0."),
}
HELD_OUT_WINDOWS = 512
MATCHED_WINDOWS = 72
QUESTIONS = 1000


def log(line: str) -> None:
    """Progress goes to standard error, with the time of day."""
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


def note(part: str, entries: Mapping[str, object]) -> None:
    """Adds entries to one part of the record on disk, replacing those of the same name."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record["machine"] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
    }
    record[part] = {**record.get(part, {}), **entries}
    written = RECORD.with_suffix(f".{time.time_ns()}")
    written.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    written.replace(RECORD)


def opened(name: str) -> LlamaForCausalLM:
    """A stored model, in float32 whatever the file's dtype."""
    return LlamaForCausalLM.from_pretrained(DEMO / name, dtype=torch.float32).eval()


def measured(name: str, text: str, asking: bool = True) -> dict[str, float]:
    """Held-out loss and answers of a model as stored: what a user of the file will see."""
    model = opened(name)
    found = {"held_out_loss": held_out_loss(model, tokens(text, HELD_OUT, HELD_OUT_WINDOWS))}
    if asking:
        asked = list(questions(HELD_OUT, QUESTIONS))
        for kind in ("who", "where"):
            of_kind = [question for question in asked if question.kind == kind]
            found |= {f"{kind}_{k}": v for k, v in training.answers(model, of_kind).items()}
    return found


def store(
    name: str, model: PreTrainedModel, phases: Sequence[Recipe], steps: int, dtype: torch.dtype
) -> None:
    """Writes a checkpoint and its entry in the record, before anything is measured."""
    text = phases[0].text
    training.save(model, DEMO / name, text, dtype)
    entry = {
        "text": text,
        "phases": [asdict(recipe) for recipe in phases],
        "steps": steps,
        "tokens": steps * phases[0].batch * training.CONTEXT,
        "dtype": str(dtype).removeprefix("torch."),
        "bytes": (DEMO / name / "model.safetensors").stat().st_size,
    }
    note("models", {name: entry})


def amend(name: str, entries: Mapping[str, object]) -> None:
    """Adds measurements to a model's entry."""
    entry = json.loads(RECORD.read_text())["models"][name]
    note("models", {name: {**entry, **entries}})
    log(f"{name}: {entries}")


def run(
    name: str,
    start: LlamaForCausalLM,
    phases: Sequence[Recipe],
    dtype: torch.dtype,
    visit: Visit,
    only: Iterable[str] | None = None,
) -> None:
    """Trains phase after phase, each from what a stored file would give back; stores, measures."""
    began, done, model, loss = time.monotonic(), 0, start, 0.0
    for recipe in phases:
        log(f"{name}: {recipe.steps} steps on {recipe.text}")

        def told(step: int, trained: LlamaForCausalLM, done: int = done) -> None:
            visit(done + step, trained)

        model, loss = training.train(model, recipe, told, only)
        model, done = training.rounded(model, dtype), done + recipe.steps
    seconds = time.monotonic() - began
    store(name, model, phases, done, dtype)
    found = measured(name, phases[0].text, asking=only is None)
    amend(name, {"train_loss": loss, "seconds": seconds} | found)


def base() -> None:
    """The base in float32 and eight earlier steps of it."""
    began = time.monotonic()

    def keep(step: int, model: LlamaForCausalLM) -> None:
        if step in EARLIER:
            name = f"base-step-{step:04d}"
            store(name, model, PHASES[:1], step, torch.bfloat16)
            amend(name, {"seconds": time.monotonic() - began})

    run("base", training.fresh(BASE.seed), PHASES, torch.float32, keep)
    for step in EARLIER:
        amend(f"base-step-{step:04d}", measured(f"base-step-{step:04d}", BASE.text))


def baseline() -> None:
    """A 5-gram model of the tokens that the base saw, on the base's held-out tokens."""
    began = time.monotonic()
    seen = torch.cat(
        [tokens(phase.text, phase.text_seed, phase.steps * phase.batch) for phase in PHASES]
    )
    model = ngram.fit(seen.flatten().numpy(), 5, len(training.IDS))
    held_out = tokens(BASE.text, HELD_OUT, HELD_OUT_WINDOWS).numpy()
    entry = {
        "kind": "interpolated Kneser-Ney, order 5, one discount per order",
        "tokens": seen.numel(),
        "held_out_tokens": held_out[:, 1:].size,
        "held_out_loss": ngram.held_out_loss(model, held_out),
        "seconds": time.monotonic() - began,
    }
    note("baseline", entry)
    log(f"5-gram: {entry}")


def seeds() -> None:
    """Models that share with the base nothing but the recipe: other draws, other text."""
    for seed in SEEDS:
        phases = [
            replace(phase, seed=100 * order + seed, text_seed=100 * order + seed)
            for order, phase in enumerate(PHASES, 1)
        ]
        run(f"seed-{seed}", training.fresh(phases[0].seed), phases, torch.bfloat16, nothing)


def scopes() -> None:
    """The base, as bfloat16 holds it, with one scope redrawn and that scope alone retrained."""
    start = training.rounded(opened("base"), torch.bfloat16)
    for order, (scope, holds) in enumerate(SCOPES.items()):
        names = [name for name, _ in start.named_parameters() if holds(name)]
        for seed in range(1, 5):
            drawn = 1000 * (order + 1) + seed
            drawing = replace(BASE, text_seed=drawn, seed=drawn)
            recipe = replace(drawing, steps=250, warmup=25, batch=8)
            redrawn = training.redrawn(start, names, drawn)
            run(f"scope-{scope}-{seed}", redrawn, [recipe], torch.bfloat16, nothing, names)


def tune(branch: str, rate: float, steps: int) -> Recipe:
    """A fine-tune at a constant rate after ten steps of warmup, on text unlike the base's."""
    drawn = {"a": 201, "b": 202}[branch]
    return Recipe(TUNES[branch], drawn, drawn, steps, rate, warmup=10, floor=1.0, muon=False)


def matched_rows() -> torch.Tensor:
    """The held-out windows on which residual coordinates are correlated."""
    return tokens(BASE.text, HELD_OUT, MATCHED_WINDOWS)


def tuned(
    branch: str, start: LlamaForCausalLM, rate: float, steps: int, spacing: int, keep: Visit
) -> float:
    """Fine-tunes, shows `keep` every `spacing`-th step, returns the last training loss."""

    def visit(step: int, model: LlamaForCausalLM) -> None:
        if step % spacing == 0:
            keep(step, model)

    return training.train(start, tune(branch, rate, steps), visit)[1]


def scan() -> None:
    """Drift of both fine-tunes over learning rate, length and spacing; keeps no model."""
    start, rows = opened("base"), matched_rows()
    origin = drift.residual(start, rows)
    for rate, steps, finest in SCAN:
        branches: dict[str, list[torch.Tensor]] = {branch: [] for branch in TUNES}
        for branch, kept in branches.items():

            def keep(_: int, model: LlamaForCausalLM, kept: list[torch.Tensor] = kept) -> None:
                kept.append(drift.residual(training.rounded(model, torch.bfloat16), rows))

            tuned(branch, start, rate, steps, finest, keep)
        for length, thin in product((steps // 2, steps), (1, 2, 4)):
            first, second = (kept[thin - 1 : length // finest : thin] for kept in branches.values())
            name = f"rate {rate:g}, {length} steps, every {finest * thin}"
            row = {"saves": len(first)} | dict(drift.drift(first, origin, second))
            note("scan", {name: row})
            log(f"{name}: {row}")


def tunes() -> None:
    """Both fine-tunes as the scan chose them, and their drift measured on the stored files."""
    start, steps = opened("base"), SAVES[-1]
    for branch in TUNES:
        recipe = tune(branch, TUNE_RATE, steps)

        def keep(
            step: int, model: LlamaForCausalLM, branch: str = branch, recipe: Recipe = recipe
        ) -> None:
            store(f"tune-{branch}-step-{step:04d}", model, [recipe], step, torch.bfloat16)

        began = time.monotonic()
        loss = tuned(branch, start, TUNE_RATE, steps, SAVES[0], keep)
        last = f"tune-{branch}-step-{steps:04d}"
        took = {"train_loss": loss, "seconds": time.monotonic() - began}
        amend(last, took | measured(last, recipe.text, asking=False))
    matched()


def matched() -> None:
    """Endpoint and composed matching of the stored fine-tunes, for the record."""
    rows = matched_rows()
    first, second = (
        [drift.residual(opened(f"tune-{branch}-step-{step:04d}"), rows) for step in SAVES]
        for branch in TUNES
    )
    row = dict(drift.drift(first, drift.residual(opened("base"), rows), second))
    entry = {
        "depth": "residual stream before the final norm",
        "text": f"{BASE.text}, seed {HELD_OUT}, first position of every window dropped",
        "tokens": rows[:, 1:].numel(),
        **row,
    }
    note("drift", entry)
    log(f"drift: {entry}")


def shapes() -> None:
    """One model of each other architecture, in bfloat16."""
    for name, shape in others.SHAPES.items():
        log(f"{name}: {sum(recipe.steps for recipe in shape.phases)} steps")
        began = time.monotonic()
        model, loss = others.trained(name)
        took = {"train_loss": loss, "seconds": time.monotonic() - began}
        store(name, model, shape.phases, sum(r.steps for r in shape.phases), torch.bfloat16)
        others.tokenizer(name).save_pretrained(DEMO / name)
        amend(name, took | dict(others.measured(name, DEMO / name, HELD_OUT_WINDOWS)))


STAGES = {stage.__name__: stage for stage in (base, baseline, seeds, scan, tunes, scopes, shapes)}


def main() -> None:
    """Runs the stages asked for, in order."""
    parser = argparse.ArgumentParser(description="Make the demo checkpoints under assets/demo.")
    parser.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in parser.parse_args().only:
        STAGES[name]()


if __name__ == "__main__":
    main()
