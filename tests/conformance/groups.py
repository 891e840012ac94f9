"""All cases of the suite, by group."""

from __future__ import annotations

from conformance.model import Case, Topology
from conformance.mutants.arena import groups


def cases_of(topology: Topology) -> list[tuple[str, Case]]:
    """Every case for a topology, with the name of its group."""
    return [(name, case) for name, cases in groups().items() for case in cases(topology)]
