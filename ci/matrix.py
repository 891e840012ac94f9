"""Clause x topology: what each cell of the matrix says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ci.compare import UNEXPECTED, WORST, Compared, State
from ci.record import Record
from conformance.clauses import Clause

#: A sign beside the words, so that a cell can be told at a glance, without colour.
SIGNS: dict[State, str] = {
    "pass": "✓",
    "known": "≈",
    "unexpected failure": "✗",
    "unexpected pass": "!",
    "other kind": "≠",
    "undecided": "?",
    "left out": "…",
}


@dataclass(frozen=True, order=True)
class Column:
    """One column: a topology and a kind of source."""

    processes: int
    devices: int
    kind: str

    @property
    def title(self) -> str:
        """Its head."""
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return f"{self.processes} processes of {devices}, {self.kind}"

    @property
    def name(self) -> str:
        """The same as part of an anchor."""
        return f"p{self.processes}d{self.devices}-{self.kind}"


@dataclass(frozen=True)
class Cell:
    """The says of one clause in one column, the worst first."""

    items: tuple[Compared, ...]

    @property
    def state(self) -> State:
        """The worst state in it."""
        return self.items[0].state

    @property
    def words(self) -> str:
        """A sign, and how many cases have which verdict."""
        verdicts = Counter(_word(i) for i in self.items)
        told = ", ".join(f"{n} {v}" for v, n in verdicts.items())
        return f"{SIGNS[self.state]} {told}"


def _word(item: Compared) -> str:
    verdict = "not run" if item.state == "left out" else item.result.verdict
    if item.state == "known":
        lacks = item.result.why == "lacks"
        return "lacking, known" if lacks else f"{verdict}, known"
    return f"{verdict}, UNEXPECTED" if item.state in UNEXPECTED else verdict


def _column(item: Compared) -> Column:
    return Column(item.result.processes, item.result.devices, item.result.kind)


def columns(record: Record) -> list[Column]:
    """The columns that have a say."""
    return sorted({_column(i) for i in record.comparison.items})


def cells(record: Record) -> Iterator[tuple[Clause, list[Cell | str]]]:
    """Each clause with a cell a column; in words why there is none where no case ran."""
    found: dict[tuple[str, Column], list[Compared]] = {}
    for item in record.comparison.items:
        found.setdefault((item.result.clause, _column(item)), []).append(item)
    spared = {
        (clause, Column(p.topology.processes, p.topology.devices, p.kind))
        for p in record.spared
        for clause in p.case.clauses
    }
    heads = columns(record)
    for report in record.clauses:
        row: list[Cell | str] = []
        for head in heads:
            place = (report.clause.id, head)
            if items := found.get(place):
                row.append(Cell(tuple(sorted(items, key=lambda i: WORST.index(i.state)))))
            else:
                row.append("spared: known to hang" if place in spared else "-")
        yield report.clause, row
