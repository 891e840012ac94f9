"""Run the catalogue from the command line, and show what each subject makes of each report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.catalogue import ENTRIES, Entry, UnknownReportError, find, link
from conformance.catalogue_harness import HARNESS_ENTRIES, HarnessEntry
from conformance.clauses import clauses
from conformance.environment import interpreter
from conformance.gangs import Gangs
from conformance.judge import Verdict, judge
from conformance.model import Case, Kind, Topology
from conformance.report import ORDER, write
from conformance.showing import show
from conformance.subjects import NAMED, Subject, SubjectError
from conformance.subjects import find as find_subject

HARNESS = "harness"


@dataclass(frozen=True)
class Finding:
    """What one subject makes of one report.

    ``verdict`` is pass, fail, hang, crash, undecided or "not run". ``failed`` are the clauses that
    do not pass; ``extended`` is whether all of them are this project's own promises. ``words`` say
    what was wrong.
    """

    report: str
    subject: str
    kind: str
    verdict: str
    failed: tuple[str, ...] = ()
    extended: bool = False
    words: str = ""

    def shown(self) -> str:
        """The cell of the table."""
        if self.verdict == "pass" or not self.failed:
            return self.verdict
        own = " (extended)" if self.extended else ""
        return f"{self.verdict.upper()} {', '.join(self.failed)}{own}"


def finding(case: Case, subject: Subject, kind: Kind, verdicts: dict[str, Verdict]) -> Finding:
    """Put the verdicts on a case's clauses into one: the worst of them."""
    verdict = next(v for v in ORDER if v in {own.kind for own in verdicts.values()})
    failed = tuple(clause for clause, own in verdicts.items() if own.kind != "pass")
    levels = {clauses()[clause].level for clause in failed}
    words = next((own.words for own in verdicts.values() if own.kind == verdict), "")
    return Finding(case.name, subject.name, kind, verdict, failed, levels == {"extended"}, words)


def kind_for(case: Case, subject: Subject, sources: Sequence[Kind]) -> Kind | None:
    """The first kind of source that is asked for, and that both the case and the subject have."""
    return next((k for k in sources if k in case.kinds and k in subject.kinds), None)


def findings(
    entries: Sequence[Entry], subject: Subject, sources: Sequence[Kind]
) -> Iterator[Finding]:
    """Run entries on a subject, one kind of source and one topology after the other."""
    planned: list[tuple[Kind, Topology, Case]] = []
    for entry in entries:
        case = entry.case(entry.topology)
        if not set(sources) & set(case.kinds):
            print(f"{entry.name} is left out: it needs --sources {','.join(case.kinds)}")
            continue
        kind = kind_for(case, subject, sources)
        lacks = subject.lacks(case) if kind else ""
        if kind is None or lacks:
            why = f"the subject has no argument {lacks}" if lacks else "no source for it"
            yield Finding(entry.name, subject.name, "", "not run", words=why)
        else:
            planned.append((kind, entry.topology, case))
    planned.sort(key=lambda p: (p[0], p[1].processes, p[1].devices))
    gangs = Gangs(subject)
    try:
        for kind, topology, case in planned:
            try:
                verdicts = judge(case, topology, gangs.run(case, topology, kind))
            except Exception as error:  # noqa: BLE001  one case's trouble is not the others'
                words = f"the suite failed: {type(error).__name__}: {error}"
                verdicts = dict.fromkeys(case.clauses, Verdict("undecided", words))
            yield finding(case, subject, kind, verdicts)
    finally:
        gangs.close()


def table(found: Sequence[Finding]) -> Table:
    """Reports down, subjects across."""
    subjects = list(dict.fromkeys(f.subject for f in found))
    cells = {(f.report, f.subject): f.shown() for f in found}
    shown = Table("report", "clauses", *subjects)
    order: list[Entry | HarnessEntry] = [*ENTRIES, *HARNESS_ENTRIES]
    for entry in order:
        if any(f.report == entry.name for f in found):
            about = ", ".join(_clauses_of(entry)) if isinstance(entry, Entry) else "the harness"
            shown.add_row(entry.name, about, *(cells.get((entry.name, s), "") for s in subjects))
    return shown


