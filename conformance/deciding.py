"""From a planned case to its verdicts, within pytest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from conformance.gangs import Gangs
from conformance.judge import Verdict, judge
from conformance.plan import Planned
from conformance.subjects import Subject

Decide = Callable[[Planned], None]

#: After so many hangs of a clause its other cases are not run: each costs seconds.
ENOUGH_HANGS = 3


@dataclass(frozen=True)
class Result:
    """One case's say on one clause, as it travels from a worker to the report.

    ``verdict`` is pass, fail, hang, crash, undecided, or "not run".
    """

    clause: str
    verdict: str
    words: str
    case: str
    nodeid: str
    processes: int
    devices: int
    kind: str
    rows: int


class Decider:
    """Runs cases and keeps count of hangs."""

    def __init__(self, subject: Subject, gangs: Gangs) -> None:
        self._subject = subject
        self._gangs = gangs
        self._hangs: Counter[str] = Counter()

    def decide(self, planned: Planned, item: pytest.Item) -> None:
        """Run one case; fail the test unless each of its clauses passes."""
        case, broken = planned.case, None
        if why := self._not_run(planned):
            verdicts = dict.fromkeys(case.clauses, ("not run", why))
        else:
            judged, broken = self._run(planned)
            verdicts = {clause: (v.kind, v.words) for clause, v in judged.items()}
            # One that spins for ever is busy up to the deadline, so it is never said to hang.
            endless = ("hang",) if broken else ("hang", "undecided")
            self._hangs.update(c for c, v in judged.items() if v.kind in endless)
        results = [_result(planned, item, c, *verdict) for c, verdict in verdicts.items()]
        item.user_properties.append(("conformance", json.dumps([asdict(r) for r in results])))
        if why:
            pytest.skip(why)
        if broken:
            raise broken
        wrong = [f"{r.clause} {r.verdict}: {r.words}" for r in results if r.verdict != "pass"]
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)

    def _run(self, planned: Planned) -> tuple[dict[str, Verdict], Exception | None]:
        """The verdicts; a defect of the suite itself leaves its clauses undecided, never passed."""
        try:
            outcomes = self._gangs.run(planned.case, planned.topology, planned.kind)
            return judge(planned.case, planned.topology, outcomes), None
        except Exception as error:  # noqa: BLE001  it is raised again once the verdict is kept
            words = f"the suite failed: {type(error).__name__}: {error}"
            return dict.fromkeys(planned.case.clauses, Verdict("undecided", words)), error

    def _not_run(self, planned: Planned) -> str:
        lacks = self._subject.lacks(planned.case)
        if lacks:
            return f"the subject has no argument {lacks}"
        tired = [c for c in planned.case.clauses if self._hangs[c] >= ENOUGH_HANGS]
        if tired and len(tired) == len(planned.case.clauses):
            return f"not run: {ENOUGH_HANGS} cases of {', '.join(tired)} did not end before it"
        return ""


def _result(planned: Planned, item: pytest.Item, clause: str, verdict: str, words: str) -> Result:
    case, topology = planned.case, planned.topology
    return Result(
        clause=clause,
        verdict=verdict,
        words=words,
        case=case.name,
        nodeid=item.nodeid,
        processes=topology.processes,
        devices=topology.devices,
        kind=planned.kind,
        rows=sum(s.rows for s in case.shards) or sum(case.split.blocks if case.split else ()),
    )


def results_of(properties: list[tuple[str, Any]]) -> list[Result]:
    """The results that a test report carries."""
    return [
        Result(**r) for name, rows in properties if name == "conformance" for r in json.loads(rows)
    ]
