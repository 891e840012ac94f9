"""The verdict on each clause, from all its cases: as values, JSON, and a table to read."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from conformance.account import Account
from conformance.clauses import Clause, clauses
from conformance.deciding import Result

#: The worst first: a clause's verdict is the first of these that one of its cases has. A case that
#: did not run makes its clause a skip: what passed beside it does not speak for it.
ORDER = ("crash", "hang", "fail", "undecided", "not run", "pass")


@dataclass(frozen=True)
class ClauseReport:
    """A clause and what its cases say.

    ``verdict`` is pass, fail, hang, crash or undecided, or skip when some case did not run and the
    others passed; ``reason`` says why for skip. ``smallest`` is the case to look at when it is not
    a pass. ``cases`` are the smallest first.
    """

    clause: Clause
    verdict: str
    cases: tuple[Result, ...] = ()
    reason: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each verdict."""
        return dict(Counter(r.verdict for r in self.cases))

    @property
    def why_skipped(self) -> str:
        """What to say of a skip: whether the cases that ran pass, and what kept the others."""
        passed = self.counts.get("pass", 0)
        if not self.reason or not passed:
            return self.reason
        return f"pass in the {passed} that could run; the others: {self.reason}"

    @property
    def smallest(self) -> Result | None:
        """The smallest case that has the verdict of a clause that does not pass."""
        return next((r for r in self.cases if r.verdict == self.verdict != "pass"), None)


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
    cases = sorted(results, key=lambda r: (r.processes, r.devices, r.rows, r.case, r.nodeid))
    seen = {r.verdict for r in cases}
    verdict = next((v for v in ORDER if v in seen), "not run")
    if verdict != "not run":
        return ClauseReport(clause, verdict, tuple(cases))
    reason = next(
        (r.words for r in cases if r.verdict == verdict),
        "no case of it ran for this subject, these sources and topologies",
    )
    return ClauseReport(clause, "skip", tuple(cases), reason)


def exit_status(reports: Sequence[ClauseReport]) -> int:
    """0: every clause passes. 1: some clause does not. 6: none fails, but some are not decided."""
    verdicts = {r.verdict for r in reports}
    if verdicts & {"fail", "hang", "crash"}:
        return 1
    return 0 if verdicts == {"pass"} else 6


def as_values(
    reports: Sequence[ClauseReport],
    subject: str,
    environment: dict[str, Any],
    accounts: Mapping[str, Account] | None = None,
) -> dict[str, Any]:
    """The report as JSON values: subject, environment, each clause with its verdict and cases.

    ``accounts``, by the name of the test, are what went in, was due and was seen; a case that
    several clauses name has one.
    """
    return {
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
                "cases": [asdict(case) for case in r.cases],
            }
            for r in reports
        ],
        **({} if accounts is None else {"accounts": dict(sorted(accounts.items()))}),
    }


def as_json(
    reports: Sequence[ClauseReport],
    subject: str,
    environment: dict[str, Any],
    accounts: Mapping[str, Account] | None = None,
) -> str:
    """The same as text."""
    return json.dumps(as_values(reports, subject, environment, accounts), indent=1)


def write(text: str, path: Path) -> None:
    """Write a whole file or none: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def show(
    reports: Sequence[ClauseReport],
    command: str,
    stream: TextIO,
    width: int,
    accounts: Mapping[str, Account] | None = None,
) -> None:
    """Print a table a level, then the smallest case of each clause that does not pass, each once.

    ``command`` is what runs one case again, with places for fields of ``Result``. ``accounts``, by
    the name of the test, say what went into a case.
    """
    # Words are shown as they are: their brackets and colons are no markup.
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
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
            table.add_row(r.clause.id, shown, counts, r.why_skipped or r.clause.text)
        console.print(table)
    for same in _by_evidence(reports):
        console.print()
        for r in same:
            console.print(f"{r.clause.id} {r.verdict.upper()}: {r.clause.text}")
        s = same[0].smallest
        assert s is not None
        console.print(f"  case {s.case}, {s.processes} processes of {s.devices} devices, {s.kind}")
        if words := (accounts or {}).get(s.nodeid, {}).get("input_words"):
            console.print(f"  input: {words}")
        for line in s.words.splitlines():
            console.print(f"  {line}")
        again = command.format_map(asdict(s))
        console.print(f"  again: {again}", soft_wrap=True)
    if reports:
        console.print(f"\n{_in_short(reports)}", soft_wrap=True)


def _by_evidence(reports: Sequence[ClauseReport]) -> Iterable[list[ClauseReport]]:
    """The clauses that do not pass, together where one case says the same of them."""
    found: dict[tuple[str, str], list[ClauseReport]] = {}
    for r in reports:
        if r.smallest is not None:
            found.setdefault((r.smallest.nodeid, r.smallest.words), []).append(r)
    return found.values()


def _in_short(reports: Sequence[ClauseReport]) -> str:
    """The clauses once more, at the end: pytest's own last line counts cases."""
    levels = []
    for level in ("core", "extended"):
        rows = [r for r in reports if r.clause.level == level]
        counts = Counter(r.verdict for r in rows)
        passed = f"{counts.pop('pass', 0)} of {len(rows)} clauses pass"
        rest = [f"{n} {verdict}" for verdict, n in counts.items()]
        levels += [f"{level}: {', '.join([passed, *rest])}"] if rows else []
    return "; ".join(levels)
