"""A pytest plugin: tests whose body runs on every rank of a gang, in one item per topology.

`-p harness.pytest_plugin`, or `pytest_plugins = ["harness.pytest_plugin"]` in a conftest.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from _pytest.skipping import xfailed_key

from harness.outcome import Finished, Outcome
from harness.pytest_plugin import on_rank
from harness.pytest_plugin.arriving import arrival
from harness.pytest_plugin.calling import TravelError, check_body, run_on_ranks
from harness.pytest_plugin.failures import (
    FaultMissed,
    GangDied,
    GangFailure,
    GangHung,
    GangUndecided,
    RanksDiffer,
    RanksRaised,
    all_raised,
    check,
)
from harness.pytest_plugin.pool import Pool, TestGang
from harness.pytest_plugin.settings import Settings, add_options, describe, read_settings
from harness.pytest_plugin.slots import Slots
from harness.pytest_plugin.topologies import MarkerError, arguments_of, limits, topologies
from harness.rank import This
from harness.stacks import ranks_text, together

__all__ = [
    "FaultMissed",
    "GangDied",
    "GangFailure",
    "GangHung",
    "GangUndecided",
    "RanksDiffer",
    "RanksRaised",
    "TestGang",
    "check",
]

_SETTINGS = pytest.StashKey[Settings]()
_POOL = pytest.StashKey[Pool]()
_INTERRUPTED = pytest.StashKey[tuple[str, str]]()
# What the transport of collectives says of each new mesh: different on each rank, and of no use.
# Its threads may write into each other's lines.
_GLOO = re.compile(r"^\[Gloo\] Rank .*\n+", re.MULTILINE)
_LEASE = "_gang_lease"
_MARKER = (
    "gang(processes, devices, backend, *, deadline_s, stall_s, env, jax_config): run the test on "
    "every rank of a gang of JAX processes, once for each topology that is asked for"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, before anything starts."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_SETTINGS] = read_settings(config)
    config.add_cleanup(lambda: _close(config))


def _close(config: pytest.Config) -> None:
    pool = config.stash.get(_POOL, None)
    if pool is not None:
        pool.close()


def pytest_report_header(config: pytest.Config) -> str:
    """Say the values in effect, and whence they are."""
    return describe(config.stash[_SETTINGS])


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item of each topology."""
    marks = list(metafunc.definition.iter_markers("gang"))
    if not marks and _LEASE not in metafunc.fixturenames:
        return
    try:
        given = arguments_of(marks)
        found = topologies(given, metafunc.config.stash[_SETTINGS])
        limits(given, metafunc.config.stash[_SETTINGS])
    except MarkerError as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)
    if _LEASE not in metafunc.fixturenames:
        metafunc.fixturenames.insert(0, _LEASE)
    metafunc.parametrize(_LEASE, list(found.values()), ids=list(found), indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k` find topologies: it takes no `=`, so they are called `processes_2` there."""
    topology = _topology(item)
    if topology is not None:
        item.extra_keyword_matches |= {
            f"processes_{topology.processes}",
            f"devices_{topology.devices}",
            f"backend_{getattr(topology.backend, '__name__', topology.backend)}",
        }


def _topology(item: pytest.Item) -> Any:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(_LEASE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse what cannot run on ranks before its fixtures are made."""
    if item.get_closest_marker("gang") is None:
        return
    if _topology(item) is None:
        pytest.fail(
            "the marker gang works on functions and on methods of plain classes, set on them, "
            "their class or their module: not on methods of unittest.TestCase, not on a "
            "parameter, and not added after collection",
            pytrace=False,
        )
    if isinstance(item, pytest.Function) and _runs_on_ranks(item):
        _fail_clearly(check_body, item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep what an interrupt of a gang's run says of it: pytest shows where the parent was."""
    try:
        return (yield)
    except KeyboardInterrupt as error:
        notes: list[str] = getattr(error, "__notes__", [])
        item.config.stash[_INTERRUPTED] = item.nodeid, "\n".join(notes)
        notes.clear()  # or pytest would put them in its line of exclamation marks
        raise


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show how the ranks stood when their run was interrupted."""
    nodeid, text = config.stash.get(_INTERRUPTED, ("", ""))
    if text:
        terminalreporter.section(f"interrupted: {nodeid}")
        terminalreporter.line(text.rstrip())


def _runs_on_ranks(item: pytest.Function) -> bool:
    """A body that takes `gang` itself runs in the parent, any other with the marker on ranks."""
    return item.get_closest_marker("gang") is not None and (
        "gang" not in item._fixtureinfo.argnames
    )


def _fail_clearly(function: Any, *arguments: Any) -> Any:
    __tracebackhide__ = True
    try:
        return function(*arguments)
    except TravelError as error:
        text = str(error)
    pytest.fail(text, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a marked body on the ranks."""
    if not _runs_on_ranks(pyfuncitem):
        return None
    gang: TestGang = pyfuncitem._request.getfixturevalue(_LEASE)
    outcomes: list[Outcome] = _fail_clearly(run_on_ranks, pyfuncitem, gang)
    _report(pyfuncitem, outcomes)
    _xfail_as_marked(pyfuncitem, outcomes)
    values = check(outcomes, verbose=pyfuncitem.config.option.verbose > 0)
    for kind in dict.fromkeys(value for value in values if value is not None):
        warnings.warn(
            pytest.PytestReturnNotNoneWarning(
                f"{pyfuncitem.nodeid} returned a {kind} on its ranks: use assert instead of return"
            ),
            stacklevel=1,
        )
    return True


def _xfail_as_marked(item: pytest.Function, outcomes: list[Outcome]) -> None:
    """Follow `xfail(raises=...)`, which cannot see what was raised on ranks."""
    mark = item.stash.get(xfailed_key, None)
    if mark is not None and mark.raises is not None:
        kinds = mark.raises if isinstance(mark.raises, tuple) else (mark.raises,)
        if all_raised(outcomes, tuple(kind for kind in kinds if isinstance(kind, type))):
            pytest.xfail(mark.reason)


def _report(item: pytest.Item, outcomes: list[Outcome]) -> None:
    texts = ((outcome.rank, _GLOO.sub("", outcome.output)) for outcome in outcomes)
    outputs = together((rank, text) for rank, text in texts if text)
    for ranks, text in outputs:
        key = f"stdout and stderr of {ranks_text(ranks)}"
        item.add_report_section("call", key, text)
        if item.config.option.capture == "no":
            print(f"\n----- {key} -----\n{text}", end="")
    left = together((o.rank, o.left_threads) for o in outcomes if isinstance(o, Finished))
    for ranks, threads in left:
        if threads:
            text = f"threads left behind: {', '.join(threads)}; the next test gets fresh processes"
            item.add_report_section("call", f"gang, {ranks_text(ranks)}", text)


@pytest.fixture
def _gang_lease(request: pytest.FixtureRequest) -> Iterator[TestGang]:
    """The gang of a test's topology, as long as the test lasts."""
    config = request.config
    settings = config.stash[_SETTINGS]
    given = arguments_of(request.node.iter_markers("gang"))
    topology = getattr(request, "param", None)
    if topology is None:
        topology = next(iter(topologies(given, settings).values()))
    if _POOL not in config.stash:
        slots = None
        if hasattr(config, "workerinput"):
            # Each worker has a folder of its own in the one of the run.
            folder = request.getfixturevalue("tmp_path_factory").getbasetemp().parent
            slots = Slots(folder / "gang-slots")
        config.stash[_POOL] = Pool(settings.max_processes, slots)
    with config.stash[_POOL].lend(topology, limits(given, settings)) as gang:
        yield gang


@pytest.fixture(autouse=True)
def _gang_of_marked_test(request: pytest.FixtureRequest) -> None:
    """Start the gang of a test whose body does not take it."""
    if request.node.get_closest_marker("gang") is not None:
        request.getfixturevalue(_LEASE)


@pytest.fixture
def gang(_gang_lease: TestGang, request: pytest.FixtureRequest) -> TestGang:
    """The test's gang. A body that takes it runs in the parent, and uses `gang.run`."""
    # Functions of the test's module are found on ranks by name, with their asserts rewritten.
    _gang_lease.prepare(_nothing, arrival(request.node, at_once=False))
    return _gang_lease


def _nothing(_arrival: None) -> None:
    """Be called on ranks that have unpickled the argument."""


@pytest.fixture
def this(request: pytest.FixtureRequest) -> This:
    """Which process of the gang this is: `this.rank`, `this.processes`. On ranks alone."""
    if request.node.get_closest_marker("gang") is None and "gang" not in request.fixturenames:
        pytest.fail(
            "the fixture `this` is of ranks: the test needs the marker gang, "
            "as in @pytest.mark.gang(processes=2)",
            pytrace=False,
        )
    return on_rank.this()  # type: ignore[return-value]