def _clauses_of(entry: Entry) -> tuple[str, ...]:
    return entry.case(entry.topology).clauses


def status(found: Sequence[Finding]) -> int:
    """0: all pass. 1: some do not. 6: none fails, but some were not decided."""
    verdicts = {f.verdict for f in found}
    if verdicts & {"fail", "hang", "crash"}:
        return 1
    return 0 if verdicts == {"pass"} else 6


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance.catalogue", description=__doc__)
    parser.add_argument("reports", nargs="*", help="such as ray-66085; all where none is given")
    parser.add_argument(
        "--subject",
        default="jaxiter",
        help=f"one or more of {', '.join(NAMED)}, module:attribute, with commas between; "
        "or none, for the harness alone (default: %(default)s)",
    )
    parser.add_argument(
        "--sources",
        default="memory,ray",
        help="a case runs on the first of these that it and the subject have (default: "
        "%(default)s; memory alone needs no Ray cluster)",
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the findings there too")
    return parser.parse_args(given)


def _listed() -> Iterator[str]:
    for entry in ENTRIES:
        yield f"{', '.join(entry.reports)}  [{', '.join(_clauses_of(entry))}]"
        yield from (f"  trigger: {entry.trigger}", f"  right:   {entry.right}")
        yield from (f"  {link(report)}" for report in entry.reports)
    for own in HARNESS_ENTRIES:
        yield f"{own.name}  [{HARNESS}]"
        yield from (f"  trigger: {own.trigger}", f"  right:   {own.right}")
        yield f"  {link(own.name.removesuffix('-harness'))}"


def main(given: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit status: see ``status``; 4 for options that cannot be used."""
    options = _arguments(given)
    if options.list:
        show("\n".join(_listed()))
        return 0
    about_harness = {e.name: e for e in HARNESS_ENTRIES}
    try:
        kinds: list[Kind] = ["memory", "ray"]
        sources = [k for k in kinds if k in options.sources.split(",")]
        if set(options.sources.split(",")) - set(kinds):
            raise ValueError(f"--sources {options.sources!r}: give memory, ray or both")
        names = [] if options.subject == "none" else options.subject.split(",")
        subjects = [find_subject(name) for name in names]
        for subject in subjects:
            subject.load()
        entries = [find(r) for r in options.reports if r not in about_harness] or (
            [] if options.reports else list(ENTRIES)
        )
    except UnknownReportError as error:
        print(f"{error}, {', '.join(about_harness)}")
        return 4
    except (SubjectError, ValueError) as error:
        print(error)
        return 4
    found: list[Finding] = []
    for name, entry in about_harness.items():
        if name in options.reports or not options.reports:
            print(f"{name} ...", flush=True)
            words = entry.run()
            verdict = "fail" if words else "pass"
            found.append(Finding(name, HARNESS, "memory", verdict, words=words))
    for subject in subjects:
        for one in findings(entries, subject, sources):
            print(f"{one.report}, {one.subject}: {one.shown()}", flush=True)
            found.append(one)
    if options.json:
        write(json.dumps([asdict(f) for f in found], indent=2), options.json)
    console = Console(markup=False, emoji=False, highlight=False)
    console = console if console.is_terminal else Console(width=180, markup=False, highlight=False)
    console.print(table(found))
    for f in found:
        if f.words:
            console.print(f"\n{f.report}, {f.subject}: {f.shown()}\n{f.words}", soft_wrap=True)
            if f.verdict != "not run":
                subject_option = "" if f.subject == HARNESS else f" --subject {f.subject}"
                command = f"{interpreter()} -m conformance.catalogue"
                print(f"again: {command} {f.report}{subject_option}")
    return status(found)
