"""The pytest plugin, as its users see it: real runs of pytest, on real gangs."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.harness.conftest import is_alive, wait_until

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
# Of a whole run of pytest, for what hangs: with Ray, one took 168 s at a load of 17.
LIMIT_S = 600.0

Ran = Callable[[str], pytest.RunResult]

CONFTEST = """
import pytest

class Table:
    def __init__(self, rows):
        self.rows = rows

@pytest.fixture
def table():
    return Table(3)
"""

PASSES = """
import os
import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

class Box:
    pass

def total(value):
    return int(multihost_utils.process_allgather(np.array([value], np.int32)).sum())

@pytest.mark.gang(processes=2, devices=2)
@pytest.mark.parametrize("rows", [1, 2])
def test_body(rows, this, table, tmp_path):
    assert (jax.process_count(), jax.local_device_count()) == (2, 2)
    assert total(rows + this.rank) == 2 * rows + 1
    assert table.rows == 3 and tmp_path.is_dir()
    print(f"said by rank {this.rank}")

def own_pid():
    return os.getpid()

@pytest.mark.gang(processes=2, devices=2)
def test_parent(gang):
    from harness.pytest_plugin import check
    pids = check(gang.run(own_pid))
    assert len({os.getpid(), *pids}) == 3
    assert gang.restarts == 0

@pytest.mark.gang(devices=2)
class TestMethods:
    def setup_method(self):
        self.rows = 5

    def test_self(self):
        assert self.rows == 5 and "PATCHED" not in os.environ

    def test_monkeypatch(self, monkeypatch):
        monkeypatch.setenv("PATCHED", "yes")

    def test_monkeypatch_undone(self):
        assert "PATCHED" not in os.environ

@pytest.mark.gang(devices=2)
@pytest.mark.filterwarnings("error:too few rows")
def test_filterwarnings():
    import warnings
    with pytest.raises(UserWarning):
        warnings.warn("too few rows")

@pytest.mark.gang(devices=2)
def test_skip():
    pytest.skip("no rows today")

@pytest.mark.gang(devices=2)
def test_xfail():
    pytest.xfail("a known bug")

@pytest.mark.gang(devices=2)
@pytest.mark.xfail(strict=True)
def test_xfail_mark():
    assert not jax.devices()

@pytest.mark.gang(devices=2)
@pytest.mark.xfail(raises=(KeyError, LookupError))
def test_xfail_raises():
    raise IndexError(f"at {object()}")
"""

FAILS = """
import asyncio
import os
import threading
import unittest
import pytest
from harness import rank
from harness.faults import Kill, Raise, Schedule, each
from harness.pytest_plugin import check

def compare(got, want):
    assert got == want

@pytest.mark.gang
def test_same_assert():
    compare([1, 2, 3], [1, 2, 4])

@pytest.mark.gang
def test_own_assert(this):
    print(f"row {this.rank}")
    compare(this.rank, 7)

@pytest.mark.gang
def test_fail():
    pytest.fail("not good enough", pytrace=False)

@pytest.mark.gang
def test_in_parent(gang):
    check(gang.run(compare, 1, 2))

@pytest.fixture
def lock():
    return threading.Lock()

@pytest.mark.gang
def test_fixture_that_stays(lock):
    pass

@pytest.mark.gang
def test_capsys(capsys):
    pass

@pytest.mark.gang
class TestLock:
    def test_self_that_stays(self):
        pass

    def setup_method(self):
        self.guard = threading.Lock()

@pytest.mark.gang
async def test_async():
    pass

@pytest.mark.gang
class TestUnit(unittest.TestCase):
    def test_unittest(self):
        pass

@pytest.mark.gang
def test_returns():
    return 5

@pytest.mark.gang
def test_some_skip(this):
    if this.rank == 1:
        pytest.skip("only here")

@pytest.mark.gang
def test_dies(this):
    if this.rank == 1:
        os._exit(3)

@pytest.mark.gang
@Schedule((Kill(rank=1, batch=9),)).around
def test_misses(this):
    list(each("abc"))

@pytest.mark.gang
@Schedule((Raise(rank=0, error="OSError"), Raise(rank=1, error="OSError"))).around
def test_injected(this):
    list(each("abc"))

def wait_for_peer():
    while True:
        threading.Event().wait(1e6)

@pytest.mark.gang(processes=3, stall_s=0.5)
def test_hangs(this):
    if this.rank == 1:
        raise ValueError("no more rows")
    wait_for_peer()

@pytest.mark.gang(deadline_s=1.5)
def test_undecided():
    while True: pass  # on one line, so that the stacks of both ranks are the same
