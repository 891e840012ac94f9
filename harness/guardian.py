"""Ends what a gang has started once its parent is gone: run as a script, imports next to nothing.

    python -I -S guardian.py MARK DIRECTORY

It waits until its standard input ends, or its parent has died. If one byte came before that, the
parent has tidied up itself. Otherwise every process whose environment holds MARK (`NAME=value`, new
for each gang, inherited by whatever a rank starts) gets SIGKILL, and DIRECTORY is removed. A mark,
unlike a process id, cannot belong to a stranger.
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


def marked(mark: bytes) -> list[int]:
    """Process ids of all processes, but this one, whose environment holds `mark`."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:  # it has just ended, or belongs to another user
            continue
        if mark in environment.split(b"\0"):
            found.append(int(name))
    return found


def kill_marked(mark: bytes, limit_s: float = 5.0) -> bool:
    """SIGKILL all processes that hold `mark`, until none is left; False when some were at last."""
    deadline_s = time.monotonic() + limit_s
    while pids := marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def main() -> None:
    """Wait for the parent's end, then tidy up."""
    mark, directory = sys.argv[1].encode(), sys.argv[2]
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    parent = os.getppid()
    # A child that the parent has forked may hold the other end of the pipe: look at the parent too.
    while os.getppid() == parent:
        if select.select([0], [], [], PARENT_CHECK_S)[0]:
            if os.read(0, 1):
                return
            break
    # Twice: a process that was between fork and exec had no mark yet.
    kill_marked(mark)
    time.sleep(QUIET_S)
    kill_marked(mark)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
