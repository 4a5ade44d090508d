"""The table of planted faults: a module, a text of it, what stands there instead, who sees it."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("faults.toml")
HEAD = """\
# Faults, one at a time: `old` stands once in its file and becomes `new`. `tests` are the files that
# speak of this module; `seen` is the test among them that fails. `why` says instead why the fault
# changes no answer. Read and run by run.py, drawn by draw.py, kept whole by tests/test_mutants.py.
"""


@dataclass(frozen=True)
class Fault:
    """One change of one module: seen by a test, or with the reason why it changes no answer."""

    file: str
    old: str
    new: str
    seen: str = ""
    why: str = ""

    @property
    def title(self) -> str:
        """The file, and the lines that differ."""
        old, new = self.old.splitlines(), self.new.splitlines()
        gone = " ".join(line.strip() for line in old if line not in new)
        come = " ".join(line.strip() for line in new if line not in old)
        return f"{self.file}: {gone or '(nothing)'} → {come or '(nothing)'}"

    def planted(self, text: str) -> str:
        """The module's text with the fault; ValueError unless `old` stands in it exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} holds {text.count(self.old)} times, not once: {self.old!r}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Module:
    """A module's faults, and the test files that speak of it, those that tell most first."""

    tests: tuple[str, ...]
    faults: tuple[Fault, ...]


Table = Mapping[str, Module]


def read(path: Path = TABLE) -> dict[str, Module]:
    """Every module of the table by its path from the project's root."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        file: Module(tuple(row["tests"]), tuple(Fault(file, **fault) for fault in row["faults"]))
        for file, row in rows.items()
    }


def write(table: Table, path: Path = TABLE) -> None:
    """The table as text: modules in the order of their names, a line for each fault."""
    path.write_text("\n".join([HEAD, *_lines(table)]), encoding="utf-8")


def _lines(table: Table) -> Iterator[str]:
    for file, module in sorted(table.items()):
        yield f"[{_text(file)}]"
        yield f"tests = [{', '.join(map(_text, module.tests))}]"
        yield "faults = ["
        for fault in module.faults:
            cells = {"old": fault.old, "new": fault.new, "seen": fault.seen, "why": fault.why}
            said = [
                f"{name} = {_text(cell)}" for name, cell in cells.items() if cell or name == "new"
            ]
            yield f"  {{ {', '.join(said)} }},"
        yield "]\n"


def _text(value: str) -> str:
    """A string of JSON is one of TOML too."""
    return json.dumps(value, ensure_ascii=False)


def faults(table: Table) -> Sequence[Fault]:
    """All faults, module by module."""
    return [fault for module in table.values() for fault in module.faults]