"""


@pytest.fixture(scope="module")
def _results() -> dict[str, pytest.RunResult]:
    return {}


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest with the plugin in a process of its own."""
    return pytester.run(
        *(sys.executable, "-m", "pytest", "-p", "harness.pytest_plugin", *args), timeout=LIMIT_S
    )


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("PYTEST_ADDOPTS", "CI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def passes(pytester: pytest.Pytester, _results: dict[str, pytest.RunResult]) -> pytest.RunResult:
    """One run of all that is in PASSES, for several tests."""
    if "passes" not in _results:
        pytester.makeconftest(CONFTEST)
        examples = (ROOT / "docs" / "testing.md").read_text()
        # Smaller than in the text: to start more ranks takes longer.
        examples = examples.replace("[2, 4]", "[2]").replace("processes=3", "processes=2")
        blocks = re.findall(r"^```python\n(.*?)^```", examples, re.MULTILINE | re.DOTALL)
        tests = [block for block in blocks if "def test_" in block]
        pytester.makepyfile(test_passes=PASSES, **{f"test_doc{k}": t for k, t in enumerate(tests)})
        _results["passes"] = run(pytester, "-v", "-rA")
    return _results["passes"]


@pytest.fixture
def fails(pytester: pytest.Pytester, _results: dict[str, pytest.RunResult]) -> pytest.RunResult:
    """One run of all that is in FAILS, for several tests."""
    if "fails" not in _results:
        pytester.makepyfile(test_fails=FAILS)
        _results["fails"] = run(pytester)
    return _results["fails"]


def part(result: pytest.RunResult, test: str) -> pytest.LineMatcher:
    """What the report says of one failed test."""
    lines = result.outlines
    start = next((k for k, line in enumerate(lines) if re.match(rf"_+ .*{test}\b.* _+$", line)), -1)
    assert start >= 0, f"no failure of {test} in:\n{result.stdout}"
    ends = (k for k, line in enumerate(lines) if k > start and re.match(r"(__|==)\S* .* ", line))
    return pytest.LineMatcher(lines[start : next(ends)])


def test_a_body_runs_on_every_rank(passes: pytest.RunResult) -> None:
    """One item a topology; parameters, fixtures of any file and a collective, on each rank."""
    passes.stdout.fnmatch_lines(
        [
            "*::test_body[[]processes=2-1] PASSED*",
            "*::test_body[[]processes=2-2] PASSED*",
        ]
    )


def test_output_of_ranks_is_in_the_report(passes: pytest.RunResult) -> None:
    """What each rank prints is a section of its test."""
    passes.stdout.fnmatch_lines(["*Captured stdout and stderr of rank 1 call*", "said by rank 1"])


def test_a_body_that_takes_the_gang_runs_in_the_parent(passes: pytest.RunResult) -> None:
    """It gets the gang, warm from the tests before."""
    passes.stdout.fnmatch_lines(["*::test_parent[[]processes=2] PASSED*"])


def test_methods_take_their_instance_along(passes: pytest.RunResult) -> None:
    """What `setup_method` set on `self` is there on the ranks."""
    passes.stdout.fnmatch_lines(["*::TestMethods::test_self[[]processes=2] PASSED*"])


def test_monkeypatch_works_on_ranks(passes: pytest.RunResult) -> None:
    """Each rank has its own, and undoes it after the body."""
    passes.stdout.fnmatch_lines(["*::test_monkeypatch_undone[[]processes=2] PASSED*"])


def test_warning_filters_hold_on_ranks(passes: pytest.RunResult) -> None:
    """Those of marks and ini files."""
    passes.stdout.fnmatch_lines(["*::test_filterwarnings[[]processes=2] PASSED*"])


def test_skip_and_xfail_on_all_ranks(passes: pytest.RunResult) -> None:
    """A body that skips, or fails as expected, on all ranks does so once."""
    passes.stdout.fnmatch_lines(
        [
            "*::test_skip[[]processes=2] SKIPPED (no rows today)*",
            "*::test_xfail[[]processes=2] XFAIL (a known bug)*",
            "*::test_xfail_mark[[]processes=2] XFAIL*",
            "*::test_xfail_raises[[]processes=2] XFAIL*",
        ]
    )
    passes.assert_outcomes(passed=11, skipped=1, xfailed=3)


def test_examples_of_the_documentation_pass(passes: pytest.RunResult) -> None:
    """Each block of Python with a test in it."""
    passes.stdout.fnmatch_lines(
        [
            "test_doc0.py::test_sum[[]processes=2-8] PASSED*",
            "test_doc1.py::test_death[[]processes=2] PASSED*",
            "test_doc2.py::test_slow_rank[[]processes=2] PASSED*",
        ]
    )


def test_the_same_error_is_shown_once(fails: pytest.RunResult) -> None:
    """With the source of the body, and the values of the assert."""
    text = part(fails, "test_same_assert")

    text.fnmatch_lines(
        [
            "ranks 0, 1 raised AssertionError: assert [[]1, 2, 3] == [[]1, 2, 4]",
            "----- ranks 0, 1 -----",
            ">       compare([[]1, 2, 3], [[]1, 2, 4])",
            "E*assert [[]1, 2, 3] == [[]1, 2, 4]",
            "E*At index 2 diff: 3 != 4",
        ]
    )
    assert str(text).count("def compare") == 1


def test_errors_at_one_place_are_folded(fails: pytest.RunResult) -> None:
    """Where only the values differ, the frames are shown once and the values of each rank."""
    text = part(fails, "test_own_assert")

    text.fnmatch_lines(
        [
            "----- ranks 0, 1, as rank 0 saw it -----",
            "E*assert 0 == 7",
            "... rank 1, at the same place:",
            "E*assert 1 == 7",
            "*Captured stdout and stderr of rank 0 call*",
            "row 0",
        ]
    )
    assert str(text).count("def compare") == 1


def test_fail_on_all_ranks(fails: pytest.RunResult) -> None:
    """`pytest.fail` without a traceback shows its words alone."""
    part(fails, "test_fail").fnmatch_lines(["----- ranks 0, 1 -----", "Failed: not good enough"])


def test_asserts_are_rewritten_for_runs_from_the_parent(fails: pytest.RunResult) -> None:
    """A function of the test's module says the values that it compared."""
    text = part(fails, "test_in_parent")

    text.fnmatch_lines(["ranks 0, 1 raised AssertionError: assert 1 == 2"])


def test_a_fixture_that_cannot_travel_is_named(fails: pytest.RunResult) -> None:
    """The message says which, why, and what to do."""
    part(fails, "test_fixture_that_stays").fnmatch_lines(
        ["fixture 'lock' cannot travel to the ranks: a lock, TypeError: *take the fixture `gang`*"]
    )


def test_a_fixture_of_the_parent_is_refused(fails: pytest.RunResult) -> None:
    """One that captures here would capture nothing there."""
    part(fails, "test_capsys").fnmatch_lines(
        ["fixture 'capsys' works in the parent alone*: its output is in the report*"]
    )


def test_an_instance_that_cannot_travel_is_named(fails: pytest.RunResult) -> None:
    """The message says which attribute."""
    part(fails, "test_self_that_stays").fnmatch_lines(["self.guard cannot travel to the ranks:*"])


def test_an_async_body_is_refused(fails: pytest.RunResult) -> None:
    """With a hint at asyncio.run."""
    part(fails, "test_async").fnmatch_lines(["test_async is async*asyncio.run(...)*"])


def test_a_unittest_method_is_refused(fails: pytest.RunResult) -> None:
    """It would have run in the parent."""
    part(fails, "test_unittest").fnmatch_lines(["*not on methods of unittest.TestCase*"])


def test_a_body_that_returns_is_warned_of(fails: pytest.RunResult) -> None:
    """As pytest warns of any test."""
    fails.stdout.fnmatch_lines(["*PytestReturnNotNoneWarning: *test_returns* returned a int *"])


def test_ranks_that_end_differently(fails: pytest.RunResult) -> None:
    """A skip on some ranks is a failure of its own kind."""
    part(fails, "test_some_skip").fnmatch_lines(
        ["the ranks ended in different ways: rank 0 returned; rank 1 skipped", "----- rank 1 -----"]
    )
    fails.stdout.fnmatch_lines(["FAILED *::test_some_skip[[]processes=2] - RanksDiffer: *"])


def test_a_death_is_a_failure_of_its_own_kind(fails: pytest.RunResult) -> None:
    """It says which rank, and how it ended."""
    part(fails, "test_dies").fnmatch_lines(["Rank 1 died with exit status 3*"])
    fails.stdout.fnmatch_lines(["FAILED *::test_dies[[]processes=2] - GangDied: *"])


def test_a_fault_that_never_happens_is_a_failure(fails: pytest.RunResult) -> None:
    """It names the fault, its rank, and what never came; here of a schedule around a test."""
    part(fails, "test_misses").fnmatch_lines(
        ["not injected: rank 1 at batch 9: kill (the last that it came to was batch 3)"]
    )
    fails.stdout.fnmatch_lines(["FAILED *::test_misses[[]processes=2] - FaultMissed: *"])


def test_a_failure_that_was_injected_says_so(fails: pytest.RunResult) -> None:
    """In a line below the headline and at the error, whose last frame is the test's own."""
    found = part(fails, "test_injected")

    found.fnmatch_lines(
        [
            "ranks 0, 1 raised OSError: an injected fault",
            "injected: raise of rank ? at batch 0, raise of rank ? at batch 0",
            ">*list(each(*",
            "E*OSError: an injected fault",
            "E*injected fault: rank 0 at batch: raise *",
            "test_fails.py:*: OSError",
        ]
    )
    assert "faults_inside" not in str(found)


def test_a_hang_is_a_failure_of_its_own_kind(fails: pytest.RunResult) -> None:
    """It says who waits for whom; causes first, then stacks, own frames first, folded."""
    part(fails, "test_hangs").fnmatch_lines(
        [
            "one-sided error: rank 1: ValueError: no more rows",
            "rank 1 raised ValueError *; ranks 0, 2 wait for another thread at *wait_for_peer*",
            "----- rank 1 -----",
            "E*ValueError: no more rows",
            "----- ranks 0, 2: stacks -----",
            "main thread, its own frames, innermost first:",
            "*test_fails.py:* in wait_for_peer",
            "*threading.Event().wait(1e6)",
            "*test_fails.py:* in test_hangs",
        ]
    )
    fails.stdout.fnmatch_lines(["FAILED *::test_hangs[[]processes=3] - GangHung: *"])


def test_a_passed_deadline_is_a_failure_of_its_own_kind(fails: pytest.RunResult) -> None:
    """A rank that still computes is neither hung nor done."""
    part(fails, "test_undecided").fnmatch_lines(
        ["the deadline of 1.5 s passed *", "----- ranks 0, 1: stacks -----"]
    )
    fails.stdout.fnmatch_lines(["FAILED *::test_undecided[[]processes=2] - GangUndecided: *"])
    fails.assert_outcomes(passed=1, failed=13, errors=2, warnings=1)


def test_import_mode_importlib(pytester: pytest.Pytester) -> None:
    """Test files of one name in folders that are no packages are found on ranks."""
    body = """
        import pytest

        class Own:
            name = {name!r}

        @pytest.fixture
        def own():
            return Own()

        @pytest.mark.gang
        def test_own(own, shared):
            assert (own.name, type(own), shared.rows) == ({name!r}, Own, {name!r})
    """
    conftest = """
        import pytest

        class Shared:
            rows = {name!r}

        @pytest.fixture
        def shared():
            return Shared()
    """
    for name in ("one", "two"):
        folder = pytester.mkdir(name)
        for file, text in (("test_it.py", body), ("conftest.py", conftest)):
            source = "\n".join(line[8:] for line in text.format(name=name).splitlines())
            (folder / file).write_text(source)
    result = run(pytester, "--import-mode=importlib")

    result.assert_outcomes(passed=2)


def test_stop_at_the_first_failure_and_run_it_again(pytester: pytest.Pytester) -> None:
    """`-x` stops, and `--lf` then runs the topology that failed, and no other."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gang(processes=[1, 2, 3])
        def test_it(this):
            assert this.processes != 2
        """
    )
    first = run(pytester, "-x")
    again = run(pytester, "--lf", "-v")

    first.assert_outcomes(passed=1, failed=1)
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*::test_it[[]processes=2] FAILED*"])


