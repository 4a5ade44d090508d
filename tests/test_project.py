"""Rules of the house: what the source may not contain, its measure, what the README promises."""

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ("engine", "app", "pages", "assets")
LINES, STATEMENTS = 300, 40
UNSAFE_MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "os.system", "torch.load"}
UNSAFE_ARGUMENTS = {
    ("allow_pickle", True),
    ("shell", True),
    ("trust_remote_code", True),
    ("use_safetensors", False),
    ("unsafe_allow_html", True),
    ("unsafe_allow_html", False),
    ("use_container_width", True),
    ("use_container_width", False),
}
"""The last four have no business here with any value: a page shows no foreign HTML, and widths are
named."""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_source = pytest.mark.parametrize("path", sources(*PROGRAM), ids=name_of)
each_file = pytest.mark.parametrize("path", sources(*PROGRAM, "tests"), ids=name_of)


def unsafe(tree: ast.AST) -> Iterator[str]:
    """What must not be in the program, as `line: words`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [n.name for n in names if n.name.partition(".")[0] in UNSAFE_MODULES]
            case ast.ImportFrom(module=str(module)):
                found = [module] if module.partition(".")[0] in UNSAFE_MODULES else []
            case ast.Call(func=function, keywords=keywords):
                called = ast.unparse(function)
                found = [called] if called in UNSAFE_CALLS else []
                found += [k.arg for k in keywords if k.arg and refused(k)]
            case _:
                continue
        yield from (f"{node.lineno}: {words}" for words in found)


def refused(keyword: ast.keyword) -> bool:
    """An argument of the list, or a value of it that cannot be read off the source."""
    if isinstance(keyword.value, ast.Constant):
        return (keyword.arg, keyword.value.value) in UNSAFE_ARGUMENTS
    return keyword.arg in {name for name, _ in UNSAFE_ARGUMENTS}


def statements(function: ast.AST) -> int:
    """Statements of a function, those of functions inside it included, its docstring left out."""
    inside = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    texts = [n for n in inside if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    return len(inside) - len(texts) - 1


@each_source
def test_no_code_from_data_and_no_foreign_markup(path: Path) -> None:
    assert list(unsafe(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
        "f(trust_remote_code=trust)",
        "st.markdown(x, unsafe_allow_html=True)",
        "st.dataframe(x, use_container_width=True)",
        "subprocess.run(x, shell=True)",
        "eval(text)",
    ],
)
def test_the_search_finds(code: str) -> None:
    assert len(list(unsafe(ast.parse(code)))) == 1


@each_source
def test_short_files(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES


@each_file
def test_short_functions(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    long = [f.name for f in functions if statements(f) > STATEMENTS]
    assert long == []


def test_statements_are_counted_like_a_reader_counts() -> None:
    text = "def f():\n    'Text.'\n    if a:\n        b = 1\n    return b"
    assert statements(ast.parse(text).body[0]) == 3


def tree() -> dict[str, str]:
    """Paths and descriptions of the README's tree."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("## The code")[2].partition("```\n")[2].partition("```")[0]
    found: dict[str, str] = {}
    folders: list[str] = []
    for line in block.splitlines():
        name, _, text = line.strip().partition(" ")
        folders = folders[: (len(line) - len(line.lstrip())) // 2]
        found["".join([*folders, name])] = text.strip()
        folders.append(name)
    return found


def test_the_tree_names_every_file_and_no_other() -> None:
    written = {path for path in tree() if path.endswith(".py") and path.startswith(PROGRAM)}
    there = {name_of(path) for path in sources(*PROGRAM) if path.name != "__init__.py"}
    assert sorted(written - there) == []
    assert sorted(there - written) == []


def test_the_tree_names_nothing_that_is_not_there() -> None:
    assert [path for path in tree() if not (ROOT / path).exists()] == []
    assert [path for path, text in tree().items() if not text] == []


def test_the_readme_lists_every_command() -> None:
    commands = importlib.import_module("engine.cli").app.registered_commands
    names = {command.name or command.callback.__name__.replace("_", "-") for command in commands}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = readme.partition("## The command line")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w[\w-]*)", rows, re.MULTILINE)) == names


def test_the_readme_links_to_files_that_are_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", readme) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def pins(name: str) -> Iterator[tuple[str, str]]:
    """(package, version) of a list of requirements."""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith(("#", "-")):
            package, equal, pin = line.partition("==")
            assert equal, f"{name}: {line} is not pinned"
            yield re.sub(r"\[.*\]", "", package), pin


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "requirements-dev.txt", "requirements-models.txt", "constraints.txt"],
)
def test_requirements_are_pinned_to_what_is_tested(name: str) -> None:
    # A local version such as 2.13.0+cpu is a build of the pinned version.
    differing = [(p, pin) for p, pin in pins(name) if version(p).partition("+")[0] != pin]
    assert differing == []


def test_the_server_listens_to_this_machine_only() -> None:
    first, second = (ROOT / ".streamlit/config.toml", ROOT / "app/.streamlit/config.toml")
    assert first.read_text(encoding="utf-8") == second.read_text(encoding="utf-8")
    config = tomllib.loads(first.read_text(encoding="utf-8"))
    assert config["server"]["address"] == "127.0.0.1"
    assert config["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
    assert config["server"]["enableStaticServing"] is False
    assert config["browser"]["gatherUsageStats"] is False


def test_the_licence_is_the_declared_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence[:100]
    assert "END OF TERMS AND CONDITIONS" in licence
