"""All that one run of the gate says, as one value; its JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ci.compare import Compared, Comparison
from ci.previous import Change
from conformance import report
from conformance.account import Account
from conformance.clauses import Clause, clauses
from conformance.plan import Planned
from conformance.report import ClauseReport


@dataclass(frozen=True)
class Record:
    """One run.

    ``known`` says in words what was compared with. ``outside`` are clauses without a case for the
    sources and topologies asked for. ``spared`` are cases that were left out because a hang like
    theirs, as known, was run. ``before`` says what was compared with, empty for nothing.
    ``chosen`` cases were to run, of ``possible`` ones for the topologies, sources and level.
    ``command`` runs the gate again, ``again`` one case, with places for its name and topology.
    """

    subject: str
    version: str
    environment: Mapping[str, Any]
    comparison: Comparison
    accounts: Mapping[str, Account]
    level: str
    profile: str
    known: str
    command: str
    again: str
    chosen: int = 0
    possible: int = 0
    elapsed_s: float = 0.0
    budget_minutes: float | None = None
    spared: Sequence[Planned] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    changes: Sequence[Change] = ()

    @property
    def clauses(self) -> list[ClauseReport]:
        """The clauses that have a case, as the suite reports them."""
        results = [i.result for i in self.comparison.items]
        return report.summarise(results, level=self.level, narrowed=True)

    @property
    def outside(self) -> list[Clause]:
        """Clauses of the level that this run has no case for."""
        within = {c.clause.id for c in self.clauses} | set(self.comparison.open_clauses)
        wanted = [c for c in clauses().values() if self.level in ("all", c.level)]
        return [c for c in wanted if c.id not in within]

    @property
    def scope(self) -> str:
        """How much of what could run was chosen."""
        return (
            f"Profile {self.profile}: {self.chosen:,} of the {self.possible:,} cases for these "
            "topologies, sources and clauses"
        )

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        c = self.comparison
        counts = ", ".join(f"{n} {state}" for state, n in c.counts.items())
        what = f"{self.subject} {self.version}".strip()
        return f"{what}: {c.status.words.upper()} ({counts or 'no verdict'})"

    def again_of(self, item: Compared) -> str:
        """The command that runs one case again."""
        r = item.result
        return self.again.format(nodeid=r.nodeid, processes=r.processes, devices=r.devices)


def as_json(record: Record) -> str:
    """The report of the suite, and what the gate adds to it under ``gate``."""
    c = record.comparison
    values = report.as_values(
        record.clauses, record.subject, dict(record.environment), record.accounts
    )
    values["gate"] = {
        "status": int(c.status),
        "verdict": c.status.words,
        "partial": c.partial,
        "profile": record.profile,
        "cases_chosen": record.chosen,
        "cases_possible": record.possible,
        "subject_version": record.version,
        "known": record.known,
        "command": record.command,
        "elapsed_s": round(record.elapsed_s, 1),
        "budget_minutes": record.budget_minutes,
        "counts": c.counts,
        "words": c.words,
        "states": [_state(i) for i in c.items],
        "stale_entries": [str(e) for e in c.stale],
        "clauses_not_decided": c.open_clauses,
        "clauses_without_a_case": [x.id for x in record.outside],
        "cases_left_out": c.left_out,
        "cases_spared": [p.id for p in record.spared],
        "cases_without_a_verdict": dict(record.lost),
        "before": record.before,
        "changes": [str(change) for change in record.changes],
    }
    return json.dumps(values, indent=1)


def _state(item: Compared) -> dict[str, Any]:
    r = item.result
    said: dict[str, Any] = {"clause": r.clause, "nodeid": r.nodeid, "state": item.state}
    if item.entry is not None:
        said["known"] = str(item.entry)
        said["reason"] = item.entry.reason
        said["link"] = item.entry.link
    return said