def test_workers_of_xdist_share_the_bound(pytester: pytest.Pytester) -> None:
    """Never do more ranks live at once than allowed, over all workers; gangs are warm in each."""
    pytester.makepyfile(
        """
        import os, pathlib
        import pytest

        def note():
            mine = pathlib.Path("pids")
            mine.mkdir(exist_ok=True)
            (mine / str(os.getpid())).touch()

        @pytest.mark.gang(processes=2)
        @pytest.mark.parametrize("k", range(6))
        def test_two(k):
            note()

        @pytest.mark.gang(processes=3)
        def test_three():
            note()
        """
    )
    with count_ranks() as seen:
        result = run(pytester, "-n", "2", "--gang-max-processes=4")

    result.assert_outcomes(passed=7)
    assert 3 <= max(seen) <= 4
    # Two workers with a gang of two, one of three, and those of two again; 15 if none stayed warm.
    assert len(list((pytester.path / "pids").iterdir())) <= 11


def test_bodies_run_on_ray_actors(pytester: pytest.Pytester) -> None:
    """With `backend="ray"` the ranks are actors of one cluster, and failures read the same."""
    pytester.makepyfile(
        """
        import os
        import jax
        import numpy as np
        import pytest
        from jax.experimental import multihost_utils

        pytestmark = pytest.mark.gang(processes=2, backend="ray")

        def test_sum(this):
            import ray
            assert ray.get_runtime_context().get_actor_id()
            ranks = multihost_utils.process_allgather(np.array([this.rank]))
            assert ranks.ravel().tolist() == [0, 1]

        def test_failure(this):
            if this.rank == 1:
                raise ValueError("no more rows")

        def test_parent(gang):
            from harness.pytest_plugin import check
            assert os.getpid() not in check(gang.run(os.getpid))
        """
    )
    result = run(pytester)

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["rank 1 raised ValueError: no more rows; rank 0 returned"])


