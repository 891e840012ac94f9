"""An edit of one function of one module, found again by what it says and not by a line number."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conformance.mutants import operators

Function = ast.FunctionDef | ast.AsyncFunctionDef


class AnchorError(ValueError):
    """An edit does not fit its module any more; the message says which, and what to do."""


@dataclass(frozen=True)
class TextEdit:
    """In ``function`` of ``module``, ``old`` becomes ``new``; ``old`` must be there exactly once.

    ``function`` is a qualified name, or empty for the whole module.
    """

    module: str
    function: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The edited source of the module. Raises AnchorError when the edit does not fit."""
        start, end = _span(source, self.module, self.function)
        text = source[start:end]
        if (found := text.count(self.old)) != 1:
            where = f"{self.module}, {self.function or 'module'}"
            raise AnchorError(
                f"{where}: {self.old!r} is there {found} times, not once. The code has changed: "
                "write the edit anew for what is there now."
            )
        return source[:start] + text.replace(self.old, self.new) + source[end:]


@dataclass(frozen=True)
class MechanicalEdit:
    """The edit that ``operator`` makes at its ``ordinal``-th place in ``function``."""

    module: str
    function: str
    operator: str
    ordinal: int

    @property
    def name(self) -> str:
        """A path: module, function, operator, ordinal."""
        path = f"{self.module}/{self.function}".replace(".", "/")
        return f"{path}/{self.operator}/{self.ordinal}"

    def site(self, source: str) -> operators.Site:
        """Where in the source this is. Raises AnchorError when there is no such place."""
        for edit, site in mechanical_edits(self.module, source):
            if edit == self:
                return site
        raise AnchorError(
            f"{self.name}: there is no such edit of {self.module} any more. The code has changed: "
            "run `python -m conformance.kill_matrix` again."
        )

    def apply(self, source: str) -> str:
        """The edited source of the module. Raises AnchorError when there is no such place."""
        return self.site(source).apply(source)


Edit = TextEdit | MechanicalEdit


@cache
def path_of(module: str) -> Path:
    """The file of a module, which is not imported. Raises AnchorError when there is none."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is not None and spec.origin is not None:
        base = Path(spec.origin).parent.joinpath(*rest)
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.exists():
                return path
    raise AnchorError(f"there is no module {module} any more")


def source_of(module: str) -> str:
    """The text of a module."""
    return path_of(module).read_text(encoding="utf-8")


@cache
def mechanical_edits(module: str, source: str) -> tuple[tuple[MechanicalEdit, operators.Site], ...]:
    """All edits that the operators can make in the functions of a module, in order."""
    found = []
    for name, function in functions(ast.parse(source)):
        counts: dict[str, int] = {}
        for site in operators.sites(function, source):
            ordinal = counts.get(site.operator, 0)
            counts[site.operator] = ordinal + 1
            found.append((MechanicalEdit(module, name, site.operator, ordinal), site))
    return tuple(found)


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    """Every function below a node, with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            name = f"{outer}.{node.name}" if outer else node.name
            if isinstance(node, Function):
                yield name, node
            yield from functions(node, name)
        else:
            yield from functions(node, outer)


def _span(source: str, module: str, function: str) -> tuple[int, int]:
    """Where a function begins and ends in the source, in characters."""
    if not function:
        return 0, len(source)
    found = [node for name, node in functions(ast.parse(source)) if name == function]
    if len(found) != 1:
        raise AnchorError(f"{module} has {len(found)} functions {function}, not one")
    return operators.span(found[0], source)
