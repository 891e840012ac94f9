"""Which cases run: those of a group, on every topology and kind of source asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from conformance.clauses import clauses
from conformance.model import Case, Kind, Topology
from conformance.subjects import Subject

Cases = Callable[[Topology], Iterable[Case]]


@dataclass(frozen=True)
class Planned:
    """One case on one topology from one kind of source."""

    case: Case
    topology: Topology
    kind: Kind

    @property
    def id(self) -> str:
        """The name that selects just this run."""
        return f"{self.case.name}-{self.topology}-{self.kind}"


def plan(
    cases: Cases,
    subject: Subject,
    topologies: Sequence[Topology],
    kinds: Sequence[Kind],
    level: str,
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
                    yield Planned(replace(case, clauses=wanted), topology, kind)


def few(found: Sequence[Planned]) -> list[Planned]:
    """One case of each clause and kind of source, and none that wants fresh processes after it.

    Fresh processes cost seconds, more than all cases that keep them warm together.
    """
    seen: Counter[tuple[str, Kind]] = Counter()
    kept = []
    for each in sorted(found, key=lambda p: (p.case.patience_s, p.case.needs_tasks)):
        keys = [(clause, each.kind) for clause in each.case.clauses]
        if not each.case.spoils and not all(seen[key] for key in keys):
            seen.update(keys)
            kept.append(each)
    return kept
