"""Verdicts against what is known: which are as expected, and what is to be said. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from ci.known import Entry, Known
from conformance.deciding import Result
from conformance.model import Topology
from conformance.plan import Planned

#: How a case's say on a clause stands to what is known.
#: ``other kind``: it was known to go wrong, and goes wrong otherwise.
State = Literal[
    "pass", "known", "unexpected failure", "unexpected pass", "other kind", "undecided", "left out"
]
UNEXPECTED: tuple[State, ...] = ("unexpected failure", "unexpected pass", "other kind")
#: The worst first, as a cell that holds several shows it.
WORST: tuple[State, ...] = (*UNEXPECTED, "undecided", "left out", "known", "pass")


class Status(IntEnum):
    """The exit status of the gate."""

    AS_EXPECTED = 0
    NOT_AS_EXPECTED = 1
    COULD_NOT_RUN = 2
    UNDECIDED = 3

    @property
    def words(self) -> str:
        """What it says."""
        return self.name.lower().replace("_", " ")


#: So many clauses or cases are named in a line; the others are counted.
_NAMED = 8


@dataclass(frozen=True)
class Compared:
    """One case's say on one clause, beside what was known of it."""

    result: Result
    state: State
    entry: Entry | None = None

    @property
    def topology(self) -> Topology:
        """Where it ran."""
        return Topology(self.result.processes, self.result.devices)

    @property
    def words(self) -> str:
        """In one sentence, for what is not as expected."""
        return self.told(self.result.clause, str(self.topology))

    def told(self, clauses: str, topologies: str) -> str:
        """The same sentence, of all clauses and topologies that it holds for."""
        r = self.result
        where = f"{clauses}, case {r.case} on {topologies} ({r.kind})"
        match self.state:
            case "unexpected failure":
                return f"unexpected failure: {where}: {r.verdict}: {first_line(r.words)}"
            case "unexpected pass":
                return f"unexpected pass: {where} passes, but is known as: {self.entry}"
            case "other kind":
                return (
                    f"fails otherwise than known: {where}: {r.verdict}: {first_line(r.words)}, "
                    f"but is known as: {self.entry}"
                )
            case _:
                return f"{self.state}: {where}: {first_line(r.words)}"


def first_line(words: str, width: int = 240) -> str:
    """The first line, cut where it is long."""
    line = words.strip().partition("\n")[0]
    return line if len(line) <= width else line[: width - 3] + "..."


@dataclass(frozen=True)
class Comparison:
    """All of a run.

    ``stale`` are entries that match no case of the topologies and sources asked for, chosen or not.
    ``open_clauses`` have cases in this run, none of which gave a verdict. ``lost`` are tests that
    ended without a verdict. ``left_out`` are cases that did not run. ``partial`` says why the run
    is not whole, if so.
    """

    items: list[Compared] = field(default_factory=list)
    stale: list[Entry] = field(default_factory=list)
    open_clauses: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    partial: str = ""

    @property
    def unexpected(self) -> list[Compared]:
        """What is not as expected."""
        return [i for i in self.items if i.state in UNEXPECTED]

    @property
    def status(self) -> Status:
        """The verdict on the run."""
        if self.unexpected or self.stale:
            return Status.NOT_AS_EXPECTED
        if not any(i.state in ("pass", "known") for i in self.items):
            return Status.COULD_NOT_RUN if self.lost or self.partial else Status.UNDECIDED
        undecided = any(i.state == "undecided" for i in self.items)
        if undecided or self.open_clauses or self.lost or self.partial:
            return Status.UNDECIDED
        return Status.AS_EXPECTED

    @property
    def words(self) -> list[str]:
        """All that keeps the run from being as expected, one sentence each.

        A case that says the same on several clauses, or topologies, has one sentence; so have all
        cases that lack the same arguments.
        """
        said = _told(self.unexpected)
        said += [f"an entry matches nothing: {e} ({e.reason})" for e in self.stale]
        said += [f"partial: {self.partial}"] if self.partial else []
        said += [f"no verdict: {name}" for name in self.lost]
        undecided = [i for i in self.items if i.state == "undecided"]
        said += _told(i for i in undecided if i.result.why != "lacks")
        said += _lacking(i.result for i in undecided if i.result.why == "lacks")
        if len(self.open_clauses) > _NAMED:
            said.append(f"not decided: {few_of(self.open_clauses)}: none of their cases ran")
        else:
            said += [f"not decided: {c}: none of its cases ran" for c in self.open_clauses]
        return said

    @property
    def counts(self) -> dict[str, int]:
        """How many says on a clause have each state, the worst first."""
        found = Counter(i.state for i in self.items)
        return {state: found[state] for state in WORST if found[state]}


