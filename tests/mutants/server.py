"""A process that has the libraries loaded, and forks to run tests: started by run.py."""

import ast
import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = ("engine", "app", "pages", "assets", "tests")
MARKS = "not slow and not browser and not long"
LOADED = "ignore::pytest.PytestAssertRewriteWarning"  # plugins that are there before pytest is
OPTIONS = ("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-m", MARKS, "-W", LOADED)


@dataclass(frozen=True)
class Answer:
    """The first test that failed, or what else ended the tests; empty where all passed."""

    failed: str
    error: str = ""

    @staticmethod
    def asked(tests: Sequence[str], limit: float) -> str:
        """A line that asks for tests."""
        return json.dumps({"tests": list(tests), "limit": limit}) + "\n"

    @staticmethod
    def read(line: str) -> "Answer":
        """The answer in a line; a server that ended has none."""
        if not line:
            raise RuntimeError("the process that runs the tests has ended")
        answer = Answer(**json.loads(line))
        if answer.error:
            raise RuntimeError(answer.error)
        return answer


class Ordered:
    """A plugin of pytest: tests in the order in which they were asked for, the first failure."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.order = {name.partition("::")[0]: k for k, name in reversed(list(enumerate(tests)))}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.order.get(item.path.name, len(self.order)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.removeprefix("tests/")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.removeprefix("tests/")


def attempt(tests: Sequence[str]) -> str:
    """Run tests in this process until one fails: its name. RuntimeError where none could run."""
    plugin = Ordered(tests)
    code = pytest.main([*OPTIONS, *(f"tests/{name}" for name in tests)], plugins=[plugin])
    if not plugin.failed and code != pytest.ExitCode.OK:
        raise RuntimeError(f"no test ran: pytest ended with {code!r} for {' '.join(tests)}")
    return plugin.failed


def forked(tests: Sequence[str], limit: float) -> Mapping[str, str]:
    """`attempt` in a fork, with its own group of processes, ended after `limit` seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        answer = {}
        try:
            answer = {"failed": attempt(tests)}
        finally:  # whatever happened: a fork must not go on as its parent
            answer = answer or {"failed": "", "error": traceback.format_exc()}
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + limit
    ended, status = 0, 0
    while not ended and time.monotonic() < end:
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
        return {"failed": f"{tests[0]} (no end within {limit:g} s)"}
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    return json.loads(said) if said else {"failed": f"{tests[0]} (ended by signal {status})"}


def libraries() -> Iterator[tuple[str, str]]:
    """(module, name in it) of all imports of the project and its tests that are not its own."""
    for path in sorted(path for folder in HERE for path in Path(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((node.module, alias.name) for alias in node.names)


def load() -> None:
    """Import all libraries, so that no fork has to; those not installed are not missed."""
    for module, name in dict.fromkeys(libraries()):
        if module.partition(".")[0] not in HERE:
            with contextlib.suppress(Exception):
                getattr(importlib.import_module(module), name, None)


def main() -> None:
    """Answer lines of JSON until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load()
    for line in sys.stdin:
        answers.write(json.dumps(forked(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
