"""The suite as a pytest run: its options, its cases as tests, its report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance import report
from conformance.deciding import Decide, Decider, Result, results_of
from conformance.gangs import Gangs
from conformance.hosting import FORMS, Hosting, HostingError
from conformance.hosting import parse as parse_hosting
from conformance.model import Kind, Topology
from conformance.plan import Planned, few, plan
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
        default="reference",
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
        action="store_true",
        help="two cases of each clause, but none after which processes must be fresh",
    )
    group.addoption("--report", metavar="DIR", help="write report.json and junit.xml there")


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
    config.addinivalue_line("markers", "xdist_group(name): tests that one xdist worker runs")
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadgroup"


_SUBJECT = pytest.StashKey[Subject]()
_KINDS = pytest.StashKey[Sequence[Kind]]()
_TOPOLOGIES = pytest.StashKey[Sequence[Topology]]()
_HOSTING = pytest.StashKey[Hosting]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each planned case of the module."""
    if "planned" not in metafunc.fixturenames:
        return
    stash, level = metafunc.config.stash, metafunc.config.option.level
    found = plan(metafunc.module.cases, stash[_SUBJECT], stash[_TOPOLOGIES], stash[_KINDS], level)
    params = [
        pytest.param(
            p, id=p.id, marks=pytest.mark.xdist_group("ray" if p.kind == "ray" else str(p.topology))
        )
        for p in found
    ]
    metafunc.parametrize("planned", params)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the cases by kind and topology, so that each gang is started once."""
    # A group without a case for this choice becomes a test that is skipped: no use to anybody.
    items[:] = [item for item in items if _planned(item) is not None]
    if config.option.short:
        kept = {each.id for each in few([each for each in map(_planned, items) if each])}
        items[:] = [item for item in items if (p := _planned(item)) and p.id in kept]

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
    try:
        yield Decider(request.config.stash[_SUBJECT], gangs)
    finally:
        gangs.close()


@pytest.fixture
def decide(request: pytest.FixtureRequest, decider: Decider) -> Decide:
    """Decides one planned case, and fails the test unless all its clauses pass."""
    return lambda planned: decider.decide(planned, request.node)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is judged, and where."""
    e = _environment(config)
    versions = ", ".join(f"{k} {v}" for k, v in e["versions"].items())
    return [
        f"subject: {config.option.subject}; backend: {config.stash[_HOSTING]}",
        f"versions: {versions}",
        f"processes: {_listed(e['processes'])}; devices of each: {_listed(e['devices'])}",
        f"sources: {_listed(e['sources'])}; level: {e['level']}; seed: {e['seed']}",
    ]


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _environment(config: pytest.Config) -> dict[str, Any]:
    versions = {n: importlib.metadata.version(n) for n in ("jax", "jaxlib", "numpy", "ray")}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "processes": sorted({t.processes for t in config.stash[_TOPOLOGIES]}),
        "devices": sorted({t.devices for t in config.stash[_TOPOLOGIES]}),
        "sources": [k for k in config.stash[_KINDS] if k in config.stash[_SUBJECT].kinds],
        "level": config.option.level,
        "seed": "none, every case is fixed",
    }


class _Collector:
    """Gathers what each test says, from this process or from workers, and reports at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: list[Result] = []
        self._planned = 0
        self._lost: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the results that a finished test carries."""
        found = results_of(report.user_properties)
        if report.when == "call" or (report.when == "setup" and report.skipped):
            self._results += found
        # A case whose worker crashed, or whose set-up failed, has nothing to say of its clauses.
        if report.failed and not found:
            self._lost.append(report.nodeid)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know how many cases there should be; with workers, only they do."""
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
            option.short
            or option.keyword
            or option.markexpr
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
            environment = _environment(self._config) | {"missing": self._missing()}
            text = report.as_json(self._reports(), self._config.option.subject, environment)
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
        report.show(reports, _again(option), writer._file, width)


def _again(option: Any) -> str:
    """What runs one case again, with places for its test, processes and devices.

    It can be pasted where the run was started: with the same interpreter, and with the path on
    which a subject from elsewhere was found.
    """
    words = [_short(sys.executable), "-m", "pytest"]
    path = os.environ.get("PYTHONPATH", "").strip(os.pathsep)
    if ":" in option.subject and path:
        words.insert(0, f"PYTHONPATH={shlex.quote(path)}")
    subject = shlex.quote(option.subject)
    words += ["'{nodeid}'", "--subject", subject]
    if option.backend != "local":
        words += ["--backend", shlex.quote(option.backend)]
    return " ".join([*words, "--processes {processes} --devices {devices}"])


def _short(executable: str) -> str:
    """The interpreter, as seen from the working directory if it is below it."""
    path = Path(executable)
    below = path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if below else path))
