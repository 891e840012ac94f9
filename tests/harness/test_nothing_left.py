"""After a gang there is no process, no file, no thread and no file descriptor of it left."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness import Gang, Hung, Returned, guardian
from harness.custody import MARK_NAME, Custody
from tests.harness import cases
from tests.harness.conftest import is_alive, open_fds, wait_until
from tests.harness.parents import pids_of

ROOT = Path(__file__).parents[2]
# The guardian looks twice; the rest is for machines that are busy with other things.
LIMIT_S = 15.0


class Parent:
    """A real parent process in a process group of its own, as a shell would start it."""

    def __init__(self, end: str, backend: str = "local") -> None:
        with tempfile.TemporaryFile("w+") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.parents", end, backend, "2"],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                text=True,
                start_new_session=True,
            )
            assert self.process.stdout is not None
            self.stdout = self.process.stdout
            line = self.stdout.readline()
            if not line:
                self.process.wait(LIMIT_S)
                self.stdout.close()
                errors.seek(0)
                raise AssertionError(f"the parent did not start:\n{errors.read()[-4000:]}")
        self.pids: list[int] = json.loads(line)

    def finish(self) -> int:
        """Wait for its end; returns the exit status."""
        status = self.process.wait(LIMIT_S)
        self.stdout.close()
        return status


StartParent = Callable[..., Parent]


@pytest.fixture
def start_parent() -> Iterator[StartParent]:
    """Give a function that starts parents; those that a failed test left are killed."""
    parents: list[Parent] = []

    def start(end: str, backend: str = "local") -> Parent:
        parents.append(Parent(end, backend))
        return parents[-1]

    yield start
    for parent in parents:
        parent.process.kill()
        parent.finish()


def nothing_left(pids: list[int], temp_dir: Path) -> bool:
    """Whether none of the processes is alive and the directory is empty."""
    return not any(map(is_alive, pids)) and not list(temp_dir.iterdir())


@pytest.mark.parametrize("doing", ["idle", "run"])
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_nothing(
    temp_dir: Path, start_parent: StartParent, doing: str, signal_number: signal.Signals
) -> None:
    """Ranks, what they have started, and files are gone soon after the parent was killed."""
    parent = start_parent(doing)

    assert len(set(parent.pids)) == 5  # two ranks, what each has started, and the guardian
    assert all(map(is_alive, parent.pids))
    parent.process.send_signal(signal_number)
    assert parent.finish() == -signal_number
    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)


def test_a_killed_parent_leaves_no_stopped_rank(temp_dir: Path, start_parent: StartParent) -> None:
    """Ranks that are stopped when the parent is killed are ended too."""
    parent = start_parent("run")
    for pid in parent.pids[:2]:
        os.kill(pid, signal.SIGSTOP)
    parent.process.kill()
    parent.finish()

    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)


def test_a_killed_parent_leaves_no_ray_cluster(temp_dir: Path, start_parent: StartParent) -> None:
    """A cluster that the gang has started is gone soon after the parent was killed."""
    parent = start_parent("run", "ray")

    assert len(set(parent.pids)) > 8  # Ray has at least four of its own
    parent.process.kill()
    parent.finish()
    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)


def test_a_killed_parent_leaves_no_fake_slice(temp_dir: Path, start_parent: StartParent) -> None:
    """The nodes of a slice that is not there, and their files, end with the parent."""
    parent = start_parent("run", "fake")

    assert len(set(parent.pids)) > 8
    parent.process.kill()
    parent.finish()
    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)


def test_the_guardian_of_what_is_killed_tidies_up(temp_dir: Path) -> None:
    """The guardian of a process that is ended with all its children outlives it."""
    program = (
        "import time; from harness.custody import Custody; "
        "print(Custody('inner').directory, flush=True); time.sleep(1000)"
    )
    outer = Custody()
    environment = {**os.environ, outer.mark[0]: outer.mark[1], "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as inner:
        assert inner.stdout is not None
        directory = Path(inner.stdout.readline().strip())
        made = directory.is_dir()
        outer.close()

    assert made
    assert wait_until(lambda: not list(temp_dir.iterdir()), LIMIT_S)


@pytest.mark.parametrize("name", ["\udcff", "ä", "much-longer-than-sockets-may-have-it"])
def test_the_directory_has_a_path_that_sockets_and_jax_take(
    temp_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where the path of temporary files is too long, or not ASCII, it is in /tmp."""
    (temp_dir / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temp_dir / name))
    custody = Custody()
    path = str(custody.directory)
    custody.close()

    assert path.isascii()
    assert len(path) < 30


