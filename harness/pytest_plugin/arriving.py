"""How a test module gets to a rank: imported there as in the parent, its asserts rewritten too."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook, rewrite_asserts

from harness.backends.environment import import_path


@dataclass(frozen=True)
class Source:
    """Where a module comes from.

    Attributes:
        file: its source; `None` for a package that is a folder alone.
        folders: where a package looks for its modules; `None` for what is no package.
        rewrite: whether pytest has rewritten its asserts.
    """

    file: str | None
    folders: tuple[str, ...] | None
    rewrite: bool


@dataclass(frozen=True)
class Arrival:
    """Modules for a rank; when it is unpickled there, it imports them.

    So it stands before whatever refers to them in what is pickled.

    Attributes:
        path: where Python looks for modules in the parent.
        sources: modules that pytest has imported, by their names.
        names: those to import at once, in this order.
    """

    path: tuple[str, ...]
    sources: Mapping[str, Source]
    names: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Be unpickled by `arrive`."""
        return arrive, (self.path, dict(self.sources), self.names)


def arrival(item: pytest.Item, *, at_once: bool) -> Arrival:
    """Say what a rank needs to import for a test.

    Args:
        item: the test.
        at_once: import its conftest.py files and its module before anything else is unpickled.
    """
    conftests = _conftests(item)
    module = getattr(item, "module", None)
    own = [*conftests, *([module] if module is not None else [])]
    modules = {
        name: module
        for name, module in sys.modules.copy().items()
        if isinstance(getattr(module, "__loader__", None), AssertionRewritingHook)
    } | {module.__name__: module for module in own}
    for name in list(modules):
        while name := name.rpartition(".")[0]:
            if name in sys.modules:
                modules[name] = sys.modules[name]
    names = tuple(module.__name__ for module in own) if at_once else ()
    sources = {name: _source(name, module) for name, module in modules.items()}
    return Arrival(tuple(import_path()), sources, names)


def _conftests(item: pytest.Item) -> list[ModuleType]:
    found = [
        plugin
        for plugin in item.config.pluginmanager.get_plugins()
        if isinstance(plugin, ModuleType)
        and (file := getattr(plugin, "__file__", None)) is not None
        and Path(file).name == "conftest.py"
        and Path(file).parent in item.path.parents
    ]
    return sorted(found, key=lambda module: len(Path(str(module.__file__)).parts))


def _source(name: str, module: ModuleType) -> Source:
    folders = getattr(module, "__path__", None)
    if folders is None and getattr(module, "__file__", None) is None:
        # With importmode=importlib a parent may be a mere name.
        folders = [
            os.path.dirname(file)
            for child, other in sys.modules.copy().items()
            if child.rpartition(".")[0] == name and (file := getattr(other, "__file__", None))
        ][:1]
    return Source(
        getattr(module, "__file__", None),
        None if folders is None else tuple(folders),
        isinstance(getattr(module, "__loader__", None), AssertionRewritingHook),
    )


def arrive(path: Sequence[str], sources: Mapping[str, Source], names: Sequence[str]) -> None:
    """On a rank: find these modules from now on, and import those that are named."""
    sys.path[:] = path
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    for name, source in sources.items():
        # Two files may have one name, as conftest.py has where it is in no package.
        if name in sys.modules and _FINDER.sources.get(name, source) != source:
            del sys.modules[name]
    _FINDER.sources |= sources
    for name in names:
        importlib.import_module(name)


class _Finder:
    """Finds modules where the parent has found them."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Find a module by its full name."""
        source = self.sources.get(name)
        if source is None:
            return None
        if source.file is None:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = list(source.folders or ())
            return spec
        if not source.file.endswith(".py"):
            return None
        kind = _RewritingLoader if source.rewrite else SourceFileLoader
        folders = None if source.folders is None else list(source.folders)
        return importlib.util.spec_from_file_location(
            name, source.file, loader=kind(name, source.file), submodule_search_locations=folders
        )


class _RewritingLoader(SourceFileLoader):
    """Rewrites asserts as pytest does. Its code goes into no cache, whose format is pytest's."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source."""
        file = self.get_filename(fullname)
        source = self.get_data(file)
        tree = ast.parse(source, filename=file)
        rewrite_asserts(tree, source, file)
        return compile(tree, file, "exec", dont_inherit=True)


_FINDER = _Finder()
