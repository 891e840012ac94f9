"""The suite as a pytest run: its options, its cases as tests, its report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from conformance import report
from conformance.account import Account
from conformance.deciding import (
    ACCOUNT,
    Budget,
    Decide,
    Decider,
    Result,
    results_of,
)
from conformance.environment import again, environment
from conformance.gangs import Gangs
from conformance.hosting import FORMS, Hosting, HostingError
from conformance.hosting import parse as parse_hosting
from conformance.model import Kind, Topology
from conformance.plan import Planned, few, gang_of, plan
from conformance.subjects import NAMED, Subject, SubjectError, find
from harness.backends.slices import NoSliceError


def _numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise pytest.UsageError(
            f"{option} {text!r}: give whole numbers of 1 or more, such as 2,3,4"
        )
    return numbers


def _kinds(text: str) -> list[Kind]:
    known: list[Kind] = ["memory", "ray"]
    given = text.split(",")
    if unknown := sorted(set(given) - set(known)):
        raise pytest.UsageError(f"--sources {text!r}: {unknown[0]!r} is none of memory, ray")
    return [kind for kind in known if kind in given]


def _writable(directory: str) -> Path:
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise pytest.UsageError(
            f"--report {directory!r}: cannot be written to ({error})"
        ) from error
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say what the suite takes from the command line."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--subject",
        default="jaxiter",
        help=f"{', '.join(NAMED)}, or module:attribute (default: %(default)s)",
    )
    group.addoption(
        "--processes", default="2,3", help="numbers of processes (default: %(default)s)"
    )
    group.addoption(
        "--devices", default="1,2", help="devices of each process (default: %(default)s)"
    )
    group.addoption(
        "--sources", default="memory,ray", help="memory, ray or both (default: %(default)s)"
    )
    group.addoption(
        "--level",
        default="all",
        choices=["core", "extended", "all"],
        help="clauses to decide (default: %(default)s)",
    )
    group.addoption(
        "--backend",
        default="local",
        help=f"where processes live: {FORMS}; slices say themselves how many processes and devices "
        "there are (default: %(default)s)",
    )
    group.addoption(
        "--reserve-timeout",
        default=60.0,
        type=float,
        metavar="SECONDS",
        help="how long to wait for slices that are in use, or yet to come (default: %(default)g)",
    )
    group.addoption(
        "--short",
        nargs="?",
        const="all",
        default="",
        choices=["all", "ray"],
        help="one or two cases of each clause, but none after which processes must be fresh; "
        "with `ray`, of what reads from Ray alone: all cases in memory run",
    )
    group.addoption("--report", metavar="DIR", help="write report.json and junit.xml there")
    group.addoption(
        "--chosen",
        metavar="FILE",
        help="run only the cases that this JSON file names, in its order: what the gate writes",
    )
    group.addoption(
        "--journal",
        metavar="FILE",
        help="append a line of JSON to this file as each case starts and ends",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything starts; keep one topology on one worker."""
    try:
        subject = find(config.option.subject)
        subject.load()
    except SubjectError as error:
        raise pytest.UsageError(str(error)) from error
    option = config.option
    config.stash[_SUBJECT] = subject
    kinds = config.stash[_KINDS] = _kinds(option.sources)
    if not set(subject.kinds) & set(kinds):
        raise pytest.UsageError(
            f"--sources {option.sources!r}: subject {subject.name!r} reads only "
            f"{', '.join(subject.kinds)}"
        )
    config.stash[_TOPOLOGIES] = [
        Topology(p, d)
        for p in dict.fromkeys(_numbers("--processes", option.processes))
        for d in dict.fromkeys(_numbers("--devices", option.devices))
    ]
    try:
        hosting = config.stash[_HOSTING] = parse_hosting(option.backend)
    except HostingError as error:
        raise pytest.UsageError(str(error)) from error
    if (shape := hosting.shape) is not None:
        config.stash[_TOPOLOGIES] = [Topology(shape.hosts, shape.chips_per_host)]
    config.stash[_CHOSEN] = _chosen(option.chosen) if option.chosen else None
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config), "conformance-report")
        if option.report:
            option.xmlpath = option.xmlpath or str(_writable(option.report) / "junit.xml")
    if option.tbstyle == "auto":
        # The table at the end has the words of each clause; a wall of failures would hide it.
        config.option.tbstyle = "no"
        # ... and so would the list of failures again, or warnings.
        option.reportchars = ""
        option.disable_warnings = True
    # A warning of some release of Ray or JAX is no verdict on a subject.
    config.addinivalue_line("filterwarnings", "default")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep all cases of one gang on one worker, told by the names of their tests.

    Marks of xdist would do, but what xdist 3.8 appends to those names is lost with pytest 9.2.
    """
    if config.getvalue("dist") not in ("load", "loadgroup"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGang(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return gang_of(nodeid)

    return ByGang(config, log)


def _chosen(path: str) -> dict[str, Any]:
    """The file of ``--chosen``: ``cases`` (keys and seconds), and ``until_s`` or null."""
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        dict(found["cases"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(f"--chosen {path!r}: cannot be read ({error!r})") from error
    return found


_CHOSEN = pytest.StashKey[dict[str, Any] | None]()
_SUBJECT = pytest.StashKey[Subject]()
_KINDS = pytest.StashKey[Sequence[Kind]]()
_TOPOLOGIES = pytest.StashKey[Sequence[Topology]]()
_HOSTING = pytest.StashKey[Hosting]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each planned case of the module."""
    if "planned" not in metafunc.fixturenames:
        return
    stash, level = metafunc.config.stash, metafunc.config.option.level
    group = metafunc.module.__name__.rpartition(".")[2]
    found = plan(
        metafunc.module.cases, stash[_SUBJECT], stash[_TOPOLOGIES], stash[_KINDS], level, group
    )
    metafunc.parametrize("planned", [pytest.param(p, id=p.id) for p in found])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the cases by kind and topology, so that each gang is started once; or as was chosen."""
    # A group without a case for this choice becomes a test that is skipped: no use to anybody.
    items[:] = [item for item in items if _planned(item) is not None]
    if config.option.short:
        found = [each for each in map(_planned, items) if each]
        whole = [each for each in found if config.option.short == "ray" and each.kind != "ray"]
        kept = {each.key for each in (*whole, *few([p for p in found if p not in whole]))}
        items[:] = [item for item in items if (p := _planned(item)) and p.key in kept]
    chosen = config.stash[_CHOSEN]
    if chosen is not None:
        by_key = {p.key: item for item in items if (p := _planned(item)) is not None}
        items[:] = [by_key[key] for key, _ in chosen["cases"] if key in by_key]
        return

    def key(item: pytest.Item) -> tuple[str, int, int]:
        planned = _planned(item)
        assert planned is not None
        return (planned.kind, planned.topology.processes, planned.topology.devices)

    items.sort(key=key)


def _planned(item: pytest.Item) -> Planned | None:
    found = getattr(item, "callspec", None)
    planned = found.params.get("planned") if found else None
    return planned if isinstance(planned, Planned) else None


@pytest.fixture(scope="session")
def decider(request: pytest.FixtureRequest) -> Iterator[Decider]:
    """Runs cases; ends its gangs with the session."""
    try:
        limit_s = request.config.option.reserve_timeout
        gangs = Gangs(request.config.stash[_SUBJECT], request.config.stash[_HOSTING], limit_s)
    except NoSliceError as error:
        pytest.exit(str(error), returncode=2)
    chosen = request.config.stash[_CHOSEN] or {}
    until_s = chosen.get("until_s")
    budget = None if until_s is None else Budget(until_s, dict(chosen["cases"]))
    try:
        yield Decider(request.config.stash[_SUBJECT], gangs, budget)
    finally:
        gangs.close()


@pytest.fixture
def decide(request: pytest.FixtureRequest, decider: Decider) -> Decide:
    """Decides one planned case, and fails the test unless all its clauses pass."""
    return lambda planned: decider.decide(planned, request.node)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is judged, and where."""
    e = _environment(config)
    hosting = config.stash[_HOSTING]
    versions = ", ".join(f"{k} {v}" for k, v in e["versions"].items())
    return [
        f"subject: {config.option.subject}; backend: {hosting.describe(_kinds_read(config))}",
        f"versions: {versions}",
        f"processes: {_listed(e['processes'])}; devices of each: {_listed(e['devices'])}",
        f"sources: {_listed(e['sources'])}; level: {e['level']}; seed: {e['seed']}",
    ]


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _environment(config: pytest.Config) -> dict[str, Any]:
    return environment(config.stash[_TOPOLOGIES], _kinds_read(config), config.option.level)


