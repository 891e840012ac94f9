"""Loads code with an edit in it beside the code as it is: the modules' text under other names."""

from __future__ import annotations

import ast
import atexit
import importlib
import importlib.abc
import importlib.machinery
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from conformance.mutants.edits import Edit, path_of, source_of

Iterate = Callable[..., Iterable[Any]]

#: A module that stands alone, and a package whose modules import each other.
REFERENCE = "conformance.reference"
PACKAGE = "jaxiter"
#: The package of the mutant that is loaded now: at most one, or memory would fill with copies.
_loaded: dict[tuple[Edit, ...], str] = {}
_number = itertools.count()


def load(edits: Sequence[Edit]) -> Iterate:
    """The ``iter_jax_batches`` of the code with these edits, without memory of earlier cases.

    Raises AnchorError when an edit does not fit, and whatever the edited modules raise.
    """
    sources = edited(edits)
    if set(sources) == {REFERENCE}:
        module = ModuleType("mutated_reference")
        exec(compile(sources[REFERENCE], str(path_of(REFERENCE)), "exec"), module.__dict__)  # noqa: S102
        return module.iter_jax_batches  # type: ignore[no-any-return]
    alias = _package(tuple(edits), sources)
    _forget(alias)
    return importlib.import_module(alias).iter_jax_batches  # type: ignore[no-any-return]


def edited(edits: Sequence[Edit]) -> dict[str, str]:
    """The text of each module that the edits change."""
    sources: dict[str, str] = {}
    for edit in edits:
        sources[edit.module] = edit.apply(sources.get(edit.module) or source_of(edit.module))
    return sources


def _package(edits: tuple[Edit, ...], sources: Mapping[str, str]) -> str:
    if edits not in _loaded:
        for alias in _loaded.values():
            _drop(alias)
        _loaded.clear()
        alias = f"mutated_{PACKAGE}_{next(_number)}"
        with _finding(_Copy(alias, sources)):
            importlib.import_module(alias)
            for path in path_of(PACKAGE).parent.glob("*.py"):
                if path.stem != "__init__":
                    importlib.import_module(f"{alias}.{path.stem}")
        _loaded[edits] = alias
    return _loaded[edits]


def _forget(alias: str) -> None:
    """Let the next iterator be the first: no case may see what an earlier one has left behind."""
    places: Any = sys.modules[f"{alias}.places"]
    batches: Any = sys.modules[f"{alias}.batches"]
    # Messages lie under this path; all ranks load the same cases in the same order.
    assert isinstance(places._ROOT, str)
    assert isinstance(batches._registry, places.Registry)
    places._ROOT = f"{alias}/{next(_number)}"
    batches._registry = places.Registry()


def _drop(alias: str) -> None:
    atexit.unregister(sys.modules[f"{alias}.batches"]._close_all)
    for name in [n for n in sys.modules if n.partition(".")[0] == alias]:
        del sys.modules[name]


@contextmanager
def _finding(finder: importlib.abc.MetaPathFinder) -> Iterator[None]:
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Copy(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``PACKAGE`` under another name, with other text for some of its modules."""

    def __init__(self, alias: str, sources: Mapping[str, str]) -> None:
        self._alias = alias
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find modules of the copy."""
        del path, target
        if fullname.partition(".")[0] != self._alias:
            return None
        return importlib.machinery.ModuleSpec(
            fullname, self, is_package=self._path(fullname).name == "__init__.py"
        )

    def exec_module(self, module: ModuleType) -> None:
        """Run the text of a module of the copy."""
        original = self._original(module.__name__)
        text = self._sources.get(original) or source_of(original)
        exec(_compiled(text, str(self._path(module.__name__)), self._alias), module.__dict__)  # noqa: S102

    def _original(self, name: str) -> str:
        return PACKAGE + name.removeprefix(self._alias)

    def _path(self, name: str) -> Path:
        return path_of(self._original(name))


def _compiled(text: str, file: str, alias: str) -> CodeType:
    tree = _Renamed(alias).visit(ast.parse(text))
    return compile(ast.fix_missing_locations(tree), file, "exec")


class _Renamed(ast.NodeTransformer):
    """Lets the modules of a copy import each other, not the package that they are copies of."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """``from jaxiter.x import y``."""
        top, dot, rest = (node.module or "").partition(".")
        if top == PACKAGE:
            node.module = f"{self._alias}{dot}{rest}"
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        """``import jaxiter``."""
        for name in node.names:
            if name.name == PACKAGE:
                name.name, name.asname = self._alias, name.asname or PACKAGE
            elif name.name.startswith(f"{PACKAGE}."):
                raise ImportError(f"`import {name.name}` has no place in a copy: use `from`")
        return node
