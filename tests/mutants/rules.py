"""The kinds of faults: for each a place in the source and what would stand there."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
OPERATORS: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
OPPOSITES = (
    ("min", "max"), ("argmin", "argmax"), ("all", "any"), ("amin", "amax"), ("first", "second"),
    ("minimum", "maximum"), ("mean", "sum"), ("low", "high"), ("rows", "columns"), ("a", "b"),
    ("log10", "log"), ("sin", "cos"), ("floor", "ceil"), ("exp", "log"), ("before", "after"),
    ("x", "y"), ("height", "width"), ("top", "bottom"), ("left", "right"), ("real", "imag"),
    ("startswith", "endswith"), ("removeprefix", "removesuffix"), ("before", "after"),
)  # fmt: skip
"""Names of functions and fields that are mistaken for each other."""
NEUTRAL = {"abs", "mT", "T", "conj", "sqrt", "square", "clamp", "flip", "strip", "inverse"}
"""Methods and properties that may be forgotten."""
WORDS = (
    ("nats", "bits"), ("more", "less"), ("largest", "smallest"), ("least", "most"), ("A", "B"),
    ("over", "under"), ("before", "after"), ("first", "last"), ("above", "below"), ("°", " rad"),
    ("higher", "lower"), ("rows", "columns"), ("row", "column"), ("low", "high"), ("%", ""),
    ("swap", "replace"), ("swapping", "replacing"), ("A's", "B's"), ("from", "to"),
    ("positive", "negative"), ("gate", "up"), ("query", "key"), ("log₁₀", "ln"), ("best", "worst"),
    ("tokens", "windows"),
    ("x", "y"), ("left", "right"), ("up", "down"), ("res", "ffn"), ("on", "off"),
)  # fmt: skip
"""Words of sentences, of figures and of tables that are mistaken for each other."""
SILENT = re.compile(
    r"perf_counter|progress\(|\bpart\(|seconds=|monotonic|noqa|overload|TYPE_CHECKING"
    r"|orient=|spacing=|labelAngle|nice=|[fF]ont|[oO]pacity|\bd[xy]=|[sS]trokeWidth|\b(width|height|size|padding|margin|gap|columns)=\d"
)
"""Lines on which no answer rests: time, progress, and how wide or faint something is drawn."""


@dataclass(frozen=True)
class Change:
    """Characters `start` to `end` of a module, and what stands there in their place."""

    kind: str
    start: int
    end: int
    new: str


def changes(text: str) -> Iterator[Change]:
    """Every change of a module that a rule knows."""
    source = Source(text)
    lines = text.splitlines()
    for change in (*source.code(), *source.words()):
        line = lines[text.count("\n", 0, change.start)]
        if not SILENT.search(line) and not line.lstrip().startswith(("import ", "from ", "@", "#")):
            yield change


class Source:
    """A module's text, its syntax, and where its lines begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
        self.lines = text.splitlines(keepends=True)

    def place(self, line: int, column: int) -> int:
        """The character at a column that counts bytes, as the syntax tree does."""
        own = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(own)

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where a node stands."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.place(node.lineno, node.col_offset),
            self.place(node.end_lineno, node.end_col_offset),
        )

    def code(self) -> Iterator[Change]:
        """Changes of expressions and statements."""
        for node in self.nodes(self.tree):
            rule = RULES.get(type(node))
            if rule:
                yield from rule(self, node)

    def nodes(self, node: ast.AST) -> Iterator[ast.AST]:
        """All nodes but annotations, docstrings, decorators and the parts of formatted strings."""
        yield node
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "type_comment"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _left_out(child):
                    yield from self.nodes(child)

    def between(
        self, left: ast.expr, right: ast.expr, old: str, new: str, kind: str
    ) -> Iterator[Change]:
        """An operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        found = list(
            re.finditer(rf"(?<![=<>!*/]){re.escape(old)}(?![=<>*/])", self.text[start:end])
        )
        if len(found) == 1:
            here = start + found[0].start()
            yield Change(kind, here, here + len(old), new)

    def part(self, node: ast.expr) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def swapped(self, kind: str, one: ast.expr, other: ast.expr) -> Iterator[Change]:
        """Two expressions in each other's place."""
        (a, b), (c, d) = self.span(one), self.span(other)
        if self.text[a:b] != self.text[c:d]:
            yield Change(kind, a, d, self.text[c:d] + self.text[b:c] + self.text[a:b])

    def without(self, kind: str, parts: list[ast.expr], k: int) -> Iterator[Change]:
        """A list without its k-th part and the comma beside it."""
        start, end = self.span(parts[k])
        if k + 1 < len(parts):
            end = self.span(parts[k + 1])[0]
        else:
            start = self.span(parts[k - 1])[1]
        yield Change(kind, start, end, "")

    def words(self) -> Iterator[Change]:
        """Changes of texts: words, and the fields of formatted strings."""
        texts = list(self.unread())
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type != tokenize.STRING:
                continue
            start = self.starts[token.start[0] - 1] + token.start[1]
            if not any(first <= start < end for first, end in texts):
                yield from _text(start, token.string)

    def unread(self) -> Iterator[tuple[int, int]]:
        """Where docstrings and annotations stand."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield self.span(node)
            for name in ("annotation", "returns"):
                if isinstance(value := getattr(node, name, None), ast.expr):
                    yield self.span(value)


def _left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in {"Literal", "ClassVar"}:
        return True
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Global)


def _text(start: int, text: str) -> Iterator[Change]:
    for one, other in WORDS:
        for old, new in ((one, other), (other, one)):
            for found in (
                re.finditer(rf"(?<![\w{{.]){re.escape(old)}(?![\w=(])", text) if old else ()
            ):
                if text[: found.start()].count("{") == text[: found.start()].count("}"):
                    yield Change("word", start + found.start(), start + found.end(), new)
    if "f" not in text.partition('"')[0].lower():
        return
    fields = list(re.finditer(r"\{[^{}]+\}", text))
    for one, other in pairwise(fields):
        if one[0] != other[0]:
            new = other[0] + text[one.end() : other.start()] + one[0]
            yield Change("fields", start + one.start(), start + other.end(), new)


def _compare(source: Source, node: ast.Compare) -> Iterator[Change]:
    if len(node.ops) == 1:
        old, new = COMPARISONS[type(node.ops[0])]
        yield from source.between(node.left, node.comparators[0], old, new, "comparison")


def _binary(source: Source, node: ast.BinOp) -> Iterator[Change]:
    if type(node.op) in OPERATORS:
        old, new = OPERATORS[type(node.op)]
        yield from source.between(node.left, node.right, old, new, "operator")
    start, end = source.span(node)
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.BitOr):
        yield Change("term", start, end, source.part(node.left))
    if isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
        yield from source.swapped("order", node.left, node.right)


def _unary(source: Source, node: ast.UnaryOp) -> Iterator[Change]:
    start, end = source.span(node)
    if isinstance(node.op, ast.USub | ast.Not):
        yield Change("sign", start, end, source.part(node.operand))


def _constant(source: Source, node: ast.Constant) -> Iterator[Change]:
    start, end = source.span(node)
    if isinstance(node.value, bool):
        yield Change("switch", start, end, str(not node.value))
    elif isinstance(node.value, int):
        yield Change("number", start, end, str(node.value + 1))
    elif isinstance(node.value, float):
        yield Change("number", start, end, repr(node.value * 2))


def _call(source: Source, node: ast.Call) -> Iterator[Change]:
    mixed = any(isinstance(arg, ast.Starred) for arg in node.args[:2])
    same = isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}
    if len(node.args) > 1 and not mixed and not same:
        yield from source.swapped("order", *node.args[:2])
    named = [word for word in node.keywords if word.arg]
    for one, other in pairwise(named):
        yield from source.swapped("order", one.value, other.value)
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in NEUTRAL and not node.args:
        yield Change("forgotten", *source.span(node), source.part(function.value))


def _attribute(source: Source, node: ast.Attribute) -> Iterator[Change]:
    end = source.span(node)[1]
    for one, other in OPPOSITES:
        if node.attr in {one, other}:
            new = other if node.attr == one else one
            yield Change("opposite", end - len(node.attr), end, new)
    if node.attr in {"mT", "T"}:
        yield Change("forgotten", *source.span(node), source.part(node.value))


def _name(source: Source, node: ast.Name) -> Iterator[Change]:
    for one, other in OPPOSITES[:4]:
        if node.id in {one, other} and isinstance(node.ctx, ast.Load):
            yield Change("opposite", *source.span(node), other if node.id == one else one)


def _both(source: Source, node: ast.BoolOp) -> Iterator[Change]:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    yield from source.between(node.values[0], node.values[1], old, new, "logic")


def _choice(source: Source, node: ast.IfExp) -> Iterator[Change]:
    yield from source.swapped("branches", node.body, node.orelse)


def _if(source: Source, node: ast.If) -> Iterator[Change]:
    test = source.part(node.test)
    yield Change("branches", *source.span(node.test), f"not ({test})")


def _dict(source: Source, node: ast.Dict) -> Iterator[Change]:
    if len(node.values) > 1 and all(node.keys):
        for one, other in pairwise(node.values):
            yield from source.swapped("order", one, other)


def _list(source: Source, node: ast.Tuple | ast.List | ast.Set) -> Iterator[Change]:
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return
    if len(node.elts) > 1 and not any(isinstance(part, ast.Starred) for part in node.elts):
        yield from source.swapped("order", *node.elts[:2])
    if len(node.elts) > 2:
        for k in range(len(node.elts)):
            yield from source.without("dropped", node.elts, k)


RULES: Mapping[type[ast.AST], Callable[..., Iterator[Change]]] = {
    ast.Compare: _compare,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.Attribute: _attribute,
    ast.Name: _name,
    ast.BoolOp: _both,
    ast.IfExp: _choice,
    ast.If: _if,
    ast.Dict: _dict,
    ast.Tuple: _list,
    ast.List: _list,
    ast.Set: _list,
}
