"""What Linux says of a process: CPU time, whether it would run, whether it is stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessState:
    """One look at a process.

    Attributes:
        cpu_s: CPU seconds used by all its threads so far.
        runnable: some thread is on a core, waits for one, or is in an uninterruptible wait.
        stopped: stopped by a signal.
    """

    cpu_s: float
    runnable: bool
    stopped: bool


def look_at(pid: int) -> ProcessState | None:
    """Look at a process of this machine; `None` when it is gone, or only its exit status is left."""
    main = _stat(f"/proc/{pid}/stat")
    if main is None or main[0] in "ZX":
        return None
    stopped = main[0] in "Tt"
    return ProcessState(
        cpu_s=(int(main[11]) + int(main[12])) * _TICK_S,
        runnable=not stopped and _any_thread_runnable(pid),
        stopped=stopped,
    )


def _any_thread_runnable(pid: int) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for thread in threads:
        fields = _stat(f"/proc/{pid}/task/{thread}/stat")
        if fields is not None and fields[0] in "RD":
            return True
    return False


def _stat(path: str) -> list[str] | None:
    """Read the fields from the third on (the state): the second may hold blanks and brackets."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return None
