"""Ends what a gang has started once its parent is gone: run as a script, imports next to nothing.

    python -I -S guardian.py MARK DIRECTORY

It waits until its standard input ends, or its parent has died. Then all processes whose environment
holds MARK (`NAME=value`, new for each gang, inherited by whatever a rank starts) get SIGKILL, as do
their children, and DIRECTORY is removed. A mark, unlike a process id that was noted earlier, cannot
belong to a stranger.

On its standard input it takes single letters: `l` to look now, and to end what it sees later on,
even if that has lost both mark and parent by then; `d` when the parent has tidied up itself.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time

PARENT_CHECK_S = 1.0
QUIET_S = 0.1
EXEC_LIMIT_S = 1.0
STOP_LIMIT_S = 1.0
ENDED = (b"Z", b"X")


def marked(mark: bytes) -> list[int]:
    """Process ids of all processes, but this one, that have `mark` in their environment.

    Some programs show their name in the memory that held their environment, so what a marked
    process has started counts as well.
    """
    parents: dict[int, int] = {}
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            state, parent = state_and_parent(name)
            # The main thread may have ended before the others: these alone show an environment.
            thread = live_thread(name) if state in ENDED else name
            if thread is None:
                continue
            variables = environment(f"{name}/task/{thread}").split(b"\0")
        except OSError:  # it has just ended, or belongs to another user
            continue
        parents[int(name)] = int(parent)
        if mark in variables:
            found.append(int(name))
    for pid in found:  # grows while it is read: children of children too
        started = [each for each, parent in parents.items() if parent == pid and each not in found]
        found += [each for each in started if not is_guardian(each)]
    return found


def state_and_parent(pid: str) -> tuple[bytes, bytes]:
    """Return the state of a process, or of a thread (`PID/task/THREAD`), and its parent's id."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        state, parent = file.read().rpartition(b")")[2].split()[:2]
    return state, parent


def live_thread(pid: str) -> str | None:
    """Return a thread of a process that has not ended, if there is one."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # it has just ended
            if state_and_parent(f"{pid}/task/{thread}")[0] not in ENDED:
                return thread
    return None


def environment(pid: str) -> bytes:
    """Return what a process was started with: `NAME=value`, each ended by a zero byte.

    Of a process whose main thread has ended, another thread has it: `PID/task/THREAD`.

    For a moment after exec a process shows neither arguments nor environment: then this waits for
    them. Whoever started it may have ended by then, so nothing else would tell what it is.
    """
    deadline_s = time.monotonic() + EXEC_LIMIT_S
    while True:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # before: what comes later is there then
            arguments = file.read()
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read()
        if arguments or variables or time.monotonic() > deadline_s:
            return variables
        os.readlink(f"/proc/{pid}/exe")  # a thread of the kernel has none, nor what has ended
        time.sleep(0.0005)


def is_guardian(pid: int) -> bool:
    """Whether a process is a guardian: it ends by itself, and must tidy up before it does."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return any(each.endswith(b"/guardian.py") for each in file.read().split(b"\0")[1:5])
    except OSError:  # it has just ended
        return False


def kill_marked(mark: bytes, limit_s: float = 5.0) -> bool:
    """SIGKILL all processes that hold `mark`, until none is left; False when some were at last.

    They are stopped first, until a look finds no more of them: what a process starts during a look
    may have a mark of its own (that of another gang, say), and is known by its parent alone.
    """
    began_s = time.monotonic()
    deadline_s, stop_until_s = began_s + limit_s, began_s + min(limit_s, STOP_LIMIT_S)
    told: set[int] = set()  # to stop
    while pids := marked(mark):
        now_s = time.monotonic()
        grown = not told.issuperset(pids) and now_s < deadline_s
        # Until one thread has seen the signal, the others go on.
        stops = grown or (now_s < stop_until_s and any(map(runs, pids)))
        _send(pids, signal.SIGSTOP if stops else signal.SIGKILL)
        told.update(pids)
        if stops:
            continue
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def runs(pid: int) -> bool:
    """Whether a thread of a process runs, or waits for what may wake it: it is not stopped yet."""
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                if state_and_parent(f"{pid}/task/{thread}")[0] in (b"R", b"S"):
                    return True
    return False


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def hold(pids: list[int]) -> list[int]:
    """Open a descriptor of each process that has not ended; an id cannot come to mean another."""
    held = []
    for pid in pids:
        with contextlib.suppress(OSError):
            held.append(os.pidfd_open(pid))
    return held


def main() -> None:
    """Wait for the parent's end, then tidy up."""
    mark, directory = sys.argv[1].encode(), sys.argv[2]
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    parent = os.getppid()
    held: list[int] = []
    # A child that the parent has forked may hold the other end of the pipe: look at the parent too.
    while os.getppid() == parent:
        if not select.select([0], [], [], PARENT_CHECK_S)[0]:
            continue
        letter = os.read(0, 1)
        if letter == b"d":
            return
        if letter != b"l":
            break
        held += hold(marked(mark))
    for fd in held:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    # Twice: a process that was between fork and exec had no mark yet.
    kill_marked(mark)
    time.sleep(QUIET_S)
    kill_marked(mark)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