def test_pytest_timeout_ends_a_run(pytester: pytest.Pytester) -> None:
    """A time-out that comes before the gang's own verdict ends the test, not the session."""
    pytester.makepyfile(
        """
        import os, pathlib, time
        import pytest

        @pytest.mark.timeout(6)
        @pytest.mark.gang
        def test_slow(this):
            pathlib.Path(f"pid{this.rank}").write_text(str(os.getpid()))
            time.sleep(1e6)

        def test_next():
            pass
        """
    )
    result = run(pytester, "--gang-stall-s=100")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Timeout*6*"])
    assert_nothing_left(pytester)


def test_an_interrupt_ends_the_session_and_the_ranks(pytester: pytest.Pytester) -> None:
    """Control-C while ranks run tells how they stand, and leaves no process."""
    pytester.makepyfile(
        """
        import os, pathlib, signal, time
        import pytest

        @pytest.mark.gang
        def test_interrupted(this):
            pathlib.Path(f"pid{this.rank}").write_text(str(os.getpid()))
            if this.rank == 0:
                os.kill(os.getppid(), signal.SIGINT)
            time.sleep(1e6)
        """
    )
    result = run(pytester)

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "=* interrupted: *::test_interrupted[[]processes=2] =*",
            "The gang was interrupted * s after the start of the run, which stood so:",
            "stacks of the ranks that had not ended, own frames first:",
            "*.py:* in test_interrupted: *",
            "!* KeyboardInterrupt !*",
        ]
    )
    assert str(result.stdout).count("which stood so") == 1
    assert_nothing_left(pytester)


