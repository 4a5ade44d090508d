"""The table of planted faults: it fits the source, spares no module, and says who sees what."""

import ast
from functools import cache

import pytest

from tests.mutants import draw, rules, run, table
from tests.mutants.table import ROOT, Fault, Module

TABLE = table.read()
FAULTS = table.faults(TABLE)
each_module = pytest.mark.parametrize("file", TABLE)


@each_module
def test_a_fault_stands_once_in_its_file_and_changes_the_code(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    before = ast.dump(ast.parse(text))
    assert [
        f.title for f in TABLE[file].faults if ast.dump(ast.parse(f.planted(text))) == before
    ] == []


def test_no_module_is_spared() -> None:
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in draw.modules()}
    assert [f for f, text in texts.items() if f not in TABLE and any(rules.changes(text))] == []


def test_there_are_many_and_nearly_all_are_seen() -> None:
    seen = sum(bool(fault.seen) for fault in FAULTS)
    assert len(FAULTS) >= 350
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)
    assert seen >= 0.95 * len(FAULTS)


def test_a_fault_is_seen_or_has_a_reason() -> None:
    assert [fault.title for fault in FAULTS if bool(fault.seen) == (len(fault.why) > 20)] == []


@cache
def functions(name: str) -> set[str]:
    """Names of the tests of a file."""
    tree = ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@each_module
def test_a_fault_is_seen_by_a_test_of_its_module(file: str) -> None:
    for fault in TABLE[file].faults:
        name, _, test = fault.seen.partition(" (no end")[0].partition("::")
        assert not name or name in TABLE[file].tests
        assert not test or test.partition("[")[0] in functions(name)


def test_a_table_is_read_as_it_was_written(tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "faults.toml"
    odd = Fault("a.py", 'x = "\\n" # \u2016\ty', "x = 1\n", why='it says "\\" only')
    rows = {"a.py": Module(("test_a.py",), (odd,)), "b.py": Module((), ())}
    table.write(rows, path)
    assert table.read(path) == rows


CODE = '''
def f(a, b, low, high):
    """Not -1, nor a < b."""
    if a < b and not low:
        return g(a, high) - min(a, b) / 2
    return f"{a} nats over {b}" if low is None else (1.5, True, [a, b, -high])
'''


@pytest.mark.parametrize(
    "line",
    [
        "    if a <= b and not low:",
        "    if a < b or not low:",
        "    if a < b and low:",
        "    if not (a < b and not low):",
        "        return g(high, a) - min(a, b) / 2",
        "        return g(a, high) + min(a, b) / 2",
        "        return g(a, high)",
        "        return min(a, b) / 2 - g(a, high)",
        "        return g(a, high) - max(a, b) / 2",
        "        return g(a, high) - min(a, b) * 2",
        "        return g(a, high) - min(a, b) / 3",
        '    return f"{a} bits over {b}" if low is None else (1.5, True, [a, b, -high])',
        '    return f"{a} nats under {b}" if low is None else (1.5, True, [a, b, -high])',
        '    return f"{b} nats over {a}" if low is None else (1.5, True, [a, b, -high])',
        '    return f"{a} nats over {b}" if low is not None else (1.5, True, [a, b, -high])',
        '    return (1.5, True, [a, b, -high]) if low is None else f"{a} nats over {b}"',
        '    return f"{a} nats over {b}" if low is None else (3.0, True, [a, b, -high])',
        '    return f"{a} nats over {b}" if low is None else (1.5, False, [a, b, -high])',
        '    return f"{a} nats over {b}" if low is None else (1.5, True, [a, b, high])',
        '    return f"{a} nats over {b}" if low is None else (1.5, True, [b, a, -high])',
        '    return f"{a} nats over {b}" if low is None else (1.5, True, [a, -high])',
    ],
)
def test_rules_know(line: str) -> None:
    texts = [CODE[: c.start] + c.new + CODE[c.end :] for c in rules.changes(CODE)]
    assert line in {line for text in texts for line in text.splitlines()}


def test_rules_leave_docstrings_annotations_and_times_alone() -> None:
    code = '"""More nats."""\nx: Int["windows"]\ny = perf_counter() - 1\nprogress(0.5, "more")\n'
    assert list(rules.changes(code)) == []


def test_a_drawn_fault_is_as_many_lines_as_it_takes_to_be_the_only_one() -> None:
    text = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"
    change = next(c for c in rules.changes(text) if c.start > text.index("g"))
    fault = draw.as_fault("x.py", text, change)
    assert fault == Fault("x.py", "def g():\n    return 1", "def g():\n    return 2")
    assert fault.planted(text) == text[:-2] + "2\n"
    with pytest.raises(ValueError, match="2 times, not once"):
        Fault("x.py", "return 1", "return 2").planted(text)


def test_a_fault_that_is_seen_now_needs_no_reason_any_more() -> None:
    before = Fault("a.py", "x", "y", why="nothing reads it, as was believed")
    rows = {"a.py": Module(("test_a.py",), (before, Fault("a.py", "z", "")))}
    after = run.kept(rows, before, Fault("a.py", "x", "y", "test_a.py::test_x", before.why))
    assert after["a.py"].faults[0] == Fault("a.py", "x", "y", "test_a.py::test_x")
    assert after["a.py"].faults[1] == rows["a.py"].faults[1]
    assert [f.old for f, _ in run.chosen(after, ["a"], unseen=True)] == ["z"]
