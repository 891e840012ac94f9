"""Which cases run: those of a group, on every topology and kind of source asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.clauses import clauses
from conformance.model import Case, Kind, Topology
from conformance.subjects import Subject

Cases = Callable[[Topology], Iterable[Case]]


@dataclass(frozen=True)
class Planned:
    """One case on one topology from one kind of source; ``group`` is the file that has it."""

    case: Case
    topology: Topology
    kind: Kind
    group: str = ""

    @property
    def id(self) -> str:
        """The name that selects just this run."""
        return f"{self.case.name}-{self.topology}-{self.kind}"

    @property
    def key(self) -> str:
        """The name that no other run has: that of the file and that within it."""
        return f"{self.group}::{self.id}"


def gang_of(test: str) -> str:
    """Which cases must follow each other on one worker: those of a topology; on Ray all, since
    each worker would start a cluster. From the name of a test, which ends in that of its case.
    """
    topology, _, kind = test.rstrip("]").rpartition("-")
    return "ray" if kind == "ray" else topology.rpartition("-")[2]


def plan(
    cases: Cases,
    subject: Subject,
    topologies: Sequence[Topology],
    kinds: Sequence[Kind],
    level: str,
    group: str = "",
) -> Iterator[Planned]:
    """Every run of a group of cases for a subject, a topology after the other."""
    known = clauses()
    for kind in kinds:
        if kind not in subject.kinds:
            continue
        for topology in topologies:
            for case in cases(topology):
                wanted = tuple(c for c in case.clauses if level in ("all", known[c].level))
                if wanted and kind in case.kinds:
                    yield Planned(replace(case, clauses=wanted), topology, kind, group)


def plan_all(
    subject: Subject, topologies: Sequence[Topology], kinds: Sequence[Kind], level: str
) -> list[Planned]:
    """Every run of every group, in the order of their files."""
    planned: list[Planned] = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"conformance.{path.stem}")
        if hasattr(module, "cases"):
            planned += plan(module.cases, subject, topologies, kinds, level, path.stem)
    return planned
