"""The gate: runs the suite for one subject, compares with what is known of it, reports, exits.

    python -m ci.gate --subject ray --profile fast

Exit status: 0 as expected, 1 not as expected, 2 could not run, 3 undecided.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ci import previous
from ci.compare import Status, compare, few_of
from ci.costs import Costs, kind_of
from ci.junit import as_junit
from ci.known import DIRECTORY, Known, KnownError, known_of
from ci.markdown import as_markdown
from ci.ordering import Choice, choose
from ci.page import as_page
from ci.previous import Previous, PreviousError
from ci.profiles import PROFILES
from ci.progress import Progress, key_of
from ci.record import Record, as_json
from ci.subject_version import version_of
from ci.suite import Followed, follow
from conformance.environment import again, environment, interpreter, versions
from conformance.model import Kind, Topology
from conformance.plan import Planned, gang_of, plan_all
from conformance.report import write
from conformance.subjects import NAMED, Subject, SubjectError, find
from harness.custody import Custody

#: Seconds between two writings of what is known so far, for readers of a run that is killed.
_WRITE_S = 15.0


class CouldNotRunError(Exception):
    """What keeps the gate from running, in words for the user."""


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if len(numbers) != len(text.split(",")) or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers of 1 or more, such as 2,3")
    return list(dict.fromkeys(numbers))


def _kinds(text: str) -> list[Kind]:
    known: list[Kind] = ["memory", "ray"]
    if unknown := sorted(set(text.split(",")) - set(known)):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of memory, ray")
    return [kind for kind in known if kind in text.split(",")]


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: give minutes, more than 0")
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ci.gate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--subject", default="ray", help=f"{', '.join(NAMED)}, or module:attribute (default: ray)")
    add("--profile", choices=list(PROFILES), default="full", help="see docs/gate.md")
    add("--processes", type=_numbers, help="numbers of processes, instead of the profile's")
    add("--devices", type=_numbers, help="devices of each process, instead of the profile's")
    add("--sources", type=_kinds, help="memory, ray or both, instead of the profile's")
    add("--level", choices=["core", "extended", "all"], default="all", help="clauses to decide")
    add("--backend", metavar="WHERE", help="where processes live, as the suite's option says")
    add("--budget-minutes", type=_minutes, metavar="N", help="start no case that would end later")
    add("--every-hang", action="store_true", help="run all known hangs, not one of each clause")
    add(
        "--workers",
        type=int,
        choices=range(1, 17),
        metavar="N",
        help="run N topologies at once",
    )
    add("--ray-version", metavar="V", help="exit with 2 unless this release of Ray is installed")
    add("--jax-version", metavar="V", help="the same of JAX")
    add("--known", type=Path, default=DIRECTORY, metavar="DIR", help="files of known results")
    add("--previous", type=Path, metavar="FILE", help="report.json of a run to compare with")
    add("--report", type=Path, default=Path("gate-report"), metavar="DIR", help="where to write")
    return parser


@dataclass(frozen=True)
class Job:
    """What a run is to do, once all that was given is known to be usable."""

    options: argparse.Namespace
    subject: Subject
    version: str
    topologies: Sequence[Topology]
    kinds: Sequence[Kind]
    known: Known
    before: Previous | None
    everything: Sequence[Planned]
    choice: Choice
    command: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate; give its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    try:
        job = _prepare(options, given)
        return int(_run(job))
    except CouldNotRunError as error:
        print(f"gate: could not run: {error}", file=sys.stderr)
    except Exception:  # noqa: BLE001  a defect of the gate is no verdict on the subject
        traceback.print_exc()
        print("gate: could not run: it failed within itself, see above", file=sys.stderr)
    return int(Status.COULD_NOT_RUN)


def _prepare(options: argparse.Namespace, given: Sequence[str]) -> Job:
    """Check all that was given before anything starts."""
    found = versions()
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    print(f"gate: found {told}", flush=True)
    for name in ("ray", "jax"):
        wanted = getattr(options, f"{name}_version")
        if wanted and wanted != found[name]:
            raise CouldNotRunError(
                f"--{name}-version {wanted}, but {name} {found[name]} is installed"
            )
    try:
        subject = find(options.subject)
        subject.load()
        version = version_of(subject)
        known = known_of(subject.name, version, found, options.known)
        before = previous.read(options.previous, subject.name) if options.previous else None
    except (SubjectError, KnownError, PreviousError) as error:
        raise CouldNotRunError(str(error)) from error
    profile = PROFILES[options.profile]
    wanted_kinds = options.sources or profile.kinds
    kinds = [k for k in wanted_kinds if k in subject.kinds]
    if not kinds and not options.sources:
        kinds = list(subject.kinds)
    topologies = [
        Topology(p, d)
        for p in options.processes or profile.processes
        for d in options.devices or profile.devices
    ]
    everything = plan_all(subject, topologies, kinds, options.level)
    if not everything:
        raise CouldNotRunError(f"{subject.name} reads only {', '.join(subject.kinds)}: no case")
    choice = choose(
        everything,
        known,
        failed=before.unexpected if before else (),
        one_a_clause=profile.one_a_clause,
        in_turns=profile.in_turns,
        every_hang=options.every_hang,
    )
    # With a budget the order matters, and several workers would each have their own.
    workers = options.workers or (1 if options.budget_minutes else profile.workers)
    options.workers = min(workers, len({gang_of(p.id) for p in choice.planned}))
    _writable(options.report)
    command = f"{interpreter()} -m ci.gate {shlex.join(given)}"
    return Job(
        options, subject, version, topologies, kinds, known, before, everything, choice, command
    )


def _writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise CouldNotRunError(f"--report {directory}: cannot be written to ({error})") from error


def _run(job: Job) -> Status:
    options, choice = job.options, job.choice
    start_s = time.monotonic()
    kinds = {p.key: kind_of(p, job.known) for p in choice.planned}
    costs = Costs(kinds)
    for name, duration_s in (job.before.durations_s if job.before else {}).items():
        costs.saw(key_of(name), duration_s)
    print(
        f"gate: {job.subject.name} {job.version}: {len(choice.planned)} cases, profile "
        f"{options.profile}; {job.known.note}",
        flush=True,
    )
    # A directory that is removed also when this process is killed.
    with contextlib.closing(Custody()) as custody:
        scratch = custody.new_directory("gate")
        output = scratch / "suite.log"
        arguments = _arguments(job, scratch, costs, start_s)
        progress = Progress(choice.planned, costs, options.workers, sys.stderr)
        written_s = 0.0

        def tell(seen: Followed) -> None:
            nonlocal written_s
            progress.tell(seen)
            now_s = time.monotonic()
            if now_s - written_s > _WRITE_S:
                written_s = now_s
                _write(_record(job, seen, now_s - start_s, "the run is not over"), options.report)

        with output.open("w") as to:
            seen = follow(arguments, scratch / "journal", to, tell)
        progress.end()
        record = _record(job, seen, time.monotonic() - start_s, seen.partial)
        if record.comparison.status is Status.COULD_NOT_RUN or seen.partial:
            print(output.read_text(errors="replace")[-4000:], file=sys.stderr)
    _write(record, options.report)
    _publish(record)
    _say(record, options.report, sys.stdout)
    return record.comparison.status


def _arguments(job: Job, scratch: Path, costs: Costs, start_s: float) -> list[str]:
    """The command line of the suite."""
    options = job.options
    budget = options.budget_minutes
    chosen = {
        "cases": [[p.key, costs.of(p.key)] for p in job.choice.planned],
        "until_s": None if budget is None else start_s + 60 * budget,
    }
    write(json.dumps(chosen), scratch / "chosen.json")
    return [
        "conformance",
        *("-q", "-p", "no:cacheprovider", "--subject", job.subject.name),
        *(
            "--processes",
            ",".join(str(p) for p in dict.fromkeys(t.processes for t in job.topologies)),
        ),
        *("--devices", ",".join(str(d) for d in dict.fromkeys(t.devices for t in job.topologies))),
        *("--sources", ",".join(job.kinds), "--level", options.level),
        *("--chosen", str(scratch / "chosen.json"), "--journal", str(scratch / "journal")),
        *(("--backend", options.backend) if options.backend else ()),
        *(("-n", str(options.workers)) if options.workers > 1 else ()),
    ]


def _record(job: Job, seen: Followed, elapsed_s: float, partial: str) -> Record:
    options = job.options
    comparison = compare(
        seen.results,
        job.known,
        everything=job.everything,
        chosen=job.choice.planned,
        lost=list(seen.lost),
        partial=partial,
    )
    return Record(
        subject=job.subject.name,
        version=job.version,
        environment=environment(job.topologies, job.kinds, options.level),
        comparison=comparison,
        accounts=seen.accounts,
        level=options.level,
        profile=options.profile,
        known=job.known.note,
        command=job.command,
        again=again(job.subject.name)
        + (f" --backend {shlex.quote(options.backend)}" if options.backend else ""),
        chosen=len(job.choice.planned),
        possible=len(job.everything),
        elapsed_s=elapsed_s,
        budget_minutes=options.budget_minutes,
        spared=job.choice.spared,
        lost=seen.lost,
        before="" if job.before is None else job.before.about,
        changes=[] if job.before is None else job.before.changes(seen.results),
    )


def _write(record: Record, directory: Path) -> None:
    """Write every file of the report, each whole or not at all."""
    for name, text in (
        ("report.json", as_json(record)),
        ("junit.xml", as_junit(record)),
        ("summary.md", as_markdown(record)),
        ("index.html", as_page(record)),
    ):
        write(text, directory / name)


def _publish(record: Record) -> None:
    """Add the summary to the page of the job, where CI has one."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(as_markdown(record))


def _say(record: Record, directory: Path, to: TextIO) -> None:
    comparison = record.comparison
    for words in comparison.words:
        print(f"  {words}", file=to)
    for change in record.changes:
        print(f"  changed since the run before: {change}", file=to)
    if comparison.left_out:
        names = few_of(comparison.left_out)
        print(f"  left out, {len(comparison.left_out)} cases: {names}", file=to)
    if record.spared:
        names = few_of([p.id for p in record.spared])
        print(f"  spared, {len(record.spared)} cases known to hang: {names}", file=to)
    if record.outside:
        names = ", ".join(clause.id for clause in record.outside)
        print(f"  without a case for these sources and topologies: {names}", file=to)
    print(f"gate: {record.headline}, {record.elapsed_s:.0f} s", file=to)
    print(f"gate: {directory}/index.html, report.json, junit.xml, summary.md", file=to)


if __name__ == "__main__":
    sys.exit(main())