def test_no_directory_is_left_where_there_is_no_guardian(
    temp_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no process can be started, as without file descriptors, no directory stays either."""
    monkeypatch.setattr(sys, "executable", str(temp_dir / "missing"))
    with pytest.raises(FileNotFoundError):
        Custody()

    assert list(temp_dir.iterdir()) == []


def test_a_guardian_can_be_told_from_the_first_moment() -> None:
    """No process shows as a nameless child, which whoever kills the parent would kill too."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    others = set(children.read_text().split())
    told = []
    for _ in range(30):
        custody = Custody()
        started = set(children.read_text().split()) - others
        told += [guardian.is_guardian(int(pid)) for pid in started]
        custody.close()

    assert told == [True] * 30


def test_a_mark_can_be_told_from_the_first_moment() -> None:
    """No process is overlooked because it has just been started, and shows no environment yet."""
    seen = []
    for _ in range(100):
        process = subprocess.Popen(["/bin/sleep", "1000"], env={MARK_NAME: "fresh"})
        seen.append(guardian.environment(str(process.pid)))
        process.kill()
        process.wait()

    assert seen == [f"{MARK_NAME}=fresh\0".encode()] * 100


def _arguments(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def test_what_is_started_during_a_look_is_ended_too() -> None:
    """No process escapes whose parent, which alone holds the mark, starts it as that is ended."""
    seconds = secrets.randbelow(10**9) + 10**9  # tells the children from all other processes
    program = (
        "import subprocess\n"
        "for _ in range(1000):\n"
        f"    subprocess.Popen(['/bin/sleep', '{seconds}'], env={{}}, close_fds=False)\n"
        "    print(flush=True)\n"
    )
    mark = f"{MARK_NAME}={secrets.token_hex(8)}"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK_NAME: mark.partition("=")[2]},
    ) as parent:
        assert parent.stdout is not None
        for _ in range(20):
            parent.stdout.readline()
        ended = guardian.kill_marked(mark.encode(), limit_s=LIMIT_S)
        parent.stdout.close()
    escaped = [each for each in psutil.process_iter() if str(seconds) in _arguments(each)]
    for each in escaped:
        each.kill()

    assert ended
    assert escaped == []


def test_nothing_is_ended_before_all_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a signal is seen late, as by a thread that gets no time, its effect is waited for."""
    mark = f"{MARK_NAME}={secrets.token_hex(8)}"
    send = guardian._send
    running: list[list[int]] = []
    stopping: list[threading.Timer] = []

    def late(pids: list[int], number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            running.append([pid for pid in pids if guardian.runs(pid)])
            send(pids, number)
        elif not stopping:
            stopping.append(threading.Timer(0.1, send, (pids, number)))
            stopping[0].start()

    monkeypatch.setattr(guardian, "_send", late)
    monkeypatch.setattr(guardian, "STOP_LIMIT_S", LIMIT_S)
    with subprocess.Popen(
        ["/bin/sleep", "1000"], env={**os.environ, MARK_NAME: mark.partition("=")[2]}
    ):
        ended = guardian.kill_marked(mark.encode(), limit_s=LIMIT_S)
    stopping[0].join()

    assert ended
    assert running[0] == []


def test_a_process_is_ended_whose_main_thread_has_ended() -> None:
    """What shows as a zombie, because its main thread has ended before others, is ended too."""
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    mark = f"{MARK_NAME}={secrets.token_hex(8)}"
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, MARK_NAME: mark.partition("=")[2]}
    ) as process:
        headless = wait_until(lambda: not is_alive(process.pid), LIMIT_S)
        runs_on = process.poll() is None
        ended = guardian.kill_marked(mark.encode(), limit_s=LIMIT_S)
        gone = wait_until(lambda: process.poll() is not None, LIMIT_S)
        process.kill()

    assert headless
    assert runs_on
    assert ended
    assert gone


@pytest.mark.parametrize("doing", ["run", "with"])
def test_ctrl_c_leaves_nothing(temp_dir: Path, start_parent: StartParent, doing: str) -> None:
    """SIGINT to the parent's process group ends the parent, which ends all: none dies half."""
    parent = start_parent(doing)
    os.killpg(parent.process.pid, signal.SIGINT)

    assert parent.finish() == -signal.SIGINT
    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)


