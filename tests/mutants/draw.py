# ruff: noqa: T201 (a script that prints)
"""Draw faults for modules at random: `python tests/mutants/draw.py [WORD …] [--each N]`.

Every place where a rule of `rules.py` applies is a candidate. Of those of one module some are drawn
with a seed made of its name, one of each kind before a second of the same. Left out, because no
answer rests on them: annotations, docstrings, imports, how long things took, and progress.
"""

import argparse
import ast
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutants.rules import Change, changes
from tests.mutants.table import ROOT, Fault, Module, read, write

FOLDERS = ("engine", "app", "pages")
LINES_EACH = 70
"""Lines of a module for one fault."""


def modules(words: Sequence[str] = ()) -> Iterator[str]:
    """Paths of all modules with something to change, from the project's root."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not words or any(word in name for word in words):
            yield name


def drawn(file: str, count: int, known: Sequence[Fault] = ()) -> list[Fault]:
    """Some faults of one module that are not known yet, of as many kinds as there are."""
    text = (ROOT / file).read_text(encoding="utf-8")
    rng = random.Random(file)
    found = list(changes(text))
    rng.shuffle(found)
    turn: dict[str, int] = {}
    ranked = []
    for change in found:
        turn[change.kind] = turn.get(change.kind, 0) + 1
        ranked.append((turn[change.kind], change))
    ranked.sort(key=lambda pair: pair[0])
    fresh: list[Fault] = []
    old = {(fault.old, fault.new) for fault in known}
    places = set()
    for _, change in ranked:
        fault = as_fault(file, text, change)
        if fault and (fault.old, fault.new) not in old and fault.old not in places:
            fresh.append(fault)
            places.add(fault.old)
        if len(fresh) == count:
            break
    return fresh


def as_fault(file: str, text: str, change: Change) -> Fault | None:
    """The change as whole lines, with so many lines before it that they stand there only once."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    first = max(k for k in range(len(lines)) if starts[k] <= change.start)
    last = max(k for k in range(len(lines)) if starts[k] < change.end)
    while first >= 0:
        old = text[starts[first] : starts[last + 1]].rstrip("\n")
        if text.count(old) == 1:
            here = change.start - starts[first]
            new = old[:here] + change.new + old[here + change.end - change.start :]
            fault = Fault(file, old, new)
            return fault if changed(text, fault.planted(text)) else None
        first -= 1
    return None


def changed(before: str, after: str) -> bool:
    """Whether a text can be read as code, and as other code than before."""
    try:
        return ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))
    except SyntaxError:
        return False


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file of tests imports, and what it imports from modules, by full name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def named_like(file: str) -> tuple[str, ...]:
    """Test files that import a module."""
    name = file.removesuffix(".py").replace("/", ".")
    paths = sorted((ROOT / "tests").glob("test_*.py"))
    return tuple(path.name for path in paths if name in imported(path))


def main() -> None:
    """Put drawn faults into the table; those that are there stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only modules whose path holds one of these")
    parser.add_argument(
        "--each", type=int, help=f"faults a module; else one for {LINES_EACH} lines"
    )
    asked = parser.parse_args()
    table = read()
    for file in modules(asked.words):
        row = table.get(file, Module(named_like(file), ()))
        lines = (ROOT / file).read_text(encoding="utf-8").count("\n")
        wanted = asked.each or max(1, round(lines / LINES_EACH))
        fresh = (
            drawn(file, wanted - len(row.faults), row.faults) if wanted > len(row.faults) else []
        )
        if fresh or row.faults:
            table[file] = replace(row, faults=(*row.faults, *fresh))
    write(table)
    print(f"{sum(len(row.faults) for row in table.values())} faults in {len(table)} modules")


if __name__ == "__main__":
    main()