def _told(items: Iterable[Compared]) -> list[str]:
    """One sentence for a case where it says the same; in words of the smallest topology."""
    on_clauses: dict[tuple[Any, ...], list[Compared]] = {}
    for i in items:
        r = i.result
        same = (i.state, r.case, r.kind, i.topology, r.verdict, first_line(r.words), str(i.entry))
        on_clauses.setdefault(same, []).append(i)
    alike: dict[tuple[Any, ...], list[Compared]] = {}
    for group in on_clauses.values():
        i, r = group[0], group[0].result
        clauses = ", ".join(each.result.clause for each in group)
        key = (i.state, r.case, r.kind, r.verdict, str(i.entry), clauses)
        alike.setdefault(key, []).append(i)
    for group in alike.values():
        group.sort(key=lambda i: (i.result.processes, i.result.devices))
    return [
        group[0].told(key[-1], ", ".join(str(each.topology) for each in group))
        for key, group in alike.items()
    ]


def _lacking(results: Iterable[Result]) -> list[str]:
    """One sentence for each set of arguments that the subject does not have."""
    clauses: dict[str, list[str]] = {}
    for r in results:
        clauses.setdefault(first_line(r.words), []).append(r.clause)
    return [
        f"undecided: {words}: cases of {', '.join(dict.fromkeys(those))}"
        for words, those in clauses.items()
    ]


def few_of(names: Sequence[str]) -> str:
    """The first names of many, and how many more there are; all of them are in report.json."""
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def compare(
    results: Iterable[Result],
    known: Known,
    *,
    everything: Sequence[Planned],
    chosen: Sequence[Planned],
    lost: Sequence[str] = (),
    partial: str = "",
) -> Comparison:
    """Hold results against what is known.

    ``everything`` are the cases of the topologies and sources asked for, ``chosen`` those of them
    that were to run.
    """
    items = [_compared(r, known) for r in results]
    said = {(i.result.clause, i.result.case, i.topology, i.result.kind) for i in items}
    unsaid = [
        p
        for p in chosen
        for c in p.case.clauses[:1]
        if (c, p.case.name, p.topology, p.kind) not in said
    ]
    budget = {_name(i.result) for i in items if i.result.why == "budget"}
    left_out = sorted({*budget, *(f"{p.case.name}-{p.topology}-{p.kind}" for p in unsaid)})
    decided = {i.result.clause for i in items if i.state != "left out"}
    wanted = dict.fromkeys(c for p in chosen for c in p.case.clauses)
    return Comparison(
        items=items,
        stale=[e for e in known.entries if _is_stale(e, everything)],
        open_clauses=[c for c in wanted if c not in decided],
        lost=list(lost),
        left_out=left_out,
        partial=partial,
    )


def _name(result: Result) -> str:
    topology = Topology(result.processes, result.devices)
    return f"{result.case}-{topology}-{result.kind}"


def _compared(result: Result, known: Known) -> Compared:
    topology = Topology(result.processes, result.devices)
    entry = known.entry_for(result.clause, result.case, topology, result.kind)  # type: ignore[arg-type]
    verdict = "lacks" if result.why == "lacks" else result.verdict
    if verdict == "not run":
        return Compared(result, "left out", entry)
    if entry is None:
        # An argument that is lacking leaves its clause open: it was not seen to be broken.
        states: dict[str, State] = {"pass": "pass", "undecided": "undecided", "lacks": "undecided"}
        return Compared(result, states.get(verdict, "unexpected failure"))
    if verdict in entry.outcomes:
        return Compared(result, "pass" if verdict == "pass" else "known", entry)
    if verdict == "undecided":
        return Compared(result, "undecided", entry)
    return Compared(result, "unexpected pass" if verdict == "pass" else "other kind", entry)


def _is_stale(entry: Entry, everything: Sequence[Planned]) -> bool:
    """Whether the run could have shown what an entry says, and has no case for it."""
    here = [p for p in everything if entry.is_in(p.topology, p.kind)]
    return bool(here) and not any(entry.names(c, p.case.name) for p in here for c in p.case.clauses)