@pytest.mark.parametrize(("end", "status"), [("raise", 1), ("exit", 0), ("exit-in-thread", 0)])
def test_a_parent_that_ends_leaves_nothing(
    temp_dir: Path, start_parent: StartParent, end: str, status: int
) -> None:
    """An exception, or the end of a program that never called close(), ends the gang."""
    parent = start_parent(end)

    assert parent.finish() == status
    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)


def test_a_forgotten_gang_is_ended(temp_dir: Path, start_parent: StartParent) -> None:
    """A gang that nobody refers to any more is ended while its parent lives on."""
    parent = start_parent("forget")
    parent.stdout.readline()

    assert wait_until(lambda: nothing_left(parent.pids, temp_dir), LIMIT_S)
    assert is_alive(parent.process.pid)


def _run_once(gang: Gang) -> None:
    assert all(isinstance(outcome, Returned) for outcome in gang.run(cases.gather))


def _hang(gang: Gang) -> None:
    outcomes = gang.run(cases.culprit_then_gather, 1, "SIGSTOP", stall_s=1.0)
    assert all(isinstance(outcome, Hung) for outcome in outcomes)


@pytest.mark.parametrize("use", [_run_once, _hang])
def test_close_leaves_nothing(temp_dir: Path, use: Callable[[Gang], None]) -> None:
    """After close() processes, files, threads and file descriptors are gone."""
    fds, threads = open_fds(), threading.active_count()
    with Gang(processes=2) as gang:
        pids = pids_of(gang)
        use(gang)

    # What was killed may need a moment to go where the cores are busy.
    assert wait_until(lambda: nothing_left(pids, temp_dir), LIMIT_S)
    assert open_fds() == fds
    assert threading.active_count() == threads


def test_close_ends_what_has_lost_its_parent_and_environment() -> None:
    """A process that nothing but its ancestors ties to a rank ends with the gang."""
    with Gang(processes=1) as gang:
        (outcome,) = gang.run(cases.start_orphan)
        assert isinstance(outcome, Returned)
        lived = is_alive(outcome.value)

    ended = wait_until(lambda: not is_alive(outcome.value), LIMIT_S)
    if not ended:
        os.kill(outcome.value, signal.SIGKILL)
    assert lived
    assert ended


def test_two_gangs_live_side_by_side(temp_dir: Path) -> None:
    """Two gangs of one parent do not see each other, and the end of one leaves the other be."""
    with Gang(processes=2) as one:
        with Gang(processes=2) as other:
            pids = pids_of(other)
            _run_once(one)
            _run_once(other)

        assert wait_until(lambda: not any(map(is_alive, pids)), LIMIT_S)
        _run_once(one)
        assert one.restarts == 0

    assert not list(temp_dir.iterdir())


def test_a_forked_child_of_the_parent_does_not_end_the_gang(gang: Gang) -> None:
    """A copy of the gang in a forked child neither runs anything nor ends the gang."""
    gang.run(cases.give)
    restarts = gang.restarts
    with warnings.catch_warnings():
        # Python warns of forks beside threads: that such a child does no harm is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            gang.run(cases.give)
        except RuntimeError:
            gang.close()
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    _run_once(gang)
    assert gang.restarts == restarts
