# ruff: noqa: T201 (a script that prints)
"""Plant every fault of the table and run its module's tests: `python tests/mutants/run.py`.

Each worker has a copy of the project. A fault is written into it, a fork that has the libraries
loaded already runs the test that is known to see it, or else the module's own test files until one
test fails, and the text is put back. First all tests that are to see a fault must pass without one.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutants.server import Answer
from tests.mutants.table import ROOT, Fault, Module, Table, faults, read, write
from tests.offline import OFFLINE

LIMIT = 600
"""Seconds after which tests that hang under a fault have seen it."""


class Worker:
    """A copy of the project, and a process that runs tests in it, see `server.py`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy(folder)
        self.clock = time.time() - 1e6
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.server"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **OFFLINE, "OMP_NUM_THREADS": "1", "PYTHONPATH": "."},
        )

    def tests(self, wanted: Sequence[str]) -> Answer:
        """Run test files or single tests, in this order, until one fails."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(Answer.asked(wanted, LIMIT))
        self.process.stdin.flush()
        return Answer.read(self.process.stdout.readline())

    @contextlib.contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """The copy with a fault in it, until the end of the block."""
        path = self.folder / fault.file
        text = path.read_text(encoding="utf-8")
        self._put(path, fault.planted(text))
        try:
            yield
        finally:
            self._put(path, text)

    def _put(self, path: Path, text: str) -> None:
        """Written with a time of its own: bytecode is known by it, and seconds are too coarse."""
        path.write_text(text, encoding="utf-8")
        self.clock += 10
        os.utime(path, (self.clock, self.clock))

    def try_(self, fault: Fault, tests: Sequence[str]) -> Fault:
        """The fault with the test that sees it, or with none."""
        with self.planted(fault):
            if fault.seen and self.tests([fault.seen]).failed:
                return fault
            return replace(fault, seen=self.tests(tests).failed)

    def close(self) -> None:
        """End the process."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def copy(folder: Path) -> None:
    """All files of the project that are under version control, or could be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def chosen(table: Table, words: Sequence[str], *, unseen: bool) -> list[tuple[Fault, Module]]:
    """The faults of all modules whose path holds one of the words; without words all."""
    return [
        (fault, module)
        for file, module in table.items()
        if not words or any(word in file for word in words)
        for fault in module.faults
        if not unseen or not (fault.seen or fault.why)
    ]


def run(
    workers: Sequence[Worker], wanted: Sequence[tuple[Fault, Module]]
) -> Iterator[tuple[Fault, Fault]]:
    """Each fault as the table has it and as it was found, in the table's order."""
    free: Queue[Worker] = Queue()
    for worker in workers:
        free.put(worker)

    def one(case: tuple[Fault, Module]) -> tuple[Fault, Fault]:
        fault, module = case
        worker = free.get()
        try:
            return fault, worker.try_(fault, module.tests)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        yield from pool.map(one, wanted)


def sound(worker: Worker, wanted: Sequence[tuple[Fault, Module]]) -> str:
    """The first test that fails without any fault; empty where all pass."""
    known = sorted({fault.seen for fault, _ in wanted if fault.seen})
    return worker.tests(known).failed if known else ""


def summary(table: Table) -> str:
    """How many faults there are, and how many of them are seen."""
    every = faults(table)
    seen = sum(bool(fault.seen) for fault in every)
    why = sum(bool(fault.why) for fault in every)
    return (
        f"{len(every)} faults in {len(table)} modules: {seen} seen ({seen / len(every):.1%}), "
        f"{why} change nothing, {len(every) - seen - why} unseen"
    )


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only modules whose path holds one of these")
    parser.add_argument("--unseen", action="store_true", help="only faults that nothing sees yet")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="keep what was found in the table")
    return parser.parse_args()


def main() -> int:
    """0 where every fault is seen that the table says is seen."""
    asked = options()
    table = read()
    wanted = chosen(table, asked.words, unseen=asked.unseen)
    lost = 0
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(made) / str(k) for k in range(asked.workers)]
        workers = [Worker(folder) for folder in folders]
        if failing := sound(workers[0], wanted):
            print(f"{failing} fails without any fault: mend it first")
            return 1
        for before, after in run(workers, wanted):
            lost += bool(before.seen) and not after.seen
            if after.seen != before.seen or not after.seen:
                print(
                    f"{'seen' if after.seen else 'UNSEEN'}  {after.title}  {after.seen}", flush=True
                )
            if asked.write:
                table = kept(table, before, after)
                write(table)
        for worker in workers:
            worker.close()
    print(summary(table))
    return int(lost > 0)


def kept(table: Table, before: Fault, after: Fault) -> Table:
    """The table with a fault as it was found; a reason why nothing changes goes once it is seen."""
    after = replace(after, why="" if after.seen else after.why)
    module = table[after.file]
    row = tuple(after if fault == before else fault for fault in module.faults)
    return {**table, after.file: replace(module, faults=row)}


if __name__ == "__main__":
    sys.exit(main())
