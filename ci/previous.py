"""The run before: what changed since, and which clauses to look at first. Pure, but for reading."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.deciding import Result

#: Clause, case, processes, devices, kind of source.
Say = tuple[str, str, int, int, str]


class PreviousError(ValueError):
    """A report that cannot be compared with."""


@dataclass(frozen=True)
class Change:
    """One say on a clause that is not as before; ``before`` or ``now`` is "not run" if it was."""

    say: Say
    before: str
    now: str

    def __str__(self) -> str:
        clause, case, processes, devices, kind = self.say
        return (
            f"{clause}, case {case} on p{processes}d{devices} ({kind}): {self.before} -> {self.now}"
        )


@dataclass(frozen=True)
class Previous:
    """The verdicts of a run before, what it ran on in words, and how long each case took."""

    about: str
    verdicts: Mapping[Say, str] = field(default_factory=dict)
    durations_s: Mapping[str, float] = field(default_factory=dict)
    unexpected: frozenset[str] = frozenset()

    def changes(self, results: Iterable[Result]) -> list[Change]:
        """What is not as before, of what both runs decided."""
        now = {_say(r): r.verdict for r in results if r.verdict != "not run"}
        before = {s: v for s, v in self.verdicts.items() if v != "not run"}
        return [Change(s, before[s], now[s]) for s in now if before.get(s, now[s]) != now[s]]


def _say(result: Result) -> Say:
    return (result.clause, result.case, result.processes, result.devices, result.kind)


def read(path: Path, subject: str) -> Previous:
    """Read the report of a run before. Raises PreviousError with what is wrong with it."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["subject"] != subject:
            raise PreviousError(f"{path} is of subject {report['subject']!r}, not of {subject!r}")
        results = [Result(**c) for clause in report["clauses"] for c in clause["cases"]]
        versions = report["environment"]["versions"]
        accounts = report.get("accounts", {})
        states = report.get("gate", {}).get("states", [])
        return Previous(
            f"jax {versions['jax']}, ray {versions['ray']}",
            {_say(r): r.verdict for r in results},
            {name: float(a["duration_s"]) for name, a in accounts.items()},
            frozenset(s["clause"] for s in states if s["state"] not in ("pass", "known")),
        )
    except PreviousError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PreviousError(f"{path} is no report of the suite or the gate ({error!r})") from error
