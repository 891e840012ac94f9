"""Where mutants run: many, one after the other, on the same warm processes."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import conformance
from conformance.gangs import DEADLINE_S, STALL_S
from conformance.judge import judge
from conformance.model import Case, Kind, Topology
from conformance.mutants import subject_of
from conformance.mutants.model import Mutant
from conformance.observe import observe, warm_up
from conformance.plan import Cases
from conformance.sources import ray_shards
from conformance.subjects import Subject
from harness import Gang

#: After so many hangs a mutant is known to be wrong, and each costs seconds.
ENOUGH_HANGS = 2


@dataclass(frozen=True)
class Trial:
    """One case on one topology, from one kind of source."""

    case: Case
    topology: Topology
    kind: Kind

    @property
    def id(self) -> str:
        """The name under which the suite runs it."""
        return f"{self.case.name}-{self.topology}-{self.kind}"

    @property
    def costs(self) -> bool:
        """Whether it takes seconds whatever the subject does."""
        return self.case.spoils or self.case.patience_s > 0


@dataclass
class Fate:
    """What became of one mutant: each clause that did not pass, with verdict, case and words."""

    mutant: str
    origin: str = ""
    killed: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    cases: int = 0


@functools.cache
def groups() -> dict[str, Cases]:
    """What makes the cases of each group of the suite, by the group's name."""
    names = (m.name for m in pkgutil.iter_modules(conformance.__path__))
    modules = {n: importlib.import_module(f"conformance.{n}") for n in names if n[:5] == "test_"}
    return {n.removeprefix("test_"): m.cases for n, m in modules.items() if hasattr(m, "cases")}


def trials(topology: Topology, kind: Kind = "memory", clause: str = "") -> list[Trial]:
    """The cases of all clauses, or of one, those that cost little first."""
    found = [
        Trial(case, topology, kind)
        for cases in groups().values()
        for case in cases(topology)
        if kind in case.kinds and (not clause or clause in case.clauses)
    ]
    return sorted(found, key=lambda t: t.costs)


def one_a_clause(given: Sequence[Trial]) -> Iterator[Trial]:
    """The first trial of each clause, but for those that cost seconds."""
    seen: set[str] = set()
    for trial in given:
        if not trial.costs and not seen.issuperset(trial.case.clauses):
            seen.update(trial.case.clauses)
            yield trial


class Arena:
    """Warm gangs, at most one of each kind at a time, on which any subject can run."""

    def __init__(self) -> None:
        self._gangs: dict[Kind, tuple[Topology, Gang]] = {}
        self._cluster = ExitStack()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *exc: object) -> None:
        for _topology, gang in self._gangs.values():
            gang.close()
        self._gangs.clear()
        self._cluster.close()

    def fate(
        self, mutant: Mutant, given: Iterable[Trial], *, first: bool = True, clause: str = ""
    ) -> Fate:
        """Run a mutant on these cases, up to the first that it does not pass, or on all.

        A case whose clauses are all decided is left out. Of a mutant that hangs, only as many
        cases as it takes to be sure. ``clause``: only this one is looked at.
        """
        fate = Fate(mutant.name, mutant.origin)
        subject = subject_of(mutant.name)
        passed: set[str] = set()
        hangs = 0
        for trial in given:
            if fate.killed.keys() >= set(trial.case.clauses) or subject.lacks(trial.case):
                continue
            fate.cases += 1
            for named, verdict in self.verdicts(subject, trial).items():
                if clause and named != clause:
                    continue
                if verdict[0] == "pass":
                    passed.add(named)
                elif named not in fate.killed:
                    fate.killed[named] = (verdict[0], trial.id, verdict[1])
            hangs += any(v[0] in ("hang", "undecided") for v in fate.killed.values())
            if fate.killed and (first or hangs >= ENOUGH_HANGS):
                break
        fate.passed = sorted(passed - fate.killed.keys())
        return fate

    def verdicts(self, subject: Subject, trial: Trial) -> dict[str, tuple[str, str]]:
        """Kind and words of the verdict on each clause of one case."""
        case, topology, kind = trial.case, trial.topology, trial.kind
        gang = self._gang(topology, kind)
        sources: Sequence[tuple[Any, ...]] = [()] * topology.processes
        if kind == "ray":
            shards = (ray_shards(case, topology.processes) for _ in range(case.use.iterators))
            sources = list(zip(*shards, strict=True))
        outcomes = gang.run(
            observe,
            per_rank=[(subject, case, kind, *source) for source in sources],
            stall_s=STALL_S[kind] + case.patience_s,
            deadline_s=DEADLINE_S,
            stops=case.use.stopped,
        )
        if case.spoils:
            self._gangs.pop(kind)[1].close()
        return {c: (v.kind, v.words) for c, v in judge(case, topology, outcomes).items()}

    def _gang(self, topology: Topology, kind: Kind) -> Gang:
        if kind in self._gangs:
            current, gang = self._gangs[kind]
            if current == topology:
                return gang
            del self._gangs[kind]
            gang.close()
        if kind == "ray":
            from harness.backends.ray_cluster import enter

            self._cluster.callback(enter())
        gang = Gang(topology.processes, topology.devices, "ray" if kind == "ray" else "local")
        self._gangs[kind] = (topology, gang)
        gang.prepare(warm_up)
        return gang
