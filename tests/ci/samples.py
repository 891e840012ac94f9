"""Results, cases and runs, made up for tests of what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

from ci.compare import compare
from ci.known import Entry, Known
from ci.record import Record
from conformance.deciding import Result, Why
from conformance.model import Case, Kind, Shard, Topology, Use
from conformance.plan import Planned

LINK = "https://example.org/issue"


def result(
    verdict: str,
    clause: str = "COUNT-3",
    case: str = "skew",
    *,
    processes: int = 2,
    kind: Kind = "memory",
    words: str | None = None,
    why: Why = "",
) -> Result:
    """What one case says on one clause."""
    said = words if words is not None else ("" if verdict == "pass" else f"{case} was {verdict}")
    node = f"conformance/test_count.py::test_count[{case}-p{processes}d1-{kind}]"
    return Result(clause, verdict, said, case, node, processes, 1, kind, 8, why)


def planned(
    case: str = "skew",
    clauses: Sequence[str] = ("COUNT-3",),
    *,
    processes: int = 2,
    devices: int = 1,
    kind: Kind = "memory",
    leave: bool = False,
) -> Planned:
    """One case to run; with ``leave`` it spoils its processes."""
    use = Use(leave={0: 1}) if leave else Use()
    made = Case(case, tuple(clauses), shards=(Shard((4,)),) * processes, use=use)
    return Planned(made, Topology(processes, devices), kind, "test_count")


def entry(clause: str = "COUNT-3", outcome: str = "fail", **fields: object) -> Entry:
    """What is known of a clause."""
    values = {"clause": clause, "outcome": outcome, "reason": "it is so", "link": LINK, **fields}
    return Entry.model_validate(values)


def record(
    results: Sequence[Result],
    known: Sequence[Entry] = (),
    *,
    chosen: Sequence[Planned] | None = None,
    accounts: dict[str, dict[str, object]] | None = None,
    partial: str = "",
    lost: dict[str, str] | None = None,
) -> Record:
    """A run of the gate that gave these results."""
    cases = [planned(r.case, (r.clause,), processes=r.processes) for r in results]
    wanted = cases if chosen is None else chosen
    lost = lost or {}
    return Record(
        subject="some:thing",
        version="1.0",
        environment={
            "versions": {"jax": "0.10.2", "ray": "2.60.0"},
            "platform": "Linux",
            "cpus": 2,
            "commit": "commit 0123456789ab",
        },
        comparison=compare(
            results,
            Known(tuple(known)),
            everything=[*cases, *wanted],
            chosen=wanted,
            lost=list(lost),
            partial=partial,
        ),
        accounts=accounts or {},
        level="all",
        profile="fast",
        known="known results of thing-1.toml",
        command="python -m ci.gate --subject some:thing",
        again="python -m pytest '{nodeid}' --processes {processes} --devices {devices}",
        chosen=len(wanted),
        possible=1471,
        lost=lost,
    )
