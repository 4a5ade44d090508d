"""Maps and cuts of SmolLM2-135M, which the app shows at once: `python -m assets.make_layers`.

The records go to `assets/results`, keyed like any other result, with the commands that repeat them
in its README. It takes the package in requirements-models.txt and, on two cores, half an hour.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from engine.questions import Check, Continue, Cut, Inspect, Layers, Question
from engine.sources import SMOLLM2
from engine.store import Store

RESULTS = Path(__file__).resolve().parent / "results"
TITLE = """# Results that ship

`lmc.json`: barriers between models from different seeds, by `python -m assets.make_lmc`. The rest
are on SmolLM2-135M-Instruct: computed by `python -m assets.make_layers`, each by one command.

```
"""


def shipped() -> Iterator[Question]:
    """Every question whose answer ships; a cut takes its scores from the maps before it."""
    yield from (Inspect(SMOLLM2), Check(SMOLLM2))
    yield from (Layers(SMOLLM2), Layers(SMOLLM2, ("swap-healed",)), Cut(SMOLLM2))
    yield Continue(SMOLLM2, "replace", 14, 15)


def main() -> None:
    """Answer every question anew."""
    shutil.rmtree(RESULTS / "records", ignore_errors=True)
    store = Store(RESULTS)
    for question in shipped():
        bar = tqdm(total=100, desc=question.verb)

        def progress(share: float, step: str, _: object = None, /, bar: tqdm = bar) -> None:
            bar.set_postfix_str(step, refresh=False)
            bar.update(max(100 * share - bar.n, 0))

        store.put(question.key, question.answer(progress))
        bar.close()
    commands = dict.fromkeys(f"{question.command}\n" for question in shipped())
    (RESULTS / "README.md").write_text("".join([TITLE, *commands, "```\n"]), encoding="utf-8")


if __name__ == "__main__":
    main()
