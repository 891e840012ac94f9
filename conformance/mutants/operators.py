"""The mechanical edits: small faults of many kinds, at every place of a function that has one.

The list is fixed, and says nothing of what the code is for. Left alone: words of errors and
logs, annotations, defaults and decorators, which decide nothing about a batch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_EXTREMES = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True)
class Site:
    """One possible edit: characters ``start`` to ``end`` of the source become ``new``."""

    operator: str
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The edited source."""
        return source[: self.start] + self.new + source[self.end :]


def span(node: ast.stmt | ast.expr, source: str) -> tuple[int, int]:
    """Where a node begins and ends in the source, in characters."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (
        _offset(source, node.lineno, node.col_offset),
        _offset(source, node.end_lineno, node.end_col_offset),
    )


def _offset(source: str, line: int, column: int) -> int:
    """``column`` counts bytes of UTF-8, as ``ast`` does."""
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def sites(function: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> Iterator[Site]:
    """Every edit of a function's own body, in the order of the text."""
    for node in _nodes(function.body):
        for operator, make in OPERATORS.items():
            for target, new in make(node):
                start, end = span(target, source)
                yield Site(operator, start, end, source[start:end], new)


def _nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a body that decide something, but for functions within it."""
    for statement in body:
        yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    silent = ast.JoinedStr | ast.Raise | ast.Assert | ast.FunctionDef | ast.ClassDef
    if isinstance(node, silent | ast.Import | ast.ImportFrom):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _below(child)


_Edits = Iterator[tuple[ast.expr | ast.stmt, str]]


def _compare(node: ast.AST, table: dict[type[ast.cmpop], type[ast.cmpop]]) -> _Edits:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in table:
        turned = ast.Compare(node.left, [table[type(node.ops[0])]()], node.comparators)
        yield node, f"({ast.unparse(turned)})"


def _comparison_turned(node: ast.AST) -> _Edits:
    return _compare(node, _TURNED)


def _bound_moved(node: ast.AST) -> _Edits:
    return _compare(node, _MOVED)


def _branch_dropped(node: ast.AST) -> _Edits:
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, "False"


def _connective_swapped(node: ast.AST) -> _Edits:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"


def _not_dropped(node: ast.AST) -> _Edits:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"


def _constant_changed(node: ast.AST) -> _Edits:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node, repr(node.value + 1)


def _arithmetic_turned(node: ast.AST) -> _Edits:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        turned = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        yield node, f"({ast.unparse(turned)})"


def _extreme_swapped(node: ast.AST) -> _Edits:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
        yield node.func, _EXTREMES[node.func.id]


def _statement_dropped(node: ast.AST) -> _Edits:
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if called or isinstance(node, ast.AugAssign):
        assert isinstance(node, ast.stmt)
        yield node, "pass"


OPERATORS: dict[str, Callable[[ast.AST], _Edits]] = {
    "comparison-turned": _comparison_turned,
    "bound-moved": _bound_moved,
    "branch-dropped": _branch_dropped,
    "connective-swapped": _connective_swapped,
    "not-dropped": _not_dropped,
    "constant-changed": _constant_changed,
    "arithmetic-turned": _arithmetic_turned,
    "extreme-swapped": _extreme_swapped,
    "statement-dropped": _statement_dropped,
}
