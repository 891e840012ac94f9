"""All cases of the suite, by group."""

from __future__ import annotations

import functools
import importlib
import pkgutil

import conformance
from conformance.model import Case, Topology
from conformance.plan import Cases


@functools.cache
def groups() -> dict[str, Cases]:
    """What makes the cases of each group, by the group's name."""
    names = (m.name for m in pkgutil.iter_modules(conformance.__path__))
    return {
        name.removeprefix("test_"): importlib.import_module(f"conformance.{name}").cases
        for name in names
        if name.startswith("test_")
    }


def cases_of(topology: Topology) -> list[tuple[str, Case]]:
    """Every case for a topology, with the name of its group."""
    return [(name, case) for name, cases in groups().items() for case in cases(topology)]
