"""The verdict on each clause, from all its cases: as values, JSON, and a table to read."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from conformance.clauses import Clause, clauses
from conformance.deciding import Result

#: The worst first: a clause's verdict is the first of these that one of its cases has.
ORDER = ("crash", "hang", "fail", "undecided", "pass")


@dataclass(frozen=True)
class ClauseReport:
    """A clause and what its cases say.

    ``verdict`` is pass, fail, hang, crash or undecided, or skip when no case could decide;
    ``reason`` says why for skip. ``smallest`` is the case to look at when it is not a pass.
    """

    clause: Clause
    verdict: str
    counts: dict[str, int]
    smallest: Result | None
    reason: str = ""


def summarise(results: Iterable[Result], *, level: str, narrowed: bool) -> list[ClauseReport]:
    """One report a clause, in the order of the specification.

    ``narrowed``: the user chose cases, so clauses without a case are left out rather than skipped.
    """
    by_clause: dict[str, list[Result]] = {}
    for result in results:
        by_clause.setdefault(result.clause, []).append(result)
    reports = []
    for clause in clauses().values():
        own = by_clause.get(clause.id, [])
        if level not in ("all", clause.level) or (narrowed and not own):
            continue
        reports.append(_clause(clause, own))
    return reports


def _clause(clause: Clause, results: Sequence[Result]) -> ClauseReport:
    counts = Counter(r.verdict for r in results)
    verdict = next((v for v in ORDER if counts[v]), "skip")
    reason = ""
    if verdict == "skip":
        reason = next(
            (r.words for r in results),
            "no case of it ran for this subject, these sources and topologies",
        )
    wrong = [r for r in results if r.verdict == verdict != "pass"]
    smallest = min(wrong, key=lambda r: (r.processes, r.devices, r.rows, r.case), default=None)
    return ClauseReport(clause, verdict, dict(counts), smallest, reason)


def exit_status(reports: Sequence[ClauseReport]) -> int:
    """0: every clause passes. 1: some clause does not. 6: none fails, but some are not decided."""
    verdicts = {r.verdict for r in reports}
    if verdicts & {"fail", "hang", "crash"}:
        return 1
    return 0 if verdicts == {"pass"} else 6


def as_json(reports: Sequence[ClauseReport], subject: str, environment: dict[str, Any]) -> str:
    """The report as JSON: subject, environment, and for each clause its verdict and counts."""
    return json.dumps(
        {
            "subject": subject,
            "environment": environment,
            "clauses": [
                {
                    "id": r.clause.id,
                    "level": r.clause.level,
                    "text": r.clause.text,
                    "source": r.clause.source,
                    "verdict": r.verdict,
                    "reason": r.reason,
                    "counts": r.counts,
                    "smallest": None if r.smallest is None else asdict(r.smallest),
                }
                for r in reports
            ],
        },
        indent=2,
    )


def write(text: str, path: Path) -> None:
    """Write a whole file or none: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def show(reports: Sequence[ClauseReport], command: str, stream: TextIO, width: int) -> None:
    """Print a table a level, then the smallest case of each clause that does not pass.

    ``command`` is what runs one case again, with places for fields of ``Result``.
    """
    console = Console(file=stream, width=width, highlight=False, soft_wrap=False)
    for level in ("core", "extended"):
        rows = [r for r in reports if r.clause.level == level]
        if not rows:
            continue
        passed = sum(r.verdict == "pass" for r in rows)
        table = Table(
            expand=True,
            title=f"{level}: {passed} of {len(rows)} clauses pass",
            title_justify="left",
        )
        table.add_column("clause", min_width=8)
        table.add_column("verdict", min_width=9)
        table.add_column("cases", min_width=14)
        table.add_column("what it asks", no_wrap=True, overflow="ellipsis", ratio=1)
        for r in rows:
            counts = ", ".join(f"{n} {v}" for v, n in sorted(r.counts.items()))
            shown = r.verdict if r.verdict == "pass" else r.verdict.upper()
            table.add_row(r.clause.id, shown, counts, r.reason or r.clause.text)
        console.print(table)
    for r in reports:
        if r.smallest is not None:
            console.print(f"\n{r.clause.id} {r.verdict.upper()}: {r.clause.text}", markup=False)
            s = r.smallest
            console.print(
                f"  case {s.case}, {s.processes} processes of {s.devices} devices, {s.kind}",
                markup=False,
            )
            for line in s.words.splitlines():
                console.print(f"  {line}", markup=False)
            again = command.format_map(asdict(s))
            console.print(f"  again: {again}", markup=False, soft_wrap=True)