def _kinds_read(config: pytest.Config) -> list[Kind]:
    return [k for k in config.stash[_KINDS] if k in config.stash[_SUBJECT].kinds]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let the account of a case travel with its report; it is too long for a property."""
    report = yield
    if report.when == "call" and ACCOUNT in item.stash:
        report.account = item.stash[ACCOUNT]
    return report


class _Collector:
    """Gathers what each test says, from this process or from workers, and reports at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: list[Result] = []
        self._planned = 0
        self._lost: list[str] = []
        self._accounts: dict[str, Account] = {}
        self._workers = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a test starts."""
        self._note({"starts": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the results that a finished test carries."""
        found = results_of(report.user_properties)
        nodeid = report.nodeid
        # A case whose worker crashed, or whose set-up failed, has nothing to say of its clauses.
        if report.failed and not found:
            self._lost.append(nodeid)
            self._note({"lost": nodeid, "words": report.longreprtext[-4000:]})
        if report.when != "call":
            return
        self._results += found
        told = {**getattr(report, "account", {}), "duration_s": round(report.duration, 3)}
        self._accounts[nodeid] = told
        self._note({"ends": nodeid, "results": [asdict(r) for r in found], "account": told})

    def _note(self, line: dict[str, Any]) -> None:
        """Append to the journal at once, so that it holds all that was seen before a kill."""
        if self._config.option.journal:
            with Path(self._config.option.journal).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Know how many cases there should be, from any worker: all have the same."""
        self._planned, self._workers = len(ids), True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know how many cases there should be; with workers, only they do."""
        if not self._workers:
            self._planned = len(session.items)

    def _missing(self) -> str:
        """Words for cases that say nothing, so that a pass is not read for more than it is."""
        ran = len({r.nodeid for r in self._results})
        if self._lost:
            return f"{len(self._lost)} cases gave no verdict: {', '.join(self._lost[:3])}"
        if ran < self._planned:
            return f"the run was stopped: {ran} of {self._planned} cases ran"
        return ""

    def _reports(self) -> list[report.ClauseReport]:
        option = self._config.option
        narrowed = bool(
            option.short == "all"
            or option.keyword
            or option.markexpr
            or option.chosen
            or any("::" in a or a.endswith(".py") for a in self._config.args)
        )
        return report.summarise(self._results, level=option.level, narrowed=narrowed)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """The exit status is the suite's, unless pytest itself has something worse to say."""
        if self._config.option.collectonly:
            return
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            status = 1 if self._lost else report.exit_status(self._reports())
            session.exitstatus = max(status, exitstatus) if exitstatus else status
        directory = self._config.option.report
        if directory:
            found = _environment(self._config) | {"missing": self._missing()}
            text = report.as_json(
                self._reports(), self._config.option.subject, found, self._accounts
            )
            report.write(text, Path(directory, "report.json"))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the clauses."""
        option = self._config.option
        if option.collectonly:
            return
        terminalreporter.ensure_newline()
        terminalreporter.section(f"clauses, subject {option.subject}")
        reports = self._reports()
        if not reports:
            terminalreporter.line("no clause was decided")
        if missing := self._missing():
            terminalreporter.line(f"{missing}; a pass below speaks of the others alone")
        writer = terminalreporter._tw
        # A log has no width of its own, and 80 columns would cut what each clause asks.
        width = writer.fullwidth if writer._file.isatty() else max(writer.fullwidth, 140)
        command = again(option.subject, option.backend)
        report.show(reports, command, writer._file, width, self._accounts)
        if option.disable_warnings:
            # They are not shown, so their number says nothing.
            terminalreporter.stats.pop("warnings", None)