def test_a_second_interrupt_ends_all_at_once(pytester: pytest.Pytester) -> None:
    """While stacks are taken because of the first one; then nothing is told of them."""
    pytester.makepyfile(
        """
        import os, pathlib, signal, time
        import pytest
        from harness.host import HostWatch

        def interrupted_again(watch, ranks):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1e6)

        @pytest.fixture
        def stacks(monkeypatch):
            monkeypatch.setattr(HostWatch, "stacks", interrupted_again)

        def wait_for_ever():
            from harness import rank
            pathlib.Path(f"pid{rank.this().rank}").write_text(str(os.getpid()))
            if rank.this().rank == 0:
                os.kill(os.getppid(), signal.SIGINT)
            time.sleep(1e6)

        @pytest.mark.gang
        def test_interrupted(gang, stacks):
            gang.run(wait_for_ever)
        """
    )
    result = run(pytester)

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*interrupted:*")
    assert_nothing_left(pytester)


def test_pdb_in_the_parent(pytester: pytest.Pytester) -> None:
    """After a failure on ranks, `--pdb` has the outcomes at hand; then the session goes on."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gang
        def test_it(this):
            raise ValueError(f"row {this.rank}")
        """
    )
    result = pytester.run(
        *(sys.executable, "-m", "pytest", "-p", "harness.pytest_plugin", "--pdb"),
        stdin=b"p [o.message for o in outcomes]\nc\n",
        timeout=LIMIT_S,
    )

    result.stdout.fnmatch_lines(["*(Pdb) [[]'row 0', 'row 1']*"])
    result.assert_outcomes(failed=1)


@contextmanager
def count_ranks() -> Iterator[list[int]]:
    """Count, again and again, the ranks that live below this process; those that start, too."""
    seen = [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            ranks = 0
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
                    command = " ".join(process.cmdline())
                    ranks += not ended and "harness.backends.local_main" in command
            seen.append(ranks)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def assert_nothing_left(pytester: pytest.Pytester) -> None:
    """No rank that wrote its id lives."""
    pids = [int(file.read_text()) for file in pytester.path.glob("pid*")]
    assert pids
    assert os.getpid() not in pids
    assert wait_until(lambda: not any(map(is_alive, pids)), 10)
