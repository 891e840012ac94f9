"""What Linux says of a process: how much it would run, whether it is stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_NANOSECOND_S = 1e-9


@dataclass(frozen=True)
class ProcessState:
    """One look at a process.

    Attributes:
        demand_s: seconds that its threads have spent on a core (ended threads too), or ready to
            run but without a core (threads that live), added up over threads.
        stopped: stopped by a signal.
    """

    demand_s: float
    stopped: bool


def look_at(pid: int) -> ProcessState | None:
    """Look at a process of this machine; `None` when it has ended."""
    stat = _read(f"/proc/{pid}/stat")
    # The second field is the name, which may hold blanks and brackets.
    fields = stat.rpartition(b")")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) * _TICK_S
    return ProcessState(cpu_s + _waited_for_core_s(pid), fields[0] in (b"T", b"t"))


def _waited_for_core_s(pid: int) -> float:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0.0
    waited_ns = 0
    for thread in threads:
        # Nanoseconds on a core, nanoseconds ready without one, number of turns.
        fields = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
        waited_ns += int(fields[1]) if fields else 0
    return waited_ns * _NANOSECOND_S


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # ended in the meantime
        return b""
