"""From a planned case to its verdicts, within pytest."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest

from conformance.account import Account, account
from conformance.gangs import Gangs
from conformance.judge import Verdict, judge
from conformance.plan import Planned
from conformance.subjects import Subject

Decide = Callable[[Planned], None]
Why = Literal["", "lacks", "hangs", "budget"]

#: Where a test keeps the account of its case until its report is made.
ACCOUNT = pytest.StashKey[Account]()

#: After so many hangs of a clause its other cases are not run: each costs seconds.
ENOUGH_HANGS = 3


@dataclass(frozen=True)
class Result:
    """One case's say on one clause, as it travels from a worker to the report.

    ``verdict`` is pass, fail, hang, crash, undecided, or "not run". ``why`` says of a case that was
    not run what kept it: the subject ``lacks`` an argument, earlier ``hangs`` of its clauses, or
    the ``budget`` was spent.
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
    why: Why = ""


@dataclass(frozen=True)
class Budget:
    """Until when cases may run, on the machine's monotonic clock, and what each is likely to cost.

    ``costs_s`` is by `Planned.key`; a case without an entry costs nothing.
    """

    until_s: float
    costs_s: dict[str, float]

    def is_spent(self, planned: Planned) -> bool:
        """Whether the case would, by its cost, end too late."""
        return time.monotonic() + self.costs_s.get(planned.key, 0.0) > self.until_s


class Decider:
    """Runs cases and keeps count of hangs."""

    def __init__(self, subject: Subject, gangs: Gangs, budget: Budget | None = None) -> None:
        self._subject = subject
        self._gangs = gangs
        self._budget = budget
        self._hangs: Counter[str] = Counter()

    def decide(self, planned: Planned, item: pytest.Item) -> None:
        """Run one case; fail the test unless each of its clauses passes."""
        case, broken = planned.case, None
        why, words = self._not_run(planned)
        if why:
            verdicts = dict.fromkeys(case.clauses, ("not run", words))
        else:
            judged, broken, told = self._run(planned)
            item.stash[ACCOUNT] = told
            verdicts = {clause: (v.kind, v.words) for clause, v in judged.items()}
            # One that spins for ever is busy up to the deadline, so it is never said to hang.
            endless = ("hang",) if broken else ("hang", "undecided")
            self._hangs.update(c for c, v in judged.items() if v.kind in endless)
        results = [_result(planned, item, c, *verdict, why) for c, verdict in verdicts.items()]
        item.user_properties.append(("conformance", json.dumps([asdict(r) for r in results])))
        if why:
            pytest.skip(words)
        if broken:
            raise broken
        wrong = [f"{r.clause} {r.verdict}: {r.words}" for r in results if r.verdict != "pass"]
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)

    def _run(self, planned: Planned) -> tuple[dict[str, Verdict], Exception | None, Account]:
        """The verdicts; a defect of the suite itself leaves its clauses undecided, never passed."""
        case, topology = planned.case, planned.topology
        try:
            outcomes = self._gangs.run(case, topology, planned.kind)
            verdicts = judge(case, topology, outcomes)
            whole = any(v.kind != "pass" for v in verdicts.values())
            return verdicts, None, account(case, topology, outcomes, whole=whole)
        except Exception as error:  # noqa: BLE001  it is raised again once the verdict is kept
            words = f"the suite failed: {type(error).__name__}: {error}"
            verdicts = dict.fromkeys(case.clauses, Verdict("undecided", words))
            return verdicts, error, {}

    def _not_run(self, planned: Planned) -> tuple[Why, str]:
        """What keeps the case from being run, if anything, and the same in words."""
        lacks = self._subject.lacks(planned.case)
        if lacks:
            return "lacks", f"the subject has no argument {lacks}"
        tired = [c for c in planned.case.clauses if self._hangs[c] >= ENOUGH_HANGS]
        if tired and len(tired) == len(planned.case.clauses):
            words = f"not run: {ENOUGH_HANGS} cases of {', '.join(tired)} did not end before it"
            return "hangs", words
        if self._budget is not None and self._budget.is_spent(planned):
            return "budget", "left out: the time that was given is spent"
        return "", ""


def _result(
    planned: Planned, item: pytest.Item, clause: str, verdict: str, words: str, why: Why
) -> Result:
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
        why=why,
    )


def results_of(properties: list[tuple[str, Any]]) -> list[Result]:
    """The results that a test report carries."""
    return [
        Result(**r) for name, rows in properties if name == "conformance" for r in json.loads(rows)
    ]
