"""What Linux says of a process: how much it runs or would, whether it is stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_NANOSECOND_S = 1e-9


@dataclass(frozen=True)
class ProcessState:
    """One look at a process.

    Attributes:
        cpu_s: CPU seconds used by all its threads so far, ended ones too.
        demand_s: for each thread, by its id, seconds so far on a core or ready for one.
        stopped: stopped by a signal.
        started: when it started, in clock ticks since the machine did: with the process id, which
            is used again, it says which process this is.
        parent: its parent's process id.
    """

    cpu_s: float
    demand_s: dict[int, float]
    stopped: bool
    started: int
    parent: int


def look_at(pid: int) -> ProcessState | None:
    """Look at a process of this machine; `None` when it has ended."""
    # The second field is the name, which may hold blanks and brackets.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return ProcessState(
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        demand_s=_demand_s(pid),
        stopped=fields[0] in (b"T", b"t"),
        started=int(fields[19]),
        parent=int(fields[1]),
    )


def _demand_s(pid: int) -> dict[int, float]:
    demand_s = {}
    for thread in _threads(pid):
        # Nanoseconds on a core, nanoseconds ready without one, number of turns.
        fields = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
        if fields:
            demand_s[int(thread)] = (int(fields[0]) + int(fields[1])) * _NANOSECOND_S
    return demand_s


def children(pid: int) -> list[int]:
    """Process ids of a process's children; none where the kernel does not tell."""
    return [
        int(child)
        for thread in _threads(pid)
        for child in _read(f"/proc/{pid}/task/{thread}/children").split()
    ]


def name_of(pid: int) -> str:
    """Give the first 15 bytes of a process's name; empty when it has ended."""
    return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # ended in the meantime
        return b""
